//! The outbox: messages that exist only once their transaction committed (INV-2).

use cards::{CardId, MessageId, Timestamp};
use chrono::TimeDelta;
use events::work::{Outgoing, Queue};
use sqlx::PgConnection;

use crate::StoreError;
use crate::tickets::seconds;

/// When a row may be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// At once.
    Now,
    /// This long after the transaction began.
    After(TimeDelta),
    /// At this time of the database.
    At(Timestamp),
}

impl Due {
    /// Seconds from the transaction's beginning, or a time that stands above them.
    pub(crate) fn parts(self) -> (f64, Option<Timestamp>) {
        match self {
            Self::Now => (0.0, None),
            Self::After(span) => (seconds(span), None),
            Self::At(at) => (0.0, Some(at)),
        }
    }
}

/// A row to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRow {
    /// The message.
    pub message: Outgoing,
    /// The card it is about, where there is one.
    pub card: Option<CardId>,
    /// When it may be published.
    pub due: Due,
    /// Why it is a retry.
    pub reason: Option<String>,
}

/// Writes a row in the caller's transaction.
pub async fn enqueue(connection: &mut PgConnection, row: &NewRow) -> Result<(), StoreError> {
    let (after, at) = row.due.parts();
    sqlx::query!(
        "insert into outbox (queue, message_id, card_id, attempt, body, traceparent, reason, available_at)
         values ($1, $2, $3, $4, $5, $6, $7, coalesce($8, now() + make_interval(secs => $9)))",
        row.message.queue.as_str(),
        row.message.message_id.0,
        row.card.map(|card| card.0),
        i32::try_from(row.message.attempt).unwrap_or(i32::MAX),
        row.message.body,
        row.message.traceparent,
        row.reason,
        at,
        after,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// A due row, locked by the claiming transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its id.
    pub id: i64,
    /// The message.
    pub message: Outgoing,
    /// How often the broker has returned or refused it.
    pub publish_attempts: u32,
}

/// Claims due rows in the order they became due. They stay locked until the transaction ends; other relays skip them.
pub async fn claim(connection: &mut PgConnection, limit: i64) -> Result<Vec<Row>, StoreError> {
    let rows = sqlx::query!(
        "select id, queue, message_id, attempt, body, traceparent, publish_attempts
         from outbox
         where available_at <= now()
         order by available_at, id
         limit $1
         for update skip locked",
        limit,
    )
    .fetch_all(connection)
    .await?;
    rows.into_iter()
        .map(|row| {
            let queue: Queue = row.queue.parse().map_err(|_| StoreError::Unreadable {
                card: format!("outbox {}", row.id),
                column: "queue",
                value: row.queue.clone(),
            })?;
            Ok(Row {
                id: row.id,
                message: Outgoing {
                    queue,
                    message_id: MessageId(row.message_id),
                    attempt: row.attempt.unsigned_abs(),
                    traceparent: row.traceparent,
                    body: row.body,
                },
                publish_attempts: row.publish_attempts.unsigned_abs(),
            })
        })
        .collect()
}

/// Deletes published rows, in the claiming transaction.
pub async fn delete(connection: &mut PgConnection, ids: &[i64]) -> Result<u64, StoreError> {
    Ok(sqlx::query!("delete from outbox where id = any($1)", ids).execute(connection).await?.rows_affected())
}

/// Pushes back a row that the broker returned or refused: it is due again after `delay`, and harms no other row.
pub async fn push_back(
    connection: &mut PgConnection,
    id: i64,
    delay: TimeDelta,
    error: &str,
) -> Result<(), StoreError> {
    sqlx::query!(
        "update outbox
         set available_at = now() + make_interval(secs => $2),
             publish_attempts = publish_attempts + 1,
             last_error = $3
         where id = $1",
        id,
        seconds(delay),
        error,
    )
    .execute(connection)
    .await?;
    Ok(())
}
