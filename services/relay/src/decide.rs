//! What becomes of each row, and when the relay looks again. Pure.

use std::time::Duration;

use broker::Published;
use chrono::TimeDelta;
use store::outbox::Row;

use crate::{Batch, RelayError};

/// What becomes of a claimed batch.
#[derive(Debug, PartialEq)]
pub(crate) struct Settled {
    /// Rows the broker has: deleted.
    pub(crate) confirmed: Vec<i64>,
    /// Rows it has not: due again after this long, with what it said.
    pub(crate) back: Vec<(i64, TimeDelta, String)>,
}

/// First wait of a returned or refused row; doubles to [`BACK_SECONDS_MAX`].
const BACK_SECONDS_FIRST: i64 = 1;
const BACK_SECONDS_MAX: i64 = 60;

/// Judges each row by its own confirmation: one that came back harms no other.
pub(crate) fn settle(rows: &[Row], published: &[Published]) -> Settled {
    let mut settled = Settled { confirmed: Vec::new(), back: Vec::new() };
    for (row, published) in rows.iter().zip(published) {
        let error = match published {
            Published::Confirmed => {
                settled.confirmed.push(row.id);
                continue;
            }
            Published::Returned { code, text } => {
                format!(
                    "returned: {code} {text}; no queue is bound to {}: run arkiv setup",
                    row.message.queue
                )
            }
            Published::Refused => format!("refused: {} is full, or its disk is", row.message.queue),
        };
        let seconds = (BACK_SECONDS_FIRST << row.publish_attempts.min(6)).min(BACK_SECONDS_MAX);
        settled.back.push((row.id, TimeDelta::seconds(seconds), error));
    }
    settled
}

/// The label on the metrics page.
pub(crate) fn word(published: &Published) -> &'static str {
    match published {
        Published::Confirmed => "confirmed",
        Published::Returned { .. } => "returned",
        Published::Refused => "refused",
    }
}

const POLL: Duration = Duration::from_millis(10);
const POLL_IDLE: Duration = Duration::from_millis(50);
const POLL_LONG_IDLE: Duration = Duration::from_millis(200);
const FAILED_FIRST: Duration = Duration::from_millis(100);
const FAILED_MAX: Duration = Duration::from_secs(5);
/// Empty polls until the relay slows down: about 30 s, then about 5 min.
const EMPTY_UNTIL_IDLE: u32 = 3_000;
const EMPTY_UNTIL_LONG_IDLE: u32 = 9_000;

/// How long to wait before the next batch. No NOTIFY: its commit lock would serialize every writer (FACTS 4.2).
#[derive(Debug, Default)]
pub(crate) struct Pace {
    empty: u32,
    failed: u32,
}

impl Pace {
    pub(crate) fn after(&mut self, batch: Result<Batch, RelayError>) -> Duration {
        match batch {
            Ok(Batch::Full) => {
                *self = Self::default();
                Duration::ZERO
            }
            Ok(Batch::Partial) => {
                *self = Self::default();
                POLL
            }
            Ok(Batch::Empty) => {
                self.failed = 0;
                self.empty = self.empty.saturating_add(1);
                match self.empty {
                    0..EMPTY_UNTIL_IDLE => POLL,
                    EMPTY_UNTIL_IDLE..EMPTY_UNTIL_LONG_IDLE => POLL_IDLE,
                    EMPTY_UNTIL_LONG_IDLE.. => POLL_LONG_IDLE,
                }
            }
            Err(error) => {
                error.log(self.failed == 0);
                self.empty = 0;
                self.failed = self.failed.saturating_add(1);
                (FAILED_FIRST * (1 << self.failed.min(6))).min(FAILED_MAX)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cards::Ids;
    use events::work::{Outgoing, Queue};

    fn row(id: i64, publish_attempts: u32) -> Row {
        let message = Outgoing {
            queue: Queue::Decode,
            message_id: Ids.message(),
            attempt: 1,
            traceparent: None,
            body: Vec::new(),
        };
        Row { id, message, publish_attempts }
    }

    #[test]
    fn a_returned_row_goes_back_and_harms_no_other() {
        let rows = [row(1, 0), row(2, 3), row(3, 0)];
        let published = [
            Published::Confirmed,
            Published::Returned { code: 312, text: "NO_ROUTE".to_owned() },
            Published::Confirmed,
        ];
        let settled = settle(&rows, &published);
        assert_eq!(settled.confirmed, [1, 3]);
        assert_eq!(settled.back.len(), 1);
        assert_eq!((settled.back[0].0, settled.back[0].1), (2, TimeDelta::seconds(8)));
    }

    #[test]
    fn the_wait_of_a_row_that_keeps_coming_back_has_a_ceiling() {
        let settled = settle(&[row(1, u32::MAX)], &[Published::Refused]);
        assert_eq!(settled.back[0].1, TimeDelta::seconds(BACK_SECONDS_MAX));
    }

    #[test]
    fn a_full_batch_is_followed_at_once_and_idleness_slows_the_polls() {
        let mut pace = Pace::default();
        assert_eq!(pace.after(Ok(Batch::Full)), Duration::ZERO);
        assert_eq!(pace.after(Ok(Batch::Empty)), POLL);
        let last = (0..EMPTY_UNTIL_LONG_IDLE).map(|_| pace.after(Ok(Batch::Empty))).last();
        assert_eq!(last, Some(POLL_LONG_IDLE));
        assert_eq!(pace.after(Ok(Batch::Partial)), POLL);
    }
}
