//! Bucket reconciliation: the bucket holds what the database says, and the other way round (R-H2, R-H3, INV-3).
//!
//! In: every version under our prefixes, and every card. Out: a report; purges for cards with strays; strays of no card
//! removed; an alarm for each object that a card points at and the store does not have. The database is the truth, unless
//! it was restored: then nothing is removed until an operator says so.
//!
//! 1. Begin a run, or go on with the one that somebody left ([`store::reconcile::begin`]).
//! 2. List the next keys ([`objects::Walk`]), **then** read their cards, in one query: a ticket's card is there before its
//!    upload is.
//! 3. Sort them (`decide`): kept, owed (a purge is under way), a known card's stray, or of no card.
//! 4. For the same range of keys, find what cards point at and was not listed. Each suspect gets a HEAD and is read again
//!    before it counts. It is told, never changed.
//! 5. One transaction: cursor, counts, sightings. Steps 2 to 5 until the walk is over.
//! 6. Another database than the one that was known, or more than 1 % strays: an alarm, and nothing is removed.
//! 7. Ask for the purges of known cards with strays.
//! 8. Remove strays of no card, batch by batch: look their cards up once more and write down what goes, in one
//!    transaction; then remove exactly that. Only what was first seen 24 h ago, and twice, and up to a cap a run.
//! 9. Forget strays that are gone, and write the report. **The run is over.**
//!
//! A walker that dies leaves an open run: whoever comes after its claim ended goes on after the last key that was done. A
//! failure of database or store ends [`Reconciler::run`] with an error, and the next run goes on likewise.

mod decide;
mod error;
mod removal;
mod report;
mod walk;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use cards::Ids;
use chrono::TimeDelta;
use objects::ObjectStore;
use store::Db;
use store::reconcile::{self, Begun, Run};
use tokio_util::sync::CancellationToken;

pub use decide::Verdict;
pub use error::ReconcileError;
pub use report::{Phase, Progress, Report};

/// How the janitor reconciles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReconcileSettings {
    /// From the end of one run to the next.
    pub interval: Duration,
    /// Versions that one run asks the store to remove, and cards whose purge it asks for, at most.
    pub removals_max: u64,
    /// How long [`Reconciler::watch`] waits before it looks again whether a run is due.
    pub pause: Duration,
}

impl Default for ReconcileSettings {
    /// R-H2's grace is 24 h, so two runs a day would see nothing new ripe. 10,000: a mistake in the rules must not empty a
    /// bucket between two looks at the dashboard.
    fn default() -> Self {
        Self { interval: Duration::from_hours(24), removals_max: 10_000, pause: Duration::from_mins(1) }
    }
}

/// What a run may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Look, count, remember; remove nothing.
    DryRun,
    /// Remove what the rules allow.
    Apply {
        /// Remove although more than 1 % are strays, if they are at most so many: an operator has looked at them.
        allow_strays: Option<u64>,
    },
}

impl Mode {
    fn applies(self) -> bool {
        match self {
            Self::DryRun => false,
            Self::Apply { allow_strays: _ } => true,
        }
    }
}

/// Longer than any chunk takes: two pages, a thousand HEADs sixteen at once, a few statements.
const CLAIM_LIFE: TimeDelta = TimeDelta::minutes(5);

/// Reconciles bucket and database.
pub struct Reconciler {
    db: Db,
    objects: Arc<dyn ObjectStore>,
    ids: Ids,
    settings: ReconcileSettings,
}

impl Reconciler {
    /// A reconciler.
    pub fn new(db: Db, objects: Arc<dyn ObjectStore>, settings: ReconcileSettings) -> Self {
        Self { db, objects, ids: Ids, settings }
    }

    /// One run, from its beginning or from where somebody left it, to its report.
    pub async fn run(
        &self,
        mode: Mode,
        progress: &mut (dyn FnMut(&Progress) + Send),
    ) -> Result<Report, ReconcileError> {
        self.run_until(mode, &CancellationToken::new(), progress).await
    }

    /// The same, stopped between two chunks by `shutdown`: [`ReconcileError::Stopped`].
    pub async fn run_until(
        &self,
        mode: Mode,
        shutdown: &CancellationToken,
        progress: &mut (dyn FnMut(&Progress) + Send),
    ) -> Result<Report, ReconcileError> {
        // 1.
        let (mut run, expected) = self.begin(mode).await?;
        let mut told = Progress::new(run.id, expected);
        let mut tell = |run: &Run, phase: Phase| {
            told.update(run, phase);
            progress(&told);
        };
        let done = self.steps(&mut run, mode, shutdown, &mut tell).await;
        if done.is_err() {
            self.release(&run).await;
        }
        done
    }

    /// An operator says that the database is the truth although it was restored (step 6). Every stray's grace begins anew.
    pub async fn accept_restore(&self) -> Result<(), ReconcileError> {
        let mut tx = self.db.begin().await?;
        reconcile::accept_restore(&mut tx).await?;
        tx.commit().await?;
        tracing::warn!(
            "an operator accepted this database as the truth; strays wait for their whole grace again"
        );
        Ok(())
    }

    async fn begin(&self, mode: Mode) -> Result<(Run, Option<u64>), ReconcileError> {
        let claim = self.ids.message().0;
        let mut tx = self.db.begin().await?;
        let (last, _) = reconcile::last(&mut tx).await?;
        let begun = reconcile::begin(&mut tx, claim, mode.applies(), CLAIM_LIFE).await?;
        tx.commit().await?;
        match begun {
            Begun::Yes(run) => {
                if let Some(cursor) = &run.cursor {
                    tracing::info!(run = run.id, cursor, "going on with a reconciliation");
                }
                Ok((*run, last.map(|last| last.versions)))
            }
            Begun::Busy { run, until } => Err(ReconcileError::Busy { run, until }),
        }
    }

    async fn steps(
        &self,
        run: &mut Run,
        mode: Mode,
        shutdown: &CancellationToken,
        tell: &mut (dyn FnMut(&Run, Phase) + Send),
    ) -> Result<Report, ReconcileError> {
        // 2 to 5.
        self.walk(run, shutdown, tell).await?;
        // 6 to 8.
        let verdict = self.settle(run, mode, shutdown, tell).await?;
        // 9.
        self.finish(run, mode, verdict).await
    }

    /// Writes down how far the run is and renews its claim; in a transaction of its own.
    async fn save(&self, run: &Run) -> Result<(), ReconcileError> {
        let mut tx = self.db.begin().await?;
        save_in(&mut tx, run).await?;
        Ok(tx.commit().await?)
    }

    async fn release(&self, run: &Run) {
        let released = async { reconcile::release(&mut *self.db.acquire().await?, run).await };
        if let Err(error) = released.await {
            // The claim ends by itself.
            tracing::debug!(run = run.id, %error, "could not give the claim of a reconciliation back");
        }
    }
}

/// The same in the caller's transaction, which is dropped where the run is somebody else's by now.
async fn save_in(connection: &mut store::PgConnection, run: &Run) -> Result<(), ReconcileError> {
    if reconcile::save(connection, run, CLAIM_LIFE).await? {
        Ok(())
    } else {
        Err(ReconcileError::Overtaken { run: run.id })
    }
}
