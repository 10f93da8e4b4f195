//! What is shown while it runs, on stderr: a bar on a terminal, a line every few seconds elsewhere, or nothing.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::Instant;

use super::Progress;

/// Between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// How far it is, for people.
#[derive(Debug)]
pub struct Live(Way);

#[derive(Debug)]
enum Way {
    Bar(ProgressBar),
    Lines { next: Instant },
    Silent,
}

impl Live {
    /// For a run that writes JSON (then only a terminal is told) or tables.
    pub fn new(json: bool) -> anyhow::Result<Self> {
        if std::io::stderr().is_terminal() {
            let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {elapsed}  {msg}")?;
            let target = ProgressDrawTarget::stderr();
            let bar = ProgressBar::with_draw_target(Some(1000), target).with_style(style);
            return Ok(Self(Way::Bar(bar)));
        }
        Ok(Self(if json { Way::Silent } else { Way::Lines { next: Instant::now() + LINE_EVERY } }))
    }

    /// It came this far.
    pub fn show(&mut self, progress: &Progress) {
        match &mut self.0 {
            Way::Bar(bar) => {
                bar.set_message(sentence(progress));
                bar.set_position(progress.permille);
            }
            Way::Lines { next } => {
                if Instant::now() >= *next {
                    let percent = progress.permille / 10;
                    // Nobody may be reading any more; the check runs on.
                    let _ = writeln!(std::io::stderr().lock(), "{percent:>3} %  {}", sentence(progress));
                    *next = Instant::now() + LINE_EVERY;
                }
            }
            Way::Silent => {}
        }
    }

    /// Takes the bar away, so that the report stands alone.
    pub fn end(self) {
        if let Way::Bar(bar) = self.0 {
            bar.finish_and_clear();
        }
    }
}

fn sentence(progress: &Progress) -> String {
    format!(
        "{}: {} versions, {} references, {} cards; {} found, {} to read again",
        progress.doing,
        progress.checked.versions,
        progress.checked.references,
        progress.checked.cards,
        progress.findings,
        progress.suspects
    )
}
