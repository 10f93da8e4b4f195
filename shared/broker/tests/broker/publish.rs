//! The relay's side on a real RabbitMQ: topology, confirms, returns, refusals, lost connections (R-I1, INV-2).

use std::time::Duration;

use crate::rig::{Rig, eventually, row, rows, with_rig};
use broker::{BrokerError, Published, Publisher, Settings, testing, topology};
use events::work::{Queue, TRACEPARENT_HEADER};

const WITHIN: Duration = Duration::from_mins(1);

async fn publisher(rig: &Rig) -> Publisher {
    let mut publisher = Publisher::new(rig.settings.clone());
    publisher.ready().await.unwrap();
    publisher
}

#[tokio::test]
async fn the_topology_may_be_declared_again_and_what_differs_or_is_missing_is_named() {
    with_rig(async |rig| {
        let declared = topology::declare(&rig.settings).await.unwrap();
        assert_eq!((declared.exchanges, declared.queues, declared.bindings), (2, 6, 4));
        let depths = topology::depth(&rig.settings).await.unwrap();
        assert_eq!(depths.len(), 6);
        assert!(depths.iter().all(|depth| (depth.ready, depth.consumers) == (0, 0)), "{depths:?}");
        let absent = Settings { prefix: "t-absent.".to_owned(), ..rig.settings.clone() };
        let error = topology::depth(&absent).await.unwrap_err();
        assert!(error.chain().contains("t-absent.card.confirm"), "{}", error.chain());
        assert!(
            error.chain().contains("NOT_FOUND") || error.chain().contains("NOT-FOUND"),
            "{}",
            error.chain()
        );
        // A queue without limits, as a hand might have made it (O-MQ-04).
        topology::remove(&rig.settings).await.unwrap();
        rig.plain_queue("card.decode").await;
        let error = topology::declare(&rig.settings).await.unwrap_err();
        let named = matches!(&error, BrokerError::Topology { what: "queue", name, .. } if name.ends_with(".card.decode"));
        assert!(named, "{error:?}");
    })
    .await;
}

#[tokio::test]
async fn topology_without_a_prefix_is_never_removed() {
    let settings = Settings { url: String::new(), prefix: String::new(), name: "t".to_owned() };
    assert!(matches!(topology::remove(&settings).await, Err(BrokerError::NoPrefix)));
}

#[tokio::test]
async fn every_row_is_confirmed_and_carries_id_attempt_and_trace() {
    with_rig(async |rig| {
        let mut batch = rows(Queue::Decode, 500);
        batch[3].attempt = 4;
        let answers = publisher(&rig).await.publish(&batch, WITHIN).await.unwrap();
        assert_eq!(answers, vec![Published::Confirmed; 500]);
        let found = testing::take_all(&rig.settings, "card.decode").await.unwrap();
        assert_eq!(found.len(), 500);
        assert_eq!(found[3].message_id, Some(batch[3].message_id.to_string()));
        assert_eq!(found[3].body, batch[3].body);
        assert_eq!(found[3].headers["x-arkiv-attempt"], "4");
        assert_eq!(Some(&found[3].headers[TRACEPARENT_HEADER]), batch[3].traceparent.as_ref());
    })
    .await;
}

/// O-MQ-03. The broker acks what it returned, and one ack may be for many: which row came back is told by its id.
#[tokio::test]
async fn a_return_is_told_of_its_own_row_and_of_no_other() {
    with_rig(async |rig| {
        testing::unbind(&rig.settings, Queue::Purge).await.unwrap();
        // No second `ready` that opens a connection: that would declare the binding again.
        let mut publisher = publisher(&rig).await;
        testing::unbind(&rig.settings, Queue::Purge).await.unwrap();
        for round in 0..30 {
            let mut batch = rows(Queue::Decode, 40);
            for n in [0, 7, 8, 20 + round % 20] {
                batch[n].queue = Queue::Purge;
            }
            let answers = publisher.publish(&batch, WITHIN).await.unwrap();
            for (row, answer) in batch.iter().zip(answers) {
                match row.queue {
                    Queue::Purge => assert!(
                        matches!(&answer, Published::Returned { code: 312, text } if text == "NO_ROUTE"),
                        "round {round}: {answer:?}"
                    ),
                    Queue::Confirm | Queue::Decode => {
                        assert_eq!(answer, Published::Confirmed, "round {round}");
                    }
                }
            }
        }
        // A new connection mends the binding.
        assert_eq!(
            self::publisher(&rig).await.publish(&[row(Queue::Purge, 1)], WITHIN).await.unwrap(),
            [Published::Confirmed]
        );
    })
    .await;
}

#[tokio::test]
async fn a_full_queue_refuses_the_row_and_takes_those_of_other_queues() {
    with_rig(async |rig| {
        rig.cap("card.decode", Some(1)).await;
        let mut publisher = publisher(&rig).await;
        let outcome = eventually("a refusal", async || {
            let batch = [row(Queue::Decode, 1), row(Queue::Purge, 2)];
            let answers = publisher.publish(&batch, WITHIN).await.unwrap();
            assert_eq!(answers[1], Published::Confirmed);
            (answers[0] != Published::Confirmed).then_some(answers)
        })
        .await;
        rig.cap("card.decode", None).await;
        assert_eq!(outcome[0], Published::Refused);
    })
    .await;
}

#[tokio::test]
async fn only_the_store_may_write_to_bucket_events() {
    with_rig(async |rig| {
        let error = testing::publish_bucket_event(&rig.settings, b"{}").await.unwrap_err();
        assert!(
            error.chain().contains("ACCESS_REFUSED") || error.chain().contains("ACCESS-REFUSED"),
            "{}",
            error.chain()
        );
        assert_eq!(rig.count("card.confirm").await, 0);
        assert_eq!(testing::publish_bucket_event(&rig.store, b"{}").await.unwrap(), Published::Confirmed);
        assert_eq!(rig.count("card.confirm").await, 1);
        let found = testing::take_all(&rig.settings, "card.confirm").await.unwrap();
        assert_eq!((found[0].body.as_slice(), &found[0].message_id), (b"{}".as_slice(), &None));
    })
    .await;
}

#[tokio::test]
async fn a_lost_connection_says_nothing_of_any_row_and_the_next_one_takes_them_again() {
    with_rig(async |rig| {
        let mut publisher = publisher(&rig).await;
        let batch = rows(Queue::Decode, 10);
        eventually("the connection is known", async || {
            (rig.close_connections("publish").await > 0).then_some(())
        })
        .await;
        let error = publisher.publish(&batch, WITHIN).await.unwrap_err();
        assert!(matches!(error, BrokerError::NotReady | BrokerError::Step { .. }), "{error:?}");
        assert!(matches!(publisher.publish(&batch, WITHIN).await, Err(BrokerError::NotReady)));
        publisher.ready().await.unwrap();
        assert_eq!(publisher.publish(&batch, WITHIN).await.unwrap(), vec![Published::Confirmed; 10]);
    })
    .await;
}

#[tokio::test]
async fn confirms_that_come_too_late_drop_the_connection() {
    with_rig(async |rig| {
        let mut publisher = publisher(&rig).await;
        let batch = rows(Queue::Decode, 500);
        let error = publisher.publish(&batch, Duration::from_nanos(1)).await.unwrap_err();
        assert!(matches!(error, BrokerError::Timeout { .. }), "{error:?}");
        assert!(matches!(publisher.publish(&batch, WITHIN).await, Err(BrokerError::NotReady)));
        publisher.ready().await.unwrap();
        assert_eq!(publisher.publish(&batch, WITHIN).await.unwrap(), vec![Published::Confirmed; 500]);
    })
    .await;
}

#[tokio::test]
async fn a_broker_that_is_away_or_silent_is_an_error_within_a_bound() {
    // Nobody listens on a port that was just given back.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    // Somebody listens, and never says a word.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    for port in [closed, silent.local_addr().unwrap().port()] {
        let settings = Settings {
            url: format!("amqp://arkiv:hunter2@127.0.0.1:{port}/%2f"),
            prefix: "t.".to_owned(),
            name: "t".to_owned(),
        };
        let mut publisher = Publisher::new(settings);
        let answer = tokio::time::timeout(Duration::from_secs(15), publisher.ready()).await.unwrap();
        let text = answer.unwrap_err().chain();
        assert!(!text.contains("hunter2"), "{text}");
    }
    let wrong = Settings { url: "http://x".to_owned(), prefix: String::new(), name: "t".to_owned() };
    assert!(matches!(Publisher::new(wrong).ready().await, Err(BrokerError::Url)));
}
