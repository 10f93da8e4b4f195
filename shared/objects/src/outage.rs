//! Whose fault a failed call was: the store's, or this one object's (R-C7).

use std::time::Duration;

use crate::{ErrorKind, ObjectError, ObjectStore};

/// For the probe that tells an outage from a fault. A store that just kept a caller waiting for [`crate::s3`]'s whole limit
/// would keep the probe waiting as long; the caller has a limit too. Late is away.
const PROBE_WITHIN: Duration = Duration::from_secs(5);

impl ObjectError {
    /// Whether the store is away, rather than this object at fault: where the error alone does not say it, an independent
    /// probe does (R-B8, R-C7).
    pub async fn is_outage(&self, store: &dyn ObjectStore) -> bool {
        match self.kind() {
            ErrorKind::Outage => true,
            ErrorKind::Suspect => !answers(store).await,
            ErrorKind::Object => false,
        }
    }
}

/// Whether the store answers its probe, soon enough.
pub async fn answers(store: &dyn ObjectStore) -> bool {
    matches!(tokio::time::timeout(PROBE_WITHIN, store.probe()).await, Ok(Ok(())))
}
