//! The command line.

use clap::{Args, Parser, Subcommand};

use crate::config::{
    ApiArgs, ApiDatabaseArgs, BrokerArgs, DecoderArgs, HealthArgs, LogArgs, OwnerDatabaseArgs, RelayArgs,
    SetupArgs, SignerArgs, StoreArgs, WorkerDatabaseArgs,
};

/// File intake: presigned uploads, confirmed by the bucket's own events.
#[derive(Debug, Parser)]
#[command(
    name = "arkiv",
    version,
    propagate_version = true,
    after_help = "Every setting is a flag or an environment variable, shown with each role: arkiv up --help.\n\
                  Exit codes: 0 done, 1 failed, 2 wrong usage, 75 a dependency did not answer in time."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run every role in this process: for a laptop, or a small site.
    Up(Box<UpArgs>),
    /// Serve HTTP: tickets, files, links, confirmation on request.
    Api(Box<ApiRoleArgs>),
    /// Follow the bucket's events and confirm uploads.
    Confirmer(Box<ConsumerArgs>),
    /// Publish committed outbox rows.
    Relay(Box<RelayRoleArgs>),
    /// Read, check and preview uploads, and promote them.
    Decoder(Box<DecoderRoleArgs>),
    /// Look at every unfinished card when its time comes.
    Janitor(Box<JanitorArgs>),
    /// Bring the database's schema to this version.
    Migrate(MigrateArgs),
    /// Make bucket, identities' policy, notifications and queues; repeatable.
    Setup(Box<SetupRoleArgs>),
    /// Upload made samples as a browser would and watch them travel to ready.
    Demo(DemoArgs),
    /// Print the table of exchanges, queues and bindings.
    Topology(TopologyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    pub(crate) worker_database: WorkerDatabaseArgs,
    #[command(flatten)]
    pub(crate) api_database: ApiDatabaseArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) signer: SignerArgs,
    #[command(flatten)]
    pub(crate) broker: BrokerArgs,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
    #[command(flatten)]
    pub(crate) relay: RelayArgs,
    #[command(flatten)]
    pub(crate) decoder: DecoderArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ApiRoleArgs {
    #[command(flatten)]
    pub(crate) database: ApiDatabaseArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) signer: SignerArgs,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ConsumerArgs {
    #[command(flatten)]
    pub(crate) database: WorkerDatabaseArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) broker: BrokerArgs,
    #[command(flatten)]
    pub(crate) health: HealthArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RelayRoleArgs {
    #[command(flatten)]
    pub(crate) database: WorkerDatabaseArgs,
    #[command(flatten)]
    pub(crate) broker: BrokerArgs,
    #[command(flatten)]
    pub(crate) relay: RelayArgs,
    #[command(flatten)]
    pub(crate) health: HealthArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DecoderRoleArgs {
    #[command(flatten)]
    pub(crate) consumer: ConsumerArgs,
    #[command(flatten)]
    pub(crate) decoder: DecoderArgs,
}

#[derive(Debug, Args)]
pub(crate) struct JanitorArgs {
    #[command(flatten)]
    pub(crate) database: WorkerDatabaseArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) health: HealthArgs,
}

#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    #[command(flatten)]
    pub(crate) database: OwnerDatabaseArgs,
    /// JSON on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SetupRoleArgs {
    #[command(flatten)]
    pub(crate) setup: SetupArgs,
    #[command(flatten)]
    pub(crate) broker: BrokerArgs,
    /// Say what would be done, and write nothing anywhere.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// JSON on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Where the API answers.
    #[arg(long, env = "ARKIV_PUBLIC_URL", default_value = "http://127.0.0.1:8080")]
    pub(crate) api_url: String,
    /// Longest time one file may take, in seconds.
    #[arg(long, default_value_t = 60)]
    pub(crate) timeout_seconds: u64,
    /// JSON on stdout, and nothing else there.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TopologyArgs {
    /// JSON on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_role_can_be_asked_for_help() {
        for role in
            ["up", "api", "confirmer", "relay", "decoder", "janitor", "migrate", "setup", "demo", "topology"]
        {
            let error = Cli::try_parse_from(["arkiv", role, "--help"]).unwrap_err();
            assert_eq!(error.kind(), clap::error::ErrorKind::DisplayHelp, "{role}");
        }
    }
}
