//! A broker that is restarted, killed, wiped or short of memory, under load. It is one of our own (`./dev rabbit`):
//! these tests take turns on it, and remove it afterwards (R-J, INV-2).

use std::collections::BTreeSet;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use crate::rig::{BOUND, Rig, Running, Scripted, checkout, eventually, limits, number, rows};
use broker::{BrokerError, Outcome, Published, Publisher, topology};
use events::work::{Outgoing, Queue};
use futures::FutureExt as _;
use tokio::process::Command;
use tokio::sync::Mutex;

const NAME: &str = "broker-tests";
static TURN: Mutex<()> = Mutex::const_new(());

/// Runs a test on a fresh broker, and removes the broker.
async fn with_broker(test: impl AsyncFnOnce(Rig)) {
    let _turn = TURN.lock().await;
    dev("wipe").await;
    let rig = start().await;
    topology::declare(&rig.settings).await.unwrap();
    let outcome = std::panic::AssertUnwindSafe(test(rig)).catch_unwind().await;
    dev("wipe").await;
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

/// `./dev rabbit VERB`; its output.
async fn dev(verb: &str) -> String {
    let mut command = Command::new(checkout().join("dev"));
    command.args(["rabbit", verb, NAME]).stderr(Stdio::inherit()).kill_on_drop(true);
    let output = tokio::time::timeout(BOUND * 2, command.output()).await.unwrap().unwrap();
    assert!(output.status.success(), "./dev rabbit {verb}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

async fn start() -> Rig {
    let text = dev("start").await;
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.unwrap_or_else(|| panic!("{name} is missing: {text}")).to_owned()
    };
    Rig::at(&value("AMQP_URL"), &value("STORE_AMQP_URL"), &value("MANAGEMENT_URL"))
}

/// Sets the share of memory at which the broker holds publishers back.
async fn memory_watermark(share: &str) {
    let folder = checkout().join(".dev").join(format!("rabbit-{NAME}"));
    let ports = std::fs::read_to_string(folder.join("ports")).unwrap();
    let base: u16 = ports.trim().strip_prefix("PORT_BASE=").unwrap().parse().unwrap();
    let mut command = Command::new("/usr/lib/rabbitmq/bin/rabbitmqctl");
    command
        .args(["-n", "arkiv@localhost", "set_vm_memory_high_watermark", share])
        .env("HOME", folder.join("home"))
        .env("ERL_EPMD_PORT", (base + 3).to_string());
    let output = tokio::time::timeout(BOUND, command.output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// The relay in miniature: rows stay until they are confirmed, and are sent again after any error.
async fn relay(publisher: &mut Publisher, mut rows: Vec<Outgoing>, mut more: impl AsyncFnMut(usize)) {
    let all = rows.len();
    while !rows.is_empty() {
        more(all - rows.len()).await;
        if publisher.ready().await.is_err() {
            continue;
        }
        let batch = rows[..rows.len().min(50)].to_vec();
        if let Ok(answers) = publisher.publish(&batch, Duration::from_secs(5)).await {
            let confirmed: BTreeSet<_> = batch
                .iter()
                .zip(answers)
                .filter(|(_, answer)| *answer == Published::Confirmed)
                .map(|(row, _)| row.message_id)
                .collect();
            rows.retain(|row| !confirmed.contains(&row.message_id));
        }
    }
}

fn worker() -> Arc<Scripted> {
    Scripted::new(|_| async {
        // Work that takes a moment, so that the broker goes away in the middle of it.
        tokio::time::sleep(Duration::from_millis(5)).await;
        Outcome::Done
    })
}

#[tokio::test]
async fn a_broker_stopped_and_killed_under_load_loses_no_confirmed_row() {
    with_broker(async |rig| {
        let handler = worker();
        let mut running = Running::start(&rig, Queue::Decode, &handler, limits(20));
        // Never far ahead of the worker: both sides are at work when the broker goes.
        let pace = async |sent: usize| {
            eventually("the worker keeps up", async || (handler.tally().len() + 200 > sent).then_some(()))
                .await;
        };
        let mut publisher = Publisher::new(rig.settings.clone());
        let sending = relay(&mut publisher, rows(Queue::Decode, 3000), pace);
        let breaking = async {
            for (seen, verb) in [(500, "stop"), (1500, "kill")] {
                handler.until_seen(seen).await;
                dev(verb).await;
                running.until_consuming(false).await;
                assert!(handler.tally().len() < seen + 1000, "the load was over");
                dev("start").await;
            }
        };
        futures::join!(sending, breaking);
        handler.until_seen(3000).await;
        rig.until_count("card.decode", 0).await;
        running.until_consuming(true).await;
        running.stop().await;
        assert_eq!(handler.tally().keys().copied().collect::<Vec<_>>(), (0..3000).collect::<Vec<_>>());
        assert_eq!(rig.count("card.decode").await + rig.count("card.decode.dead").await, 0);
    })
    .await;
}

/// What a wiped broker had confirmed is gone with it; the janitor asks again for what was not done (INV-2). Here it is
/// proven that both sides come back by themselves, topology and all.
#[tokio::test]
async fn a_wiped_broker_is_whole_again_without_any_setup() {
    with_broker(async |rig| {
        let handler = worker();
        let mut running = Running::start(&rig, Queue::Decode, &handler, limits(5));
        running.until_consuming(true).await;
        let all = rows(Queue::Decode, 1000);
        let mut publisher = Publisher::new(rig.settings.clone());
        relay(&mut publisher, all.clone(), async |_| ()).await;
        handler.until_seen(50).await;
        dev("wipe").await;
        running.until_consuming(false).await;
        let seen = handler.tally();
        assert!(seen.len() < 1000, "all was done before the wipe");
        dev("start").await;
        running.until_consuming(true).await;
        let missing = all.into_iter().filter(|row| !seen.contains_key(&number(&row.body))).collect();
        relay(&mut publisher, missing, async |_| ()).await;
        handler.until_seen(1000).await;
        rig.until_count("card.decode", 0).await;
        running.stop().await;
        let depths = topology::depth(&rig.settings).await.unwrap();
        assert!(depths.iter().all(|depth| depth.ready == 0), "{depths:?}");
    })
    .await;
}

/// DESIGN "Relay": on a blocked connection drop it and claim nothing until a new, unblocked one stands.
#[tokio::test]
async fn a_broker_short_of_memory_is_not_ready_for_publishers_and_goes_on_for_consumers() {
    with_broker(async |rig| {
        let mut publisher = Publisher::new(rig.settings.clone());
        publisher.ready().await.unwrap();
        let batch = rows(Queue::Decode, 20);
        let within = Duration::from_secs(10);
        assert_eq!(publisher.publish(&batch, within).await.unwrap(), vec![Published::Confirmed; 20]);

        memory_watermark("0.000001").await;
        let error = publisher.publish(&batch, within).await.unwrap_err();
        assert!(matches!(error, BrokerError::Blocked), "{error:?}");
        assert!(matches!(publisher.publish(&batch, within).await, Err(BrokerError::NotReady)));
        // A new connection learns of it only by publishing, which `ready` does.
        let error = publisher.ready().await.unwrap_err();
        assert!(matches!(error, BrokerError::Blocked), "{error:?}");

        let handler = worker();
        let running = Running::start(&rig, Queue::Decode, &handler, limits(5));
        handler.until_seen(20).await;
        rig.until_count("card.decode", 0).await;
        running.stop().await;
        assert_eq!(rig.count("card.decode").await, 0, "acks went through");

        memory_watermark("0.4").await;
        eventually("ready again", async || publisher.ready().await.ok()).await;
        assert_eq!(publisher.publish(&batch, within).await.unwrap(), vec![Published::Confirmed; 20]);
    })
    .await;
}
