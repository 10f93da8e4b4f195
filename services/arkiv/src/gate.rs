//! What a role waits for before it starts: a migrated database, and a bucket with versioning.
//!
//! A dependency that is away is waited for, and named once. A database that lacks migrations is waited for too: they may
//! be running. A bucket without versioning gets a moment, since setup may have made it just now; then it is refused
//! (R-B9): nothing that follows could be trusted.

use std::time::Duration;

use anyhow::bail;
use objects::admin::Admin;
use objects::{ObjectError, S3Settings};
use store::Db;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const ASK_EVERY: Duration = Duration::from_secs(1);
/// How long a bucket may be without versioning: setup makes it in one step and enables that in the next.
const VERSIONING_WITHIN: Duration = Duration::from_secs(10);

/// Waits for the database. False: the process was asked to stop meanwhile.
pub(crate) async fn database(db: &Db, role: &str, shutdown: &CancellationToken) -> bool {
    let mut said = Said::default();
    loop {
        let missing = match store::pending_migrations(db).await {
            Ok(0) => return true,
            Ok(n) => format!("the database lacks {n} migrations: run arkiv migrate"),
            Err(error) => error.to_string(),
        };
        said.once(role, &missing);
        if pause(shutdown).await {
            return false;
        }
    }
}

/// Waits for the store and its bucket. False: the process was asked to stop meanwhile.
pub(crate) async fn bucket(
    settings: &S3Settings,
    role: &str,
    shutdown: &CancellationToken,
) -> anyhow::Result<bool> {
    let admin = Admin::new(settings.clone())?;
    versioned(&settings.bucket, role, shutdown, || admin.versioning_enabled()).await
}

async fn versioned<A: Future<Output = Result<bool, ObjectError>>>(
    bucket: &str,
    role: &str,
    shutdown: &CancellationToken,
    ask: impl Fn() -> A,
) -> anyhow::Result<bool> {
    let mut said = Said::default();
    let mut without_since = None;
    loop {
        let missing = match ask().await {
            Ok(true) => return Ok(true),
            Ok(false) if without_since.get_or_insert_with(Instant::now).elapsed() >= VERSIONING_WITHIN => {
                bail!(
                    "versioning_required: the bucket `{bucket}` has no versioning; run arkiv setup, then start again"
                )
            }
            Ok(false) => format!("the bucket `{bucket}` has no versioning yet"),
            Err(error) => format!("{error}; if the bucket was never set up, run arkiv setup"),
        };
        said.once(role, &missing);
        if pause(shutdown).await {
            return Ok(false);
        }
    }
}

/// Waits a little. True: the process was asked to stop.
async fn pause(shutdown: &CancellationToken) -> bool {
    tokio::select! {
        () = shutdown.cancelled() => true,
        () = tokio::time::sleep(ASK_EVERY) => false,
    }
}

/// Says each reason once.
#[derive(Default)]
struct Said(String);

impl Said {
    fn once(&mut self, role: &str, reason: &str) {
        if self.0 != reason {
            tracing::warn!(role, reason, "waiting to start");
            reason.clone_into(&mut self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// What the gate says to a bucket that has versioning from the nth question on, and after how many seconds.
    async fn check(versioned_at: u32) -> (anyhow::Result<bool>, u64) {
        let began = Instant::now();
        let asked = AtomicU32::new(0);
        let answer = versioned("b", "test", &CancellationToken::new(), || {
            let number = asked.fetch_add(1, Ordering::Relaxed);
            async move { Ok(number >= versioned_at) }
        })
        .await;
        (answer, began.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_bucket_that_setup_has_just_made_may_get_its_versioning() {
        assert!(matches!(check(0).await, (Ok(true), 0)));
        assert!(matches!(check(3).await, (Ok(true), 3)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_bucket_that_gets_none_is_refused_in_ten_seconds() {
        let (answer, seconds) = check(u32::MAX).await;
        assert!(answer.unwrap_err().to_string().contains("versioning_required"));
        assert_eq!(seconds, VERSIONING_WITHIN.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_ends_the_wait() {
        let shutdown = CancellationToken::new();
        shutdown.cancel();
        assert!(!versioned("b", "test", &shutdown, || async { Ok(false) }).await.unwrap());
    }
}
