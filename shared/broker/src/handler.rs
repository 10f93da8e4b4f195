//! What a service gives to [`crate::consume`]: a [`Handler`] that decides, and a [`Ledger`] that keeps retries and
//! dead letters in the database.

use std::time::Duration;

use async_trait::async_trait;
use cards::Timestamp;
use cards::retry::Schedule;

use crate::Delivery;

/// Why a message was not simply done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// A stable code, by which dead letters are grouped (R-I3).
    pub code: &'static str,
    /// The error text, for operators.
    pub detail: String,
}

impl Reason {
    /// A reason.
    pub fn new(code: &'static str, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into() }
    }
}

/// What a handler made of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Whatever it asked for holds now: it is acked.
    Done,
    /// A fault of this one object: again later by [`Schedule::Fault`], which also says when it is given up (R-C7).
    Retry(Reason),
    /// The same, by another schedule (R-B11).
    RetryOn(Schedule, Reason),
    /// Not now, and nobody's fault (a live lease, a purge before its time): again at `due`, using no attempt.
    Later {
        /// When.
        due: Timestamp,
        /// Why.
        reason: Reason,
    },
    /// Poison: to the dead-letter queue at once.
    Dead(Reason),
    /// A dependency is away: all deliveries go back, and nothing is consumed until [`Handler::probe`] says so (R-C7).
    Outage(Reason),
}

/// One kind of work.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Does what the message asks. Messages may be repeated, late or concurrent with each other; a panic or a handler
    /// that takes too long is a [`Outcome::Retry`].
    async fn handle(&self, delivery: &Delivery) -> Outcome;

    /// Whether every dependency answers again, the database behind the [`Ledger`] included. Asked only in an outage.
    async fn probe(&self) -> bool;
}

/// When a retry is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// This long after the database's `now()`.
    In(Duration),
    /// At this time of the database.
    At(Timestamp),
}

/// The same message again, later.
#[derive(Clone, Copy, Debug)]
pub struct Retry<'a> {
    /// The message as it came: its queue, trace and body are those of the retry.
    pub delivery: &'a Delivery,
    /// The attempt the new message is.
    pub attempt: u32,
    /// When it goes out.
    pub due: Due,
    /// Why, for the outbox row's `last_error`.
    pub reason: &'a Reason,
}

/// A failure to write; its text. It counts as an outage of the database.
pub type LedgerError = Box<dyn std::error::Error + Send + Sync>;

/// Where retries and dead letters are kept. Both calls have committed when they return `Ok`; both may come twice for
/// one message, since an ack can get lost.
#[async_trait]
pub trait Ledger: Send + Sync + 'static {
    /// Writes an outbox row due later (R-I2).
    async fn retry(&self, retry: Retry<'_>) -> Result<(), LedgerError>;

    /// Parks the card the message is about, if there is one (R-C7). The message itself then goes to the dead-letter
    /// queue.
    async fn dead(&self, delivery: &Delivery, reason: &Reason) -> Result<(), LedgerError>;
}
