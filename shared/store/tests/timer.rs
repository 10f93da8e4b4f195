//! Parking, replay, and what a database failure means (R-C7, R-H1).

#![expect(clippy::unwrap_used, reason = "a test's helpers fail their test")]

use cards::{Card, Ids, LeaseToken, MediaType, OwnerId, StateName};
use events::work::Queue;
use objects::fake::Fake;
use store::lease::Leased;
use store::timer::Claimed;
use store::{Db, StoreError, StoreErrorKind, timer};
use testkit::{TestDb, fixture};

struct World {
    test: TestDb,
    db: Db,
    api: Db,
    fake: Fake,
    owner: OwnerId,
}

impl World {
    async fn new() -> Self {
        let test = TestDb::new().await;
        let (db, api, fake) = (test.worker(), test.api(), Fake::new());
        let owner = fixture::owner(&api).await;
        Self { test, db, api, fake, owner }
    }

    async fn queued(&self) -> Card {
        fixture::queued(&self.db, &self.api, &self.fake, self.owner, MediaType::Text, b"hello").await
    }

    async fn park(&self, card: &Card, queue: Queue) -> bool {
        let mut tx = self.db.begin().await.unwrap();
        let parked = timer::park(&mut tx, card.id, queue, "store: gone").await.unwrap();
        tx.commit().await.unwrap();
        parked
    }

    async fn take(&self, card: &Card) -> Leased {
        let token: LeaseToken = Ids.lease();
        let mut tx = self.db.begin().await.unwrap();
        let leased = store::lease::take(&mut tx, Ids, card.id, token).await.unwrap();
        tx.commit().await.unwrap();
        leased
    }

    async fn claim(&self) -> Claimed {
        let mut tx = self.db.begin().await.unwrap();
        let claimed = timer::claim(&mut tx, Ids, 100).await.unwrap();
        tx.commit().await.unwrap();
        claimed
    }

    async fn read(&self, card: &Card) -> Card {
        fixture::read(&self.db, card).await
    }
}

/// R-C7: nothing re-enqueues or takes a parked card until a replay, and that begins anew.
#[tokio::test]
async fn a_parked_card_is_leased_by_no_message_until_a_replay_begins_its_attempts_anew() {
    let world = World::new().await;
    let card = world.queued().await;
    world.test.sql(&format!("update cards set attempts = 8 where id = '{}'", card.id)).await;
    assert!(world.park(&card, Queue::Decode).await);
    assert_eq!(world.take(&card).await, Leased::Parked);
    let parked = world.read(&card).await;
    assert_eq!((parked.state.name(), parked.attempts), (StateName::Queued, 8));
    assert!(!world.park(&card, Queue::Decode).await, "once is enough: the first reason stands");

    let mut tx = world.db.begin().await.unwrap();
    assert!(!timer::unpark(&mut tx, card.id, Queue::Purge).await.unwrap());
    assert!(timer::unpark(&mut tx, card.id, Queue::Decode).await.unwrap());
    tx.commit().await.unwrap();
    let free = world.read(&card).await;
    assert_eq!((free.parked, free.attempts), (None, 0));
    assert!(matches!(world.take(&card).await, Leased::Yes(_)));
    let told = format!("select event from card_history where card_id = '{}' order by id", card.id);
    assert_eq!(world.test.texts(&told).await[2..], ["parked", "unparked", "leased"]);
}

#[tokio::test]
async fn a_late_dead_letter_parks_no_card_that_is_worked_on_or_finished() {
    let world = World::new().await;
    let card = world.queued().await;
    let leased = fixture::leased(&world.db, &card).await;
    assert!(!world.park(&card, Queue::Decode).await, "its lease is live");
    world.test.pass_time(61).await;
    assert!(world.park(&card, Queue::Decode).await, "its worker is dead");

    // The worker was only slow: it hands in, and nothing lies dead any more.
    world
        .test
        .sql(&format!("update cards set lease_until = now() + interval '1 minute' where id = '{}'", card.id))
        .await;
    let mut tx = world.db.begin().await.unwrap();
    store::finish::accept(&mut tx, Ids, &fixture::accepted(&leased, b"hello")).await.unwrap();
    tx.commit().await.unwrap();
    let ready = world.read(&card).await;
    assert_eq!((ready.state.name(), ready.parked), (StateName::Ready, None));
    assert!(!world.park(&card, Queue::Decode).await);
    // It owes the purge of its source: that can lie dead, and stops nothing else.
    assert!(world.park(&card, Queue::Purge).await);
}

/// R-C7, R-H1: a card has one place for what lies dead, and a decode that does is what it waits for. Neither is enqueued
/// again, and no look that other work wants is put off.
#[tokio::test]
async fn a_dead_decode_takes_the_place_of_a_dead_purge_and_neither_puts_off_a_look() {
    let world = World::new().await;
    let card = world.queued().await;
    let mut tx = world.db.begin().await.unwrap();
    store::purge::request(&mut tx, Ids, card.id, "surplus_version").await.unwrap();
    tx.commit().await.unwrap();
    let before = world.read(&card).await.next_check_at;
    assert!(world.park(&card, Queue::Purge).await);
    assert_eq!(world.read(&card).await.next_check_at, before, "its decode may have been lost");
    let mut tx = world.db.begin().await.unwrap();
    let due = store::outbox::Due::After(chrono::TimeDelta::minutes(10));
    timer::wait_for_retry(&mut tx, card.id, Queue::Purge, due).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(world.read(&card).await.next_check_at, before);

    assert!(world.park(&card, Queue::Decode).await);
    assert!(!world.park(&card, Queue::Purge).await, "and not the other way round");
    let parked = world.read(&card).await.parked.unwrap();
    assert_eq!(parked.queue, Queue::Decode.as_str());
    world.test.sql("delete from outbox").await;
    world.test.pass_time(3601).await;
    let mut tx = world.db.begin().await.unwrap();
    let claimed = timer::claim(&mut tx, Ids, 10).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!((claimed.decodes.len(), claimed.purges.len(), claimed.parked), (0, 0, 1));
}

/// One statement's trouble is not everybody's outage.
#[tokio::test]
async fn a_statement_that_waits_too_long_is_contention_and_a_read_only_server_is_an_outage() {
    let world = World::new().await;
    let kind = |error: sqlx::Error| StoreError::from(error).kind();
    let slow = world.test.try_sql_as("worker", "set statement_timeout = 50; select pg_sleep(5)").await;
    assert_eq!(kind(slow.unwrap_err()), StoreErrorKind::Fault);
    let read_only = "set transaction_read_only = on; update cards set looks = 0";
    let refused = world.test.try_sql_as("worker", read_only).await;
    assert_eq!(kind(refused.unwrap_err()), StoreErrorKind::Outage);

    // The probe sees what `select 1` does not.
    for (db, url) in [(world.test.worker(), &world.test.worker_url), (world.test.api(), &world.test.api_url)]
    {
        db.probe().await.unwrap();
        let name = url.rsplit('/').next().unwrap();
        world.test.sql(&format!("alter database {name} set default_transaction_read_only = on")).await;
        let settings =
            store::DbSettings { url: url.clone(), connections_max: 1, name: "read-only".to_owned() };
        let error = Db::new(&settings).unwrap().probe().await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Outage, "{error}");
        let undo = format!(
            "set transaction_read_only = off; alter database {name} reset default_transaction_read_only"
        );
        world.test.try_sql(&undo).await.unwrap();
    }
    assert_eq!(world.test.count("select count(*) from outbox where body = ''").await, 0);
}

/// R-H1: a long backlog is not fed a message for every card every two minutes, and a finished card is let go.
#[tokio::test]
async fn overdue_work_is_looked_at_ever_less_until_somebody_takes_it() {
    let world = World::new().await;
    let card = world.queued().await;
    let due = format!("update cards set next_check_at = now() where id = '{}'", card.id);
    let wait = format!(
        "select (extract(epoch from next_check_at - now()) / 60)::bigint from cards where id = '{}'",
        card.id
    );
    let mut waits = Vec::new();
    for _ in 0..4 {
        world.test.sql("delete from outbox").await;
        world.test.sql(&due).await;
        assert_eq!(world.claim().await.decodes, [card.id]);
        waits.push(world.test.count(&wait).await);
    }
    assert_eq!(waits, [2, 4, 8, 16]);

    world.test.sql(&due).await;
    let claimed = world.claim().await;
    assert_eq!((claimed.decodes.len(), claimed.waiting), (0, 1), "its message waits in the outbox");
    assert!(matches!(world.take(&card).await, Leased::Yes(_)));
    assert_eq!(world.read(&card).await.overdue_looks, 0);

    let ready = fixture::ready(&world.db, &world.api, &world.fake, world.owner, b"ready").await;
    world
        .test
        .sql(&format!("update cards set purge_at = null, next_check_at = now() where id = '{}'", ready.id))
        .await;
    let claimed = world.claim().await;
    assert_eq!((claimed.due, claimed.waiting), (1, 1));
    assert_eq!(world.read(&ready).await.next_check_at, None, "it owes nothing any more");
}
