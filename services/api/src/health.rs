//! `/livez`, `/readyz`, `/metrics` (R-I5). Open to whoever reaches the listener: they name checks, never ids or secrets.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Json;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use cards::StateName;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use serde::Serialize;
use serde_json::json;
use store::Db;
use store::overview::Overview;
use telemetry::metric;
use tokio::time::Instant;
use url::form_urlencoded;

use crate::Api;
use crate::error::Problem;

/// Longest time all checks may take together: more than each may by itself (5 s), so that the late one is named.
const CHECKS_TIMEOUT: Duration = Duration::from_secs(6);
/// Shortest time between two readings of the tables for the metrics page, however often it is asked for.
const OVERVIEW_EVERY: Duration = Duration::from_secs(5);
/// Longest time such a reading may hold up the page.
const OVERVIEW_TIMEOUT: Duration = Duration::from_secs(3);

/// What this process needs to do its work; the binary knows.
#[async_trait]
pub trait Health: Send + Sync + 'static {
    /// Asks everything once.
    async fn ready(&self) -> Vec<Check>;
}

/// One thing that was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What, such as `database`.
    pub name: String,
    /// Whether it is as it must be.
    pub ok: bool,
    /// One sentence of ours for operators, never a driver's: the page is open. Shown on `?verbose` only.
    pub detail: String,
}

/// The process answers. No dependency is asked: a restart would not help it.
pub(crate) async fn livez() -> &'static str {
    "ok"
}

pub(crate) async fn readyz(
    State(api): State<Arc<Api>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let checks = match tokio::time::timeout(CHECKS_TIMEOUT, api.deps.health.ready()).await {
        Ok(checks) => checks,
        Err(_) => vec![Check {
            name: "readiness".to_owned(),
            ok: false,
            detail: format!("no answer in {} s", CHECKS_TIMEOUT.as_secs()),
        }],
    };
    let query = query.unwrap_or_default();
    let is_verbose = form_urlencoded::parse(query.as_bytes()).any(|(name, _)| name == "verbose");
    let failed = checks.iter().any(|check| !check.ok);
    let shown: Vec<Check> = if is_verbose {
        checks
    } else {
        checks.into_iter().map(|check| Check { detail: String::new(), ..check }).collect()
    };
    if failed {
        return Err(Problem::Unready(shown));
    }
    let body = if is_verbose { json!({ "ready": true, "checks": shown }) } else { json!({ "ready": true }) };
    Ok(Json(body).into_response())
}

pub(crate) async fn metrics_page(State(api): State<Arc<Api>>) -> Response {
    refresh(&api).await;
    let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(CONTENT_TYPE, text)], api.deps.metrics.render()).into_response()
}

/// Reads the tables into gauges, if that was not done just now. A database that is away leaves the last numbers.
async fn refresh(api: &Api) {
    let Some(db) = &api.deps.overview else { return };
    let mut read_at = api.overview_read_at.lock().await;
    if read_at.is_some_and(|at: Instant| at.elapsed() < OVERVIEW_EVERY) {
        return;
    }
    *read_at = Some(Instant::now());
    refresh_overview(db).await;
}

/// Reads the tables and sets the gauges they fill, for whichever role's metrics page shows them. A database that does
/// not answer leaves the gauges as they were.
pub async fn refresh_overview(db: &Db) {
    let reading = async {
        let mut connection = db.acquire().await?;
        store::overview::read(&mut connection).await
    };
    match tokio::time::timeout(OVERVIEW_TIMEOUT, reading).await {
        Ok(Ok(overview)) => show(&overview),
        Ok(Err(error)) => tracing::warn!(%error, "the numbers of the metrics page could not be read"),
        Err(_) => tracing::warn!("the numbers of the metrics page took too long"),
    }
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus' numbers are f64; counts of rows stay below 2^53")]
fn show(overview: &Overview) {
    for state in StateName::ALL {
        // A state that no card is in any more must fall to zero, not stay as it was.
        let count = overview.cards.iter().find(|(name, _)| name == state.as_str()).map_or(0, |(_, n)| *n);
        metrics::gauge!(metric::CARDS, "state" => state.as_str()).set(count as f64);
    }
    metrics::gauge!(metric::OUTBOX_DEPTH).set(overview.outbox_due as f64);
    metrics::gauge!(metric::OUTBOX_OLDEST_AGE).set(overview.outbox_oldest_seconds);
}
