//! Downloads and derivatives: for each state (R-D2, INV-1).

use std::collections::BTreeMap;

use axum::body::Body;
use cards::{Card, MediaType, State};
use http::StatusCode;
use testkit::fixture;
use url::Url;

use crate::world::{ANNA, Answer, World, now, request};

async fn ask(world: &World, card: &Card, below: &str) -> Answer {
    world.get(ANNA, &format!("/v1/files/{}/{below}", card.id)).await
}

fn parse(url: &str) -> (String, BTreeMap<String, String>) {
    let url = Url::parse(url).unwrap();
    (url.path().to_owned(), url.query_pairs().into_owned().collect())
}

async fn add_thumb(world: &World) {
    world
        .test
        .sql(
            r#"update cards
               set derivatives = '[{"name": "thumb", "content_type": "image/webp", "width_px": 9,
                                    "height_px": 9, "size_bytes": 9, "version": "t1"}]'
               where state = 'ready'"#,
        )
        .await;
}

fn token(card: &Card) -> String {
    let State::Ready { object, .. } = &card.state else { panic!("{card:?}") };
    object.token.to_string()
}

#[tokio::test]
async fn a_ready_file_redirects_to_its_version_for_a_minute_as_an_attachment() {
    let world = World::new().await;
    let card = world.ready(b"abc").await;
    world.test.sql("update cards set filename = E'\"кот\\u202e.txt'").await;
    let answer = ask(&world, &card, "download").await;
    assert_eq!((answer.status, answer.body.as_str()), (StatusCode::FOUND, ""));
    assert_eq!((answer.header("cache-control"), answer.header("vary")), ("no-store", "Accept"));
    let (path, query) = parse(answer.header("location"));
    assert_eq!(path, format!("/arkiv/files/{}/{}", card.id, token(&card)));
    assert_eq!((query["versionId"].as_str(), query["X-Amz-Expires"].as_str()), ("copy", "60"));
    assert_eq!(query["response-content-type"], "text/plain");
    let disposition = &query["response-content-disposition"];
    assert!(
        disposition.starts_with("attachment; ") && disposition.contains("UTF-8''%D0%BA"),
        "{disposition}"
    );
    assert!(!disposition.contains("%E2%80%AE"), "{disposition}");
    assert!(query["X-Amz-Credential"].starts_with("READER/"));
    world.test.finish().await;
}

#[tokio::test]
async fn a_link_comes_as_json_to_those_who_ask_for_it() {
    let world = World::new().await;
    let card = world.ready(b"abc").await;
    let request =
        request("GET", &format!("/v1/files/{}/download", card.id), ANNA).header("accept", "application/json");
    let answer = world.send(request.body(Body::empty()).unwrap()).await;
    assert_eq!(answer.status, StatusCode::OK);
    let body = answer.json();
    assert!(parse(body["url"].as_str().unwrap()).0.starts_with("/arkiv/files/"));
    let ends_at: cards::Timestamp = body["expires_at"].as_str().unwrap().parse().unwrap();
    assert!((50..=61).contains(&(ends_at - now()).num_seconds()), "{body}");
    assert_eq!(answer.header("cache-control"), "no-store");
    world.test.finish().await;
}

#[tokio::test]
async fn a_derivative_is_shown_where_there_is_one() {
    let world = World::new().await;
    let card = world.ready(b"abc").await;
    add_thumb(&world).await;
    let (path, query) = parse(ask(&world, &card, "thumb").await.header("location"));
    assert_eq!(path, format!("/arkiv/derived/{}/{}/thumb", card.id, token(&card)));
    assert_eq!((query["versionId"].as_str(), query["response-content-type"].as_str()), ("t1", "image/webp"));
    assert_eq!(query["response-content-disposition"], "inline");
    ask(&world, &card, "preview").await.problem(404, "no_derivative");
    world.test.finish().await;
}

#[tokio::test]
async fn a_duplicate_goes_to_its_originals_object_under_its_own_name() {
    let world = World::new().await;
    let original = world.ready(b"abc").await;
    add_thumb(&world).await;
    let duplicate = world.duplicate(b"abc").await;
    world.test.sql(&format!("update cards set filename = 'mine.txt' where id = '{}'", duplicate.id)).await;
    let (path, query) = parse(ask(&world, &duplicate, "download").await.header("location"));
    assert_eq!(path, format!("/arkiv/files/{}/{}", original.id, token(&original)));
    assert!(query["response-content-disposition"].contains("mine.txt"));
    let (path, _) = parse(ask(&world, &duplicate, "thumb").await.header("location"));
    assert_eq!(path, format!("/arkiv/derived/{}/{}/thumb", original.id, token(&original)));
    // The original's bytes may go at any moment from here on.
    world.set_state(&original, "deleting").await;
    ask(&world, &duplicate, "download").await.problem(410, "gone");
    let shown = world.get(ANNA, &format!("/v1/files/{}", duplicate.id)).await.json();
    assert!(shown["links"].get("download").is_none(), "{shown}");
    world.test.finish().await;
}

#[tokio::test]
async fn no_other_state_is_served() {
    let world = World::new().await;
    let owner = world.owner(ANNA).await;
    let (worker, api, fake) = (&world.worker, &world.api, &world.fake);
    let pending = world.pending(b"pending").await;
    let queued = fixture::queued(worker, api, fake, owner, MediaType::Text, b"queued").await;
    let processing = fixture::queued(worker, api, fake, owner, MediaType::Text, b"leased").await;
    let processing = fixture::leased(worker, &processing).await;
    let rejected = fixture::rejected(worker, api, fake, owner, b"rejected").await;
    let expired = fixture::expired(&world.test, worker, api, owner).await;
    for (card, state, is_retryable) in [
        (&pending, "pending", true),
        (&queued, "queued", true),
        (&processing, "processing", true),
        (&rejected, "rejected", false),
        (&expired, "expired", false),
    ] {
        for below in ["download", "thumb", "preview"] {
            let problem = ask(&world, card, below).await.problem(409, "not_ready");
            assert_eq!(problem["state"], state);
            assert_eq!(problem["retryable"], is_retryable, "{state}");
        }
    }
    let gone = world.ready(b"gone").await;
    for state in ["deleting", "deleted"] {
        world.set_state(&gone, state).await;
        for below in ["download", "thumb", "preview"] {
            assert_eq!(ask(&world, &gone, below).await.problem(410, "gone")["state"], state);
        }
    }
    world.test.finish().await;
}
