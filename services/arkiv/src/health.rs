//! Health of this process (R-I5): what `/readyz` asks, and the small server of roles that serve nothing else.
//!
//! Whoever reaches the listener reads the answer, so it has sentences of ours alone; what a driver said can name hosts
//! and users, and goes to the log.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

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

/// Longest time one thing may take to answer: what is late is not ready.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

#[async_trait]
impl Health for Needs {
    async fn ready(&self) -> Vec<Check> {
        let database = async {
            let db = self.database.as_ref()?;
            Some(check("database", CHECK_TIMEOUT, database(db)).await)
        };
        let objects = async {
            let objects = self.objects.as_ref()?;
            Some(check("store", CHECK_TIMEOUT, bucket(&**objects)).await)
        };
        // Beside each other: all together are as late as the latest.
        let (database, objects) = tokio::join!(database, objects);
        let flows = self.flows.iter().map(|(name, flowing)| {
            let ok = *flowing.borrow();
            let detail =
                if ok { "messages flow" } else { "no messages flow: the broker or a dependency is away" };
            Check { name: (*name).to_owned(), ok, detail: detail.to_owned() }
        });
        database.into_iter().chain(objects).chain(flows).collect()
    }
}

/// Asks one thing, for a bounded time. An answer is a sentence of ours, a failure one too.
async fn check(
    name: &'static str,
    within: Duration,
    answer: impl Future<Output = Result<&'static str, String>>,
) -> Check {
    let (ok, detail) = match tokio::time::timeout(within, answer).await {
        Ok(Ok(detail)) => (true, detail.to_owned()),
        Ok(Err(detail)) => (false, detail),
        Err(_) => {
            tracing::warn!(check = name, within_seconds = within.as_secs(), "a health check was late");
            (false, format!("no answer in {} s", within.as_secs()))
        }
    };
    Check { name: name.to_owned(), ok, detail }
}

async fn database(db: &Db) -> Result<&'static str, String> {
    match store::pending_migrations(db).await {
        Ok(0) => Ok("reachable, schema up to date"),
        Ok(n) => Err(format!("{n} migrations are missing: run arkiv migrate")),
        Err(error) => {
            tracing::warn!(%error, check = "database", "a health check failed");
            Err("the database does not answer as it should; the log says more".to_owned())
        }
    }
}

async fn bucket(objects: &dyn ObjectStore) -> Result<&'static str, String> {
    match objects.probe().await {
        Ok(()) => Ok("the bucket answers"),
        Err(error) => {
            tracing::warn!(%error, check = "store", "a health check failed");
            Err("the object store does not answer as it should; the log says more".to_owned())
        }
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

async fn readyz(State(Page { needs, .. }): State<Page>) -> (StatusCode, String) {
    let checks = needs.ready().await;
    let ready = checks.iter().all(|check| check.ok);
    (if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, page(&checks))
}

/// A line a check.
fn page(checks: &[Check]) -> String {
    let lines: Vec<String> = checks
        .iter()
        .map(|check| {
            let mark = if check.ok { "ok" } else { "failed" };
            format!("{}: {mark}: {}\n", check.name, check.detail)
        })
        .collect();
    lines.concat()
}

async fn metrics_page(State(page): State<Page>) -> String {
    if let Some(db) = &page.overview {
        api::refresh_overview(db).await;
    }
    page.metrics.render()
}

#[cfg(test)]
mod tests {
    use objects::fake::{Fake, Fault};
    use objects::{Credentials, Operation, S3, S3Settings, StoreKind};
    use store::DbSettings;
    use tokio::time::Instant;

    use super::*;

    fn database_at(port: u16) -> Db {
        Db::new(&DbSettings {
            url: format!("postgres://somebody:hunter2@127.0.0.1:{port}/secret"),
            connections_max: 1,
            name: "arkiv test".to_owned(),
        })
        .unwrap()
    }

    #[tokio::test]
    async fn what_drivers_say_stays_in_the_log() {
        // It hangs up on whoever connects: an error at once, with the driver's own words.
        let rude = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = rude.local_addr().unwrap().port();
        let rudeness = tokio::spawn(async move { while rude.accept().await.is_ok() {} });
        let store = S3::new(&S3Settings {
            endpoint: "http://127.0.0.1:1".parse().unwrap(),
            region: "default".to_owned(),
            bucket: "hidden".to_owned(),
            credentials: Credentials::new("somebody", "hunter2"),
            kind: StoreKind::Ceph,
        });
        let needs = Needs {
            database: Some(database_at(port)),
            objects: Some(Arc::new(store)),
            flows: vec![("relay", watch::channel(false).1)],
        };
        let (status, text) =
            readyz(State(Page { needs, metrics: Metrics::install().unwrap(), overview: None })).await;
        rudeness.abort();
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(
            text,
            "database: failed: the database does not answer as it should; the log says more\n\
             store: failed: the object store does not answer as it should; the log says more\n\
             relay: failed: no messages flow: the broker or a dependency is away\n"
        );
    }

    #[tokio::test]
    async fn what_answers_is_ready() {
        let needs = Needs { database: None, objects: Some(Arc::new(Fake::new())), flows: Vec::new() };
        assert!(needs.ready().await.iter().all(|check| check.ok));
    }

    /// The database takes the connection and says nothing; so does the store.
    #[tokio::test(start_paused = true)]
    async fn what_is_late_is_not_ready_and_all_together_are_late_once() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let fake = Fake::new();
        fake.fail(Operation::Probe, Fault::Hang);
        let needs = Needs {
            database: Some(database_at(silent.local_addr().unwrap().port())),
            objects: Some(Arc::new(fake)),
            flows: Vec::new(),
        };
        let began = Instant::now();
        let checks = needs.ready().await;
        assert!(checks.len() == 2 && checks.iter().all(|check| !check.ok), "{checks:?}");
        assert_eq!(checks[1].detail, "no answer in 5 s");
        assert_eq!(began.elapsed().as_secs(), CHECK_TIMEOUT.as_secs());
    }
}
