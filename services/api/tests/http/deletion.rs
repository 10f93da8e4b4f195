//! `DELETE /v1/files/{id}` (R-E1), receipts (R-E5) and replacements (R-F1).

use axum::body::Body;
use cards::{Ids, MediaType};
use http::StatusCode;
use serde_json::{Value, json};
use store::purge::{Claimed, Settled};
use testkit::fixture;

use crate::world::{ANNA, Answer, BERTA, World, request};

impl World {
    async fn delete(&self, subject: &str, id: impl std::fmt::Display) -> Answer {
        self.send(request("DELETE", &format!("/v1/files/{id}"), subject).body(Body::empty()).unwrap()).await
    }
}

fn replacing(id: impl std::fmt::Display) -> Value {
    json!({ "filename": "new.txt", "size": 3, "content_type": "text/plain", "replaces": id.to_string() })
}

#[tokio::test]
async fn a_deletion_is_taken_told_apart_from_its_end_and_may_be_repeated() {
    let world = World::new().await;
    let card = world.ready(b"abc").await;
    let answer = world.delete(ANNA, card.id).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{answer:?}");
    let file = answer.json();
    assert_eq!((&file["state"], &file["also_deleted"]), (&json!("deleting"), &json!([])));
    let deletion = &file["deletion"];
    assert!(deletion["requested_at"].is_string() && deletion["delete_after"].is_string());
    assert_eq!(deletion["deleted_at"], json!(null), "asked for is not done");
    assert_eq!(file["timeline"].as_array().unwrap().last().unwrap()["event"], "delete_requested");
    assert_eq!(file["links"], json!({ "self": format!("/v1/files/{}", card.id) }));
    // New downloads have stopped (R-D2).
    world.get(ANNA, &format!("/v1/files/{}/download", card.id)).await.problem(410, "gone");

    let again = world.delete(ANNA, card.id).await;
    assert_eq!(again.status, StatusCode::ACCEPTED);
    assert_eq!(again.json(), file);
    assert_eq!(world.get(ANNA, &format!("/v1/files/{}", card.id)).await.json()["deletion"], *deletion);
}

/// R-D3: another owner's file, and none at all, are the same 404.
#[tokio::test]
async fn what_is_not_ones_own_is_neither_deleted_nor_replaced_nor_shown_a_receipt_of() {
    let world = World::new().await;
    let card = world.ready(b"abc").await;
    for id in [card.id.to_string(), Ids.card().to_string(), "nonsense".to_owned()] {
        world.delete(BERTA, &id).await.problem(404, "not_found");
        world.get(BERTA, &format!("/v1/files/{id}/receipt")).await.problem(404, "not_found");
    }
    for id in [card.id, Ids.card()] {
        world.ask(BERTA, &replacing(id)).await.problem(404, "not_found");
    }
    assert_eq!(fixture::read(&world.worker, &card).await, card);
}

#[tokio::test]
async fn a_deletion_names_the_duplicates_that_go_with_it() {
    let world = World::new().await;
    let original = world.ready(b"same").await;
    let alias = world.duplicate(b"same").await;
    let file = world.delete(ANNA, original.id).await.json();
    assert_eq!(file["also_deleted"], json!([alias.id]));
    let alias = world.get(ANNA, &format!("/v1/files/{}", alias.id)).await.json();
    assert_eq!(alias["state"], "deleting");
    let told = alias["timeline"].as_array().unwrap().last().unwrap()["detail"].clone();
    assert_eq!((&told["by"], &told["original"]), (&json!("original"), &json!(original.id)));
}

#[tokio::test]
async fn a_receipt_is_there_once_the_file_is_deleted_and_says_what_was_removed() {
    let world = World::new().await;
    let card = world.ready(b"abc").await;
    let path = format!("/v1/files/{}/receipt", card.id);
    world.get(ANNA, &path).await.problem(409, "invalid_state");
    world.delete(ANNA, card.id).await;
    assert_eq!(world.get(ANNA, &path).await.problem(409, "invalid_state")["state"], "deleting");

    world.test.pass_time(961).await;
    let mut tx = world.worker.begin().await.unwrap();
    let life = chrono::TimeDelta::seconds(60);
    let Claimed::Yes { at } = store::purge::claim(&mut tx, card.id, life).await.unwrap() else { panic!() };
    let (read, _) = store::purge::read(&mut tx, card.id).await.unwrap().unwrap();
    let removal = store::purge::Removal {
        key: card.source_key().to_string(),
        version: cards::VersionId::parse("v1").unwrap(),
        is_delete_marker: false,
        size_bytes: 3,
        etag: None,
        last_modified: card.created_at,
    };
    store::purge::record(&mut tx, &read, at, &[removal]).await.unwrap();
    let settled = store::purge::settle(&mut tx, Ids, &read, at, true).await.unwrap();
    assert!(matches!(settled, Settled::Yes { proof, .. } if proof.is_deleted), "{settled:?}");
    tx.commit().await.unwrap();

    let receipt = world.get(ANNA, &path).await;
    assert_eq!(receipt.status, StatusCode::OK, "{receipt:?}");
    let receipt = receipt.json();
    assert_eq!((&receipt["versions_removed"], &receipt["bytes_removed"]), (&json!(1), &json!(3)));
    assert_eq!(receipt["removed"][0]["version"], "v1");
    assert!(receipt["proved_at"].is_string() && receipt["requested_at"].is_string());
    let file = world.get(ANNA, &format!("/v1/files/{}", card.id)).await.json();
    assert_eq!(file["state"], "deleted");
    assert!(file["deletion"]["deleted_at"].is_string());
    assert_eq!(file["links"]["receipt"], path);
}

#[tokio::test]
async fn a_replacement_is_a_ticket_that_names_a_served_file_and_one_is_open_at_a_time() {
    let world = World::new().await;
    let old = world.ready(b"old").await;
    let answer = world.ask(ANNA, &replacing(old.id)).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
    let new = answer.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(world.get(ANNA, &format!("/v1/files/{new}")).await.json()["replaces"], json!(old.id));
    world.ask(ANNA, &replacing(old.id)).await.problem(409, "replacement_open");
    // A deletion of the candidate frees the place.
    assert_eq!(world.delete(ANNA, &new).await.status, StatusCode::ACCEPTED);
    assert_eq!(world.ask(ANNA, &replacing(old.id)).await.status, StatusCode::CREATED);

    let pending = world.pending(b"abc").await;
    let problem = world.ask(ANNA, &replacing(pending.id)).await.problem(409, "invalid_state");
    assert_eq!(problem["state"], "pending");
    let problem = world.ask(ANNA, &replacing("nonsense")).await.problem(422, "invalid_request");
    assert_eq!(problem["errors"][0]["pointer"], "#/replaces");
}

/// A request that is repeated finds its card, whatever became of the file it replaces meanwhile.
#[tokio::test]
async fn a_repeated_request_for_a_replacement_gets_the_same_card() {
    let world = World::new().await;
    let old = world.ready(b"old").await;
    let ask = async || {
        let request = crate::world::ticket_request(ANNA).header("idempotency-key", "one");
        world.send(request.body(replacing(old.id).to_string().into()).unwrap()).await
    };
    let first = ask().await;
    assert_eq!(first.status, StatusCode::CREATED, "{first:?}");
    let second = ask().await;
    assert_eq!((second.status, &second.json()["id"]), (StatusCode::OK, &first.json()["id"]));
    world.delete(ANNA, old.id).await;
    let third = ask().await;
    assert_eq!((third.status, &third.json()["id"]), (StatusCode::OK, &first.json()["id"]));
}

/// The announced type of a replacement is its own.
#[tokio::test]
async fn a_duplicate_may_be_replaced_alone() {
    let world = World::new().await;
    let original = world.ready(b"same").await;
    let alias = world.duplicate(b"same").await;
    assert_eq!(world.ask(ANNA, &replacing(alias.id)).await.status, StatusCode::CREATED);
    assert_eq!(fixture::read(&world.worker, &original).await.announced.media_type, MediaType::Text);
}
