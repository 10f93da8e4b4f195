//! Keeps a lease alive while its job runs (R-C1).
//!
//! In: the lease. Out: only its end: it was lost, could not be renewed in time, or the job took too long. Renewals use a
//! connection of their own, so that a full pool can't cost a healthy worker its lease, and each is bounded in time, so
//! that a database that went silent is noticed before others may lease the card.

use std::time::Duration;

use cards::{CardId, LeaseToken, timing};
use store::{Db, PgConnection, StoreError};
use tokio::time::Instant;

use crate::JobError;

/// How long one renewal may take, its connection among it.
const RENEW_WITHIN: Duration = Duration::from_secs(10);
/// How soon a renewal that failed is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// Renews every `renewal` until the lease is lost. Dropped when the job ends first. `leased_at`: from before the lease
/// was asked for, so that it never ends later here than in the database.
pub(crate) async fn keep(
    db: &Db,
    id: CardId,
    token: LeaseToken,
    leased_at: Instant,
    renewal: Duration,
) -> JobError {
    let lease_life = timing::LEASE_LIFE.to_std().unwrap_or_default();
    let job_ends = leased_at + timing::JOB_LIFE.to_std().unwrap_or_default();
    // Jobs are mostly over before the first renewal: the connection is made when it is needed.
    let mut connection = None;
    let mut lease_ends = leased_at + lease_life;
    let mut next = leased_at + renewal;
    loop {
        tokio::time::sleep_until(next.min(lease_ends).min(job_ends)).await;
        let asked = Instant::now();
        if asked >= job_ends {
            return JobError::TooLong(id);
        }
        let bound = lease_ends.min(asked + RENEW_WITHIN);
        let error = match tokio::time::timeout_at(bound, renew(db, &mut connection, id, token)).await {
            Ok(Ok(true)) => {
                lease_ends = asked + lease_life;
                next = asked + renewal;
                continue;
            }
            Ok(Ok(false)) => return JobError::LostLease(id),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {:?}", bound - asked),
        };
        let now = Instant::now();
        // Others may have leased it by now: stop before they and we write at once.
        if now >= lease_ends {
            return JobError::NotRenewed(id);
        }
        tracing::warn!(card.id = %id, error, "could not renew a lease; trying again");
        connection = None;
        next = now + RETRY_AFTER;
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

#[cfg(test)]
mod tests {
    use super::*;
    use cards::Ids;
    use store::DbSettings;

    /// A server that takes connections and never says a word, as behind a wire that swallows everything.
    #[tokio::test(start_paused = true)]
    async fn a_database_that_went_silent_ends_the_job_before_its_lease_ends() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = silent.local_addr().unwrap().port();
        let url = format!("postgres://nobody@127.0.0.1:{port}/nothing");
        let db = Db::new(&DbSettings { url, connections_max: 1, name: "silent".to_owned() }).unwrap();
        let (leased_at, id) = (Instant::now(), Ids.card());
        let keeping = keep(&db, id, Ids.lease(), leased_at, Duration::from_secs(20));
        let end = tokio::time::timeout(Duration::from_mins(10), keeping).await.expect("an end");
        assert!(matches!(end, JobError::NotRenewed(card) if card == id), "{end:?}");
        assert_eq!(leased_at.elapsed(), timing::LEASE_LIFE.to_std().unwrap());
    }
}
