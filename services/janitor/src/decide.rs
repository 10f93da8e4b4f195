//! From what a look found to what is done with a pending card. Pure.

use cards::{Card, Timestamp, timing};
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
pub(crate) fn after(card: &Card, outcome: &Outcome, listed_at: Timestamp) -> After {
    match outcome {
        Outcome::Confirmed { .. } => After::Confirmed,
        Outcome::Rejected | Outcome::Repeat(_) | Outcome::Surplus(_) | Outcome::UnknownKey => After::Moved,
        Outcome::NothingFits | Outcome::RefusedBefore | Outcome::Mismatch => {
            if listed_at >= timing::settled_at(card.ticket.ends_at) {
                After::Expired
            } else {
                After::LookAgain
            }
        }
    }
}
