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
    /// Bring the bucket to what the cards say: deleted, refused, surplus and late bytes go.
    Deleter(Box<ConsumerArgs>),
    /// Look at every unfinished card when its time comes.
    Janitor(Box<JanitorArgs>),
    /// Bring the database's schema to this version.
    Migrate(MigrateArgs),
    /// Make bucket, identities' policy, notifications and queues; repeatable.
    Setup(Box<SetupRoleArgs>),
    /// Check that bucket and database say the same and nothing is forgotten; read-only.
    Fsck(Box<FsckArgs>),
    /// Find objects that no card keeps, and with --apply remove them; alarm where an object is missing.
    #[command(
        long_about = "Walks over every version in the bucket and over every card, and says where they disagree. The janitor \
                  does the same once a day.\n\n\
                  Without --apply nothing is removed: strays are counted and remembered. With it, the purges of known \
                  cards with strays are asked for, and versions of no card are removed that were first seen 24 hours \
                  ago or earlier, at least twice, at most 10,000 a run. Nothing goes when more than 1 % are strays, or \
                  when the database was restored. A run that was stopped is gone on with."
    )]
    Reconcile(Box<ReconcileArgs>),
    /// Show what was removed of a deleted file, and what proves that nothing is left.
    Receipt(Box<ReceiptArgs>),
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
#[command(
    after_help = "Exit codes: 0 nothing is wrong, 1 an invariant does not hold (--strict: or a warning), \
                        75 database or store did not answer."
)]
pub(crate) struct FsckArgs {
    /// Check this card only.
    #[arg(long, value_name = "ID")]
    pub(crate) card: Option<cards::CardId>,
    /// Warnings count for the exit code too.
    #[arg(long)]
    pub(crate) strict: bool,
    /// JSON on stdout, and nothing else there.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) database: WorkerDatabaseArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 done, 1 somebody should look: objects are missing, too many strays, another database, or \
                  removals failed; 75 database or store did not answer, or another process reconciles."
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct ReconcileArgs {
    /// Remove what the rules allow.
    #[arg(long)]
    pub(crate) apply: bool,
    /// Look and count only; the default.
    #[arg(long, conflicts_with = "apply")]
    pub(crate) dry_run: bool,
    /// With --apply: remove although more than 1 % are strays, if they are at most so many.
    #[arg(long, value_name = "N", requires = "apply")]
    pub(crate) allow_strays: Option<u64>,
    /// After a restore: this database is the truth. For a day nothing is removed, by anybody: look at the strays meanwhile.
    #[arg(long, conflicts_with = "apply")]
    pub(crate) accept_restore: bool,
    /// JSON on stdout, and nothing else there.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) database: WorkerDatabaseArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 shown, 1 there is none (yet), 75 the database did not answer.")]
pub(crate) struct ReceiptArgs {
    #[command(flatten)]
    pub(crate) database: WorkerDatabaseArgs,
    /// The file's id, as in the API's paths.
    #[arg(value_name = "ID")]
    pub(crate) card: cards::CardId,
    /// JSON on stdout, as GET /v1/files/{id}/receipt answers it.
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
        for role in [
            "up",
            "api",
            "confirmer",
            "relay",
            "decoder",
            "deleter",
            "janitor",
            "receipt",
            "migrate",
            "setup",
            "fsck",
            "reconcile",
            "demo",
            "topology",
        ] {
            let error = Cli::try_parse_from(["arkiv", role, "--help"]).unwrap_err();
            assert_eq!(error.kind(), clap::error::ErrorKind::DisplayHelp, "{role}");
        }
    }
}
