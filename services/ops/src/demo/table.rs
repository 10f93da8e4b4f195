//! How each file ended, as a table for people and as JSON for programs.

use cards::{CardId, ProblemCode, StateName};
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

/// What became of one sample.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) name: &'static str,
    pub(super) content_type: &'static str,
    pub(super) size_bytes: u64,
    pub(super) expected: StateName,
    pub(super) expected_reason: Option<ProblemCode>,
    pub(super) expected_thumb_px: Option<(u32, u32)>,
    /// The card, once there was one.
    pub(super) id: Option<CardId>,
    /// The last state seen.
    pub(super) state: Option<StateName>,
    /// The problem's code, where the file is not `ready`.
    pub(super) reason: Option<String>,
    /// Every state it went through, from its timeline.
    pub(super) states: Vec<StateName>,
    /// From asking for the ticket until it was seen settled.
    pub(super) ms: u128,
    /// The thumbnail's sides.
    pub(super) thumb_px: Option<(u32, u32)>,
    /// What went wrong on the way, in words.
    pub(super) error: Option<String>,
}

impl Outcome {
    /// Whether it ended as announced: state, reason and thumbnail.
    pub(super) fn as_expected(&self) -> bool {
        self.error.is_none()
            && self.state == Some(self.expected)
            && self.reason.as_deref() == self.expected_reason.map(ProblemCode::as_str)
            && self.thumb_px == self.expected_thumb_px
    }

    /// One line: the way it went, and how long it took.
    pub(super) fn journey(&self) -> String {
        let mut line = self.states.iter().map(|state| state.as_str()).collect::<Vec<_>>().join(" → ");
        if let Some(reason) = &self.reason {
            line = format!("{line} ({reason})");
        }
        if let Some(error) = &self.error {
            line = format!("{line}  {error}");
        }
        format!("{line}  {}.{} s", self.ms / 1000, self.ms % 1000 / 100)
    }
}

/// The JSON of `--json`. `expected` and `state` are state names, `reason` is null or a problem's code.
pub(super) fn json(outcomes: &[Outcome]) -> Value {
    let files = outcomes.iter().map(|outcome| {
        json!({
            "name": outcome.name,
            "expected": outcome.expected,
            "state": outcome.state,
            "reason": outcome.reason,
            "ms": u64::try_from(outcome.ms).unwrap_or(u64::MAX),
            "as_expected": outcome.as_expected(),
            "id": outcome.id,
            "states": outcome.states,
            "error": outcome.error,
        })
    });
    json!({ "files": files.collect::<Vec<_>>() })
}

/// The table.
pub(super) fn render(outcomes: &[Outcome]) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_FULL_CONDENSED)
        .set_header(["file", "type", "size", "expected", "state", "reason", "ms", "thumb", ""]);
    for outcome in outcomes {
        let expected = match outcome.expected_reason {
            Some(reason) => format!("{}, {reason}", outcome.expected),
            None => outcome.expected.to_string(),
        };
        table.add_row([
            outcome.name.to_owned(),
            outcome.content_type.to_owned(),
            size(outcome.size_bytes),
            expected,
            outcome.state.map_or("none", StateName::as_str).to_owned(),
            outcome.reason.clone().unwrap_or_default(),
            outcome.ms.to_string(),
            outcome.thumb_px.map(|(width, height)| format!("{width}x{height}")).unwrap_or_default(),
            if outcome.as_expected() { "✓" } else { "✗" }.to_owned(),
        ]);
    }
    for column in [2, 6] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{} kB", bytes.div_ceil(1000)),
        _ => format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn ready() -> Outcome {
        Outcome {
            name: "a.png",
            content_type: "image/png",
            size_bytes: 1_234,
            expected: StateName::Ready,
            expected_reason: None,
            expected_thumb_px: Some((256, 192)),
            id: Some(cards::Ids.card()),
            state: Some(StateName::Ready),
            reason: None,
            states: vec![StateName::Pending, StateName::Queued, StateName::Processing, StateName::Ready],
            ms: 1834,
            thumb_px: Some((256, 192)),
            error: None,
        }
    }

    fn rejected(reason: &str) -> Outcome {
        Outcome {
            expected: StateName::Rejected,
            expected_reason: Some(ProblemCode::Truncated),
            expected_thumb_px: None,
            state: Some(StateName::Rejected),
            reason: Some(reason.to_owned()),
            thumb_px: None,
            ..ready()
        }
    }

    #[test]
    fn the_json_has_the_shape_the_readers_were_promised() {
        let value = json(&[ready(), rejected("truncated")]);
        let keys: Vec<_> = value.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["files"]);
        let [first, second] = value["files"].as_array().unwrap().as_slice() else { panic!("{value}") };
        assert_eq!(first["name"], "a.png");
        assert_eq!((&first["expected"], &first["state"]), (&json!("ready"), &json!("ready")));
        assert_eq!((&first["reason"], &first["ms"]), (&Value::Null, &json!(1834)));
        assert_eq!(first["states"], json!(["pending", "queued", "processing", "ready"]));
        assert_eq!((&second["state"], &second["reason"]), (&json!("rejected"), &json!("truncated")));
    }

    #[test]
    fn only_state_reason_and_thumbnail_together_are_as_expected() {
        assert!(ready().as_expected());
        assert!(rejected("truncated").as_expected());
        assert!(!rejected("corrupt").as_expected());
        assert!(!Outcome { state: Some(StateName::Processing), ..ready() }.as_expected());
        assert!(!Outcome { thumb_px: None, ..ready() }.as_expected());
        assert!(!Outcome { thumb_px: Some((192, 256)), ..ready() }.as_expected());
        assert!(!Outcome { error: Some("late".to_owned()), ..ready() }.as_expected());
        assert!(!Outcome { state: None, id: None, ..ready() }.as_expected());
    }

    #[test]
    fn a_journey_and_a_table_say_it_in_a_line() {
        assert_eq!(ready().journey(), "pending → queued → processing → ready  1.8 s");
        assert!(rejected("truncated").journey().contains("(truncated)"));
        let table = render(&[ready(), Outcome { thumb_px: None, ..ready() }]);
        assert!(table.contains("2 kB") && table.contains("256x192"), "{table}");
        assert!(table.contains('✓') && table.contains('✗'), "{table}");
    }
}
