//! Which failure means what to the deleter (R-C7).

use broker::{Outcome, Reason};
use cards::CardId;
use objects::{DeleteFailure, ObjectError, ObjectStore};
use store::{StoreError, StoreErrorKind};

/// Why a purge did not come to its end. What it removed by then stays removed; the rest comes again.
#[derive(Debug, thiserror::Error)]
pub enum PurgeError {
    /// The database.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The object store.
    #[error("{0}")]
    Objects(#[from] ObjectError),
    /// The store answered a batch delete and refused some of it (R-E2).
    #[error(
        "the store did not remove {count} versions; the first: `{}` (version {}): {} {}",
        first.key, first.version.as_ref().map_or("not told", cards::VersionId::as_str), first.code, first.message
    )]
    NotRemoved {
        /// How many.
        count: usize,
        /// The first of them.
        first: Box<DeleteFailure>,
    },
    /// Strangers kept turning up.
    #[error("card {card}: strangers were found in each of {rounds} rounds")]
    Restless {
        /// The card.
        card: CardId,
        /// How often it was listed.
        rounds: u32,
    },
}

impl PurgeError {
    /// A stable code for logs, outbox rows and dead letters.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Store(_) => "database",
            Self::Objects(ObjectError::VersioningRequired { .. }) => "versioning_required",
            Self::Objects(_) => "store",
            Self::NotRemoved { .. } => "not_removed",
            Self::Restless { .. } => "restless",
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
            Self::Objects(error) if error.is_outage(objects).await => Outcome::Outage(reason),
            Self::Objects(_) | Self::NotRemoved { .. } | Self::Restless { .. } => Outcome::Retry(reason),
        }
    }
}
