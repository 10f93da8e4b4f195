//! Confirm one card: used by the confirmer (a bucket event), the janitor (a listing) and the API (a request).
//!
//! In: where to look. Out: an [`Outcome`], or an [`IntakeError`] that says which dependency failed. The steps are those
//! of ARCHITECTURE.md "Confirm":
//!
//! 2. read the card by its source key; not `pending`: a named outcome, and a purge request if bytes came too late or
//!    twice;
//! 3. HEAD, no transaction open: the event's version, or, without one and in the sweep, the key's versions oldest
//!    first, at most 20 (R-B2);
//! 4. judge: pure, in `cards::confirm`;
//! 5. one short transaction: guarded UPDATE, history, outbox. **Commit point.** A lost race is read and decided again.
//!
//! Steps 1 and 6, parse and ack, are the caller's. On a crash before 5 nothing happened; after it the card is queued and
//! its decode message is a committed row (INV-2).

mod error;
mod group;
mod ledger;
mod look;

use std::sync::Arc;

use cards::confirm::Verdict;
use cards::{Card, ConfirmedBy, Ids, SourceKey, State, StateName, VersionId};
use events::bucket::{Created, EventVersion};
use objects::ObjectStore;
use store::confirm::{Confirmation, Refused};
use store::{Db, StoreError};

pub use error::{IntakeError, Trouble};
pub use group::GroupSettings;
use group::{Committed, Committer, Decided};
pub use ledger::OutboxLedger;
use look::Looked;

/// How often a lost race is read and decided again before the message itself comes again.
const RACES_MAX: usize = 3;

/// What came of looking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A version fits: it is pinned, the card is `queued`.
    Confirmed {
        /// That version.
        pinned: VersionId,
    },
    /// What is there does not fit; the card says why and stays `pending` (R-B5).
    Mismatch,
    /// What is there does not fit, for the sixth time: the card is `rejected`.
    Rejected,
    /// The store holds nothing that fits, or nothing at all, or what it holds came too late (R-B7, R-B8).
    NothingFits,
    /// The version had been refused before.
    RefusedBefore,
    /// The card is past `pending` and this version is its own, or it was said before: nothing changes (R-B4).
    Repeat(StateName),
    /// The card is past `pending` and this may be another version: its removal was asked for (R-B6, R-B7, R-E3).
    Surplus(StateName),
    /// No card has this key (R-B11).
    UnknownKey,
}

/// Confirms cards.
#[derive(Clone)]
pub struct Intake {
    db: Db,
    objects: Arc<dyn ObjectStore>,
    ids: Ids,
    committer: Committer,
}

impl Intake {
    /// An intake with its own group of committers; they end when the last clone is dropped.
    pub fn new(db: Db, objects: Arc<dyn ObjectStore>, ids: Ids, settings: GroupSettings) -> Self {
        let committer = Committer::spawn(&db, ids, settings);
        Self { db, objects, ids, committer }
    }

    /// The store that is looked into, for probes.
    pub fn objects(&self) -> &dyn ObjectStore {
        &*self.objects
    }

    /// The database that is written to, for probes.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// Follows one record of a bucket event.
    pub async fn by_event(&self, created: &Created) -> Result<Outcome, IntakeError> {
        let Some(SourceKey(id)) = SourceKey::parse(&created.key) else { return Ok(Outcome::UnknownKey) };
        for _ in 0..RACES_MAX {
            let Some(card) = store::cards::by_id(&mut *self.db.acquire().await?, id).await? else {
                return Ok(Outcome::UnknownKey);
            };
            let State::Pending { refused } = &card.state else {
                return self.past_pending(&card, created).await;
            };
            let looked = match &created.version {
                EventVersion::Id(version) if refused.contains(version) => return Ok(Outcome::RefusedBefore),
                EventVersion::Id(version) => look::at_version(self.objects(), &card, version).await?,
                // Ceph leaves the id out on POST and multipart; `null` of an old event proves nothing about now.
                EventVersion::Absent | EventVersion::Null => look::at_all(self.objects(), &card).await?,
            };
            look::compare_with_event(created, &looked);
            if let Some(outcome) = self.settle(&card, looked, ConfirmedBy::Event).await? {
                return Ok(outcome);
            }
        }
        Err(IntakeError::Contended(id))
    }

    /// Looks for a pending card's upload without an event (R-B9, R-B10).
    pub async fn by_listing(&self, card: &Card, by: ConfirmedBy) -> Result<Outcome, IntakeError> {
        let mut card = card.clone();
        for _ in 0..RACES_MAX {
            if card.state.name() != StateName::Pending {
                return Ok(Outcome::Repeat(card.state.name()));
            }
            let looked = look::at_all(self.objects(), &card).await?;
            telemetry::kill::point("janitor.after_list");
            if let Some(outcome) = self.settle(&card, looked, by).await? {
                return Ok(outcome);
            }
            let read = store::cards::by_id(&mut *self.db.acquire().await?, card.id).await?;
            card = read.ok_or(IntakeError::Contended(card.id))?;
        }
        Err(IntakeError::Contended(card.id))
    }

    /// Steps 4 and 5. `None`: the card moved since it was read.
    async fn settle(
        &self,
        card: &Card,
        looked: Looked,
        by: ConfirmedBy,
    ) -> Result<Option<Outcome>, IntakeError> {
        telemetry::kill::point("confirm.after_head");
        let verdict = cards::confirm::judge(&card.into(), &card.refused, &looked.sightings);
        let decided = match verdict {
            Verdict { pinned: Some(pinned), refused, late } => Decided::Confirm(Confirmation {
                card: card.id,
                revision: card.revision,
                surplus: !refused.is_empty() || !late.is_empty() || looked.has_more_than(&pinned),
                pinned,
                by,
            }),
            Verdict { pinned: None, refused, .. } if !refused.is_empty() => {
                Decided::Refuse { card: card.id, revision: card.revision, refusals: refused }
            }
            Verdict { pinned: None, .. } => return Ok(Some(Outcome::NothingFits)),
        };
        let pinned = match &decided {
            Decided::Confirm(confirmation) => Some(confirmation.pinned.clone()),
            Decided::Refuse { .. } => None,
        };
        Ok(match (self.committer.commit(decided).await?, pinned) {
            (Committed::Confirmed, Some(pinned)) => {
                metrics::counter!(telemetry::metric::CONFIRMATIONS, "by" => by.as_str()).increment(1);
                // A bucket event carries no trace; the card's own one leads from its ticket to here.
                let trace_id = telemetry::trace::trace_id(card.ticket.traceparent.as_deref());
                tracing::info!(card.id = %card.id, %pinned, by = by.as_str(), trace_id, "confirmed an upload");
                Some(Outcome::Confirmed { pinned })
            }
            (Committed::Refused(Refused::Noted), _) => {
                tracing::info!(card.id = %card.id, "refused an upload that does not fit its ticket");
                Some(Outcome::Mismatch)
            }
            (Committed::Refused(Refused::Rejected), _) => {
                tracing::info!(card.id = %card.id, "rejected a card after too many uploads that do not fit");
                Some(Outcome::Rejected)
            }
            (Committed::Refused(Refused::AlreadyThere), _) => Some(Outcome::RefusedBefore),
            (Committed::Refused(Refused::LostRace) | Committed::LostRace | Committed::Confirmed, _) => None,
        })
    }

    /// An event for a card past `pending`: its own version again, or bytes that must go. An event without a version
    /// can't be told from a second upload, so the purge is asked to look.
    async fn past_pending(&self, card: &Card, created: &Created) -> Result<Outcome, IntakeError> {
        let name = card.state.name();
        if let (Some(pinned), EventVersion::Id(version)) = (card.state.pinned(), &created.version)
            && pinned == version
        {
            return Ok(Outcome::Repeat(name));
        }
        let mut tx = self.db.begin().await?;
        store::purge::request(&mut tx, self.ids, card.id, "surplus_version").await?;
        tx.commit().await?;
        Ok(Outcome::Surplus(name))
    }
}

impl From<StoreError> for IntakeError {
    fn from(error: StoreError) -> Self {
        Self::Store(Arc::new(error))
    }
}
