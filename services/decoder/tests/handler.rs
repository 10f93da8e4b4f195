//! The decoder's handler on a real PostgreSQL with real children, and a store that can fail any call: the outcome, the
//! rows, the outbox and the objects (R-C1 to R-C7, R-J).

#[path = "common/program.rs"]
mod program;

use std::sync::Arc;
use std::time::Duration;

use broker::{Delivery, Handler, Outcome};
use cards::{
    Card, CardId, DerivedKey, FileKey, Ids, MediaType, OwnerId, ProblemCode, Sha256, State, StateName,
    VersionId,
};
use decoder::child::Children;
use decoder::pipeline::Options;
use decoder::{Decoder, Pace};
use events::work::{CardMessage, Queue};
use objects::fake::{Fake, Fault};
use objects::{ObjectStore, Operation};
use sha2::Digest;
use store::Db;
use testkit::{Proxy, TestDb, fixture, until};
use tokio_util::sync::CancellationToken;

/// The longest any condition is waited for.
const BOUND: Duration = Duration::from_mins(2);

/// A picture with both derivatives.
const PNG: &[u8] = include_bytes!("cases/ok-1x1.png");

struct World {
    test: TestDb,
    db: Db,
    api: Db,
    fake: Arc<Fake>,
    decoder: Arc<Decoder>,
    owner: OwnerId,
    shutdown: CancellationToken,
}

impl World {
    async fn new() -> Self {
        let test = TestDb::new().await;
        let db = test.worker();
        Self::with(test, db).await
    }

    /// With a decoder whose wire to the database can be cut.
    async fn with(test: TestDb, decoder_db: Db) -> Self {
        Self::assemble(test, decoder_db, program::children(Options::default()), Pace::default()).await
    }

    /// With children that never answer, and a decoder that is quick to notice.
    async fn hanging(pace: Pace) -> Self {
        let (test, options) = (TestDb::new().await, Options::default());
        let db = test.worker();
        let children = Children::new(program::program(&["--misbehave", "sleep"]), options, 1);
        Self::assemble(test, db, children, pace).await
    }

    async fn assemble(test: TestDb, decoder_db: Db, children: Children, pace: Pace) -> Self {
        let (db, api, fake) = (test.worker(), test.api(), Arc::new(Fake::new()));
        let shutdown = CancellationToken::new();
        let decoder = Decoder::new(decoder_db, Arc::clone(&fake) as _, children, Ids, shutdown.clone(), pace);
        let owner = fixture::owner(&api).await;
        Self { test, db, api, fake, decoder, owner, shutdown }
    }

    /// Handles a message, and meanwhile does something once the card is being decoded.
    async fn handle_while(&self, card: &Card, meanwhile: impl AsyncFnOnce()) -> Outcome {
        let meddling = async {
            self.until_read().await;
            meanwhile().await;
        };
        tokio::join!(self.handle(card.id), meddling).0
    }

    async fn until_read(&self) {
        until("the bytes to be read", BOUND, || async {
            self.fake.calls().iter().any(|call| call.operation == Operation::Get).then_some(())
        })
        .await;
    }

    async fn queued(&self, media_type: MediaType, bytes: &[u8]) -> Card {
        fixture::queued(&self.db, &self.api, &self.fake, self.owner, media_type, bytes).await
    }

    async fn read(&self, card: &Card) -> Card {
        fixture::read(&self.db, card).await
    }

    async fn handle(&self, card: CardId) -> Outcome {
        let delivery = Delivery {
            queue: Queue::Decode,
            message_id: Some(Ids.message()),
            attempt: 1,
            redelivered: false,
            traceparent: None,
            body: CardMessage { card }.to_body(),
        };
        self.decoder.handle(&delivery).await
    }

    /// INV-1 and INV-3: what the card points at exists and has its bytes.
    async fn check_ready(&self, card: &Card, bytes: &[u8]) {
        let card = self.read(card).await;
        let State::Ready { object, .. } = &card.state else { panic!("{card:?}") };
        let key = FileKey { card: card.id, token: object.token }.to_string();
        assert_eq!(self.fake.bytes(&key, &object.version).as_deref(), Some(bytes));
        assert_eq!(object.sha256, digest(bytes));
        for derivative in &card.derivatives {
            let key = DerivedKey { card: card.id, token: object.token, name: derivative.name }.to_string();
            let made =
                self.fake.bytes(&key, &derivative.version).unwrap_or_else(|| panic!("{key} is missing"));
            assert_eq!(made.len() as u64, derivative.size_bytes);
        }
    }

    async fn purges(&self, reason: &str) -> i64 {
        self.test
            .count(&format!("select count(*) from outbox where queue = 'card.purge' and reason = '{reason}'"))
            .await
    }
}

fn digest(bytes: &[u8]) -> Sha256 {
    Sha256(sha2::Sha256::digest(bytes).into())
}

#[tokio::test]
async fn a_picture_becomes_ready_with_its_previews_and_a_repeat_changes_nothing() {
    let world = World::new().await;
    let card = world.queued(MediaType::Png, PNG).await;
    assert_eq!(world.handle(card.id).await, Outcome::Done);
    world.check_ready(&card, PNG).await;
    let ready = world.read(&card).await;
    let facts = ready.facts.clone().unwrap();
    assert_eq!((facts.width_px, facts.height_px, facts.frames), (Some(1), Some(1), Some(1)));
    assert_eq!(ready.derivatives.len(), 2);
    assert_eq!(
        world.purges("source_accepted").await,
        1,
        "the source is removed after COMMIT, through the outbox"
    );
    // R-H1: one more purge is owed when no upload can be under way any more.
    assert_eq!(ready.purge_at, Some(cards::timing::settled_at(ready.ticket.ends_at)));

    assert_eq!(world.handle(card.id).await, Outcome::Done);
    assert_eq!(world.read(&card).await.state, ready.state);
    assert_eq!(world.purges("unleasable").await, 1, "R-C1: a message that can lease neither now nor later");
}

#[tokio::test]
async fn exactly_the_pinned_version_is_read_whatever_came_later() {
    let world = World::new().await;
    let card = world.queued(MediaType::Text, b"pinned").await;
    fixture::upload(&world.fake, &card, b"surplus, in mid-decode");
    assert_eq!(world.handle(card.id).await, Outcome::Done);
    world.check_ready(&card, b"pinned").await;
}

#[tokio::test]
async fn bad_files_are_rejected_with_a_reason_and_leave_nothing_behind() {
    let world = World::new().await;
    let jpeg: &[u8] = include_bytes!("cases/ok-gray.jpg");
    let cut: &[u8] = include_bytes!("cases/trunc-half.jpg");
    for (announced, bytes, code) in [
        (MediaType::Png, jpeg, ProblemCode::TypeMismatch),
        (
            MediaType::Png,
            b"<svg xmlns='http://www.w3.org/2000/svg'/>".as_slice(),
            ProblemCode::UnsupportedFormat,
        ),
        (MediaType::Jpeg, cut, ProblemCode::Truncated),
        (MediaType::Text, b"a\0b".as_slice(), ProblemCode::TextInvalid),
    ] {
        let card = world.queued(announced, bytes).await;
        assert_eq!(world.handle(card.id).await, Outcome::Done);
        let rejected = world.read(&card).await;
        assert_eq!(rejected.state.name(), StateName::Rejected, "{code}");
        assert_eq!(rejected.problem.unwrap().code, code);
    }
    assert_eq!(world.purges("rejected").await, 4);
    assert!(world.fake.all_keys().iter().all(|key| key.starts_with("incoming/")));
}

#[tokio::test]
async fn bytes_with_another_digest_than_announced_are_refused() {
    let world = World::new().await;
    let new = fixture::new_card(world.owner, MediaType::Text, 5, Some(digest(b"other")));
    let card = fixture::issue(&world.api, &new).await;
    let pinned = fixture::upload(&world.fake, &card, b"hello");
    world
        .test
        .sql(&format!(
            "update cards set state = 'queued', pinned_version = '{pinned}', confirmed_by = 'event' where id = '{}'",
            card.id
        ))
        .await;
    assert_eq!(world.handle(card.id).await, Outcome::Done);
    let rejected = world.read(&card).await;
    assert_eq!(rejected.problem.unwrap().code, ProblemCode::ChecksumMismatch);
}

/// R-C6: ten parallel identical uploads give one file.
#[tokio::test]
async fn ten_parallel_identical_uploads_give_one_file() {
    let world = World::new().await;
    let mut cards = Vec::new();
    for _ in 0..10 {
        cards.push(world.queued(MediaType::Text, b"the same").await);
    }
    let outcomes = futures::future::join_all(cards.iter().map(|card| world.handle(card.id))).await;
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Done), "{outcomes:?}");
    let states = world.test.texts("select state from cards order by state").await;
    assert_eq!(states.iter().filter(|state| *state == "ready").count(), 1);
    assert_eq!(states.iter().filter(|state| *state == "duplicate").count(), 9);
}

#[tokio::test]
async fn a_live_lease_puts_the_message_off_and_uses_no_attempt() {
    let world = World::new().await;
    let card = world.queued(MediaType::Text, b"hello").await;
    let leased = fixture::leased(&world.db, &card).await;
    let State::Processing { lease, .. } = leased.state else { panic!("{leased:?}") };
    let outcome = world.handle(card.id).await;
    let Outcome::Later { due, .. } = outcome else { panic!("{outcome:?}") };
    assert!(due > lease.until);
    assert_eq!(world.read(&card).await.attempts, 1);
    // Its worker died: past the deadline the next message finishes the card.
    world.test.pass_time(61).await;
    assert_eq!(world.handle(card.id).await, Outcome::Done);
    world.check_ready(&card, b"hello").await;
}

/// R-J: copy fails, copy done and its answer lost, derivative fails, GET breaks off: retried, nothing served.
#[tokio::test]
async fn a_failing_store_call_is_retried_and_the_next_attempt_succeeds() {
    for (operation, fault) in [
        (Operation::Get, Fault::Unavailable),
        (Operation::Get, Fault::AfterEffect),
        (Operation::Put, Fault::Unavailable),
        (Operation::Copy, Fault::Refuse),
        (Operation::Copy, Fault::AfterEffect),
    ] {
        let world = World::new().await;
        let card = world.queued(MediaType::Png, PNG).await;
        world.fake.fail(operation, fault);
        let outcome = world.handle(card.id).await;
        assert!(matches!(outcome, Outcome::Retry(_)), "{operation:?} {fault:?}: {outcome:?}");
        let waiting = world.read(&card).await;
        assert_eq!((waiting.state.name(), waiting.attempts), (StateName::Processing, 1));
        assert_eq!(world.handle(card.id).await, Outcome::Done);
        world.check_ready(&card, PNG).await;
    }
}

#[tokio::test]
async fn an_outage_uses_no_attempt() {
    let world = World::new().await;
    let card = world.queued(MediaType::Png, PNG).await;
    world.fake.switch_off();
    for _ in 0..10 {
        let outcome = world.handle(card.id).await;
        assert!(matches!(outcome, Outcome::Outage(_)), "{outcome:?}");
    }
    assert!(!world.decoder.probe().await);
    assert_eq!(world.read(&card).await.attempts, 0);
    world.fake.heal();
    assert!(world.decoder.probe().await);
    assert_eq!(world.handle(card.id).await, Outcome::Done);
    world.check_ready(&card, PNG).await;
}

/// R-B8, R-C7: a store that hangs is an outage, and is one before the message's time is over. Its time is made to pass.
#[tokio::test]
async fn a_store_that_hangs_is_an_outage_and_is_probed_once_and_not_for_long() {
    let world = World::new().await;
    let card = world.queued(MediaType::Png, PNG).await;
    world.fake.fail(Operation::Get, Fault::Hang);
    world.fake.fail_times(Operation::Probe, Fault::Hang, 2);
    let begun = tokio::time::Instant::now();
    let called = |operation| world.fake.calls().iter().filter(|call| call.operation == operation).count();
    let outcome = world
        .handle_while(&card, async || {
            pass(objects::s3::OPERATION_TIMEOUT).await;
            until("the probe", BOUND, || async { (called(Operation::Probe) > 0).then_some(()) }).await;
            pass(Duration::from_secs(5)).await;
        })
        .await;
    assert!(matches!(outcome, Outcome::Outage(_)), "{outcome:?}");
    assert_eq!((called(Operation::Get), called(Operation::Probe)), (1, 1));
    // Its own five seconds, and not as long as the real client waits for a probe.
    let took = begun.elapsed();
    assert!(took < objects::s3::OPERATION_TIMEOUT + Duration::from_secs(20), "{took:?}");
    assert_eq!(world.read(&card).await.attempts, 0);
}

/// Makes time pass for timers; the clock stands only for a moment, so that servers still answer in time.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// R-I5: a job that does not end soon after shutdown is given up: its lease is over at once, no attempt is used.
#[tokio::test]
async fn a_job_that_outlives_shutdown_gives_its_lease_back() {
    let world = World::hanging(Pace { stop_within: Duration::from_millis(200), ..Pace::default() }).await;
    let card = world.queued(MediaType::Text, b"hello").await;
    let outcome = world.handle_while(&card, async || world.shutdown.cancel()).await;
    assert!(matches!(&outcome, Outcome::Outage(reason) if reason.code == "stopping"), "{outcome:?}");
    let after = world.read(&card).await;
    assert_eq!((after.state.name(), after.attempts), (StateName::Processing, 0));
    assert_eq!(world.test.count("select count(*) from cards where lease_until <= now()").await, 1);
    // The children's end is no fault of a file either.
    world.decoder.shutdown().await;
    let outcome = world.handle(card.id).await;
    assert!(matches!(&outcome, Outcome::Outage(reason) if reason.code == "stopping"), "{outcome:?}");
    assert_eq!(world.read(&card).await.attempts, 0);
}

/// R-C7: the consumer loop aborts a job that outlives an outage's drain: its lease is over soon, and no attempt was used.
#[tokio::test]
async fn a_job_that_is_aborted_gives_its_lease_back() {
    let world = World::hanging(Pace::default()).await;
    let card = world.queued(MediaType::Text, b"hello").await;
    let aborted = tokio::select! {
        outcome = world.handle(card.id) => Some(outcome),
        () = world.until_read() => None,
    };
    assert_eq!(aborted, None);
    until("the lease to be given back", BOUND, || async {
        let ended = "select count(*) from cards where lease_until <= now() and attempts = 0";
        (world.test.count(ended).await == 1).then_some(())
    })
    .await;
    assert_eq!(world.read(&card).await.state.name(), StateName::Processing);
}

/// R-C1, R-C5: the renewal finds the lease gone: the job ends there, and asks for the purge of what it stored.
#[tokio::test]
async fn a_worker_that_lost_its_lease_in_mid_work_stops_and_asks_for_a_purge() {
    let world = World::hanging(Pace { renewal: Duration::from_millis(100), ..Pace::default() }).await;
    let card = world.queued(MediaType::Text, b"hello").await;
    let steal = async || world.test.sql("update cards set lease_token = gen_random_uuid()").await;
    assert_eq!(world.handle_while(&card, steal).await, Outcome::Done);
    assert_eq!(world.read(&card).await.state.name(), StateName::Processing);
    assert_eq!(world.purges("lost_lease").await, 1);
    assert!(!world.fake.calls().iter().any(|call| call.operation == Operation::Copy));
}

/// A pinned version that is gone is a fault, never a verdict about the file (R-C7).
#[tokio::test]
async fn a_missing_source_never_rejects_and_ends_as_a_dead_letter() {
    let world = World::new().await;
    let card = world.queued(MediaType::Text, b"hello").await;
    let key = card.source_key().to_string();
    let pinned = card.state.pinned().cloned().unwrap();
    world.fake.delete_versions(&[(key, pinned)]).await.unwrap();
    for _ in 0..8 {
        let outcome = world.handle(card.id).await;
        assert!(matches!(&outcome, Outcome::Retry(reason) if reason.code == "source_missing"), "{outcome:?}");
    }
    let outcome = world.handle(card.id).await;
    assert!(matches!(&outcome, Outcome::Dead(reason) if reason.code == "attempts_exhausted"), "{outcome:?}");
    assert_eq!(world.read(&card).await.state.name(), StateName::Processing);
}

/// R-C5: COMMIT surely failed: the copy is asked away, and the first error is the one that is reported.
#[tokio::test]
async fn a_commit_that_surely_failed_asks_for_a_purge_and_serves_nothing() {
    let world = World::new().await;
    let card = world.queued(MediaType::Text, b"hello").await;
    world.test.sql("alter table cards add constraint no_more_ready check (state <> 'ready')").await;
    let outcome = world.handle(card.id).await;
    assert!(matches!(&outcome, Outcome::Dead(reason) if reason.code == "database"), "{outcome:?}");
    assert_eq!(world.purges("failed_commit").await, 1);
    let after = world.read(&card).await;
    assert_eq!(after.state.name(), StateName::Processing);
    assert!(after.purge_at.is_some());
    // The constraint gone, a replay finishes the card.
    world.test.sql("alter table cards drop constraint no_more_ready").await;
    assert_eq!(world.handle(card.id).await, Outcome::Done);
    world.check_ready(&card, b"hello").await;
}

/// R-C5: the outcome of COMMIT is unknown: nothing is removed, and the card is ready.
#[tokio::test]
async fn a_commit_whose_answer_is_lost_removes_nothing_and_the_file_is_ready() {
    let test = TestDb::new().await;
    let mut url = url::Url::parse(&test.worker_url).unwrap();
    let proxy = Proxy::to(&format!("127.0.0.1:{}", url.port().unwrap())).await;
    url.set_port(Some(proxy.address.port())).unwrap();
    let settings = store::DbSettings { url: url.to_string(), connections_max: 4, name: "cut".to_owned() };
    let world = World::with(test, Db::new(&settings).unwrap()).await;
    let card = world.queued(MediaType::Text, b"hello").await;
    // The first COMMIT is the lease's: let it through, and lose the answer of the one that makes the file ready.
    proxy.lose_the_answer_to_nth(b"COMMIT", 2);
    let outcome = world.handle(card.id).await;
    assert!(matches!(outcome, Outcome::Outage(_)), "{outcome:?}");
    assert!(proxy.has_cut());
    world.check_ready(&card, b"hello").await;
    assert_eq!(world.purges("failed_commit").await, 0);
    // The message comes again, and changes nothing.
    assert_eq!(world.handle(card.id).await, Outcome::Done);
    world.check_ready(&card, b"hello").await;
}

#[tokio::test]
async fn a_worker_that_lost_its_lease_before_the_hand_in_changes_nothing() {
    let world = World::new().await;
    let card = world.queued(MediaType::Text, b"hello").await;
    // A trigger plays the other worker: it takes the lease while ours copies.
    world
        .test
        .sql(
            "create function steal() returns trigger language plpgsql as $$
             begin
                 new.lease_token = gen_random_uuid();
                 return new;
             end $$;
             create trigger steal before update on cards for each row
             when (new.state = 'processing' and old.state = 'queued') execute function steal()",
        )
        .await;
    assert_eq!(world.handle(card.id).await, Outcome::Done);
    let after = world.read(&card).await;
    assert_eq!(after.state.name(), StateName::Processing);
    assert_eq!(world.purges("lost_lease").await, 1);
}

#[tokio::test]
async fn messages_that_make_no_sense_are_dead_lettered_or_done() {
    let world = World::new().await;
    let unknown = world.handle(Ids.card()).await;
    assert!(matches!(&unknown, Outcome::Dead(reason) if reason.code == "unknown_card"), "{unknown:?}");
    let pending = fixture::pending(&world.api, world.owner, MediaType::Text, b"hello").await;
    assert_eq!(world.handle(pending.id).await, Outcome::Done);
    assert_eq!(world.read(&pending).await, pending);
    let delivery = Delivery {
        queue: Queue::Decode,
        message_id: None,
        attempt: 1,
        redelivered: false,
        traceparent: None,
        body: b"{}".to_vec(),
    };
    let outcome = world.decoder.handle(&delivery).await;
    assert!(matches!(&outcome, Outcome::Dead(reason) if reason.code == "unparsable"), "{outcome:?}");
}

/// Checklist 23, R-D2: what is stored is harmless even without a link's overrides.
#[tokio::test]
async fn the_copy_carries_our_own_headers_and_none_of_the_uploads() {
    let world = World::new().await;
    let card = world.queued(MediaType::Text, b"hello").await;
    world.handle(card.id).await;
    let State::Ready { object, .. } = world.read(&card).await.state else { panic!("not ready") };
    let key = FileKey { card: card.id, token: object.token }.to_string();
    let found = world.fake.head(&key, Some(&object.version)).await.unwrap().found().unwrap();
    assert_eq!(found.sighting.content_type.as_deref(), Some("text/plain"));
    assert_eq!(found.sighting.content_disposition.as_deref(), Some("attachment"));
    assert!(found.sighting.user_metadata.is_empty());
    let _: VersionId = object.version;
}
