//! README.md and ARCHITECTURE.md say what the code says (STYLE 22, 25): settings, codes, metrics, queues, tests' names.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail their test")]

use std::fs;
use std::path::{Path, PathBuf};

const README: &str = include_str!("../../../README.md");
const ARCHITECTURE: &str = include_str!("../../../ARCHITECTURE.md");

/// What stands between quotes after `mark`.
fn quoted<'a>(text: &'a str, mark: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(mark).skip(1).filter_map(|rest| rest.split('"').next())
}

fn missing<'a>(document: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = 0;
    let missing = names
        .into_iter()
        .inspect(|_| seen += 1)
        .filter(|name| !document.contains(&format!("`{name}`")))
        .collect();
    assert!(seen > 0, "nothing was looked for");
    missing
}

#[test]
fn every_setting_is_in_the_readme() {
    // Keys come in pairs, principals in threes: a row names the first, and the others by what differs.
    let is_told = |name: &&str| {
        !(name.ends_with("_SECRET_KEY")
            || ["ARKIV_S3_SIGNER_PRINCIPAL", "ARKIV_S3_READER_PRINCIPAL"].contains(name))
    };
    let settings = quoted(include_str!("../src/config.rs"), "env = \"").filter(is_told);
    assert_eq!(missing(README, settings), [""; 0]);
}

#[test]
fn every_problem_metric_and_route_code_is_in_the_readme() {
    let codes = cards::ProblemCode::ALL.map(cards::ProblemCode::as_str);
    assert_eq!(missing(README, codes), [""; 0]);
    assert_eq!(missing(README, telemetry::metric::ALL.iter().map(|metric| metric.name)), [""; 0]);
    let table = include_str!("../../api/src/codes.rs");
    let table = table.split("fn row(self)").nth(1).unwrap().split("#[cfg(test)]").next().unwrap();
    // A code is the one literal of each row that is a single word in lower case.
    let codes = table
        .split('"')
        .skip(1)
        .step_by(2)
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
    assert_eq!(missing(README, codes), [""; 0]);
}

#[test]
fn every_state_queue_and_exchange_is_in_the_documents() {
    let states = cards::StateName::ALL.map(cards::StateName::as_str);
    assert_eq!(missing(README, states), [""; 0]);
    assert_eq!(missing(ARCHITECTURE, states), [""; 0]);
    let queues = broker::topology::QUEUES.iter().map(|queue| queue.name);
    let exchanges = broker::topology::EXCHANGES.iter().map(|exchange| exchange.name);
    assert_eq!(missing(ARCHITECTURE, queues.chain(exchanges)), [""; 0]);
}

#[test]
fn every_test_and_file_that_the_documents_name_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut sources = String::new();
    for folder in ["shared", "services"] {
        read_into(&mut sources, &root.join(folder));
    }
    let mut tests = 0;
    for name in README.split('`').chain(ARCHITECTURE.split('`')) {
        let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        // Tests are sentences: nothing else that the documents name is one word of so many parts.
        if name.matches('_').count() >= 3 && name.bytes().all(is_word) && !name.starts_with("arkiv_") {
            assert!(sources.contains(&format!("fn {name}()")), "no test is named {name}");
            tests += 1;
        }
        if ["shared/", "services/", "migrations/", "infra/"].iter().any(|top| name.starts_with(top)) {
            assert!(root.join(name).exists(), "{name} is not there");
        }
    }
    assert!(tests > 50, "only {tests} tests were looked for");
}

fn read_into(sources: &mut String, folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path: PathBuf = entry.unwrap().path();
        if path.is_dir() {
            read_into(sources, &path);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}
