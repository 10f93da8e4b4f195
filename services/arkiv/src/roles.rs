//! Roles: each with its own pool and its own needs, the same code alone and in `up` (R-I7).

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use broker::Limits;
use cards::Ids;
use confirmer::Confirmer;
use decoder::child::{ChildProgram, Children};
use decoder::{Decoder, Pace};
use deleter::Deleter;
use events::work::Queue;
use intake::{GroupSettings, Intake, OutboxLedger};
use janitor::reconcile::{ReconcileSettings, Reconciler};
use janitor::{Janitor, JanitorSettings};
use objects::link::LinkSigner;
use objects::s3::OPERATION_TIMEOUT;
use objects::ticket::TicketSigner;
use objects::{ObjectStore, S3, S3Settings};
use ops::setup::PutTickets as Probed;
use store::Db;
use telemetry::Metrics;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cli::{ApiRoleArgs, ConsumerArgs, DecoderRoleArgs, JanitorArgs, RelayRoleArgs, UpArgs};
use crate::config::{
    ApiArgs, ApiDatabaseArgs, BrokerArgs, DecoderArgs, HealthArgs, PutTickets, RelayArgs, SignerArgs,
    StoreArgs, WorkerDatabaseArgs,
};
use crate::health::Needs;
use crate::{decoder_child, depths, gate, health, signals};

/// Bucket events a confirmer holds at once: their HEADs overlap, their commits form groups (FACTS 4.3).
const CONFIRM_PREFETCH: u16 = 500;
/// A look that hangs in a listing and a HEAD still ends as what it is, an outage, with time for the probe and the commit
/// (R-B8).
const CONFIRM_TIMEOUT: Duration = OPERATION_TIMEOUT.saturating_mul(2).saturating_add(Duration::from_secs(30));
/// Purges a deleter runs at once: each is six calls that wait for the store, and one short transaction.
const PURGE_PREFETCH: u16 = 16;
/// After SIGTERM work in hand may go on this long; then it is handed back.
const DRAIN: Duration = Duration::from_secs(20);

/// A process: its roles, and what they share.
struct Process {
    shutdown: CancellationToken,
    metrics: Metrics,
    needs: Needs,
    roles: JoinSet<anyhow::Result<()>>,
}

pub(crate) async fn up(args: UpArgs) -> anyhow::Result<ExitCode> {
    let mut process = Process::start()?;
    process.start_confirmer(&args.worker_database, &args.store, &args.broker).await?;
    process.start_relay(&args.worker_database, &args.broker, &args.relay).await?;
    process.start_decoder(&args.worker_database, &args.store, &args.broker, &args.decoder).await?;
    process.start_deleter(&args.worker_database, &args.store, &args.broker).await?;
    let overview = process.start_janitor(&args.worker_database, &args.store).await?;
    // Last: once it answers, all the others run.
    process.start_api(&args.api_database, &args.store, &args.signer, &args.api, overview).await?;
    process.run().await
}

pub(crate) async fn api(args: ApiRoleArgs) -> anyhow::Result<ExitCode> {
    let mut process = Process::start()?;
    process.start_api(&args.database, &args.store, &args.signer, &args.api, None).await?;
    process.run().await
}

pub(crate) async fn confirmer(args: ConsumerArgs) -> anyhow::Result<ExitCode> {
    let mut process = Process::start()?;
    process.start_confirmer(&args.database, &args.store, &args.broker).await?;
    process.serve_health(&args.health, None);
    process.run().await
}

pub(crate) async fn relay(args: RelayRoleArgs) -> anyhow::Result<ExitCode> {
    let mut process = Process::start()?;
    process.start_relay(&args.database, &args.broker, &args.relay).await?;
    process.serve_health(&args.health, None);
    process.run().await
}

pub(crate) async fn decoder(args: DecoderRoleArgs) -> anyhow::Result<ExitCode> {
    let mut process = Process::start()?;
    let consumer = &args.consumer;
    process.start_decoder(&consumer.database, &consumer.store, &consumer.broker, &args.decoder).await?;
    process.serve_health(&consumer.health, None);
    process.run().await
}

pub(crate) async fn deleter(args: ConsumerArgs) -> anyhow::Result<ExitCode> {
    let mut process = Process::start()?;
    process.start_deleter(&args.database, &args.store, &args.broker).await?;
    process.serve_health(&args.health, None);
    process.run().await
}

pub(crate) async fn janitor(args: JanitorArgs) -> anyhow::Result<ExitCode> {
    let mut process = Process::start()?;
    let overview = process.start_janitor(&args.database, &args.store).await?;
    process.serve_health(&args.health, overview);
    process.run().await
}

impl Process {
    fn start() -> anyhow::Result<Self> {
        Ok(Self {
            shutdown: signals::shutdown()?,
            metrics: Metrics::install()?,
            needs: Needs::default(),
            roles: JoinSet::new(),
        })
    }

    /// Runs until a signal, or until a role fails: then the others are stopped too, and a supervisor starts anew.
    async fn run(mut self) -> anyhow::Result<ExitCode> {
        let mut failed = None;
        while let Some(ended) = self.roles.join_next().await {
            let ended = ended.context("a role panicked").and_then(|role| role);
            if let Err(error) = ended {
                self.shutdown.cancel();
                failed.get_or_insert(error);
            }
        }
        failed.map_or(Ok(ExitCode::SUCCESS), Err)
    }

    async fn start_confirmer(
        &mut self,
        database: &WorkerDatabaseArgs,
        store: &StoreArgs,
        broker: &BrokerArgs,
    ) -> anyhow::Result<()> {
        let Some((db, objects)) = self.open(database, store, "confirmer").await? else { return Ok(()) };
        let intake = Intake::new(db.clone(), objects, Ids, GroupSettings::default());
        let handler = Confirmer::new(intake, store.bucket.bucket(), cards::key::SOURCE_PREFIX);
        let limits = Limits { prefetch: CONFIRM_PREFETCH, handler_timeout: CONFIRM_TIMEOUT, drain: DRAIN };
        self.consume(broker.settings("confirmer"), Queue::Confirm, handler, db, limits);
        Ok(())
    }

    async fn start_relay(
        &mut self,
        database: &WorkerDatabaseArgs,
        broker: &BrokerArgs,
        args: &RelayArgs,
    ) -> anyhow::Result<()> {
        let db = Db::new(&database.settings("relay"))?;
        if !gate::database(&db, "relay", &self.shutdown).await {
            return Ok(());
        }
        self.needs.database.get_or_insert_with(|| db.clone());
        let (broker, settings, shutdown) = (broker.settings("relay"), args.settings(), self.shutdown.clone());
        let (relaying, relays) = watch::channel(false);
        self.needs.flows.push(("relay", relays));
        self.roles.spawn(depths::watch(broker.clone(), shutdown.clone()));
        self.roles.spawn(async move {
            relay::run(db, broker, settings, shutdown, relaying).await;
            Ok(())
        });
        Ok(())
    }

    async fn start_decoder(
        &mut self,
        database: &WorkerDatabaseArgs,
        store: &StoreArgs,
        broker: &BrokerArgs,
        args: &DecoderArgs,
    ) -> anyhow::Result<()> {
        let Some((db, objects)) = self.open(database, store, "decoder").await? else { return Ok(()) };
        let path = std::env::current_exe().context("finding this binary, for decoder children")?;
        let program = ChildProgram { path, args: vec![decoder_child::NAME.into()] };
        let children = Children::new(program, args.options(), usize::from(args.parallel()));
        let pace = Pace::default();
        // Jobs that end later than this are aborted by the loop and give their lease back (R-I5).
        debug_assert!(pace.stop_within < DRAIN, "a decoder must stop within the drain limit");
        let decoder = Decoder::new(db.clone(), objects, children, Ids, self.shutdown.clone(), pace);
        let limits =
            Limits { prefetch: args.parallel(), handler_timeout: Decoder::handler_timeout(), drain: DRAIN };
        let handler: Arc<dyn broker::Handler> = Arc::clone(&decoder) as _;
        let consuming = self.consumer(broker.settings("decoder"), Queue::Decode, handler, db, limits);
        self.roles.spawn(async move {
            let ended = consuming.await;
            decoder.shutdown().await;
            ended
        });
        Ok(())
    }

    async fn start_deleter(
        &mut self,
        database: &WorkerDatabaseArgs,
        store: &StoreArgs,
        broker: &BrokerArgs,
    ) -> anyhow::Result<()> {
        let Some((db, objects)) = self.open(database, store, "deleter").await? else { return Ok(()) };
        let handler = Deleter::new(db.clone(), objects, Ids);
        let limits =
            Limits { prefetch: PURGE_PREFETCH, handler_timeout: Deleter::handler_timeout(), drain: DRAIN };
        self.consume(broker.settings("deleter"), Queue::Purge, handler, db, limits);
        Ok(())
    }

    /// Answers the pool that the numbers of all tables may be read with.
    async fn start_janitor(
        &mut self,
        database: &WorkerDatabaseArgs,
        store: &StoreArgs,
    ) -> anyhow::Result<Option<Db>> {
        let Some((db, objects)) = self.open(database, store, "janitor").await? else { return Ok(None) };
        let reconciler = Reconciler::new(db.clone(), Arc::clone(&objects), ReconcileSettings::default());
        let intake = Intake::new(db.clone(), objects, Ids, GroupSettings::default());
        let janitor = Janitor::new(db.clone(), intake, Ids, JanitorSettings::default());
        let shutdown = self.shutdown.clone();
        self.roles.spawn(async move {
            reconciler.watch(shutdown).await;
            Ok(())
        });
        let shutdown = self.shutdown.clone();
        self.roles.spawn(async move {
            janitor.run(shutdown).await;
            Ok(())
        });
        Ok(Some(db))
    }

    async fn start_api(
        &mut self,
        database: &ApiDatabaseArgs,
        store: &StoreArgs,
        signer: &SignerArgs,
        args: &ApiArgs,
        overview: Option<Db>,
    ) -> anyhow::Result<()> {
        let db = Db::new(&database.settings())?;
        let settings = store.settings();
        if !gate::database(&db, "api", &self.shutdown).await
            || !gate::bucket(&settings, "api", &self.shutdown).await?
        {
            return Ok(());
        }
        let tickets = signer.tickets(&store.bucket);
        let put_tickets = may_give_put_tickets(args, &settings, &tickets).await;
        let objects: Arc<dyn ObjectStore> = Arc::new(S3::new(&settings));
        self.needs.database = Some(db.clone());
        self.needs.objects = Some(Arc::clone(&objects));
        let deps = ::api::Deps {
            intake: Intake::new(db.clone(), objects, Ids, GroupSettings::default()),
            db,
            overview,
            tickets: TicketSigner::new(tickets),
            links: LinkSigner::new(signer.links(&store.bucket)),
            ids: Ids,
            metrics: self.metrics.clone(),
            health: Arc::new(self.needs.clone()),
            clock: ::api::system_clock,
        };
        let (settings, shutdown) = (args.settings(put_tickets)?, self.shutdown.clone());
        self.roles.spawn(async move { Ok(::api::serve(settings, deps, shutdown).await?) });
        Ok(())
    }

    /// Waits for database and bucket; none: the process was asked to stop meanwhile.
    async fn open(
        &mut self,
        database: &WorkerDatabaseArgs,
        store: &StoreArgs,
        role: &str,
    ) -> anyhow::Result<Option<(Db, Arc<dyn ObjectStore>)>> {
        let db = Db::new(&database.settings(role))?;
        let settings = store.settings();
        if !gate::database(&db, role, &self.shutdown).await
            || !gate::bucket(&settings, role, &self.shutdown).await?
        {
            return Ok(None);
        }
        let objects: Arc<dyn ObjectStore> = Arc::new(S3::new(&settings));
        self.needs.database.get_or_insert_with(|| db.clone());
        self.needs.objects.get_or_insert_with(|| Arc::clone(&objects));
        Ok(Some((db, objects)))
    }

    fn consume(
        &mut self,
        broker: broker::Settings,
        queue: Queue,
        handler: Arc<dyn broker::Handler>,
        db: Db,
        limits: Limits,
    ) {
        let consuming = self.consumer(broker, queue, handler, db, limits);
        self.roles.spawn(consuming);
    }

    /// A consumer, to be run as a role.
    fn consumer(
        &mut self,
        broker: broker::Settings,
        queue: Queue,
        handler: Arc<dyn broker::Handler>,
        db: Db,
        limits: Limits,
    ) -> impl Future<Output = anyhow::Result<()>> + use<> {
        let ledger = Arc::new(OutboxLedger::new(db, Ids));
        let (consuming, flows) = watch::channel(false);
        self.needs.flows.push((queue.as_str(), flows));
        let shutdown = self.shutdown.clone();
        async move {
            Ok(broker::consume_and_report(broker, queue, handler, ledger, limits, shutdown, consuming)
                .await?)
        }
    }

    fn serve_health(&mut self, args: &HealthArgs, overview: Option<Db>) {
        let Some(listen) = args.health_listen else { return };
        let (needs, metrics, shutdown) = (self.needs.clone(), self.metrics.clone(), self.shutdown.clone());
        self.roles.spawn(health::serve(listen, needs, metrics, overview, shutdown));
    }
}

/// R-A2: PUT tickets only where the store heeds what they sign and refuses the rest; asked of the store itself.
async fn may_give_put_tickets(args: &ApiArgs, store: &S3Settings, signer: &objects::SignerSettings) -> bool {
    match args.put_tickets {
        PutTickets::Off => false,
        PutTickets::Auto => match ops::setup::probe_put_tickets(store, signer).await {
            Probed::Allowed => true,
            Probed::Refused { reason } => {
                tracing::warn!(reason, "PUT tickets are refused on this store; POST tickets are given");
                false
            }
        },
    }
}
