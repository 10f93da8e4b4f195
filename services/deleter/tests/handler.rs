//! The deleter's handler on a real PostgreSQL, with a store that can fail any call: the outcome, the rows, the outbox and
//! the bucket (R-E1 to R-E5, R-B5, R-B6, R-J).

#![expect(clippy::unwrap_used, reason = "a test's helpers fail their test")]

use std::sync::Arc;

use broker::{Delivery, Handler, Outcome};
use cards::{
    Card, CardId, Derivative, DerivativeName, DerivedKey, FileKey, Ids, MediaType, OwnerId, State, StateName,
    VersionId,
};
use deleter::Deleter;
use events::work::Queue;
use objects::Operation;
use objects::fake::{Fake, Fault};
use store::Db;
use store::deletion::Requested;
use testkit::{Proxy, TestDb, fixture};

struct World {
    test: TestDb,
    db: Db,
    api: Db,
    fake: Arc<Fake>,
    deleter: Arc<Deleter>,
    owner: OwnerId,
}

impl World {
    async fn new() -> Self {
        let test = TestDb::new().await;
        let db = test.worker();
        Self::with(test, db).await
    }

    /// With a deleter whose wire to the database can be cut.
    async fn with(test: TestDb, deleter_db: Db) -> Self {
        let (db, api, fake) = (test.worker(), test.api(), Arc::new(Fake::new()));
        let deleter = Deleter::new(deleter_db, Arc::clone(&fake) as _, Ids);
        let owner = fixture::owner(&api).await;
        Self { test, db, api, fake, deleter, owner }
    }

    async fn handle(&self, card: CardId) -> Outcome {
        let delivery = Delivery {
            queue: Queue::Purge,
            message_id: None,
            attempt: 1,
            redelivered: false,
            traceparent: None,
            body: format!(r#"{{"card":"{card}"}}"#).into_bytes(),
        };
        self.deleter.handle(&delivery).await
    }

    async fn read(&self, card: &Card) -> Card {
        fixture::read(&self.db, card).await
    }

    /// A processing card with everything a decoder stored by the time it hands in: a copy and a thumb.
    async fn stored(&self, bytes: &[u8]) -> (Card, VersionId, VersionId) {
        let card = fixture::queued(&self.db, &self.api, &self.fake, self.owner, MediaType::Text, bytes).await;
        let card = fixture::leased(&self.db, &card).await;
        let State::Processing { lease, .. } = &card.state else { panic!("{card:?}") };
        let file = FileKey { card: card.id, token: lease.token }.to_string();
        let thumb = DerivedKey { card: card.id, token: lease.token, name: DerivativeName::Thumb }.to_string();
        let copy = self.fake.upload(&file, bytes.to_vec(), "text/plain", &[]);
        let thumb = self.fake.upload(&thumb, &b"thumb"[..], "image/webp", &[]);
        (card, copy, thumb)
    }

    /// A ready file with all its objects, its source among them.
    async fn ready(&self, bytes: &[u8]) -> Card {
        let (card, copy, thumb) = self.stored(bytes).await;
        let mut accepted = fixture::accepted(&card, bytes);
        accepted.object.version = copy;
        accepted.derivatives = vec![Derivative {
            name: DerivativeName::Thumb,
            content_type: "image/webp".to_owned(),
            width_px: 1,
            height_px: 1,
            size_bytes: 5,
            version: thumb,
        }];
        let mut tx = self.db.begin().await.unwrap();
        store::finish::accept(&mut tx, Ids, &accepted).await.unwrap();
        tx.commit().await.unwrap();
        self.read(&card).await
    }

    async fn delete(&self, card: &Card) -> Card {
        let mut tx = self.api.begin().await.unwrap();
        let requested = store::deletion::request(&mut tx, Ids, self.owner, card.id).await.unwrap();
        tx.commit().await.unwrap();
        match requested {
            Requested::Now { card, .. } => *card,
            other @ (Requested::Before(_) | Requested::NotThere) => panic!("{other:?}"),
        }
    }

    /// Past ticket end + 6 min, and past every `delete_after`.
    async fn long_after(&self) {
        self.test.pass_time(961).await;
    }

    async fn ask(&self, card: &Card, reason: &str) {
        let mut tx = self.db.begin().await.unwrap();
        store::purge::request(&mut tx, Ids, card.id, reason).await.unwrap();
        tx.commit().await.unwrap();
    }

    fn keys(&self) -> Vec<String> {
        self.fake.all_keys()
    }

    async fn receipt(&self, card: &Card) -> Option<store::purge::Receipt> {
        let mut connection = self.api.acquire().await.unwrap();
        store::purge::receipt(&mut connection, Some(self.owner), card.id).await.unwrap()
    }

    async fn events(&self, card: &Card) -> Vec<String> {
        let query = format!("select event from card_history where card_id = '{}' order by id", card.id);
        self.test.texts(&query).await
    }
}

#[tokio::test]
async fn a_ready_file_keeps_its_object_and_previews_and_loses_its_source() {
    let world = World::new().await;
    let card = world.ready(b"hello").await;
    assert_eq!(world.keys().len(), 3);
    assert_eq!(world.handle(card.id).await, Outcome::Done);
    let kept: Vec<String> = cards::purge::references(&card).into_iter().map(|(key, _)| key).rev().collect();
    assert_eq!(world.keys(), kept);
    // One more is owed when no upload can be under way any more (R-H1), and has its message.
    let after = world.read(&card).await;
    assert_eq!(after.purge_at, Some(cards::timing::settled_at(card.ticket.ends_at)));
    let later =
        "select count(*) from outbox where queue = 'card.purge' and reason = 'owed' and available_at > now()";
    assert_eq!(world.test.count(later).await, 1);
    // That one finds nothing, and then nothing is owed and nobody looks any more.
    world.long_after().await;
    assert_eq!(world.handle(card.id).await, Outcome::Done);
    let after = world.read(&card).await;
    assert_eq!((after.purge_at, after.next_check_at, after.purged_at), (None, None, None));
    assert_eq!(world.keys(), kept);
    assert!(world.receipt(&card).await.is_none(), "nothing was deleted");
}

#[tokio::test]
async fn a_deletion_ends_with_no_version_no_marker_and_a_receipt() {
    let world = World::new().await;
    let card = world.ready(b"hello").await;
    let source = card.source_key().to_string();
    world.fake.add_delete_marker(&source);
    world.fake.upload(&format!("files/{}/left-over", card.id), &b"half"[..], "text/plain", &[]);
    // Keys that merely start alike are somebody else's.
    let alike = [format!("{source}2"), format!("files/{}2/x", card.id)];
    for key in &alike {
        world.fake.upload(key, &b"not ours"[..], "text/plain", &[]);
    }
    world.delete(&card).await;
    world.long_after().await;
    assert_eq!(world.handle(card.id).await, Outcome::Done);

    let after = world.read(&card).await;
    assert_eq!(after.state.name(), StateName::Deleted);
    assert!(after.purged_at.is_some() && after.next_check_at.is_none());
    let left = world.keys();
    assert!(left.len() == 2 && alike.iter().all(|key| left.contains(key)), "{left:?}");
    let receipt = world.receipt(&card).await.unwrap();
    // Source and its marker, copy, thumb, left-over.
    assert_eq!((receipt.versions_removed, receipt.removed.len()), (5, 5));
    assert_eq!(receipt.bytes_removed, 5 + 5 + 5 + 4);
    assert_eq!(receipt.removed.iter().filter(|removed| removed.is_delete_marker).count(), 1);
    assert!(receipt.removed.iter().all(|removed| removed.state == "deleting"));
    assert!(receipt.requested_at <= receipt.delete_after);
    assert!(receipt.removed.iter().all(|removed| removed.listed_at <= receipt.proved_at));
    assert_eq!(world.events(&card).await[3..], ["ready", "delete_requested", "deleted"]);
    // A repeat changes nothing.
    assert_eq!(world.handle(card.id).await, Outcome::Done);
    assert_eq!(world.receipt(&card).await.unwrap(), receipt);
    assert_eq!(world.read(&card).await, after);
}

/// R-E2: `deleting` keeps everything until `delete_after`, whichever message asks.
#[tokio::test]
async fn a_purge_before_its_time_removes_nothing_and_comes_again() {
    let world = World::new().await;
    let card = world.ready(b"hello").await;
    let deleting = world.delete(&card).await;
    let State::Deleting { delete_after } = deleting.state else { panic!("{deleting:?}") };
    world.ask(&card, "surplus_version").await;
    assert_eq!(world.handle(card.id).await, Outcome::Done);
    assert_eq!(world.keys().len(), 3);
    let after = world.read(&card).await;
    assert_eq!(after.state, State::Deleting { delete_after });
    assert!(after.next_check_at.is_some_and(|next| next > delete_after));
    // The deletion's own message is due then: no second one is needed.
    let due = format!(
        "select count(*) from outbox where card_id = '{}' and queue = 'card.purge' and available_at > now()
         and reason in ('deleted', 'owed')",
        card.id
    );
    assert_eq!(world.test.count(&due).await, 1);
}

#[tokio::test]
async fn a_refused_version_is_removed_at_once_and_the_right_one_still_wins() {
    let world = World::new().await;
    let card = fixture::pending(&world.api, world.owner, MediaType::Text, b"hello").await;
    let key = card.source_key().to_string();
    let wrong = world.fake.upload(&key, &b"something else"[..], "text/plain", &[]);
    let right = world.fake.upload(&key, &b"hello"[..], "text/plain", &[]);
    world
        .test
        .sql(&format!("update cards set refused_versions = array['{wrong}'] where id = '{}'", card.id))
        .await;
    world.ask(&card, "refused_version").await;
    assert_eq!(world.handle(card.id).await, Outcome::Done);
    assert_eq!(world.fake.versions(&key), [right]);
    let after = world.read(&card).await;
    assert_eq!(after.state.name(), StateName::Pending);
    assert_eq!(after.purge_at, None);
    assert_eq!(after.next_check_at, card.next_check_at, "its own look stands");
}

/// R-B6: a surplus upload goes; what a decoder is working with and on stays.
#[tokio::test]
async fn a_surplus_upload_in_mid_decode_goes_and_the_work_stays() {
    let world = World::new().await;
    let (card, ..) = world.stored(b"hello").await;
    let key = card.source_key().to_string();
    let pinned = card.state.pinned().unwrap().clone();
    world.fake.upload(&key, &b"again"[..], "text/plain", &[]);
    world.ask(&card, "surplus_version").await;
    assert_eq!(world.handle(card.id).await, Outcome::Done);
    assert_eq!(world.fake.versions(&key), [pinned]);
    assert_eq!(world.keys().len(), 3, "copy and thumb of the running job");
    let after = world.read(&card).await;
    assert_eq!((after.state, after.purge_at), (card.state, None));
}

/// R-E3: an upload that finishes after the deletion, and a worker that wakes after it.
#[tokio::test]
async fn late_bytes_under_a_deleted_card_are_found_and_removed_and_change_nothing() {
    let world = World::new().await;
    let card = world.ready(b"hello").await;
    world.delete(&card).await;
    world.long_after().await;
    assert_eq!(world.handle(card.id).await, Outcome::Done);
    let before = world.read(&card).await;
    let receipt = world.receipt(&card).await.unwrap();

    world.fake.upload(&card.source_key().to_string(), &b"late!"[..], "text/plain", &[]);
    world.fake.upload(&format!("files/{}/late", card.id), &b"late!"[..], "text/plain", &[]);
    world.ask(&card, "unleasable").await;
    assert_eq!(world.handle(card.id).await, Outcome::Done);
    assert!(world.keys().is_empty());
    let after = world.read(&card).await;
    assert_eq!((after.purged_at, after.revision, after.purge_at), (before.purged_at, before.revision, None));
    // The receipt's head stays as it was proved; what came late is among its lines.
    let later = world.receipt(&card).await.unwrap();
    assert_eq!(later.versions_removed, receipt.versions_removed);
    assert_eq!(later.removed.len(), receipt.removed.len() + 2);
}

/// R-E4: gone for good is recorded only by an empty listing begun when no upload can be under way, and once.
#[tokio::test]
async fn an_expired_or_rejected_card_is_purged_once_and_only_when_nothing_can_come() {
    let world = World::new().await;
    let rejected = fixture::rejected(&world.db, &world.api, &world.fake, world.owner, b"bad\0file").await;
    assert_eq!(world.handle(rejected.id).await, Outcome::Done);
    assert!(world.keys().is_empty());
    let early = world.read(&rejected).await;
    assert_eq!((early.purged_at, early.purge_at), (None, None));
    assert!(early.next_check_at.is_some(), "it still owes the proof");
    world.long_after().await;
    assert_eq!(world.handle(rejected.id).await, Outcome::Done);
    let purged = world.read(&rejected).await;
    assert!(purged.purged_at.is_some());
    assert_eq!((purged.next_check_at, purged.revision), (None, early.revision));
    assert_eq!(world.handle(rejected.id).await, Outcome::Done);
    assert_eq!(world.read(&rejected).await.purged_at, purged.purged_at);
    assert_eq!(world.events(&rejected).await.iter().filter(|event| *event == "purged").count(), 1);

    let expired = fixture::expired(&world.test, &world.db, &world.api, world.owner).await;
    assert_eq!(world.handle(expired.id).await, Outcome::Done);
    let purged = world.read(&expired).await;
    assert!(purged.purged_at.is_some() && purged.next_check_at.is_none());
}

#[tokio::test]
async fn a_batch_that_is_removed_in_part_leaves_the_card_deleting_and_is_tried_again() {
    let world = World::new().await;
    let card = world.ready(b"hello").await;
    world.delete(&card).await;
    world.long_after().await;
    world.fake.fail(Operation::DeleteVersions, Fault::Partly);
    let outcome = world.handle(card.id).await;
    let Outcome::Retry(reason) = outcome else { panic!("{outcome:?}") };
    assert_eq!(reason.code, "not_removed");
    assert_eq!(world.read(&card).await.state.name(), StateName::Deleting);
    // One prefix's batch failed, the others' were done; the rest comes with the retry, which meets no claim.
    assert_eq!(world.keys().len(), 1);
    assert_eq!(world.handle(card.id).await, Outcome::Done);
    assert!(world.keys().is_empty());
    assert_eq!(world.read(&card).await.state.name(), StateName::Deleted);
    assert_eq!(
        world.receipt(&card).await.unwrap().versions_removed,
        3,
        "written down before it was removed, once"
    );
}

#[tokio::test]
async fn a_removal_whose_answer_is_lost_is_done_and_found_done() {
    let world = World::new().await;
    let card = world.ready(b"hello").await;
    world.delete(&card).await;
    world.long_after().await;
    world.fake.fail(Operation::DeleteVersions, Fault::AfterEffect);
    let outcome = world.handle(card.id).await;
    assert!(matches!(&outcome, Outcome::Retry(reason) if reason.code == "store"), "{outcome:?}");
    assert_eq!(world.handle(card.id).await, Outcome::Done);
    assert_eq!(world.receipt(&card).await.unwrap().versions_removed, 3);
}

#[tokio::test]
async fn a_store_that_is_away_or_refuses_or_has_no_versions_is_an_outage_and_nothing_is_recorded() {
    let world = World::new().await;
    let card = world.ready(b"hello").await;
    world.delete(&card).await;
    world.long_after().await;
    let before = world.read(&card).await;
    world.fake.switch_off();
    assert!(matches!(world.handle(card.id).await, Outcome::Outage(_)));
    assert!(!world.deleter.probe().await);
    world.fake.heal();
    world.fake.fail(Operation::ListVersions, Fault::MissingVersionId);
    let outcome = world.handle(card.id).await;
    assert!(
        matches!(&outcome, Outcome::Outage(reason) if reason.code == "versioning_required"),
        "{outcome:?}"
    );
    // One refusal while the probe answers is this object's trouble.
    world.fake.fail(Operation::ListVersions, Fault::Refuse);
    assert!(matches!(world.handle(card.id).await, Outcome::Retry(_)));
    assert_eq!(world.read(&card).await, before);
    assert_eq!(world.keys().len(), 3);
    assert_eq!(world.handle(card.id).await, Outcome::Done);
}

/// R-B8: a store that hangs keeps its probe waiting too; that one has a limit of its own.
#[tokio::test]
async fn a_store_that_hangs_is_an_outage_within_the_handlers_limit() {
    let world = World::new().await;
    let card = world.ready(b"hello").await;
    world.fake.fail(Operation::ListVersions, Fault::Unavailable);
    world.fake.fail(Operation::Probe, Fault::Hang);
    let begun = std::time::Instant::now();
    assert!(matches!(world.handle(card.id).await, Outcome::Outage(_)));
    assert!(begun.elapsed() < objects::s3::OPERATION_TIMEOUT);
    assert_eq!(world.keys().len(), 3);
}

/// R-J: the database is away between the removal and its commit. Store first, database second.
#[tokio::test]
async fn a_database_that_goes_away_between_removal_and_commit_leaves_a_card_that_still_owes_its_purge() {
    let test = TestDb::new().await;
    let mut url = url::Url::parse(&test.worker_url).unwrap();
    let proxy = Proxy::to(&format!("127.0.0.1:{}", url.port().unwrap())).await;
    url.set_port(Some(proxy.address.port())).unwrap();
    let settings = store::DbSettings { url: url.to_string(), connections_max: 4, name: "cut".to_owned() };
    let world = World::with(test, Db::new(&settings).unwrap()).await;
    let card = world.ready(b"hello").await;
    world.delete(&card).await;
    world.long_after().await;
    // The wire is cut at the first COMMIT, whose answer is lost: that of step 5.
    proxy.lose_the_answer_to(b"COMMIT");
    assert!(matches!(world.handle(card.id).await, Outcome::Outage(_)));
    assert!(proxy.has_cut());
    assert!(world.keys().is_empty());
    // Whether it is in or not, the message comes again and the end is one.
    world.test.pass_time(151).await;
    assert_eq!(world.handle(card.id).await, Outcome::Done);
    assert_eq!(world.read(&card).await.state.name(), StateName::Deleted);
    assert_eq!(world.events(&card).await.iter().filter(|event| *event == "deleted").count(), 1);

    // And a database that is away altogether: nothing is recorded, nothing is lost.
    let other = world.ready(b"other").await;
    world.delete(&other).await;
    world.long_after().await;
    proxy.close();
    assert!(matches!(world.handle(other.id).await, Outcome::Outage(_)));
    assert_eq!(world.read(&other).await.state.name(), StateName::Deleting);
    proxy.open();
    assert_eq!(world.handle(other.id).await, Outcome::Done);
    assert_eq!(world.read(&other).await.state.name(), StateName::Deleted);
}

#[tokio::test]
async fn two_purges_of_one_card_do_not_meet_and_both_end_well() {
    let world = World::new().await;
    let card = world.ready(b"hello").await;
    world.delete(&card).await;
    world.long_after().await;
    let mut connection = world.db.acquire().await.unwrap();
    let life = chrono::TimeDelta::seconds(150);
    let claimed = store::purge::claim(&mut connection, card.id, life).await.unwrap();
    assert!(matches!(claimed, store::purge::Claimed::Yes { .. }));
    let outcome = world.handle(card.id).await;
    assert!(matches!(&outcome, Outcome::Later { reason, .. } if reason.code == "purge_held"), "{outcome:?}");
    assert_eq!(world.keys().len(), 3);
    // The claim of a deleter that died ends by itself.
    world.test.pass_time(151).await;
    let (first, second) = tokio::join!(world.handle(card.id), world.handle(card.id));
    for outcome in [first, second] {
        assert!(matches!(outcome, Outcome::Done | Outcome::Later { .. }), "{outcome:?}");
    }
    assert_eq!(world.read(&card).await.state.name(), StateName::Deleted);
    assert_eq!(world.events(&card).await.iter().filter(|event| *event == "deleted").count(), 1);
}

/// A request made while a purge runs is not swallowed by it: its bytes may have come after the listing (INV-2).
#[tokio::test]
async fn a_request_made_after_the_listing_began_is_still_owed_and_has_its_message() {
    let world = World::new().await;
    let card = world.ready(b"hello").await;
    let mut tx = world.db.begin().await.unwrap();
    let listed_at = store::clock::now(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    world.ask(&card, "surplus_version").await;
    let asked = world.read(&card).await.purge_at;
    world.test.sql("delete from outbox").await;
    let mut tx = world.db.begin().await.unwrap();
    let read = world.read(&card).await;
    let settled = store::purge::settle(&mut tx, Ids, &read, listed_at, false).await.unwrap();
    tx.commit().await.unwrap();
    assert!(
        matches!(settled, store::purge::Settled::Yes { again_at, .. } if again_at == asked),
        "{settled:?}"
    );
    assert_eq!(world.test.count("select count(*) from outbox where queue = 'card.purge'").await, 1);
}

#[tokio::test]
async fn thousands_of_versions_go_in_batches_of_at_most_a_thousand() {
    let world = World::new().await;
    let card = world.ready(b"hello").await;
    for n in 0..2500 {
        world.fake.upload(&format!("files/{}/{n:05}", card.id), &b"x"[..], "text/plain", &[]);
    }
    world.delete(&card).await;
    world.long_after().await;
    world.fake.clear_calls();
    assert_eq!(world.handle(card.id).await, Outcome::Done);
    assert!(world.keys().is_empty());
    assert_eq!(world.receipt(&card).await.unwrap().versions_removed, 2503);
    let deletes =
        world.fake.calls().iter().filter(|call| call.operation == Operation::DeleteVersions).count();
    assert_eq!(deletes, 5, "three of files/, one of derived/, one of incoming/");
}

/// R-C6, R-E1: an original takes its aliases with it; an alias leaves its original.
#[tokio::test]
async fn an_original_takes_its_aliases_with_it_and_an_alias_goes_alone() {
    let world = World::new().await;
    let original = world.ready(b"same").await;
    let mut aliases = Vec::new();
    for _ in 0..2 {
        let (card, copy, _) = world.stored(b"same").await;
        let mut accepted = fixture::accepted(&card, b"same");
        accepted.object.version = copy;
        let mut tx = world.db.begin().await.unwrap();
        store::finish::accept(&mut tx, Ids, &accepted).await.unwrap();
        tx.commit().await.unwrap();
        let alias = world.read(&card).await;
        assert_eq!(alias.state, State::Duplicate { original: original.id });
        assert_eq!(world.handle(alias.id).await, Outcome::Done);
        aliases.push(alias);
    }
    world.delete(&aliases[0]).await;
    assert_eq!(world.read(&original).await.state.name(), StateName::Ready);
    let mut tx = world.api.begin().await.unwrap();
    let requested = store::deletion::request(&mut tx, Ids, world.owner, original.id).await.unwrap();
    tx.commit().await.unwrap();
    assert!(
        matches!(&requested, Requested::Now { aliases: gone, .. } if *gone == [aliases[1].id]),
        "{requested:?}"
    );
    world.long_after().await;
    for card in [&original, &aliases[0], &aliases[1]] {
        assert_eq!(world.handle(card.id).await, Outcome::Done);
        assert_eq!(world.read(card).await.state.name(), StateName::Deleted);
    }
    assert!(world.keys().is_empty());
    // Deleted bytes can come back as a new file.
    assert_eq!(world.ready(b"same").await.state.name(), StateName::Ready);
}

#[tokio::test]
async fn what_is_no_message_of_ours_or_names_no_card_is_dead_lettered() {
    let world = World::new().await;
    assert!(matches!(world.handle(Ids.card()).await, Outcome::Dead(_)));
    let delivery = Delivery {
        queue: Queue::Purge,
        message_id: None,
        attempt: 1,
        redelivered: false,
        traceparent: None,
        body: b"{}".to_vec(),
    };
    assert!(matches!(world.deleter.handle(&delivery).await, Outcome::Dead(_)));
}
