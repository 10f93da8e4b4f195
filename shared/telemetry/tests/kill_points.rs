//! A process that is told to die at a kill point does, there and at once.
#![cfg(feature = "kill-points")]
#![expect(clippy::unwrap_used, reason = "helpers of tests may unwrap as tests do")]

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

const SIGABRT: i32 = 6;

/// Told nothing, a process passes alive. [`run`] starts this one test in a process of its own, and tells it more.
#[test]
fn passes_two_points_three_times() {
    for round in 1..=3 {
        telemetry::kill::point("confirm.after_head");
        println!("round {round}");
        telemetry::kill::point("confirm.after_commit");
    }
}

fn run(kill_at: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "passes_two_points_three_times"])
        .env("ARKIV_KILL_AT", kill_at)
        .output()
        .unwrap()
}

fn check(kill_at: &str, rounds: usize, last_words: &str) {
    let output = run(kill_at);
    assert_eq!(output.status.signal(), Some(SIGABRT), "{kill_at}: {output:?}");
    assert!(String::from_utf8(output.stderr).unwrap().contains(last_words), "{kill_at}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!(stdout.matches("round ").count(), rounds, "{kill_at}: {stdout}");
}

#[test]
fn it_dies_at_the_point_and_the_time_it_was_told() {
    check("confirm.after_head", 0, "kill point confirm.after_head");
    check("confirm.after_commit", 1, "kill point confirm.after_commit");
    check("confirm.after_head:3", 2, "kill point confirm.after_head");
}

#[test]
fn a_wish_that_names_no_point_is_not_ignored() {
    check("confirm.after_haed", 0, "ARKIV_KILL_AT=confirm.after_haed names no kill point");
}

#[test]
fn it_lives_where_it_was_told_nothing_or_of_points_it_never_comes_to() {
    for kill_at in ["", "relay.after_claim", "confirm.after_head:4"] {
        let output = run(kill_at);
        assert!(output.status.success(), "{kill_at}: {output:?}");
    }
}
