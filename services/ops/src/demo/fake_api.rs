//! API and store in one, for tests: every file ends as its sample says, except the one that is named to be taken.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use cards::{Ids, StateName};
use serde_json::{Value, json};

use super::samples::{self, Sample};

pub(super) struct FakeApi {
    pub(super) url: String,
    pub(super) uploads: Uploads,
}

/// Name and size of each upload, in the order they came.
type Uploads = Arc<Mutex<Vec<(String, usize)>>>;

struct World {
    url: String,
    /// Taken although it should not be.
    taken: Option<&'static str>,
    samples: HashMap<String, Sample>,
    /// The name of each card.
    cards: Mutex<HashMap<String, String>>,
    uploads: Uploads,
}

pub(super) async fn start(taken: Option<&'static str>) -> FakeApi {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let samples = samples::chains().unwrap().into_iter().flatten();
    let uploads = Uploads::default();
    let world = World {
        url: url.clone(),
        taken,
        samples: samples.map(|sample| (sample.name.to_owned(), sample)).collect(),
        cards: Mutex::default(),
        uploads: Arc::clone(&uploads),
    };
    let routes = Router::new()
        .route("/dev/token", post(async || Json(json!({ "token": "secret" }))))
        .route("/v1/files", post(ticket))
        .route("/v1/files/{id}", get(file))
        .route(
            "/v1/files/{id}/thumb",
            get(async |Path(id): Path<String>| Redirect::to(&format!("/bucket/{id}"))),
        )
        .route("/bucket", post(upload))
        .route("/bucket/{id}", get(thumb))
        .layer(DefaultBodyLimit::disable())
        .with_state(Arc::new(world));
    tokio::spawn(async { axum::serve(listener, routes).await });
    FakeApi { url, uploads }
}

async fn ticket(State(world): State<Arc<World>>, headers: HeaderMap, Json(wish): Json<Value>) -> Response {
    assert_eq!(headers[header::AUTHORIZATION], "Bearer secret");
    if wish["method"] == "PUT" {
        let problem = json!({ "code": "put_tickets_unavailable", "detail": "ask for POST" });
        return (StatusCode::UNPROCESSABLE_ENTITY, Json(problem)).into_response();
    }
    let id = Ids.card().to_string();
    let name = wish["filename"].as_str().unwrap().to_owned();
    assert_eq!(wish["content_type"], world.samples[&name].media_type.as_str());
    world.cards.lock().unwrap().insert(id.clone(), name);
    let answer = json!({ "id": id, "state": "pending", "upload": {
        "method": "POST", "url": format!("{}/bucket", world.url), "key": "k", "expires": 600, "headers": {},
        "fields": { "key": id, "Content-Type": wish["content_type"] } } });
    (StatusCode::CREATED, Json(answer)).into_response()
}

async fn upload(State(world): State<Arc<World>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    assert!(!headers.contains_key(header::AUTHORIZATION), "the token is the API's, not the store's");
    let cards = world.cards.lock().unwrap();
    let head = String::from_utf8_lossy(&body[..body.len().min(1500)]).into_owned();
    let (id, name) = cards.iter().find(|(id, _)| head.contains(id.as_str())).unwrap();
    assert!(head.find("name=\"file\"").unwrap() > head.find(id.as_str()).unwrap(), "fields first: {head}");
    let sample = &world.samples[name];
    assert!(body.windows(sample.bytes.len()).any(|window| window == sample.bytes), "all bytes of {name}");
    world.uploads.lock().unwrap().push((name.clone(), sample.bytes.len()));
    StatusCode::CREATED
}

async fn file(State(world): State<Arc<World>>, Path(id): Path<String>) -> Json<Value> {
    let name = world.cards.lock().unwrap()[&id].clone();
    let sample = &world.samples[&name];
    let is_taken = world.taken == Some(sample.name);
    let state = if is_taken { StateName::Ready } else { sample.expected };
    let problem = sample.reason.filter(|_| !is_taken);
    let way = [StateName::Pending, StateName::Queued, StateName::Processing, state];
    Json(json!({
        "id": id, "state": state,
        "problem": problem.map(|code| json!({ "code": code, "detail": "because" })),
        "timeline": way.map(|state| json!({ "id": 1, "event": "x", "state": state })),
    }))
}

async fn thumb(State(world): State<Arc<World>>, Path(id): Path<String>) -> Vec<u8> {
    let name = world.cards.lock().unwrap()[&id].clone();
    let (width, height) = world.samples[&name].thumb_px.unwrap();
    super::picture::webp(width, height).unwrap()
}
