//! What goes through our own queues. Messages carry only ids (bucket events excepted): the truth is read from the
//! database each time, so any message may be repeated, late, replayed or lost.

use std::fmt;
use std::str::FromStr;

use cards::{CardId, MessageId};
use serde::{Deserialize, Serialize};

/// Which attempt a message is: an integer header, 1 for the first. A message without it is a first attempt.
pub const ATTEMPT_HEADER: &str = "x-arkiv-attempt";
/// The W3C trace context the message belongs to.
pub const TRACEPARENT_HEADER: &str = "traceparent";
/// Why a message was dead-lettered: a stable code.
pub const DEAD_REASON_HEADER: &str = "x-arkiv-reason";
/// Why a message was dead-lettered: the error text.
pub const DEAD_ERROR_HEADER: &str = "x-arkiv-error";

/// A work queue. Its name is also its routing key on `card.work`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Queue {
    /// Bucket events, and retries of them.
    #[serde(rename = "card.confirm")]
    Confirm,
    /// Cards to decode.
    #[serde(rename = "card.decode")]
    Decode,
    /// Cards whose bytes must become what the card says.
    #[serde(rename = "card.purge")]
    Purge,
}

impl Queue {
    /// Every work queue.
    pub const ALL: [Self; 3] = [Self::Confirm, Self::Decode, Self::Purge];

    /// The queue's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Confirm => "card.confirm",
            Self::Decode => "card.decode",
            Self::Purge => "card.purge",
        }
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that names no queue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no queue; the queues are card.confirm, card.decode, card.purge")]
pub struct QueueError(pub String);

impl FromStr for Queue {
    type Err = QueueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|queue| queue.as_str() == text).ok_or_else(|| QueueError(text.to_owned()))
    }
}

/// A message as it leaves the outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Where it goes.
    pub queue: Queue,
    /// Stays the same when the row is published twice.
    pub message_id: MessageId,
    /// 1 for the first.
    pub attempt: u32,
    /// The trace it belongs to.
    pub traceparent: Option<String>,
    /// [`CardMessage`] as JSON, or a bucket event as it came.
    pub body: Vec<u8>,
}

/// The body of `card.decode` and `card.purge`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardMessage {
    /// Which card.
    pub card: CardId,
}

/// A body that is no [`CardMessage`].
#[derive(Debug, thiserror::Error)]
#[error("the body is no card message: {0}")]
pub struct CardMessageError(#[from] serde_json::Error);

impl CardMessage {
    /// Parses a body.
    pub fn parse(body: &[u8]) -> Result<Self, CardMessageError> {
        Ok(serde_json::from_slice(body)?)
    }

    /// The body for this message.
    pub fn to_body(self) -> Vec<u8> {
        format!(r#"{{"card":"{}"}}"#, self.card).into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_message_reads_back() {
        let message = CardMessage { card: cards::Ids.card() };
        assert_eq!(CardMessage::parse(&message.to_body()).unwrap(), message);
    }

    #[test]
    fn the_queues_that_can_park_a_card_have_one_name_everywhere() {
        assert_eq!(Queue::Decode.as_str(), cards::look::DECODE_QUEUE);
        assert_eq!(Queue::Purge.as_str(), cards::look::PURGE_QUEUE);
    }

    #[test]
    fn anything_else_is_no_card_message() {
        for body in [
            "",
            "null",
            "{}",
            r#"{"card":"x"}"#,
            r#"{"card":"0192f3c4-7a11-7c3e-9d2f-5b6a7c8d9e01","bucket":"b"}"#,
        ] {
            assert!(CardMessage::parse(body.as_bytes()).is_err(), "{body}");
        }
    }
}
