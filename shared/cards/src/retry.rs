//! How a fault of one object is retried (R-C7) and how an unknown key is (R-B11). One function decides "exhausted".

use std::time::Duration;

/// What comes after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Try again after this long.
    After(Duration),
    /// That was the last attempt.
    Exhausted,
}

/// A schedule of waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// A fault of one object: 8 attempts, 5 s doubling to 10 min (R-C7).
    Fault,
    /// An event for a key no card has: 5 retries over more than 60 s (R-B11).
    UnknownKey,
}

const FAULT_ATTEMPTS_MAX: u32 = 8;
const FAULT_DELAY_FIRST: Duration = Duration::from_secs(5);
const FAULT_DELAY_MAX: Duration = Duration::from_mins(10);
const UNKNOWN_KEY_DELAYS: [Duration; 5] = [
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(20),
    Duration::from_secs(30),
];

impl Schedule {
    /// What follows when attempt number `attempt` (1 for the first) has failed.
    pub fn after(self, attempt: u32) -> Next {
        let attempt = attempt.max(1);
        match self {
            Self::Fault if attempt >= FAULT_ATTEMPTS_MAX => Next::Exhausted,
            Self::Fault => Next::After((FAULT_DELAY_FIRST * (1 << (attempt - 1))).min(FAULT_DELAY_MAX)),
            Self::UnknownKey => UNKNOWN_KEY_DELAYS
                .get(attempt as usize - 1)
                .map_or(Next::Exhausted, |delay| Next::After(*delay)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(schedule: Schedule) -> Vec<u64> {
        (1..)
            .map_while(|attempt| match schedule.after(attempt) {
                Next::After(delay) => Some(delay.as_secs()),
                Next::Exhausted => None,
            })
            .collect()
    }

    #[test]
    fn a_fault_is_tried_eight_times_five_seconds_doubling_to_ten_minutes() {
        assert_eq!(delays(Schedule::Fault), [5, 10, 20, 40, 80, 160, 320]);
        assert_eq!(Schedule::Fault.after(u32::MAX), Next::Exhausted);
    }

    #[test]
    fn an_unknown_key_is_tried_five_times_more_over_more_than_a_minute() {
        let delays = delays(Schedule::UnknownKey);
        assert_eq!(delays.len(), 5);
        assert!(delays.iter().sum::<u64>() > 60);
    }
}
