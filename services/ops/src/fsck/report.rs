//! What was found, as tables for people and as JSON for programs.

use std::collections::BTreeMap;
use std::fmt;

use cards::{CardId, VersionId};
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

use super::kind::{Class, KINDS, Kind};

/// Findings of one kind that are kept; what is past them is counted.
pub const FINDINGS_MAX: usize = 1000;

/// Holds a card's id and the longest key with its version on a line each.
const TABLE_COLUMNS: u16 = 132;

/// One thing that is wrong. It was read twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Which line of [`KINDS`].
    #[serde(skip)]
    pub kind: Kind,
    /// Its stable name.
    pub code: &'static str,
    /// The invariant that does not hold; null on a warning.
    pub invariant: Option<&'static str>,
    /// The card, where there is one.
    pub card: Option<CardId>,
    /// The object's key, where it is about one.
    pub key: Option<String>,
    /// The object's version.
    pub version: Option<VersionId>,
    /// What was seen.
    pub detail: String,
    /// What to do about it.
    pub run: String,
}

impl Finding {
    pub(super) fn new(kind: Kind, card: Option<CardId>, detail: String) -> Self {
        let row = kind.row();
        let invariant = match row.class {
            Class::Violation(invariant) => Some(invariant),
            Class::Warning => None,
        };
        let name = card.map_or_else(|| "<card>".to_owned(), |card| card.to_string());
        let run = row.run.replace("{card}", &name);
        Self { kind, code: row.code, invariant, card, key: None, version: None, detail, run }
    }

    pub(super) fn of_version(mut self, key: &str, version: &VersionId) -> Self {
        self.key = Some(key.to_owned());
        self.version = Some(version.clone());
        self
    }
}

/// How much was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// Cards.
    pub cards: u64,
    /// Versions and delete markers in the bucket.
    pub versions: u64,
    /// Object versions that cards point at.
    pub references: u64,
    /// Messages that wait in the outbox.
    pub outbox_rows: u64,
}

/// The whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// What breaks an invariant.
    pub violations: Vec<Finding>,
    /// What does not.
    pub warnings: Vec<Finding>,
    /// How much was looked at.
    pub checked: Checked,
    /// Versions that no card keeps and that an owed purge will remove.
    pub on_its_way: u64,
    /// How many findings of a kind there are beyond the [`FINDINGS_MAX`] that are told.
    pub cut: BTreeMap<&'static str, u64>,
    /// How long it took.
    pub seconds: f64,
}

impl Report {
    pub(super) fn add(&mut self, finding: Finding) {
        let list = if finding.invariant.is_some() { &mut self.violations } else { &mut self.warnings };
        // Only ever a few thousand of each list: counting is cheap beside the call that found it.
        if list.iter().filter(|other| other.kind == finding.kind).count() < FINDINGS_MAX {
            list.push(finding);
        } else {
            *self.cut.entry(finding.code).or_default() += 1;
        }
    }

    /// Whether nothing is wrong. `strict`: warnings count too.
    pub fn is_clean(&self, strict: bool) -> bool {
        self.violations.is_empty() && (!strict || self.warnings.is_empty())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in KINDS {
            let findings: Vec<_> = self
                .violations
                .iter()
                .chain(&self.warnings)
                .filter(|finding| finding.kind == row.kind)
                .collect();
            if findings.is_empty() {
                continue;
            }
            match row.class {
                Class::Violation(invariant) => writeln!(f, "✗ {} ({invariant}): {}", row.code, row.what)?,
                Class::Warning => writeln!(f, "! {} (warning): {}", row.code, row.what)?,
            }
            let run = match findings.as_slice() {
                [only] => only.run.clone(),
                _ => row.run.replace("{card}", "<card>"),
            };
            writeln!(f, "  run: {run}")?;
            writeln!(f, "{}", table(&findings))?;
            if let Some(cut) = self.cut.get(row.code) {
                writeln!(f, "  and {cut} more of this kind, which are only counted")?;
            }
            writeln!(f)?;
        }
        write!(f, "{}", self.summary())
    }
}

fn table(findings: &[&Finding]) -> Table {
    let mut table = Table::new();
    // The terminal is not asked: output to a file looks the same.
    table
        .load_style(presets::UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(TABLE_COLUMNS);
    let has_cards = findings.iter().any(|finding| finding.card.is_some());
    table.set_header(["card", "what was seen"].into_iter().skip(usize::from(!has_cards)));
    for finding in findings {
        let mut lines = Vec::new();
        lines.extend(finding.key.clone());
        lines.extend(finding.version.as_ref().map(|version| format!("version {version}")));
        lines.push(finding.detail.clone());
        let row = [finding.card.map(|card| card.to_string()).unwrap_or_default(), lines.join("\n")];
        table.add_row(row.into_iter().skip(usize::from(!has_cards)));
    }
    table
}

impl Report {
    fn summary(&self) -> String {
        let cut = |violations: bool| -> u64 {
            let is_of = |code: &str| {
                KINDS.iter().any(|row| row.code == code && (row.class != Class::Warning) == violations)
            };
            self.cut.iter().filter(|(code, _)| is_of(code)).map(|(_, count)| count).sum()
        };
        let violations = self.violations.len() as u64 + cut(true);
        let warnings = self.warnings.len() as u64 + cut(false);
        let Checked { cards, versions, references, outbox_rows } = self.checked;
        let mut text = format!(
            "{}, {}. Checked {}, {}, {} and {} in {:.1} s.",
            counted(violations, "violation"),
            counted(warnings, "warning"),
            counted(cards, "card"),
            counted(versions, "object version"),
            counted(references, "reference"),
            counted(outbox_rows, "waiting message"),
            self.seconds,
        );
        if self.on_its_way > 0 {
            let go = if self.on_its_way == 1 { "goes" } else { "go" };
            text = format!("{text} {} {go} with a purge that is owed.", counted(self.on_its_way, "version"));
        }
        text
    }
}

pub(super) fn counted(count: u64, noun: &str) -> String {
    match count {
        0 => format!("no {noun}s"),
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn finding(kind: Kind) -> Finding {
        Finding::new(kind, None, "seen".to_owned())
    }

    #[test]
    fn a_thousand_and_one_of_a_kind_are_a_thousand_and_a_count() {
        let mut report = Report::default();
        for _ in 0..=FINDINGS_MAX {
            report.add(finding(Kind::StrayUnknown));
        }
        report.add(finding(Kind::Stray));
        assert_eq!(report.warnings.len(), FINDINGS_MAX + 1);
        assert_eq!(report.cut, BTreeMap::from([("stray_unknown", 1)]));
        let text = report.to_string();
        assert!(text.contains("and 1 more of this kind"), "{text}");
        assert!(text.contains("no violations, 1002 warnings."), "{text}");
        assert!(report.is_clean(false) && !report.is_clean(true));
    }

    #[test]
    fn the_json_has_the_shape_that_was_promised() {
        let mut report = Report::default();
        let card: CardId = "0192f3c4-7a11-7c3e-9d2f-5b6a7c8d9e01".parse().unwrap();
        let version = VersionId::parse("v1").unwrap();
        report.add(
            Finding::new(Kind::MissingObject, Some(card), "gone".to_owned()).of_version("files/x", &version),
        );
        report.add(finding(Kind::OutboxLate));
        let value = json!(report);
        let keys: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
        let mut expected = ["violations", "warnings", "checked", "on_its_way", "cut", "seconds"];
        expected.sort_unstable();
        assert_eq!(keys, expected);
        let violation = &value["violations"][0];
        assert!(violation["run"].as_str().unwrap().contains(&card.to_string()));
        assert_eq!(
            json!({ "code": violation["code"], "invariant": violation["invariant"], "card": violation["card"],
                    "key": violation["key"], "version": violation["version"], "detail": violation["detail"] }),
            json!({ "code": "missing_object", "invariant": "INV-3", "card": card, "key": "files/x",
                    "version": "v1", "detail": "gone" })
        );
        assert_eq!(value["warnings"][0]["invariant"], json!(null));
        assert_eq!(value["checked"], json!({ "cards": 0, "versions": 0, "references": 0, "outbox_rows": 0 }));
    }
}
