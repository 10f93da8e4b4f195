//! Replacement and removal across services, each step failing once (R-F2, R-J): the handlers of confirmer, decoder and
//! deleter on one PostgreSQL, with a store that can fail any call. Each test says which rows and objects it expects.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail their test")]

use std::sync::Arc;
use std::time::Duration;

use broker::{Delivery, Handler, Outcome};
use cards::{Card, CardId, ConfirmedBy, Ids, MediaType, OwnerId, State, StateName};
use confirmer::Confirmer;
use decoder::child::{ChildProgram, Children};
use decoder::pipeline::Options;
use decoder::{Decoder, Pace};
use deleter::Deleter;
use events::work::{CardMessage, Queue};
use intake::{GroupSettings, Intake};
use objects::fake::{Fake, Fault};
use objects::{ObjectStore, Operation};
use store::Db;
use store::tickets::{Issued, NewCard};
use testkit::{TestDb, fixture, until};
use tokio_util::sync::CancellationToken;

struct World {
    test: TestDb,
    db: Db,
    api: Db,
    fake: Arc<Fake>,
    intake: Intake,
    confirmer: Arc<Confirmer>,
    decoder: Arc<Decoder>,
    deleter: Arc<Deleter>,
    owner: OwnerId,
}

impl World {
    async fn new() -> Self {
        let test = TestDb::new().await;
        let (db, api, fake) = (test.worker(), test.api(), Arc::new(Fake::new()));
        let store: Arc<dyn ObjectStore> = Arc::clone(&fake) as _;
        let program =
            ChildProgram { path: env!("CARGO_BIN_EXE_arkiv").into(), args: vec!["decode-child".into()] };
        let children = Children::new(program, Options::default(), 2);
        let stop = CancellationToken::new();
        let decoder = Decoder::new(db.clone(), Arc::clone(&store), children, Ids, stop, Pace::default());
        let deleter = Deleter::new(db.clone(), Arc::clone(&store), Ids);
        let intake = Intake::new(db.clone(), store, Ids, GroupSettings::default());
        let confirmer = Confirmer::new(intake.clone(), "arkiv", "incoming/");
        let owner = fixture::owner(&api).await;
        Self { test, db, api, fake, intake, confirmer, decoder, deleter, owner }
    }

    async fn ticket(&self, bytes: &[u8], replaces: Option<CardId>) -> Card {
        let new =
            NewCard { replaces, ..fixture::new_card(self.owner, MediaType::Text, bytes.len() as u64, None) };
        let mut tx = self.api.begin().await.unwrap();
        let issued = store::tickets::issue(&mut tx, &new).await.unwrap();
        tx.commit().await.unwrap();
        let Issued::New(card) = issued else { panic!("{issued:?}") };
        card
    }

    /// Uploaded and confirmed.
    async fn queued(&self, bytes: &[u8], replaces: Option<CardId>) -> Card {
        let card = self.ticket(bytes, replaces).await;
        fixture::upload(&self.fake, &card, bytes);
        self.intake.by_listing(&card, ConfirmedBy::Event).await.unwrap();
        self.read(&card).await
    }

    async fn ready(&self, bytes: &[u8]) -> Card {
        let card = self.queued(bytes, None).await;
        assert_eq!(self.decode(&card).await, Outcome::Done);
        assert_eq!(self.purge(&card).await, Outcome::Done);
        self.read(&card).await
    }

    async fn decode(&self, card: &Card) -> Outcome {
        self.decoder.handle(&message(Queue::Decode, card.id)).await
    }

    async fn purge(&self, card: &Card) -> Outcome {
        self.deleter.handle(&message(Queue::Purge, card.id)).await
    }

    async fn delete(&self, card: &Card) {
        let mut tx = self.api.begin().await.unwrap();
        store::deletion::request(&mut tx, Ids, self.owner, card.id).await.unwrap();
        tx.commit().await.unwrap();
    }

    async fn read(&self, card: &Card) -> Card {
        fixture::read(&self.db, card).await
    }

    /// The card is served: its object is there, with these bytes.
    async fn check_served(&self, card: &Card, bytes: &[u8]) {
        let card = self.read(card).await;
        assert_eq!(card.state.name(), StateName::Ready);
        for (key, version) in cards::purge::references(&card) {
            assert_eq!(self.fake.bytes(&key, &version).as_deref(), Some(bytes), "{key}");
        }
    }

    /// The keys of this card's objects.
    fn keys(&self, card: &Card) -> Vec<String> {
        let id = card.id.to_string();
        self.fake.all_keys().into_iter().filter(|key| key.contains(&id)).collect()
    }

    async fn outbox(&self, card: &Card, reason: &str) -> i64 {
        let query =
            format!("select count(*) from outbox where card_id = '{}' and reason = '{reason}'", card.id);
        self.test.count(&query).await
    }
}

fn message(queue: Queue, card: CardId) -> Delivery {
    Delivery {
        queue,
        message_id: Some(Ids.message()),
        attempt: 1,
        redelivered: false,
        traceparent: None,
        body: CardMessage { card }.to_body(),
    }
}

#[tokio::test]
async fn a_replacement_whose_copy_fails_leaves_the_old_file_served_and_comes_again() {
    let world = World::new().await;
    let old = world.ready(b"old").await;
    let new = world.queued(b"new!", Some(old.id)).await;
    world.fake.fail(Operation::Copy, Fault::Unavailable);
    let outcome = world.decode(&new).await;
    assert!(matches!(&outcome, Outcome::Retry(reason) if reason.code == "store"), "{outcome:?}");
    world.check_served(&old, b"old").await;
    assert_eq!(world.read(&new).await.state.name(), StateName::Processing);

    assert_eq!(world.decode(&new).await, Outcome::Done);
    world.check_served(&new, b"new!").await;
    assert_eq!(world.read(&old).await.state.name(), StateName::Deleting);
    // Not before its time: links to the old file may still be out.
    assert_eq!(world.purge(&old).await, Outcome::Done);
    assert_eq!(world.keys(&old).len(), 1);
    world.test.pass_time(961).await;
    assert_eq!(world.purge(&old).await, Outcome::Done);
    assert_eq!(world.purge(&new).await, Outcome::Done);
    assert!(world.keys(&old).is_empty());
    assert_eq!(world.keys(&new).len(), 1, "its copy");
    world.check_served(&new, b"new!").await;
}

/// Copy done, commit fails: the old file is served, the candidate's copy goes.
#[tokio::test]
async fn a_replacement_whose_commit_fails_leaves_the_old_file_served_and_its_copy_is_asked_away() {
    let world = World::new().await;
    let old = world.ready(b"old").await;
    let new = world.queued(b"new!", Some(old.id)).await;
    world.test.sql(&fail_once("new.state = 'ready'")).await;
    let outcome = world.decode(&new).await;
    assert!(
        matches!(&outcome, Outcome::Retry(reason) if reason.detail.contains("made to fail")),
        "{outcome:?}"
    );
    world.check_served(&old, b"old").await;
    assert_eq!(world.keys(&new).len(), 2, "source and copy");
    assert_eq!(world.outbox(&new, "failed_commit").await, 1);

    // The next attempt has another token; then the first copy is nobody's and goes.
    assert_eq!(world.decode(&new).await, Outcome::Done);
    assert_eq!(world.keys(&new).len(), 3);
    assert_eq!(world.purge(&new).await, Outcome::Done);
    assert_eq!(world.keys(&new).len(), 1);
    world.check_served(&new, b"new!").await;
    assert_eq!(world.read(&old).await.state.name(), StateName::Deleting);
}

/// R-F2: the first error is the one that is told, a failing clean-up beside it.
#[tokio::test]
async fn a_clean_up_that_fails_too_does_not_hide_the_first_error_and_the_copy_goes_all_the_same() {
    let world = World::new().await;
    let old = world.ready(b"old").await;
    let new = world.queued(b"new!", Some(old.id)).await;
    world.test.sql(&fail_once("new.state = 'ready'")).await;
    // The request for the purge is refused as well, as long as this stands.
    world
        .test
        .sql(
            "create function no_purge() returns trigger language plpgsql as
             $$ begin raise exception 'the clean-up failed' using errcode = '40001'; end $$;
             create trigger no_purge before insert on outbox for each row
             when (new.reason = 'failed_commit') execute function no_purge()",
        )
        .await;
    let outcome = world.decode(&new).await;
    assert!(
        matches!(&outcome, Outcome::Retry(reason) if reason.detail.contains("made to fail")),
        "{outcome:?}"
    );
    world.check_served(&old, b"old").await;
    assert_eq!(world.outbox(&new, "failed_commit").await, 0);
    // What it left is found by the purge that its end asks for.
    assert_eq!(world.decode(&new).await, Outcome::Done);
    assert_eq!(world.purge(&new).await, Outcome::Done);
    assert_eq!(world.keys(&new).len(), 1);
    world.check_served(&new, b"new!").await;
}

#[tokio::test]
async fn when_the_removal_of_the_old_file_fails_the_new_one_is_served_and_it_is_tried_again() {
    let world = World::new().await;
    let old = world.ready(b"old").await;
    let new = world.queued(b"new!", Some(old.id)).await;
    assert_eq!(world.decode(&new).await, Outcome::Done);
    world.test.pass_time(961).await;
    world.fake.fail(Operation::DeleteVersions, Fault::Partly);
    let outcome = world.purge(&old).await;
    assert!(matches!(&outcome, Outcome::Retry(reason) if reason.code == "not_removed"), "{outcome:?}");
    assert_eq!(world.read(&old).await.state.name(), StateName::Deleting);
    assert_eq!(world.keys(&old).len(), 1);
    world.check_served(&new, b"new!").await;
    assert_eq!(world.purge(&old).await, Outcome::Done);
    assert_eq!(world.read(&old).await.state.name(), StateName::Deleted);
    assert!(world.keys(&old).is_empty());
}

#[tokio::test]
async fn when_the_removal_of_the_source_fails_the_file_works_and_it_is_tried_again() {
    let world = World::new().await;
    let card = world.queued(b"hello", None).await;
    assert_eq!(world.decode(&card).await, Outcome::Done);
    world.fake.fail(Operation::DeleteVersions, Fault::Partly);
    assert!(matches!(world.purge(&card).await, Outcome::Retry(_)));
    world.check_served(&card, b"hello").await;
    assert_eq!(world.keys(&card).len(), 2);
    assert_eq!(world.purge(&card).await, Outcome::Done);
    assert_eq!(world.keys(&card).len(), 1);
    world.check_served(&card, b"hello").await;
}

/// Upload beside delete: whichever is first, nothing is left and the card is deleted.
#[tokio::test]
async fn an_upload_beside_its_deletion_ends_with_nothing_left() {
    let world = World::new().await;
    for n in 0..15 {
        let card = world.ticket(b"hello", None).await;
        let upload = async {
            let version = fixture::upload(&world.fake, &card, b"hello");
            let event = Delivery {
                body: event(&card.source_key().to_string(), version.as_str()).into_bytes(),
                ..message(Queue::Confirm, card.id)
            };
            world.confirmer.handle(&event).await
        };
        let (outcome, ()) = tokio::join!(upload, world.delete(&card));
        assert_eq!(outcome, Outcome::Done, "{n}");
        let deleting = world.read(&card).await;
        assert_eq!(deleting.state.name(), StateName::Deleting, "{n}");
        // A decode message, if its confirmation wrote one, comes too late.
        assert_eq!(world.decode(&card).await, Outcome::Done);
        assert_eq!(world.purge(&card).await, Outcome::Done);
        assert_eq!(world.keys(&card).len(), 1, "kept until its time");
        world.test.pass_time(961).await;
        assert_eq!(world.purge(&card).await, Outcome::Done);
        let deleted = world.read(&card).await;
        assert_eq!((deleted.state.name(), deleted.next_check_at), (StateName::Deleted, None), "{n}");
    }
    assert!(world.fake.all_keys().is_empty());
}

/// Deletion in mid-decode: whoever commits first, the worker's result is not served and what it stored goes with the rest.
#[tokio::test]
async fn a_file_that_is_deleted_while_it_is_decoded_leaves_nothing() {
    let world = World::new().await;
    for n in 0..5 {
        let card = world.queued(format!("hello {n}").as_bytes(), None).await;
        let key = card.source_key().to_string();
        let delete = async {
            until("the bytes to be read", Duration::from_mins(2), || async {
                let calls = world.fake.calls();
                calls.iter().any(|call| call.operation == Operation::Get && call.key == key).then_some(())
            })
            .await;
            world.delete(&card).await;
        };
        let (outcome, ()) = tokio::join!(world.decode(&card), delete);
        assert_eq!(outcome, Outcome::Done, "{n}");
        assert!(matches!(world.read(&card).await.state, State::Deleting { .. }));
        world.test.pass_time(961).await;
        assert_eq!(world.purge(&card).await, Outcome::Done);
        assert_eq!(world.read(&card).await.state.name(), StateName::Deleted);
        assert!(world.keys(&card).is_empty(), "{n}");
    }
}

/// A deferred trigger that fails one COMMIT and no other: PostgreSQL itself says that it is not in.
fn fail_once(when: &str) -> String {
    format!(
        "create sequence failures;
         grant usage on sequence failures to arkiv_worker;
         create function fail_once() returns trigger language plpgsql as $$
         begin
             if nextval('failures') = 1 then
                 raise exception 'made to fail' using errcode = '40001';
             end if;
             return null;
         end $$;
         create constraint trigger fail_once after update on cards deferrable initially deferred for each row
         when ({when} and old.state is distinct from new.state) execute function fail_once()"
    )
}

/// An event as MinIO sends it.
fn event(key: &str, version: &str) -> String {
    format!(
        r#"{{"Records":[{{"eventVersion":"2.0","eventSource":"minio:s3","awsRegion":"","eventTime":"2026-11-30T10:00:00.123Z",
        "eventName":"s3:ObjectCreated:Post","userIdentity":{{"principalId":""}},"requestParameters":{{}},
        "responseElements":{{}},"s3":{{"s3SchemaVersion":"1.0","configurationId":"c","bucket":{{"name":"arkiv",
        "ownerIdentity":{{"principalId":""}},"arn":"arn:aws:s3:::arkiv"}},"object":{{"key":"{}","size":5,"eTag":"e",
        "sequencer":"1","versionId":"{version}"}}}}}}]}}"#,
        key.replace('/', "%2F")
    )
}
