//! `GET /v1/files`, `GET /v1/files/{id}` (R-D1), and isolation (R-D3).

use axum::body::Body;
use cards::{Ids, MediaType};
use http::StatusCode;
use serde_json::{Value, json};
use testkit::fixture;

use crate::world::{ANNA, Answer, BERTA, World, request};

#[tokio::test]
async fn a_ready_file_shows_what_was_found_and_where_it_is_read() {
    let world = World::new().await;
    let card = world.ready(b"abc").await;
    let id = card.id.to_string();
    world
        .test
        .sql(&format!(
            r#"update cards
               set facts = '{{"media_type": "image/png", "width_px": 640, "height_px": 480, "frames": 1}}',
                   derivatives = '[{{"name": "thumb", "content_type": "image/webp", "width_px": 256,
                                     "height_px": 192, "size_bytes": 1234, "version": "t1"}}]'
               where id = '{id}'"#
        ))
        .await;
    let answer = world.get(ANNA, &format!("/v1/files/{id}")).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    let file = answer.json();
    assert_eq!(
        (&file["state"], &file["size"], &file["keep"]),
        (&json!("ready"), &json!(3), &json!("always"))
    );
    assert_eq!(file["facts"]["width_px"], 640);
    assert_eq!(file["sha256"], "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_eq!(
        file["derivatives"],
        json!([{
            "name": "thumb", "content_type": "image/webp", "width_px": 256, "height_px": 192, "size": 1234,
            "link": format!("/v1/files/{id}/thumb"),
        }])
    );
    assert_eq!(
        file["links"],
        json!({
            "self": format!("/v1/files/{id}"),
            "download": format!("/v1/files/{id}/download"),
            "thumb": format!("/v1/files/{id}/thumb"),
        })
    );
    assert_eq!(
        (&file["problem"], &file["original"], &file["parked"]),
        (&json!(null), &json!(null), &json!(false))
    );
    assert!(file["ready_at"].is_string() && file["ticket"]["ends_at"].is_string());
    let events: Vec<&Value> =
        file["timeline"].as_array().unwrap().iter().map(|entry| &entry["event"]).collect();
    assert_eq!(json!(events), json!(["ticket_issued", "confirmed", "leased", "ready"]));
    // Nothing of where it lies: no key, no bucket, no version of a derivative, no token.
    for secret in ["incoming/", "files/0", "derived/", "\"t1\"", "owner"] {
        let shown = answer.body.replace(&format!("/v1/files/{id}"), "");
        assert!(!shown.contains(secret), "{secret}: {shown}");
    }
    world.test.finish().await;
}

#[tokio::test]
async fn a_duplicate_shows_its_original_and_what_was_made_of_it() {
    let world = World::new().await;
    let original = world.ready(b"abc").await;
    world
        .test
        .sql(
            r#"update cards
               set derivatives = '[{"name": "preview", "content_type": "image/webp", "width_px": 9,
                                    "height_px": 9, "size_bytes": 9, "version": "p1"}]'"#,
        )
        .await;
    let duplicate = world.duplicate(b"abc").await;
    let file = world.get(ANNA, &format!("/v1/files/{}", duplicate.id)).await.json();
    assert_eq!(file["original"]["id"], original.id.to_string());
    assert_eq!(file["links"]["original"], format!("/v1/files/{}", original.id));
    assert_eq!(file["links"]["preview"], format!("/v1/files/{}/preview", duplicate.id));
    assert_eq!(file["derivatives"][0]["name"], "preview");
    world.test.finish().await;
}

/// R-C6, R-D1: an alias is shown by what its original has, in the list too.
#[tokio::test]
async fn the_list_shows_each_duplicate_as_its_details_do() {
    let world = World::new().await;
    for bytes in [b"abc", b"xyz"] {
        world.ready(bytes).await;
        world.duplicate(bytes).await;
        world.duplicate(bytes).await;
    }
    world
        .test
        .sql(
            r#"update cards
               set derivatives = '[{"name": "preview", "content_type": "image/webp", "width_px": 9,
                                    "height_px": 9, "size_bytes": 9, "version": "p1"}]'
               where state = 'ready'"#,
        )
        .await;
    let page = world.get(ANNA, "/v1/files?state=duplicate").await.json();
    let listed = page["data"].as_array().unwrap();
    assert_eq!(listed.len(), 4);
    for shown in listed {
        let mut details = world.get(ANNA, shown["links"]["self"].as_str().unwrap()).await.json();
        details.as_object_mut().unwrap().remove("timeline");
        assert_eq!(*shown, details);
        assert!(shown["sha256"].is_string() && shown["links"]["download"].is_string(), "{shown}");
        assert_eq!(shown["derivatives"][0]["name"], "preview");
    }
    world.test.finish().await;
}

#[tokio::test]
async fn a_pending_a_rejected_and_a_parked_file_say_so() {
    let world = World::new().await;
    let owner = world.owner(ANNA).await;
    let pending = world.pending(b"abc").await;
    let file = world.get(ANNA, &format!("/v1/files/{}", pending.id)).await.json();
    assert!(file["ticket"]["renewable_until"].is_string() && file["links"]["confirm"].is_string());
    assert!(file["links"].get("download").is_none());
    let rejected = fixture::rejected(&world.worker, &world.api, &world.fake, owner, b"a\0b").await;
    let file = world.get(ANNA, &format!("/v1/files/{}", rejected.id)).await.json();
    assert_eq!(file["problem"], json!({ "code": "text_invalid", "detail": "a NUL" }));
    assert_eq!(file["derivatives"], json!([]));
    let queued = fixture::queued(&world.worker, &world.api, &world.fake, owner, MediaType::Text, b"p").await;
    world
        .test
        .sql(&format!(
            "update cards
             set parked_at = now(), parked_queue = 'card.decode', parked_reason = 'http://10.0.0.7 hangs'
             where id = '{0}';
             insert into card_history (owner_id, card_id, revision, event, state, detail)
             values ('{owner}', '{0}', 1, 'parked', 'queued', '{{\"reason\": \"http://10.0.0.7 hangs\"}}')",
            queued.id
        ))
        .await;
    let answer = world.get(ANNA, &format!("/v1/files/{}", queued.id)).await;
    assert_eq!(answer.json()["parked"], true);
    assert!(!answer.body.contains("10.0.0.7"), "{answer:?}");
    world.test.finish().await;
}

#[tokio::test]
async fn an_unchanged_file_is_not_sent_twice_and_a_problem_changes_it() {
    let world = World::new().await;
    let card = world.pending(b"abc").await;
    let path = format!("/v1/files/{}", card.id);
    let first = world.get(ANNA, &path).await;
    let etag = first.header("etag").to_owned();
    let conditional = async || {
        let request = request("GET", &path, ANNA).header("if-none-match", format!("\"x\", {etag}"));
        world.send(request.body(Body::empty()).unwrap()).await
    };
    let same = conditional().await;
    assert_eq!((same.status, same.body.as_str()), (StatusCode::NOT_MODIFIED, ""));
    assert_eq!(same.header("etag"), etag);
    // A refused version raises no revision, but the owner must see it.
    fixture::upload(&world.fake, &card, b"wrong");
    world.post(ANNA, &format!("{path}/confirm")).await.problem(422, "metadata_mismatch");
    assert_eq!(conditional().await.status, StatusCode::OK);
    world.test.finish().await;
}

#[tokio::test]
async fn the_list_goes_page_by_page_through_every_file_once() {
    let world = World::new().await;
    let mut made = Vec::new();
    for n in 0_u8..5 {
        made.push(world.pending(&[b'x', n]).await.id.to_string());
    }
    // Two cards of one moment: the id decides.
    world.test.sql("update cards set created_at = (select max(created_at) from cards)").await;
    made.sort_unstable();
    made.reverse();
    let mut seen = Vec::new();
    let mut path = "/v1/files?limit=2&state=pending".to_owned();
    for _ in 0..10 {
        let answer = world.get(ANNA, &path).await;
        let page = answer.json();
        seen.extend(
            page["data"].as_array().unwrap().iter().map(|file| file["id"].as_str().unwrap().to_owned()),
        );
        if page["has_more"] == false {
            assert!(page["next_cursor"].is_null() && !answer.headers.contains_key("link"));
            break;
        }
        let link = answer.header("link");
        let next = link.strip_prefix('<').unwrap().strip_suffix(">; rel=\"next\"").unwrap().to_owned();
        assert!(next.contains("state=pending") && next.contains(page["next_cursor"].as_str().unwrap()));
        path = next;
    }
    assert_eq!(seen, made);
    world.test.finish().await;
}

#[tokio::test]
async fn filters_pick_by_state_and_type() {
    let world = World::new().await;
    let ready = world.ready(b"abc").await;
    let pending = world.pending(b"abcd").await;
    let owner = world.owner(ANNA).await;
    let png = fixture::pending(&world.api, owner, MediaType::Png, b"x").await;
    let ids = async |query: &str| {
        let page = world.get(ANNA, &format!("/v1/files{query}")).await.json();
        let ids: Vec<String> = page["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|file| file["id"].as_str().unwrap().to_owned())
            .collect();
        ids
    };
    let [ready, pending, png] = [ready, pending, png].map(|card| card.id.to_string());
    assert_eq!(ids("").await, [png.clone(), pending.clone(), ready.clone()]);
    assert_eq!(ids("?state=ready").await, std::slice::from_ref(&ready));
    assert_eq!(ids("?state=ready,pending&content_type=text/plain").await, [pending, ready]);
    assert_eq!(ids("?content_type=image/png").await, [png]);
    assert!(ids("?state=expired").await.is_empty());
    let problem = world.get(ANNA, "/v1/files?limit=0&owner=x").await.problem(422, "invalid_request");
    assert_eq!(problem["errors"][0]["parameter"], "limit");
    assert_eq!(
        problem["errors"][1],
        json!({
            "parameter": "owner", "code": "unknown_parameter",
            "detail": "the parameters are limit, cursor, state and content_type"
        })
    );
    world.test.finish().await;
}

/// The body without what says which request it was: its trace, and the path that the caller knows anyhow.
fn without_request(answer: &Answer) -> String {
    let body = answer.json();
    let text = |name: &str| body[name].as_str().unwrap().to_owned();
    answer.body.replace(&text("trace_id"), "").replace(&text("instance"), "")
}

/// R-D3: whatever is asked of another owner's file, in whatever state, the answer is the one for nothing there, byte for
/// byte, headers included.
#[tokio::test]
async fn another_owners_file_is_answered_like_nothing_there() {
    let world = World::new().await;
    let ready = world.ready(b"abc").await;
    let pending = world.pending(b"abcd").await;
    let nothing = Ids.card().to_string();
    for (method, below) in [
        ("GET", ""),
        ("POST", "/ticket"),
        ("POST", "/confirm"),
        ("GET", "/download"),
        ("GET", "/thumb"),
        ("GET", "/preview"),
    ] {
        let ask = async |id: &str| {
            let request = request(method, &format!("/v1/files/{id}{below}"), BERTA);
            world.send(request.body(Body::empty()).unwrap()).await
        };
        let expected = ask(&nothing).await;
        expected.problem(404, "not_found");
        for id in [&ready.id.to_string(), &pending.id.to_string(), "x", "%00", "..%2f..", "%FF"] {
            let answer = ask(id).await;
            answer.problem(404, "not_found");
            assert_eq!(answer.json()["instance"], format!("/v1/files/{id}{below}"));
            assert_eq!(without_request(&answer), without_request(&expected), "{method} {below} {id}");
            // An id of another length is as much longer or shorter in `instance`; one of ours is not.
            let length = if id.len() == nothing.len() { "" } else { "content-length" };
            let names = |answer: &Answer| {
                answer
                    .headers
                    .iter()
                    .filter(|(name, _)| *name != "traceparent" && *name != length)
                    .map(|(n, v)| (n.clone(), v.clone()))
                    .collect::<Vec<_>>()
            };
            assert_eq!(names(&answer), names(&expected), "{method} {below} {id}");
        }
    }
    assert_eq!(world.get(BERTA, "/v1/files").await.json()["data"], json!([]));
    // A cursor of Anna's shows Berta nothing of Anna's.
    let page = world.get(ANNA, "/v1/files?limit=1").await.json();
    let cursor = page["next_cursor"].as_str().unwrap();
    assert_eq!(world.get(BERTA, &format!("/v1/files?cursor={cursor}")).await.json()["data"], json!([]));
    world.test.finish().await;
}
