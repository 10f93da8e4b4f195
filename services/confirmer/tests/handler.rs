//! The confirmer's handler on a real PostgreSQL, with a store that can fail any call: the outcome, the rows and the
//! outbox (R-B2 to R-B11).

use std::sync::Arc;

use broker::{Delivery, Handler, Outcome};
use cards::retry::Schedule;
use cards::{Card, Ids, MediaType, OwnerId, ProblemCode, State, StateName, VersionId};
use chrono::TimeDelta;
use confirmer::Confirmer;
use events::work::Queue;
use intake::{GroupSettings, Intake};
use objects::Operation;
use objects::fake::{Fake, Fault, Upload};
use store::Db;
use testkit::{TestDb, fixture};

const BUCKET: &str = "arkiv";

struct World {
    test: TestDb,
    db: Db,
    api: Db,
    fake: Arc<Fake>,
    handler: Arc<Confirmer>,
    owner: OwnerId,
}

impl World {
    async fn new() -> Self {
        let test = TestDb::new().await;
        let (db, api, fake) = (test.worker(), test.api(), Arc::new(Fake::new()));
        let intake = Intake::new(db.clone(), Arc::clone(&fake) as _, Ids, GroupSettings::default());
        let handler = Confirmer::new(intake, BUCKET, "incoming/");
        let owner = fixture::owner(&api).await;
        Self { test, db, api, fake, handler, owner }
    }

    async fn pending(&self) -> Card {
        fixture::pending(&self.api, self.owner, MediaType::Text, b"hello").await
    }

    async fn read(&self, card: &Card) -> Card {
        fixture::read(&self.db, card).await
    }

    async fn handle(&self, body: &str) -> Outcome {
        self.handle_attempt(body, 1).await
    }

    async fn handle_attempt(&self, body: &str, attempt: u32) -> Outcome {
        let delivery = Delivery {
            queue: Queue::Confirm,
            message_id: None,
            attempt,
            redelivered: false,
            traceparent: None,
            body: body.as_bytes().to_vec(),
        };
        self.handler.handle(&delivery).await
    }

    async fn outbox(&self, queue: &str) -> i64 {
        self.test.count(&format!("select count(*) from outbox where queue = '{queue}'")).await
    }
}

/// An event as MinIO sends it.
fn event(key: &str, version: Option<&VersionId>, size: u64) -> String {
    message(&[record("arkiv", key, version, size)])
}

fn record(bucket: &str, key: &str, version: Option<&VersionId>, size: u64) -> String {
    let version = version.map(|version| format!(r#","versionId":"{version}""#)).unwrap_or_default();
    format!(
        r#"{{"eventVersion":"2.0","eventSource":"minio:s3","awsRegion":"","eventTime":"2026-11-30T10:00:00.123Z",
        "eventName":"s3:ObjectCreated:Post","userIdentity":{{"principalId":""}},"requestParameters":{{}},
        "responseElements":{{}},"s3":{{"s3SchemaVersion":"1.0","configurationId":"c","bucket":{{"name":"{bucket}",
        "ownerIdentity":{{"principalId":""}},"arn":"arn:aws:s3:::arkiv"}},"object":{{"key":"{}","size":{size},
        "eTag":"e","sequencer":"1"{version}}}}}}}"#,
        key.replace('/', "%2F")
    )
}

fn message(records: &[String]) -> String {
    format!(r#"{{"Records":[{}]}}"#, records.join(","))
}

fn code(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Done => "done",
        Outcome::Retry(reason)
        | Outcome::RetryOn(_, reason)
        | Outcome::Later { reason, .. }
        | Outcome::Dead(reason)
        | Outcome::Outage(reason) => reason.code,
    }
}

#[tokio::test]
async fn an_event_confirms_its_card_once_however_often_it_comes() {
    let world = World::new().await;
    let card = world.pending().await;
    let version = fixture::upload(&world.fake, &card, b"hello");
    let body = event(&card.source_key().to_string(), Some(&version), 5);
    for _ in 0..2 {
        assert_eq!(world.handle(&body).await, Outcome::Done);
    }
    // O-EV-03: and three at once.
    let at_once = futures::future::join_all((0..3).map(|_| world.handle(&body))).await;
    assert!(at_once.iter().all(|outcome| *outcome == Outcome::Done));
    let queued = world.read(&card).await;
    assert_eq!(queued.state, State::Queued { pinned: version });
    assert_eq!((world.outbox("card.decode").await, world.outbox("card.purge").await), (1, 0));
    assert_eq!(world.test.count("select count(*) from card_history where event = 'confirmed'").await, 1);
}

#[tokio::test]
async fn the_same_event_three_times_at_once_makes_one_job() {
    let world = World::new().await;
    let card = world.pending().await;
    let version = fixture::upload(&world.fake, &card, b"hello");
    let body = event(&card.source_key().to_string(), Some(&version), 5);
    let outcomes = futures::future::join_all((0..3).map(|_| world.handle(&body))).await;
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Done), "{outcomes:?}");
    assert_eq!(world.outbox("card.decode").await, 1);
}

/// O-EV-04: the older version's event comes second; the first accepted version stays.
#[tokio::test]
async fn events_out_of_order_pin_the_first_accepted_and_ask_for_the_removal_of_the_other() {
    let world = World::new().await;
    let card = world.pending().await;
    let older = fixture::upload(&world.fake, &card, b"hello");
    let newer = fixture::upload(&world.fake, &card, b"HELLO");
    let key = card.source_key().to_string();
    assert_eq!(world.handle(&event(&key, Some(&newer), 5)).await, Outcome::Done);
    assert_eq!(world.handle(&event(&key, Some(&older), 5)).await, Outcome::Done);
    assert_eq!(world.read(&card).await.state, State::Queued { pinned: newer });
    assert_eq!((world.outbox("card.decode").await, world.outbox("card.purge").await), (1, 1));
    assert!(world.read(&card).await.purge_at.is_some());
}

/// Ceph leaves the version out on POST and multipart (FACTS 2): the oldest that fits is taken (R-B2).
#[tokio::test]
async fn an_event_without_a_version_takes_the_oldest_that_fits() {
    let world = World::new().await;
    let card = world.pending().await;
    fixture::upload(&world.fake, &card, b"too long");
    let right = fixture::upload(&world.fake, &card, b"hello");
    fixture::upload(&world.fake, &card, b"later");
    assert_eq!(world.handle(&event(&card.source_key().to_string(), None, 5)).await, Outcome::Done);
    let queued = world.read(&card).await;
    assert_eq!(queued.state, State::Queued { pinned: right });
    assert!(queued.purge_at.is_some(), "the other two are surplus");
    assert_eq!(world.outbox("card.purge").await, 1);
}

#[tokio::test]
async fn a_wrong_version_first_is_told_to_the_owner_and_the_right_one_still_wins() {
    let world = World::new().await;
    let card = world.pending().await;
    let key = card.source_key().to_string();
    let wrong = fixture::upload(&world.fake, &card, b"far too long");
    assert_eq!(world.handle(&event(&key, Some(&wrong), 12)).await, Outcome::Done);
    let refused = world.read(&card).await;
    assert_eq!(refused.state, State::Pending { refused: vec![wrong.clone()] });
    assert_eq!(refused.problem.unwrap().code, ProblemCode::MetadataMismatch);
    assert_eq!(world.outbox("card.purge").await, 1);

    // The same event again: not even a HEAD.
    world.fake.clear_calls();
    assert_eq!(world.handle(&event(&key, Some(&wrong), 12)).await, Outcome::Done);
    assert!(world.fake.calls().is_empty());

    let right = fixture::upload(&world.fake, &card, b"hello");
    assert_eq!(world.handle(&event(&key, Some(&right), 5)).await, Outcome::Done);
    assert_eq!(world.read(&card).await.state, State::Queued { pinned: right });
}

#[tokio::test]
async fn more_than_five_wrong_uploads_reject_the_card() {
    let world = World::new().await;
    let card = world.pending().await;
    let key = card.source_key().to_string();
    for n in 0..6 {
        assert_eq!(world.read(&card).await.state.name(), StateName::Pending, "{n}");
        let wrong = fixture::upload(&world.fake, &card, format!("wrong {n}").as_bytes());
        assert_eq!(world.handle(&event(&key, Some(&wrong), 7)).await, Outcome::Done);
    }
    assert_eq!(world.read(&card).await.state.name(), StateName::Rejected);
    let right = fixture::upload(&world.fake, &card, b"hello");
    assert_eq!(world.handle(&event(&key, Some(&right), 5)).await, Outcome::Done);
    assert_eq!(world.read(&card).await.state.name(), StateName::Rejected, "an event never revives (R-B7)");
}

/// R-B1, checklist 9: the event only says where to look.
#[tokio::test]
async fn a_forged_event_changes_nothing() {
    let world = World::new().await;
    let card = world.pending().await;
    let key = card.source_key().to_string();
    let made_up = VersionId::parse("made-up").unwrap();
    assert_eq!(world.handle(&event(&key, Some(&made_up), 5)).await, Outcome::Done, "wrong version");
    assert_eq!(world.handle(&event(&key, None, 5)).await, Outcome::Done, "nothing was uploaded");
    let elsewhere = message(&[record("other", &key, Some(&made_up), 5)]);
    assert_eq!(world.handle(&elsewhere).await, Outcome::Done, "another bucket");
    let outside = event("files/x", Some(&made_up), 5);
    assert_eq!(world.handle(&outside).await, Outcome::Done, "another prefix");
    assert_eq!(world.read(&card).await, card);
    assert_eq!(world.test.count("select count(*) from outbox").await, 0);

    // A lie about the size is counted, and HEAD is what is compared.
    let version = fixture::upload(&world.fake, &card, b"hello");
    assert_eq!(world.handle(&event(&key, Some(&version), 999)).await, Outcome::Done);
    assert_eq!(world.read(&card).await.state, State::Queued { pinned: version });
}

#[tokio::test]
async fn what_the_ticket_did_not_carry_is_refused() {
    let world = World::new().await;
    for upload in [
        Upload { content_disposition: Some("inline; filename=x.html".to_owned()), ..Upload::default() },
        Upload { content_encoding: Some("gzip".to_owned()), ..Upload::default() },
        Upload { content_type: Some("text/html".to_owned()), ..Upload::default() },
        Upload { metadata: [("role".to_owned(), "admin".to_owned())].into(), ..Upload::default() },
    ] {
        let card = world.pending().await;
        let key = card.source_key().to_string();
        let content_type = upload.content_type.clone().or(Some("text/plain".to_owned()));
        let version = world.fake.upload_as(Upload {
            key: key.clone(),
            bytes: b"hello".as_slice().into(),
            content_type,
            ..upload
        });
        assert_eq!(world.handle(&event(&key, Some(&version), 5)).await, Outcome::Done);
        assert_eq!(world.read(&card).await.state, State::Pending { refused: vec![version] });
    }
}

#[tokio::test]
async fn an_event_later_than_the_tickets_life_counts_if_the_upload_was_in_time() {
    let world = World::new().await;
    let card = world.pending().await;
    let uploaded_at = card.ticket.ends_at + TimeDelta::minutes(4) - TimeDelta::hours(3);
    let version = world.fake.upload_as(Upload {
        key: card.source_key().to_string(),
        bytes: b"hello".as_slice().into(),
        content_type: Some("text/plain".to_owned()),
        last_modified: Some(uploaded_at),
        ..Upload::default()
    });
    world.test.pass_time(3 * 3600).await;
    assert_eq!(world.handle(&event(&card.source_key().to_string(), Some(&version), 5)).await, Outcome::Done);
    assert_eq!(world.read(&card).await.state, State::Queued { pinned: version });
}

#[tokio::test]
async fn an_upload_after_the_tickets_end_is_neither_taken_nor_held_against_anybody() {
    let world = World::new().await;
    let card = world.pending().await;
    world.test.pass_time(16 * 60).await;
    let version = fixture::upload(&world.fake, &card, b"hello");
    assert_eq!(world.handle(&event(&card.source_key().to_string(), Some(&version), 5)).await, Outcome::Done);
    assert_eq!(world.read(&card).await.state, State::Pending { refused: vec![] });
}

#[tokio::test]
async fn bytes_that_come_after_the_end_of_a_card_are_asked_away() {
    let world = World::new().await;
    let expired = fixture::expired(&world.test, &world.db, &world.api, world.owner).await;
    let before = world.outbox("card.purge").await;
    let version = fixture::upload(&world.fake, &expired, b"late");
    assert_eq!(
        world.handle(&event(&expired.source_key().to_string(), Some(&version), 4)).await,
        Outcome::Done
    );
    assert_eq!(world.read(&expired).await.state, State::Expired);
    assert_eq!(world.outbox("card.purge").await, before + 1);
}

/// R-B8, O-EV-08: 404 and 405 are answers.
#[tokio::test]
async fn a_version_that_is_gone_or_a_marker_is_not_there_and_nothing_happens() {
    let world = World::new().await;
    let card = world.pending().await;
    let key = card.source_key().to_string();
    let marker = world.fake.add_delete_marker(&key);
    assert_eq!(world.handle(&event(&key, Some(&marker), 5)).await, Outcome::Done);
    assert_eq!(world.handle(&event(&key, None, 5)).await, Outcome::Done);
    assert_eq!(world.read(&card).await, card);
}

#[tokio::test]
async fn a_bucket_without_versions_is_an_outage_and_nobody_is_blamed() {
    let world = World::new().await;
    let card = world.pending().await;
    let key = card.source_key().to_string();
    world.fake.suspend_versioning();
    world.fake.upload_unversioned(Upload {
        key: key.clone(),
        bytes: b"hello".as_slice().into(),
        content_type: Some("text/plain".to_owned()),
        ..Upload::default()
    });
    let outcome = world.handle(&event(&key, None, 5)).await;
    assert!(matches!(outcome, Outcome::Outage(_)), "{outcome:?}");
    assert_eq!(code(&outcome), "versioning_required");
    assert_eq!(world.read(&card).await, card);
    assert_eq!(world.test.count("select count(*) from outbox").await, 0);
}

#[tokio::test]
async fn a_store_that_is_away_is_an_outage_and_one_objects_fault_is_a_retry() {
    let world = World::new().await;
    let card = world.pending().await;
    let version = fixture::upload(&world.fake, &card, b"hello");
    let body = event(&card.source_key().to_string(), Some(&version), 5);
    for fault in [Fault::Unavailable, Fault::Refuse] {
        world.fake.fail(Operation::Head, fault);
        let outcome = world.handle(&body).await;
        assert!(matches!(outcome, Outcome::Retry(_)), "the probe answers: {outcome:?}");
        world.fake.fail(Operation::Head, fault);
        world.fake.fail(Operation::Probe, Fault::Unavailable);
        let outcome = world.handle(&body).await;
        assert!(matches!(outcome, Outcome::Outage(_)), "the probe fails too: {outcome:?}");
    }
    assert_eq!(world.read(&card).await, card);
    world.fake.switch_off();
    assert!(!world.handler.probe().await);
    world.fake.heal();
    assert!(world.handler.probe().await);
    assert_eq!(world.handle(&body).await, Outcome::Done);
    assert_eq!(world.read(&card).await.state.name(), StateName::Queued);
}

#[tokio::test]
async fn a_database_that_is_away_is_an_outage() {
    let world = World::new().await;
    let card = world.pending().await;
    let version = fixture::upload(&world.fake, &card, b"hello");
    world.db.close().await;
    let outcome = world.handle(&event(&card.source_key().to_string(), Some(&version), 5)).await;
    assert!(matches!(outcome, Outcome::Outage(_)), "{outcome:?}");
}

/// R-B11, O-EV-09.
#[tokio::test]
async fn an_unknown_key_is_retried_and_then_recorded_as_a_stray() {
    let world = World::new().await;
    let key = format!("incoming/{}", Ids.card());
    let version = VersionId::parse("v1").unwrap();
    let body = event(&key, Some(&version), 5);
    for attempt in 1..=5 {
        let outcome = world.handle_attempt(&body, attempt).await;
        assert!(matches!(outcome, Outcome::RetryOn(Schedule::UnknownKey, _)), "{attempt}: {outcome:?}");
        assert_eq!(world.test.count("select count(*) from strays").await, 0);
    }
    assert_eq!(world.handle_attempt(&body, 6).await, Outcome::Done);
    assert_eq!(world.handle_attempt(&body, 6).await, Outcome::Done);
    assert_eq!(world.test.texts("select key from strays where sightings = 2").await, [key]);
}

/// R-B1: a bad record is dead-lettered after its good ones are done.
#[tokio::test]
async fn each_record_of_a_message_is_judged_alone() {
    let world = World::new().await;
    let (one, two) = (world.pending().await, world.pending().await);
    let mut records = Vec::new();
    for card in [&one, &two] {
        let version = fixture::upload(&world.fake, card, b"hello");
        records.push(record(BUCKET, &card.source_key().to_string(), Some(&version), 5));
    }
    records.insert(1, r#"{"eventSource":"minio:s3"}"#.to_owned());
    let outcome = world.handle(&message(&records)).await;
    assert!(matches!(outcome, Outcome::Dead(_)), "{outcome:?}");
    for card in [&one, &two] {
        assert_eq!(world.read(card).await.state.name(), StateName::Queued);
    }
}

#[tokio::test]
async fn what_is_no_event_is_dead_lettered_with_its_reason() {
    let world = World::new().await;
    let long = "x".repeat(2 << 20);
    for (body, expected) in [
        ("not json", "not_json"),
        ("{}", "no_records"),
        (r#"{"Records":[]}"#, "no_records"),
        (long.as_str(), "too_large"),
    ] {
        let outcome = world.handle(body).await;
        assert!(matches!(outcome, Outcome::Dead(_)), "{outcome:?}");
        assert_eq!(code(&outcome), expected);
    }
    assert_eq!(world.handle(r#"{"Service":"Amazon S3","Event":"s3:TestEvent"}"#).await, Outcome::Done);
}

/// DESIGN "Confirm": a failing group is bisected, so that one bad card never blocks the rest.
#[tokio::test]
async fn one_card_the_database_refuses_blocks_no_other_of_its_group() {
    let world = World::new().await;
    let mut bodies = Vec::new();
    let mut cards = Vec::new();
    for _ in 0..30 {
        let card = world.pending().await;
        let version = fixture::upload(&world.fake, &card, b"hello");
        bodies.push(event(&card.source_key().to_string(), Some(&version), 5));
        cards.push(card);
    }
    world
        .test
        .sql(&format!(
            "alter table cards add constraint no_such_card check (id <> '{}' or state = 'pending')",
            cards[17].id
        ))
        .await;
    let outcomes = futures::future::join_all(bodies.iter().map(|body| world.handle(body))).await;
    for (n, (outcome, card)) in outcomes.iter().zip(&cards).enumerate() {
        let state = world.read(card).await.state.name();
        if n == 17 {
            assert!(matches!(outcome, Outcome::Dead(_)), "{outcome:?}");
            assert_eq!(state, StateName::Pending);
        } else {
            assert_eq!((outcome, state), (&Outcome::Done, StateName::Queued), "{n}");
        }
    }
    assert_eq!(world.outbox("card.decode").await, 29);
}

/// R-B8, R-C7: a store that takes the call, keeps it, and keeps the probe too.
#[tokio::test]
async fn a_store_that_hangs_is_an_outage_and_its_probe_is_not_waited_for() {
    let world = World::new().await;
    let card = world.pending().await;
    let version = fixture::upload(&world.fake, &card, b"hello");
    world.fake.fail(Operation::Head, Fault::Unavailable);
    world.fake.fail(Operation::Probe, Fault::Hang);
    let begun = std::time::Instant::now();
    let outcome = world.handle(&event(&card.source_key().to_string(), Some(&version), 5)).await;
    assert!(matches!(outcome, Outcome::Outage(_)), "{outcome:?}");
    assert!(begun.elapsed() < objects::s3::OPERATION_TIMEOUT, "the probe had its own limit");
    assert_eq!(world.read(&card).await.state.name(), StateName::Pending);
}

/// A row somebody holds is its own card's trouble: the others of its group are confirmed.
#[tokio::test]
async fn a_locked_row_holds_up_only_its_own_card() {
    let world = World::new().await;
    // The lock gives up sooner than a statement would; both are contention.
    let name = world.test.worker_url.rsplit('/').next().unwrap().to_owned();
    world.test.sql(&format!("alter database {name} set lock_timeout = '300ms'")).await;
    let db = world.test.worker();
    let settings = GroupSettings { wait: std::time::Duration::from_millis(200), ..GroupSettings::default() };
    let handler =
        Confirmer::new(Intake::new(db, Arc::clone(&world.fake) as _, Ids, settings), BUCKET, "incoming/");
    let (held, free) = (world.pending().await, world.pending().await);
    let mut deliveries = Vec::new();
    for card in [&held, &free] {
        let version = fixture::upload(&world.fake, card, b"hello");
        deliveries.push(Delivery {
            queue: Queue::Confirm,
            message_id: None,
            attempt: 1,
            redelivered: false,
            traceparent: None,
            body: event(&card.source_key().to_string(), Some(&version), 5).into_bytes(),
        });
    }
    let mut holder = world.db.begin().await.unwrap();
    // A renewal under way holds the row.
    store::timer::looked(&mut holder, &held, held.created_at).await.unwrap();
    let (first, second) = tokio::join!(handler.handle(&deliveries[0]), handler.handle(&deliveries[1]));
    assert!(matches!(first, Outcome::Retry(_)), "{first:?}");
    assert_eq!(second, Outcome::Done);
    holder.rollback().await.unwrap();
    assert_eq!(world.read(&free).await.state.name(), StateName::Queued);
    assert_eq!(handler.handle(&deliveries[0]).await, Outcome::Done);
}
