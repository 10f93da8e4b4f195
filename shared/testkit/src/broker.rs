//! A vhost per test; or a whole broker that may be killed and wiped.

use std::collections::BTreeMap;
use std::process::Command;

use cards::Ids;
use serde_json::{Value, json};
use url::Url;

use crate::Env;

/// The users every vhost knows: the workers', and the store's.
const USERS: [&str; 2] = ["arkiv", "store"];

/// A vhost of its own on the development broker, deleted with this value. It has no exchanges or queues yet: setup
/// makes them.
#[derive(Debug)]
pub struct TestBroker {
    /// As the workers.
    pub url: String,
    /// As the store, which alone may write to `bucket.events`.
    pub store_url: String,
    vhost: String,
    management: Url,
}

impl TestBroker {
    /// A new vhost, with the permissions each user has on the development one.
    pub async fn new() -> Self {
        let env = Env::get();
        let management = Url::parse(env.value("ARKIV_AMQP_MANAGEMENT_URL")).expect("the management URL");
        let vhost = format!("t-{}", Ids.message().0.simple());
        call(&management, reqwest::Method::PUT, &format!("api/vhosts/{vhost}"), None).await;
        for user in USERS {
            let known =
                call(&management, reqwest::Method::GET, &format!("api/permissions/%2f/{user}"), None).await;
            let rights = json!({
                "configure": known["configure"], "write": known["write"], "read": known["read"],
            });
            let path = format!("api/permissions/{vhost}/{user}");
            call(&management, reqwest::Method::PUT, &path, Some(rights)).await;
        }
        Self {
            url: with_vhost(env.value("ARKIV_AMQP_URL"), &vhost),
            store_url: with_vhost(env.value("ARKIV_AMQP_STORE_URL"), &vhost),
            vhost,
            management,
        }
    }

    /// How the workers reach it.
    pub fn settings(&self) -> broker::Settings {
        broker::Settings { url: self.url.clone(), prefix: String::new(), name: "arkiv test".to_owned() }
    }

    /// How the store reaches it.
    pub fn store_settings(&self) -> broker::Settings {
        broker::Settings { url: self.store_url.clone(), prefix: String::new(), name: "test store".to_owned() }
    }
}

impl Drop for TestBroker {
    fn drop(&mut self) {
        let (management, path) = (self.management.clone(), format!("api/vhosts/{}", self.vhost));
        let deleter = std::thread::spawn(move || {
            if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() {
                runtime.block_on(call(&management, reqwest::Method::DELETE, &path, None));
            }
        });
        let _ = deleter.join();
    }
}

async fn call(management: &Url, method: reqwest::Method, path: &str, body: Option<Value>) -> Value {
    let mut url = management.join(path).expect("a management path");
    let (user, password) = (url.username().to_owned(), url.password().unwrap_or_default().to_owned());
    url.set_username("").expect("a URL with a host");
    url.set_password(None).expect("a URL with a host");
    let client = reqwest::Client::new();
    let mut request = client.request(method, url).basic_auth(user, Some(password));
    if let Some(body) = body {
        request = request.json(&body);
    }
    let answer = request.send().await.expect("the broker's management API; is ./dev servers running?");
    assert!(answer.status().is_success(), "{path}: {}", answer.status());
    let text = answer.text().await.expect("the answer's text");
    serde_json::from_str(&text).unwrap_or(Value::Null)
}

fn with_vhost(url: &str, vhost: &str) -> String {
    let mut url = Url::parse(url).expect("an AMQP URL in .dev/env");
    url.set_path(vhost);
    url.to_string()
}

/// A broker of its own: `./dev rabbit`. Killed and wiped with this value.
#[derive(Debug)]
pub struct PrivateBroker {
    name: String,
    /// As the workers.
    pub url: String,
    /// As the store.
    pub store_url: String,
}

impl PrivateBroker {
    /// Starts one.
    pub fn start() -> Self {
        let name = format!("t{}", &Ids.lease().0.simple().to_string()[..8]);
        let said = dev_rabbit("start", &name);
        let value =
            |key: &str| said.get(key).unwrap_or_else(|| panic!("./dev rabbit start says no {key}")).clone();
        Self { url: value("AMQP_URL"), store_url: value("STORE_AMQP_URL"), name }
    }

    /// How the workers reach it.
    pub fn settings(&self) -> broker::Settings {
        broker::Settings { url: self.url.clone(), prefix: String::new(), name: "arkiv test".to_owned() }
    }

    /// Kills it hard and starts it again, with all it had on disk.
    pub fn restart(&self) {
        dev_rabbit("kill", &self.name);
        dev_rabbit("start", &self.name);
    }

    /// Kills it hard.
    pub fn kill(&self) {
        dev_rabbit("kill", &self.name);
    }

    /// Starts it after [`PrivateBroker::kill`].
    pub fn start_again(&self) {
        dev_rabbit("start", &self.name);
    }

    /// Kills it hard, deletes all it had, and starts it empty, at the same address with the same users.
    pub fn wipe(&self) {
        dev_rabbit("wipe", &self.name);
        dev_rabbit("start", &self.name);
    }
}

impl Drop for PrivateBroker {
    fn drop(&mut self) {
        dev_rabbit("wipe", &self.name);
    }
}

fn dev_rabbit(verb: &str, name: &str) -> BTreeMap<String, String> {
    let root = Env::get().root();
    let output = Command::new(root.join("dev"))
        .args(["rabbit", verb, name])
        .current_dir(root)
        .output()
        .expect("the dev script");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "./dev rabbit {verb} {name}: {}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
        .collect()
}
