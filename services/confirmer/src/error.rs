//! Which failure means what to the confirmer.

use broker::Reason;
use intake::{IntakeError, Trouble};
use objects::ObjectStore;

use crate::decide::Record;

/// What a failed look asks for.
pub(crate) async fn record(error: &IntakeError, objects: &dyn ObjectStore) -> Record {
    let reason = Reason::new(error.code(), error.to_string());
    match error.trouble(objects).await {
        Trouble::Outage => Record::Outage(reason),
        Trouble::Fault => Record::Retry(reason),
        Trouble::Permanent => Record::Dead(reason),
    }
}
