//! A run that stops half-way, two at once, and the janitor's own (R-H2).

use std::sync::Arc;
use std::time::Duration;

use janitor::reconcile::{Mode, Phase, ReconcileError, Reconciler, Verdict};
use objects::Operation;
use objects::fake::Fault;
use testkit::until;
use tokio_util::sync::CancellationToken;

use crate::world::{APPLY, World};

#[tokio::test]
async fn a_walk_that_breaks_off_goes_on_from_its_cursor() {
    let world = World::with_cards(2600).await;
    world.ripe_strays(1).await;
    let fake = world.fake.clone();
    // The store goes away after the first page of files, and for good.
    let error = world
        .try_run(APPLY, &mut |progress| {
            if progress.phase == (Phase::Walking { prefix: "files/" }) {
                fake.switch_off();
            }
        })
        .await
        .unwrap_err();
    assert!(matches!(error, ReconcileError::Objects(_)) && error.is_passing(), "{error}");
    let seen = world.test.count("select versions from reconcile_runs where ended_at is null").await;
    assert!((1..2600).contains(&seen), "{seen}");
    let cursor = world.test.texts("select cursor from reconcile_runs where ended_at is null").await.remove(0);
    assert!(world.ready.iter().any(|ready| ready.key == cursor), "{cursor}");

    // Its walker is taken for alive as long as its claim lasts.
    world
        .test
        .sql("update reconcile_runs set claimed_until = now() + interval '1 minute' where ended_at is null")
        .await;
    world.fake.heal();
    world.fake.clear_calls();
    let busy = world.try_run(APPLY, &mut |_| {}).await.unwrap_err();
    assert!(matches!(busy, ReconcileError::Busy { .. }), "{busy}");
    assert_eq!(world.fake.calls(), []);

    world.test.sql("update reconcile_runs set claimed_until = now() where ended_at is null").await;
    let report = world.run(APPLY).await;
    assert_eq!(
        (report.versions, report.kept, report.removed),
        (2601, 2600, 1),
        "each version once: {report:?}"
    );
    let is_list = |prefix: &str| {
        world
            .fake
            .calls()
            .iter()
            .filter(|call| call.operation == Operation::ListVersions && call.key == prefix)
            .count()
    };
    assert_eq!((is_list("derived/"), is_list("files/")), (0, 2), "not from the beginning");
    assert_eq!(world.test.count("select count(*) from reconcile_runs").await, 2);
    world.assert_all_files_are_there();
}

#[tokio::test]
async fn a_walker_that_was_taken_for_dead_removes_nothing() {
    let world = World::with_cards(300).await;
    let key = world.ripe_strays(1).await.remove(0);
    let error = world
        .try_run(APPLY, &mut |progress| {
            if progress.phase == (Phase::Walking { prefix: "incoming/" }) {
                world.sql_meanwhile(
                    "update reconcile_runs set claim = gen_random_uuid() where ended_at is null",
                );
            }
        })
        .await
        .unwrap_err();
    assert!(matches!(error, ReconcileError::Overtaken { .. }), "{error}");
    assert!(world.is_there(&key));
}

#[tokio::test]
async fn who_goes_on_with_a_run_decides_whether_it_removes() {
    let world = World::with_cards(300).await;
    let key = world.ripe_strays(1).await.remove(0);
    world.fake.fail(Operation::DeleteVersions, Fault::Unavailable);
    world.fake.fail(Operation::Probe, Fault::Unavailable);
    world.try_run(APPLY, &mut |_| {}).await.unwrap_err();
    let dry = world.run(Mode::DryRun).await;
    assert_eq!((dry.mode, dry.verdict, dry.removed), ("dry_run", Verdict::DryRun, 0));
    assert!(world.is_there(&key));
}

#[tokio::test]
async fn a_run_that_is_asked_to_stop_stops_between_two_chunks() {
    let world = World::with_cards(2600).await;
    let shutdown = CancellationToken::new();
    let asked = shutdown.clone();
    let error = world
        .reconciler()
        .run_until(APPLY, &shutdown, &mut |progress| {
            if progress.versions > 0 {
                asked.cancel();
            }
        })
        .await
        .unwrap_err();
    assert!(matches!(error, ReconcileError::Stopped { .. }), "{error}");
    let report = world.run(APPLY).await;
    assert_eq!(
        (report.versions, report.verdict),
        (2600, Verdict::Clean),
        "at once, for the claim was given back"
    );
}

#[tokio::test]
async fn the_janitor_begins_with_a_dry_run_waits_out_an_outage_and_repeats() {
    let mut world = World::with_cards(1200).await;
    world.settings.pause = Duration::from_millis(20);
    world.settings.interval = Duration::from_millis(1);
    let reconciler =
        Arc::new(Reconciler::new(world.db.clone(), Arc::new(world.fake.clone()), world.settings));
    world.fake.fail_times(Operation::ListVersions, Fault::Unavailable, 3);
    let shutdown = CancellationToken::new();
    let watching = tokio::spawn({
        let (reconciler, shutdown) = (Arc::clone(&reconciler), shutdown.clone());
        async move { reconciler.watch(shutdown).await }
    });
    until("three runs", Duration::from_mins(2), async || {
        let ended = world.test.count("select count(*) from reconcile_runs where ended_at is not null").await;
        (ended >= 3).then_some(())
    })
    .await;
    shutdown.cancel();
    watching.await.unwrap();
    let modes =
        world.test.texts("select mode from reconcile_runs where ended_at is not null order by id").await;
    assert_eq!(modes[..3], ["dry_run", "apply", "apply"]);
    let ends = world
        .test
        .texts("select distinct verdict || versions from reconcile_runs where ended_at is not null");
    assert_eq!(ends.await, ["clean1200"]);
    let lists = world.fake.calls().iter().filter(|call| call.operation == Operation::ListVersions).count();
    assert!(lists >= 3 + 3 * 4, "{lists}");
}
