//! Health of this process (R-I5): what `/readyz` asks, and the small server of roles that serve nothing else.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use api::{Check, Health};
use async_trait::async_trait;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use objects::ObjectStore;
use store::Db;
use telemetry::Metrics;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// What this process needs to do its work.
#[derive(Clone, Default)]
pub(crate) struct Needs {
    pub(crate) database: Option<Db>,
    pub(crate) objects: Option<Arc<dyn ObjectStore>>,
    /// Consumers by queue, and the relay, and whether messages flow to and from them right now.
    pub(crate) flows: Vec<(&'static str, watch::Receiver<bool>)>,
}

#[async_trait]
impl Health for Needs {
    async fn ready(&self) -> Vec<Check> {
        let mut checks = Vec::new();
        if let Some(db) = &self.database {
            let (ok, detail) = match store::pending_migrations(db).await {
                Ok(0) => (true, "reachable, schema up to date".to_owned()),
                Ok(n) => (false, format!("{n} migrations are missing: run arkiv migrate")),
                Err(error) => (false, error.to_string()),
            };
            checks.push(Check { name: "database".to_owned(), ok, detail });
        }
        if let Some(objects) = &self.objects {
            let (ok, detail) = match objects.probe().await {
                Ok(()) => (true, "the bucket answers".to_owned()),
                Err(error) => (false, error.to_string()),
            };
            checks.push(Check { name: "store".to_owned(), ok, detail });
        }
        for (name, flowing) in &self.flows {
            let ok = *flowing.borrow();
            let detail =
                if ok { "messages flow" } else { "no messages flow: the broker or a dependency is away" };
            checks.push(Check { name: (*name).to_owned(), ok, detail: detail.to_owned() });
        }
        checks
    }
}

#[derive(Clone)]
struct Page {
    needs: Needs,
    metrics: Metrics,
    overview: Option<Db>,
}

/// Serves `/livez`, `/readyz` and `/metrics` until `shutdown`.
pub(crate) async fn serve(
    listen: SocketAddr,
    needs: Needs,
    metrics: Metrics,
    overview: Option<Db>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let listener = TcpListener::bind(listen).await.with_context(|| format!("listening on {listen}"))?;
    tracing::info!(%listen, "health and metrics are served");
    let router = Router::new()
        .route("/livez", get(|| async { "ok" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics_page))
        .with_state(Page { needs, metrics, overview });
    axum::serve(listener, router).with_graceful_shutdown(shutdown.cancelled_owned()).await?;
    Ok(())
}

async fn readyz(State(page): State<Page>) -> (StatusCode, String) {
    let checks = page.needs.ready().await;
    let ready = checks.iter().all(|check| check.ok);
    let lines: Vec<String> = checks
        .iter()
        .map(|check| {
            let mark = if check.ok { "ok" } else { "failed" };
            format!("{}: {mark}: {}", check.name, check.detail)
        })
        .collect();
    let text = lines.join("\n") + "\n";
    (if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, text)
}

async fn metrics_page(State(page): State<Page>) -> String {
    if let Some(db) = &page.overview {
        api::refresh_overview(db).await;
    }
    page.metrics.render()
}
