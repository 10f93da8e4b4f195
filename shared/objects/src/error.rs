//! The one error of this crate. What a caller branches on is [`ObjectError::kind`].

use cards::VersionId;

use crate::Operation;

/// What a call to the store can end in besides an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// The object or version that was to be read or copied is not there. A HEAD says [`crate::Head::Missing`] instead.
    #[error("{operation}: `{key}` (version {}) is not there", version.as_ref().map_or("any", VersionId::as_str))]
    Missing {
        /// What was tried.
        operation: Operation,
        /// The key that was asked for.
        key: String,
        /// The version that was asked for.
        version: Option<VersionId>,
    },
    /// The store answered without a version id or with `null`: an outage, nobody's mistake, nothing is removed (R-B2).
    #[error("`{key}` has no version id: the bucket needs versioning enabled")]
    VersioningRequired {
        /// The key, or the prefix that was listed.
        key: String,
    },
    /// 401 or 403: the credentials or the bucket's policy. Never told to a user as "not uploaded" (R-B8).
    #[error("{operation} of `{key}` was refused: {detail}")]
    Denied {
        /// What was tried.
        operation: Operation,
        /// The key, prefix or bucket.
        key: String,
        /// The store's code, as far as it said one.
        detail: String,
    },
    /// A time-out, no connection, a 5xx or 429, or an answer that broke off.
    #[error("{operation} of `{key}` got no answer: {detail}")]
    Unavailable {
        /// What was tried.
        operation: Operation,
        /// The key, prefix or bucket.
        key: String,
        /// What went wrong.
        detail: String,
    },
    /// The source of a copy is no longer what it was.
    #[error("{operation} of `{key}`: its ETag is not the expected one")]
    PreconditionFailed {
        /// What was tried.
        operation: Operation,
        /// The key.
        key: String,
    },
    /// The object is larger than the reader is willing to read.
    #[error("`{key}` has more than {bytes_max} bytes")]
    TooLarge {
        /// The key.
        key: String,
        /// The limit it passed.
        bytes_max: u64,
    },
    /// The store, or this crate before asking it, calls the request itself wrong.
    #[error("{operation} of `{key}` is not possible: {detail}")]
    Invalid {
        /// What was tried.
        operation: Operation,
        /// The key, prefix or bucket.
        key: String,
        /// Why.
        detail: String,
    },
}

/// Whose fault an error may be (R-C7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Certainly the store's: pause, use no attempt.
    Outage,
    /// The store's if [`crate::ObjectStore::probe`] fails too, else this object's.
    Suspect,
    /// This object's alone: retried, then dead-lettered.
    Object,
}

impl ObjectError {
    /// Whose fault it may be (R-C7).
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::VersioningRequired { .. } => ErrorKind::Outage,
            Self::Denied { .. } | Self::Unavailable { .. } => ErrorKind::Suspect,
            Self::Missing { .. }
            | Self::PreconditionFailed { .. }
            | Self::TooLarge { .. }
            | Self::Invalid { .. } => ErrorKind::Object,
        }
    }

    /// Whether the bucket has no versioning (R-B2, R-B9).
    pub fn is_versioning_required(&self) -> bool {
        matches!(self, Self::VersioningRequired { .. })
    }

    /// Whether the object or version was not there.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Missing { .. })
    }
}
