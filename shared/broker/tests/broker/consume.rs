//! The workers' side on a real RabbitMQ: every outcome, every failure, drain and reconnect (R-I2, R-I5, R-C7).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::rig::{BOUND, Entry, Running, Scripted, eventually, limits, number, row, rows, with_rig};
use broker::{Due, Limits, Outcome, Reason, testing, topology};
use cards::Timestamp;
use cards::retry::Schedule;
use events::work::{DEAD_ERROR_HEADER, DEAD_REASON_HEADER, Queue, TRACEPARENT_HEADER};
use tokio::sync::{Barrier, Semaphore};

fn reason(code: &'static str) -> Reason {
    Reason::new(code, "as the test says")
}

#[tokio::test]
async fn a_done_message_is_handled_once_and_gone() {
    with_rig(async |rig| {
        let handler = Scripted::new(|_| async { Outcome::Done });
        let mut running = Running::start(&rig, Queue::Decode, &handler, limits(100));
        running.until_consuming(true).await;
        let batch = rows(Queue::Decode, 1000);
        rig.publish(&batch).await;
        handler.until_seen(1000).await;
        let ledger = Arc::clone(&running.ledger);
        running.stop().await;
        assert!(handler.tally().values().all(|times| *times == 1));
        assert_eq!(rig.count("card.decode").await, 0);
        assert!(ledger.entries().is_empty());
        let seen = handler.seen.lock().unwrap()[0].clone();
        let sent = &batch[number(&seen.body)];
        assert_eq!((seen.queue, seen.message_id, seen.attempt), (Queue::Decode, Some(sent.message_id), 1));
        assert_eq!((seen.traceparent, seen.redelivered), (sent.traceparent.clone(), false));
    })
    .await;
}

#[tokio::test]
async fn prefetched_messages_are_handled_side_by_side_and_never_more() {
    with_rig(async |rig| {
        let gate = Arc::new(Semaphore::new(0));
        let waiting = Arc::clone(&gate);
        let handler = Scripted::new(move |_| {
            let gate = Arc::clone(&waiting);
            async move {
                gate.acquire().await.unwrap().forget();
                Outcome::Done
            }
        });
        rig.publish(&rows(Queue::Decode, 30)).await;
        let running = Running::start(&rig, Queue::Decode, &handler, limits(10));
        handler.until_seen(10).await;
        gate.add_permits(30);
        handler.until_seen(30).await;
        running.stop().await;
        assert_eq!(handler.most_at_once.load(Ordering::SeqCst), 10);
        assert_eq!(rig.count("card.decode").await, 0);
    })
    .await;
}

/// R-I2: a retry is a row due later, then an ack.
#[tokio::test]
async fn a_fault_is_written_for_later_with_the_next_attempt_and_acked() {
    with_rig(async |rig| {
        let handler = Scripted::new(|delivery| async move {
            match (number(&delivery.body), delivery.attempt) {
                (1, 1) => Outcome::Retry(reason("store_500")),
                (2, 1) => Outcome::RetryOn(Schedule::UnknownKey, reason("unknown_key")),
                (3, 1) => Outcome::Later { due: Timestamp::UNIX_EPOCH, reason: reason("live_lease") },
                _ => Outcome::Done,
            }
        });
        rig.publish(&[row(Queue::Decode, 1), row(Queue::Decode, 2), row(Queue::Decode, 3)]).await;
        let running = Running::start(&rig, Queue::Decode, &handler, limits(1));
        let ledger = Arc::clone(&running.ledger);
        let entries =
            eventually("three entries", async || Some(ledger.entries()).filter(|e| e.len() == 3)).await;
        let retry = |n, attempt, due, code| Entry::Retry { n, attempt, due, code };
        assert_eq!(
            entries,
            [
                retry(1, 2, Due::In(Duration::from_secs(5)), "store_500"),
                retry(2, 2, Due::In(Duration::from_secs(2)), "unknown_key"),
                // R-C1: a live lease uses no attempt.
                retry(3, 1, Due::At(Timestamp::UNIX_EPOCH), "live_lease"),
            ]
        );
        let again: Vec<_> = ledger.retries.lock().unwrap().iter().take(2).cloned().collect();
        rig.publish(&again).await;
        eventually("both again", async || (handler.seen.lock().unwrap().len() == 5).then_some(())).await;
        running.stop().await;
        assert_eq!(rig.count("card.decode").await, 0);
        assert_eq!(ledger.entries().len(), 3);
    })
    .await;
}

#[tokio::test]
async fn poison_goes_to_the_dead_letter_queue_with_reason_error_and_its_own_headers() {
    with_rig(async |rig| {
        let long = "ö".repeat(5000);
        let handler = Scripted::new(move |_| {
            let reason = Reason::new("unparsable", long.clone());
            async move { Outcome::Dead(reason) }
        });
        let poison = row(Queue::Confirm, 1);
        rig.publish(std::slice::from_ref(&poison)).await;
        let running = Running::start(&rig, Queue::Confirm, &handler, limits(5));
        rig.until_count("card.confirm.dead", 1).await;
        let ledger = Arc::clone(&running.ledger);
        running.stop().await;
        assert!(matches!(ledger.entries().as_slice(), [Entry::Dead { n: 1, code: "unparsable", .. }]));
        assert_eq!(rig.count("card.confirm").await, 0);
        let dead = testing::take_all(&rig.settings, "card.confirm.dead").await.unwrap().remove(0);
        assert_eq!(dead.message_id, Some(poison.message_id.to_string()));
        assert_eq!(dead.body, poison.body);
        assert_eq!(dead.headers[DEAD_REASON_HEADER], "unparsable");
        assert_eq!(dead.headers[DEAD_ERROR_HEADER], "ö".repeat(1024));
        assert_eq!(dead.headers["x-arkiv-attempt"], "1");
        assert_eq!(Some(&dead.headers[TRACEPARENT_HEADER]), poison.traceparent.as_ref());
    })
    .await;
}

#[tokio::test]
async fn the_eighth_failed_attempt_is_the_last() {
    with_rig(async |rig| {
        let handler = Scripted::new(|_| async { Outcome::Retry(reason("store_500")) });
        let mut batch = rows(Queue::Decode, 2);
        batch[0].attempt = 7;
        batch[1].attempt = 8;
        rig.publish(&batch).await;
        let running = Running::start(&rig, Queue::Decode, &handler, limits(5));
        rig.until_count("card.decode.dead", 1).await;
        let ledger = Arc::clone(&running.ledger);
        running.stop().await;
        let entries = ledger.entries();
        assert!(entries.contains(&Entry::Retry {
            n: 0,
            attempt: 8,
            due: Due::In(Duration::from_secs(320)),
            code: "store_500"
        }));
        let detail = "as the test says (attempt 8 was the last)".to_owned();
        assert!(
            entries.contains(&Entry::Dead { n: 1, code: "store_500", detail: detail.clone() }),
            "{entries:?}"
        );
        let dead = testing::take_all(&rig.settings, "card.decode.dead").await.unwrap().remove(0);
        assert_eq!(
            (dead.headers[DEAD_ERROR_HEADER].as_str(), dead.body.as_slice()),
            (detail.as_str(), b"1".as_slice())
        );
    })
    .await;
}

/// O-MQ-04: a message that kills its worker each time ends where a poison message ends.
#[tokio::test]
async fn the_brokers_own_delivery_limit_ends_in_the_dead_letter_queue() {
    with_rig(async |rig| {
        rig.publish(&[row(Queue::Decode, 1)]).await;
        let mut deaths = 0;
        eventually("the message is dead-lettered", async || {
            if testing::take_one_and_die(&rig.settings, Queue::Decode).await.unwrap() {
                deaths += 1;
            }
            (rig.count("card.decode.dead").await == 1).then_some(())
        })
        .await;
        assert_eq!(deaths, 21, "20 times back after the first");
        let dead = testing::take_all(&rig.settings, "card.decode.dead").await.unwrap().remove(0);
        // How the collector tells these from our own, which carry a reason header.
        assert_eq!(dead.headers["x-first-death-reason"], "delivery_limit");
        assert!(!dead.headers.contains_key(DEAD_REASON_HEADER));
    })
    .await;
}

#[tokio::test]
async fn a_panic_and_a_handler_without_end_cost_one_attempt_of_one_message() {
    with_rig(async |rig| {
        let handler = Scripted::new(|delivery| async move {
            match number(&delivery.body) {
                1 => panic!("a bug"),
                2 => std::future::pending().await,
                _ => Outcome::Done,
            }
        });
        rig.publish(&[row(Queue::Decode, 1), row(Queue::Decode, 2), row(Queue::Decode, 3)]).await;
        let limits = Limits { handler_timeout: Duration::from_millis(200), ..limits(5) };
        let mut running = Running::start(&rig, Queue::Decode, &handler, limits);
        running.until_consuming(true).await;
        let ledger = Arc::clone(&running.ledger);
        eventually("two entries", async || (ledger.entries().len() == 2).then_some(())).await;
        let due = Due::In(Duration::from_secs(5));
        assert!(ledger.entries().contains(&Entry::Retry { n: 1, attempt: 2, due, code: "panic" }));
        assert!(ledger.entries().contains(&Entry::Retry { n: 2, attempt: 2, due, code: "timeout" }));
        assert!(*running.consuming.borrow(), "the loop went on");
        rig.publish(&[row(Queue::Decode, 4)]).await;
        handler.until_seen(4).await;
        running.stop().await;
        assert_eq!(rig.count("card.decode").await, 0);
        assert!(handler.tally().values().all(|times| *times == 1), "one session for all of it");
    })
    .await;
}

/// R-C7: an outage pauses the consumer, hands everything back once, uses no attempt, and asks the dependency itself.
#[tokio::test]
async fn an_outage_hands_back_once_and_consumes_again_only_after_the_probe() {
    with_rig(async |rig| {
        let away = Arc::new(AtomicBool::new(true));
        let dependency = Arc::clone(&away);
        let handler = Scripted::new(move |_| {
            let away = dependency.load(Ordering::SeqCst);
            async move { if away { Outcome::Outage(reason("store_away")) } else { Outcome::Done } }
        });
        handler.back.store(false, Ordering::SeqCst);
        rig.publish(&rows(Queue::Decode, 20)).await;
        let mut running = Running::start(&rig, Queue::Decode, &handler, limits(20));
        eventually("three probes", async || (handler.probes.load(Ordering::SeqCst) >= 3).then_some(())).await;
        // All is back in the queue, nobody consumes, and no message was used to find out.
        assert!(!*running.consuming.borrow());
        rig.until_count("card.decode", 20).await;
        let depths = topology::depth(&rig.settings).await.unwrap();
        let decode = depths.iter().find(|depth| depth.queue == "card.decode").unwrap();
        assert_eq!((decode.ready, decode.consumers), (20, 0));
        let first = handler.seen.lock().unwrap().len();
        assert!((1..=20).contains(&first), "{first}");

        away.store(false, Ordering::SeqCst);
        handler.back.store(true, Ordering::SeqCst);
        running.until_consuming(true).await;
        eventually("all done", async || (handler.seen.lock().unwrap().len() == first + 20).then_some(()))
            .await;
        let ledger = Arc::clone(&running.ledger);
        running.stop().await;
        assert_eq!(rig.count("card.decode").await, 0);
        assert!(ledger.entries().is_empty());
        let seen = handler.seen.lock().unwrap();
        assert!(seen.iter().all(|delivery| delivery.attempt == 1));
        assert_eq!(seen.iter().skip(first).filter(|delivery| delivery.redelivered).count(), 20);
    })
    .await;
}

/// R-C7: where the probe lies, each round costs one redelivery of one message, so that the broker's own delivery limit
/// is not eaten by all.
#[tokio::test]
async fn an_outage_the_probe_does_not_see_redelivers_one_message_a_round() {
    with_rig(async |rig| {
        let handler = Scripted::new(|_| async { Outcome::Outage(reason("versioning_required")) });
        rig.publish(&rows(Queue::Decode, 50)).await;
        let running = Running::start(&rig, Queue::Decode, &handler, limits(50));
        handler.until_probed(5).await;
        running.stop().await;
        rig.until_count("card.decode", 50).await;
        let rounds = handler.probes.load(Ordering::SeqCst) + 1;
        let left = testing::take_all(&rig.settings, "card.decode").await.unwrap();
        let counts = left.iter().filter_map(|found| found.headers.get("x-delivery-count"));
        let redelivered: usize = counts.map(|count| count.parse::<usize>().unwrap()).sum();
        // All of them once: the first outage could not be foreseen.
        assert!((rounds - 2..=50 + rounds).contains(&redelivered), "{redelivered} in {rounds} rounds");
    })
    .await;
}

#[tokio::test]
async fn after_an_outage_one_message_is_tried_alone_and_then_all_places_are_filled() {
    with_rig(async |rig| {
        let (calls, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let (barrier, waiting) = (Arc::new(Barrier::new(7)), Arc::clone(&gate));
        let handler = Scripted::new(move |_| {
            let (barrier, gate) = (Arc::clone(&barrier), Arc::clone(&waiting));
            let call = calls.fetch_add(1, Ordering::SeqCst);
            async move {
                match call {
                    0 => Outcome::Outage(reason("store_away")),
                    // A fault of its own says as much about the dependency as a success.
                    1 => {
                        gate.acquire().await.unwrap().forget();
                        Outcome::Retry(reason("store_500"))
                    }
                    // The others are done seven side by side, or never.
                    _ => {
                        barrier.wait().await;
                        Outcome::Done
                    }
                }
            }
        });
        let seen = || handler.seen.lock().unwrap().len();
        handler.back.store(false, Ordering::SeqCst);
        rig.publish(&[row(Queue::Decode, 0)]).await;
        let running = Running::start(&rig, Queue::Decode, &handler, limits(50));
        handler.until_probed(1).await;
        rig.publish(&rows(Queue::Decode, 49)).await;
        handler.back.store(true, Ordering::SeqCst);
        eventually("the tried one", async || (seen() >= 2).then_some(())).await;
        assert_eq!(rig.count("card.decode").await, 49, "the others wait in the queue");
        gate.add_permits(1);
        eventually("all handled", async || (seen() == 51).then_some(())).await;
        running.stop().await;
        assert_eq!(rig.count("card.decode").await, 0);
    })
    .await;
}

/// R-C7: a message that goes through now and then does not make the next wait a short one.
#[tokio::test]
async fn an_outage_that_comes_back_at_once_is_met_at_growing_intervals() {
    with_rig(async |rig| {
        let calls = Arc::new(AtomicUsize::new(0));
        let handler = Scripted::new(move |_| {
            let call = calls.fetch_add(1, Ordering::SeqCst);
            async move { if call.is_multiple_of(2) { Outcome::Done } else { Outcome::Outage(reason("flaps")) } }
        });
        rig.publish(&rows(Queue::Decode, 50)).await;
        let begun = Instant::now();
        let running = Running::start(&rig, Queue::Decode, &handler, limits(1));
        handler.until_probed(5).await;
        // 0.2 + 0.4 + 0.8 + 1.6 + 3.2 s, each at least half of that.
        assert!(begun.elapsed() >= Duration::from_secs(3), "{:?}", begun.elapsed());
        running.stop().await;
    })
    .await;
}

/// What handlers in flight finish during an outage counts; the others' messages go back.
#[tokio::test]
async fn an_outage_lets_handlers_in_flight_finish() {
    with_rig(async |rig| {
        let (gate, barrier) = (Arc::new(Semaphore::new(0)), Arc::new(Barrier::new(5)));
        let (waiting, meeting) = (Arc::clone(&gate), Arc::clone(&barrier));
        let handler = Scripted::new(move |delivery| {
            let (gate, barrier) = (Arc::clone(&waiting), Arc::clone(&meeting));
            async move {
                barrier.wait().await;
                if number(&delivery.body) == 0 {
                    return Outcome::Outage(reason("store_away"));
                }
                gate.acquire().await.unwrap().forget();
                Outcome::Done
            }
        });
        handler.back.store(false, Ordering::SeqCst);
        rig.publish(&rows(Queue::Decode, 5)).await;
        let mut running = Running::start(&rig, Queue::Decode, &handler, limits(5));
        handler.until_seen(5).await;
        running.until_consuming(false).await;
        gate.add_permits(4);
        eventually("a probe", async || (handler.probes.load(Ordering::SeqCst) >= 1).then_some(())).await;
        rig.until_count("card.decode", 1).await;
        running.stop().await;
        assert_eq!(testing::take_all(&rig.settings, "card.decode").await.unwrap()[0].body, b"0");
    })
    .await;
}

#[tokio::test]
async fn a_ledger_that_is_away_is_an_outage_and_the_message_is_not_acked() {
    with_rig(async |rig| {
        let handler = Scripted::new(|delivery| async move {
            if number(&delivery.body) == 0 { Outcome::Retry(reason("x")) } else { Outcome::Dead(reason("y")) }
        });
        handler.back.store(false, Ordering::SeqCst);
        let running = Running::start(&rig, Queue::Decode, &handler, limits(2));
        let ledger = Arc::clone(&running.ledger);
        ledger.away.store(true, Ordering::SeqCst);
        rig.publish(&rows(Queue::Decode, 2)).await;
        eventually("a probe", async || (handler.probes.load(Ordering::SeqCst) >= 1).then_some(())).await;
        rig.until_count("card.decode", 2).await;
        assert!(ledger.entries().is_empty());
        ledger.away.store(false, Ordering::SeqCst);
        handler.back.store(true, Ordering::SeqCst);
        eventually("both written", async || (ledger.entries().len() == 2).then_some(())).await;
        running.stop().await;
        assert_eq!(rig.count("card.decode").await, 0);
        // One more where its card could not be parked: the dead letter comes first, and twice is better than never.
        assert!((1..=2).contains(&rig.count("card.decode.dead").await));
    })
    .await;
}

#[tokio::test]
async fn a_full_dead_letter_queue_keeps_the_message_where_it_was() {
    with_rig(async |rig| {
        rig.cap("card.decode.dead", Some(1)).await;
        let handler = Scripted::new(|_| async { Outcome::Dead(reason("poison")) });
        rig.publish(&rows(Queue::Decode, 6)).await;
        let running = Running::start(&rig, Queue::Decode, &handler, limits(1));
        eventually("an outage", async || (handler.probes.load(Ordering::SeqCst) >= 2).then_some(())).await;
        running.stop().await;
        let (ready, dead) = (rig.count("card.decode").await, rig.count("card.decode.dead").await);
        assert!(dead < 6 && ready >= 1, "{ready} {dead}");
        assert!(ready + dead >= 6, "{ready} {dead}");
        rig.cap("card.decode.dead", None).await;
    })
    .await;
}

/// R-I5: work in hand is finished, the rest handed back, nothing lost.
#[tokio::test]
async fn shutdown_finishes_what_is_in_flight_and_hands_back_the_rest() {
    with_rig(async |rig| {
        let gate = Arc::new(Semaphore::new(0));
        let waiting = Arc::clone(&gate);
        let handler = Scripted::new(move |_| {
            let gate = Arc::clone(&waiting);
            async move {
                gate.acquire().await.unwrap().forget();
                Outcome::Done
            }
        });
        rig.publish(&rows(Queue::Decode, 12)).await;
        let running = Running::start(&rig, Queue::Decode, &handler, limits(5));
        handler.until_seen(5).await;
        running.shutdown.cancel();
        // The consumer is gone before the handlers are done.
        eventually("the consumer is cancelled", async || {
            let depths = topology::depth(&rig.settings).await.unwrap();
            depths.iter().all(|depth| depth.consumers == 0).then_some(())
        })
        .await;
        assert_eq!(rig.count("card.decode").await, 7);
        gate.add_permits(5);
        running.ended().await;
        assert_eq!(handler.seen.lock().unwrap().len(), 5);
        assert_eq!(rig.count("card.decode").await, 7);
    })
    .await;
}

#[tokio::test]
async fn shutdown_does_not_wait_for_a_handler_beyond_the_drain_limit() {
    with_rig(async |rig| {
        let handler = Scripted::new(|delivery| async move {
            if number(&delivery.body) == 0 { std::future::pending().await } else { Outcome::Done }
        });
        rig.publish(&rows(Queue::Decode, 3)).await;
        let limits = Limits { drain: Duration::from_millis(300), ..limits(5) };
        let running = Running::start(&rig, Queue::Decode, &handler, limits);
        handler.until_seen(3).await;
        running.stop().await;
        rig.until_count("card.decode", 1).await;
        assert_eq!(testing::take_all(&rig.settings, "card.decode").await.unwrap()[0].body, b"0");
    })
    .await;
}

/// O-MQ-01: a consumer whose connection died is not dead while looking alive.
#[tokio::test]
async fn a_connection_closed_in_mid_work_costs_no_message() {
    with_rig(async |rig| {
        let handler = Scripted::new(|_| async {
            // Work that takes a while, so that the close comes in the middle of it.
            tokio::time::sleep(Duration::from_millis(20)).await;
            Outcome::Done
        });
        let mut running = Running::start(&rig, Queue::Decode, &handler, limits(5));
        running.until_consuming(true).await;
        eventually("the connection is listed", async || {
            (!rig.connections("card.decode").await.is_empty()).then_some(())
        })
        .await;
        rig.publish(&rows(Queue::Decode, 400)).await;
        let mut cuts = 0;
        eventually("three cuts", async || {
            cuts += rig.close_connections("card.decode").await;
            (cuts >= 3 || handler.tally().len() >= 400).then_some(())
        })
        .await;
        assert!(cuts >= 1, "the work was done before a connection could be cut");
        handler.until_seen(400).await;
        rig.until_count("card.decode", 0).await;
        running.until_consuming(true).await;
        running.stop().await;
        // At least once, and nothing is left: what was in flight at a cut came again.
        assert_eq!(handler.tally().len(), 400);
        assert_eq!(rig.count("card.decode").await, 0);
        assert!(handler.most_at_once.load(Ordering::SeqCst) <= 5, "old and new sessions together");
    })
    .await;
}

/// The broker has given a lost session's messages to somebody else: its acks mean nothing any more, and would hit the
/// new session's messages of the same numbers.
#[tokio::test]
async fn a_lost_sessions_handlers_count_against_the_limit_and_their_acks_are_dropped() {
    with_rig(async |rig| {
        let handler = Scripted::new(|delivery| async move {
            if number(&delivery.body) == 0 && !delivery.redelivered {
                return Outcome::Retry(reason("store_500"));
            }
            std::future::pending().await
        });
        let limits = Limits { drain: Duration::from_millis(300), ..limits(2) };
        let mut running = Running::start(&rig, Queue::Decode, &handler, limits);
        running.ledger.held.store(true, Ordering::SeqCst);
        running.until_consuming(true).await;
        rig.publish(&rows(Queue::Decode, 2)).await;
        handler.until_seen(2).await;
        eventually("a cut", async || (rig.close_connections("card.decode").await > 0).then_some(())).await;
        running.until_consuming(false).await;
        running.until_consuming(true).await;
        eventually("both are delivered again", async || {
            let depths = topology::depth(&rig.settings).await.unwrap();
            let decode = depths.iter().find(|depth| depth.queue == "card.decode").unwrap();
            ((decode.ready, decode.consumers) == (0, 1)).then_some(())
        })
        .await;
        assert_eq!(handler.seen.lock().unwrap().len(), 2, "both places are still taken");
        // Now the first session's message 0 is ready to be acked: on a channel that is gone.
        running.ledger.release.notify_one();
        eventually("a free place", async || (handler.seen.lock().unwrap().len() == 3).then_some(())).await;
        running.stop().await;
        rig.until_count("card.decode", 2).await;
        assert_eq!(handler.most_at_once.load(Ordering::SeqCst), 2);
    })
    .await;
}

#[tokio::test]
async fn a_queue_that_was_removed_is_declared_and_consumed_again() {
    with_rig(async |rig| {
        let handler = Scripted::new(|_| async { Outcome::Done });
        let mut running = Running::start(&rig, Queue::Decode, &handler, limits(5));
        running.until_consuming(true).await;
        topology::remove(&rig.settings).await.unwrap();
        running.until_consuming(false).await;
        running.until_consuming(true).await;
        rig.publish(&[row(Queue::Decode, 1)]).await;
        handler.until_seen(1).await;
        running.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_url_that_is_none_ends_the_consumer_with_an_error() {
    let handler = Scripted::new(|_| async { Outcome::Done });
    let ledger = Arc::new(crate::rig::Notebook::default());
    let settings =
        broker::Settings { url: "nonsense".to_owned(), prefix: String::new(), name: "t".to_owned() };
    let shutdown = tokio_util::sync::CancellationToken::new();
    let consuming = broker::consume(settings, Queue::Decode, handler, ledger, limits(1), shutdown);
    let ended = tokio::time::timeout(BOUND, consuming).await.unwrap();
    assert!(matches!(ended, Err(broker::BrokerError::Url)));
}
