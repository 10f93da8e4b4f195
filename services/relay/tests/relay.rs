//! The relay between a real PostgreSQL and a real RabbitMQ (R-I1, INV-2).

#![expect(clippy::unwrap_used, reason = "a test's helpers fail their test")]

use std::net::SocketAddr;
use std::time::Duration;

use broker::testing;
use broker::{Publisher, topology};
use cards::Ids;
use events::work::{Outgoing, Queue};
use relay::{Batch, RelayError, RelaySettings};
use store::outbox::{self, Due, NewRow};
use store::{Db, DbSettings};
use testkit::{PrivateBroker, TestBroker, TestDb, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const BOUND: Duration = Duration::from_mins(3);

async fn enqueue(db: &Db, queue: Queue, rows: usize) {
    let mut tx = db.begin().await.unwrap();
    for n in 0..rows {
        let message = Outgoing {
            queue,
            message_id: Ids.message(),
            attempt: 1,
            traceparent: None,
            body: format!(r#"{{"n":{n}}}"#).into_bytes(),
        };
        outbox::enqueue(&mut tx, &NewRow { message, card: None, due: Due::Now, reason: None }).await.unwrap();
    }
    tx.commit().await.unwrap();
}

async fn is_empty(test: &TestDb) -> Option<()> {
    (test.count("select count(*) from outbox").await == 0).then_some(())
}

#[tokio::test]
async fn several_relays_at_once_publish_every_row_once() {
    let (test, broker) = (TestDb::new().await, TestBroker::new().await);
    topology::declare(&broker.settings()).await.unwrap();
    let db = test.worker();
    enqueue(&db, Queue::Purge, 300).await;
    let shutdown = CancellationToken::new();
    let settings = RelaySettings { batch_rows_max: 20, ..RelaySettings::default() };
    let relays: Vec<_> = (0..3)
        .map(|_| {
            tokio::spawn(relay::run(
                db.clone(),
                broker.settings(),
                settings,
                shutdown.clone(),
                watch::Sender::new(false),
            ))
        })
        .collect();
    until("an empty outbox", BOUND, || is_empty(&test)).await;
    shutdown.cancel();
    for relay in relays {
        relay.await.unwrap();
    }
    let mut messages: Vec<_> = testing::take_all(&broker.settings(), "card.purge")
        .await
        .unwrap()
        .into_iter()
        .map(|found| found.body)
        .collect();
    messages.sort();
    messages.dedup();
    assert_eq!(messages.len(), 300);
}

/// O-MQ-03: a returned message is acked all the same; only its own row stays.
#[tokio::test]
async fn a_returned_row_stays_with_its_reason_and_harms_no_other() {
    let (test, broker) = (TestDb::new().await, TestBroker::new().await);
    let db = test.worker();
    let mut publisher = Publisher::new(broker.settings());
    publisher.ready().await.unwrap();
    testing::unbind(&broker.settings(), Queue::Decode).await.unwrap();
    enqueue(&db, Queue::Purge, 3).await;
    enqueue(&db, Queue::Decode, 2).await;
    enqueue(&db, Queue::Purge, 3).await;
    let batch = relay::relay_batch(&db, &mut publisher, RelaySettings::default()).await.unwrap();
    assert_eq!(batch, Batch::Partial);
    assert_eq!(testing::count(&broker.settings(), "card.purge").await.unwrap(), 6);
    assert_eq!(test.texts("select distinct queue from outbox").await, ["card.decode"]);
    assert_eq!(
        test.count(
            "select count(*) from outbox
             where publish_attempts = 1 and available_at > now() and last_error like 'returned: 312%'"
        )
        .await,
        2
    );
    // Bound again, they go out when their time has come.
    topology::declare(&broker.settings()).await.unwrap();
    test.pass_time(60).await;
    relay::relay_batch(&db, &mut publisher, RelaySettings::default()).await.unwrap();
    is_empty(&test).await.expect("all rows went out");
    assert_eq!(testing::count(&broker.settings(), "card.decode").await.unwrap(), 2);
}

/// The broker dies and comes back empty: rows wait, and the relay declares what it needs.
#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_killed_and_wiped_costs_no_row() {
    let (test, broker) = (TestDb::new().await, PrivateBroker::start());
    let db = test.worker();
    let shutdown = CancellationToken::new();
    let (relaying, relays) = watch::channel(false);
    let relay = tokio::spawn(relay::run(
        db.clone(),
        broker.settings(),
        RelaySettings::default(),
        shutdown.clone(),
        relaying,
    ));
    enqueue(&db, Queue::Purge, 10).await;
    until("an empty outbox", BOUND, || is_empty(&test)).await;

    broker.kill();
    enqueue(&db, Queue::Purge, 10).await;
    until("the relay to say that nothing leaves", BOUND, || async { (!*relays.borrow()).then_some(()) })
        .await;
    broker.wipe();
    until("an empty outbox after the wipe", BOUND, || is_empty(&test)).await;
    assert_eq!(testing::count(&broker.settings(), "card.purge").await.unwrap(), 10);
    until("the relay to say that all is well", BOUND, || async { relays.borrow().then_some(()) }).await;
    shutdown.cancel();
    relay.await.unwrap();
}

/// A wire to a server that swallows all answers once the client has sent `pattern`; what the client sends still
/// arrives, as when only the way back is cut.
async fn swallowing_after(server: String, pattern: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&server).await.unwrap();
            tokio::spawn(carry(client, server, pattern));
        }
    });
    address
}

async fn carry(mut client: TcpStream, mut server: TcpStream, pattern: &'static [u8]) {
    let (mut up, mut down) = (vec![0; 16 * 1024], vec![0; 16 * 1024]);
    let mut is_silent = false;
    loop {
        tokio::select! {
            sent = client.read(&mut up) => {
                let Ok(n @ 1..) = sent else { return };
                is_silent |= up[..n].windows(pattern.len()).any(|window| window == pattern);
                if server.write_all(&up[..n]).await.is_err() { return }
            }
            answered = server.read(&mut down) => {
                let Ok(n @ 1..) = answered else { return };
                if !is_silent && client.write_all(&down[..n]).await.is_err() { return }
            }
        }
    }
}

/// A database that takes what it is told and never answers is a failed batch, and its rows are not lost.
#[tokio::test]
async fn a_database_that_goes_silent_in_mid_batch_fails_the_batch_within_a_bound() {
    for (pattern, step) in
        [(b"for update skip locked".as_slice(), "claiming rows"), (b"COMMIT", "settling rows")]
    {
        let (test, broker) = (TestDb::new().await, TestBroker::new().await);
        let mut url = url::Url::parse(&test.worker_url).unwrap();
        let server = format!("127.0.0.1:{}", url.port().unwrap());
        url.set_port(Some(swallowing_after(server, pattern).await.port())).unwrap();
        let settings = DbSettings { url: url.to_string(), connections_max: 2, name: "silent".to_owned() };
        let silent = Db::new(&settings).unwrap();
        enqueue(&test.worker(), Queue::Purge, 3).await;
        let mut publisher = Publisher::new(broker.settings());
        publisher.ready().await.unwrap();
        let bound = RelaySettings { database_within: Duration::from_secs(2), ..RelaySettings::default() };
        let batch = relay::relay_batch(&silent, &mut publisher, bound);
        let error = tokio::time::timeout(BOUND, batch).await.expect("an end").unwrap_err();
        assert!(
            matches!(error, RelayError::Silent { step: silent, .. } if silent == step),
            "{step}: {error}"
        );
        // Nothing is lost: the next relay takes what is left, once the server has given up the claim.
        let (shutdown, db) = (CancellationToken::new(), test.worker());
        let (settings, relaying) = (RelaySettings::default(), watch::Sender::new(false));
        let relay = tokio::spawn(relay::run(db, broker.settings(), settings, shutdown.clone(), relaying));
        until("an empty outbox", BOUND, || is_empty(&test)).await;
        shutdown.cancel();
        relay.await.unwrap();
        assert_eq!(testing::count(&broker.settings(), "card.purge").await.unwrap(), 3);
    }
}
