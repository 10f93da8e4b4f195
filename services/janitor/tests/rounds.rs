//! The timer on a real PostgreSQL: lost events, expiry, overdue work (R-B7, R-B9, R-H1).

#![expect(clippy::unwrap_used, reason = "a test's helpers fail their test")]

use std::sync::Arc;

use cards::{Card, ConfirmedBy, Ids, MediaType, OwnerId, State, StateName, timing};
use chrono::TimeDelta;
use events::work::Queue;
use intake::{GroupSettings, Intake};
use janitor::{Janitor, JanitorSettings, Round};
use objects::Operation;
use objects::fake::{Fake, Fault, Upload};
use store::Db;
use testkit::{TestDb, fixture};

struct World {
    test: TestDb,
    db: Db,
    api: Db,
    fake: Arc<Fake>,
    janitor: Janitor,
    owner: OwnerId,
}

impl World {
    async fn new() -> Self {
        let test = TestDb::new().await;
        let (db, api, fake) = (test.worker(), test.api(), Arc::new(Fake::new()));
        let intake = Intake::new(db.clone(), Arc::clone(&fake) as _, Ids, GroupSettings::default());
        let janitor = Janitor::new(db.clone(), intake, Ids, JanitorSettings::default());
        let owner = fixture::owner(&api).await;
        Self { test, db, api, fake, janitor, owner }
    }

    async fn pending(&self) -> Card {
        fixture::pending(&self.api, self.owner, MediaType::Text, b"hello").await
    }

    async fn read(&self, card: &Card) -> Card {
        fixture::read(&self.db, card).await
    }

    async fn round(&self) -> Round {
        self.janitor.round().await.unwrap()
    }
}

#[tokio::test]
async fn an_upload_whose_event_was_lost_is_found_a_minute_after_its_ticket() {
    let world = World::new().await;
    let card = world.pending().await;
    let version = fixture::upload(&world.fake, &card, b"hello");
    assert_eq!(world.round().await, Round::default(), "nothing is due yet");
    world.test.pass_time(60).await;
    assert_eq!(world.round().await, Round { claimed: 1, confirmed: 1, ..Round::default() });
    let queued = world.read(&card).await;
    assert_eq!(queued.state, State::Queued { pinned: version });
    assert_eq!(queued.confirmed_by, Some(ConfirmedBy::Sweep));
    assert_eq!(world.test.count("select count(*) from outbox where queue = 'card.decode'").await, 1);
}

#[tokio::test]
async fn a_card_nobody_uploads_to_is_looked_at_at_doubling_intervals_and_expires_once() {
    let world = World::new().await;
    let card = world.pending().await;
    // Looks come 60 s after the ticket, then after 120, 240, 480 s, and last at its end + 6 min.
    for step in [60, 120, 240, 480] {
        world.test.pass_time(step).await;
        assert_eq!(world.round().await, Round { claimed: 1, ..Round::default() }, "{step}");
        assert_eq!(world.round().await, Round::default(), "{step}: not due again yet");
        assert_eq!(world.read(&card).await.state.name(), StateName::Pending);
    }
    world.test.pass_time(60).await;
    assert_eq!(world.round().await, Round { claimed: 1, expired: 1, ..Round::default() });
    let expired = world.read(&card).await;
    assert_eq!(expired.state, State::Expired);
    assert_eq!(world.round().await, Round::default());
    assert_eq!(world.test.count("select count(*) from card_history where event = 'expired'").await, 1);
    assert_eq!(world.test.count("select count(*) from outbox where queue = 'card.purge'").await, 1);
}

/// R-B7: an upload that ended in time counts although nobody saw it before the ticket's last look.
#[tokio::test]
async fn an_upload_in_the_last_minute_is_confirmed_rather_than_expired() {
    let world = World::new().await;
    let card = world.pending().await;
    world.fake.upload_as(Upload {
        key: card.source_key().to_string(),
        bytes: b"hello".as_slice().into(),
        content_type: Some("text/plain".to_owned()),
        last_modified: Some(card.ticket.ends_at + TimeDelta::minutes(5) - TimeDelta::seconds(961)),
        ..Upload::default()
    });
    world.test.pass_time(961).await;
    assert_eq!(world.round().await, Round { claimed: 1, confirmed: 1, ..Round::default() });
    assert_eq!(world.read(&card).await.state.name(), StateName::Queued);
}

#[tokio::test]
async fn an_upload_that_came_too_late_expires_its_card_and_is_asked_away() {
    let world = World::new().await;
    let card = world.pending().await;
    world.test.pass_time(961).await;
    fixture::upload(&world.fake, &card, b"hello");
    assert_eq!(world.round().await, Round { claimed: 1, expired: 1, ..Round::default() });
    assert!(world.read(&card).await.purge_at.is_some());
}

/// Upload beside expiry: whichever way they meet, the card ends in one state with one job at most.
#[tokio::test]
async fn expiry_and_an_event_at_once_never_both_win() {
    let world = World::new().await;
    for n in 0..10_i32 {
        let card = world.pending().await;
        world.fake.upload_as(Upload {
            key: card.source_key().to_string(),
            bytes: b"hello".as_slice().into(),
            content_type: Some("text/plain".to_owned()),
            last_modified: Some(card.ticket.ends_at - TimeDelta::seconds(2000)),
            ..Upload::default()
        });
        world.test.pass_time(961).await;
        let intake =
            Intake::new(world.db.clone(), Arc::clone(&world.fake) as _, Ids, GroupSettings::default());
        // The sweep sees nothing (the listing is cut short by a fault), or everything: the event comes meanwhile.
        if n % 2 == 0 {
            world.fake.fail(Operation::VersionsOf, Fault::Unavailable);
        }
        let (_, by_request) =
            tokio::join!(world.janitor.round(), intake.by_listing(&card, ConfirmedBy::Request));
        drop(by_request);
        let state = world.read(&card).await.state.name();
        assert!(
            matches!(state, StateName::Queued | StateName::Pending),
            "an upload in time never expires: {state}"
        );
        let jobs = world
            .test
            .count(&format!(
                "select count(*) from outbox where queue = 'card.decode' and card_id = '{}'",
                card.id
            ))
            .await;
        assert_eq!(jobs, i64::from(state == StateName::Queued));
    }
}

#[tokio::test]
async fn a_renewal_puts_the_looks_off() {
    let world = World::new().await;
    let card = world.pending().await;
    world.test.pass_time(961).await;
    let mut tx = world.api.begin().await.unwrap();
    store::tickets::renew(&mut tx, world.owner, card.id, timing::TICKET_LIFE).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(world.round().await, Round::default());
    let renewed = world.read(&card).await;
    assert_eq!((renewed.state.name(), renewed.looks), (StateName::Pending, 0));
}

#[tokio::test]
async fn a_store_that_is_away_expires_nobody() {
    let world = World::new().await;
    let card = world.pending().await;
    world.test.pass_time(961).await;
    world.fake.switch_off();
    world.janitor.round().await.unwrap_err();
    assert_eq!(world.read(&card).await.state.name(), StateName::Pending);
    world.fake.heal();
    assert_eq!(world.round().await, Round::default(), "its claim still runs");
    world.test.pass_time(60).await;
    assert_eq!(world.round().await, Round { claimed: 1, expired: 1, ..Round::default() });
}

#[tokio::test]
async fn work_that_is_overdue_gets_a_fresh_message_unless_it_is_parked() {
    let world = World::new().await;
    let queued =
        fixture::queued(&world.db, &world.api, &world.fake, world.owner, MediaType::Text, b"queued").await;
    let dead =
        fixture::queued(&world.db, &world.api, &world.fake, world.owner, MediaType::Text, b"dead").await;
    fixture::leased(&world.db, &dead).await;
    let parked =
        fixture::queued(&world.db, &world.api, &world.fake, world.owner, MediaType::Text, b"parked").await;
    let mut tx = world.db.begin().await.unwrap();
    store::timer::park(&mut tx, parked.id, Queue::Decode, "store: gone").await.unwrap();
    tx.commit().await.unwrap();
    // The broker was wiped: every message is gone.
    world.test.sql("delete from outbox").await;
    world.test.pass_time(3601).await;
    let round = world.round().await;
    assert_eq!((round.claimed, round.decodes), (3, 2));
    let mut enqueued = world.test.texts("select card_id::text from outbox order by card_id").await;
    enqueued.sort();
    let mut expected = [queued.id.to_string(), dead.id.to_string()];
    expected.sort();
    assert_eq!(enqueued, expected);
    assert!(world.read(&parked).await.parked.is_some());
    assert_eq!(world.read(&queued).await.state.name(), StateName::Queued);
}

#[tokio::test]
async fn one_cards_own_fault_harms_no_other() {
    let world = World::new().await;
    let (one, two) = (world.pending().await, world.pending().await);
    for card in [&one, &two] {
        fixture::upload(&world.fake, card, b"hello");
    }
    world.fake.fail(Operation::VersionsOf, Fault::Unavailable);
    world.test.pass_time(61).await;
    assert_eq!(world.round().await.confirmed, 1);
    world.test.pass_time(61).await;
    assert_eq!(world.round().await.confirmed, 1);
    for card in [&one, &two] {
        assert_eq!(world.read(card).await.state.name(), StateName::Queued);
    }
}

/// R-H1: what owes a purge gets a fresh message when its first one is lost, and nothing while one waits.
#[tokio::test]
async fn a_lost_purge_message_is_written_again_once_it_is_overdue() {
    let world = World::new().await;
    let ready = fixture::ready(&world.db, &world.api, &world.fake, world.owner, b"ready").await;
    let rejected = fixture::rejected(&world.db, &world.api, &world.fake, world.owner, b"rejected").await;
    let deleted = fixture::ready(&world.db, &world.api, &world.fake, world.owner, b"deleted").await;
    let mut tx = world.api.begin().await.unwrap();
    store::deletion::request(&mut tx, Ids, world.owner, deleted.id).await.unwrap();
    tx.commit().await.unwrap();
    world.test.pass_time(1200).await;
    let round = world.round().await;
    assert_eq!((round.claimed, round.purges), (3, 0), "their messages wait in the outbox");
    world.test.sql("delete from outbox").await;
    world.test.pass_time(3600).await;
    assert_eq!(world.round().await.purges, 3);
    for card in [&ready, &rejected, &deleted] {
        let asked =
            format!("select count(*) from outbox where card_id = '{}' and reason = 'overdue'", card.id);
        assert_eq!(world.test.count(&asked).await, 1);
    }
}

/// R-C7, R-H1: while a retry waits for its turn the card is not taken for forgotten.
#[tokio::test]
async fn a_card_whose_retry_is_due_later_gets_no_message_beside_it() {
    let world = World::new().await;
    let card =
        fixture::queued(&world.db, &world.api, &world.fake, world.owner, MediaType::Text, b"hello").await;
    let leased = fixture::leased(&world.db, &card).await;
    let State::Processing { lease, .. } = leased.state else { panic!("{leased:?}") };
    let mut tx = world.db.begin().await.unwrap();
    store::lease::give_back(&mut tx, card.id, lease.token, store::lease::Attempt::Counts).await.unwrap();
    tx.commit().await.unwrap();
    let delivery = broker::Delivery {
        queue: Queue::Decode,
        message_id: None,
        attempt: 7,
        redelivered: false,
        traceparent: None,
        body: format!(r#"{{"card":"{}"}}"#, card.id).into_bytes(),
    };
    let reason = broker::Reason::new("store", "x");
    let due = broker::Due::In(std::time::Duration::from_secs(320));
    let retry = broker::Retry { delivery: &delivery, attempt: 8, due, reason: &reason };
    let ledger = intake::OutboxLedger::new(world.db.clone(), Ids);
    broker::Ledger::retry(&ledger, retry).await.unwrap();
    // Its message is with the broker by now: nothing in the outbox tells of it.
    world.test.sql("delete from outbox").await;
    world.test.pass_time(400).await;
    assert_eq!(world.round().await, Round::default());
    world.test.pass_time(60).await;
    assert_eq!(world.round().await.decodes, 1, "and then it counts as lost");
}

#[tokio::test]
async fn a_row_that_can_not_be_read_stops_nobody_else() {
    let world = World::new().await;
    let broken = world.pending().await;
    let whole = world.pending().await;
    fixture::upload(&world.fake, &whole, b"hello");
    world
        .test
        .sql(&format!(
            "update cards set problem_code = 'unheard of', problem_detail = 'x' where id = '{}'",
            broken.id
        ))
        .await;
    world.test.pass_time(61).await;
    let round = world.round().await;
    assert_eq!((round.claimed, round.confirmed), (2, 1));
    assert_eq!(world.round().await, Round::default(), "it is looked at again in an hour");
}
