//! The outbox: what is claimed, by whom, and what a COMMIT without an answer means.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail their test")]

use std::time::Duration;

use cards::Ids;
use chrono::TimeDelta;
use events::work::{Outgoing, Queue};
use store::outbox::{self, Due, NewRow};
use store::{Db, DbSettings, StoreError, StoreErrorKind};
use testkit::{Proxy, TestDb};

fn row(due: Due) -> NewRow {
    NewRow {
        message: Outgoing {
            queue: Queue::Decode,
            message_id: Ids.message(),
            attempt: 1,
            traceparent: None,
            body: b"{}".to_vec(),
        },
        card: None,
        due,
        reason: None,
    }
}

async fn enqueue(db: &Db, due: Due) {
    let mut tx = db.begin().await.unwrap();
    outbox::enqueue(&mut tx, &row(due)).await.unwrap();
    tx.commit().await.unwrap();
}

/// O-PG-01: an id cursor would lose the row with the lower id that commits later.
#[tokio::test]
async fn a_row_that_commits_late_with_a_low_id_is_still_claimed() {
    let test = TestDb::new().await;
    let db = test.worker();
    let mut slow = db.begin().await.unwrap();
    outbox::enqueue(&mut slow, &row(Due::Now)).await.unwrap();
    enqueue(&db, Due::Now).await;

    let mut tx = db.begin().await.unwrap();
    let first = outbox::claim(&mut tx, 10).await.unwrap();
    assert_eq!(first.len(), 1);
    outbox::delete(&mut tx, &[first[0].id]).await.unwrap();
    tx.commit().await.unwrap();

    slow.commit().await.unwrap();
    let mut tx = db.begin().await.unwrap();
    let second = outbox::claim(&mut tx, 10).await.unwrap();
    assert_eq!(second.len(), 1);
    assert!(second[0].id < first[0].id);
    drop(tx);
    test.finish().await;
}

#[tokio::test]
async fn two_relays_share_the_rows_and_a_dead_one_gives_its_rows_back() {
    let test = TestDb::new().await;
    let db = test.worker();
    for _ in 0..10 {
        enqueue(&db, Due::Now).await;
    }
    let (mut one, mut two) = (db.begin().await.unwrap(), db.begin().await.unwrap());
    let first = outbox::claim(&mut one, 6).await.unwrap();
    let second = outbox::claim(&mut two, 6).await.unwrap();
    assert_eq!((first.len(), second.len()), (6, 4));
    assert!(first.iter().all(|row| !second.contains(row)));
    drop(one);
    drop(two);
    // Their connections roll back in the background.
    testkit::until("all rows back", Duration::from_secs(10), async || {
        let mut again = db.begin().await.unwrap();
        let rows = outbox::claim(&mut again, 20).await.unwrap();
        again.rollback().await.unwrap();
        (rows.len() == 10).then_some(())
    })
    .await;
    test.finish().await;
}

#[tokio::test]
async fn a_delayed_row_and_one_pushed_back_wait_for_their_time() {
    let test = TestDb::new().await;
    let db = test.worker();
    enqueue(&db, Due::After(TimeDelta::seconds(30))).await;
    enqueue(&db, Due::Now).await;
    let mut tx = db.begin().await.unwrap();
    let due = outbox::claim(&mut tx, 10).await.unwrap();
    assert_eq!(due.len(), 1);
    outbox::push_back(&mut tx, due[0].id, TimeDelta::seconds(10), "returned").await.unwrap();
    tx.commit().await.unwrap();
    let mut tx = db.begin().await.unwrap();
    assert!(outbox::claim(&mut tx, 10).await.unwrap().is_empty());
    drop(tx);
    test.pass_time(31).await;
    let mut tx = db.begin().await.unwrap();
    let due = outbox::claim(&mut tx, 10).await.unwrap();
    assert_eq!(due.iter().map(|row| row.publish_attempts).collect::<Vec<_>>(), [1, 0]);
    drop(tx);
    test.finish().await;
}

/// R-C5: the transaction is in, and its answer is lost; the caller must hear "unknown", never "failed".
#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_unknown_and_in() {
    let test = TestDb::new().await;
    let mut url = url::Url::parse(&test.worker_url).unwrap();
    let proxy = Proxy::to(&format!("127.0.0.1:{}", url.port().unwrap())).await;
    url.set_port(Some(proxy.address.port())).unwrap();
    let settings = DbSettings { url: url.to_string(), connections_max: 2, name: "cut".to_owned() };
    let db = Db::new(&settings).unwrap();

    let mut tx = db.begin().await.unwrap();
    outbox::enqueue(&mut tx, &row(Due::Now)).await.unwrap();
    proxy.lose_the_answer_to(b"COMMIT");
    let error = tx.commit().await.expect_err("the answer was cut off");
    assert!(matches!(error, StoreError::CommitUnknown(_)), "{error}");
    assert_eq!(error.kind(), StoreErrorKind::Outage);
    assert!(proxy.has_cut());
    assert_eq!(test.count("select count(*) from outbox").await, 1);

    // The pool heals by itself.
    enqueue(&db, Due::Now).await;
    test.finish().await;
}

/// transact-rs/sqlx#4385: a BEGIN cancelled in flight must not leave the next user inside somebody's transaction.
#[tokio::test]
async fn a_cancelled_begin_poisons_no_connection() {
    let test = TestDb::new().await;
    let settings = DbSettings { url: test.worker_url.clone(), connections_max: 1, name: "cancel".to_owned() };
    let db = Db::new(&settings).unwrap();
    for micros in (0..2000).step_by(20) {
        // Connected, so that what is cut short is BEGIN itself.
        db.probe().await.unwrap();
        let _ = tokio::time::timeout(std::time::Duration::from_micros(micros), db.begin()).await;
        let in_transaction = "select count(*) from pg_stat_activity
             where application_name = 'cancel' and state like 'idle in transaction%' and xact_start < now()";
        db.probe().await.unwrap();
        assert_eq!(test.count(in_transaction).await, 0, "after {micros} µs");
    }
    enqueue(&db, Due::Now).await;
    db.probe().await.unwrap();
    assert_eq!(
        test.count("select count(*) from outbox").await,
        1,
        "the row is committed, seen from elsewhere"
    );
    test.finish().await;
}
