//! The deleter: the bucket becomes what the card says, and nothing else (R-E2, DESIGN "Purge").
//!
//! In: `card.purge` messages, a card id each. Out: a bucket that holds of this card what it keeps, and a card that says
//! what that proves. Deletion, refusal, duplicates, surplus versions, replaced files, late workers and slow uploads are
//! all this one operation; it may be repeated, run twice at once, come late or too early. The steps are those of
//! ARCHITECTURE.md "Purge":
//!
//! 1. claim the card's purge, and take the database's time: the listing begins after it,
//! 2. list a page of the card's exact keys, all versions and delete markers,
//! 3. read the card **after** the page: what it does not keep is a stranger (`cards::purge`),
//! 4. write the strangers down (R-E5), then remove exactly these versions, at most 1000 a call. Pages until the end, and
//!    the whole again until a round shows no stranger,
//! 5. one transaction: what that round proves, and a message for what is still owed. **Commit point.**
//! 6. ack, by the consumer loop.
//!
//! Store first, database second: a crash before 5 leaves a card that still owes its purge, and whoever does it next finds
//! less to do. A removal that fails leaves the card as it was and is tried again (R-J).

mod decide;
mod error;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use broker::{Delivery, Handler, Outcome, Reason};
use cards::{Card, CardId, Ids, Timestamp, VersionId, purge};
use chrono::TimeDelta;
use events::work::CardMessage;
use objects::s3::OPERATION_TIMEOUT;
use objects::{DELETE_BATCH_MAX, DeleteFailure, ListCursor, ListedVersion, ObjectStore};
use store::purge::{Claimed, Removal, Settled};
use store::{Db, StoreError};

pub use error::PurgeError;

/// Times a card is listed in one purge. The second round is the proof of the first; more are needed only where uploads
/// arrive meanwhile or the store removes nothing it says it removed.
const ROUNDS_MAX: u32 = 8;
/// A purge that has taken this long makes room for others after its next call, and comes again.
const PURGE_LIFE: Duration = Duration::from_mins(1);
/// How long a claim lasts: longer than any handler may run, so that it never ends under one that works.
const CLAIM_LIFE: TimeDelta = TimeDelta::seconds(150);

/// Purges cards.
pub struct Deleter {
    db: Db,
    objects: Arc<dyn ObjectStore>,
    ids: Ids,
}

/// How far a purge came.
enum Purged {
    /// Nothing but what the card keeps is left; it is written down.
    Clean,
    /// It took long enough; what is left comes again.
    Unfinished { now: Timestamp },
    /// The card is gone from the database: nobody's.
    NotThere,
}

/// One walk over all keys of a card.
enum Round {
    /// No page showed a stranger; this card was read after the last one, and after no page was it another.
    Clean {
        card: Box<Card>,
        is_empty: bool,
    },
    /// Some were removed, or the card moved meanwhile.
    Again,
    Unfinished {
        now: Timestamp,
    },
    NotThere,
}

impl Deleter {
    /// A deleter.
    pub fn new(db: Db, objects: Arc<dyn ObjectStore>, ids: Ids) -> Arc<Self> {
        Arc::new(Self { db, objects, ids })
    }

    /// How long the consumer loop may let a message take: past the time a purge may work, one more call to a store that hangs, its probe,
    /// and the database's own limit (R-B8).
    pub fn handler_timeout() -> Duration {
        PURGE_LIFE + OPERATION_TIMEOUT + Duration::from_secs(30)
    }

    async fn handle_card(&self, id: CardId) -> Outcome {
        // 1.
        let claimed = match self.claim(id).await {
            Ok(claimed) => claimed,
            Err(error) => return PurgeError::from(error).outcome(&*self.objects).await,
        };
        let at = match claimed {
            Claimed::Yes { at } => at,
            // What that deleter's listing began too early for is still asked of us then.
            Claimed::Held { until } => {
                let reason = Reason::new("purge_held", format!("another deleter has the card until {until}"));
                return Outcome::Later { due: until, reason };
            }
            Claimed::NotThere => return not_there(id),
        };
        match self.purge(id, at).await {
            Ok(Purged::Clean) => Outcome::Done,
            Ok(Purged::Unfinished { now }) => {
                self.release(id).await;
                Outcome::Later { due: now, reason: Reason::new("unfinished", "more is left to remove") }
            }
            Ok(Purged::NotThere) => not_there(id),
            Err(error) => {
                let outcome = error.outcome(&*self.objects).await;
                self.release(id).await;
                outcome
            }
        }
    }

    async fn claim(&self, id: CardId) -> Result<Claimed, StoreError> {
        let claimed = store::purge::claim(&mut *self.db.acquire().await?, id, CLAIM_LIFE).await?;
        telemetry::kill::point("purge.after_claim");
        Ok(claimed)
    }

    /// Steps 2 to 5. `begun_at` is a time of the database before now.
    async fn purge(&self, id: CardId, begun_at: Timestamp) -> Result<Purged, PurgeError> {
        let begun = Instant::now();
        let mut listed_at = begun_at;
        for _ in 0..ROUNDS_MAX {
            match self.round(id, listed_at, begun).await? {
                Round::Clean { card, is_empty } => {
                    if self.settle(&card, listed_at, is_empty).await? {
                        return Ok(Purged::Clean);
                    }
                }
                Round::Again => {}
                Round::Unfinished { now } => return Ok(Purged::Unfinished { now }),
                Round::NotThere => return Ok(Purged::NotThere),
            }
            listed_at = store::clock::now(&mut *self.db.acquire().await?).await?;
        }
        Err(PurgeError::Restless { card: id, rounds: ROUNDS_MAX })
    }

    /// Steps 2 to 4, page by page.
    async fn round(&self, id: CardId, listed_at: Timestamp, begun: Instant) -> Result<Round, PurgeError> {
        let mut read: Option<Card> = None;
        let (mut is_empty, mut is_clean) = (true, true);
        let mut refused = Vec::new();
        for prefix in purge::prefixes(id) {
            let mut after = None;
            loop {
                // 2.
                let (listed, next) = self.page(&prefix, id, after.as_ref()).await?;
                telemetry::kill::point("purge.after_list");
                // 3.
                let Some((card, now)) = store::purge::read(&mut *self.db.acquire().await?, id).await? else {
                    return Ok(Round::NotThere);
                };
                // A card that moved between two pages was compared with neither of its states in full.
                is_clean &= read.as_ref().is_none_or(|before| before.revision == card.revision);
                is_empty &= listed.is_empty();
                // 4.
                let strangers = decide::strangers(&card, now, &listed);
                if !strangers.is_empty() {
                    is_clean = false;
                    refused.extend(self.remove(&card, listed_at, &strangers).await?);
                }
                read = Some(card);
                if begun.elapsed() >= PURGE_LIFE && !is_clean {
                    return fail_for(refused).map(|()| Round::Unfinished { now });
                }
                after = next;
                if after.is_none() {
                    break;
                }
            }
        }
        fail_for(refused)?;
        Ok(match read {
            Some(card) if is_clean => Round::Clean { card: Box::new(card), is_empty },
            Some(_) | None => Round::Again,
        })
    }

    /// Step 2 for one page: what lies under this card's keys, not what merely starts alike (R-E2).
    async fn page(
        &self,
        prefix: &str,
        id: CardId,
        after: Option<&ListCursor>,
    ) -> Result<(Vec<ListedVersion>, Option<ListCursor>), PurgeError> {
        let page = self.objects.list_versions(prefix, after, DELETE_BATCH_MAX).await?;
        let mut listed = page.versions;
        listed.retain(|entry| purge::card_of(&entry.key) == Some(id));
        Ok((listed, page.next))
    }

    /// Step 4 for one page. Answers what the store did not remove: it says so with a 200 (R-E2).
    async fn remove(
        &self,
        card: &Card,
        listed_at: Timestamp,
        strangers: &[Removal],
    ) -> Result<Vec<DeleteFailure>, PurgeError> {
        store::purge::record(&mut *self.db.acquire().await?, card, listed_at, strangers).await?;
        telemetry::kill::point("purge.after_record");
        let versions: Vec<(String, VersionId)> =
            strangers.iter().map(|removal| (removal.key.clone(), removal.version.clone())).collect();
        let mut refused = Vec::new();
        for batch in versions.chunks(DELETE_BATCH_MAX) {
            refused.extend(self.objects.delete_versions(batch).await?);
        }
        telemetry::kill::point("purge.after_remove");
        let stale = strangers.iter().filter(|removal| decide::is_stale_source(card, removal)).count();
        metrics::counter!(telemetry::metric::STALE_SOURCES).increment(stale as u64);
        metrics::counter!(telemetry::metric::FAILED_REMOVALS).increment(refused.len() as u64);
        let removed = versions.len() - refused.len();
        metrics::counter!(telemetry::metric::VERSIONS_REMOVED, "state" => card.state.name().as_str())
            .increment(removed as u64);
        tracing::info!(
            card.id = %card.id,
            state = %card.state.name(),
            removed,
            stale,
            refused = refused.len(),
            "removed versions that the card does not keep"
        );
        Ok(refused)
    }

    /// Step 5. False: the card moved since it was read.
    async fn settle(&self, card: &Card, listed_at: Timestamp, is_empty: bool) -> Result<bool, PurgeError> {
        let mut tx = self.db.begin().await?;
        let settled = store::purge::settle(&mut tx, self.ids, card, listed_at, is_empty).await?;
        telemetry::kill::point("purge.before_commit");
        tx.commit().await?;
        telemetry::kill::point("purge.after_commit");
        Ok(match settled {
            Settled::Yes { proof, again_at } => {
                if proof.is_deleted {
                    tracing::info!(card.id = %card.id, "a file is deleted: nothing of it is left");
                }
                tracing::debug!(card.id = %card.id, ?proof, ?again_at, "purged");
                true
            }
            Settled::LostRace => false,
        })
    }

    async fn release(&self, id: CardId) {
        let released = async { store::purge::release(&mut *self.db.acquire().await?, id).await };
        if let Err(error) = released.await {
            // The claim ends by itself.
            tracing::debug!(card.id = %id, %error, "could not give the claim of a purge back");
        }
    }
}

/// What the store refused in this round is its end: the rest of the round was done all the same.
fn fail_for(refused: Vec<DeleteFailure>) -> Result<(), PurgeError> {
    let count = refused.len();
    refused
        .into_iter()
        .next()
        .map_or(Ok(()), |first| Err(PurgeError::NotRemoved { count, first: Box::new(first) }))
}

fn not_there(id: CardId) -> Outcome {
    Outcome::Dead(Reason::new("unknown_card", format!("no card {id}")))
}

#[async_trait]
impl Handler for Deleter {
    async fn handle(&self, delivery: &Delivery) -> Outcome {
        match CardMessage::parse(&delivery.body) {
            Ok(message) => self.handle_card(message.card).await,
            Err(error) => Outcome::Dead(Reason::new("unparsable", error.to_string())),
        }
    }

    async fn probe(&self) -> bool {
        self.db.probe().await.is_ok() && objects::answers(&*self.objects).await
    }
}
