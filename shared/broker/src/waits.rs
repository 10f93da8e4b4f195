//! How long to wait before trying again: exponential with jitter, for ever. The only user of the `backoff` crate, which
//! is unmaintained (RUSTSEC-2025-0012) but stays for now: replacing it touches this file alone.

use std::time::Duration;

use backoff::backoff::Backoff as _;
use backoff::{ExponentialBackoff, ExponentialBackoffBuilder};

/// Short enough that a restarted broker is noticed at once.
const FIRST: Duration = Duration::from_millis(200);
/// Long enough that a fleet of workers does not hammer a broker that is coming up.
const LONGEST: Duration = Duration::from_secs(15);

/// A row of waits that grows until [`Waits::reset`].
#[derive(Debug)]
pub(crate) struct Waits(ExponentialBackoff);

impl Waits {
    pub(crate) fn new() -> Self {
        Self(
            ExponentialBackoffBuilder::new()
                .with_initial_interval(FIRST)
                .with_max_interval(LONGEST)
                .with_multiplier(2.0)
                .with_max_elapsed_time(None)
                .build(),
        )
    }

    /// The next wait.
    pub(crate) fn next(&mut self) -> Duration {
        // None would mean that an elapsed-time limit was reached, and there is none.
        self.0.next_backoff().unwrap_or(LONGEST)
    }

    /// Things went well: the next wait is a short one.
    pub(crate) fn reset(&mut self) {
        self.0.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_bound_never_end_and_start_anew() {
        let mut waits = Waits::new();
        assert!(waits.next() <= FIRST * 2);
        let row: Vec<_> = (0..100).map(|_| waits.next()).collect();
        assert!(row.iter().all(|wait| *wait <= LONGEST * 3 / 2), "{row:?}");
        assert!(row[20..].iter().all(|wait| *wait >= LONGEST / 3), "{row:?}");
        waits.reset();
        assert!(waits.next() <= FIRST * 2);
    }
}
