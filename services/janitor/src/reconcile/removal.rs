//! Steps 6 to 9: what forbids removal, the removal itself, and the report.

use cards::VersionId;
use chrono::TimeDelta;
use objects::{DELETE_BATCH_MAX, DeleteFailure};
use store::reconcile::{self, Known, Run};
use store::strays::{self, Candidate, Grace};
use telemetry::metric;
use tokio_util::sync::CancellationToken;

use super::decide::{self, Verdict};
use super::report::{Phase, Report};
use super::{Mode, ReconcileError, Reconciler, save_in};

/// R-H2. The table of removals has the 24 hours as a CHECK. The run that removes is itself a sighting: what two events
/// told of and nobody listed is no candidate.
pub(super) const GRACE: Grace = Grace { life: TimeDelta::hours(24), sightings: 2 };

/// Cards whose purge is asked for in one transaction: each is an UPDATE and an INSERT.
const PURGES_AT_ONCE: u64 = 100;

impl Reconciler {
    /// Steps 6 to 8.
    pub(super) async fn settle(
        &self,
        run: &mut Run,
        mode: Mode,
        shutdown: &CancellationToken,
        tell: &mut (dyn FnMut(&Run, Phase) + Send),
    ) -> Result<Verdict, ReconcileError> {
        // 6.
        let known = reconcile::identify(&mut *self.db.acquire().await?).await?;
        let allow_strays = match mode {
            Mode::DryRun => None,
            Mode::Apply { allow_strays } => allow_strays,
        };
        if let Some(verdict) = decide::forbidden(&known, &run.counts, allow_strays) {
            alarm(run, &known, verdict);
            return Ok(verdict);
        }
        if mode.applies() {
            self.request_purges(run).await?;
            self.remove(run, shutdown, tell).await?;
        }
        Ok(decide::verdict(mode.applies(), &run.counts, &run.removals))
    }

    /// Step 7.
    async fn request_purges(&self, run: &mut Run) -> Result<(), ReconcileError> {
        loop {
            let left = self.settings.removals_max.saturating_sub(run.removals.purges);
            let limit = i64::try_from(left.min(PURGES_AT_ONCE)).unwrap_or_default();
            let mut tx = self.db.begin().await?;
            let asked = strays::request_purges(&mut tx, self.ids, run.id, limit).await?;
            if asked == 0 {
                return Ok(());
            }
            run.removals.purges += asked;
            save_in(&mut tx, run).await?;
            tx.commit().await?;
        }
    }

    /// Step 8.
    async fn remove(
        &self,
        run: &mut Run,
        shutdown: &CancellationToken,
        tell: &mut (dyn FnMut(&Run, Phase) + Send),
    ) -> Result<(), ReconcileError> {
        let mut after: Option<Candidate> = None;
        loop {
            if shutdown.is_cancelled() {
                return Err(ReconcileError::Stopped { run: run.id });
            }
            let asked = run.removals.removed + run.removals.failed;
            let left = self.settings.removals_max.saturating_sub(asked).min(DELETE_BATCH_MAX as u64);
            let candidates = strays::candidates(
                &mut *self.db.acquire().await?,
                run.id,
                GRACE,
                after.as_ref(),
                i64::try_from(left).unwrap_or_default(),
            )
            .await?;
            let Some(last) = candidates.last() else { return Ok(()) };
            after = Some(last.clone());
            self.remove_batch(run, &candidates).await?;
            tell(run, Phase::Removing);
        }
    }

    async fn remove_batch(&self, run: &mut Run, candidates: &[Candidate]) -> Result<(), ReconcileError> {
        // A walker that was thought dead finds out here, before it removes anything.
        let mut tx = self.db.begin().await?;
        save_in(&mut tx, run).await?;
        let going = strays::record_removals(&mut tx, run.id, candidates).await?;
        tx.commit().await?;
        run.removals.spared += (candidates.len() - going.len()) as u64;
        let refused = if going.is_empty() { Vec::new() } else { self.delete(run, &going).await? };
        let (gone, failed) = split(going, &refused);
        run.removals.removed += gone.len() as u64;
        run.removals.failed += failed as u64;
        metrics::counter!(metric::RECONCILIATION_REMOVALS).increment(gone.len() as u64);
        metrics::counter!(metric::FAILED_REMOVALS).increment(failed as u64);
        if let Some(first) = refused.first() {
            tracing::warn!(
                run = run.id,
                failed,
                key = first.key,
                code = first.code,
                message = first.message,
                "the store did not remove some strays; the next run asks again"
            );
        }
        let mut tx = self.db.begin().await?;
        strays::removed(&mut tx, &gone).await?;
        save_in(&mut tx, run).await?;
        Ok(tx.commit().await?)
    }

    /// What the store refused. A call that fails as a whole, while the store answers, refused all of it.
    async fn delete(
        &self,
        run: &Run,
        going: &[(String, VersionId)],
    ) -> Result<Vec<DeleteFailure>, ReconcileError> {
        match self.objects.delete_versions(going).await {
            Ok(refused) => Ok(refused),
            Err(error) if error.is_outage(&*self.objects).await => Err(error.into()),
            Err(error) => {
                tracing::error!(run = run.id, %error, "could not remove strays");
                let refused = going.iter().map(|(key, version)| DeleteFailure {
                    key: key.clone(),
                    version: Some(version.clone()),
                    code: "request_failed".to_owned(),
                    message: error.to_string(),
                });
                Ok(refused.collect())
            }
        }
    }

    /// Step 9.
    pub(super) async fn finish(
        &self,
        run: &Run,
        mode: Mode,
        verdict: Verdict,
    ) -> Result<Report, ReconcileError> {
        let mut tx = self.db.begin().await?;
        let ended_at = store::clock::now(&mut tx).await?;
        strays::forget_unseen(&mut tx, run.id).await?;
        let left = strays::left(&mut tx, run.id, GRACE).await?;
        let report = Report::new(run, mode, verdict, ended_at, &left);
        let written = serde_json::to_value(&report).unwrap_or_default();
        if !reconcile::end(&mut tx, run, verdict.as_str(), &written).await? {
            return Err(ReconcileError::Overtaken { run: run.id });
        }
        tx.commit().await?;
        set_missing(run.counts.missing);
        metrics::counter!(metric::RECONCILIATIONS, "verdict" => verdict.as_str()).increment(1);
        tracing::info!(
            run = run.id,
            verdict = verdict.as_str(),
            versions = report.versions,
            strays = run.counts.strays(),
            removed = report.removed,
            failed = report.failed,
            missing = report.missing,
            "reconciled the bucket"
        );
        Ok(report)
    }
}

/// R-H3's gauge: what the last run missed.
#[expect(clippy::cast_precision_loss, reason = "a count; past 2^52 its last digits say nothing")]
pub(super) fn set_missing(missing: u64) {
    metrics::gauge!(metric::MISSING_OBJECTS).set(missing as f64);
}

fn alarm(run: &Run, known: &Known, verdict: Verdict) {
    match known {
        Known::No { recorded, found } => tracing::error!(
            run = run.id,
            ?recorded,
            ?found,
            "the database is not the one that was known: was it restored? Nothing is removed until an operator runs \
             arkiv reconcile --accept-restore"
        ),
        Known::Yes => tracing::error!(
            run = run.id,
            strays = run.counts.strays(),
            versions = run.counts.versions,
            verdict = verdict.as_str(),
            "too many strays: nothing is removed"
        ),
    }
}

/// What is gone, and how many are not. A failure without a version is one of all versions of its key.
fn split(going: Vec<(String, VersionId)>, refused: &[DeleteFailure]) -> (Vec<(String, VersionId)>, usize) {
    let asked = going.len();
    let is_refused = |key: &str, version: &VersionId| {
        refused.iter().any(|failure| {
            failure.key == key && failure.version.as_ref().is_none_or(|refused| refused == version)
        })
    };
    let mut gone = going;
    if !refused.is_empty() {
        gone.retain(|(key, version)| !is_refused(key, version));
    }
    let failed = asked - gone.len();
    (gone, failed)
}
