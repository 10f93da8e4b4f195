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
            reason: Some(format!("{}: {}", retry.reason.code, retry.reason.detail)),
        };
        let mut tx = self.db.begin().await?;
        outbox::enqueue(&mut tx, &row).await?;
        tx.commit().await
    }

    async fn park(&self, delivery: &Delivery, reason: &Reason) -> Result<(), StoreError> {
        let Some(card) = card_of(delivery) else { return Ok(()) };
        let reason = format!("{}: {}", reason.code, reason.detail);
        let mut tx = self.db.begin().await?;
        store::timer::park(&mut tx, card, delivery.queue.as_str(), &reason).await?;
        tx.commit().await
    }
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
