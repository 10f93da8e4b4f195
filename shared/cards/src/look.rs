//! What a card whose time has come asks of the timer (R-H1). Pure.
//!
//! In: the card and the database's time. Out: a [`Look`]: which message it lacks, and when it is looked at next. Work that
//! stays overdue is looked at less and less often, up to an hour: a broker that is down, or a long backlog, is not fed a
//! message every two minutes for every card.

use chrono::TimeDelta;

use crate::{Card, State, Timestamp, purge, timing};

/// The queue names that [`crate::Parked`] carries. They are those of `events::work::Queue`, which is above this crate; a test
/// there holds them equal.
pub const DECODE_QUEUE: &str = "card.decode";
/// See [`DECODE_QUEUE`].
pub const PURGE_QUEUE: &str = "card.purge";

/// What is done with a due card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Its versions are listed: it is `pending` (R-B9).
    pub lists: bool,
    /// It lacks a decode message.
    pub decode: bool,
    /// It lacks a purge message.
    pub purge: bool,
    /// When it is looked at next. `None`: it is finished and owes nothing.
    pub next: Option<Timestamp>,
}

impl Card {
    /// Whether the message that lies dead is of this queue.
    pub fn is_parked_for(&self, queue: &str) -> bool {
        self.parked.as_ref().is_some_and(|parked| parked.queue == queue)
    }

    /// What this card, due at `now`, asks for.
    pub fn look(&self, now: Timestamp) -> Look {
        let owed_at = purge::owed_at(self);
        // A card that waits for a replay of anything gets no purge either: one that fails as well would be found dead again
        // every hour, with no place to say so.
        let purge = owed_at.is_some_and(|at| at <= now) && self.parked.is_none();
        let look = Look { lists: false, decode: false, purge, next: None };
        match &self.state {
            State::Pending { .. } => Look { lists: true, next: Some(now + timing::CLAIM_LIFE), ..look },
            State::Queued { .. } | State::Processing { .. } => {
                let is_parked = self.is_parked_for(DECODE_QUEUE);
                let wait = if is_parked { timing::PARKED_LOOK } else { self.overdue_wait() };
                Look { decode: !is_parked, next: Some(now + wait), ..look }
            }
            State::Ready { .. }
            | State::Duplicate { .. }
            | State::Rejected { .. }
            | State::Expired
            | State::Deleting { .. }
            | State::Deleted { .. } => {
                let next = owed_at.map(|at| match (at <= now, purge) {
                    (false, _) => at + timing::QUEUED_TOO_LONG,
                    (true, true) => now + self.overdue_wait(),
                    (true, false) => now + timing::PARKED_LOOK,
                });
                Look { next, ..look }
            }
        }
    }

    /// Doubles with each look that found the same work overdue.
    fn overdue_wait(&self) -> TimeDelta {
        // 2^5 times two minutes is past the hour that caps it.
        (timing::QUEUED_TOO_LONG * (1_i32 << self.overdue_looks.min(5))).min(timing::PARKED_LOOK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Parked;
    use crate::purge::tests::{at, card, states};

    fn parked(queue: &str) -> Parked {
        Parked { at: at(0), queue: queue.to_owned(), reason: "x: y".to_owned() }
    }

    #[test]
    fn each_state_lacks_its_own_message_and_a_finished_card_is_left_alone() {
        let now = at(2000);
        let short = Some(now + TimeDelta::seconds(120));
        let rows: Vec<_> = states()
            .into_iter()
            .map(|state| {
                let look = card(state).look(now);
                (look.lists, look.decode, look.purge, look.next)
            })
            .collect();
        let lists = (true, false, false, Some(now + TimeDelta::seconds(60)));
        let decode = (false, true, false, short);
        let purge = (false, false, true, short);
        let nothing = (false, false, false, None);
        assert_eq!(rows, [lists, decode, decode, nothing, purge, purge, purge, purge, nothing]);
    }

    #[test]
    fn what_is_owed_later_is_looked_at_then_and_not_before() {
        let mut ready = card(states().remove(3));
        ready.purge_at = Some(at(5000));
        assert_eq!(ready.look(at(2000)).next, Some(at(5120)));
        assert!(!ready.look(at(2000)).purge && ready.look(at(5000)).purge);
    }

    #[test]
    fn a_dead_purge_stops_no_decoding_and_what_lies_dead_is_looked_at_every_hour() {
        let (now, hour) = (at(2000), Some(at(2000 + 3600)));
        let mut queued = card(states().remove(1));
        queued.purge_at = Some(at(0));
        queued.parked = Some(parked(DECODE_QUEUE));
        let look = queued.look(now);
        assert_eq!((look.decode, look.purge, look.next), (false, false, hour));
        queued.parked = Some(parked(PURGE_QUEUE));
        let look = queued.look(now);
        assert_eq!((look.decode, look.purge), (true, false));
        let mut deleting = card(states().remove(7));
        deleting.parked = Some(parked(PURGE_QUEUE));
        let look = deleting.look(now);
        assert_eq!((look.purge, look.next), (false, hour));
    }

    #[test]
    fn work_that_stays_overdue_is_looked_at_less_and_less_often() {
        let mut queued = card(states().remove(1));
        let mut waits = Vec::new();
        for looks in [0, 1, 2, 3, 4, 5, 6, 100] {
            queued.overdue_looks = looks;
            waits.push((queued.look(at(0)).next.unwrap() - at(0)).num_minutes());
        }
        assert_eq!(waits, [2, 4, 8, 16, 32, 60, 60, 60]);
    }
}
