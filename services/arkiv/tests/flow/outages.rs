//! Servers that are away at start, or go away later: hold, retry, recover.

use testkit::{Proxy, until};

use crate::stack::{BOUND, Stack};

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_restarted_under_load_loses_no_upload() {
    let stack = Stack::with_private_broker().await;
    let mut up = stack.start("up");
    stack.ready().await;
    let mut ids = Vec::new();
    for n in 0..10 {
        ids.push(stack.upload(&format!("before {n}")).await);
    }
    stack.broker.private().kill();
    // The store drops events while the broker is away and says nothing (FACTS 2): the timer finds these uploads.
    for n in 0..10 {
        ids.push(stack.upload(&format!("while away {n}")).await);
    }
    stack.broker.private().start_again();
    for n in 0..10 {
        ids.push(stack.upload(&format!("after {n}")).await);
    }
    stack.db.pass_time(61).await;
    for id in &ids {
        stack.wait(id, "ready", 0).await;
    }
    stack.check().await;
    assert!(up.is_alive(), "{}", up.log());
    stack.ready().await;
    assert!(up.stop().await);
}

/// INV-2: a wiped broker forgets nothing; every card that is not parked still finishes.
#[tokio::test(flavor = "multi_thread")]
async fn a_broker_wiped_with_work_in_every_queue_forgets_nothing() {
    let stack = Stack::with_private_broker().await;
    let _api = stack.start("api");
    let _janitor = stack.start("janitor");
    let mut relay = stack.start("relay");
    let mut confirmer = stack.start("confirmer");
    stack.ready().await;
    // Confirmed and announced, and nobody decodes.
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(stack.upload(&format!("announced {n}")).await);
    }
    for id in &ids {
        stack.wait(id, "queued", 0).await;
    }
    stack.drained().await;
    assert_eq!(broker::testing::count(&stack.broker.settings(), "card.decode").await.unwrap(), 5);
    // Uploaded, and nobody confirms: the events lie in their queue.
    confirmer.kill();
    for n in 0..5 {
        ids.push(stack.upload(&format!("uploaded {n}")).await);
    }
    relay.kill();
    stack.broker.private().wipe();
    let _relay = stack.start("relay");
    let _confirmer = stack.start("confirmer");
    let _decoder = stack.start("decoder");
    // Two minutes later the timer looks at all of them.
    stack.db.pass_time(121).await;
    for id in &ids {
        stack.wait(id, "ready", 0).await;
    }
    stack.check().await;
    assert_eq!(stack.db.count("select count(*) from cards where state <> 'ready'").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_wait_for_a_database_that_is_away_and_say_so_once() {
    let stack = Stack::new().await;
    let mut url = url::Url::parse(&stack.db.worker_url).unwrap();
    let proxy = Proxy::to(&format!("127.0.0.1:{}", url.port().unwrap())).await;
    url.set_port(Some(proxy.address.port())).unwrap();
    proxy.close();
    let mut janitor = stack.start_with("janitor", &[("ARKIV_DATABASE_URL", url.as_str())]);
    until("the janitor to say that it waits", BOUND, || async {
        janitor.log().contains("waiting to start").then_some(())
    })
    .await;
    proxy.open();
    let _api = stack.start("api");
    let _roles: Vec<_> = ["relay", "decoder"].map(|role| stack.start(role)).into();
    stack.ready().await;
    let id = stack.upload("found by the janitor").await;
    broker::testing::purge(&stack.broker.settings(), "card.confirm").await.unwrap();
    stack.db.pass_time(61).await;
    stack.wait(&id, "ready", 0).await;
    assert_eq!(janitor.log().matches("waiting to start").count(), 1, "{}", janitor.log());
    assert!(!janitor.log().contains(url.password().unwrap()), "no secret in logs");

    // Away later: it holds, and recovers.
    proxy.close();
    let late = stack.upload("while the janitor is cut off").await;
    broker::testing::purge(&stack.broker.settings(), "card.confirm").await.unwrap();
    until("the janitor to notice", BOUND, || async { janitor.log().contains("janitor waits").then_some(()) })
        .await;
    proxy.open();
    stack.db.pass_time(61).await;
    stack.wait(&late, "ready", 0).await;
    assert!(janitor.is_alive());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_goes_away_pauses_the_decoder_and_costs_no_attempt() {
    let stack = Stack::new().await;
    let mut url = url::Url::parse(testkit::Env::get().value("ARKIV_S3_ENDPOINT")).unwrap();
    let proxy = Proxy::to(&format!("127.0.0.1:{}", url.port().unwrap())).await;
    url.set_port(Some(proxy.address.port())).unwrap();
    let _roles: Vec<_> = ["api", "confirmer", "relay"].map(|role| stack.start(role)).into();
    // Away at start: it waits and says so.
    proxy.close();
    let mut decoder = stack.start_with("decoder", &[("ARKIV_S3_ENDPOINT", url.as_str())]);
    until("the decoder to say that it waits", BOUND, || async {
        decoder.log().contains("waiting to start").then_some(())
    })
    .await;
    proxy.open();
    stack.ready().await;
    let first = stack.upload("while all is well").await;
    stack.wait(&first, "ready", 0).await;

    proxy.close();
    let ids = [stack.upload("one").await, stack.upload("two").await];
    until("the decoder to pause", BOUND, || async { decoder.log().contains("paused").then_some(()) }).await;
    proxy.open();
    for id in &ids {
        // What was handed back may wait for the lease it had.
        stack.wait(id, "ready", 5).await;
    }
    assert_eq!(
        stack.db.count("select max(attempts)::bigint from cards").await,
        1,
        "an outage uses no attempt"
    );
    assert_eq!(stack.db.count("select count(*) from cards where parked_at is not null").await, 0);
    assert!(decoder.is_alive());
    stack.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_confirmer_waits_for_a_broker_that_is_away_and_says_so() {
    let stack = Stack::new().await;
    let mut url = url::Url::parse(&stack.broker.settings().url).unwrap();
    let proxy = Proxy::to(&format!("127.0.0.1:{}", url.port().unwrap())).await;
    url.set_port(Some(proxy.address.port())).unwrap();
    proxy.close();
    let mut confirmer = stack.start_with("confirmer", &[("ARKIV_AMQP_URL", url.as_str())]);
    let _roles: Vec<_> = ["api", "relay", "decoder"].map(|role| stack.start(role)).into();
    until("the confirmer to say that the broker is away", BOUND, || async {
        confirmer.log().contains("connecting again").then_some(())
    })
    .await;
    stack.ready().await;
    let early = stack.upload("its event waits in the queue").await;
    proxy.open();
    stack.wait(&early, "ready", 0).await;

    // Cut off later: nothing is lost, and it comes back by itself (O-MQ-01).
    proxy.close();
    let late = stack.upload("while the confirmer is cut off").await;
    proxy.open();
    stack.wait(&late, "ready", 0).await;
    assert!(confirmer.is_alive(), "{}", confirmer.log());
    assert!(!confirmer.log().contains(url.password().unwrap()), "no secret in logs");
    stack.check().await;
}

/// R-B9: a bucket without versioning is refused at start.
#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_without_versioning_is_refused_at_start() {
    let stack = Stack::new().await;
    let plain = testkit::TestBucket::new();
    objects::admin::Admin::new(plain.settings("ADMIN")).unwrap().create_bucket().await.unwrap();
    let admin = plain.settings("ADMIN").credentials;
    let mut confirmer = stack.start_with(
        "confirmer",
        &[
            ("ARKIV_S3_BUCKET", &plain.name),
            ("ARKIV_S3_WORKER_ACCESS_KEY", &admin.access_key),
            ("ARKIV_S3_WORKER_SECRET_KEY", &admin.secret_key),
        ],
    );
    until("the confirmer to end", BOUND, || {
        let ended = !confirmer.is_alive();
        async move { ended.then_some(()) }
    })
    .await;
    assert!(confirmer.log().contains("versioning_required"), "{}", confirmer.log());
}
