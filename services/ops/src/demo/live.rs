//! What is shown while it runs, on stderr: a line a file that moves on a terminal, one plain line at the end elsewhere.

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use cards::StateName;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::table::Outcome;

/// Wide enough for the longest sample's name.
const NAME_COLUMNS: usize = 22;

/// All files' lines.
pub(super) struct Live {
    lines: MultiProgress,
    style: ProgressStyle,
}

/// One file's line.
pub(super) struct Line {
    bar: ProgressBar,
    is_plain: bool,
    name: &'static str,
}

impl Live {
    /// Empty.
    pub(super) fn new() -> anyhow::Result<Self> {
        let style = ProgressStyle::with_template("{spinner} {prefix} {msg}")?;
        Ok(Self { lines: MultiProgress::with_draw_target(ProgressDrawTarget::stderr()), style })
    }

    /// A sentence above the lines.
    pub(super) fn say(&self, text: &str) {
        if self.lines.is_hidden() {
            to_stderr(text);
        } else {
            // A terminal that went away costs only this line.
            let _ = self.lines.println(text);
        }
    }

    /// A line for a file that begins now.
    pub(super) fn line(&self, name: &'static str) -> Line {
        let bar = self.lines.add(ProgressBar::new_spinner().with_style(self.style.clone()));
        bar.set_prefix(padded(name));
        Line { bar, is_plain: self.lines.is_hidden(), name }
    }
}

impl Line {
    /// Bytes on their way.
    pub(super) fn sending(&self, sent: &AtomicU64, total: u64) {
        let sent = sent.load(Ordering::Relaxed);
        self.bar.set_message(format!("sending {} %", sent * 100 / total.max(1)));
        self.bar.tick();
    }

    /// The states so far.
    pub(super) fn travelled(&self, states: &[StateName]) {
        let way: Vec<_> = states.iter().map(|state| state.as_str()).collect();
        self.bar.set_message(way.join(" → "));
        self.bar.tick();
    }

    /// How it ended.
    pub(super) fn finish(&self, outcome: &Outcome) {
        let mark = if outcome.as_expected() { "" } else { "  ✗ not as expected" };
        let journey = format!("{}{mark}", outcome.journey());
        if self.is_plain {
            to_stderr(&format!("{} {journey}", padded(self.name)));
        }
        self.bar.finish_with_message(journey);
    }
}

fn padded(name: &str) -> String {
    format!("{name:NAME_COLUMNS$}")
}

fn to_stderr(text: &str) {
    // Nobody may be reading any more; the demo runs on.
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
