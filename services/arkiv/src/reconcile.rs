//! `arkiv reconcile`: settings in, a table or JSON out, and the exit code that a cron job reads (R-H2, R-H3).

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use janitor::reconcile::{
    Mode, Phase, Progress, ReconcileError, ReconcileSettings, Reconciler, Report, Verdict,
};
use objects::S3;
use store::Db;
use tokio::time::Instant;

use crate::cli::ReconcileArgs;
use crate::commands::{EXIT_TEMPFAIL, say};

pub(crate) async fn reconcile(args: &ReconcileArgs) -> anyhow::Result<ExitCode> {
    let db = Db::new(&args.database.settings("reconcile"))?;
    let store = Arc::new(S3::new(&args.store.settings()));
    let mut live = Live::new(args.json)?;
    let done = run(args, db, store, &mut live).await;
    live.end();
    match done? {
        Ok(report) => {
            say(&if args.json { serde_json::to_string_pretty(&report)? } else { render(&report) })?;
            Ok(ExitCode::from(u8::from(report.is_alarm)))
        }
        Err(error) => {
            let code = if error.is_passing() { EXIT_TEMPFAIL } else { 1 };
            crate::report(&error.into());
            Ok(ExitCode::from(code))
        }
    }
}

async fn run(
    args: &ReconcileArgs,
    db: Db,
    store: Arc<S3>,
    live: &mut Live,
) -> anyhow::Result<Result<Report, ReconcileError>> {
    match store::pending_migrations(&db).await {
        Ok(0) => {}
        Ok(missing) => anyhow::bail!("the database lacks {missing} migrations: run arkiv migrate"),
        Err(error) => return Ok(Err(error.into())),
    }
    let shutdown = crate::signals::shutdown()?;
    let reconciler = Reconciler::new(db, store, ReconcileSettings::default());
    if args.accept_restore
        && let Err(error) = reconciler.accept_restore().await
    {
        return Ok(Err(error));
    }
    Ok(reconciler.run_until(mode(args), &shutdown, &mut |progress| live.show(progress)).await)
}

fn mode(args: &ReconcileArgs) -> Mode {
    if args.apply { Mode::Apply { allow_strays: args.allow_strays } } else { Mode::DryRun }
}

/// The report for people: what it came to, the counts, what is missing, what to do.
fn render(report: &Report) -> String {
    let mut counts = table(["", "versions"]);
    for (what, number) in [
        ("seen", report.versions),
        ("  kept by their card", report.kept),
        ("  not kept, purge under way", report.owed),
        ("  not kept by their card", report.card_strays),
        ("  of no card", report.unknown),
        ("    removed", report.removed),
        ("    refused by the store", report.failed),
        ("    spared: a card came meanwhile", report.spared),
        ("    could go now", report.removable),
        ("    waiting for their grace", report.waiting),
        ("missing objects", report.missing),
    ] {
        counts.add_row([what.to_owned(), number.to_string()]);
    }
    if let Some(column) = counts.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut text = format!("reconciliation {} ({}): {}\n{counts}", report.run, report.mode, headline(report));
    if !report.missing_objects.is_empty() {
        let mut missing = table(["card", "state", "missing object", "version"]);
        for object in &report.missing_objects {
            missing.add_row([
                object.card.to_string(),
                object.state.clone(),
                object.key.clone(),
                object.version.to_string(),
            ]);
        }
        let _ = write!(text, "\n{missing}");
    }
    for next in &report.next {
        let _ = write!(text, "\nnext: {next}");
    }
    text
}

fn table<const COLUMNS: usize>(header: [&str; COLUMNS]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header(header);
    table
}

fn headline(report: &Report) -> String {
    let strays = match report.verdict {
        Verdict::Clean => "nothing to remove now".to_owned(),
        Verdict::Removed => format!("{} removed, {} purges asked for", report.removed, report.purges),
        Verdict::DryRun => "there are strays; nothing was removed".to_owned(),
        Verdict::TooManyStrays => "ALARM: more than 1 % are strays; nothing was removed".to_owned(),
        Verdict::DatabaseChanged => {
            "ALARM: the database is not the one that was known; nothing was removed".to_owned()
        }
    };
    if report.missing > 0 { format!("ALARM: objects are missing; {strays}") } else { strays }
}

/// Between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// How far it is, on stderr: a bar on a terminal, a line now and then elsewhere, nothing beside JSON.
enum Live {
    Bar(ProgressBar),
    Lines { next: Instant },
    Silent,
}

impl Live {
    fn new(json: bool) -> anyhow::Result<Self> {
        if std::io::stderr().is_terminal() {
            let style =
                ProgressStyle::with_template("{bar:30} {pos} of about {len} versions  {elapsed}  {msg}")?;
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_style(style);
            return Ok(Self::Bar(bar));
        }
        Ok(if json { Self::Silent } else { Self::Lines { next: Instant::now() + LINE_EVERY } })
    }

    fn show(&mut self, progress: &Progress) {
        match self {
            Self::Bar(bar) => {
                // Nobody knows how many there are: as many as the last time, or more.
                bar.set_length(progress.expected.unwrap_or_default().max(progress.versions));
                bar.set_position(progress.versions);
                bar.set_message(sentence(progress));
            }
            Self::Lines { next } => {
                if Instant::now() >= *next {
                    // Nobody may be reading any more; the run goes on.
                    let _ = writeln!(
                        std::io::stderr().lock(),
                        "{} versions; {}",
                        progress.versions,
                        sentence(progress)
                    );
                    *next = Instant::now() + LINE_EVERY;
                }
            }
            Self::Silent => {}
        }
    }

    fn end(self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

fn sentence(progress: &Progress) -> String {
    let doing = match progress.phase {
        Phase::Walking { prefix } => format!("walking {prefix}"),
        Phase::Removing => "removing".to_owned(),
    };
    format!("{doing}: {} strays, {} missing, {} removed", progress.strays, progress.missing, progress.removed)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn parsed(flags: &[&str]) -> Result<Mode, clap::error::ErrorKind> {
        let settings = [
            "--database-url=postgres://x",
            "--s3-endpoint=http://x",
            "--s3-bucket=x",
            "--s3-worker-access-key=x",
            "--s3-worker-secret-key=x",
        ];
        let words = ["arkiv", "reconcile"].iter().chain(flags).chain(&settings);
        let cli = Cli::try_parse_from(words).map_err(|error| error.kind())?;
        let Command::Reconcile(args) = cli.command else { panic!("{:?}", cli.command) };
        Ok(mode(&args))
    }

    #[test]
    fn nothing_is_removed_unless_asked_for() {
        let apply = |allow_strays| Ok(Mode::Apply { allow_strays });
        assert_eq!(parsed(&[]), Ok(Mode::DryRun));
        assert_eq!(parsed(&["--dry-run"]), Ok(Mode::DryRun));
        assert_eq!(parsed(&["--accept-restore"]), Ok(Mode::DryRun));
        assert_eq!(parsed(&["--apply"]), apply(None));
        assert_eq!(parsed(&["--apply", "--allow-strays", "7"]), apply(Some(7)));
        assert_eq!(parsed(&["--apply", "--dry-run"]), Err(clap::error::ErrorKind::ArgumentConflict));
        assert_eq!(parsed(&["--allow-strays", "7"]), Err(clap::error::ErrorKind::MissingRequiredArgument));
    }
}
