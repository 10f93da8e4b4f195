//! One API with a database of its own.

use std::sync::{Arc, OnceLock};

use api::{ApiSettings, Check, Deps, Health, JwtKey, JwtSettings};
use async_trait::async_trait;
use axum::Router;
use axum::body::{Body, to_bytes};
use cards::{Card, Ids, MediaType, OwnerId, Timestamp, timing};
use http::{HeaderMap, Request, StatusCode};
use intake::{GroupSettings, Intake};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use objects::fake::Fake;
use objects::link::LinkSigner;
use objects::ticket::TicketSigner;
use objects::{Credentials, SignerSettings};
use serde_json::{Value, json};
use store::Db;
use telemetry::Metrics;
use testkit::{TestDb, fixture};
use tower::ServiceExt;

pub(crate) const SECRET: &[u8] = b"a secret for tests, 32 bytes and more";
pub(crate) const ANNA: &str = "anna";
pub(crate) const BERTA: &str = "berta";

pub(crate) struct World {
    pub(crate) test: TestDb,
    pub(crate) api: Db,
    pub(crate) worker: Db,
    pub(crate) fake: Fake,
    pub(crate) router: Router,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("{name}: {self:?}")).to_str().unwrap()
    }

    /// Asserts that this is a problem in full (R-D5) and answers its body.
    pub(crate) fn problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), "application/problem+json", "{self:?}");
        let body = self.json();
        assert_eq!(body["code"], code, "{self:?}");
        assert_eq!(body["status"], status, "{self:?}");
        assert_eq!(body["type"], format!("/problems/{code}"), "{self:?}");
        assert!(body["instance"].as_str().is_some_and(|path| path.starts_with('/')), "{self:?}");
        assert!(body["title"].is_string() && body["detail"].is_string() && body["retryable"].is_boolean());
        let trace_id = body["trace_id"].as_str().unwrap();
        assert_eq!(trace_id.len(), 32, "{self:?}");
        assert!(self.header("traceparent").contains(trace_id), "{self:?}");
        body
    }
}

/// A health that says what it is told to.
pub(crate) struct Says(pub(crate) Vec<Check>);

#[async_trait]
impl Health for Says {
    async fn ready(&self) -> Vec<Check> {
        self.0.clone()
    }
}

pub(crate) fn settings() -> ApiSettings {
    ApiSettings {
        listen: "127.0.0.1:0".parse().unwrap(),
        public_url: None,
        ticket_life: timing::TICKET_LIFE,
        allow_gif: false,
        put_tickets: true,
        size_bytes_max: 10 * 1024 * 1024,
        cors_origins: vec!["https://app.example.org".to_owned()],
        jwt: JwtSettings {
            key: JwtKey::Hs256(SECRET.to_vec()),
            issuer: "tests".to_owned(),
            audience: "arkiv".to_owned(),
        },
        development: false,
    }
}

pub(crate) fn deps(api: &Db, worker: Option<&Db>, fake: &Fake, health: Arc<dyn Health>) -> Deps {
    static METRICS: OnceLock<Metrics> = OnceLock::new();
    let signer = |access_key: &str| SignerSettings {
        endpoint: "https://store.example.org".parse().unwrap(),
        region: "default".to_owned(),
        bucket: "arkiv".to_owned(),
        credentials: Credentials::new(access_key, "not a real secret"),
    };
    Deps {
        db: api.clone(),
        overview: worker.cloned(),
        intake: Intake::new(api.clone(), Arc::new(fake.clone()), Ids, GroupSettings::default()),
        tickets: TicketSigner::new(signer("SIGNER")),
        links: LinkSigner::new(signer("READER")),
        ids: Ids,
        metrics: METRICS.get_or_init(|| Metrics::install().unwrap()).clone(),
        health,
        clock: api::system_clock,
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(|_| ()).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut ApiSettings)) -> Self {
        Self::with_clock(change, api::system_clock).await
    }

    /// The same in a process whose clock says what it likes.
    pub(crate) async fn with_clock(change: impl FnOnce(&mut ApiSettings), clock: fn() -> Timestamp) -> Self {
        let test = TestDb::new().await;
        let (api, worker) = (test.api(), test.worker());
        let fake = Fake::new();
        let mut settings = settings();
        change(&mut settings);
        let deps = Deps { clock, ..deps(&api, Some(&worker), &fake, Arc::new(Says(Vec::new()))) };
        let router = api::router(settings, deps).unwrap();
        Self { test, api, worker, fake, router }
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        send(&self.router, request).await
    }

    pub(crate) async fn get(&self, subject: &str, path: &str) -> Answer {
        self.send(request("GET", path, subject).body(Body::empty()).unwrap()).await
    }

    pub(crate) async fn post(&self, subject: &str, path: &str) -> Answer {
        self.send(request("POST", path, subject).body(Body::empty()).unwrap()).await
    }

    pub(crate) async fn ask(&self, subject: &str, body: &Value) -> Answer {
        self.send(ticket_request(subject).body(body.to_string().into()).unwrap()).await
    }

    pub(crate) async fn owner(&self, subject: &str) -> OwnerId {
        let mut tx = self.api.begin().await.unwrap();
        let owner = store::owners::of_subject(&mut tx, Ids, subject).await.unwrap();
        tx.commit().await.unwrap();
        owner
    }

    /// Anna's pending text file.
    pub(crate) async fn pending(&self, bytes: &[u8]) -> Card {
        fixture::pending(&self.api, self.owner(ANNA).await, MediaType::Text, bytes).await
    }

    /// Anna's ready text file.
    pub(crate) async fn ready(&self, bytes: &[u8]) -> Card {
        fixture::ready(&self.worker, &self.api, &self.fake, self.owner(ANNA).await, bytes).await
    }

    /// Anna's second file of the same bytes.
    pub(crate) async fn duplicate(&self, bytes: &[u8]) -> Card {
        let owner = self.owner(ANNA).await;
        let queued =
            fixture::queued(&self.worker, &self.api, &self.fake, owner, MediaType::Text, bytes).await;
        let leased = fixture::leased(&self.worker, &queued).await;
        let mut tx = self.worker.begin().await.unwrap();
        store::finish::accept(&mut tx, Ids, &fixture::accepted(&leased, bytes)).await.unwrap();
        tx.commit().await.unwrap();
        let card = fixture::read(&self.worker, &leased).await;
        assert!(matches!(card.state, cards::State::Duplicate { .. }), "{card:?}");
        card
    }

    /// Moves a card to `deleting` or `deleted`, for which nothing in the product exists yet.
    pub(crate) async fn set_state(&self, card: &Card, state: &str) {
        self.test
            .sql(&format!(
                "update cards
                 set state = '{state}', revision = revision + 1, delete_after = now(), next_check_at = now(),
                     delete_requested_at = now(),
                     object_version = null, ready_at = null, original_id = null,
                     lease_token = null, lease_until = null
                 where id = '{}'",
                card.id
            ))
            .await;
    }
}

pub(crate) async fn send(router: &Router, request: Request<Body>) -> Answer {
    let response = router.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = to_bytes(body, 16 * 1024 * 1024).await.unwrap();
    Answer { status: parts.status, headers: parts.headers, body: String::from_utf8(bytes.to_vec()).unwrap() }
}

pub(crate) fn request(method: &str, path: &str, subject: &str) -> http::request::Builder {
    Request::builder().method(method).uri(path).header("authorization", format!("Bearer {}", token(subject)))
}

pub(crate) fn ticket_request(subject: &str) -> http::request::Builder {
    request("POST", "/v1/files", subject).header("content-type", "application/json")
}

pub(crate) fn now() -> Timestamp {
    api::system_clock()
}

pub(crate) fn claims(subject: &str) -> Value {
    json!({ "iss": "tests", "aud": "arkiv", "sub": subject, "exp": now().timestamp() + 600 })
}

pub(crate) fn token(subject: &str) -> String {
    let key = EncodingKey::from_secret(SECRET).unwrap();
    jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims(subject), &key).unwrap()
}

pub(crate) fn photo() -> Value {
    json!({ "filename": "кот.jpg", "size": 5_242_880, "content_type": "image/jpeg" })
}
