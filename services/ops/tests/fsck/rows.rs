//! What the database says by itself: what is forgotten, late, stuck or unreadable (INV-2).

use cards::Card;
use testkit::fixture;

use crate::world::{World, told};

impl World {
    /// Changes one card's row by hand.
    async fn set(&self, card: &Card, change: &str) {
        self.test.sql(&format!("update cards set {change} where id = '{}'", card.id)).await;
    }
}

#[tokio::test]
async fn each_kind_of_neglect_is_told_by_its_own_name() {
    let world = World::new().await;
    world.every_state().await;
    world.test.sql("alter table cards drop constraint cards_unfinished_has_a_next_look").await;
    let ready = world.settled(b"original").await;
    // What is wrong with it, told as a violation or a warning, and the row's change that makes it so.
    let cases = [
        ("no_next_look", Some("INV-2"), world.pending().await, "next_check_at = null"),
        ("overdue_look", Some("INV-2"), world.pending().await, "next_check_at = now() - interval '61 minutes'"),
        ("unreadable_row", Some("INV-2"), world.settled(b"facts").await, "facts = '{}'"),
        ("late_look", None, world.pending().await, "next_check_at = now() - interval '11 minutes'"),
        (
            "parked",
            None,
            world.queued(b"parked").await,
            "parked_at = now() - interval '3 hours', parked_queue = 'card.decode', parked_reason = 'store: gone',
             updated_at = now() - interval '2 hours'",
        ),
        (
            "stuck_pending",
            None,
            world.pending().await,
            "ticket_issued_at = now() - interval '2 hours', ticket_ends_at = now() - interval '1 hour'",
        ),
        ("stuck_queued", None, world.queued(b"stuck").await, "updated_at = now() - interval '61 minutes'"),
        (
            "stuck_processing",
            None,
            world.decoded(b"dead").await.0,
            "lease_until = now() - interval '11 minutes'",
        ),
        ("long_lease", None, world.decoded(b"long").await.0, "updated_at = now() - interval '7 minutes'"),
        (
            "stuck_purge",
            None,
            world.settled(b"owes").await,
            "purge_at = now() - interval '61 minutes', next_check_at = now()",
        ),
    ];
    let before = world.fsck().await;
    assert!(before.is_clean(true), "{before:?}");
    for (_, _, card, change) in &cases {
        world.set(card, change).await;
    }
    let alias = world.accepted(b"original").await;
    world
        .test
        .sql(&format!(
            "update cards
             set state = 'deleting', object_version = null, ready_at = null, next_check_at = now(),
                 delete_after = now() + interval '1 hour', delete_requested_at = now()
             where id = '{}';
             delete from receipts",
            ready.id
        ))
        .await;
    let report = world.fsck().await;
    let unproved = world.test.texts("select id::text from cards where state = 'deleted'").await;
    let mut expected: Vec<_> =
        cases.iter().map(|(code, invariant, card, _)| (*code, *invariant, card.id.to_string())).collect();
    expected.push(("alias_unserved", Some("INV-1"), alias.id.to_string()));
    expected.push(("deleted_unproved", Some("INV-2"), unproved[0].clone()));
    expected.sort();
    let findings = || report.violations.iter().chain(&report.warnings);
    let mut found: Vec<_> = findings()
        .map(|finding| (finding.code, finding.invariant, finding.card.unwrap().to_string()))
        .collect();
    found.sort();
    assert_eq!(found, expected);
    for finding in findings() {
        assert!(!finding.run.contains("{card}") && !finding.detail.is_empty(), "{finding:?}");
    }
    // People read the same, with what to run.
    let text = report.to_string();
    for (code, _, card) in expected {
        assert!(text.contains(code) && text.contains(&card), "{code}: {text}");
    }
    assert!(text.contains("  run: is a janitor running? arkiv janitor"), "{text}");
}

#[tokio::test]
async fn a_message_that_does_not_leave_is_told_by_its_queue() {
    let world = World::new().await;
    let (decode, purge) = (world.queued(b"one").await, world.pending().await);
    fixture::expired(&world.test, &world.db, &world.api, world.owner).await;
    world.looked_after().await;
    assert!(world.fsck().await.is_clean(true));
    world
        .test
        .sql(
            "update outbox set available_at = now() - interval '61 minutes' where queue = 'card.decode';
             update outbox set available_at = now() - interval '11 minutes', publish_attempts = 5,
                 last_error = 'returned: 312 NO_ROUTE' where queue = 'card.purge'",
        )
        .await;
    let report = world.fsck().await;
    assert_eq!(told(&report.violations), [("outbox_overdue", None, None)]);
    assert_eq!(told(&report.warnings), [("outbox_late", None, None), ("outbox_returned", None, None)]);
    assert!(report.violations[0].detail.starts_with("card.decode: 1 message, the oldest for 1 h 1 min"));
    assert!(report.warnings[1].detail.contains("312 NO_ROUTE"), "{report:?}");
    // One card's own messages only.
    let store = std::sync::Arc::clone(&world.fake);
    let own = world.try_fsck(store.clone(), Some(decode.id)).await.unwrap();
    assert_eq!(told(&own.violations), [("outbox_overdue", Some(decode.id), None)]);
    assert!(world.try_fsck(store, Some(purge.id)).await.unwrap().is_clean(true));
}
