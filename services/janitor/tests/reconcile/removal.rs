//! What goes, when, and what forbids it (R-H2).

use cards::Ids;
use janitor::reconcile::{Mode, Verdict};
use objects::fake::Fault;
use objects::{ObjectStore, Operation};

use crate::world::{APPLY, DAY_SECONDS, World};

#[tokio::test]
async fn exactly_the_strays_go() {
    let world = World::with_cards(600).await;
    let known = &world.ready[300];
    // Of no card: an unknown id, one that merely starts alike, a form that is none of ours, and a delete marker.
    let unknown = [
        format!("incoming/{}", Ids.card()),
        format!("incoming/{}2", known.card),
        format!("derived/{}", known.card),
    ];
    for key in &unknown {
        world.stray(key);
    }
    world.fake.add_delete_marker(&unknown[0]);
    // Of a card: a late upload.
    let late = format!("incoming/{}", known.card);
    world.stray(&late);
    // Of nobody's business.
    world.stray("elsewhere/x");
    world.stray("files0/x");

    let first = world.run(APPLY).await;
    assert_eq!((first.verdict, first.is_alarm), (Verdict::Removed, false), "{first:?}");
    assert_eq!((first.versions, first.kept, first.card_strays, first.unknown), (605, 600, 1, 4));
    assert_eq!((first.purges, first.removed, first.waiting), (1, 0, 4));
    let asked = "select card_id::text from outbox where queue = 'card.purge' and reason = 'reconciliation'";
    assert_eq!(world.test.texts(asked).await, [known.card.to_string()]);

    let second = world.run(APPLY).await;
    assert_eq!((second.removed, second.waiting, second.purges), (0, 4, 0), "seen twice, not yet a day");
    assert_eq!((second.owed, second.card_strays), (1, 0), "the purge is on its way");

    world.test.pass_time(DAY_SECONDS).await;
    let third = world.run(APPLY).await;
    assert_eq!((third.verdict, third.removed, third.waiting), (Verdict::Removed, 4, 0), "{third:?}");
    assert_eq!(unknown.iter().filter(|key| world.is_there(key)).count(), 0);
    assert!(world.is_there(&late), "its card's purge removes it");
    assert!(world.is_there("elsewhere/x") && world.is_there("files0/x"));
    world.assert_all_files_are_there();
    let removals = "select count(*) from stray_removals where removed_at >= recorded_at";
    assert_eq!(world.test.count(removals).await, 4);
    assert_eq!(world.test.count("select count(*) from strays").await, 0);
    assert_eq!(world.run(APPLY).await.verdict, Verdict::Clean);
}

#[tokio::test]
async fn a_stray_goes_a_day_after_it_was_first_seen_and_not_at_first_sight() {
    let world = World::with_cards(600).await;
    let [by_event, by_run, fresh, named_by_event] = [(); 4].map(|()| format!("incoming/{}", Ids.card()));
    let version = world.stray(&by_event);
    world.stray(&named_by_event);
    let mut connection = world.db.acquire().await.unwrap();
    store::strays::record(&mut connection, &by_event, version.as_str(), 5).await.unwrap();
    // Two events, and one without a version: not a sighting of any version.
    store::strays::record(&mut connection, &named_by_event, "", 5).await.unwrap();
    store::strays::record(&mut connection, &named_by_event, "", 5).await.unwrap();
    store::strays::record(&mut connection, "incoming/gone", "gone", 5).await.unwrap();
    world.test.pass_time(DAY_SECONDS).await;
    world.stray(&by_run);

    let first = world.run(APPLY).await;
    assert_eq!((first.removed, first.waiting), (1, 2), "one event and one run");
    assert!(!world.is_there(&by_event) && world.is_there(&named_by_event) && world.is_there(&by_run));
    assert_eq!(world.test.count("select count(*) from strays").await, 2, "what is gone is forgotten");

    world.test.pass_time(DAY_SECONDS - 60).await;
    let early = world.run(APPLY).await;
    assert_eq!((early.removed, early.waiting), (0, 2), "a minute short of a day");
    let due = early.first_due_at.unwrap() - early.ended_at;
    assert!((1..=60).contains(&due.num_seconds()), "{due}");

    world.test.pass_time(60).await;
    world.stray(&fresh);
    let last = world.run(APPLY).await;
    assert_eq!((last.removed, last.waiting), (2, 1));
    assert!(world.is_there(&fresh));
    world.assert_all_files_are_there();
}

#[tokio::test]
async fn a_dry_run_removes_nothing_and_a_run_removes_up_to_its_cap() {
    let mut world = World::with_cards(500).await;
    world.settings.removals_max = 3;
    let keys = world.ripe_strays(5).await;
    let left = || keys.iter().filter(|key| world.is_there(key)).count();
    let dry = world.run(Mode::DryRun).await;
    assert_eq!((dry.verdict, dry.removed, dry.removable, left()), (Verdict::DryRun, 0, 5, 5));
    let capped = world.run(APPLY).await;
    assert_eq!((capped.verdict, capped.removed, capped.removable, left()), (Verdict::Removed, 3, 2, 2));
    let rest = world.run(APPLY).await;
    assert_eq!((rest.removed, rest.removable, left()), (2, 0, 0));
}

#[tokio::test]
async fn a_card_made_between_listing_and_removal_keeps_its_object() {
    let mut world = World::with_cards(400).await;
    // Its row is away for a while: as if its ticket were issued only after the walk.
    let late = world.ready.remove(7);
    world
        .test
        .sql(&format!(
            "create table away as select * from cards where id = '{0}'; delete from cards where id = '{0}'",
            late.card
        ))
        .await;
    let stray = world.ripe_strays(1).await.remove(0);
    let mut walked = 0;
    let report = world
        .try_run(APPLY, &mut |progress| {
            walked = progress.versions;
            if walked == 401 && progress.removed == 0 {
                world.sql_meanwhile("insert into cards select * from away; delete from away");
            }
        })
        .await
        .unwrap();
    assert_eq!((report.unknown, report.removed, report.spared), (2, 1, 1), "{report:?}");
    assert_eq!(world.fake.versions(&late.key), [late.version]);
    assert!(!world.is_there(&stray));
    assert_eq!(world.test.count("select count(*) from stray_removals").await, 1);
    assert_eq!(world.run(APPLY).await.verdict, Verdict::Clean);
}

#[tokio::test]
async fn more_than_one_percent_is_an_alarm_and_nothing_goes_unless_an_operator_says_how_many() {
    let world = World::with_cards(200).await;
    let keys = world.ripe_strays(3).await;
    let late = format!("incoming/{}", world.ready[0].card);
    world.stray(&late);
    for mode in [APPLY, Mode::DryRun, Mode::Apply { allow_strays: Some(3) }] {
        let report = world.run(mode).await;
        assert_eq!((report.verdict, report.is_alarm), (Verdict::TooManyStrays, true), "{mode:?}");
        assert_eq!((report.removed, report.purges, report.removable), (0, 0, 3), "{mode:?}");
    }
    assert!(keys.iter().all(|key| world.is_there(key)));
    assert_eq!(world.test.count("select count(*) from outbox").await, 0);
    let allowed = world.run(Mode::Apply { allow_strays: Some(4) }).await;
    assert_eq!((allowed.verdict, allowed.removed, allowed.purges), (Verdict::Removed, 3, 1));
    world.assert_all_files_are_there();
}

#[tokio::test]
async fn another_database_is_an_alarm_and_nothing_goes_until_it_is_accepted() {
    let world = World::with_cards(300).await;
    let key = world.ripe_strays(1).await.remove(0);
    world.stray(&format!("incoming/{}", world.ready[0].card));
    for changed in ["system_identifier", "timeline_id", "database_oid", "cards_oid"] {
        world.test.sql(&format!("update database_identity set {changed} = {changed} + 1")).await;
        let report = world.run(Mode::Apply { allow_strays: Some(1000) }).await;
        assert_eq!((report.verdict, report.is_alarm), (Verdict::DatabaseChanged, true), "{changed}");
        assert_eq!((report.removed, report.purges), (0, 0), "{changed}");
        world.test.sql(&format!("update database_identity set {changed} = {changed} - 1")).await;
    }
    world.test.sql("update database_identity set timeline_id = timeline_id + 1").await;
    world.reconciler().accept_restore().await.unwrap();
    let accepted = world.run(APPLY).await;
    assert_eq!(accepted.purges, 0, "a restored row may call for less than it did: there is a day to look");
    assert_eq!((accepted.removed, accepted.waiting), (0, 1), "its grace begins anew");
    assert!(world.is_there(&key));
    world.test.pass_time(DAY_SECONDS).await;
    let later = world.run(APPLY).await;
    assert_eq!((later.removed, later.purges), (1, 1));
    world.assert_all_files_are_there();
}

#[tokio::test]
async fn what_the_store_does_not_remove_is_counted_and_asked_for_again() {
    let world = World::with_cards(500).await;
    world.ripe_strays(4).await;
    // A refusal of some, and of all while the store answers.
    world.fake.fail(Operation::DeleteVersions, Fault::Partly);
    let partly = world.run(APPLY).await;
    assert_eq!((partly.removed, partly.failed, partly.is_alarm), (2, 2, true), "{partly:?}");
    assert_eq!(world.test.count("select count(*) from stray_removals where removed_at is null").await, 2);
    world.fake.fail(Operation::DeleteVersions, Fault::Refuse);
    let refused = world.run(APPLY).await;
    assert_eq!((refused.removed, refused.failed, refused.removable), (0, 2, 0));
    let done = world.run(APPLY).await;
    assert_eq!((done.removed, done.failed, done.is_alarm), (2, 0, false));
    assert_eq!(world.test.count("select count(*) from stray_removals where removed_at is null").await, 0);
    world.assert_all_files_are_there();
}

#[tokio::test]
async fn an_answer_that_was_lost_is_found_out_by_whoever_goes_on() {
    let world = World::with_cards(300).await;
    let key = world.ripe_strays(1).await.remove(0);
    world.fake.fail(Operation::DeleteVersions, Fault::AfterEffect);
    // The removal happened, and its answer breaks off while the store is away.
    world.fake.fail(Operation::Probe, Fault::Unavailable);
    world.try_run(APPLY, &mut |_| {}).await.unwrap_err();
    assert!(!world.is_there(&key));
    assert_eq!(world.test.count("select count(*) from stray_removals where removed_at is null").await, 1);
    world.fake.clear_calls();
    let report = world.run(APPLY).await;
    assert_eq!((report.removed, report.failed), (1, 0), "removing what is gone is no failure");
    let lists = world.fake.calls().iter().filter(|call| call.operation == Operation::ListVersions).count();
    assert_eq!(lists, 0, "its walk was over");
}

#[tokio::test]
async fn a_card_whose_row_cannot_be_read_loses_nothing() {
    let world = World::with_cards(300).await;
    world
        .test
        .sql(&format!("update cards set derivatives = '[{{}}]' where id = '{}'", world.ready[5].card))
        .await;
    let late = format!("incoming/{}", world.ready[5].card);
    world.stray(&late);
    let report = world.run(APPLY).await;
    assert_eq!((report.kept, report.card_strays, report.missing), (301, 0, 0), "{report:?}");
    world.assert_all_files_are_there();
    assert!(matches!(world.fake.head(&late, None).await, Ok(objects::Head::Found(_))));
}
