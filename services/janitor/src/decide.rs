//! From what a look found to what is done with a pending card. Pure.

use cards::{Timestamp, timing};
use intake::Outcome;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// The upload was there: it is `queued`.
    Confirmed,
    /// It moved by itself, or by the look.
    Moved,
    /// Nothing fits, and nothing can come any more.
    Expired,
    /// Nothing fits yet.
    LookAgain,
}

impl After {
    /// The label on the metrics page.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Moved => "moved",
            Self::Expired => "expired",
            Self::LookAgain => "look_again",
        }
    }
}

/// `listed_at` is a time of the database before the listing began (R-B7).
pub(crate) fn after(ticket_ends_at: Timestamp, outcome: &Outcome, listed_at: Timestamp) -> After {
    match outcome {
        Outcome::Confirmed { .. } => After::Confirmed,
        Outcome::Rejected | Outcome::Repeat(_) | Outcome::Surplus(_) | Outcome::UnknownKey => After::Moved,
        Outcome::NothingFits | Outcome::RefusedBefore | Outcome::Mismatch => {
            if listed_at >= timing::settled_at(ticket_ends_at) { After::Expired } else { After::LookAgain }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_timestamp(1_800_000_000 + seconds, 0).unwrap()
    }

    #[test]
    fn nothing_that_fits_expires_a_card_only_six_minutes_after_its_ticket() {
        for outcome in [Outcome::NothingFits, Outcome::RefusedBefore, Outcome::Mismatch] {
            assert_eq!(after(at(600), &outcome, at(959)), After::LookAgain, "{outcome:?}");
            assert_eq!(after(at(600), &outcome, at(960)), After::Expired, "{outcome:?}");
        }
    }

    #[test]
    fn a_card_that_moved_is_left_alone_however_late_it_is() {
        let pinned = cards::VersionId::parse("v1").unwrap();
        assert_eq!(after(at(600), &Outcome::Confirmed { pinned }, at(5000)), After::Confirmed);
        assert_eq!(after(at(600), &Outcome::Rejected, at(5000)), After::Moved);
        assert_eq!(after(at(600), &Outcome::Repeat(cards::StateName::Queued), at(5000)), After::Moved);
    }
}
