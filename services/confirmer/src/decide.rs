//! From what became of each record to what becomes of the message. Pure.

use broker::{Outcome, Reason};
use cards::retry::Schedule;

/// What became of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// It is dealt with.
    Done,
    /// It can never be dealt with.
    Dead(Reason),
    /// A fault: the message comes again.
    Retry(Reason),
    /// It comes again by another schedule.
    RetryOn(Schedule, Reason),
    /// A dependency is away.
    Outage(Reason),
}

/// The worst record decides. An outage comes first: the message is handed back whole and nothing is lost. Then retries:
/// a message with a bad record is dead-lettered only after its good ones are done (R-B1); repeats change nothing (R-B4).
pub(crate) fn outcome(records: Vec<Record>) -> Outcome {
    records.into_iter().max_by_key(rank).map_or(Outcome::Done, |worst| match worst {
        Record::Done => Outcome::Done,
        Record::Dead(reason) => Outcome::Dead(reason),
        Record::Retry(reason) => Outcome::Retry(reason),
        Record::RetryOn(schedule, reason) => Outcome::RetryOn(schedule, reason),
        Record::Outage(reason) => Outcome::Outage(reason),
    })
}

fn rank(record: &Record) -> u8 {
    match record {
        Record::Done => 0,
        Record::Dead(_) => 1,
        Record::RetryOn(..) => 2,
        Record::Retry(_) => 3,
        Record::Outage(_) => 4,
    }
}

/// The label of an outcome on the metrics page.
pub(crate) fn word(outcome: &intake::Outcome) -> &'static str {
    match outcome {
        intake::Outcome::Confirmed { .. } => "confirmed",
        intake::Outcome::Mismatch => "mismatch",
        intake::Outcome::Rejected => "rejected",
        intake::Outcome::NothingFits => "nothing_fits",
        intake::Outcome::RefusedBefore => "refused_before",
        intake::Outcome::Repeat(_) => "repeat",
        intake::Outcome::Surplus(_) => "surplus",
        intake::Outcome::UnknownKey => "unknown_key",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(code: &'static str) -> Reason {
        Reason::new(code, "")
    }

    #[test]
    fn no_record_and_only_done_records_are_done() {
        assert_eq!(outcome(vec![]), Outcome::Done);
        assert_eq!(outcome(vec![Record::Done, Record::Done]), Outcome::Done);
    }

    #[test]
    fn a_bad_record_is_dead_lettered_only_once_nothing_else_is_left_to_do() {
        let bad = Record::Dead(reason("bad"));
        assert_eq!(outcome(vec![bad.clone(), Record::Done]), Outcome::Dead(reason("bad")));
        assert_eq!(
            outcome(vec![bad.clone(), Record::Retry(reason("later"))]),
            Outcome::Retry(reason("later"))
        );
        assert_eq!(outcome(vec![Record::Outage(reason("away")), bad]), Outcome::Outage(reason("away")));
    }

    #[test]
    fn a_fault_outranks_an_unknown_key() {
        let unknown = Record::RetryOn(Schedule::UnknownKey, reason("unknown"));
        assert_eq!(outcome(vec![Record::Retry(reason("fault")), unknown]), Outcome::Retry(reason("fault")));
    }
}
