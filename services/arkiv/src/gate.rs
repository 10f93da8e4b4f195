//! What a role waits for before it starts: a migrated database, and a bucket with versioning.
//!
//! A dependency that is away is waited for, and named once. A database that lacks migrations is waited for too: they may
//! be running. A bucket without versioning is refused (R-B9): nothing that follows could be trusted.

use std::time::Duration;

use anyhow::bail;
use objects::S3Settings;
use objects::admin::Admin;
use store::Db;
use tokio_util::sync::CancellationToken;

const ASK_EVERY: Duration = Duration::from_secs(1);

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
    let mut said = Said::default();
    loop {
        let missing = match admin.versioning_enabled().await {
            Ok(true) => return Ok(true),
            Ok(false) => bail!(
                "versioning_required: the bucket `{}` has no versioning; run arkiv setup, then start again",
                settings.bucket
            ),
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
