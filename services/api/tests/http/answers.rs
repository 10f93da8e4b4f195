//! What every answer has in common: problems (R-D5), traces, CORS, health, metrics, stopping (R-I5).

use std::sync::Arc;
use std::time::Duration;

use api::{ApiError, Check, Health, JwtKey};
use async_trait::async_trait;
use axum::body::Body;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::{Request, StatusCode};
use objects::fake::Fake;
use sha2::{Digest, Sha256};
use store::{Db, DbSettings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::world::{ANNA, Says, World, deps, photo, request, send, settings};

fn plain(method: &str, path: &str) -> Request<Body> {
    Request::builder().method(method).uri(path).body(Body::empty()).unwrap()
}

/// A database that nobody answers for.
fn nowhere() -> Db {
    Db::new(&DbSettings {
        url: "postgres://nobody:nothing@127.0.0.1:1/nothing".to_owned(),
        connections_max: 2,
        name: "arkiv test".to_owned(),
    })
    .unwrap()
}

#[tokio::test]
async fn what_the_server_refuses_by_itself_is_a_problem_too() {
    let world = World::new().await;
    world.send(plain("GET", "/")).await.problem(404, "route_not_found");
    world.send(plain("GET", "/v1/files/")).await.problem(404, "route_not_found");
    let answer = world.send(plain("DELETE", "/v1/files")).await;
    answer.problem(405, "method_not_allowed");
    assert!(answer.header("allow").contains("POST"));
    world.send(plain("BREW", "/livez")).await.problem(405, "method_not_allowed");
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("cache-control", "no-store"),
        ("referrer-policy", "no-referrer"),
        ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
    ] {
        assert_eq!(answer.header(name), value);
    }
    world.test.finish().await;
}

/// R-D5: `type` can be followed, and `instance` says which request it was, without what a query may hold.
#[tokio::test]
async fn a_problem_names_its_request_and_leads_to_a_page_that_explains_it() {
    let world =
        World::with(|settings| settings.public_url = Some("https://x.example/a/".parse().unwrap())).await;
    let body = world.get(ANNA, "/v1/files/none?secret=1").await.json();
    assert_eq!((&body["code"], &body["instance"]), (&"not_found".into(), &"/a/v1/files/none".into()));
    assert_eq!(body["type"], "/a/problems/not_found");
    let page = world.send(plain("GET", "/problems/not_found")).await;
    assert_eq!((page.status, page.header("content-type")), (StatusCode::OK, "text/html; charset=utf-8"));
    for said in ["not_found", "404", "There is no such file", "viewport", "href=\"/a/problems\""] {
        assert!(page.body.contains(said), "{said}: {}", page.body);
    }
    world.test.finish().await;
}

#[tokio::test]
async fn every_code_has_a_page_without_scripts_that_a_telephone_can_show() {
    let away = nowhere();
    let router = api::router(settings(), deps(&away, None, &Fake::new(), Arc::new(Says(vec![])))).unwrap();
    let index = send(&router, plain("GET", "/problems")).await;
    let paths: Vec<&str> = index
        .body
        .split("href=\"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
        .filter(|path| path.starts_with("/problems/"))
        .collect();
    assert!(paths.len() > 25, "{paths:?}");
    send(&router, plain("GET", "/problems/nonsense")).await.problem(404, "route_not_found");
    for path in paths.into_iter().chain(["/problems"]) {
        let page = send(&router, plain("GET", path)).await;
        assert_eq!(page.status, StatusCode::OK, "{path}");
        assert!(page.body.contains("width=device-width") && page.body.contains("light dark"), "{path}");
        assert!(!page.body.contains("<script") && !page.body.contains("style="), "{path}");
        // The style is allowed by its digest, and nothing else is.
        let policy = page.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
        let style = page.body.split("<style>").nth(1).unwrap().split("</style>").next().unwrap();
        let digest = BASE64.encode(Sha256::digest(style));
        assert!(policy.contains(&format!("'sha256-{digest}'")), "{policy}");
    }
}

#[tokio::test]
async fn a_trace_is_continued_or_begun() {
    let world = World::new().await;
    let trace_id = "4bf92f3577b34da6a3ce929d0e0e4736";
    let traced = request("GET", "/v1/files/x", ANNA)
        .header("traceparent", format!("00-{trace_id}-00f067aa0ba902b7-01"));
    let answer = world.send(traced.body(Body::empty()).unwrap()).await;
    assert_eq!(answer.problem(404, "not_found")["trace_id"], trace_id);
    assert!(!answer.header("traceparent").contains("00f067aa0ba902b7"));
    let broken = request("GET", "/v1/files/x", ANNA).header("traceparent", "x\"y");
    world.send(broken.body(Body::empty()).unwrap()).await.problem(404, "not_found");
    world.test.finish().await;
}

#[tokio::test]
async fn a_configured_origin_reads_answers_and_problems_and_no_other_does() {
    let world = World::new().await;
    let from = |origin: &str| {
        request("GET", "/v1/files/x", ANNA).header("origin", origin).body(Body::empty()).unwrap()
    };
    let answer = world.send(from("https://app.example.org")).await;
    answer.problem(404, "not_found");
    assert_eq!(answer.header("access-control-allow-origin"), "https://app.example.org");
    let exposed = answer.header("access-control-expose-headers").to_lowercase();
    for name in ["location", "ratelimit", "ratelimit-policy", "retry-after", "etag", "link", "traceparent"] {
        assert!(exposed.split(',').any(|exposed| exposed.trim() == name), "{name}: {exposed}");
    }
    let other = world.send(from("https://evil.example")).await;
    assert!(!other.headers.contains_key("access-control-allow-origin"), "{other:?}");

    let preflight = Request::builder()
        .method("OPTIONS")
        .uri("/v1/files")
        .header("origin", "https://app.example.org")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "authorization,content-type,idempotency-key");
    let answer = world.send(preflight.body(Body::empty()).unwrap()).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    let allowed = answer.header("access-control-allow-headers").to_lowercase();
    for name in ["authorization", "content-type", "idempotency-key"] {
        assert!(allowed.contains(name), "{allowed}");
    }
    world.test.finish().await;
}

#[tokio::test]
async fn a_database_that_is_away_is_a_503_to_be_tried_again_and_the_process_lives() {
    let away = nowhere();
    let router =
        api::router(settings(), deps(&away, Some(&away), &Fake::new(), Arc::new(Says(vec![])))).unwrap();
    let asked = request("GET", "/v1/files", ANNA).body(Body::empty()).unwrap();
    let answer = send(&router, asked).await;
    let problem = answer.problem(503, "database_unavailable");
    assert_eq!((&problem["retryable"], answer.header("retry-after")), (&true.into(), "5"));
    // Where it is, and as whom we come, stays in the log.
    assert!(!answer.body.contains("127.0.0.1") && !answer.body.contains("nobody"), "{answer:?}");
    assert_eq!(send(&router, plain("GET", "/livez")).await.status, StatusCode::OK);
    assert_eq!(send(&router, plain("GET", "/metrics")).await.status, StatusCode::OK);
}

struct Panics;

#[async_trait]
impl Health for Panics {
    async fn ready(&self) -> Vec<Check> {
        panic!("the password is 12345");
    }
}

#[tokio::test]
async fn a_panic_is_a_problem_that_says_nothing() {
    let away = nowhere();
    let router = api::router(settings(), deps(&away, None, &Fake::new(), Arc::new(Panics))).unwrap();
    let asked = Request::builder().uri("/readyz").header("origin", "https://app.example.org");
    let answer = send(&router, asked.body(Body::empty()).unwrap()).await;
    answer.problem(500, "internal_error");
    assert!(!answer.body.contains("12345"), "{answer:?}");
    assert_eq!(answer.header("access-control-allow-origin"), "https://app.example.org");
}

#[tokio::test]
async fn readiness_names_what_failed_and_details_only_when_asked() {
    let check = |name: &str, ok| Check { name: name.to_owned(), ok, detail: format!("the {name} says so") };
    let away = nowhere();
    let router =
        |checks| api::router(settings(), deps(&away, None, &Fake::new(), Arc::new(Says(checks)))).unwrap();
    let good = router(vec![check("database", true), check("bucket", true)]);
    let answer = send(&good, plain("GET", "/readyz")).await;
    assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, r#"{"ready":true}"#));
    let verbose = send(&good, plain("GET", "/readyz?verbose")).await.json();
    assert_eq!(verbose["checks"][1]["detail"], "the bucket says so");
    let bad = router(vec![check("database", true), check("bucket", false)]);
    let answer = send(&bad, plain("GET", "/readyz")).await;
    let problem = answer.problem(503, "unready");
    assert_eq!(problem["detail"], "not ready: bucket");
    assert_eq!(problem["checks"][1]["ok"], false);
    assert!(!answer.body.contains("says so"), "{answer:?}");
    let answer = send(&bad, plain("GET", "/readyz?verbose")).await;
    assert_eq!(answer.problem(503, "unready")["checks"][1]["detail"], "the bucket says so");
}

#[tokio::test]
async fn the_metrics_page_counts_requests_by_pattern_and_cards_by_state() {
    let world = World::new().await;
    let id = world.ask(ANNA, &photo()).await.json()["id"].as_str().unwrap().to_owned();
    world.get(ANNA, &format!("/v1/files/{id}")).await;
    let page = world.send(plain("GET", "/metrics")).await;
    assert!(page.header("content-type").starts_with("text/plain"));
    assert!(
        page.body.contains(r#"arkiv_http_requests_total{method="GET",route="/v1/files/{id}",status="200"}"#),
        "{}",
        page.body
    );
    assert!(page.body.contains("arkiv_cards{state=\"pending\"} "), "{}", page.body);
    assert!(page.body.contains("arkiv_cards{state=\"deleted\"} 0"), "{}", page.body);
    assert!(!page.body.contains(&id), "an id must never be a label");
    world.test.finish().await;
}

#[tokio::test]
async fn settings_that_can_not_work_are_refused_by_name() {
    let away = nowhere();
    let name = |change: fn(&mut api::ApiSettings)| {
        let mut settings = settings();
        change(&mut settings);
        match api::router(settings, deps(&away, None, &Fake::new(), Arc::new(Says(vec![])))) {
            Err(ApiError::Setting { name, .. }) => name,
            other => panic!("{:?}", other.map(|_| ())),
        }
    };
    assert_eq!(name(|settings| settings.size_bytes_max = 10 * 1024 * 1024 + 1), "size_bytes_max");
    assert_eq!(name(|settings| settings.size_bytes_max = 0), "size_bytes_max");
    assert_eq!(name(|settings| settings.ticket_life = chrono::TimeDelta::milliseconds(1500)), "ticket_life");
    assert_eq!(name(|settings| settings.ticket_life = chrono::TimeDelta::zero()), "ticket_life");
    assert_eq!(name(|settings| settings.cors_origins = vec!["*".to_owned()]), "cors_origins");
    assert_eq!(name(|settings| settings.jwt.key = JwtKey::Hs256(b"short".to_vec())), "jwt.key");
    assert_eq!(name(|settings| settings.jwt.issuer = String::new()), "jwt.issuer");
    assert_eq!(name(|settings| settings.jwt.audience = String::new()), "jwt.audience");
}

/// A health whose answer the test lets go.
struct Held {
    asked: Arc<Notify>,
    go: Arc<Notify>,
}

#[async_trait]
impl Health for Held {
    async fn ready(&self) -> Vec<Check> {
        self.asked.notify_one();
        self.go.notified().await;
        Vec::new()
    }
}

#[tokio::test]
async fn a_stop_lets_the_request_in_hand_end_and_takes_no_new_one() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = free.local_addr().unwrap();
    drop(free);
    let (asked, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let health = Arc::new(Held { asked: Arc::clone(&asked), go: Arc::clone(&go) });
    let deps = deps(&nowhere(), None, &Fake::new(), health);
    let shutdown = CancellationToken::new();
    let served = tokio::spawn(api::serve(api::ApiSettings { listen, ..settings() }, deps, shutdown.clone()));
    let mut connection = testkit::until("the listener", Duration::from_secs(10), || async move {
        TcpStream::connect(listen).await.ok()
    })
    .await;
    connection.write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    asked.notified().await;
    shutdown.cancel();
    go.notify_one();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    tokio::time::timeout(Duration::from_secs(10), served).await.unwrap().unwrap().unwrap();
    assert!(TcpStream::connect(listen).await.is_err());
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap();
    let deps = deps(&nowhere(), None, &Fake::new(), Arc::new(Says(vec![])));
    let settings = api::ApiSettings { listen, ..settings() };
    let error = api::serve(settings, deps, CancellationToken::new()).await.unwrap_err();
    assert!(matches!(error, ApiError::Listen { listen: named, .. } if named == listen), "{error}");
}
