//! Every span of time the protocols rest on, in one place.
//!
//! The model (DESIGN "Nothing is forgotten") holds with exactly these rules: what was uploaded is in time until ticket
//! end + 5 min ([`IN_TIME_AFTER_END`]), and what must be certain about it (expiry, quota) needs a listing *begun* a
//! minute later ([`SETTLED_AFTER_END`]), a minute being what clocks may differ (R-B7).

use chrono::TimeDelta;

use crate::Timestamp;

/// How long a ticket lives unless set otherwise (R-A5).
pub const TICKET_LIFE: TimeDelta = TimeDelta::minutes(10);
/// Until how long after its creation a card's ticket may be renewed (R-A5).
pub const RENEWAL_WINDOW: TimeDelta = TimeDelta::hours(24);
/// A version is in time if the store's Last-Modified is at most this long after ticket end (R-B7).
pub const IN_TIME_AFTER_END: TimeDelta = TimeDelta::minutes(5);
/// A listing that proves absence begins at least this long after ticket end (R-B7, R-E4).
pub const SETTLED_AFTER_END: TimeDelta = TimeDelta::minutes(6);
/// The first look at a pending card, after its ticket was issued (R-B9).
pub const FIRST_LOOK: TimeDelta = TimeDelta::seconds(60);
/// How long a lease lasts before it must have been renewed (R-C1).
pub const LEASE_LIFE: TimeDelta = TimeDelta::seconds(60);
/// How often a lease is renewed (R-C1).
pub const LEASE_RENEWAL: TimeDelta = TimeDelta::seconds(20);
/// The longest one job may take, renewals or not (R-C1).
pub const JOB_LIFE: TimeDelta = TimeDelta::minutes(5);
/// How long a `queued` card waits before its message counts as lost (R-H1).
pub const QUEUED_TOO_LONG: TimeDelta = TimeDelta::minutes(2);
/// How far past its lease a `processing` card is looked at (R-H1).
pub const DEAD_LEASE_GRACE: TimeDelta = TimeDelta::seconds(5);
/// For how long a card that the timer claimed is nobody else's: a janitor that dies leaves it due again after this.
pub const CLAIM_LIFE: TimeDelta = TimeDelta::seconds(60);
/// How often a parked card is looked at, although nothing is re-enqueued (R-H1).
pub const PARKED_LOOK: TimeDelta = TimeDelta::hours(1);
/// Shortest wait between DELETE and removal (R-E1).
pub const DELETE_WAIT: TimeDelta = TimeDelta::minutes(2);

/// The moment from which a listing proves what the store holds under a ticket's key.
pub fn settled_at(ticket_ends_at: Timestamp) -> Timestamp {
    ticket_ends_at + SETTLED_AFTER_END
}

/// Whether a version with this Last-Modified was uploaded in time (R-B7).
pub fn in_time(last_modified: Timestamp, ticket_ends_at: Timestamp) -> bool {
    last_modified <= ticket_ends_at + IN_TIME_AFTER_END
}

/// When a pending card is looked at next: 60 s after the ticket, then at doubling intervals, last at
/// [`settled_at`] (R-B9). `looks` counts the looks already taken, `now` is when the last one was.
pub fn next_look(now: Timestamp, ticket_ends_at: Timestamp, looks: u32) -> Timestamp {
    let last = settled_at(ticket_ends_at);
    // 2^10 minutes is longer than any ticket can still run: the shift can't overflow and the last look always wins.
    let interval = FIRST_LOOK * (1_i32 << looks.min(10));
    // A look after `last` that could not settle the card (the store was away) comes again after the interval.
    if now >= last { now + FIRST_LOOK } else { (now + interval).min(last) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_timestamp(1_800_000_000 + seconds, 0).unwrap()
    }

    #[test]
    fn looks_double_and_end_six_minutes_after_the_ticket() {
        let end = at(600);
        let mut now = at(0);
        let mut seen = Vec::new();
        for looks in 0..6 {
            now = next_look(now, end, looks);
            seen.push((now - at(0)).num_seconds());
            if now >= settled_at(end) {
                break;
            }
        }
        assert_eq!(seen, [60, 180, 420, 900, 960]);
    }

    #[test]
    fn a_look_that_failed_past_the_end_comes_again() {
        assert_eq!(next_look(at(2000), at(600), 7), at(2060));
    }

    #[test]
    fn in_time_ends_five_minutes_after_the_ticket_and_the_listing_a_minute_later() {
        assert!(in_time(at(900), at(600)));
        assert!(!in_time(at(901), at(600)));
        assert_eq!(settled_at(at(600)), at(960));
    }
}
