//! How a consumer's retries and dead letters are written down: outbox rows due later (R-I2), and parked cards (R-C7).

use async_trait::async_trait;
use broker::{Delivery, Due, Ledger, LedgerError, Reason, Retry};
use cards::Ids;
use events::work::{CardMessage, Outgoing, Queue};
use store::outbox::{self, NewRow};
use store::{Db, StoreError};

/// The ledger of every consumer.
#[derive(Clone, Debug)]
pub struct OutboxLedger {
    db: Db,
    ids: Ids,
}

impl OutboxLedger {
    /// A ledger that writes to this database.
    pub fn new(db: Db, ids: Ids) -> Self {
        Self { db, ids }
    }

    async fn write_retry(&self, retry: &Retry<'_>) -> Result<(), StoreError> {
        let row = NewRow {
            message: Outgoing {
                queue: retry.delivery.queue,
                message_id: self.ids.message(),
                attempt: retry.attempt,
                traceparent: retry.delivery.traceparent.clone(),
                body: retry.delivery.body.clone(),
            },
            card: card_of(retry.delivery),
            due: match retry.due {
                Due::In(delay) => outbox::Due::After(chrono::TimeDelta::from_std(delay).unwrap_or_default()),
                Due::At(at) => outbox::Due::At(at),
            },
            reason: Some(text(retry.reason)),
        };
        let mut tx = self.db.begin().await?;
        outbox::enqueue(&mut tx, &row).await?;
        if let Some(card) = row.card {
            // Or the timer would take the card for forgotten while its retry waits, and write a first attempt beside it.
            store::timer::wait_for_retry(&mut tx, card, row.message.queue, row.due).await?;
        }
        tx.commit().await
    }

    async fn park(&self, delivery: &Delivery, reason: &Reason) -> Result<(), StoreError> {
        let Some(card) = card_of(delivery) else { return Ok(()) };
        let reason = text(reason);
        let mut tx = self.db.begin().await?;
        store::timer::park(&mut tx, card, delivery.queue, &reason).await?;
        tx.commit().await
    }
}

/// Longest reason kept, in characters: it is for people, and some quote what came from outside.
const REASON_CHARS_MAX: usize = 1000;

/// A reason as it is stored. PostgreSQL refuses a NUL in a text (O-TX-01): a reason that quoted one could never be written,
/// and its message would come back for ever.
fn text(reason: &Reason) -> String {
    let whole = format!("{}: {}", reason.code, reason.detail);
    whole.chars().filter(|c| *c != '\0').take(REASON_CHARS_MAX).collect()
}

/// The card a message is about. A bucket event parks nothing: its card is `pending`, and the timer must go on looking
/// at it whatever became of the event (R-B9).
fn card_of(delivery: &Delivery) -> Option<cards::CardId> {
    match delivery.queue {
        Queue::Confirm => None,
        Queue::Decode | Queue::Purge => CardMessage::parse(&delivery.body).ok().map(|message| message.card),
    }
}

#[async_trait]
impl Ledger for OutboxLedger {
    async fn retry(&self, retry: Retry<'_>) -> Result<(), LedgerError> {
        Ok(self.write_retry(&retry).await?)
    }

    async fn dead(&self, delivery: &Delivery, reason: &Reason) -> Result<(), LedgerError> {
        Ok(self.park(delivery, reason).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_can_always_be_stored() {
        let reason = Reason::new("store", format!("a\0b{}", "é".repeat(5000)));
        let text = text(&reason);
        assert!(text.starts_with("store: ab") && !text.contains('\0'));
        assert_eq!(text.chars().count(), REASON_CHARS_MAX);
    }
}
