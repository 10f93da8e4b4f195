//! A real RabbitMQ, one prefix of names a test, and parts to put a consumer together from.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use broker::{
    BrokerError, Delivery, Due, Handler, Ledger, LedgerError, Limits, Outcome, Published, Publisher, Reason,
    Retry, Settings, topology,
};
use events::work::{Outgoing, Queue};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The longest any condition is waited for: a broker's restart on a busy machine fits.
pub(crate) const BOUND: Duration = Duration::from_mins(3);

/// A broker under a prefix of one test.
#[derive(Clone, Debug)]
pub(crate) struct Rig {
    pub(crate) settings: Settings,
    pub(crate) store: Settings,
    pub(crate) management: String,
}

/// Runs a test under a prefix of its own, and removes what it declared, failed or not.
pub(crate) async fn with_rig(test: impl AsyncFnOnce(Rig)) {
    let url = |name: &str| setting(name);
    let rig =
        Rig::at(&url("ARKIV_AMQP_URL"), &url("ARKIV_AMQP_STORE_URL"), &url("ARKIV_AMQP_MANAGEMENT_URL"));
    topology::declare(&rig.settings).await.unwrap();
    let outcome = std::panic::AssertUnwindSafe(test(rig.clone())).catch_unwind().await;
    let removed = topology::remove(&rig.settings).await;
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
    removed.unwrap();
}

impl Rig {
    pub(crate) fn at(url: &str, store_url: &str, management: &str) -> Self {
        let id = cards::Ids.message().to_string();
        // The end of a UUIDv7: its beginning is the time, and tests start together.
        let name = format!("t-{}", &id[24..]);
        let settings =
            |url: &str| Settings { url: url.to_owned(), prefix: format!("{name}."), name: name.clone() };
        Self { settings: settings(url), store: settings(store_url), management: management.to_owned() }
    }

    /// Publishes rows, each of which must be confirmed.
    pub(crate) async fn publish(&self, rows: &[Outgoing]) {
        let mut publisher = Publisher::new(self.settings.clone());
        publisher.ready().await.unwrap();
        let answers = publisher.publish(rows, Duration::from_secs(10)).await.unwrap();
        assert!(answers.iter().all(|answer| *answer == Published::Confirmed), "{answers:?}");
    }

    pub(crate) async fn count(&self, queue: &str) -> u32 {
        broker::testing::count(&self.settings, queue).await.unwrap()
    }

    /// Waits until a queue holds exactly this many ready messages.
    pub(crate) async fn until_count(&self, queue: &str, count: u32) {
        eventually(&format!("{count} in {queue}"), async || (self.count(queue).await == count).then_some(()))
            .await;
    }

    /// The broker's names of this test's connections whose own name holds `role`. A new one shows up after a second.
    pub(crate) async fn connections(&self, role: &str) -> Vec<String> {
        let (url, user, password) = self.management_parts();
        let list = reqwest::Client::new().get(format!("{url}/api/connections"));
        let answer = list.basic_auth(&user, Some(&password)).send().await.unwrap();
        let found: Vec<serde_json::Value> = answer.json().await.unwrap();
        let ours = found.iter().filter(|connection| {
            let name = connection["user_provided_name"].as_str().unwrap_or_default();
            name.starts_with(&self.settings.name) && name.contains(role)
        });
        ours.map(|connection| connection["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Ends them from the broker's side. How many there were.
    pub(crate) async fn close_connections(&self, role: &str) -> usize {
        let (url, user, password) = self.management_parts();
        let mut closed = 0;
        for name in self.connections(role).await {
            let name = name.replace(' ', "%20").replace('>', "%3E");
            let delete = reqwest::Client::new().delete(format!("{url}/api/connections/{name}"));
            let answer = delete.basic_auth(&user, Some(&password)).send().await.unwrap();
            closed += usize::from(answer.status().is_success());
        }
        closed
    }

    /// Sets (or, with `None`, removes) an operator policy that caps one queue's length below what it was declared with.
    pub(crate) async fn cap(&self, queue: &str, messages_max: Option<u32>) {
        let client = reqwest::Client::new();
        let (url, user, password) = self.management_parts();
        let policy = format!("{url}/api/operator-policies/%2f/{}", self.settings.name);
        let request = match messages_max {
            Some(max) => client.put(policy).json(&serde_json::json!({
                "pattern": format!("^{}{queue}$", self.settings.prefix),
                "apply-to": "queues",
                "definition": { "max-length": max },
            })),
            None => client.delete(policy),
        };
        let answer = request.basic_auth(&user, Some(&password)).send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    }

    /// Makes a queue under this prefix that is durable and nothing else.
    pub(crate) async fn plain_queue(&self, queue: &str) {
        let (url, user, password) = self.management_parts();
        let path = format!("{url}/api/queues/%2f/{}{queue}", self.settings.prefix);
        let request = reqwest::Client::new().put(path).json(&serde_json::json!({ "durable": true }));
        let answer = request.basic_auth(&user, Some(&password)).send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    }

    fn management_parts(&self) -> (String, String, String) {
        let (scheme, rest) = self.management.split_once("://").unwrap();
        let (userinfo, host) = rest.rsplit_once('@').unwrap();
        let (user, password) = userinfo.split_once(':').unwrap();
        (format!("{scheme}://{host}"), user.to_owned(), password.to_owned())
    }
}

/// A first attempt for a queue, with `n` in its body.
pub(crate) fn row(queue: Queue, n: usize) -> Outgoing {
    Outgoing {
        queue,
        message_id: cards::Ids.message(),
        attempt: 1,
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned()),
        body: n.to_string().into_bytes(),
    }
}

pub(crate) fn rows(queue: Queue, count: usize) -> Vec<Outgoing> {
    (0..count).map(|n| row(queue, n)).collect()
}

/// The number a body carries.
pub(crate) fn number(body: &[u8]) -> usize {
    std::str::from_utf8(body).unwrap().parse().unwrap()
}

/// Waits for a condition, within [`BOUND`].
pub(crate) async fn eventually<T>(what: &str, mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + BOUND;
    loop {
        if let Some(found) = condition().await {
            return found;
        }
        assert!(Instant::now() < end, "waited {BOUND:?} for: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

type Script = Box<dyn Fn(Delivery) -> BoxFuture<'static, Outcome> + Send + Sync>;

/// A handler that does what a test says, and notes what it saw.
pub(crate) struct Scripted {
    script: Script,
    pub(crate) seen: Mutex<Vec<Delivery>>,
    pub(crate) back: AtomicBool,
    pub(crate) probes: AtomicUsize,
    running: AtomicUsize,
    pub(crate) most_at_once: AtomicUsize,
}

impl Scripted {
    pub(crate) fn new<F>(script: impl Fn(Delivery) -> F + Send + Sync + 'static) -> Arc<Self>
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        Arc::new(Self {
            script: Box::new(move |delivery| script(delivery).boxed()),
            seen: Mutex::default(),
            back: AtomicBool::new(true),
            probes: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            most_at_once: AtomicUsize::new(0),
        })
    }

    /// How often each body was handled.
    pub(crate) fn tally(&self) -> BTreeMap<usize, usize> {
        let mut tally = BTreeMap::new();
        for delivery in self.seen.lock().unwrap().iter() {
            *tally.entry(number(&delivery.body)).or_default() += 1;
        }
        tally
    }

    pub(crate) async fn until_probed(&self, times: usize) {
        eventually(&format!("{times} probes"), async || {
            (self.probes.load(Ordering::SeqCst) >= times).then_some(())
        })
        .await;
    }

    pub(crate) async fn until_seen(&self, count: usize) {
        eventually(&format!("{count} messages seen"), async || (self.tally().len() >= count).then_some(()))
            .await;
    }
}

#[async_trait]
impl Handler for Scripted {
    async fn handle(&self, delivery: &Delivery) -> Outcome {
        self.seen.lock().unwrap().push(delivery.clone());
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_at_once.fetch_max(running, Ordering::SeqCst);
        let outcome = (self.script)(delivery.clone()).await;
        self.running.fetch_sub(1, Ordering::SeqCst);
        outcome
    }

    async fn probe(&self) -> bool {
        self.probes.fetch_add(1, Ordering::SeqCst);
        self.back.load(Ordering::SeqCst)
    }
}

/// What the ledger was asked to write.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Entry {
    Retry { n: usize, attempt: u32, due: Due, code: &'static str },
    Dead { n: usize, code: &'static str, detail: String },
}

/// A ledger in memory that can be away.
#[derive(Default)]
pub(crate) struct Notebook {
    pub(crate) entries: Mutex<Vec<Entry>>,
    pub(crate) retries: Mutex<Vec<Outgoing>>,
    pub(crate) away: AtomicBool,
    /// While held, a retry waits for `release`.
    pub(crate) held: AtomicBool,
    pub(crate) release: Notify,
}

impl Notebook {
    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.entries.lock().unwrap().clone()
    }

    fn write(&self, entry: Entry) -> Result<(), LedgerError> {
        if self.away.load(Ordering::SeqCst) {
            return Err("the database is away".into());
        }
        self.entries.lock().unwrap().push(entry);
        Ok(())
    }
}

#[async_trait]
impl Ledger for Notebook {
    async fn retry(&self, retry: Retry<'_>) -> Result<(), LedgerError> {
        let Retry { delivery, attempt, due, reason } = retry;
        if self.held.load(Ordering::SeqCst) {
            self.release.notified().await;
        }
        self.write(Entry::Retry { n: number(&delivery.body), attempt, due, code: reason.code })?;
        self.retries.lock().unwrap().push(Outgoing {
            queue: delivery.queue,
            message_id: cards::Ids.message(),
            attempt,
            traceparent: delivery.traceparent.clone(),
            body: delivery.body.clone(),
        });
        Ok(())
    }

    async fn dead(&self, delivery: &Delivery, reason: &Reason) -> Result<(), LedgerError> {
        self.write(Entry::Dead {
            n: number(&delivery.body),
            code: reason.code,
            detail: reason.detail.clone(),
        })
    }
}

/// A consumer at work.
pub(crate) struct Running {
    pub(crate) ledger: Arc<Notebook>,
    pub(crate) shutdown: CancellationToken,
    pub(crate) consuming: watch::Receiver<bool>,
    task: JoinHandle<Result<(), BrokerError>>,
}

pub(crate) fn limits(prefetch: u16) -> Limits {
    Limits { prefetch, handler_timeout: Duration::from_secs(30), drain: Duration::from_secs(30) }
}

impl Running {
    pub(crate) fn start(rig: &Rig, queue: Queue, handler: &Arc<Scripted>, limits: Limits) -> Self {
        let ledger = Arc::new(Notebook::default());
        let shutdown = CancellationToken::new();
        let (report, consuming) = watch::channel(false);
        let task = tokio::spawn(broker::consume_and_report(
            rig.settings.clone(),
            queue,
            Arc::clone(handler) as Arc<dyn Handler>,
            Arc::clone(&ledger) as Arc<dyn Ledger>,
            limits,
            shutdown.clone(),
            report,
        ));
        Self { ledger, shutdown, consuming, task }
    }

    pub(crate) async fn until_consuming(&mut self, up: bool) {
        tokio::time::timeout(BOUND, self.consuming.wait_for(|now| *now == up)).await.unwrap().unwrap();
    }

    /// Asks it to end, and waits until it has.
    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        self.ended().await;
    }

    pub(crate) async fn ended(self) {
        tokio::time::timeout(BOUND, self.task).await.unwrap().unwrap().unwrap();
    }
}

/// A setting from the environment, else from `.dev/env`.
pub(crate) fn setting(name: &str) -> String {
    #[expect(clippy::disallowed_methods, reason = "tests have no settings module above them")]
    if let Ok(value) = std::env::var(name) {
        return value;
    }
    let root = checkout();
    let text = std::fs::read_to_string(root.join(".dev/env")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    line.unwrap_or_else(|| panic!("{name} is not in .dev/env; run ./dev servers")).to_owned()
}

/// The folder that holds `.dev/env`.
pub(crate) fn checkout() -> PathBuf {
    let mut folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    while !folder.join(".dev/env").exists() {
        assert!(folder.pop(), "there is no .dev/env above this crate; run ./dev servers");
    }
    folder
}
