//! `arkiv fsck`: settings in, tables or JSON out, and the exit code that a cron job reads (R-H4).

use std::process::ExitCode;
use std::sync::Arc;

use objects::S3;
use ops::fsck::{FsckError, FsckSettings, Live, Report};
use store::Db;

use crate::cli::FsckArgs;
use crate::commands::{EXIT_TEMPFAIL, say};

pub(crate) async fn fsck(args: &FsckArgs) -> anyhow::Result<ExitCode> {
    let db = Db::new(&args.database.settings("fsck"))?;
    let store = Arc::new(S3::new(&args.store.settings()));
    let settings = FsckSettings { card: args.card, ..FsckSettings::default() };
    let mut live = Live::new(args.json)?;
    let done = match migrated(&db).await? {
        Ok(()) => ops::fsck::run(&db, store, &settings, &mut |progress| live.show(progress)).await,
        Err(error) => Err(error),
    };
    live.end();
    match &done {
        Ok(report) if args.json => say(&serde_json::to_string_pretty(report)?)?,
        Ok(report) => say(&report.to_string())?,
        Err(_) => {}
    }
    let code = exit_code(&done, args.strict);
    if let Err(error) = done {
        crate::report(&error.into());
    }
    Ok(ExitCode::from(code))
}

/// A database of another version is refused: what its rows mean is not known here.
async fn migrated(db: &Db) -> anyhow::Result<Result<(), FsckError>> {
    match store::pending_migrations(db).await {
        Ok(0) => Ok(Ok(())),
        Ok(missing) => anyhow::bail!("the database lacks {missing} migrations: run arkiv migrate"),
        Err(error) => Ok(Err(error.into())),
    }
}

fn exit_code(done: &Result<Report, FsckError>, strict: bool) -> u8 {
    match done {
        Ok(report) => u8::from(!report.is_clean(strict)),
        Err(error) if error.is_outage() => EXIT_TEMPFAIL,
        Err(_) => 1,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use objects::{ObjectError, Operation};

    use super::*;

    /// R-H4: each finding says what to run, and that can be run.
    #[test]
    fn every_command_that_a_finding_names_is_there() {
        let cli = crate::cli::Cli::command();
        let mut named = 0;
        for row in ops::fsck::KINDS {
            for rest in row.run.split("arkiv ").skip(1) {
                let name: String = rest.chars().take_while(char::is_ascii_lowercase).collect();
                assert!(cli.find_subcommand(&name).is_some(), "{}: arkiv {name}", row.code);
                named += 1;
            }
        }
        assert!(named > 5, "only {named}");
    }

    /// R-B8: who can't be asked is not missing.
    #[test]
    fn a_store_that_does_not_answer_is_75_and_never_a_violation() {
        let away = ObjectError::Unavailable {
            operation: Operation::Head,
            key: "files/x".to_owned(),
            detail: "503".to_owned(),
        };
        assert_eq!(exit_code(&Err(FsckError::Objects(away)), false), 75);
        let nobody = FsckError::NoSuchCard(cards::Ids.card());
        assert_eq!(exit_code(&Err(nobody), false), 1);
        assert_eq!(exit_code(&Ok(Report::default()), true), 0);
    }
}
