//! The other direction: what a card points at and the store does not have (R-H3).

use janitor::reconcile::Verdict;
use objects::fake::{Fake, Fault};
use objects::{ObjectStore, Operation};
use testkit::fixture;

use crate::world::{APPLY, Ready, World};

async fn lose(world: &World, lost: &Ready) {
    world.fake.delete_versions(&[(lost.key.clone(), lost.version.clone())]).await.unwrap();
}

#[tokio::test]
async fn a_missing_object_is_alarmed_and_nothing_changes() {
    let mut world = World::with_cards(2500).await;
    world.ready.sort_by_key(|ready| ready.card);
    // The first, some in the middle next to each other, and the last: nothing is listed in their place.
    let lost: Vec<Ready> = [0, 999, 1000, 1001, 2499].map(|at| world.ready[at].clone()).into();
    for lost in &lost {
        lose(&world, lost).await;
    }
    // Another version under the key, or a delete marker over it, is not the object.
    let replaced = world.ready[500].clone();
    lose(&world, &replaced).await;
    world.stray(&replaced.key);
    world.fake.add_delete_marker(&world.ready[501].key);
    // A queued card whose source is gone; a pending one has none yet.
    let (api, elsewhere) = (world.test.api(), Fake::new());
    let owner = fixture::owner(&api).await;
    let queued = fixture::queued(&world.db, &api, &elsewhere, owner, cards::MediaType::Text, b"hello").await;
    fixture::pending(&api, owner, cards::MediaType::Text, b"hello").await;
    let rows = format!(
        "select c::text from cards c where state = 'queued' or id in ({}) order by id",
        lost.iter().chain([&replaced]).map(|lost| format!("'{}'", lost.card)).collect::<Vec<_>>().join(",")
    );
    // The version that lies under a file's key has its card's purge asked for; that is not about the missing one.
    let asked =
        format!("update cards set purge_at = null, next_check_at = null where id = '{}'", replaced.card);
    let before = world.test.texts(&rows).await;

    let report = world.run(APPLY).await;
    let mut expected: Vec<String> = lost.iter().chain([&replaced]).map(|lost| lost.key.clone()).collect();
    expected.push(queued.source_key().to_string());
    expected.sort();
    let mut told: Vec<String> = report.missing_objects.iter().map(|object| object.key.clone()).collect();
    told.sort();
    assert_eq!(told, expected);
    assert_eq!((report.missing, report.is_alarm), (7, true));
    assert_eq!(report.verdict, Verdict::Removed, "the other strays go their way");
    world.test.sql(&asked).await;
    assert_eq!(world.test.texts(&rows).await, before);
}

#[tokio::test]
async fn who_cannot_be_asked_is_not_missing() {
    let world = World::with_cards(20).await;
    lose(&world, &world.ready[3]).await;
    world.fake.fail(Operation::Head, Fault::Refuse);
    assert_eq!(world.run(APPLY).await.missing, 0, "the store answers, and refuses this one");
    world.fake.fail(Operation::Head, Fault::Refuse);
    world.fake.fail(Operation::Probe, Fault::Unavailable);
    world.try_run(APPLY, &mut |_| {}).await.unwrap_err();
    assert_eq!(world.run(APPLY).await.missing, 1);
}

#[tokio::test]
async fn a_file_of_a_key_with_too_many_versions_to_list_at_once_is_not_missing() {
    let world = World::with_cards(5).await;
    let key = &world.ready[2].key;
    for _ in 0..7000 {
        world.stray(key);
    }
    let report = world.run(APPLY).await;
    assert_eq!((report.versions, report.kept, report.missing), (7005, 5, 0));
    assert_eq!(report.verdict, Verdict::TooManyStrays);
}

#[tokio::test]
async fn an_empty_bucket_is_all_missing_and_told_in_few_words() {
    let world = World::with_cards(1500).await;
    let empty = Fake::new();
    let reconciler =
        janitor::reconcile::Reconciler::new(world.db.clone(), std::sync::Arc::new(empty), world.settings);
    let report = reconciler.run(APPLY, &mut |_| {}).await.unwrap();
    assert_eq!((report.missing, report.missing_objects.len()), (1500, 100));
    assert_eq!(world.test.count("select count(*) from cards where state = 'ready'").await, 1500);
}
