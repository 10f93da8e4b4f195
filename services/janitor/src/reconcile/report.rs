//! What a run tells: while it walks, and at its end.

use cards::Timestamp;
use serde::Serialize;
use store::reconcile::{MissingObject, Run};
use store::strays::Left;

use super::Mode;
use super::decide::Verdict;

/// What a run is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It walks under this prefix.
    Walking {
        /// The prefix.
        prefix: &'static str,
    },
    /// It removes.
    Removing,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Its number.
    pub run: i64,
    /// What it is at.
    pub phase: Phase,
    /// Versions seen.
    pub versions: u64,
    /// Versions the run before saw, if there was one: about what is to come.
    pub expected: Option<u64>,
    /// Those that nobody keeps.
    pub strays: u64,
    /// References that the store does not have.
    pub missing: u64,
    /// Versions removed.
    pub removed: u64,
}

impl Progress {
    pub(super) fn new(run: i64, expected: Option<u64>) -> Self {
        let phase = Phase::Walking { prefix: "" };
        Self { run, phase, versions: 0, expected, strays: 0, missing: 0, removed: 0 }
    }

    pub(super) fn update(&mut self, run: &Run, phase: Phase) {
        self.phase = phase;
        self.versions = run.counts.versions;
        self.strays = run.counts.strays();
        self.missing = run.counts.missing;
        self.removed = run.removals.removed;
    }
}

/// What a run came to. Serialized, it is what `arkiv reconcile --json` prints and `reconcile_runs.report` holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Its number.
    pub run: i64,
    /// `dry_run` or `apply`.
    pub mode: &'static str,
    /// The database's time before the first page.
    pub begun_at: Timestamp,
    /// When this was written.
    pub ended_at: Timestamp,
    /// What it came to, as far as strays go.
    pub verdict: Verdict,
    /// Whether somebody should look: objects are missing, removals failed, or the verdict says so.
    pub is_alarm: bool,
    /// Versions and delete markers seen: the next four together.
    pub versions: u64,
    /// Those that their card keeps.
    pub kept: u64,
    /// Those that their card does not keep and whose purge was owed anyway.
    pub owed: u64,
    /// Those that their card does not keep and nobody was asked to remove.
    pub card_strays: u64,
    /// Those of no card.
    pub unknown: u64,
    /// Cards whose purge was asked for.
    pub purges: u64,
    /// Versions of no card removed.
    pub removed: u64,
    /// Versions the store did not remove when asked; the next run asks again.
    pub failed: u64,
    /// Versions whose card was there when they were looked up again.
    pub spared: u64,
    /// Versions of no card that might go and were not asked for: a dry run, an alarm, or the cap of a run.
    pub removable: u64,
    /// Versions of no card that wait for their grace or another sighting.
    pub waiting: u64,
    /// When the first of these is old enough.
    pub first_due_at: Option<Timestamp>,
    /// References of cards that the store does not have (R-H3).
    pub missing: u64,
    /// The first hundred of them.
    pub missing_objects: Vec<MissingObject>,
    /// What to do, one thing a line; empty: nothing.
    pub next: Vec<String>,
}

impl Report {
    pub(super) fn new(run: &Run, mode: Mode, verdict: Verdict, ended_at: Timestamp, left: &Left) -> Self {
        let (counts, removals) = (run.counts, run.removals);
        let mut report = Self {
            run: run.id,
            mode: if mode.applies() { "apply" } else { "dry_run" },
            begun_at: run.begun_at,
            ended_at,
            verdict,
            is_alarm: verdict.is_alarm() || counts.missing > 0 || removals.failed > 0,
            versions: counts.versions,
            kept: counts.kept,
            owed: counts.owed,
            card_strays: counts.card_strays,
            unknown: counts.unknown,
            purges: removals.purges,
            removed: removals.removed,
            failed: removals.failed,
            spared: removals.spared,
            // What failed is still there, and old enough.
            removable: left.removable.saturating_sub(removals.failed),
            waiting: left.waiting,
            first_due_at: left.first_due_at,
            missing: counts.missing,
            missing_objects: run.missing.clone(),
            next: Vec::new(),
        };
        report.next = next(&report);
        report
    }
}

fn next(report: &Report) -> Vec<String> {
    let mut next = Vec::new();
    if let Some(first) = report.missing_objects.first() {
        next.push(format!(
            "objects are missing: arkiv fsck --card {}, and restore them from a copy",
            first.card
        ));
    }
    let strays = report.card_strays + report.unknown;
    match report.verdict {
        Verdict::DatabaseChanged => next.push(
            "the database was restored or moved: make sure that it is the newest there is (arkiv fsck), then \
             arkiv reconcile --accept-restore"
                .to_owned(),
        ),
        Verdict::TooManyStrays => next.push(format!(
            "more than 1 % are strays: look at the table strays; if they may all go: arkiv reconcile --apply \
             --allow-strays {strays}"
        )),
        Verdict::DryRun if report.removable + report.card_strays > 0 => next.push(format!(
            "{} versions and the strays of known cards ({}) may go: arkiv reconcile --apply",
            report.removable, report.card_strays
        )),
        Verdict::Clean | Verdict::Removed if report.removable > 0 => {
            next.push(format!("{} more may go: arkiv reconcile --apply", report.removable));
        }
        Verdict::Clean | Verdict::Removed | Verdict::DryRun => {}
    }
    if report.failed > 0 {
        next.push(format!(
            "{} were not removed: may the worker's identity delete versions? The next run asks again",
            report.failed
        ));
    }
    if let (1.., Some(due)) = (report.waiting, report.first_due_at) {
        let due = due.max(report.ended_at).format("%Y-%m-%d %H:%M:%SZ");
        next.push(format!("{} wait for their grace or another sighting: again from {due}", report.waiting));
    }
    next
}
