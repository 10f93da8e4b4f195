//! Which failure means what, for everybody who confirms.

use std::sync::Arc;

use cards::CardId;
use objects::{ObjectError, ObjectStore};
use store::{StoreError, StoreErrorKind};

/// Why a look has no outcome. Nothing was decided, nobody is to blame but the dependency named.
#[derive(Clone, Debug, thiserror::Error)]
pub enum IntakeError {
    /// The database. Shared: one failed group fails all its members.
    #[error("{0}")]
    Store(Arc<StoreError>),
    /// The object store.
    #[error("{0}")]
    Objects(#[from] ObjectError),
    /// The card kept moving while it was looked at.
    #[error("card {0} kept moving while it was confirmed")]
    Contended(CardId),
    /// The group that the decision was written with came to no end: a bug, told to each of its members.
    #[error("the group this confirmation was written with panicked")]
    Panicked,
    /// The process is stopping.
    #[error("the committer has stopped")]
    Stopped,
}

/// What a failure asks of its caller (R-C7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A dependency is away: hold, probe, use no attempt.
    Outage,
    /// A fault of this one object: retry.
    Fault,
    /// It can never work: dead-letter.
    Permanent,
}

impl IntakeError {
    /// What this failure asks of its caller. Where the store may be at fault, it is asked by an independent probe.
    pub async fn trouble(&self, objects: &dyn ObjectStore) -> Trouble {
        match self {
            Self::Store(error) => match error.kind() {
                StoreErrorKind::Outage => Trouble::Outage,
                StoreErrorKind::Fault => Trouble::Fault,
                StoreErrorKind::Permanent => Trouble::Permanent,
            },
            Self::Objects(error) if error.is_outage(objects).await => Trouble::Outage,
            Self::Objects(_) | Self::Contended(_) | Self::Panicked => Trouble::Fault,
            Self::Stopped => Trouble::Outage,
        }
    }

    /// A stable code for logs, outbox rows and dead letters.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Store(_) => "database",
            Self::Objects(ObjectError::VersioningRequired { .. }) => "versioning_required",
            Self::Objects(_) => "store",
            Self::Contended(_) => "contended",
            Self::Panicked => "panic",
            Self::Stopped => "stopping",
        }
    }
}
