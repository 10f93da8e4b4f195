//! Deletion and replacement in the database (R-E1, R-C6, R-F1, R-F2): what moves, what waits, what is told.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail their test")]

use std::sync::Arc;

use cards::{Card, CardId, Ids, MediaType, OwnerId, State, StateName};
use objects::fake::Fake;
use store::deletion::{Replaceable, Requested};
use store::finish::Finished;
use store::tickets::{Issued, NewCard};
use store::{Db, StoreError};
use testkit::{TestDb, fixture};

struct World {
    test: TestDb,
    db: Db,
    api: Db,
    fake: Arc<Fake>,
    owner: OwnerId,
}

impl World {
    async fn new() -> Self {
        let test = TestDb::new().await;
        let (db, api, fake) = (test.worker(), test.api(), Arc::new(Fake::new()));
        let owner = fixture::owner(&api).await;
        Self { test, db, api, fake, owner }
    }

    async fn ready(&self, bytes: &[u8]) -> Card {
        fixture::ready(&self.db, &self.api, &self.fake, self.owner, bytes).await
    }

    async fn read(&self, card: &Card) -> Card {
        fixture::read(&self.db, card).await
    }

    async fn delete(&self, owner: OwnerId, card: CardId) -> Requested {
        let mut tx = self.api.begin().await.unwrap();
        let requested = store::deletion::request(&mut tx, Ids, owner, card).await.unwrap();
        tx.commit().await.unwrap();
        requested
    }

    /// Asks for a ticket that replaces this card.
    async fn replace(&self, owner: OwnerId, replaced: CardId, bytes: &[u8]) -> Issued {
        let new = NewCard {
            replaces: Some(replaced),
            ..fixture::new_card(owner, MediaType::Text, bytes.len() as u64, None)
        };
        let mut tx = self.api.begin().await.unwrap();
        let issued = store::tickets::issue(&mut tx, &new).await.unwrap();
        match issued {
            Issued::ReplacementOpen => tx.rollback().await.unwrap(),
            Issued::New(_) | Issued::Before(_) | Issued::OtherRequest | Issued::NotReplaceable(_) => {
                tx.commit().await.unwrap();
            }
        }
        issued
    }

    /// A replacement that a decoder is about to hand in.
    async fn replacement(&self, replaced: CardId, bytes: &[u8]) -> Card {
        let Issued::New(card) = self.replace(self.owner, replaced, bytes).await else { panic!("no ticket") };
        let pinned = fixture::upload(&self.fake, &card, bytes);
        let confirmation = store::confirm::Confirmation {
            card: card.id,
            revision: card.revision,
            pinned,
            by: cards::ConfirmedBy::Event,
            surplus: false,
        };
        let mut tx = self.db.begin().await.unwrap();
        store::confirm::confirm(&mut tx, Ids, &[confirmation]).await.unwrap();
        tx.commit().await.unwrap();
        fixture::leased(&self.db, &card).await
    }

    async fn hand_in(&self, card: &Card, bytes: &[u8]) -> Finished {
        let mut tx = self.db.begin().await.unwrap();
        let finished = store::finish::accept(&mut tx, Ids, &fixture::accepted(card, bytes)).await.unwrap();
        tx.commit().await.unwrap();
        finished
    }

    async fn detail(&self, card: &Card, event: &str) -> serde_json::Value {
        let query = format!(
            "select detail::text from card_history where card_id = '{}' and event = '{event}'",
            card.id
        );
        serde_json::from_str(&self.test.texts(&query).await[0]).unwrap()
    }
}

/// R-E1: from every state, with the same wait, a history line and a message due then.
#[tokio::test]
async fn every_state_is_deleted_with_the_same_wait_and_a_message_due_then() {
    let world = World::new().await;
    let (db, api, fake, owner) = (&world.db, &world.api, &world.fake, world.owner);
    let queued = fixture::queued(db, api, fake, owner, MediaType::Text, b"queued").await;
    let processing = fixture::queued(db, api, fake, owner, MediaType::Text, b"processing").await;
    let cards = [
        fixture::pending(api, owner, MediaType::Text, b"pending").await,
        queued,
        fixture::leased(db, &processing).await,
        world.ready(b"ready").await,
        fixture::rejected(db, api, fake, owner, b"rejected").await,
        fixture::expired(&world.test, db, api, owner).await,
    ];
    for card in cards {
        let state = card.state.name();
        let Requested::Now { card: deleting, aliases } = world.delete(owner, card.id).await else {
            panic!("{state}")
        };
        assert!(aliases.is_empty());
        let State::Deleting { delete_after } = deleting.state else { panic!("{state}: {deleting:?}") };
        let requested_at = deleting.delete_requested_at.unwrap();
        let settled = cards::timing::settled_at(card.ticket.ends_at);
        assert_eq!(delete_after, settled.max(requested_at + cards::timing::DELETE_WAIT), "{state}");
        assert!(deleting.next_check_at.is_some_and(|next| next > delete_after), "{state}");
        assert_eq!(deleting.revision, card.revision + 1, "{state}");
        let due = format!(
            "select count(*) from outbox o join cards c on c.id = o.card_id
             where c.id = '{}' and o.queue = 'card.purge' and o.reason = 'deleted' and o.available_at = c.delete_after",
            card.id
        );
        assert_eq!(world.test.count(&due).await, 1, "{state}");
        assert_eq!(world.detail(&card, "delete_requested").await["by"], "owner", "{state}");
        // A repeat gives the same state; another owner's is not there (R-D3).
        let again = world.delete(owner, card.id).await;
        assert_eq!(again, Requested::Before(deleting), "{state}");
        assert_eq!(world.test.count(&due).await, 1, "{state}");
    }
    let stranger = fixture::owner(api).await;
    let card = world.ready(b"mine").await;
    assert_eq!(world.delete(stranger, card.id).await, Requested::NotThere);
    assert_eq!(world.read(&card).await, card);
}

/// R-E1, R-E3: the running worker's result no longer fits, and what it wrote is asked away.
#[tokio::test]
async fn a_worker_that_wakes_after_the_deletion_changes_nothing_and_asks_for_a_purge() {
    let world = World::new().await;
    let card =
        fixture::queued(&world.db, &world.api, &world.fake, world.owner, MediaType::Text, b"hello").await;
    let card = fixture::leased(&world.db, &card).await;
    world.delete(world.owner, card.id).await;
    let deleting = world.read(&card).await;
    assert_eq!(world.hand_in(&card, b"hello").await, Finished::LostLease);
    let after = world.read(&card).await;
    assert_eq!((after.state, after.revision), (deleting.state, deleting.revision));
    assert!(after.purge_at.is_some());
    assert_eq!(world.test.count("select count(*) from outbox where reason = 'lost_lease'").await, 1);
}

/// R-F1: the old is readable until the new is ready; one transaction swaps.
#[tokio::test]
async fn the_old_file_is_served_until_the_commit_that_makes_its_replacement_ready() {
    let world = World::new().await;
    let old = world.ready(b"old").await;
    let alias =
        fixture::queued(&world.db, &world.api, &world.fake, world.owner, MediaType::Text, b"old").await;
    let alias = fixture::leased(&world.db, &alias).await;
    assert!(matches!(world.hand_in(&alias, b"old").await, Finished::Duplicate(_)));
    let new = world.replacement(old.id, b"new").await;
    assert_eq!(world.read(&old).await, old, "a replacement under way changes nothing");

    // The commit fails: the candidate is not ready, the old is served.
    let mut tx = world.db.begin().await.unwrap();
    store::finish::accept(&mut tx, Ids, &fixture::accepted(&new, b"new")).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(world.read(&old).await, old);
    assert_eq!(world.read(&new).await.state, new.state);

    assert!(matches!(world.hand_in(&new, b"new").await, Finished::Done(_)));
    let (after, ready) = (world.read(&old).await, world.read(&new).await);
    assert_eq!((after.state.name(), ready.state.name()), (StateName::Deleting, StateName::Ready));
    assert_eq!(world.read(&alias).await.state.name(), StateName::Deleting, "an alias goes with its original");
    let told = world.detail(&old, "delete_requested").await;
    assert_eq!((&told["by"], &told["replacement"]), (&"replacement".into(), &new.id.to_string().into()));
    let told = world.detail(&new, "ready").await;
    assert_eq!((&told["replaces"], &told["swapped"]), (&old.id.to_string().into(), &true.into()));
    // Handing in again changes nothing: the lease is gone.
    assert_eq!(world.hand_in(&new, b"new").await, Finished::LostLease);
    assert_eq!(world.read(&old).await.revision, after.revision);
}

#[tokio::test]
async fn the_same_bytes_swap_nothing_and_the_timeline_says_so() {
    let world = World::new().await;
    let old = world.ready(b"same").await;
    let new = world.replacement(old.id, b"same").await;
    assert!(matches!(world.hand_in(&new, b"same").await, Finished::Duplicate(_)));
    assert_eq!(world.read(&old).await, old);
    let told = world.detail(&new, "duplicate").await;
    assert_eq!((&told["original"], &told["swapped"]), (&old.id.to_string().into(), &false.into()));
}

#[tokio::test]
async fn a_replacement_of_a_file_that_was_deleted_meanwhile_becomes_a_plain_file() {
    let world = World::new().await;
    let old = world.ready(b"old").await;
    let new = world.replacement(old.id, b"new").await;
    world.delete(world.owner, old.id).await;
    let deleting = world.read(&old).await;
    assert!(matches!(world.hand_in(&new, b"new").await, Finished::Done(_)));
    assert_eq!(world.read(&new).await.state.name(), StateName::Ready);
    assert_eq!(world.read(&old).await, deleting);
    assert_eq!(world.detail(&new, "ready").await["swapped"], false);
}

/// R-F1: one open replacement a file; it is over when the first one ended.
#[tokio::test]
async fn of_two_replacements_the_second_is_refused_until_the_first_has_ended() {
    let world = World::new().await;
    let old = world.ready(b"old").await;
    let first = world.replacement(old.id, b"bad\0").await;
    assert_eq!(world.replace(world.owner, old.id, b"second").await, Issued::ReplacementOpen);
    let State::Processing { lease, .. } = &first.state else { panic!("{first:?}") };
    let problem = cards::Problem::new(cards::ProblemCode::TextInvalid, "a NUL");
    let mut tx = world.db.begin().await.unwrap();
    store::finish::reject(&mut tx, Ids, first.id, lease.token, &problem, None).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(world.read(&old).await, old, "a replacement that is refused leaves the old one served");
    assert!(matches!(world.replace(world.owner, old.id, b"second").await, Issued::New(_)));

    // At once: the index lets one through.
    let other = world.ready(b"other").await;
    let (a, b) =
        tokio::join!(world.replace(world.owner, other.id, b"a"), world.replace(world.owner, other.id, b"b"));
    let open = [&a, &b].iter().filter(|issued| ***issued == Issued::ReplacementOpen).count();
    assert_eq!(open, 1, "{a:?} {b:?}");
}

#[tokio::test]
async fn only_what_is_served_and_ones_own_can_be_replaced() {
    let world = World::new().await;
    let pending = fixture::pending(&world.api, world.owner, MediaType::Text, b"pending").await;
    let ready = world.ready(b"ready").await;
    let refused = world.replace(world.owner, pending.id, b"x").await;
    assert_eq!(refused, Issued::NotReplaceable(Replaceable::No(StateName::Pending)));
    let stranger = fixture::owner(&world.api).await;
    for (owner, card) in [(stranger, ready.id), (world.owner, Ids.card())] {
        let refused = world.replace(owner, card, b"x").await;
        assert_eq!(refused, Issued::NotReplaceable(Replaceable::NotThere));
    }
    world.delete(world.owner, ready.id).await;
    let refused = world.replace(world.owner, ready.id, b"x").await;
    assert_eq!(refused, Issued::NotReplaceable(Replaceable::No(StateName::Deleting)));
    // The composite key: not even by SQL does a card replace another owner's (R-G3).
    let statement = format!(
        "update cards set replaces_id = '{}', owner_id = '{stranger}' where id = '{}'",
        ready.id, pending.id
    );
    let error = StoreError::from(world.test.try_sql(&statement).await.unwrap_err());
    assert!(matches!(error, StoreError::Refused { .. }), "{error}");
}

/// R-C6: the original is deleted while a worker finds that its bytes are the same.
#[tokio::test]
async fn a_file_whose_original_is_deleted_at_that_moment_becomes_ready_itself_or_goes_with_it() {
    let world = World::new().await;
    for n in 0..10 {
        let bytes = format!("same {n}").into_bytes();
        let original = world.ready(&bytes).await;
        let card =
            fixture::queued(&world.db, &world.api, &world.fake, world.owner, MediaType::Text, &bytes).await;
        let card = fixture::leased(&world.db, &card).await;
        let (_, finished) =
            tokio::join!(world.delete(world.owner, original.id), world.hand_in(&card, &bytes));
        let after = world.read(&card).await.state.name();
        assert_eq!(world.read(&original).await.state.name(), StateName::Deleting);
        match finished {
            Finished::Done(_) => assert_eq!(after, StateName::Ready),
            // Its alias for a moment, and then gone with it.
            Finished::Duplicate(_) => assert_eq!(after, StateName::Deleting),
            Finished::TryAgain => assert_eq!(after, StateName::Processing),
            Finished::LostLease => panic!("nobody took the lease"),
        }
    }
}
