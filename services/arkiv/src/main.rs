//! `arkiv`: one binary, a subcommand a role, `up` for all of them in one process (R-I7).
//!
//! Settings come from flags or the environment ([`config`]), never from anywhere else. Data goes to stdout, everything
//! else to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage, 75 a dependency did not answer in time.

mod cli;
mod commands;
mod config;
mod depths;
mod fsck;
mod gate;
mod health;
mod receipt;
mod reconcile;
mod roles;
mod signals;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};

fn main() -> ExitCode {
    // The child has its limits set from outside and must stay small: no runtime, no settings, no logs.
    if std::env::args_os().nth(1).is_some_and(|arg| arg == decoder_child::NAME) {
        return decoder::child::child_main();
    }
    let cli = Cli::parse();
    if let Err(error) = telemetry::init(cli.log.format, &cli.log.filter) {
        report(&error.into());
        return ExitCode::from(2);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            report(&error.into());
            return ExitCode::FAILURE;
        }
    };
    let done = runtime.block_on(run(cli.command));
    // What is left is idle by now: a hung blocking call must not hold the process.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    done.unwrap_or_else(|error| {
        report(&error);
        ExitCode::FAILURE
    })
}

/// How a decoder starts its children: this binary again.
mod decoder_child {
    /// The hidden subcommand.
    pub(crate) const NAME: &str = "decode-child";
}

async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Up(args) => roles::up(*args).await,
        Command::Api(args) => roles::api(*args).await,
        Command::Confirmer(args) => roles::confirmer(*args).await,
        Command::Relay(args) => roles::relay(*args).await,
        Command::Decoder(args) => roles::decoder(*args).await,
        Command::Deleter(args) => roles::deleter(*args).await,
        Command::Janitor(args) => roles::janitor(*args).await,
        Command::Migrate(args) => commands::migrate(&args).await,
        Command::Setup(args) => commands::setup(&args).await,
        Command::Fsck(args) => fsck::fsck(&args).await,
        Command::Reconcile(args) => reconcile::reconcile(&args).await,
        Command::Receipt(args) => receipt::receipt(&args).await,
        Command::Demo(args) => commands::demo(args).await,
        Command::Topology(args) => commands::topology(&args),
    }
}

/// One line a cause: what, then why.
fn report(error: &anyhow::Error) {
    use std::io::Write;
    let mut stderr = std::io::stderr().lock();
    // Nobody is left to tell when stderr is closed.
    let _ = writeln!(stderr, "arkiv: {error:#}");
}
