//! Keeps a lease alive while its job runs (R-C1).
//!
//! In: the lease. Out: only its end: it was lost, could not be renewed in time, or the job took too long. Renewals use a
//! connection of their own, so that a full pool can't cost a healthy worker its lease.

use cards::{CardId, LeaseToken, timing};
use store::{Db, PgConnection, StoreError};
use tokio::time::Instant;

use crate::JobError;

/// How soon a renewal that failed is tried again.
const RETRY_AFTER: std::time::Duration = std::time::Duration::from_secs(2);

/// Renews until the lease is lost. Dropped when the job ends first.
pub(crate) async fn keep(db: &Db, id: CardId, token: LeaseToken) -> JobError {
    let begun = Instant::now();
    let job_life = timing::JOB_LIFE.to_std().unwrap_or_default();
    let lease_life = timing::LEASE_LIFE.to_std().unwrap_or_default();
    let renewal = timing::LEASE_RENEWAL.to_std().unwrap_or_default();
    // Jobs are mostly over before the first renewal: the connection is made when it is needed.
    let mut connection = None;
    let mut renewed = begun;
    let mut wait = renewal;
    loop {
        tokio::time::sleep(wait).await;
        if begun.elapsed() >= job_life {
            return JobError::TooLong(id);
        }
        match renew(db, &mut connection, id, token).await {
            Ok(true) => {
                renewed = Instant::now();
                wait = renewal;
            }
            Ok(false) => return JobError::LostLease(id),
            Err(error) => {
                tracing::warn!(card.id = %id, %error, "could not renew a lease; trying again");
                connection = None;
                wait = RETRY_AFTER;
            }
        }
        // Others may have leased it by now: stop before they and we write at once.
        if renewed.elapsed() >= lease_life {
            return JobError::LostLease(id);
        }
    }
}

async fn renew(
    db: &Db,
    connection: &mut Option<PgConnection>,
    id: CardId,
    token: LeaseToken,
) -> Result<bool, StoreError> {
    let connection = match connection {
        Some(connection) => connection,
        None => connection.insert(db.dedicated().await?),
    };
    store::lease::renew(connection, id, token).await
}
