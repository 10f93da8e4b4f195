//! `POST /v1/files/{id}/confirm`: the table of R-B10.

use cards::{Card, Ids, MediaType};
use http::StatusCode;
use objects::Operation;
use objects::fake::{Fault, Upload};
use serde_json::json;
use testkit::fixture;

use crate::world::{ANNA, Answer, BERTA, World};

async fn confirm(world: &World, card: &Card) -> Answer {
    world.post(ANNA, &format!("/v1/files/{}/confirm", card.id)).await
}

#[tokio::test]
async fn what_fits_is_queued_and_a_repeat_shows_the_state() {
    let world = World::new().await;
    let card = world.pending(b"abc").await;
    let version = fixture::upload(&world.fake, &card, b"abc");
    let first = confirm(&world, &card).await;
    assert_eq!(first.status, StatusCode::ACCEPTED, "{first:?}");
    assert_eq!(first.json()["state"], "queued");
    let again = confirm(&world, &card).await;
    assert_eq!((again.status, &again.json()["state"]), (StatusCode::OK, &json!("queued")));
    // The outcome, the row, the outbox: one job, however often it was said (R-B4).
    let row = world.test.texts("select pinned_version || ' ' || confirmed_by from cards").await;
    assert_eq!(row, [format!("{version} request")]);
    assert_eq!(world.test.count("select count(*) from outbox where queue = 'card.decode'").await, 1);
    fixture::leased(&world.worker, &card).await;
    assert_eq!(confirm(&world, &card).await.json()["state"], "processing");
    world.test.finish().await;
}

#[tokio::test]
async fn five_requests_at_once_confirm_once() {
    let world = World::new().await;
    let card = world.pending(b"abc").await;
    fixture::upload(&world.fake, &card, b"abc");
    let answers = futures::future::join_all((0..5).map(|_| confirm(&world, &card))).await;
    assert!(answers.iter().all(|answer| answer.json()["state"] == "queued"), "{answers:?}");
    assert_eq!(answers.iter().filter(|answer| answer.status == StatusCode::ACCEPTED).count(), 1);
    assert_eq!(world.test.count("select count(*) from outbox where queue = 'card.decode'").await, 1);
    world.test.finish().await;
}

#[tokio::test]
async fn ready_and_duplicate_are_shown_the_latter_with_its_original() {
    let world = World::new().await;
    let original = world.ready(b"abc").await;
    let duplicate = world.duplicate(b"abc").await;
    let answer = confirm(&world, &original).await;
    assert_eq!((answer.status, &answer.json()["state"]), (StatusCode::OK, &json!("ready")));
    let answer = confirm(&world, &duplicate).await;
    assert_eq!((answer.status, &answer.json()["state"]), (StatusCode::OK, &json!("duplicate")));
    let original_id = original.id.to_string();
    assert_eq!(
        answer.json()["original"],
        json!({ "id": original_id, "link": format!("/v1/files/{original_id}") })
    );
    world.test.finish().await;
}

#[tokio::test]
async fn nothing_there_is_upload_missing_until_the_last_moment_has_passed() {
    let world = World::new().await;
    let card = world.pending(b"abc").await;
    let problem = confirm(&world, &card).await.problem(409, "upload_missing");
    assert_eq!(problem["retryable"], true);
    // A delete marker is nothing too.
    world.fake.add_delete_marker(&card.source_key().to_string());
    confirm(&world, &card).await.problem(409, "upload_missing");
    // Ticket end + 5 min 59 s, then + 6 min (R-B7).
    world.test.pass_time(600 + 330).await;
    confirm(&world, &card).await.problem(409, "upload_missing");
    world.test.pass_time(30).await;
    confirm(&world, &card).await.problem(410, "ticket_expired");
    assert_eq!(world.test.texts("select state from cards").await, ["pending"]);
    world.test.finish().await;
}

/// R-B7, R-B10: the ticket's end is the database's time, so only its clock says whether that is past.
#[tokio::test]
async fn a_process_whose_clock_is_wrong_says_the_same() {
    let ahead = || api::system_clock() + chrono::TimeDelta::days(1);
    let world = World::with_clock(|_| (), ahead).await;
    let card = world.pending(b"abc").await;
    confirm(&world, &card).await.problem(409, "upload_missing");
    world.test.finish().await;

    let behind = || api::system_clock() - chrono::TimeDelta::days(1);
    let world = World::with_clock(|_| (), behind).await;
    let card = world.pending(b"abc").await;
    world.test.pass_time(600 + 360).await;
    confirm(&world, &card).await.problem(410, "ticket_expired");
    world.test.finish().await;
}

#[tokio::test]
async fn what_came_in_time_is_confirmed_however_late_it_is_asked_for() {
    let world = World::new().await;
    let card = world.pending(b"abc").await;
    fixture::upload(&world.fake, &card, b"abc");
    // The ticket ended 4 min before the upload, which is in time.
    world.test.pass_time(600 + 240).await;
    assert_eq!(confirm(&world, &card).await.status, StatusCode::ACCEPTED);
    world.test.finish().await;
}

#[tokio::test]
async fn what_does_not_fit_is_named_and_the_right_one_still_wins() {
    let world = World::new().await;
    let card = world.pending(b"abc").await;
    fixture::upload(&world.fake, &card, b"abcd");
    let problem = confirm(&world, &card).await.problem(422, "metadata_mismatch");
    assert_eq!(problem["problem"]["code"], "metadata_mismatch");
    assert!(problem["detail"].as_str().unwrap().contains("3 bytes"), "{problem}");
    // Said again, as long as nothing better is there.
    confirm(&world, &card).await.problem(422, "metadata_mismatch");
    let shown = world.get(ANNA, &format!("/v1/files/{}", card.id)).await.json();
    assert_eq!(
        (&shown["state"], &shown["problem"]["code"]),
        (&json!("pending"), &json!("metadata_mismatch"))
    );
    fixture::upload(&world.fake, &card, b"abc");
    assert_eq!(confirm(&world, &card).await.status, StatusCode::ACCEPTED);
    world.test.finish().await;
}

#[tokio::test]
async fn a_sixth_wrong_version_rejects_the_card() {
    let world = World::new().await;
    let card = world.pending(b"abc").await;
    for _ in 0..5 {
        fixture::upload(&world.fake, &card, b"wrong");
        confirm(&world, &card).await.problem(422, "metadata_mismatch");
    }
    fixture::upload(&world.fake, &card, b"wrong");
    let problem = confirm(&world, &card).await.problem(409, "invalid_state");
    assert_eq!(problem["state"], "rejected");
    world.test.finish().await;
}

#[tokio::test]
async fn ended_cards_are_not_confirmed_and_the_store_is_not_asked() {
    let world = World::new().await;
    let owner = world.owner(ANNA).await;
    let rejected = fixture::rejected(&world.worker, &world.api, &world.fake, owner, b"a\0b").await;
    let expired = fixture::expired(&world.test, &world.worker, &world.api, owner).await;
    world.fake.clear_calls();
    assert_eq!(confirm(&world, &rejected).await.problem(409, "invalid_state")["state"], "rejected");
    confirm(&world, &expired).await.problem(410, "ticket_expired");
    for state in ["deleting", "deleted"] {
        world.set_state(&rejected, state).await;
        assert_eq!(confirm(&world, &rejected).await.problem(409, "invalid_state")["state"], state);
    }
    assert_eq!(world.fake.calls(), []);
    world.test.finish().await;
}

#[tokio::test]
async fn an_outage_of_the_store_is_never_told_as_not_uploaded() {
    let world = World::new().await;
    let card = world.pending(b"abc").await;
    fixture::upload(&world.fake, &card, b"abc");
    for (operation, fault) in [
        (Operation::VersionsOf, Fault::Unavailable),
        (Operation::VersionsOf, Fault::Refuse),
        (Operation::VersionsOf, Fault::AfterEffect),
        (Operation::Head, Fault::Unavailable),
        (Operation::Head, Fault::Refuse),
    ] {
        world.fake.fail(operation, fault);
        let answer = confirm(&world, &card).await;
        let problem = answer.problem(503, "store_unavailable");
        assert_eq!(problem["retryable"], true);
        assert_eq!(answer.header("retry-after"), "5");
        // What the store said is for the log alone.
        assert!(!answer.body.contains("incoming/"), "{answer:?}");
    }
    // Past the end too: an outage proves nothing.
    world.test.pass_time(3600).await;
    world.fake.switch_off();
    confirm(&world, &card).await.problem(503, "store_unavailable");
    world.test.finish().await;
}

#[tokio::test]
async fn a_bucket_without_versioning_is_an_outage_and_nobodys_fault() {
    let world = World::new().await;
    let card = world.pending(b"abc").await;
    world.fake.suspend_versioning();
    world.fake.upload_unversioned(Upload {
        key: card.source_key().to_string(),
        bytes: "abc".into(),
        content_type: Some("text/plain".to_owned()),
        ..Upload::default()
    });
    confirm(&world, &card).await.problem(503, "versioning_required");
    let row = world.test.texts("select state || cardinality(refused_versions) from cards").await;
    assert_eq!(row, ["pending0"]);
    world.test.finish().await;
}

#[tokio::test]
async fn what_is_not_yours_is_not_there_and_the_store_is_not_asked() {
    let world = World::new().await;
    let card = fixture::pending(&world.api, world.owner(BERTA).await, MediaType::Text, b"abc").await;
    fixture::upload(&world.fake, &card, b"abc");
    confirm(&world, &card).await.problem(404, "not_found");
    let unknown = Card { id: Ids.card(), ..card };
    confirm(&world, &unknown).await.problem(404, "not_found");
    assert_eq!(world.fake.calls(), []);
    world.test.finish().await;
}
