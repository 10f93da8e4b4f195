//! The loop around a [`Handler`]: it connects, takes messages, has them handled side by side, acks, and starts over
//! whenever the connection breaks. Only shutdown ends it.
//!
//! One session is one channel. It ends in one of three ways:
//! - **shutdown**: cancel the consumer, let the handlers in flight end (up to [`Limits::drain`]), settle them, close;
//!   closing hands the rest back (R-I5).
//! - **outage**: the same, so every delivery in hand goes back exactly once; then [`Handler::probe`] is asked, at
//!   growing intervals, until it says yes (R-C7). No message is used as a probe, and no attempt. A probe can be wrong:
//!   after an outage one message is taken in at a time until one was settled, so that the next outage hands back one
//!   delivery and not a prefetch window of them (the broker's delivery limit counts each), and the intervals start
//!   anew only after a session that did not end in another outage at once.
//! - **lost** (connection, channel or queue): connect again, declare the topology again. Handlers in flight go on, but
//!   nothing is written for them any more: the broker has already given their messages to somebody.

use std::sync::Arc;
use std::time::{Duration, Instant};

use events::work::Queue;
use futures::StreamExt as _;
use lapin::options::{BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Connection};
use telemetry::metric;
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::acks::AckTracker;
use crate::connection::{self, STEP_WITHIN, short, within};
use crate::dead::DeadLetters;
use crate::settle::{Message, Settled, Settler, panic_text};
use crate::topology::declare_on;
use crate::waits::Waits;
use crate::{BrokerError, Delivery, Handler, Ledger, Reason, Settings};

/// For one [`Handler::probe`].
const PROBE_WITHIN: Duration = Duration::from_secs(10);
/// A session that lasted this long was no failed start: the next wait is a short one again.
const SESSION_PROVEN: Duration = Duration::from_mins(1);

/// How much a consumer takes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many messages it holds and handles at once.
    pub prefetch: u16,
    /// How long one handler may take. Far below the broker's own limit of 30 minutes for an unacked message, which
    /// closes the channel (O-MQ-02).
    pub handler_timeout: Duration,
    /// How long handlers in flight may go on after shutdown, or once an outage began.
    pub drain: Duration,
}

/// Consumes `queue` until `shutdown`. An error is a setting no retry can mend; everything else is retried for ever.
pub async fn consume(
    settings: Settings,
    queue: Queue,
    handler: Arc<dyn Handler>,
    ledger: Arc<dyn Ledger>,
    limits: Limits,
    shutdown: CancellationToken,
) -> Result<(), BrokerError> {
    consume_and_report(settings, queue, handler, ledger, limits, shutdown, watch::Sender::new(false)).await
}

/// [`consume`], and `consuming` says whether messages flow right now: not while connecting, and not in an outage
/// (O-MQ-01). For `/readyz`.
pub async fn consume_and_report(
    settings: Settings,
    queue: Queue,
    handler: Arc<dyn Handler>,
    ledger: Arc<dyn Ledger>,
    limits: Limits,
    shutdown: CancellationToken,
    consuming: watch::Sender<bool>,
) -> Result<(), BrokerError> {
    let settler = Settler {
        handler,
        ledger,
        dead: DeadLetters::new(settings.clone()),
        handler_timeout: limits.handler_timeout,
    };
    let mut worker = Worker {
        permits: Arc::new(Semaphore::new(usize::from(limits.prefetch.max(1)))),
        settings,
        queue,
        settler: Arc::new(settler),
        limits,
        shutdown,
        consuming,
        jobs: JoinSet::new(),
        session: 0,
        on_trial: false,
    };
    worker.run().await
}

struct Worker {
    settings: Settings,
    queue: Queue,
    settler: Arc<Settler>,
    limits: Limits,
    shutdown: CancellationToken,
    consuming: watch::Sender<bool>,
    /// Messages being handled, those of lost sessions included.
    jobs: JoinSet<Job>,
    /// Keeps the number of handlers at `prefetch` when a lost session's are still running beside the new one's.
    permits: Arc<Semaphore>,
    /// The number of the current session.
    session: u64,
    /// Since an outage nothing was settled yet: one message at a time.
    on_trial: bool,
}

/// A message that has been handled.
struct Job {
    session: u64,
    tag: u64,
    settled: Settled,
}

/// One channel with its consumer.
struct Session {
    connection: Connection,
    channel: Channel,
    deliveries: lapin::Consumer,
    acks: AckTracker,
    acked_any: bool,
}

/// What ended jobs came to.
#[derive(Default)]
struct Taken {
    /// One of this session's was settled.
    any_settled: bool,
    outage: Option<Reason>,
}

/// Why a session ended.
enum End {
    Shutdown,
    Outage(Reason),
    Lost(BrokerError),
}

impl Worker {
    async fn run(&mut self) -> Result<(), BrokerError> {
        let shutdown = self.shutdown.clone();
        let mut connects = Waits::new();
        let mut outages = Waits::new();
        self.paused(false);
        loop {
            let opened = tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                opened = self.open() => opened,
            };
            let (end, acked_any, is_proven) = match opened {
                Ok(mut session) => {
                    tracing::info!(queue = %self.queue, "consuming");
                    self.consuming.send_replace(true);
                    let begun = Instant::now();
                    let end = self.session(&mut session).await;
                    let is_proven = begun.elapsed() >= SESSION_PROVEN;
                    self.consuming.send_replace(false);
                    let (end, acked_any) = self.close(session, end).await;
                    (end, acked_any, is_proven)
                }
                Err(BrokerError::Url) => return Err(BrokerError::Url),
                Err(error) => (End::Lost(error), false, false),
            };
            if acked_any || is_proven {
                connects.reset();
            }
            match end {
                End::Shutdown => break,
                End::Lost(error) => {
                    if acked_any || is_proven {
                        outages.reset();
                    }
                    let wait = connects.next();
                    let (queue, error) = (self.queue.as_str(), error.chain());
                    tracing::warn!(queue, error, ?wait, "the broker is lost; connecting again");
                    if shutdown.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
                        break;
                    }
                }
                End::Outage(reason) => {
                    // Some acks and the next outage at once: the probe does not see what is wrong.
                    if is_proven {
                        outages.reset();
                    }
                    self.on_trial = true;
                    let Reason { code, detail } = reason;
                    let queue = self.queue.as_str();
                    tracing::error!(
                        queue,
                        code,
                        detail,
                        "a dependency is away; messages handed back, paused"
                    );
                    self.paused(true);
                    if shutdown.run_until_cancelled(self.until_back(&mut outages)).await.is_none() {
                        break;
                    }
                    self.paused(false);
                    tracing::info!(queue = %self.queue, "the dependency answers again");
                }
            }
        }
        // Handlers of lost sessions, if any: theirs is a message that somebody else has, but their work may be nearly done.
        self.drain(None).await;
        Ok(())
    }

    fn paused(&self, paused: bool) {
        let gauge = metrics::gauge!(metric::CONSUMER_PAUSED, "queue" => self.queue.as_str());
        gauge.set(if paused { 1.0 } else { 0.0 });
    }

    async fn open(&mut self) -> Result<Session, BrokerError> {
        let connection = connection::connect(&self.settings, self.queue.as_str()).await?;
        let channel = connection::channel(&connection).await?;
        declare_on(&channel, &self.settings).await?;
        let deliveries = self.subscribe(&channel).await?;
        self.session += 1;
        Ok(Session { connection, channel, deliveries, acks: AckTracker::default(), acked_any: false })
    }

    /// Starts a consumer. The limit in force is the one set before it, for each consumer alone.
    async fn subscribe(&self, channel: &Channel) -> Result<lapin::Consumer, BrokerError> {
        let prefetch = if self.on_trial { 1 } else { self.limits.prefetch.max(1) };
        let qos = channel.basic_qos(prefetch, BasicQosOptions::default());
        within("basic.qos", STEP_WITHIN, qos).await?.map_err(BrokerError::step("basic.qos"))?;
        let consuming = channel.basic_consume(
            short(&self.settings.prefixed(self.queue.as_str()))?,
            "".into(),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        );
        within("basic.consume", STEP_WITHIN, consuming).await?.map_err(BrokerError::step("basic.consume"))
    }

    /// The trial is over: a new consumer with all places takes over. To be called before the tried message is acked:
    /// until then the old consumer's only place is taken, so nothing can be on its way to it.
    async fn end_trial(&mut self, session: &mut Session) -> Result<(), BrokerError> {
        session.cancel().await?;
        self.on_trial = false;
        session.deliveries = self.subscribe(&session.channel).await?;
        Ok(())
    }

    /// Takes and acks messages until something ends it.
    async fn session(&mut self, session: &mut Session) -> End {
        let shutdown = self.shutdown.clone();
        loop {
            let ended = tokio::select! {
                biased;
                () = shutdown.cancelled() => Some(End::Shutdown),
                Some(joined) = self.jobs.join_next() => self.finish(session, joined).await,
                next = session.deliveries.next() => match next {
                    Some(Ok(message)) => {
                        self.start(session, message);
                        None
                    }
                    Some(Err(error)) => Some(End::Lost(BrokerError::Step { step: "consuming", source: error })),
                    None => Some(End::Lost(BrokerError::Cancelled)),
                },
            };
            if let Some(end) = ended {
                return end;
            }
        }
    }

    fn start(&mut self, session: &Session, mut message: lapin::message::Delivery) {
        let tag = message.delivery_tag;
        let delivery = Delivery::receive(self.queue, &mut message);
        let message = Arc::new(Message { delivery, properties: message.properties });
        let (settler, permits, channel) =
            (Arc::clone(&self.settler), Arc::clone(&self.permits), session.channel.clone());
        let session = self.session;
        self.jobs.spawn(async move {
            // The semaphore is never closed. A message whose channel died while it waited here is somebody else's.
            let settled = match permits.acquire().await {
                Ok(_permit) if channel.status().connected() => settler.run(message, channel).await,
                Ok(_) | Err(_) => Settled::Stale,
            };
            Job { session, tag, settled }
        });
    }

    /// Takes in what has ended, and acks it.
    async fn finish(&mut self, session: &mut Session, joined: Result<Job, JoinError>) -> Option<End> {
        let taken = self.take_in(session, joined);
        if self.on_trial
            && taken.any_settled
            && taken.outage.is_none()
            && let Err(error) = self.end_trial(session).await
        {
            return Some(End::Lost(error));
        }
        if let Err(error) = session.ack().await {
            return Some(End::Lost(error));
        }
        taken.outage.map(End::Outage)
    }

    /// Takes in this job and every other that has ended by now, so that one ack may serve many.
    fn take_in(&mut self, session: &mut Session, joined: Result<Job, JoinError>) -> Taken {
        let mut taken = Taken::default();
        let mut joined = Some(joined);
        while let Some(job) = joined.take() {
            match job {
                Ok(Job { session, .. }) if session != self.session => {}
                Ok(Job { tag, settled: Settled::Ack, .. }) => {
                    session.acks.finish(tag);
                    taken.any_settled = true;
                }
                Ok(Job { settled: Settled::Outage(reason), .. }) => taken.outage = Some(reason),
                Ok(Job { settled: Settled::Stale, .. }) => {}
                // Not the handler: that one's panics are contained. The ledger's, or a bug of ours.
                Err(error) => taken.outage = Some(Reason::new("panic", panic_text(error))),
            }
            joined = self.jobs.try_join_next();
        }
        taken
    }

    /// Lets handlers end, acks what they did, and closes: whatever is unacked then goes back, once. Nothing of this is
    /// possible, nor needed, on a lost channel.
    async fn close(&mut self, mut session: Session, end: End) -> (End, bool) {
        match &end {
            End::Shutdown | End::Outage(_) => {
                if session.cancel().await.is_ok() {
                    self.drain(Some(&mut session)).await;
                }
                // Nobody works on a message that goes back.
                self.jobs.shutdown().await;
            }
            End::Lost(_) => {}
        }
        connection::close(&session.connection).await;
        (end, session.acked_any)
    }

    /// Waits for the handlers in flight, up to the drain limit.
    async fn drain(&mut self, mut session: Option<&mut Session>) {
        let limit = self.limits.drain;
        let draining = async {
            while let Some(joined) = self.jobs.join_next().await {
                if let Some(session) = session.as_deref_mut() {
                    // A second outage, or a loss, changes nothing: this session is ending.
                    let _taken = self.take_in(session, joined);
                    let _acked = session.ack().await;
                }
            }
        };
        if tokio::time::timeout(limit, draining).await.is_err() {
            let (queue, left) = (self.queue.as_str(), self.jobs.len());
            tracing::warn!(queue, left, ?limit, "handlers did not end in time; their messages go back");
        }
    }

    /// Ends when the handler's dependencies answer.
    async fn until_back(&self, waits: &mut Waits) {
        loop {
            tokio::time::sleep(waits.next()).await;
            let handler = Arc::clone(&self.settler.handler);
            let probe = AbortOnDropHandle::new(tokio::spawn(async move { handler.probe().await }));
            // Late, or panicked: not back.
            if let Ok(Ok(true)) = tokio::time::timeout(PROBE_WITHIN, probe).await {
                return;
            }
        }
    }
}

impl Session {
    /// Ends the consumer. What it brought can still be acked.
    async fn cancel(&self) -> Result<(), BrokerError> {
        let cancel = self.channel.basic_cancel(self.deliveries.tag(), BasicCancelOptions::default());
        within("basic.cancel", STEP_WITHIN, cancel).await?.map_err(BrokerError::step("basic.cancel"))
    }

    async fn ack(&mut self) -> Result<(), BrokerError> {
        for ack in self.acks.take() {
            let options = BasicAckOptions { multiple: ack.multiple };
            let acking = self.channel.basic_ack(ack.tag, options);
            within("basic.ack", STEP_WITHIN, acking).await?.map_err(BrokerError::step("basic.ack"))?;
            self.acked_any = true;
        }
        Ok(())
    }
}
