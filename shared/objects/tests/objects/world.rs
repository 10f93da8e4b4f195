//! A bucket of its own for each test, wired as setup would, and removed whatever the test comes to.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::time::Duration;

use cards::{Ids, Timestamp, VersionId};
use chrono::TimeDelta;
use futures::FutureExt;
use futures::future::BoxFuture;
use objects::admin::{Admin, Principals};
use objects::link::LinkSigner;
use objects::ticket::{Ticket, TicketRequest, TicketSigner};
use objects::{Credentials, ObjectStore, S3, S3Settings, SignerSettings};

pub(crate) type Env = BTreeMap<String, String>;

/// The running servers' addresses and credentials: `.dev/env` of the checkout, or variables of the same names.
#[expect(clippy::disallowed_methods, reason = "tests have no settings module above them")]
pub(crate) fn env() -> Env {
    let mut env: Env = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .find_map(|folder| std::fs::read_to_string(folder.join(".dev/env")).ok())
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.trim_matches('\'').to_owned()))
        .collect();
    env.extend(std::env::vars().filter(|(name, _)| name.starts_with("ARKIV_S3_")));
    assert!(env.contains_key("ARKIV_S3_ENDPOINT"), "no store to test against: run ./dev servers");
    env
}

pub(crate) struct World {
    pub(crate) env: Env,
    pub(crate) bucket: String,
    pub(crate) admin: Admin,
    pub(crate) worker: S3,
    pub(crate) tickets: TicketSigner,
    pub(crate) links: LinkSigner,
    pub(crate) http: reqwest::Client,
}

impl World {
    pub(crate) fn settings(&self, identity: &str) -> S3Settings {
        settings(&self.env, &self.bucket, identity)
    }

    pub(crate) fn principals(&self) -> Principals {
        let get = |name: &str| self.env[&format!("ARKIV_S3_{name}_PRINCIPAL")].clone();
        Principals { signer: get("SIGNER"), reader: get("READER"), worker: get("WORKER") }
    }

    pub(crate) fn signer(&self, identity: &str) -> SignerSettings {
        signer(&self.env, &self.bucket, identity)
    }

    /// Uploads as a browser does, and says which version came of it.
    pub(crate) async fn upload(&self, key: &str, bytes: &'static [u8], content_type: &str) -> VersionId {
        let ticket = self.tickets.post(&request(key, bytes.len() as u64, content_type)).unwrap();
        let (status, answer) = self.send_form(&ticket, &[], bytes).await;
        assert_eq!(status, 201, "{answer}");
        self.worker.versions_of(key, usize::MAX).await.unwrap().pop().unwrap().version
    }

    /// Deletes without naming a version, as nobody of ours would.
    pub(crate) async fn delete_unversioned(&self, key: &str) {
        let client = self.sdk("WORKER");
        client.delete_object().bucket(&self.bucket).key(key).send().await.unwrap();
    }

    /// What reading, publishing or tagging an object by the key alone answers this identity.
    pub(crate) async fn try_unversioned(&self, identity: &str, key: &str, name: &str) -> u16 {
        let client = self.sdk(identity);
        let outcome = match name {
            "acl" => client
                .put_object_acl()
                .bucket(&self.bucket)
                .key(key)
                .acl(aws_sdk_s3::types::ObjectCannedAcl::PublicRead)
                .send()
                .await
                .map(drop)
                .map_err(|error| error.raw_response().unwrap().status().as_u16()),
            "tagging" => client
                .put_object_tagging()
                .bucket(&self.bucket)
                .key(key)
                .tagging(aws_sdk_s3::types::Tagging::builder().set_tag_set(Some(vec![])).build().unwrap())
                .send()
                .await
                .map(drop)
                .map_err(|error| error.raw_response().unwrap().status().as_u16()),
            "get" => client
                .get_object()
                .bucket(&self.bucket)
                .key(key)
                .send()
                .await
                .map(drop)
                .map_err(|error| error.raw_response().unwrap().status().as_u16()),
            other => panic!("{other}"),
        };
        outcome.err().unwrap_or(200)
    }

    /// What an operator may do to a running system.
    pub(crate) async fn suspend_versioning(&self) {
        use aws_sdk_s3::types::{BucketVersioningStatus, VersioningConfiguration};
        let suspended = VersioningConfiguration::builder().status(BucketVersioningStatus::Suspended).build();
        let client = self.sdk("ADMIN");
        let request = client.put_bucket_versioning().bucket(&self.bucket);
        request.versioning_configuration(suspended).send().await.unwrap();
    }

    fn sdk(&self, identity: &str) -> aws_sdk_s3::Client {
        let settings = self.settings(identity);
        let credentials = aws_credential_types::Credentials::new(
            settings.credentials.access_key,
            settings.credentials.secret_key,
            None,
            None,
            "test",
        );
        aws_sdk_s3::Client::from_conf(
            aws_sdk_s3::Config::builder()
                .behavior_version(aws_sdk_s3::config::BehaviorVersion::v2026_01_12())
                .endpoint_url(settings.endpoint.as_str())
                .region(aws_sdk_s3::config::Region::new(settings.region))
                .credentials_provider(credentials)
                .force_path_style(true)
                .build(),
        )
    }

    /// Sends a form as a browser does: the fields, what a cheat adds or changes, and the file last.
    pub(crate) async fn send_form(
        &self,
        ticket: &Ticket,
        changed: &[(&str, &str)],
        bytes: &'static [u8],
    ) -> (u16, String) {
        let mut fields = ticket.fields.clone().unwrap();
        fields.extend(changed.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let mut form = reqwest::multipart::Form::new();
        for (name, value) in fields {
            form = form.text(name, value);
        }
        let file = reqwest::multipart::Part::bytes(bytes).file_name("кот \"1\".jpg");
        let answer = self.http.post(&ticket.url).multipart(form.part("file", file)).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    /// Sends a PUT with the ticket's headers and what a cheat adds or changes.
    pub(crate) async fn send_put(
        &self,
        ticket: &Ticket,
        changed: &[(&str, &str)],
        bytes: &'static [u8],
    ) -> (u16, String) {
        let mut headers = ticket.headers.clone();
        headers.extend(changed.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let mut request = self.http.put(&ticket.url).body(bytes);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }
}

/// A ticket issued now, for a minute.
pub(crate) fn request<'a>(key: &'a str, size_bytes: u64, content_type: &'a str) -> TicketRequest<'a> {
    TicketRequest {
        key,
        size_bytes,
        content_type,
        sha256: None,
        issued_at: now(),
        ends_at: now() + TimeDelta::seconds(60),
        traceparent: None,
    }
}

#[expect(clippy::disallowed_methods, reason = "the real store judges by the real time")]
pub(crate) fn now() -> Timestamp {
    chrono::Utc::now()
}

/// Runs a test in a bucket of its own.
pub(crate) async fn with_bucket(test: impl for<'a> FnOnce(&'a World) -> BoxFuture<'a, ()>) {
    in_bucket(true, test).await;
}

/// The same in a bucket nobody switched versioning on for.
pub(crate) async fn without_versioning(test: impl for<'a> FnOnce(&'a World) -> BoxFuture<'a, ()>) {
    in_bucket(false, test).await;
}

async fn in_bucket(is_versioned: bool, test: impl for<'a> FnOnce(&'a World) -> BoxFuture<'a, ()>) {
    let env = env();
    // Named by what nobody else names: tests run beside each other, and twice.
    let bucket = format!("objects-{}", Ids.lease());
    let world = World {
        admin: Admin::new(settings(&env, &bucket, "ADMIN")).unwrap(),
        worker: S3::new(&settings(&env, &bucket, "WORKER")),
        tickets: TicketSigner::new(signer(&env, &bucket, "SIGNER")),
        links: LinkSigner::new(signer(&env, &bucket, "READER")),
        http: reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(Duration::from_secs(20))
            .build()
            .unwrap(),
        bucket,
        env,
    };
    world.admin.create_bucket().await.unwrap();
    let outcome = AssertUnwindSafe(async {
        if is_versioned {
            world.admin.enable_versioning().await.unwrap();
        }
        world.admin.put_policy(&world.principals()).await.unwrap();
        world.admin.block_public_access().await.unwrap();
        test(&world).await;
    })
    .catch_unwind()
    .await;
    // A gateway that is started again meanwhile is asked once more.
    let mut removed = world.admin.delete_bucket_and_all().await;
    for _ in 0..2 {
        if removed.is_err() {
            removed = world.admin.delete_bucket_and_all().await;
        }
    }
    removed.unwrap();
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

pub(crate) fn settings(env: &Env, bucket: &str, identity: &str) -> S3Settings {
    let get = |name: &str| env[&format!("ARKIV_S3_{name}")].clone();
    S3Settings {
        endpoint: get("ENDPOINT").parse().unwrap(),
        region: get("REGION"),
        bucket: bucket.to_owned(),
        credentials: Credentials::new(
            get(&format!("{identity}_ACCESS_KEY")),
            get(&format!("{identity}_SECRET_KEY")),
        ),
        kind: get("KIND").parse().unwrap(),
    }
}

fn signer(env: &Env, bucket: &str, identity: &str) -> SignerSettings {
    let S3Settings { endpoint, region, bucket, credentials, kind: _ } = settings(env, bucket, identity);
    SignerSettings { endpoint, region, bucket, credentials }
}
