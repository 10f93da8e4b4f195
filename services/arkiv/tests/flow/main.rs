//! The whole flow on a real PostgreSQL, RabbitMQ and S3 server, with the real binary, its roles each in a process that
//! may die at any named point (R-J, ring 4). Nobody ever makes a confirm call.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail their test")]

mod kills;
mod outages;
mod soak;
mod stack;

use reqwest::Method;
use stack::{BOUND, Stack};
use testkit::until;

/// A picture, 64 x 48.
const PHOTO: &[u8] = include_bytes!("../../../decoder/tests/cases/orient-6.jpg");

#[tokio::test(flavor = "multi_thread")]
async fn uploads_travel_from_ticket_to_thumbnail_without_a_confirm_call() {
    let stack = Stack::new().await;
    let mut up = stack.start("up");
    stack.ready().await;

    let photo = stack.upload_as("POST", "image/jpeg", PHOTO).await;
    let text = stack.upload("a text").await;
    stack.wait(&photo, "ready", 0).await;
    stack.wait(&text, "ready", 0).await;
    let (_, card) = stack.call(Method::GET, &format!("/v1/files/{photo}"), None).await;
    let timeline: Vec<&str> =
        card["timeline"].as_array().unwrap().iter().map(|entry| entry["state"].as_str().unwrap()).collect();
    assert_eq!(timeline, ["pending", "queued", "processing", "ready"]);

    let (status, link) = stack.call(Method::GET, &format!("/v1/files/{photo}/thumb"), None).await;
    assert_eq!(status, 200, "{link}");
    // The client followed the redirect to the store without its token; the picture is what came back.
    stack.check().await;
    assert_eq!(stack.db.texts("select distinct confirmed_by from cards").await, ["event"]);

    // SIGTERM: work in hand is finished or handed back, and the process ends well.
    assert!(up.stop().await, "{}", up.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn put_tickets_are_signed_for_exactly_one_upload_of_exactly_these_bytes() {
    let stack = Stack::new().await;
    let _up = stack.start("up");
    stack.ready().await;
    let ticket = stack.ticket("PUT", "image/jpeg", PHOTO).await;
    assert_eq!(ticket["upload"].get("fields"), None);
    assert_eq!(stack.upload_with(&ticket, &PHOTO[1..]).await, 403, "a byte short");
    assert_eq!(stack.upload_with(&ticket, PHOTO).await, 200);
    stack.wait(ticket["id"].as_str().unwrap(), "ready", 0).await;
    stack.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_file_is_rejected_and_a_second_upload_of_the_same_bytes_is_a_duplicate() {
    let stack = Stack::new().await;
    let _up = stack.start("up");
    stack.ready().await;
    let bad = stack.upload_as("POST", "image/png", PHOTO).await;
    stack.wait(&bad, "rejected", 0).await;
    let (_, card) = stack.call(Method::GET, &format!("/v1/files/{bad}"), None).await;
    assert_eq!(card["problem"]["code"], "type_mismatch");

    let first = stack.upload("the same").await;
    stack.wait(&first, "ready", 0).await;
    let second = stack.upload("the same").await;
    stack.wait(&second, "duplicate", 0).await;
    stack.check().await;
}

/// O-PS-03: the ticket is used again after its upload was accepted.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_upload_on_a_used_ticket_never_replaces_the_first() {
    let stack = Stack::new().await;
    let _up = stack.start("up");
    stack.ready().await;
    let ticket = stack.ticket("POST", "text/plain", b"first!").await;
    let id = ticket["id"].as_str().unwrap();
    stack.upload_with(&ticket, b"first!").await;
    stack.wait(id, "ready", 0).await;
    stack.upload_with(&ticket, b"second").await;
    // Found, removed, and counted (R-B6, R-H5): what is left is the copy.
    until("the surplus to be removed", BOUND, || async {
        let keys = stack.keys().await;
        (keys.len() == 1
            && keys[0].starts_with("files/")
            && stack.metric("arkiv_stale_sources_total").await >= 1.0)
            .then_some(())
    })
    .await;
    stack.check().await;
    assert_eq!(stack.state(id).await, "ready");
}

/// Every event is lost: the timer alone brings every upload to its end (R-B9).
#[tokio::test(flavor = "multi_thread")]
async fn with_every_event_lost_every_upload_still_becomes_ready() {
    let stack = Stack::new().await;
    let _roles: Vec<_> = ["api", "relay", "decoder", "janitor"].map(|role| stack.start(role)).into();
    stack.ready().await;
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(stack.upload(&format!("lost {n}")).await);
    }
    // The events lie in a queue nobody reads; a broker that forgets them is a lost event.
    broker::testing::purge(&stack.broker.settings(), "card.confirm").await.unwrap();
    stack.db.pass_time(61).await;
    for id in &ids {
        stack.wait(id, "ready", 0).await;
    }
    assert_eq!(stack.db.texts("select distinct confirmed_by from cards").await, ["sweep"]);

    // The events come after all: nothing changes.
    stack.check().await;
}

/// A ticket nobody uses expires; its late upload revives nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_unused_ticket_expires_and_a_late_upload_revives_nothing() {
    let stack = Stack::new().await;
    let _up = stack.start("up");
    stack.ready().await;
    let ticket = stack.ticket("POST", "text/plain", b"too late").await;
    let id = ticket["id"].as_str().unwrap();
    stack.db.pass_time(961).await;
    stack.wait(id, "expired", 0).await;
    // The database's time moved, the store's did not: the store still takes it.
    stack.upload_with(&ticket, b"too late").await;
    until("the late bytes to be removed", BOUND, || async {
        let counted = stack.metric("arkiv_stale_sources_total").await >= 1.0;
        (counted && stack.keys().await.is_empty()).then_some(())
    })
    .await;
    assert_eq!(stack.state(id).await, "expired");
    stack.check().await;
}

/// From the request to the receipt, without anybody's help (R-E1 to R-E5); and a replacement takes the place of the old file
/// (R-F1). `arkiv fsck` finds nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_and_a_replaced_file_end_with_a_receipt_and_an_empty_bucket() {
    let stack = Stack::new().await;
    let _up = stack.start("up");
    stack.ready().await;
    let old = stack.upload_as("POST", "image/jpeg", PHOTO).await;
    stack.wait(&old, "ready", 0).await;
    let body = serde_json::json!({
        "filename": "new.txt", "size": 4, "content_type": "text/plain", "replaces": old,
    });
    let (status, ticket) = stack.call(Method::POST, "/v1/files", Some(body)).await;
    assert_eq!(status, 201, "{ticket}");
    let new = ticket["id"].as_str().unwrap();
    assert_eq!(stack.state(&old).await, "ready", "served until the new one is");
    stack.upload_with(&ticket, b"new!").await;
    stack.wait(new, "ready", 0).await;
    assert_eq!(stack.state(&old).await, "deleting");

    let early = stack.run("receipt", &[&old]).await;
    assert_eq!(early.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&early.stderr).contains("nothing is removed before"), "{early:?}");
    stack.db.pass_time(961).await;
    stack.wait(&old, "deleted", 0).await;
    let (status, receipt) = stack.call(Method::GET, &format!("/v1/files/{old}/receipt"), None).await;
    // Source, copy, thumb and preview.
    assert_eq!((status, &receipt["versions_removed"]), (200, &serde_json::json!(4)), "{receipt}");
    let printed = stack.run("receipt", &[&old, "--json"]).await;
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&printed.stdout).unwrap(), receipt);

    let (status, _) = stack.call(Method::DELETE, &format!("/v1/files/{new}"), None).await;
    assert_eq!(status, 202);
    stack.db.pass_time(961).await;
    stack.wait(new, "deleted", 0).await;
    assert!(stack.versions().await.is_empty());
    let fsck = stack.run("fsck", &["--strict"]).await;
    assert!(fsck.status.success(), "{}", String::from_utf8_lossy(&fsck.stdout));
}
