//! Which failure means what to the relay: all are waited out, and said once.

use std::time::Duration;

use broker::BrokerError;
use store::StoreError;

/// Why a batch was not relayed. Its rows are still in the outbox.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// The database.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The broker: nothing is known of any row of the batch.
    #[error("{0}")]
    Broker(#[from] BrokerError),
    /// The database took the connection and then said nothing: nothing is known of any row of the batch.
    #[error("{step} had no answer from the database within {within:?}")]
    Silent {
        /// What was tried.
        step: &'static str,
        /// The bound.
        within: Duration,
    },
}

impl RelayError {
    /// Logs the first of a row of failures as a warning: the relay waits for the dependency, and nothing is lost.
    pub(crate) fn log(&self, first: bool) {
        if first {
            tracing::warn!(error = %self, "the relay waits; rows stay in the outbox");
        } else {
            tracing::debug!(error = %self, "the relay still waits");
        }
    }
}
