//! `POST /v1/files` and renewal (R-A1, R-A2, R-A3, R-A5).

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use cards::{Ids, MediaType};
use http::StatusCode;
use serde_json::{Value, json};
use testkit::fixture;

use crate::world::{ANNA, BERTA, World, photo, ticket_request};

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[tokio::test]
async fn a_post_ticket_has_the_shape_that_upload_libraries_take() {
    let world = World::new().await;
    let answer = world.ask(ANNA, &photo()).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
    let body = answer.json();
    let id = body["id"].as_str().unwrap();
    let key = format!("incoming/{id}");
    assert_eq!(answer.header("location"), format!("/v1/files/{id}"));
    assert_eq!(keys(&body), ["id", "links", "max_bytes", "state", "upload"]);
    assert_eq!(
        body["links"],
        json!({
            "self": format!("/v1/files/{id}"),
            "confirm": format!("/v1/files/{id}/confirm"),
            "ticket": format!("/v1/files/{id}/ticket"),
        })
    );
    assert_eq!((&body["state"], &body["max_bytes"]), (&json!("pending"), &json!(5_242_880)));
    let upload = &body["upload"];
    assert_eq!(keys(upload), ["expires", "expires_at", "fields", "headers", "key", "method", "url"]);
    assert_eq!(upload["method"], "POST");
    assert_eq!(upload["url"], "https://store.example.org/arkiv");
    assert_eq!(upload["key"], key);
    assert_eq!(upload["expires"], 600);
    assert_eq!(upload["headers"], json!({}));
    let expires_at = upload["expires_at"].as_str().unwrap();
    assert!(expires_at.len() == 20 && expires_at.ends_with('Z'), "{expires_at}");
    let fields = &upload["fields"];
    assert!(fields.as_object().unwrap().values().all(Value::is_string));
    assert_eq!(
        keys(fields),
        [
            "Content-Type",
            "key",
            "policy",
            "success_action_status",
            "x-amz-algorithm",
            "x-amz-credential",
            "x-amz-date",
            "x-amz-meta-traceparent",
            "x-amz-signature"
        ]
    );
    assert_eq!((&fields["key"], &fields["Content-Type"]), (&json!(key), &json!("image/jpeg")));
    // One trace from the ticket on (R-I5).
    assert_eq!(fields["x-amz-meta-traceparent"], answer.header("traceparent"));
    let policy: Value =
        serde_json::from_slice(&BASE64.decode(fields["policy"].as_str().unwrap()).unwrap()).unwrap();
    let conditions = policy["conditions"].as_array().unwrap();
    assert!(conditions.contains(&json!(["content-length-range", 5_242_880, 5_242_880])), "{policy}");
    // The row says what the ticket says, and the history begins with it.
    let row = world.test.texts("select state || ' ' || filename || ' ' || keep from cards").await;
    assert_eq!(row, ["pending кот.jpg always"]);
    assert_eq!(world.test.texts("select event from card_history").await, ["ticket_issued"]);
    world.test.finish().await;
}

#[tokio::test]
async fn a_put_ticket_has_no_fields_and_only_signed_headers() {
    let world = World::new().await;
    let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let mut body = photo();
    body["method"] = "PUT".into();
    body["sha256"] = digest.into();
    body["keep"] = "attached".into();
    let answer = world.ask(ANNA, &body).await.json();
    let upload = &answer["upload"];
    assert_eq!(keys(upload), ["expires", "expires_at", "headers", "key", "method", "url"]);
    assert_eq!(
        keys(&upload["headers"]),
        ["Content-Type", "If-None-Match", "x-amz-checksum-sha256", "x-amz-meta-traceparent"]
    );
    let row = world.test.texts("select keep || ' ' || encode(announced_sha256, 'hex') from cards").await;
    assert_eq!(row, [format!("attached {digest}")]);
    world.test.finish().await;
}

#[tokio::test]
async fn a_store_that_takes_more_than_was_signed_gets_no_put_ticket() {
    let world = World::with(|settings| settings.put_tickets = false).await;
    let mut body = photo();
    body["method"] = "PUT".into();
    let problem = world.ask(ANNA, &body).await.problem(422, "put_tickets_unavailable");
    assert_eq!(problem["errors"][0]["pointer"], "#/method");
    assert_eq!(world.test.count("select count(*) from cards").await, 0);
    // A card from before the setting gets none either.
    let owner = world.owner(ANNA).await;
    let new = fixture::new_card(owner, MediaType::Png, 1, None);
    let card =
        fixture::issue(&world.api, &store::tickets::NewCard { method: cards::TicketMethod::Put, ..new })
            .await;
    world.post(ANNA, &format!("/v1/files/{}/ticket", card.id)).await.problem(422, "put_tickets_unavailable");
    world.test.finish().await;
}

#[tokio::test]
async fn each_wrong_field_is_named_by_pointer_and_code() {
    let world = World::with(|settings| settings.size_bytes_max = 1_000_000).await;
    let long = "ы".repeat(256);
    for (field, value, code) in [
        ("filename", Value::Null, "invalid_type"),
        ("filename", json!(7), "invalid_type"),
        ("filename", json!(""), "too_short"),
        ("filename", json!(" \t "), "too_short"),
        ("filename", json!(long), "too_long"),
        ("filename", json!("a\u{0}b"), "control_character"),
        ("filename", json!("a\r\nX-Evil: 1"), "control_character"),
        ("filename", json!("a\u{85}b"), "control_character"),
        ("size", json!(0), "too_small"),
        ("size", json!(1_000_001), "too_large"),
        ("size", json!(u64::MAX), "too_large"),
        ("size", json!(-1), "invalid_type"),
        ("size", json!(1.5), "invalid_type"),
        ("size", json!("5"), "invalid_type"),
        ("size", Value::Null, "invalid_type"),
        ("content_type", json!("image/svg+xml"), "unsupported_content_type"),
        ("content_type", json!("image/JPEG"), "unsupported_content_type"),
        ("content_type", json!("image/jpeg; x=y"), "unsupported_content_type"),
        ("content_type", json!("image/gif"), "unsupported_content_type"),
        ("content_type", json!(["image/jpeg"]), "invalid_type"),
        ("sha256", json!("abc"), "invalid_format"),
        ("sha256", json!(1), "invalid_format"),
        ("method", json!("DELETE"), "invalid_value"),
        ("method", json!("put"), "invalid_value"),
        ("keep", json!("forever"), "invalid_value"),
        ("replaces", json!(7), "invalid_format"),
        ("key", json!("incoming/x"), "unknown_field"),
        ("bucket", json!("other"), "unknown_field"),
        ("owner", json!("berta"), "unknown_field"),
        ("state", json!("ready"), "unknown_field"),
        ("version", json!("v1"), "unknown_field"),
    ] {
        let mut body = json!({ "filename": "a.jpg", "size": 5, "content_type": "image/jpeg" });
        body[field] = value.clone();
        let problem = world.ask(ANNA, &body).await.problem(422, "invalid_request");
        let errors = problem["errors"].as_array().unwrap();
        assert_eq!(errors.len(), 1, "{field}={value}: {problem}");
        assert_eq!(errors[0]["pointer"], format!("#/{field}"), "{field}={value}");
        assert_eq!(errors[0]["code"], code, "{field}={value}");
        assert!(errors[0]["detail"].is_string());
    }
    // All at once, and what is missing.
    let problem = world.ask(ANNA, &json!({ "size": 0, "x/y": 1 })).await.problem(422, "invalid_request");
    let named: Vec<_> = problem["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| (&error["pointer"], &error["code"]))
        .collect();
    assert_eq!(
        json!(named),
        json!([
            ["#/filename", "required"],
            ["#/size", "too_small"],
            ["#/content_type", "required"],
            ["#/x~1y", "unknown_field"]
        ])
    );
    for whole in [json!([]), json!("x"), Value::Null] {
        let problem = world.ask(ANNA, &whole).await.problem(422, "invalid_request");
        assert_eq!(problem["errors"][0]["pointer"], "#");
    }
    assert_eq!(world.test.count("select count(*) from cards").await, 0);
    world.test.finish().await;
}

#[tokio::test]
async fn a_body_that_is_no_json_or_too_large_is_refused() {
    let world = World::new().await;
    for body in ["", "{", "{\"filename\":\"\\ud800\"}", "{\"size\":1}x", "\u{0}"] {
        let request = ticket_request(ANNA).body(body.to_owned().into()).unwrap();
        world.send(request).await.problem(400, "malformed_json");
    }
    let large = ticket_request(ANNA).body(vec![b' '; 100 * 1024].into()).unwrap();
    world.send(large).await.problem(413, "payload_too_large");
    for content_type in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp"] {
        let mut request = ticket_request(ANNA).body(photo().to_string().into()).unwrap();
        request.headers_mut().insert("content-type", content_type.parse().unwrap());
        world.send(request).await.problem(415, "unsupported_media_type");
    }
    let mut request = ticket_request(ANNA).body(photo().to_string().into()).unwrap();
    request.headers_mut().insert("content-type", "Application/JSON; charset=utf-8".parse().unwrap());
    assert_eq!(world.send(request).await.status, StatusCode::CREATED);
    world.test.finish().await;
}

#[tokio::test]
async fn gif_is_taken_in_where_it_is_set() {
    let world = World::with(|settings| settings.allow_gif = true).await;
    let body = json!({ "filename": "a.gif", "size": 1, "content_type": "image/gif" });
    assert_eq!(world.ask(ANNA, &body).await.status, StatusCode::CREATED);
    world.test.finish().await;
}

/// R-A1: whatever the name, the key is ours, and the name comes back as it was given.
#[tokio::test]
async fn no_file_name_gets_into_a_key() {
    let world = World::new().await;
    for name in [
        "../../etc/passwd",
        "..\\..\\boot.ini",
        "%2e%2e%2fx",
        "photo\u{202E}gpj.exe",
        "${filename}",
        "\" ; drop table cards; --",
        "файл.пдф",
        "照片.jpg",
        "تصویر.png",
        "🐈‍⬛.webp",
        "a\u{301}\u{301}\u{301}.txt",
        "<script>alert(1)</script>.html",
        "CON",
        ".",
    ] {
        let body = json!({ "filename": name, "size": 1, "content_type": "text/plain" });
        let answer = world.ask(ANNA, &body).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{name}: {answer:?}");
        let ticket = answer.json();
        let id = ticket["id"].as_str().unwrap();
        assert_eq!(ticket["upload"]["key"], format!("incoming/{id}"));
        assert_eq!(ticket["upload"]["fields"]["key"], format!("incoming/{id}"));
        let shown = world.get(ANNA, &format!("/v1/files/{id}")).await.json();
        assert_eq!(shown["filename"], name);
    }
    let keys = world.test.count("select count(*) from cards where source_key = 'incoming/' || id").await;
    assert_eq!(keys, world.test.count("select count(*) from cards").await);
    let huge = json!({ "filename": "x".repeat(10_000), "size": 1, "content_type": "text/plain" });
    world.ask(ANNA, &huge).await.problem(422, "invalid_request");
    world.test.finish().await;
}

/// A ticket without the seconds it has left: they pass from answer to answer.
fn without_left(mut ticket: Value) -> Value {
    ticket["upload"]["expires"].take();
    ticket
}

#[tokio::test]
async fn a_ticket_asked_for_again_says_what_is_left_of_it_and_where_it_is_renewed() {
    let world = World::new().await;
    let body = photo().to_string();
    let ask = async || {
        let request = ticket_request(ANNA).header("idempotency-key", "k");
        world.send(request.body(body.clone().into()).unwrap()).await.json()
    };
    let first = ask().await;
    assert_eq!(first["upload"]["expires"], 600);
    world.test.pass_time(300).await;
    let left = ask().await["upload"]["expires"].as_i64().unwrap();
    assert!((1..=300).contains(&left), "{left}");
    // Over: the same shape, so that nothing breaks on it, but nobody is told that it is good.
    world.test.pass_time(300).await;
    let over = ask().await;
    assert_eq!((&over["id"], &over["state"]), (&first["id"], &json!("pending")));
    assert_eq!(over["upload"]["expires"], 0, "{over}");
    assert_eq!(keys(&over["upload"]), keys(&first["upload"]));
    // The next step: the link that renews it.
    let renewed = world.post(ANNA, over["links"]["ticket"].as_str().unwrap()).await.json();
    assert_eq!((&renewed["id"], &renewed["upload"]["expires"]), (&first["id"], &json!(600)));
    world.test.finish().await;
}

#[tokio::test]
async fn an_idempotency_key_makes_one_card_for_one_body() {
    let world = World::new().await;
    let ask = async |subject: &str, key: &str, body: &Value| {
        let request = ticket_request(subject).header("idempotency-key", key);
        world.send(request.body(body.to_string().into()).unwrap()).await
    };
    let first = ask(ANNA, "k1", &photo()).await;
    assert_eq!(first.status, StatusCode::CREATED);
    let again = ask(ANNA, "k1", &photo()).await;
    // The very same ticket, signature and all: it is signed from the stored times.
    assert_eq!((again.status, without_left(again.json())), (StatusCode::OK, without_left(first.json())));
    let mut other = photo();
    other["size"] = 7.into();
    ask(ANNA, "k1", &other).await.problem(422, "idempotency_mismatch");
    // Another owner's key is another key.
    assert_eq!(ask(BERTA, "k1", &photo()).await.status, StatusCode::CREATED);
    assert_eq!(ask(ANNA, "k2", &photo()).await.status, StatusCode::CREATED);
    assert_eq!(world.test.count("select count(*) from cards").await, 3);
    for key in ["", "a b", &"k".repeat(256)] {
        let problem = ask(ANNA, key, &photo()).await.problem(422, "invalid_request");
        assert_eq!(problem["errors"][0]["header"], "idempotency-key");
    }
    world.test.finish().await;
}

#[tokio::test]
async fn ten_requests_at_once_with_one_key_make_one_card() {
    let world = World::new().await;
    let answers = futures::future::join_all((0..10).map(|_| {
        let request = ticket_request(ANNA).header("idempotency-key", "once");
        world.send(request.body(photo().to_string().into()).unwrap())
    }))
    .await;
    assert_eq!(answers.iter().filter(|answer| answer.status == StatusCode::CREATED).count(), 1);
    let first = without_left(answers[0].json());
    assert!(answers.iter().all(|answer| without_left(answer.json()) == first), "{answers:?}");
    assert_eq!(world.test.count("select count(*) from owners").await, 1);
    world.test.finish().await;
}

#[tokio::test]
async fn a_key_used_again_after_the_upload_shows_the_state_and_no_ticket() {
    let world = World::new().await;
    let body = json!({ "filename": "a.txt", "size": 3, "content_type": "text/plain" }).to_string();
    let ask = async || {
        let request = ticket_request(ANNA).header("idempotency-key", "k");
        world.send(request.body(body.clone().into()).unwrap()).await
    };
    let ticket = ask().await.json();
    let id = ticket["id"].as_str().unwrap();
    let trace = ticket["upload"]["fields"]["x-amz-meta-traceparent"].as_str().unwrap();
    world.fake.upload(&format!("incoming/{id}"), "abc", "text/plain", &[("traceparent", trace)]);
    assert_eq!(world.post(ANNA, &format!("/v1/files/{id}/confirm")).await.status, StatusCode::ACCEPTED);
    let again = ask().await.json();
    assert_eq!((&again["id"], &again["state"]), (&json!(id), &json!("queued")));
    assert!(again.get("upload").is_none());
    world.test.finish().await;
}

#[tokio::test]
async fn a_pending_ticket_is_renewed_until_its_day_is_over() {
    let world = World::new().await;
    let first = world.ask(ANNA, &photo()).await.json();
    let path = format!("/v1/files/{}/ticket", first["id"].as_str().unwrap());
    world.test.pass_time(3600).await;
    let renewed = world.post(ANNA, &path).await;
    assert_eq!(renewed.status, StatusCode::OK);
    let renewed = renewed.json();
    assert_eq!((&renewed["id"], &renewed["upload"]["expires"]), (&first["id"], &json!(600)));
    // It was over, and runs anew.
    let runs = "select count(*) from cards where ticket_ends_at > now() + interval '9 minutes'";
    assert_eq!(world.test.count(runs).await, 1);
    // The trace stays the one the card knows: the upload is compared with it (R-B2).
    assert_eq!(
        renewed["upload"]["fields"]["x-amz-meta-traceparent"],
        first["upload"]["fields"]["x-amz-meta-traceparent"]
    );
    assert_eq!(world.test.count("select revision from cards").await, 1);
    world.test.pass_time(23 * 3600).await;
    world.post(ANNA, &path).await.problem(410, "ticket_expired");
    world.test.finish().await;
}

#[tokio::test]
async fn what_is_no_longer_pending_is_not_renewed() {
    let world = World::new().await;
    let owner = world.owner(ANNA).await;
    let renew = async |card: &cards::Card| world.post(ANNA, &format!("/v1/files/{}/ticket", card.id)).await;
    let ready = world.ready(b"abc").await;
    assert_eq!(renew(&ready).await.problem(409, "invalid_state")["state"], "ready");
    let expired = fixture::expired(&world.test, &world.worker, &world.api, owner).await;
    renew(&expired).await.problem(410, "ticket_expired");
    world.set_state(&ready, "deleting").await;
    assert_eq!(renew(&ready).await.problem(409, "invalid_state")["state"], "deleting");
    world.post(ANNA, &format!("/v1/files/{}/ticket", Ids.card())).await.problem(404, "not_found");
    world.post(BERTA, &format!("/v1/files/{}/ticket", expired.id)).await.problem(404, "not_found");
    world.test.finish().await;
}

#[tokio::test]
async fn links_go_below_the_public_urls_path() {
    let world = World::with(|settings| {
        settings.public_url = Some("https://example.org/arkiv/".parse().unwrap());
    })
    .await;
    let answer = world.ask(ANNA, &photo()).await;
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(answer.header("location"), format!("/arkiv/v1/files/{id}"));
    world.test.finish().await;
}
