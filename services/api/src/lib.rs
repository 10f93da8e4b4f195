//! HTTP: tickets, files, links, confirmation, health.
//!
//! In: a request with a Bearer token. Out: JSON, a redirect to the store, or a problem (RFC 9457). No file's bytes ever
//! pass through here: a browser uploads with a ticket and reads by a link, both signed here.
//!
//! | route | requirement | module |
//! |---|---|---|
//! | `POST /v1/files`, `POST /v1/files/{id}/ticket` | R-A1, R-A2, R-A5 | `tickets`, `request` |
//! | `GET /v1/files`, `GET /v1/files/{id}` | R-D1 | `files`, `paging`, `view` |
//! | `POST /v1/files/{id}/confirm` | R-B10 | `confirm` |
//! | `GET /v1/files/{id}/download`, `…/thumb`, `…/preview` | R-D2 | `links` |
//! | `GET /problems`, `GET /problems/{code}` | R-D5 | `pages`, `codes` |
//! | `GET /livez`, `/readyz`, `/metrics` | R-I5 | `health` |
//! | `POST /dev/token`, in development only | | `dev` |
//!
//! On failure: what the database or the store refuses is a 503 that may be tried again, never a wrong answer. A request
//! that is cut off leaves nothing half done: each writes in one transaction, and its connection heals when it is next
//! taken from the pool. Another owner's file is answered with the very bytes of "nothing there" (R-D3).
//!
//! Deliberately absent: a key, bucket, version, state or owner in any request.

mod codes;
mod confirm;
mod deletion;
mod dev;
mod error;
mod files;
mod health;
mod identity;
mod jwks;
mod layers;
mod links;
mod pages;
mod paging;
mod paths;
mod request;
mod tickets;
mod view;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use cards::size::OBJECT_BYTES_MAX;
use cards::{Ids, OwnerId, Timestamp};
use chrono::TimeDelta;
use intake::Intake;
use objects::link::LinkSigner;
use objects::ticket::TicketSigner;
use store::{Db, Tx};
use telemetry::Metrics;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use url::Url;

pub use error::ApiError;
use error::Problem;
pub use health::{Check, Health, refresh_overview};
use identity::{Caller, Verifier};
pub use identity::{JwtKey, JwtSettings};

/// Largest body of a request, in bytes: the largest we know has a file name and a digest.
pub(crate) const BODY_BYTES_MAX: usize = 64 * 1024;
/// How long requests in hand may take to end once the process is to stop; one may take 30 s.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(35);
/// A presigned PUT lives for a week at most, a ticket no longer than its renewals.
const TICKET_LIFE_MAX: TimeDelta = TimeDelta::hours(24);

/// How the API answers.
#[derive(Clone, Debug)]
pub struct ApiSettings {
    /// Where it listens.
    pub listen: SocketAddr,
    /// How clients reach it; its path, if any, goes before every link.
    pub public_url: Option<Url>,
    /// How long a ticket lives (R-A5).
    pub ticket_life: TimeDelta,
    /// Whether GIF is taken in (R-A3).
    pub allow_gif: bool,
    /// Whether PUT tickets are given: only where the store heeds what is signed and nothing else (R-A2).
    pub put_tickets: bool,
    /// Largest upload, in bytes: at most the ceiling of R-A3.
    pub size_bytes_max: u64,
    /// Origins whose pages may read answers.
    pub cors_origins: Vec<String>,
    /// How tokens are checked.
    pub jwt: JwtSettings,
    /// Development mode: opens `/dev/token` on a loopback listener.
    pub development: bool,
}

/// What the API works with.
#[derive(Clone)]
pub struct Deps {
    /// The database, as `arkiv_api`.
    pub db: Db,
    /// The database as a role that may count all tables, for the gauges of `/metrics`; `None`: another role of the
    /// product shows them.
    pub overview: Option<Db>,
    /// Confirms on request.
    pub intake: Intake,
    /// Signs tickets.
    pub tickets: TicketSigner,
    /// Signs links.
    pub links: LinkSigner,
    /// Makes ids.
    pub ids: Ids,
    /// The numbers of this process.
    pub metrics: Metrics,
    /// What `/readyz` asks.
    pub health: Arc<dyn Health>,
    /// The time that links are signed with. Nothing stored and no write depends on it: see [`system_clock`].
    pub clock: fn() -> Timestamp,
}

/// This machine's clock. The store compares a link's date with its own clock, so any clock that is about right serves.
#[expect(clippy::disallowed_methods, reason = "a link's date and a development token's end are never stored")]
pub fn system_clock() -> Timestamp {
    chrono::Utc::now()
}

/// What handlers share.
pub(crate) struct Api {
    settings: ApiSettings,
    deps: Deps,
    verifier: Verifier,
    overview_read_at: Mutex<Option<Instant>>,
}

impl Api {
    /// Begins a transaction for the caller: the one place that knows whose rows it is about.
    async fn begin_as(&self, caller: &Caller) -> Result<(Tx, OwnerId), Problem> {
        let mut tx = self.deps.db.begin().await?;
        let owner = store::owners::of_subject(&mut tx, self.deps.ids, &caller.subject).await?;
        Ok((tx, owner))
    }
}

/// All routes, ready to be served.
pub fn router(settings: ApiSettings, deps: Deps) -> Result<Router, ApiError> {
    check(&settings)?;
    let cors = layers::cors(&settings.cors_origins)?;
    let verifier = Verifier::new(&settings.jwt)?;
    let api = Arc::new(Api { settings, deps, verifier, overview_read_at: Mutex::new(None) });
    let mut router = Router::new()
        .route("/v1/files", get(files::list).post(tickets::issue))
        .route("/v1/files/{id}", get(files::show).delete(deletion::delete))
        .route("/v1/files/{id}/receipt", get(deletion::receipt))
        .route("/v1/files/{id}/ticket", post(tickets::renew))
        .route("/v1/files/{id}/confirm", post(confirm::confirm))
        .route("/v1/files/{id}/download", get(links::download))
        .route("/v1/files/{id}/thumb", get(links::thumb))
        .route("/v1/files/{id}/preview", get(links::preview))
        .route("/problems", get(pages::index))
        .route("/problems/{code}", get(pages::show))
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(health::metrics_page));
    if dev::is_open(&api.settings, api.verifier.can_issue()) {
        router = router.route("/dev/token", post(dev::token));
    }
    // The last is the outermost.
    router = router
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn(layers::bounded))
        .layer(CatchPanicLayer::custom(layers::on_panic));
    if let Some(cors) = cors {
        router = router.layer(cors);
    }
    Ok(router.layer(from_fn_with_state(Arc::clone(&api), layers::answer)).with_state(api))
}

/// Serves until `shutdown`, then takes no new connection and lets requests in hand end, for a bounded time.
pub async fn serve(settings: ApiSettings, deps: Deps, shutdown: CancellationToken) -> Result<(), ApiError> {
    let listen = settings.listen;
    let router = router(settings, deps)?;
    let listener = TcpListener::bind(listen).await.map_err(|source| ApiError::Listen { listen, source })?;
    tracing::info!(%listen, "the API listens");
    let server = axum::serve(listener, router)
        .with_graceful_shutdown(shutdown.clone().cancelled_owned())
        .into_future();
    let too_long = async {
        shutdown.cancelled().await;
        tokio::time::sleep(DRAIN_TIMEOUT).await;
    };
    tokio::select! {
        ended = server => ended.map_err(ApiError::Serve),
        () = too_long => {
            tracing::warn!("requests were still running when the time to stop was over");
            Ok(())
        }
    }
}

fn check(settings: &ApiSettings) -> Result<(), ApiError> {
    let refused = |name, detail: &str| Err(ApiError::Setting { name, detail: detail.to_owned() });
    if !(1..=OBJECT_BYTES_MAX).contains(&settings.size_bytes_max) {
        return refused("size_bytes_max", "must be 1 to 10485760 bytes: settings only narrow the ceiling");
    }
    if settings.ticket_life < TimeDelta::seconds(1) || settings.ticket_life > TICKET_LIFE_MAX {
        return refused("ticket_life", "must be 1 second to 24 hours");
    }
    if settings.ticket_life.subsec_nanos() != 0 {
        return refused("ticket_life", "must be whole seconds: a signature has no smaller ones");
    }
    Ok(())
}
