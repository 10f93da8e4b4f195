//! Commands that do one thing and end.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use ops::setup::{Mode, SetupError, Step};

use crate::cli::{DemoArgs, MigrateArgs, SetupRoleArgs, TopologyArgs};

/// sysexits' `EX_TEMPFAIL`: try again later.
pub(crate) const EXIT_TEMPFAIL: u8 = 75;

pub(crate) async fn migrate(args: &MigrateArgs) -> anyhow::Result<ExitCode> {
    let applied = store::migrate(&args.database.owner_database_url)
        .await
        .context("could not migrate; ARKIV_OWNER_DATABASE_URL must name the owner of the schema")?;
    if args.json {
        say(&format!(r#"{{"applied":{applied}}}"#))?;
    } else if applied == 0 {
        say("the schema is up to date")?;
    } else {
        say(&format!("applied {applied} migrations"))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn setup(args: &SetupRoleArgs) -> anyhow::Result<ExitCode> {
    let settings = args.setup.settings(args.broker.settings("setup"))?;
    let mode = if args.dry_run { Mode::DryRun } else { Mode::Apply };
    let mut progress = |step: &Step| {
        // Progress is for people; a closed stderr must not stop the work.
        let _ = writeln!(std::io::stderr(), "{step}");
    };
    match ops::setup::setup(&settings, mode, &mut progress).await {
        Ok(report) => {
            say(&if args.json { serde_json::to_string_pretty(&report)? } else { report.to_string() })?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error @ SetupError::StillAway { .. }) => {
            crate::report(&error.into());
            Ok(ExitCode::from(EXIT_TEMPFAIL))
        }
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn demo(args: DemoArgs) -> anyhow::Result<ExitCode> {
    let settings = ops::demo::DemoSettings {
        api_url: args.api_url,
        json: args.json,
        timeout: Duration::from_secs(args.timeout_seconds),
    };
    Ok(if ops::demo::run(settings).await? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub(crate) fn topology(args: &TopologyArgs) -> anyhow::Result<ExitCode> {
    let rows = broker::topology::table();
    if args.json {
        let rows: Vec<_> = rows
            .iter()
            .map(|row| serde_json::json!({ "what": row.what, "name": row.name, "detail": row.detail }))
            .collect();
        say(&serde_json::to_string_pretty(&rows)?)?;
    } else {
        let width = rows.iter().map(|row| row.name.len()).max().unwrap_or_default();
        for row in rows {
            say(&format!("{:8}  {:width$}  {}", row.what, row.name, row.detail))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn say(text: &str) -> std::io::Result<()> {
    writeln!(std::io::stdout().lock(), "{}", text.trim_end())
}
