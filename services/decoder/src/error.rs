//! Which failure means what to the decoder (R-C7).

use broker::{Outcome, Reason};
use cards::CardId;
use objects::{ObjectError, ObjectStore};
use store::lease::Attempt;
use store::{StoreError, StoreErrorKind};

use crate::child::MachineFault;

/// Why a job has no result. None of these rejects a file.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The database.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The object store.
    #[error("{0}")]
    Objects(#[from] ObjectError),
    /// The machine could not run the child as it should.
    #[error("{0}")]
    Machine(MachineFault),
    /// The copy is not as large as the file.
    #[error("the copy for card {card} has {size_bytes} bytes, its upload has {expected_bytes}")]
    CopyDiffers {
        /// The card.
        card: CardId,
        /// The copy's size.
        size_bytes: u64,
        /// The upload's size.
        expected_bytes: u64,
    },
    /// Another worker has the card, or the card left `processing`: the database says so.
    #[error("the lease of card {0} was lost to somebody else")]
    LostLease(CardId),
    /// The database could not be reached for as long as a lease lives.
    #[error("the lease of card {0} ran out: the database could not be reached to renew it")]
    NotRenewed(CardId),
    /// The job ran into its own limit.
    #[error("the work on card {0} took longer than one attempt may")]
    TooLong(CardId),
    /// A leased card without a pinned version: the CHECKs forbid it.
    #[error("card {0} is leased but names no accepted version")]
    NothingPinned(CardId),
}

/// What becomes of the lease of a job that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseEnd {
    /// It is given back, and then counts as an attempt or not.
    GiveBack(Attempt),
    /// Somebody else has the card: what this job stored is asked away (R-C5).
    Purge,
    /// It is not touched: nobody knows whether it still exists. It ends by itself.
    Leave,
}

impl JobError {
    /// A stable code for logs, metrics, outbox rows and dead letters.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Store(_) => "database",
            Self::Objects(ObjectError::VersioningRequired { .. }) => "versioning_required",
            Self::Objects(ObjectError::Missing { .. }) => "source_missing",
            Self::Objects(_) => "store",
            Self::Machine(MachineFault::ShutDown) => "stopping",
            Self::Machine(_) => "machine",
            Self::CopyDiffers { .. } => "copy_differs",
            Self::LostLease(_) => "lost_lease",
            Self::NotRenewed(_) => "lease_not_renewed",
            Self::TooLong(_) => "too_long",
            Self::NothingPinned(_) => "nothing_pinned",
        }
    }

    /// What the message ends as, and the lease. Where the store may be at fault, it is asked by an independent probe.
    pub(crate) async fn judge(&self, objects: &dyn ObjectStore) -> (Outcome, LeaseEnd) {
        let reason = Reason::new(self.code(), self.to_string());
        let counts = LeaseEnd::GiveBack(Attempt::Counts);
        let refunded = LeaseEnd::GiveBack(Attempt::Refunded);
        match self {
            Self::Store(StoreError::CommitUnknown(_)) | Self::NotRenewed(_) => {
                (Outcome::Outage(reason), LeaseEnd::Leave)
            }
            Self::Store(error) => match error.kind() {
                StoreErrorKind::Outage => (Outcome::Outage(reason), refunded),
                StoreErrorKind::Fault => (Outcome::Retry(reason), counts),
                StoreErrorKind::Permanent => (Outcome::Dead(reason), counts),
            },
            Self::Objects(error) if error.is_outage(objects).await => (Outcome::Outage(reason), refunded),
            // The process is stopping: the message goes back, and whoever has it next begins at once (R-I5).
            Self::Machine(MachineFault::ShutDown) => (Outcome::Outage(reason), refunded),
            Self::Objects(_) | Self::Machine(_) | Self::CopyDiffers { .. } | Self::TooLong(_) => {
                (Outcome::Retry(reason), counts)
            }
            // Whoever has the card finishes it; its end, or the janitor, writes what is still needed.
            Self::LostLease(_) => (Outcome::Done, LeaseEnd::Purge),
            Self::NothingPinned(_) => (Outcome::Dead(reason), counts),
        }
    }
}
