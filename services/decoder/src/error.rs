//! Which failure means what to the decoder (R-C7).

use broker::{Outcome, Reason};
use cards::CardId;
use objects::{ErrorKind, ObjectError, ObjectStore};
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
    #[error("the copy of card {card} has {size_bytes} bytes")]
    CopyDiffers {
        /// The card.
        card: CardId,
        /// The copy's size.
        size_bytes: u64,
    },
    /// Another worker has the card, or the lease could not be renewed in time.
    #[error("the lease of card {0} is lost")]
    LostLease(CardId),
    /// The job ran into its own limit.
    #[error("the job of card {0} took longer than any may")]
    TooLong(CardId),
    /// A leased card without a pinned version: the CHECKs forbid it.
    #[error("card {0} is leased and pins nothing")]
    NothingPinned(CardId),
}

impl JobError {
    /// A stable code for logs, metrics, outbox rows and dead letters.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Store(_) => "database",
            Self::Objects(ObjectError::VersioningRequired { .. }) => "versioning_required",
            Self::Objects(ObjectError::Missing { .. }) => "source_missing",
            Self::Objects(_) => "store",
            Self::Machine(_) => "machine",
            Self::CopyDiffers { .. } => "copy_differs",
            Self::LostLease(_) => "lost_lease",
            Self::TooLong(_) => "too_long",
            Self::NothingPinned(_) => "nothing_pinned",
        }
    }

    /// What the message ends as.
    pub(crate) async fn outcome(&self, objects: &dyn ObjectStore) -> Outcome {
        let reason = Reason::new(self.code(), self.to_string());
        match self {
            Self::Store(error) => match error.kind() {
                StoreErrorKind::Outage => Outcome::Outage(reason),
                StoreErrorKind::Fault => Outcome::Retry(reason),
                StoreErrorKind::Permanent => Outcome::Dead(reason),
            },
            Self::Objects(error) if is_outage(error, objects).await => Outcome::Outage(reason),
            Self::Objects(_) | Self::Machine(_) | Self::CopyDiffers { .. } | Self::TooLong(_) => {
                Outcome::Retry(reason)
            }
            // Whoever has the lease finishes the card; its end, or the janitor, writes what is still needed.
            Self::LostLease(_) => Outcome::Done,
            Self::NothingPinned(_) => Outcome::Dead(reason),
        }
    }

    /// Whether the lease is given back, and whether it then counts. After an unknown COMMIT it is not touched.
    pub(crate) async fn gives_back(&self, objects: &dyn ObjectStore) -> Option<Attempt> {
        match self {
            Self::Store(StoreError::CommitUnknown(_)) | Self::LostLease(_) => None,
            Self::Store(error) if error.kind() == StoreErrorKind::Outage => Some(Attempt::Refunded),
            Self::Objects(error) if is_outage(error, objects).await => Some(Attempt::Refunded),
            Self::Machine(MachineFault::ShutDown) => Some(Attempt::Refunded),
            Self::Store(_)
            | Self::Objects(_)
            | Self::Machine(_)
            | Self::CopyDiffers { .. }
            | Self::TooLong(_)
            | Self::NothingPinned(_) => Some(Attempt::Counts),
        }
    }
}

async fn is_outage(error: &ObjectError, objects: &dyn ObjectStore) -> bool {
    match error.kind() {
        ErrorKind::Outage => true,
        // An independent probe tells the store's fault from this object's.
        ErrorKind::Suspect => objects.probe().await.is_err(),
        ErrorKind::Object => false,
    }
}
