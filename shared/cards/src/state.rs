//! The state machine. Each state says who moves it on.
//!
//! ```text
//! pending ─confirm→ queued ─lease→ processing ─accept→ ready
//!    │ expire                          ├─refuse→ rejected      queued, processing ─lease again→ processing
//!    v                                 └─same hash→ duplicate
//! expired            every state but deleting, deleted ─delete→ deleting ─purged→ deleted
//!                    pending ─more than 5 refused versions→ rejected
//! ```
//!
//! [`State::on`] says what an event does to a state; no arm is a catch-all, so a new variant lists every place to
//! think. SQL enforces the same with `WHERE state = $from AND revision = $r`, and the CHECKs of the first migration
//! enforce it a third time (R-G4).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{CardId, ETag, LeaseToken, Problem, ProblemCode, Sha256, Timestamp, VersionId};

/// More refused versions than this reject the card (R-B5).
pub const REFUSED_VERSIONS_MAX: usize = 5;

/// Where a card is in its life, with the facts that only that state has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// A ticket is out. The confirmer moves it on, by event; the janitor, by listing; or its owner, by request.
    Pending {
        /// Versions refused so far, at most [`REFUSED_VERSIONS_MAX`].
        refused: Vec<VersionId>,
    },
    /// The upload was found and pinned. A decoder moves it on by leasing it.
    Queued {
        /// The one version that is read from now on (INV-1).
        pinned: VersionId,
    },
    /// A decoder has it. That decoder moves it on; past the lease, any decoder may lease it again.
    Processing {
        /// The version that is read.
        pinned: VersionId,
        /// Whose work it is.
        lease: Lease,
    },
    /// Read in full and copied: it is served. Only a deletion or a replacement moves it on.
    Ready {
        /// The version it was made from.
        pinned: VersionId,
        /// The permanent copy.
        object: ObjectFacts,
    },
    /// Its owner had the same bytes already (R-C6). An alias: it becomes `deleting` with its original, or alone.
    Duplicate {
        /// The file it stands for.
        original: CardId,
    },
    /// Refused for a reason its owner can read. Only a deletion moves it on.
    Rejected {
        /// The reason.
        problem: Problem,
    },
    /// Nothing that fits came in time. Only a deletion moves it on.
    Expired,
    /// Deletion was asked for. The deleter moves it on once the bytes are gone.
    Deleting {
        /// Nothing is removed before this (R-E1).
        delete_after: Timestamp,
    },
    /// The bytes are gone: a tombstone.
    Deleted {
        /// The wait that was kept.
        delete_after: Timestamp,
    },
}

/// One worker's right to finish one card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Random; also names what the worker writes to the bucket.
    pub token: LeaseToken,
    /// Past this, others may lease the card.
    pub until: Timestamp,
}

/// The permanent copy of an accepted file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectFacts {
    /// The accepted lease: the copy is `files/<card>/<token>`.
    pub token: LeaseToken,
    /// The copy's version; links are fixed to it.
    pub version: VersionId,
    /// The copy's entity tag.
    pub etag: ETag,
    /// The digest of all its bytes.
    pub sha256: Sha256,
    /// When it became ready.
    pub ready_at: Timestamp,
}

/// The name of a state, as stored and sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateName {
    /// See [`State::Pending`].
    Pending,
    /// See [`State::Queued`].
    Queued,
    /// See [`State::Processing`].
    Processing,
    /// See [`State::Ready`].
    Ready,
    /// See [`State::Duplicate`].
    Duplicate,
    /// See [`State::Rejected`].
    Rejected,
    /// See [`State::Expired`].
    Expired,
    /// See [`State::Deleting`].
    Deleting,
    /// See [`State::Deleted`].
    Deleted,
}

impl StateName {
    /// Every state, in the order of a card's life.
    pub const ALL: [Self; 9] = [
        Self::Pending,
        Self::Queued,
        Self::Processing,
        Self::Ready,
        Self::Duplicate,
        Self::Rejected,
        Self::Expired,
        Self::Deleting,
        Self::Deleted,
    ];

    /// The word as it is stored and sent.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Queued => "queued",
            Self::Processing => "processing",
            Self::Ready => "ready",
            Self::Duplicate => "duplicate",
            Self::Rejected => "rejected",
            Self::Expired => "expired",
            Self::Deleting => "deleting",
            Self::Deleted => "deleted",
        }
    }

    /// Whether the intake is over: nothing the system does by itself moves the card on, but for removing bytes.
    pub fn is_settled(self) -> bool {
        match self {
            Self::Pending | Self::Queued | Self::Processing | Self::Deleting => false,
            Self::Ready | Self::Duplicate | Self::Rejected | Self::Expired | Self::Deleted => true,
        }
    }
}

impl fmt::Display for StateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that names no state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no state; the states are pending, queued, processing, ready, duplicate, rejected, expired, deleting, deleted"
)]
pub struct StateNameError(pub String);

impl FromStr for StateName {
    type Err = StateNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|name| name.as_str() == text)
            .ok_or_else(|| StateNameError(text.to_owned()))
    }
}

/// What can happen to a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A version that fits was found (R-B3).
    Confirm {
        /// That version.
        pinned: VersionId,
    },
    /// A version that does not fit was found (R-B5).
    RefuseVersion {
        /// That version.
        version: VersionId,
        /// Why.
        problem: Problem,
    },
    /// A listing begun late enough found nothing that fits (R-B7).
    Expire,
    /// A decoder wants it (R-C1).
    Lease {
        /// Its new lease.
        lease: Lease,
        /// The database's time.
        now: Timestamp,
    },
    /// The decoder of this lease read and copied it (R-C5).
    Accept {
        /// The permanent copy; names the lease.
        object: ObjectFacts,
    },
    /// The decoder of this lease found a ready file of the owner with the same bytes (R-C6).
    SameHash {
        /// The lease.
        token: LeaseToken,
        /// That file.
        original: CardId,
    },
    /// The decoder of this lease refuses it (R-C7).
    Refuse {
        /// The lease.
        token: LeaseToken,
        /// Why.
        problem: Problem,
    },
    /// Its owner wants it gone (R-E1).
    Delete {
        /// When removal may begin.
        delete_after: Timestamp,
    },
    /// Its bytes are gone (R-E2).
    Purged {
        /// The database's time.
        now: Timestamp,
    },
}

/// What an event does to a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transition {
    /// The card moves; its revision rises.
    Move(State),
    /// The card stays, its facts change; its revision does not.
    Note(State),
    /// The event was here before, or what it asks for is already so: nothing changes.
    AlreadyThere,
    /// The event does not fit this state: a late message, a lost lease, a lost race. Nothing changes.
    Illegal,
}

impl State {
    /// The name of this state.
    pub fn name(&self) -> StateName {
        match self {
            Self::Pending { .. } => StateName::Pending,
            Self::Queued { .. } => StateName::Queued,
            Self::Processing { .. } => StateName::Processing,
            Self::Ready { .. } => StateName::Ready,
            Self::Duplicate { .. } => StateName::Duplicate,
            Self::Rejected { .. } => StateName::Rejected,
            Self::Expired => StateName::Expired,
            Self::Deleting { .. } => StateName::Deleting,
            Self::Deleted { .. } => StateName::Deleted,
        }
    }

    /// The version that was accepted, where the state still has it.
    pub fn pinned(&self) -> Option<&VersionId> {
        match self {
            Self::Queued { pinned } | Self::Processing { pinned, .. } | Self::Ready { pinned, .. } => {
                Some(pinned)
            }
            Self::Pending { .. }
            | Self::Duplicate { .. }
            | Self::Rejected { .. }
            | Self::Expired
            | Self::Deleting { .. }
            | Self::Deleted { .. } => None,
        }
    }

    /// What `event` does to this state.
    pub fn on(&self, event: Event) -> Transition {
        match event {
            Event::Confirm { pinned } => self.on_confirm(pinned),
            Event::RefuseVersion { version, problem } => self.on_refuse_version(version, &problem),
            Event::Expire => self.on_expire(),
            Event::Lease { lease, now } => self.on_lease(lease, now),
            Event::Accept { object } => {
                let token = object.token;
                self.finish(token, |pinned| Self::Ready { pinned, object })
            }
            Event::SameHash { token, original } => self.finish(token, |_| Self::Duplicate { original }),
            Event::Refuse { token, problem } => self.finish(token, |_| Self::Rejected { problem }),
            Event::Delete { delete_after } => self.on_delete(delete_after),
            Event::Purged { now } => self.on_purged(now),
        }
    }

    fn on_confirm(&self, pinned: VersionId) -> Transition {
        match self {
            Self::Pending { .. } => Transition::Move(Self::Queued { pinned }),
            // The first accepted version wins; a repeat keeps it, another one is surplus (R-B4, R-B6).
            Self::Queued { .. } | Self::Processing { .. } | Self::Ready { .. } | Self::Duplicate { .. } => {
                Transition::AlreadyThere
            }
            // An event never revives these (R-B7).
            Self::Rejected { .. } | Self::Expired | Self::Deleting { .. } | Self::Deleted { .. } => {
                Transition::Illegal
            }
        }
    }

    fn on_refuse_version(&self, version: VersionId, problem: &Problem) -> Transition {
        match self {
            Self::Pending { refused } if refused.contains(&version) => Transition::AlreadyThere,
            Self::Pending { refused } if refused.len() >= REFUSED_VERSIONS_MAX => {
                Transition::Move(Self::Rejected {
                    problem: Problem::new(
                        ProblemCode::MetadataMismatch,
                        format!(
                            "more than {REFUSED_VERSIONS_MAX} uploads did not fit the ticket; the last: {}",
                            problem.detail
                        ),
                    ),
                })
            }
            Self::Pending { refused } => {
                let mut refused = refused.clone();
                refused.push(version);
                Transition::Note(Self::Pending { refused })
            }
            Self::Queued { .. }
            | Self::Processing { .. }
            | Self::Ready { .. }
            | Self::Duplicate { .. }
            | Self::Rejected { .. }
            | Self::Expired
            | Self::Deleting { .. }
            | Self::Deleted { .. } => Transition::Illegal,
        }
    }

    fn on_expire(&self) -> Transition {
        match self {
            Self::Pending { .. } => Transition::Move(Self::Expired),
            Self::Expired => Transition::AlreadyThere,
            Self::Queued { .. }
            | Self::Processing { .. }
            | Self::Ready { .. }
            | Self::Duplicate { .. }
            | Self::Rejected { .. }
            | Self::Deleting { .. }
            | Self::Deleted { .. } => Transition::Illegal,
        }
    }

    fn on_lease(&self, lease: Lease, now: Timestamp) -> Transition {
        match self {
            Self::Queued { pinned } => Transition::Move(Self::Processing { pinned: pinned.clone(), lease }),
            Self::Processing { pinned, lease: held } if held.until <= now => {
                Transition::Move(Self::Processing { pinned: pinned.clone(), lease })
            }
            // A live lease: the message comes again after its deadline (R-C1).
            Self::Processing { .. } => Transition::AlreadyThere,
            Self::Pending { .. }
            | Self::Ready { .. }
            | Self::Duplicate { .. }
            | Self::Rejected { .. }
            | Self::Expired
            | Self::Deleting { .. }
            | Self::Deleted { .. } => Transition::Illegal,
        }
    }

    /// The three ends of a job: only the holder of the lease reaches one, and a token that is gone is a lost lease.
    fn finish(&self, token: LeaseToken, end: impl FnOnce(VersionId) -> Self) -> Transition {
        match self {
            Self::Processing { pinned, lease } if lease.token == token => {
                Transition::Move(end(pinned.clone()))
            }
            Self::Ready { object, .. } if object.token == token => Transition::AlreadyThere,
            Self::Pending { .. }
            | Self::Queued { .. }
            | Self::Processing { .. }
            | Self::Ready { .. }
            | Self::Duplicate { .. }
            | Self::Rejected { .. }
            | Self::Expired
            | Self::Deleting { .. }
            | Self::Deleted { .. } => Transition::Illegal,
        }
    }

    fn on_delete(&self, delete_after: Timestamp) -> Transition {
        match self {
            Self::Pending { .. }
            | Self::Queued { .. }
            | Self::Processing { .. }
            | Self::Ready { .. }
            | Self::Duplicate { .. }
            | Self::Rejected { .. }
            | Self::Expired => Transition::Move(Self::Deleting { delete_after }),
            Self::Deleting { .. } | Self::Deleted { .. } => Transition::AlreadyThere,
        }
    }

    fn on_purged(&self, now: Timestamp) -> Transition {
        match self {
            Self::Deleting { delete_after } if *delete_after <= now => {
                Transition::Move(Self::Deleted { delete_after: *delete_after })
            }
            Self::Deleted { .. } => Transition::AlreadyThere,
            Self::Pending { .. }
            | Self::Queued { .. }
            | Self::Processing { .. }
            | Self::Ready { .. }
            | Self::Duplicate { .. }
            | Self::Rejected { .. }
            | Self::Expired
            | Self::Deleting { .. } => Transition::Illegal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ids;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_timestamp(1_800_000_000 + seconds, 0).unwrap()
    }

    fn version(text: &str) -> VersionId {
        VersionId::parse(text).unwrap()
    }

    struct World {
        states: Vec<State>,
        events: Vec<(&'static str, Event)>,
    }

    /// Every state, and every event aimed at it: the lease `held` is the live one, `other` somebody else's.
    fn world() -> World {
        let held = Lease { token: Ids.lease(), until: at(60) };
        let other = Lease { token: Ids.lease(), until: at(200) };
        let object = ObjectFacts {
            token: held.token,
            version: version("o1"),
            etag: ETag::new("e"),
            sha256: Sha256([7; 32]),
            ready_at: at(5),
        };
        let problem = Problem::new(ProblemCode::Corrupt, "broken");
        let original = Ids.card();
        World {
            states: vec![
                State::Pending { refused: vec![] },
                State::Queued { pinned: version("v1") },
                State::Processing { pinned: version("v1"), lease: held },
                State::Ready { pinned: version("v1"), object: object.clone() },
                State::Duplicate { original },
                State::Rejected { problem: problem.clone() },
                State::Expired,
                State::Deleting { delete_after: at(100) },
                State::Deleted { delete_after: at(100) },
            ],
            events: vec![
                ("confirm", Event::Confirm { pinned: version("v2") }),
                ("refuse version", Event::RefuseVersion { version: version("v3"), problem: problem.clone() }),
                ("expire", Event::Expire),
                ("lease", Event::Lease { lease: other, now: at(10) }),
                ("lease late", Event::Lease { lease: other, now: at(60) }),
                ("accept", Event::Accept { object: object.clone() }),
                ("accept stale", Event::Accept { object: ObjectFacts { token: other.token, ..object } }),
                ("same hash", Event::SameHash { token: held.token, original }),
                ("refuse", Event::Refuse { token: held.token, problem }),
                ("delete", Event::Delete { delete_after: at(300) }),
                ("purged early", Event::Purged { now: at(99) }),
                ("purged", Event::Purged { now: at(100) }),
            ],
        }
    }

    fn word(transition: &Transition) -> &'static str {
        match transition {
            Transition::Move(state) => state.name().as_str(),
            Transition::Note(_) => "noted",
            Transition::AlreadyThere => "=",
            Transition::Illegal => "-",
        }
    }

    #[test]
    fn every_state_meets_every_event_as_the_table_says() {
        // Columns: pending, queued, processing, ready, duplicate, rejected, expired, deleting, deleted.
        let table = [
            ("confirm", ["queued", "=", "=", "=", "=", "-", "-", "-", "-"]),
            ("refuse version", ["noted", "-", "-", "-", "-", "-", "-", "-", "-"]),
            ("expire", ["expired", "-", "-", "-", "-", "-", "=", "-", "-"]),
            ("lease", ["-", "processing", "=", "-", "-", "-", "-", "-", "-"]),
            ("lease late", ["-", "processing", "processing", "-", "-", "-", "-", "-", "-"]),
            ("accept", ["-", "-", "ready", "=", "-", "-", "-", "-", "-"]),
            ("accept stale", ["-", "-", "-", "-", "-", "-", "-", "-", "-"]),
            ("same hash", ["-", "-", "duplicate", "=", "-", "-", "-", "-", "-"]),
            ("refuse", ["-", "-", "rejected", "=", "-", "-", "-", "-", "-"]),
            (
                "delete",
                [
                    "deleting", "deleting", "deleting", "deleting", "deleting", "deleting", "deleting", "=",
                    "=",
                ],
            ),
            ("purged early", ["-", "-", "-", "-", "-", "-", "-", "-", "="]),
            ("purged", ["-", "-", "-", "-", "-", "-", "-", "deleted", "="]),
        ];
        let world = world();
        assert_eq!(world.states.iter().map(State::name).collect::<Vec<_>>(), StateName::ALL);
        assert_eq!(world.events.len(), table.len());
        for ((name, event), (row, cells)) in world.events.iter().zip(table) {
            assert_eq!(*name, row);
            for (state, cell) in world.states.iter().zip(cells) {
                assert_eq!(word(&state.on(event.clone())), cell, "{name} on {}", state.name());
            }
        }
    }

    #[test]
    fn a_sixth_refused_version_rejects_the_card_and_a_repeat_does_not_count() {
        let mut state = State::Pending { refused: vec![] };
        let problem = Problem::new(ProblemCode::MetadataMismatch, "size");
        for n in 0..REFUSED_VERSIONS_MAX {
            let event = Event::RefuseVersion { version: version(&format!("v{n}")), problem: problem.clone() };
            let Transition::Note(next) = state.on(event.clone()) else { panic!("{n}") };
            state = next;
            assert_eq!(state.on(event), Transition::AlreadyThere);
        }
        let sixth = Event::RefuseVersion { version: version("v9"), problem };
        assert!(matches!(state.on(sixth), Transition::Move(State::Rejected { .. })));
    }

    #[test]
    fn a_move_never_changes_the_pinned_version() {
        let world = world();
        for state in &world.states {
            for (_, event) in &world.events {
                if let (Some(before), Transition::Move(after)) = (state.pinned(), state.on(event.clone())) {
                    assert!(after.pinned().is_none_or(|pinned| pinned == before));
                }
            }
        }
    }
}
