//! What a card as it was read says about itself, its references and the versions under its keys. Pure.

use cards::purge::{KeepSet, owed_at, references};
use cards::{Card, CardId, DerivedKey, ETag, FileKey, State, Timestamp, VersionId, timing};
use chrono::TimeDelta;

use super::Kind;

/// Past this, what is due is late: the janitor and the relay look every few seconds.
pub(super) const LATE_AFTER: TimeDelta = TimeDelta::minutes(10);
/// Past this, what is due counts as forgotten (INV-2).
pub(super) const OVERDUE_AFTER: TimeDelta = TimeDelta::hours(1);
/// A lease ends with its job; this much longer, its renewals have lost their job (R-C1).
const LEASE_SLACK: TimeDelta = TimeDelta::minutes(1);

/// The kinds that a card's own row shows, in the order they are looked for.
const ROW_KINDS: [Kind; 9] = [
    Kind::NoNextLook,
    Kind::OverdueLook,
    Kind::LateLook,
    Kind::Parked,
    Kind::StuckPending,
    Kind::StuckQueued,
    Kind::StuckProcessing,
    Kind::LongLease,
    Kind::StuckPurge,
];

/// All that is wrong with a card by its row alone. A look that does not come explains everything that waits for it, so
/// that is all that is said then.
pub(super) fn troubles(card: &Card, now: Timestamp) -> Vec<Kind> {
    let mut found = Vec::new();
    for kind in ROW_KINDS {
        if trouble(kind, card, now).is_none() {
            continue;
        }
        found.push(kind);
        if matches!(kind, Kind::NoNextLook | Kind::OverdueLook | Kind::LateLook) {
            break;
        }
    }
    found
}

/// Whether this is wrong with the card, and what was seen.
pub(super) fn trouble(kind: Kind, card: &Card, now: Timestamp) -> Option<String> {
    let state = card.state.name();
    // What lies dead waits for an operator, and is told as that alone.
    let lies_dead = |queue| card.parked.as_ref().is_some_and(|parked| parked.queue == queue);
    match kind {
        Kind::NoNextLook => (card.next_check_at.is_none() && is_unfinished(card))
            .then(|| format!("it is {state} and next_check_at is null")),
        Kind::OverdueLook => look(card, now, OVERDUE_AFTER),
        Kind::LateLook => look(card, now, LATE_AFTER),
        Kind::Parked => card.parked.as_ref().map(|parked| {
            format!(
                "it is {state}, parked {} ago by {}: {}",
                span(now - parked.at),
                parked.queue,
                parked.reason
            )
        }),
        Kind::StuckPending => match &card.state {
            State::Pending { .. } => {
                let late = now - timing::settled_at(card.ticket.ends_at);
                (late > LATE_AFTER).then(|| {
                    format!("its upload could come until {} ago; looked at {} times", span(late), card.looks)
                })
            }
            State::Queued { .. }
            | State::Processing { .. }
            | State::Ready { .. }
            | State::Duplicate { .. }
            | State::Rejected { .. }
            | State::Expired
            | State::Deleting { .. }
            | State::Deleted { .. } => None,
        },
        Kind::StuckQueued => match &card.state {
            State::Queued { .. } => {
                let waited = now - card.updated_at;
                (!lies_dead("card.decode") && waited > OVERDUE_AFTER)
                    .then(|| format!("it has been queued for {}", span(waited)))
            }
            State::Pending { .. }
            | State::Processing { .. }
            | State::Ready { .. }
            | State::Duplicate { .. }
            | State::Rejected { .. }
            | State::Expired
            | State::Deleting { .. }
            | State::Deleted { .. } => None,
        },
        Kind::StuckProcessing | Kind::LongLease => match &card.state {
            State::Processing { lease, .. } if kind == Kind::LongLease => {
                // A renewal is no move: the card last moved when the lease was taken.
                let runs = now - card.updated_at;
                (lease.until > now && runs > timing::JOB_LIFE + LEASE_SLACK)
                    .then(|| format!("lease {} has been renewed for {}", lease.token, span(runs)))
            }
            State::Processing { lease, .. } => {
                let dead = now - lease.until;
                (!lies_dead("card.decode") && dead > LATE_AFTER).then(|| {
                    format!("lease {} ended {} ago, attempt {}", lease.token, span(dead), card.attempts)
                })
            }
            State::Pending { .. }
            | State::Queued { .. }
            | State::Ready { .. }
            | State::Duplicate { .. }
            | State::Rejected { .. }
            | State::Expired
            | State::Deleting { .. }
            | State::Deleted { .. } => None,
        },
        Kind::StuckPurge => {
            let late = now - owed_at(card)?;
            (!lies_dead("card.purge") && late > OVERDUE_AFTER)
                .then(|| format!("it is {state} and its purge has been due for {}", span(late)))
        }
        // What no row shows by itself.
        Kind::MissingObject
        | Kind::ObjectDiffers
        | Kind::AliasUnserved
        | Kind::OutboxOverdue
        | Kind::UnreadableRow
        | Kind::DeletedUnproved
        | Kind::OutboxLate
        | Kind::OutboxReturned
        | Kind::Stray
        | Kind::StrayUnknown => None,
    }
}

fn look(card: &Card, now: Timestamp, after: TimeDelta) -> Option<String> {
    let late = now - card.next_check_at?;
    (late > after)
        .then(|| format!("it is {} and its look has been due for {}", card.state.name(), span(late)))
}

/// As the CHECK of INV-2 says it.
fn is_unfinished(card: &Card) -> bool {
    match &card.state {
        State::Pending { .. } | State::Queued { .. } | State::Processing { .. } => true,
        State::Ready { .. }
        | State::Duplicate { .. }
        | State::Rejected { .. }
        | State::Expired
        | State::Deleting { .. }
        | State::Deleted { .. } => owed_at(card).is_some(),
    }
}

/// A span as people say it, in two units at most.
pub(super) fn span(span: TimeDelta) -> String {
    let seconds = span.num_seconds().max(0);
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{minutes} min"),
        3_600..86_400 => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// An object version that a row points at, and what the row says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    pub(super) card: CardId,
    pub(super) key: String,
    pub(super) version: VersionId,
    pub(super) size_bytes: u64,
    /// Only the permanent copy's tag is recorded.
    pub(super) etag: Option<ETag>,
}

/// What a card points at (INV-3), in key order.
pub(super) fn expected(card: &Card) -> Vec<Reference> {
    let mut expected: Vec<_> = references(card)
        .into_iter()
        .map(|(key, version)| {
            let (size_bytes, etag) = recorded(card, &key);
            Reference { card: card.id, key, version, size_bytes, etag }
        })
        .collect();
    expected.sort_by(|one, other| one.key.cmp(&other.key));
    expected
}

/// Size and tag, as the card says them of its object under this key.
fn recorded(card: &Card, key: &str) -> (u64, Option<ETag>) {
    match &card.state {
        State::Ready { object, .. } => {
            let derivative = card.derivatives.iter().find(|derivative| {
                DerivedKey { card: card.id, token: object.token, name: derivative.name }.to_string() == key
            });
            if let Some(derivative) = derivative {
                return (derivative.size_bytes, None);
            }
            let is_copy = FileKey { card: card.id, token: object.token }.to_string() == key;
            (card.announced.size.get(), is_copy.then(|| object.etag.clone()))
        }
        State::Pending { .. }
        | State::Queued { .. }
        | State::Processing { .. }
        | State::Duplicate { .. }
        | State::Rejected { .. }
        | State::Expired
        | State::Deleting { .. }
        | State::Deleted { .. } => (card.announced.size.get(), None),
    }
}

/// How an object differs from what its card says, if it does.
pub(super) fn difference(reference: &Reference, size_bytes: u64, etag: Option<&ETag>) -> Option<String> {
    if size_bytes != reference.size_bytes {
        return Some(format!("it has {size_bytes} bytes, the card says {}", reference.size_bytes));
    }
    let (Some(recorded), Some(etag)) = (&reference.etag, etag) else { return None };
    (recorded != etag)
        .then(|| format!("its entity tag is {}, the card says {}", etag.as_str(), recorded.as_str()))
}

/// What a card says about a version under one of its keys that it was read after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It keeps it.
    Kept,
    /// It does not, and a purge is owed: nobody has forgotten it. One that lies dead is owed too, and told as parked.
    OnItsWay,
    /// It does not, and nobody will come for it.
    Stray,
}

pub(super) fn standing(card: &Card, kept: &KeepSet, key: &str, version: &VersionId) -> Standing {
    if kept.keeps(key, version) {
        Standing::Kept
    } else if owed_at(card).is_some() {
        Standing::OnItsWay
    } else {
        Standing::Stray
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_said_in_two_units_at_most() {
        let said =
            [-5, 59, 60, 3_599, 3_600, 86_399, 90_000].map(|seconds| span(TimeDelta::seconds(seconds)));
        assert_eq!(said, ["0 s", "59 s", "1 min", "59 min", "1 h 0 min", "23 h 59 min", "1 d 1 h"]);
    }
}
