//! A whole product for one test: its own database, broker and bucket, and the real binary's processes.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use cards::Ids;
use objects::{ObjectStore, S3};
use serde_json::{Value, json};
use testkit::{Env, PrivateBroker, TestBroker, TestBucket, TestDb, until};

/// No wait in these tests is longer.
pub(crate) const BOUND: Duration = Duration::from_mins(5);

/// The broker of a stack.
pub(crate) enum Broker {
    /// A vhost of the development broker.
    Shared(TestBroker),
    /// A broker of its own, that may be killed.
    Private(PrivateBroker),
}

impl Broker {
    fn urls(&self) -> (&str, &str) {
        match self {
            Self::Shared(broker) => (&broker.url, &broker.store_url),
            Self::Private(broker) => (&broker.url, &broker.store_url),
        }
    }

    pub(crate) fn settings(&self) -> broker::Settings {
        match self {
            Self::Shared(broker) => broker.settings(),
            Self::Private(broker) => broker.settings(),
        }
    }

    pub(crate) fn private(&self) -> &PrivateBroker {
        match self {
            Self::Private(broker) => broker,
            Self::Shared(_) => panic!("this stack shares its broker"),
        }
    }
}

/// Everything but the processes.
pub(crate) struct Stack {
    pub(crate) db: TestDb,
    pub(crate) broker: Broker,
    pub(crate) bucket: TestBucket,
    /// Talks to the store as the workers do.
    pub(crate) objects: S3,
    env: BTreeMap<String, String>,
    api_url: String,
    token: tokio::sync::OnceCell<String>,
    http: reqwest::Client,
}

impl Stack {
    /// On the development broker.
    pub(crate) async fn new() -> Self {
        Self::with(Broker::Shared(TestBroker::new().await)).await
    }

    /// On a broker of its own.
    pub(crate) async fn with_private_broker() -> Self {
        let broker = tokio::task::spawn_blocking(PrivateBroker::start).await.unwrap();
        Self::with(Broker::Private(broker)).await
    }

    async fn with(broker: Broker) -> Self {
        let (db, bucket) = (TestDb::new().await, TestBucket::new());
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let api_url = format!("http://127.0.0.1:{port}");
        let mut env: BTreeMap<String, String> =
            Env::get().all().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let (url, store_url) = broker.urls();
        for (name, value) in [
            ("ARKIV_DATABASE_URL", db.worker_url.as_str()),
            ("ARKIV_API_DATABASE_URL", &db.api_url),
            ("ARKIV_OWNER_DATABASE_URL", &db.owner_url),
            ("ARKIV_AMQP_URL", url),
            ("ARKIV_AMQP_STORE_URL", store_url),
            ("ARKIV_S3_BUCKET", &bucket.name),
            ("ARKIV_LISTEN", &api_url["http://".len()..]),
            ("ARKIV_PUBLIC_URL", &api_url),
            ("ARKIV_LOG", "info"),
        ] {
            env.insert(name.to_owned(), value.to_owned());
        }
        let objects = S3::new(&bucket.settings("WORKER"));
        let http = reqwest::Client::new();
        let stack =
            Self { db, broker, bucket, objects, env, api_url, token: tokio::sync::OnceCell::new(), http };
        let setup = stack.command("setup", &[]).output().unwrap();
        assert!(setup.status.success(), "{}", String::from_utf8_lossy(&setup.stderr));
        stack
    }

    fn command(&self, role: &str, extra: &[(&str, &str)]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_arkiv"));
        command.arg(role).env_clear().envs(&self.env).envs(extra.iter().copied());
        command
    }

    /// Starts a role.
    pub(crate) fn start(&self, role: &str) -> Process {
        self.start_with(role, &[])
    }

    /// Starts a role with more settings.
    pub(crate) fn start_with(&self, role: &str, extra: &[(&str, &str)]) -> Process {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(&self.bucket.name);
        std::fs::create_dir_all(&folder).unwrap();
        let log = folder.join(format!("{role}-{}.log", Ids.message()));
        let file = std::fs::File::create(&log).unwrap();
        let child = self
            .command(role, extra)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .unwrap();
        Process { role: role.to_owned(), child, log }
    }

    /// Runs a command to its end.
    pub(crate) async fn run(&self, command: &str, args: &[&str]) -> std::process::Output {
        let mut command = self.command(command, &[]);
        command.args(args);
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    /// Starts a role that dies at a kill point.
    pub(crate) fn start_doomed(&self, role: &str, point: &str) -> Process {
        self.start_with(role, &[("ARKIV_KILL_AT", point)])
    }

    /// The sum of a metric over its labels, as the API's page has it.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let page = self.http.get(format!("{}/metrics", self.api_url)).send().await.unwrap();
        let page = page.text().await.unwrap();
        page.lines()
            .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{'])))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    /// Waits until the API answers that all it needs is there.
    pub(crate) async fn ready(&self) {
        let url = format!("{}/readyz", self.api_url);
        until("/readyz", BOUND, || async {
            self.http.get(&url).send().await.ok().filter(|answer| answer.status().is_success())
        })
        .await;
    }

    async fn token(&self) -> &str {
        self.token
            .get_or_init(|| async {
                let url = format!("{}/dev/token", self.api_url);
                let body = json!({ "subject": format!("owner-{}", Ids.owner()) });
                let answer: Value =
                    self.http.post(url).json(&body).send().await.unwrap().json().await.unwrap();
                answer["token"].as_str().unwrap().to_owned()
            })
            .await
    }

    /// Asks the API as the test's owner.
    pub(crate) async fn call(
        &self,
        method: reqwest::Method,
        path: &str,
        body: Option<Value>,
    ) -> (u16, Value) {
        let mut request =
            self.http.request(method, format!("{}{path}", self.api_url)).bearer_auth(self.token().await);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        (status, serde_json::from_str(&answer.text().await.unwrap()).unwrap_or(Value::Null))
    }

    /// A ticket for these bytes.
    pub(crate) async fn ticket(&self, method: &str, content_type: &str, bytes: &[u8]) -> Value {
        let body = json!({
            "filename": "sample", "size": bytes.len(), "content_type": content_type, "method": method,
        });
        let (status, ticket) = self.call(reqwest::Method::POST, "/v1/files", Some(body)).await;
        assert_eq!(status, 201, "{ticket}");
        ticket
    }

    /// Uploads with a ticket exactly as a browser would; answers the store's status. A store that is being started again is
    /// waited for, as a person would who presses the button once more.
    pub(crate) async fn upload_with(&self, ticket: &Value, bytes: &[u8]) -> u16 {
        until("the store to take an upload", BOUND, || async {
            match self.upload_request(ticket, bytes).send().await {
                Ok(answer) => Some(answer.status().as_u16()),
                Err(error) if error.is_connect() || error.is_request() => None,
                Err(error) => panic!("{error}"),
            }
        })
        .await
    }

    fn upload_request(&self, ticket: &Value, bytes: &[u8]) -> reqwest::RequestBuilder {
        let upload = &ticket["upload"];
        let url = upload["url"].as_str().unwrap();
        match upload["method"].as_str().unwrap() {
            "POST" => {
                let mut form = reqwest::multipart::Form::new();
                for (name, value) in upload["fields"].as_object().unwrap() {
                    form = form.text(name.clone(), value.as_str().unwrap().to_owned());
                }
                let part = reqwest::multipart::Part::bytes(bytes.to_vec()).file_name("sample");
                self.http.post(url).multipart(form.part("file", part))
            }
            "PUT" => {
                let mut request = self.http.put(url).body(bytes.to_vec());
                for (name, value) in upload["headers"].as_object().unwrap() {
                    request = request.header(name, value.as_str().unwrap());
                }
                request
            }
            other => panic!("no ticket is {other}"),
        }
    }

    /// Uploads a text; answers the card's id.
    pub(crate) async fn upload(&self, text: &str) -> String {
        self.upload_as("POST", "text/plain", text.as_bytes()).await
    }

    /// Uploads bytes; answers the card's id.
    pub(crate) async fn upload_as(&self, method: &str, content_type: &str, bytes: &[u8]) -> String {
        let ticket = self.ticket(method, content_type, bytes).await;
        let status = self.upload_with(&ticket, bytes).await;
        assert!((200..300).contains(&status), "the store answered {status}");
        ticket["id"].as_str().unwrap().to_owned()
    }

    /// The card's state, as its owner sees it.
    pub(crate) async fn state(&self, id: &str) -> String {
        let (status, card) = self.call(reqwest::Method::GET, &format!("/v1/files/{id}"), None).await;
        assert_eq!(status, 200, "{card}");
        card["state"].as_str().unwrap().to_owned()
    }

    /// Waits for a state. The database's time runs faster meanwhile: each second `seconds` more pass. Not with every look:
    /// on a busy machine a ticket would be over before anybody could serve it.
    pub(crate) async fn wait(&self, id: &str, state: &str, seconds: u32) {
        let what = format!("{id} to be {state}");
        let passed_at = Cell::new(None::<Instant>);
        until(&what, BOUND, || async {
            let is_time = passed_at.get().is_none_or(|at| at.elapsed() >= Duration::from_secs(1));
            if seconds > 0 && is_time {
                self.db.pass_time(seconds).await;
                passed_at.set(Some(Instant::now()));
            }
            (self.state(id).await == state).then_some(())
        })
        .await;
    }

    /// Lets exactly as much time pass as a card still waits for: for its next look, or its lease's end.
    pub(crate) async fn pass_wait_of(&self, id: &str) {
        let wait = format!(
            "select greatest(0, ceil(extract(epoch from greatest(next_check_at, lease_until) - now())))::bigint
             from cards
             where id = '{id}'"
        );
        let seconds = self.db.count(&wait).await;
        self.db.pass_time(u32::try_from(seconds).unwrap() + 1).await;
    }

    /// Every version and marker in the bucket, as `key version`.
    pub(crate) async fn versions(&self) -> Vec<String> {
        let mut all = Vec::new();
        let mut after = None;
        loop {
            let page = self.objects.list_versions("", after.as_ref(), 1000).await.unwrap();
            all.extend(page.versions.into_iter().map(|entry| format!("{} {}", entry.key, entry.version)));
            after = page.next;
            if after.is_none() {
                return all;
            }
        }
    }

    /// The keys of [`Self::versions`].
    pub(crate) async fn keys(&self) -> Vec<String> {
        let versions = self.versions().await;
        versions.into_iter().filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect()
    }

    /// INV-1 to INV-3 for every card of this stack: what cards point at exists, and nothing but the pinned source, the
    /// copies and previews of known tokens is left to remove.
    pub(crate) async fn check(&self) {
        let ready = self
            .db
            .texts(
                "select format('%s %s %s %s', id, accepted_token, object_version, encode(sha256, 'hex'))
                 from cards where state = 'ready'",
            )
            .await;
        for row in ready {
            let [id, token, version, sha256]: [&str; 4] =
                row.split(' ').collect::<Vec<_>>().try_into().unwrap();
            let version = cards::VersionId::parse(version).unwrap();
            let key = format!("files/{id}/{token}");
            let body = self.objects.get(&key, &version, cards::size::OBJECT_BYTES_MAX).await.unwrap();
            let bytes = body.collect_all().await.unwrap();
            let found: [u8; 32] = sha2::Digest::finalize(sha2::Digest::chain_update(
                <sha2::Sha256 as sha2::Digest>::new(),
                &bytes,
            ))
            .into();
            assert_eq!(cards::Sha256(found).to_string(), sha256, "{key}");
        }
        let derivatives = self
            .db
            .texts(
                "select format('derived/%s/%s/%s %s', id, accepted_token, d ->> 'name', d ->> 'version')
                 from cards, jsonb_array_elements(derivatives) d where state = 'ready'",
            )
            .await;
        for row in derivatives {
            let (key, version) = row.split_once(' ').unwrap();
            let version = cards::VersionId::parse(version).unwrap();
            let head = self.objects.head(key, Some(&version)).await.unwrap();
            assert!(head.found().is_some(), "{key}");
        }
        // Every effect once: one confirmation, one end, however often its message came.
        for event in ["confirmed", "ready", "duplicate", "rejected", "expired"] {
            let twice = format!(
                "select count(*) from (
                     select card_id from card_history where event = '{event}' group by card_id having count(*) > 1
                 ) twice"
            );
            assert_eq!(self.db.count(&twice).await, 0, "{event} twice");
        }
    }

    /// Waits until every decode and confirm row has left the outbox.
    pub(crate) async fn drained(&self) {
        until("a drained outbox", BOUND, || async {
            let left = self.db.count("select count(*) from outbox where queue <> 'card.purge'").await;
            (left == 0).then_some(())
        })
        .await;
    }
}

/// One process of the product, killed with this value.
pub(crate) struct Process {
    role: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Waits until it died at its kill point.
    pub(crate) async fn died(&mut self) {
        use std::os::unix::process::ExitStatusExt;
        const SIGABRT: i32 = 6;
        let status = self.ended().await;
        assert_eq!(status.signal(), Some(SIGABRT), "{}", self.log());
    }

    async fn ended(&mut self) -> ExitStatus {
        let what = format!("the end of {}", self.role);
        until(&what, BOUND, || {
            let ended = self.child.try_wait().unwrap();
            async move { ended }
        })
        .await
    }

    /// SIGKILL: nothing unwinds.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGTERM, and waits for the end; answers whether it ended well.
    pub(crate) async fn stop(&mut self) -> bool {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        self.ended().await.success()
    }

    /// Whether it still runs.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// What it logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            // A failing test shows what its processes said.
            let _ = writeln!(std::io::stderr(), "--- {} ---\n{}", self.role, self.log());
        }
    }
}
