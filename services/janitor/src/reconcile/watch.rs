//! Reconciliation by the janitor: a run a day, by itself.

use std::time::Duration;

use store::StoreError;
use store::reconcile::{self, Last};
use tokio_util::sync::CancellationToken;

use super::removal::set_missing;
use super::{Mode, ReconcileError, Reconciler};

/// After a failure: long enough for a server to come back, short enough that a walk of hours loses nothing by it.
const FAILED_PAUSE: Duration = Duration::from_secs(15);

/// What [`Reconciler::watch`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Now(Mode),
    Later,
}

impl Reconciler {
    /// Runs until `shutdown`: a run each interval after the last one ended; one that somebody left is gone on with at
    /// once. The first run of a database is a dry one (R-H2: dry run first). Outages are waited for.
    pub async fn watch(&self, shutdown: CancellationToken) {
        let mut failing = false;
        while !shutdown.is_cancelled() {
            let pause = match self.look(&shutdown).await {
                Ok(()) => {
                    failing = false;
                    self.settings.pause
                }
                Err(ReconcileError::Stopped { run }) => {
                    tracing::info!(run, "stopped a reconciliation; the next one goes on from there");
                    break;
                }
                // Somebody else does it.
                Err(ReconcileError::Busy { .. } | ReconcileError::Overtaken { .. }) => self.settings.pause,
                Err(error @ (ReconcileError::Store(_) | ReconcileError::Objects(_))) => {
                    if !failing {
                        tracing::warn!(%error, "reconciliation waits; it goes on from where it was");
                    }
                    failing = true;
                    FAILED_PAUSE.min(self.settings.pause)
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn look(&self, shutdown: &CancellationToken) -> Result<(), ReconcileError> {
        match self.due().await? {
            Due::Now(mode) => self.run_until(mode, shutdown, &mut |_| {}).await.map(drop),
            Due::Later => Ok(()),
        }
    }

    async fn due(&self) -> Result<Due, StoreError> {
        let (last, is_open) = reconcile::last(&mut *self.db.acquire().await?).await?;
        // What the last run missed is missing until a run says otherwise, whoever has been restarted since.
        set_missing(last.map_or(0, |last| last.missing));
        Ok(due(last, is_open, self.settings.interval))
    }
}

fn due(last: Option<Last>, is_open: bool, interval: Duration) -> Due {
    let apply = Mode::Apply { allow_strays: None };
    match last {
        None => Due::Now(Mode::DryRun),
        Some(_) if is_open => Due::Now(apply),
        Some(last) if last.ended_for.to_std().is_ok_and(|ended_for| ended_for >= interval) => Due::Now(apply),
        Some(_) => Due::Later,
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    #[test]
    fn a_run_is_due_a_day_after_the_last_and_the_first_of_all_is_dry() {
        let day = Duration::from_hours(24);
        let last = |hours| Some(Last { ended_for: TimeDelta::hours(hours), versions: 0, missing: 0 });
        let apply = Due::Now(Mode::Apply { allow_strays: None });
        assert_eq!(due(None, false, day), Due::Now(Mode::DryRun));
        assert_eq!(due(None, true, day), Due::Now(Mode::DryRun));
        assert_eq!(due(last(23), false, day), Due::Later);
        assert_eq!(due(last(23), true, day), apply);
        assert_eq!(due(last(24), false, day), apply);
        assert_eq!(due(last(-1), false, day), Due::Later, "a clock that was set back");
    }
}
