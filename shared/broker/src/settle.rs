//! One message from delivery to verdict: the handler in a task of its own, bounded in time, its panics contained; then
//! what its [`Outcome`] asks for is made to hold.
//!
//! Only when that is committed (a retry's outbox row) or confirmed (a dead letter) is the message ready to be acked.
//! Where it cannot be made to hold, that is an outage, and the message goes back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cards::retry::{Next, Schedule};
use lapin::{BasicProperties, Channel};
use telemetry::metric;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use crate::dead::DeadLetters;
use crate::publisher::Published;
use crate::{Delivery, Due, Handler, Ledger, LedgerError, Outcome, Reason, Retry};

/// For one ledger call: a short transaction, or the database is away.
const LEDGER_WITHIN: Duration = Duration::from_secs(30);

/// A message and what its copy in a dead-letter queue needs.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) delivery: Delivery,
    pub(crate) properties: BasicProperties,
}

/// What becomes of the delivery.
#[derive(Debug)]
pub(crate) enum Settled {
    /// Ack it.
    Ack,
    /// Something is away: it goes back with all others.
    Outage(Reason),
    /// Its channel is dead: the broker delivers it again by itself, so nothing more may be written for it.
    Stale,
}

/// What settling needs besides the message.
pub(crate) struct Settler {
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) ledger: Arc<dyn Ledger>,
    pub(crate) dead: DeadLetters,
    pub(crate) handler_timeout: Duration,
}

impl Settler {
    /// Handles and settles one message, in its own span.
    pub(crate) async fn run(self: Arc<Self>, message: Arc<Message>, channel: Channel) -> Settled {
        let delivery = &message.delivery;
        let span = tracing::info_span!(
            "message",
            queue = delivery.queue.as_str(),
            message_id = delivery.message_id.map(tracing::field::display),
            attempt = delivery.attempt,
            trace_id = delivery.trace_id(),
        );
        async {
            let begun = Instant::now();
            let outcome = self.handle(&message).await;
            let (word, settled) = if channel.status().connected() {
                (word(&outcome), self.settle(&message, outcome).await)
            } else {
                ("stale", Settled::Stale)
            };
            let queue = delivery.queue.as_str();
            metrics::counter!(metric::MESSAGES, "queue" => queue, "outcome" => word).increment(1);
            metrics::histogram!(metric::MESSAGE_DURATION, "queue" => queue)
                .record(begun.elapsed().as_secs_f64());
            settled
        }
        .instrument(span)
        .await
    }

    /// The handler, contained. Dropping this future aborts it.
    async fn handle(&self, message: &Arc<Message>) -> Outcome {
        let (handler, message) = (Arc::clone(&self.handler), Arc::clone(message));
        let handling = async move { handler.handle(&message.delivery).await }.in_current_span();
        let handling = AbortOnDropHandle::new(tokio::spawn(handling));
        match tokio::time::timeout(self.handler_timeout, handling).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => Outcome::Retry(Reason::new("panic", panic_text(error))),
            Err(_) => {
                Outcome::Retry(Reason::new("timeout", format!("took longer than {:?}", self.handler_timeout)))
            }
        }
    }

    async fn settle(&self, message: &Message, outcome: Outcome) -> Settled {
        match outcome {
            Outcome::Done => Settled::Ack,
            Outcome::Retry(reason) => self.retry(message, Schedule::Fault, reason).await,
            Outcome::RetryOn(schedule, reason) => self.retry(message, schedule, reason).await,
            Outcome::Later { due, reason } => {
                tracing::info!(code = reason.code, detail = reason.detail, %due, "not now; again later");
                self.again(message, message.delivery.attempt, Due::At(due), &reason).await
            }
            Outcome::Dead(reason) => self.bury(message, &reason).await,
            Outcome::Outage(reason) => Settled::Outage(reason),
        }
    }

    /// The one place that decides "attempts exhausted".
    async fn retry(&self, message: &Message, schedule: Schedule, mut reason: Reason) -> Settled {
        let attempt = message.delivery.attempt;
        match schedule.after(attempt) {
            Next::After(delay) => {
                tracing::warn!(code = reason.code, detail = reason.detail, ?delay, "failed; again later");
                self.again(message, attempt.saturating_add(1), Due::In(delay), &reason).await
            }
            Next::Exhausted => {
                reason.detail = format!("{} (attempt {attempt} was the last)", reason.detail);
                self.bury(message, &reason).await
            }
        }
    }

    async fn again(&self, message: &Message, attempt: u32, due: Due, reason: &Reason) -> Settled {
        let retry = Retry { delivery: &message.delivery, attempt, due, reason };
        match ledger("writing a retry", self.ledger.retry(retry)).await {
            Ok(()) => Settled::Ack,
            Err(outage) => Settled::Outage(outage),
        }
    }

    /// Moves the message, then parks the card. A crash in between leaves a second dead letter; the other way round it would
    /// leave none: a parked card's message is simply done when it comes again.
    async fn bury(&self, message: &Message, reason: &Reason) -> Settled {
        match self.dead.bury(message, reason).await {
            Ok(Published::Confirmed) => {
                if let Err(outage) = ledger("parking", self.ledger.dead(&message.delivery, reason)).await {
                    return Settled::Outage(outage);
                }
                tracing::error!(
                    code = reason.code,
                    detail = reason.detail,
                    "dead-lettered; it waits for a replay"
                );
                Settled::Ack
            }
            Ok(Published::Refused) => {
                Settled::Outage(Reason::new("dead_letter_refused", "the dead-letter queue is full"))
            }
            Ok(Published::Returned { text, .. }) => {
                Settled::Outage(Reason::new("dead_letter_returned", text))
            }
            Err(error) => Settled::Outage(Reason::new("dead_letter_failed", error.chain())),
        }
    }
}

async fn ledger(
    step: &'static str,
    call: impl Future<Output = Result<(), LedgerError>>,
) -> Result<(), Reason> {
    match tokio::time::timeout(LEDGER_WITHIN, call).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(Reason::new("ledger", format!("{step}: {error}"))),
        Err(_) => Err(Reason::new("ledger", format!("{step}: no answer within {LEDGER_WITHIN:?}"))),
    }
}

fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Done => "done",
        Outcome::Retry(_) | Outcome::RetryOn(..) => "retry",
        Outcome::Later { .. } => "later",
        Outcome::Dead(_) => "dead",
        Outcome::Outage(_) => "outage",
    }
}

/// What a task that did not end by itself left behind.
pub(crate) fn panic_text(error: tokio::task::JoinError) -> String {
    match error.try_into_panic() {
        Ok(payload) => payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "a panic without a text".to_owned()),
        Err(error) => error.to_string(),
    }
}
