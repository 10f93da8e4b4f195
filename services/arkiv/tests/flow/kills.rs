//! Processes that die at every named point: the file is ready all the same, once.

use std::collections::BTreeSet;

use crate::stack::{Process, Stack};

/// The roles a file needs, and the kill points of each.
const ROLES: [&str; 4] = ["confirmer", "relay", "decoder", "janitor"];

fn role_of(point: &str) -> &'static str {
    match point.split('.').next() {
        Some("confirm") => "confirmer",
        Some("relay") => "relay",
        Some("decode") => "decoder",
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
        let _again = stack.start(victim);
        // A lease or a claim that was left behind ends by time alone.
        let seconds = if victim == "decoder" || victim == "janitor" { 61 } else { 0 };
        stack.wait(&id, "ready", seconds).await;
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
        stack.wait(id, "ready", 20).await;
    }
    stack.check().await;
}
