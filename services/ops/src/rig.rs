//! For tests: a bucket and a broker's virtual host of their own, removed whatever the test comes to.
//!
//! A virtual host, because Ceph's gateway keeps one exchange for each of them as long as it lives.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::path::Path;

use cards::{Ids, Timestamp};
use chrono::TimeDelta;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use objects::admin::{Admin, Principals};
use objects::notify::NotifySpec;
use objects::ticket::{TicketRequest, TicketSigner};
use objects::{Credentials, S3Settings, SignerSettings};
use reqwest::Method;
use serde_json::{Value, json};

use crate::setup::{SetupSettings, StoreUrl};

/// The product's own.
const NOTIFY: &str = include_str!("../../../minio-notify.json");

pub(crate) struct Rig {
    env: BTreeMap<String, String>,
    pub(crate) settings: SetupSettings,
    vhost: String,
}

/// Runs a test in a rig of its own.
pub(crate) async fn with_rig(test: impl for<'a> FnOnce(&'a Rig) -> BoxFuture<'a, ()>) {
    let rig = Rig::new();
    rig.make_vhost().await;
    let outcome = AssertUnwindSafe(test(&rig)).catch_unwind().await;
    let removed = AssertUnwindSafe(rig.remove()).catch_unwind().await;
    for ended in [outcome, removed] {
        if let Err(panic) = ended {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Rig {
    fn new() -> Self {
        let env = env();
        let name = format!("ops-{}", Ids.lease());
        let in_vhost = |url: &str| {
            let (server, _) = env[url].rsplit_once('/').unwrap();
            format!("{server}/{name}")
        };
        let principal = |who: &str| env[&format!("ARKIV_S3_{who}_PRINCIPAL")].clone();
        let store = store(&env, &name, "ADMIN");
        let settings = SetupSettings {
            signer: SignerSettings {
                endpoint: store.endpoint.clone(),
                region: store.region.clone(),
                bucket: name.clone(),
                credentials: credentials(&env, "SIGNER"),
            },
            store,
            principals: Principals {
                signer: principal("SIGNER"),
                reader: principal("READER"),
                worker: principal("WORKER"),
            },
            notify: NotifySpec::parse(NOTIFY).unwrap(),
            broker: broker::Settings {
                url: in_vhost("ARKIV_AMQP_URL"),
                prefix: String::new(),
                name: name.clone(),
            },
            amqp_store_url: StoreUrl(in_vhost("ARKIV_AMQP_STORE_URL")),
            cors_origins: vec!["http://127.0.0.1:8080".to_owned()],
        };
        Self { env, settings, vhost: name }
    }

    /// The bucket as one identity sees it.
    pub(crate) fn store_as(&self, identity: &str) -> S3Settings {
        store(&self.env, &self.settings.store.bucket, identity)
    }

    pub(crate) fn tickets(&self) -> TicketSigner {
        TicketSigner::new(self.settings.signer.clone())
    }

    /// The exchanges in the virtual host that are ours, by name.
    pub(crate) async fn exchanges(&self) -> Vec<String> {
        let found = self.manage(Method::GET, &format!("exchanges/{}", self.vhost), None).await;
        let names = found.as_array().unwrap().iter().map(|exchange| exchange["name"].as_str().unwrap());
        names.filter(|name| !name.is_empty() && !name.starts_with("amq.")).map(str::to_owned).collect()
    }

    async fn make_vhost(&self) {
        self.manage(Method::PUT, &format!("vhosts/{}", self.vhost), Some(json!({}))).await;
        // As infra/rabbitmq/definitions.json has it for `/`.
        let rights = [
            ("arkiv", ".*", "^(?!.*bucket\\.events$).*$", ".*"),
            ("store", "^amq\\.gen-", "bucket\\.events$", "^amq\\.gen-"),
        ];
        for (user, configure, write, read) in rights {
            let body = json!({ "configure": configure, "write": write, "read": read });
            self.manage(Method::PUT, &format!("permissions/{}/{user}", self.vhost), Some(body)).await;
        }
    }

    async fn remove(&self) {
        let admin = Admin::new(self.settings.store.clone()).unwrap();
        if admin.versioning_enabled().await.is_ok() {
            admin.unwire_notifications().await.unwrap();
            admin.delete_bucket_and_all().await.unwrap();
        }
        self.manage(Method::DELETE, &format!("vhosts/{}", self.vhost), None).await;
    }

    async fn manage(&self, method: Method, path: &str, body: Option<Value>) -> Value {
        let mut url: url::Url = self.env["ARKIV_AMQP_MANAGEMENT_URL"].parse().unwrap();
        url.set_path(&format!("/api/{path}"));
        let mut request = reqwest::Client::new().request(method, url);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.unwrap();
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
        serde_json::from_str(&answer.text().await.unwrap()).unwrap_or(Value::Null)
    }
}

/// A request for a ticket that is issued now, for a minute.
pub(crate) fn request<'a>(key: &'a str, size_bytes: u64, content_type: &'a str) -> TicketRequest<'a> {
    let issued_at = now();
    TicketRequest {
        key,
        size_bytes,
        content_type,
        sha256: None,
        issued_at,
        ends_at: issued_at + TimeDelta::seconds(60),
        traceparent: None,
    }
}

#[expect(clippy::disallowed_methods, reason = "the real store judges by the real time")]
fn now() -> Timestamp {
    chrono::Utc::now()
}

fn store(env: &BTreeMap<String, String>, bucket: &str, identity: &str) -> S3Settings {
    S3Settings {
        endpoint: env["ARKIV_S3_ENDPOINT"].parse().unwrap(),
        region: env["ARKIV_S3_REGION"].clone(),
        bucket: bucket.to_owned(),
        credentials: credentials(env, identity),
        kind: env["ARKIV_S3_KIND"].parse().unwrap(),
    }
}

fn credentials(env: &BTreeMap<String, String>, identity: &str) -> Credentials {
    let of = |part: &str| env[&format!("ARKIV_S3_{identity}_{part}")].clone();
    Credentials::new(of("ACCESS_KEY"), of("SECRET_KEY"))
}

/// `.dev/env` of the checkout this crate lies in.
fn env() -> BTreeMap<String, String> {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let text = folders.find_map(|folder| std::fs::read_to_string(folder.join(".dev/env")).ok());
    text.expect("there are no servers to test against: run ./dev servers")
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.trim_matches('\'').to_owned()))
        .collect()
}
