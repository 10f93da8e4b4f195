//! A card as it is read from the database: the facts of one file, and its [`State`].

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{
    ByteCount, CardId, Derivative, Facts, MediaType, OwnerId, Problem, Sha256, SourceKey, State, Timestamp,
    VersionId,
};

/// One file.
#[derive(Clone, Debug, PartialEq)]
pub struct Card {
    /// Its id.
    pub id: CardId,
    /// Whose it is.
    pub owner: OwnerId,
    /// The name its owner gave it: only ever text, never part of a key.
    pub filename: String,
    /// What was announced with the ticket.
    pub announced: Announced,
    /// The upload permission as last issued.
    pub ticket: Ticket,
    /// Whether it vanishes when nothing refers to it.
    pub keep: Keep,
    /// Where it is in its life.
    pub state: State,
    /// Counts state moves and renewals; guards every write (DESIGN "The state machine").
    pub revision: i64,
    /// Leases taken so far.
    pub attempts: u32,
    /// How often the timer has looked at it while `pending`.
    pub looks: u32,
    /// How often in a row the timer found its work or its purge overdue.
    pub overdue_looks: u32,
    /// The last problem its owner can read: why versions were refused while `pending`, why the file was rejected.
    pub problem: Option<Problem>,
    /// Versions refused so far (R-B5).
    pub refused: Vec<VersionId>,
    /// What confirmed it.
    pub confirmed_by: Option<ConfirmedBy>,
    /// What the decoder found; there once `ready`.
    pub facts: Option<Facts>,
    /// What the decoder made; there once `ready`.
    pub derivatives: Vec<Derivative>,
    /// The file that this one takes the place of once it is ready (R-F1).
    pub replaces: Option<CardId>,
    /// Set when its message was dead-lettered (R-C7).
    pub parked: Option<Parked>,
    /// A purge is owed since or from this time on (DESIGN "Purge").
    pub purge_at: Option<Timestamp>,
    /// When the bytes were recorded as gone (R-E4).
    pub purged_at: Option<Timestamp>,
    /// When its deletion was asked for (R-E4: told apart from when it was deleted).
    pub delete_requested_at: Option<Timestamp>,
    /// When it is looked at next.
    pub next_check_at: Option<Timestamp>,
    /// When its ticket was first issued.
    pub created_at: Timestamp,
    /// When it last moved.
    pub updated_at: Timestamp,
}

impl Card {
    /// The key its bytes are uploaded to.
    pub fn source_key(&self) -> SourceKey {
        SourceKey(self.id)
    }
}

/// What the owner said about the file before uploading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    /// Its exact size.
    pub size: ByteCount,
    /// Its type.
    pub media_type: MediaType,
    /// Its digest, where announced.
    pub sha256: Option<Sha256>,
}

/// The upload permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Its form.
    pub method: TicketMethod,
    /// When it was last signed: the database's time, and the date in the signature.
    pub issued_at: Timestamp,
    /// When it ends.
    pub ends_at: Timestamp,
    /// The trace context that rides along as `x-amz-meta-traceparent`.
    pub traceparent: Option<String>,
}

/// The form of a ticket (R-A2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum TicketMethod {
    /// A SigV4 POST policy.
    #[default]
    #[serde(rename = "POST")]
    Post,
    /// A presigned PUT.
    #[serde(rename = "PUT")]
    Put,
}

/// Whether a file stays without anything referring to it (R-H1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// It never vanishes unasked.
    #[default]
    Always,
    /// It goes when it has been attached to nothing for a day.
    Attached,
}

/// What found the upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfirmedBy {
    /// The bucket's event.
    Event,
    /// The janitor's look (R-B9).
    Sweep,
    /// The owner's request (R-B10).
    Request,
}

/// Why a card waits for a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parked {
    /// Since when.
    pub at: Timestamp,
    /// The queue whose message was dead-lettered.
    pub queue: String,
    /// The reason, for operators.
    pub reason: String,
}

/// A text that is none of a column's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not one of the known words")]
pub struct WordError(pub String);

macro_rules! words {
    ($name:ident { $($variant:ident = $word:literal),+ $(,)? }) => {
        impl $name {
            /// The word as it is stored.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl FromStr for $name {
            type Err = WordError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text { $($word => Ok(Self::$variant),)+ other => Err(WordError(other.to_owned())) }
            }
        }
    };
}

words!(TicketMethod { Post = "POST", Put = "PUT" });
words!(Keep { Always = "always", Attached = "attached" });
words!(ConfirmedBy { Event = "event", Sweep = "sweep", Request = "request" });
