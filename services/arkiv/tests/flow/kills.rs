//! Processes that die at every named point: the file is ready all the same, once.

use std::collections::BTreeSet;

use reqwest::Method;
use testkit::until;

use crate::stack::{BOUND, Process, Stack};

/// The roles a file needs, and the kill points of each.
const ROLES: [&str; 5] = ["confirmer", "relay", "decoder", "deleter", "janitor"];

/// The role that passes a kill point.
pub(crate) fn role_of(point: &str) -> &'static str {
    match point.split('.').next() {
        Some("confirm") => "confirmer",
        Some("relay") => "relay",
        Some("decode") => "decoder",
        Some("purge") => "deleter",
        Some("janitor") => "janitor",
        other => panic!("no role has kill points named {other:?}"),
    }
}

async fn survive(points: &[&'static str]) {
    let stack = Stack::new().await;
    let _api = stack.start("api");
    stack.ready().await;
    for point in points {
        let victim = role_of(point);
        // The janitor is only there where it dies: elsewhere the file must get along without it. Where it dies there is no
        // confirmer, so that only the janitor can find the upload.
        let absent = if victim == "janitor" { "confirmer" } else { "janitor" };
        let _others: Vec<Process> = ROLES
            .into_iter()
            .filter(|role| *role != victim && *role != absent)
            .map(|role| stack.start(role))
            .collect();
        let mut doomed = stack.start_doomed(victim, point);
        let id = stack.upload(&format!("dies at {point}")).await;
        if victim == "janitor" {
            stack.db.pass_time(61).await;
        }
        doomed.died().await;
        assert_ne!(stack.state(&id).await, "rejected", "{point}");
        // A lease or a claim that was left behind ends by time alone.
        if victim == "decoder" || victim == "janitor" {
            stack.pass_wait_of(&id).await;
        }
        let _again = stack.start(victim);
        stack.wait(&id, "ready", 0).await;
        stack.drained().await;
        stack.check().await;
        if victim == "janitor" {
            broker::testing::purge(&stack.broker.settings(), "card.confirm").await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_confirmer_that_dies_at_any_point_loses_no_upload() {
    survive(&["confirm.after_head", "confirm.before_commit", "confirm.after_commit"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_dies_at_any_point_loses_no_message() {
    survive(&["relay.after_claim", "relay.after_publish", "relay.after_commit"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decoder_that_dies_before_it_stores_anything_loses_no_file() {
    survive(&["decode.after_lease", "decode.after_get", "decode.after_derivatives"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decoder_that_dies_between_copy_and_commit_leaves_no_broken_reference() {
    survive(&["decode.after_copy", "decode.before_commit", "decode.after_commit"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_janitor_that_dies_at_any_point_forgets_nothing() {
    survive(&["janitor.after_claim", "janitor.after_list"]).await;
}

/// At each point once while a source is removed, and once while a whole file is.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleter_that_dies_at_any_point_ends_with_exactly_what_the_card_keeps() {
    let stack = Stack::new().await;
    let _roles: Vec<Process> = ["api", "confirmer", "relay", "decoder"].map(|role| stack.start(role)).into();
    stack.ready().await;
    for point in [
        "purge.after_claim",
        "purge.after_list",
        "purge.after_record",
        "purge.after_remove",
        "purge.before_commit",
        "purge.after_commit",
    ] {
        let id = stack.upload(&format!("its deleter dies at {point}")).await;
        stack.wait(&id, "ready", 0).await;
        for end in ["ready", "deleted"] {
            if end == "deleted" {
                let (status, answer) = stack.call(Method::DELETE, &format!("/v1/files/{id}"), None).await;
                assert_eq!(status, 202, "{answer}");
                stack.db.pass_time(961).await;
            }
            let mut doomed = stack.start_doomed("deleter", point);
            doomed.died().await;
            assert_ne!(stack.state(&id).await, "rejected", "{point}");
            // The claim it left behind ends by time alone.
            let again = stack.start("deleter");
            let kept = usize::from(end == "ready");
            let own =
                async || stack.keys().await.into_iter().filter(|key| key.contains(&id)).collect::<Vec<_>>();
            until("the purge to be over", BOUND, || async {
                stack.db.pass_time(151).await;
                let owed = format!(
                    "select count(*) from cards where id = '{id}' and state = '{end}' and purge_until is null
                     and (purge_at is null or purge_at > now())"
                );
                let under_way = "select count(*) from outbox where available_at <= now()";
                let is_over = stack.db.count(&owed).await == 1 && stack.db.count(under_way).await == 0;
                // The message may be in the queue still: who died may have died over another card's.
                (is_over && own().await.len() == kept).then_some(())
            })
            .await;
            drop(again);
            stack.check().await;
            let keys = own().await;
            assert_eq!(keys.len(), kept, "{point}: {keys:?}");
        }
    }
}

#[test]
fn every_kill_point_is_died_at() {
    let here = include_str!("kills.rs");
    let missing: BTreeSet<&str> = telemetry::kill::POINTS
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| !here.contains(&format!("\"{name}\"")))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Everything is killed at once, again and again, under load.
#[tokio::test(flavor = "multi_thread")]
async fn everything_killed_under_load_loses_nothing() {
    let stack = Stack::new().await;
    let _api = stack.start("api");
    stack.ready().await;
    let mut ids = Vec::new();
    for round in 0..3 {
        let mut roles: Vec<Process> = ROLES.map(|role| stack.start(role)).into();
        for n in 0..8 {
            ids.push(stack.upload(&format!("round {round}, file {n}")).await);
        }
        for role in &mut roles {
            role.kill();
        }
    }
    let _roles: Vec<Process> = ROLES.map(|role| stack.start(role)).into();
    for id in &ids {
        stack.wait(id, "ready", 10).await;
    }
    stack.check().await;
}
