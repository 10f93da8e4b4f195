//! The relay: committed outbox rows become messages (INV-2).
//!
//! In: due rows of `outbox`. Out: persistent, confirmed messages on `card.work`. Several relays may run at once.
//!
//! 1. Wait for a broker connection that stands and is not blocked: nothing is claimed before.
//! 2. Claim due rows by `(available_at, id)`, SKIP LOCKED. Other relays skip them.
//! 3. Publish all, wait for all confirms within a bound.
//! 4. Delete the confirmed rows, push returned or refused ones back, each alone.
//! 5. COMMIT. **Commit point.** A crash before it publishes the batch again: a duplicate, never a loss.
//!
//! This is the one transaction that stays open over a network call: the rows' locks are the claim (DESIGN "Relay").

mod decide;
mod error;

use std::time::Duration;

use broker::{Published, Publisher};
use store::outbox;
use store::{Db, StoreError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use decide::{Pace, Settled};
pub use error::RelayError;

/// How the relay works.
#[derive(Clone, Copy, Debug)]
pub struct RelaySettings {
    /// Rows in a batch at most: 200 to 500 reach the broker's own limit (FACTS 4.2).
    pub batch_rows_max: u16,
    /// How long a batch may wait for its confirms; the transaction stays open that long.
    pub confirm_within: Duration,
    /// How long the database may take for each half of a batch: the claim, and the settling with its COMMIT. Apart
    /// from the confirms in between, which have their own bound, so that an error says who was silent. Above the
    /// server's own limits (15 s a statement, 30 s for a transaction that idles over the confirms), which end all that
    /// is merely slow: past it the wire is dead.
    pub database_within: Duration,
}

impl Default for RelaySettings {
    fn default() -> Self {
        Self {
            batch_rows_max: 500,
            confirm_within: Duration::from_secs(5),
            database_within: Duration::from_secs(30),
        }
    }
}

/// Relays until `shutdown`. Every failure is waited out: rows stay where they are. `relaying` says whether messages can
/// leave right now, for `/readyz`.
pub async fn run(
    db: Db,
    broker: broker::Settings,
    settings: RelaySettings,
    shutdown: CancellationToken,
    relaying: watch::Sender<bool>,
) {
    let mut publisher = Publisher::new(broker);
    let mut pace = Pace::default();
    while !shutdown.is_cancelled() {
        let pause = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            // 1. Cancelled between batches only: a batch in hand is finished or rolled back by its own bound.
            ready = publisher.ready() => match ready {
                Ok(()) => {
                    let batch = relay_batch(&db, &mut publisher, settings).await;
                    relaying.send_replace(batch.is_ok());
                    pace.after(batch)
                }
                Err(error) => {
                    relaying.send_replace(false);
                    pace.after(Err(error.into()))
                }
            },
        };
        tokio::select! {
            () = shutdown.cancelled() => break,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Steps 2 to 5. Answers how many rows were claimed.
pub async fn relay_batch(
    db: &Db,
    publisher: &mut Publisher,
    settings: RelaySettings,
) -> Result<Batch, RelayError> {
    // 2.
    let claiming = async {
        let mut tx = db.begin().await?;
        let rows = outbox::claim(&mut tx, i64::from(settings.batch_rows_max)).await?;
        Ok((tx, rows))
    };
    let (mut tx, rows) = within("claiming rows", settings, claiming).await?;
    if rows.is_empty() {
        within("ending an empty batch", settings, tx.rollback()).await?;
        return Ok(Batch::Empty);
    }
    telemetry::kill::point("relay.after_claim");
    // 3. An error here knows nothing of any row: the dropped transaction gives them all back.
    let messages: Vec<_> = rows.iter().map(|row| row.message.clone()).collect();
    let confirms = publisher.publish(&messages, settings.confirm_within).await?;
    telemetry::kill::point("relay.after_publish");
    // 4.
    let judged = decide::settle(&rows, &confirms);
    let settling = async {
        outbox::delete(&mut tx, &judged.confirmed).await?;
        for (row, delay, error) in &judged.back {
            outbox::push_back(&mut tx, *row, *delay, error).await?;
        }
        // 5.
        tx.commit().await
    };
    within("settling rows", settings, settling).await?;
    telemetry::kill::point("relay.after_commit");
    report(&confirms, &judged);
    Ok(if rows.len() == usize::from(settings.batch_rows_max) { Batch::Full } else { Batch::Partial })
}

/// Bounds one half of a batch's database work. Cut off in the middle of COMMIT the rows may be gone or not: they are
/// published again or they are not, as after a crash.
async fn within<T>(
    step: &'static str,
    settings: RelaySettings,
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, RelayError> {
    let within = settings.database_within;
    match tokio::time::timeout(within, work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(RelayError::Silent { step, within }),
    }
}

/// What a batch was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
    /// Nothing was due.
    Empty,
    /// Less than a batch was due.
    Partial,
    /// There may be more: claim again at once.
    Full,
}

fn report(published: &[Published], settled: &Settled) {
    for published in published {
        let result = decide::word(published);
        metrics::counter!(telemetry::metric::PUBLISHED, "result" => result).increment(1);
    }
    if let Some((row, _, error)) = settled.back.first() {
        // A queue that is missing or full: somebody must act, the rows wait.
        tracing::error!(
            outbox.id = row,
            rows = settled.back.len(),
            error,
            "the broker did not take messages; their rows stay in the outbox"
        );
    }
}
