//! Why a reconciliation did not come to its report. What it did by then stays done, and the next run goes on from there.

use cards::Timestamp;
use objects::{ErrorKind, ObjectError};
use store::{StoreError, StoreErrorKind};

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The object store.
    #[error(transparent)]
    Objects(#[from] ObjectError),
    /// Another process reconciles.
    #[error("run {run} is under way in another process; its claim ends at {until} unless it is renewed")]
    Busy {
        /// The open run.
        run: i64,
        /// The end of its claim.
        until: Timestamp,
    },
    /// This process was so slow that another one went on with its run.
    #[error("run {run} was taken over by another process")]
    Overtaken {
        /// The run.
        run: i64,
    },
    /// It was asked to stop.
    #[error("run {run} was stopped; the next one goes on from there")]
    Stopped {
        /// The run.
        run: i64,
    },
}

impl ReconcileError {
    /// Whether trying again later is all there is to do (R-C7).
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Store(error) => match error.kind() {
                StoreErrorKind::Outage | StoreErrorKind::Fault => true,
                StoreErrorKind::Permanent => false,
            },
            Self::Objects(error) => match error.kind() {
                ErrorKind::Outage | ErrorKind::Suspect => true,
                ErrorKind::Object => false,
            },
            Self::Busy { .. } | Self::Overtaken { .. } | Self::Stopped { .. } => true,
        }
    }
}
