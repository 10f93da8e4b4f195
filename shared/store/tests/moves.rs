//! Guarded moves: tickets, confirmations, refusals, leases, ends and the timer, on a real PostgreSQL.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail their test")]

use cards::confirm::Refusal;
use cards::{ConfirmedBy, Ids, MediaType, Problem, ProblemCode, StateName, VersionId, timing};
use chrono::TimeDelta;
use events::work::Queue;
use objects::fake::Fake;
use store::confirm::{self, Confirmation, Refused};
use store::finish::{self, Finished};
use store::lease::{self, Attempt, Leased};
use store::tickets::{self, Issued, Renewed};
use store::timer::{self, Expired};
use testkit::{TestDb, fixture};

fn version(text: &str) -> VersionId {
    VersionId::parse(text).unwrap()
}

fn refusal(text: &str) -> Refusal {
    Refusal { version: version(text), problem: Problem::new(ProblemCode::MetadataMismatch, "too long") }
}

#[tokio::test]
async fn an_idempotency_key_returns_its_card_and_refuses_another_body() {
    let test = TestDb::new().await;
    let api = test.api();
    let owner = fixture::owner(&api).await;
    let mut new = fixture::new_card(owner, MediaType::Text, 3, None);
    new.idempotency = Some(("key".to_owned(), [1; 32]));
    let first = fixture::issue(&api, &new).await;

    let again = tickets::NewCard { id: Ids.card(), ..new.clone() };
    let mut tx = api.begin().await.unwrap();
    assert_eq!(tickets::issue(&mut tx, &again).await.unwrap(), Issued::Before(first.clone()));
    let other = tickets::NewCard { idempotency: Some(("key".to_owned(), [2; 32])), ..again.clone() };
    assert_eq!(tickets::issue(&mut tx, &other).await.unwrap(), Issued::OtherRequest);
    tx.commit().await.unwrap();

    // Another owner's key is another key.
    let stranger = fixture::owner(&api).await;
    let theirs = fixture::issue(&api, &tickets::NewCard { owner: stranger, ..again }).await;
    assert_ne!(theirs.id, first.id);
    test.finish().await;
}

#[tokio::test]
async fn a_confirmation_writes_state_history_and_message_or_nothing() {
    let test = TestDb::new().await;
    let (db, api) = (test.worker(), test.api());
    let owner = fixture::owner(&api).await;
    let card = fixture::pending(&api, owner, MediaType::Text, b"abc").await;
    let confirmation = Confirmation {
        card: card.id,
        revision: card.revision,
        pinned: version("v1"),
        by: ConfirmedBy::Event,
        surplus: false,
    };

    let mut tx = db.begin().await.unwrap();
    assert_eq!(confirm::confirm(&mut tx, Ids, std::slice::from_ref(&confirmation)).await.unwrap().len(), 1);
    tx.rollback().await.unwrap();
    assert_eq!(test.count("select count(*) from outbox").await, 0);
    assert_eq!(fixture::read(&db, &card).await.state.name(), StateName::Pending);

    let mut tx = db.begin().await.unwrap();
    confirm::confirm(&mut tx, Ids, std::slice::from_ref(&confirmation)).await.unwrap();
    tx.commit().await.unwrap();
    let queued = fixture::read(&db, &card).await;
    assert_eq!(queued.state.pinned(), Some(&version("v1")));
    assert_eq!(queued.revision, card.revision + 1);
    assert_eq!(test.texts("select queue from outbox").await, ["card.decode"]);
    assert_eq!(
        test.texts("select event from card_history order by id").await,
        ["ticket_issued", "confirmed"]
    );

    // A second confirmation changes nothing (R-B4).
    let mut tx = db.begin().await.unwrap();
    let other = Confirmation { pinned: version("v2"), ..confirmation };
    assert!(confirm::confirm(&mut tx, Ids, &[other]).await.unwrap().is_empty());
    tx.commit().await.unwrap();
    assert_eq!(fixture::read(&db, &card).await, queued);
    assert_eq!(test.count("select count(*) from outbox").await, 1);
    test.finish().await;
}

#[tokio::test]
async fn a_renewal_between_reading_and_writing_is_a_lost_race() {
    let test = TestDb::new().await;
    let (db, api) = (test.worker(), test.api());
    let owner = fixture::owner(&api).await;
    let card = fixture::pending(&api, owner, MediaType::Text, b"abc").await;
    let mut tx = api.begin().await.unwrap();
    let renewed = tickets::renew(&mut tx, owner, card.id, timing::TICKET_LIFE).await.unwrap();
    tx.commit().await.unwrap();
    let Renewed::Yes(renewed) = renewed else { panic!("{renewed:?}") };
    assert_eq!(renewed.revision, card.revision + 1);

    let mut tx = db.begin().await.unwrap();
    let refused = confirm::refuse(&mut tx, Ids, card.id, card.revision, &[refusal("v1")]).await.unwrap();
    assert_eq!(refused, Refused::LostRace);
    tx.commit().await.unwrap();
    test.finish().await;
}

#[tokio::test]
async fn five_refused_versions_are_noted_and_the_sixth_rejects() {
    let test = TestDb::new().await;
    let (db, api) = (test.worker(), test.api());
    let owner = fixture::owner(&api).await;
    let card = fixture::pending(&api, owner, MediaType::Text, b"abc").await;
    for n in 1..=6 {
        let mut tx = db.begin().await.unwrap();
        let refused = confirm::refuse(&mut tx, Ids, card.id, card.revision, &[refusal(&format!("v{n}"))])
            .await
            .unwrap();
        tx.commit().await.unwrap();
        let now = fixture::read(&db, &card).await;
        if n < 6 {
            assert_eq!((refused, now.state.name()), (Refused::Noted, StateName::Pending), "{n}");
            // R-B5: the owner sees why and which; the revision stays, so a right version still wins.
            assert_eq!((now.refused.len(), now.revision), (n, card.revision));
            assert_eq!(now.problem.unwrap().code, ProblemCode::MetadataMismatch);
            assert!(now.purge_at.is_some());
        } else {
            assert_eq!((refused, now.state.name()), (Refused::Rejected, StateName::Rejected));
        }
    }
    assert_eq!(test.count("select count(*) from outbox where queue = 'card.purge'").await, 6);

    let mut tx = db.begin().await.unwrap();
    let late = confirm::refuse(&mut tx, Ids, card.id, card.revision + 1, &[refusal("v7")]).await.unwrap();
    assert_eq!(late, Refused::LostRace);
    test.finish().await;
}

#[tokio::test]
async fn two_workers_on_one_card_get_one_lease() {
    let test = TestDb::new().await;
    let (db, api, fake) = (test.worker(), test.api(), Fake::new());
    let owner = fixture::owner(&api).await;
    let card = fixture::queued(&db, &api, &fake, owner, MediaType::Text, b"abc").await;
    let take = || async {
        let mut tx = db.begin().await.unwrap();
        let leased = lease::take(&mut tx, Ids, card.id, Ids.lease()).await.unwrap();
        tx.commit().await.unwrap();
        leased
    };
    let taken = futures::future::join_all((0..8).map(|_| take())).await;
    let won = taken.iter().filter(|leased| matches!(leased, Leased::Yes(_))).count();
    let held = taken.iter().filter(|leased| matches!(leased, Leased::Held { .. })).count();
    assert_eq!((won, held), (1, 7));

    // Past its deadline anybody may have it, and the crash counted (R-C1).
    test.pass_time(61).await;
    let Leased::Yes(second) = take().await else { panic!("the dead lease was not taken") };
    assert_eq!(second.attempts, 2);
    test.finish().await;
}

#[tokio::test]
async fn a_lost_token_renews_nothing_finishes_nothing_and_asks_for_a_purge() {
    let test = TestDb::new().await;
    let (db, api, fake) = (test.worker(), test.api(), Fake::new());
    let owner = fixture::owner(&api).await;
    let card = fixture::queued(&db, &api, &fake, owner, MediaType::Text, b"abc").await;
    let first = fixture::leased(&db, &card).await;
    test.pass_time(61).await;
    let second = fixture::leased(&db, &card).await;
    let stale = fixture::accepted(&first, b"abc");

    let mut tx = db.begin().await.unwrap();
    assert!(!lease::renew(&mut tx, card.id, stale.object.token).await.unwrap());
    assert_eq!(finish::accept(&mut tx, Ids, &stale).await.unwrap(), Finished::LostLease);
    tx.commit().await.unwrap();
    assert_eq!(fixture::read(&db, &card).await.state, second.state);
    assert_eq!(test.texts("select reason from outbox where queue = 'card.purge'").await, ["lost_lease"]);
    test.finish().await;
}

#[tokio::test]
async fn a_lease_given_back_can_be_taken_at_once_and_an_outage_costs_no_attempt() {
    let test = TestDb::new().await;
    let (db, api, fake) = (test.worker(), test.api(), Fake::new());
    let owner = fixture::owner(&api).await;
    let card = fixture::queued(&db, &api, &fake, owner, MediaType::Text, b"abc").await;
    for (attempt, expected) in [(Attempt::Refunded, 1), (Attempt::Counts, 1), (Attempt::Counts, 2)] {
        let leased = fixture::leased(&db, &card).await;
        assert_eq!(leased.attempts, expected);
        let cards::State::Processing { lease, .. } = leased.state else { panic!("{leased:?}") };
        let mut tx = db.begin().await.unwrap();
        lease::give_back(&mut tx, card.id, lease.token, attempt).await.unwrap();
        tx.commit().await.unwrap();
    }
    test.finish().await;
}

#[tokio::test]
async fn ten_parallel_identical_files_make_one_file_and_nine_aliases() {
    let test = TestDb::new().await;
    let (db, api, fake) = (test.worker(), test.api(), Fake::new());
    let owner = fixture::owner(&api).await;
    let mut leased = Vec::new();
    for _ in 0..10 {
        let card = fixture::queued(&db, &api, &fake, owner, MediaType::Text, b"same").await;
        leased.push(fixture::leased(&db, &card).await);
    }
    let ends = futures::future::join_all(leased.iter().map(|card| async {
        let accepted = fixture::accepted(card, b"same");
        loop {
            let mut tx = db.begin().await.unwrap();
            match finish::accept(&mut tx, Ids, &accepted).await.unwrap() {
                Finished::TryAgain => tx.rollback().await.unwrap(),
                end @ (Finished::Done(_) | Finished::Duplicate(_) | Finished::LostLease) => {
                    tx.commit().await.unwrap();
                    return end;
                }
            }
        }
    }))
    .await;
    let ready = ends.iter().filter(|end| matches!(end, Finished::Done(_))).count();
    let duplicates = ends.iter().filter(|end| matches!(end, Finished::Duplicate(_))).count();
    assert_eq!((ready, duplicates), (1, 9));
    assert_eq!(
        test.count("select count(distinct original_id) from cards where state = 'duplicate'").await,
        1
    );

    // Another owner's same bytes are another file (R-A6, R-C6).
    let stranger = fixture::owner(&api).await;
    let theirs = fixture::ready(&db, &api, &fake, stranger, b"same").await;
    assert_eq!(theirs.state.name(), StateName::Ready);
    test.finish().await;
}

#[tokio::test]
async fn a_duplicate_that_must_stay_makes_its_original_stay() {
    let test = TestDb::new().await;
    let (db, api, fake) = (test.worker(), test.api(), Fake::new());
    let owner = fixture::owner(&api).await;
    let original = fixture::ready(&db, &api, &fake, owner, b"same").await;
    test.sql(&format!(
        "update cards set keep = 'attached', orphan_since = now() where id = '{}'",
        original.id
    ))
    .await;
    let card = fixture::queued(&db, &api, &fake, owner, MediaType::Text, b"same").await;
    let leased = fixture::leased(&db, &card).await;
    let mut tx = db.begin().await.unwrap();
    finish::accept(&mut tx, Ids, &fixture::accepted(&leased, b"same")).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(
        test.count(
            "select count(*) from cards where state = 'ready' and keep = 'always' and orphan_since is null"
        )
        .await,
        1
    );
    test.finish().await;
}

#[tokio::test]
async fn a_card_expires_only_after_a_listing_begun_late_enough_and_never_once_renewed() {
    let test = TestDb::new().await;
    let (db, api) = (test.worker(), test.api());
    let owner = fixture::owner(&api).await;
    let card = fixture::pending(&api, owner, MediaType::Text, b"abc").await;
    let settled = timing::settled_at(card.ticket.ends_at);
    let expire = |card: cards::Card, at| {
        let db = db.clone();
        async move {
            let mut tx = db.begin().await.unwrap();
            let expired = timer::expire(&mut tx, Ids, &card, at).await.unwrap();
            tx.commit().await.unwrap();
            expired
        }
    };
    assert_eq!(expire(card.clone(), settled - TimeDelta::seconds(1)).await, Expired::LostRace);

    // The renewal raises the revision: a guard by time alone would not do (R-B7).
    let mut tx = api.begin().await.unwrap();
    let renewed = tickets::renew(&mut tx, owner, card.id, timing::TICKET_LIFE).await.unwrap();
    tx.commit().await.unwrap();
    let Renewed::Yes(renewed) = renewed else { panic!("{renewed:?}") };
    assert_eq!(expire(card.clone(), settled + TimeDelta::hours(1)).await, Expired::LostRace);
    assert_eq!(expire(renewed.clone(), timing::settled_at(renewed.ticket.ends_at)).await, Expired::Yes);
    let expired = fixture::read(&db, &card).await;
    assert_eq!(expired.state.name(), StateName::Expired);
    assert!(expired.purge_at.is_some() && expired.next_check_at.is_some());
    test.finish().await;
}

#[tokio::test]
async fn a_ticket_is_renewed_for_a_day_and_no_longer() {
    let test = TestDb::new().await;
    let api = test.api();
    let owner = fixture::owner(&api).await;
    let card = fixture::pending(&api, owner, MediaType::Text, b"abc").await;
    test.pass_time(23 * 3600).await;
    let mut tx = api.begin().await.unwrap();
    let renewed = tickets::renew(&mut tx, owner, card.id, timing::TICKET_LIFE).await.unwrap();
    assert!(matches!(renewed, Renewed::Yes(_)));
    tx.commit().await.unwrap();
    test.pass_time(3600).await;
    let mut tx = api.begin().await.unwrap();
    let renewed = tickets::renew(&mut tx, owner, card.id, timing::TICKET_LIFE).await.unwrap();
    assert!(matches!(renewed, Renewed::No(_)));
    let stranger = fixture::owner(&api).await;
    let theirs = tickets::renew(&mut tx, stranger, card.id, timing::TICKET_LIFE).await.unwrap();
    assert_eq!(theirs, Renewed::NotThere);
    tx.rollback().await.unwrap();
    test.finish().await;
}

#[tokio::test]
async fn two_janitors_never_claim_one_card_and_parked_cards_are_left_alone() {
    let test = TestDb::new().await;
    let (db, api, fake) = (test.worker(), test.api(), Fake::new());
    let owner = fixture::owner(&api).await;
    for n in 0..20 {
        fixture::pending(&api, owner, MediaType::Text, format!("pending {n}").as_bytes()).await;
    }
    let overdue = fixture::queued(&db, &api, &fake, owner, MediaType::Text, b"overdue").await;
    let parked = fixture::queued(&db, &api, &fake, owner, MediaType::Text, b"parked").await;
    let mut tx = db.begin().await.unwrap();
    assert!(timer::park(&mut tx, parked.id, Queue::Decode, "store: x").await.unwrap());
    tx.commit().await.unwrap();
    test.sql("delete from outbox").await;
    test.pass_time(3601).await;

    let (mut one, mut two) = (db.begin().await.unwrap(), db.begin().await.unwrap());
    let first = timer::claim(&mut one, Ids, 15).await.unwrap();
    let second = timer::claim(&mut two, Ids, 15).await.unwrap();
    one.commit().await.unwrap();
    two.commit().await.unwrap();
    let mut seen: Vec<_> = first.pending.iter().chain(&second.pending).map(|card| card.id).collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 20);
    assert_eq!(first.parked + second.parked, 1);
    let enqueued: Vec<_> = first.decodes.iter().chain(&second.decodes).collect();
    assert_eq!(enqueued, [&overdue.id]);
    assert_eq!(test.texts("select reason from outbox").await, ["overdue"]);

    // Claimed cards are nobody else's for a while.
    let mut tx = db.begin().await.unwrap();
    assert!(timer::claim(&mut tx, Ids, 100).await.unwrap().is_empty());
    test.finish().await;
}

/// Upload beside expiry (R-J): both decided from the same reading, exactly one of them wins.
#[tokio::test]
async fn a_confirmation_and_an_expiry_at_once_have_one_winner() {
    let test = TestDb::new().await;
    let (db, api) = (test.worker(), test.api());
    let owner = fixture::owner(&api).await;
    for n in 0..20 {
        let card = fixture::pending(&api, owner, MediaType::Text, format!("{n}").as_bytes()).await;
        let settled = timing::settled_at(card.ticket.ends_at);
        let confirmed = async {
            let confirmation = Confirmation {
                card: card.id,
                revision: card.revision,
                pinned: version("v1"),
                by: ConfirmedBy::Event,
                surplus: false,
            };
            let mut tx = db.begin().await.unwrap();
            let moved = confirm::confirm(&mut tx, Ids, &[confirmation]).await.unwrap();
            tx.commit().await.unwrap();
            moved.contains(&card.id)
        };
        let expired = async {
            let mut tx = db.begin().await.unwrap();
            let expired = timer::expire(&mut tx, Ids, &card, settled).await.unwrap();
            tx.commit().await.unwrap();
            expired == Expired::Yes
        };
        let (confirmed, expired) = tokio::join!(confirmed, expired);
        assert!(confirmed != expired, "confirmed {confirmed}, expired {expired}");
        let state = fixture::read(&db, &card).await.state.name();
        assert_eq!(state, if confirmed { StateName::Queued } else { StateName::Expired });
    }
    test.finish().await;
}
