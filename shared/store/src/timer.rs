//! The one timer: cards whose `next_check_at` has come (R-H1, INV-2).

use cards::{Card, CardId, Ids, StateName, Timestamp, timing};
use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::StoreError;
use crate::history::{self, Note};
use crate::row::CardRow;
use crate::tickets::seconds;

/// For how long a claimed card is nobody else's: a janitor that dies leaves it due again after this.
pub const CLAIM_SECONDS: f64 = 60.0;

/// What was claimed.
#[derive(Clone, Debug, PartialEq)]
pub struct Claimed {
    /// The database's time of the claim: a listing that follows has *begun* at or after it.
    pub at: Timestamp,
    /// `pending` cards to look at in the store.
    pub pending: Vec<Card>,
    /// `queued` and `processing` cards that got a fresh decode message in this transaction.
    pub enqueued: Vec<CardId>,
    /// Parked cards: looked at, left alone.
    pub parked: usize,
}

impl Claimed {
    /// Whether nothing was due.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.enqueued.is_empty() && self.parked == 0
    }
}

/// Claims due cards: their next look moves on in this transaction, and overdue work gets a fresh message in it.
///
/// Overdue purges are left for the deleter's part: only unfinished intake is claimed here.
pub async fn claim(connection: &mut PgConnection, ids: Ids, limit: i64) -> Result<Claimed, StoreError> {
    let at = sqlx::query_scalar!(r#"select now() as "now!""#).fetch_one(&mut *connection).await?;
    let rows = sqlx::query_as!(
        CardRow,
        "with due as (
             select id
             from cards
             where next_check_at <= now()
               and state in ('pending', 'queued', 'processing')
             order by next_check_at
             limit $1
             for update skip locked
         )
         update cards c
         set next_check_at = now() + make_interval(secs => case
             when c.parked_at is not null then $2::float8
             when c.state = 'pending' then $3::float8
             else $4::float8
         end)
         from due
         where c.id = due.id
         returning c.*",
        limit,
        seconds(timing::PARKED_LOOK),
        CLAIM_SECONDS,
        seconds(timing::QUEUED_TOO_LONG),
    )
    .fetch_all(&mut *connection)
    .await?;
    let mut claimed = Claimed { at, pending: Vec::new(), enqueued: Vec::new(), parked: 0 };
    for row in rows {
        let card = row.into_card()?;
        match card.state.name() {
            _ if card.parked.is_some() => claimed.parked += 1,
            StateName::Pending => claimed.pending.push(card),
            StateName::Queued | StateName::Processing => claimed.enqueued.push(card.id),
            StateName::Ready
            | StateName::Duplicate
            | StateName::Rejected
            | StateName::Expired
            | StateName::Deleting
            | StateName::Deleted => {}
        }
    }
    enqueue_decodes(connection, ids, &claimed.enqueued).await?;
    Ok(claimed)
}

async fn enqueue_decodes(
    connection: &mut PgConnection,
    ids: Ids,
    cards: &[CardId],
) -> Result<(), StoreError> {
    let card_ids: Vec<Uuid> = cards.iter().map(|card| card.0).collect();
    let message_ids: Vec<Uuid> = cards.iter().map(|_| ids.message().0).collect();
    sqlx::query!(
        r#"insert into outbox (queue, message_id, card_id, body, traceparent, reason)
         select 'card.decode', w.message_id, c.id, convert_to(format('{"card":"%s"}', c.id), 'UTF8'), c.traceparent,
                'overdue'
         from unnest($1::uuid[], $2::uuid[]) as w (id, message_id)
         join cards c on c.id = w.id"#,
        &card_ids,
        &message_ids,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Records that a pending card was looked at and nothing that fits was there; it is looked at again at `next`. Guarded
/// by the revision: a renewal set its own next look.
pub async fn looked(connection: &mut PgConnection, card: &Card, next: Timestamp) -> Result<bool, StoreError> {
    let looked = sqlx::query!(
        "update cards
         set looks = looks + 1,
             next_check_at = $3
         where id = $1
           and state = 'pending'
           and revision = $2",
        card.id.0,
        card.revision,
        next,
    )
    .execute(connection)
    .await?;
    Ok(looked.rows_affected() == 1)
}

/// What came of expiring a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    /// It is `expired`.
    Yes,
    /// It moved or was renewed since it was read, or the listing began too early: it is decided again.
    LostRace,
}

/// Expires a pending card after a listing begun at `listed_at` found nothing that fits (R-B7).
pub async fn expire(
    connection: &mut PgConnection,
    ids: Ids,
    card: &Card,
    listed_at: Timestamp,
) -> Result<Expired, StoreError> {
    let moved = sqlx::query!(
        "update cards
         set state = 'expired',
             revision = revision + 1,
             next_check_at = now() + make_interval(secs => $4),
             updated_at = now()
         where id = $1
           and state = 'pending'
           and revision = $2
           and $3 >= ticket_ends_at + make_interval(secs => $4)
         returning owner_id, revision",
        card.id.0,
        card.revision,
        listed_at,
        seconds(timing::SETTLED_AFTER_END),
    )
    .fetch_optional(&mut *connection)
    .await?;
    let Some(moved) = moved else { return Ok(Expired::LostRace) };
    history::note(
        &mut *connection,
        Note {
            owner: cards::OwnerId(moved.owner_id),
            card: card.id,
            revision: moved.revision,
            event: "expired",
            state: StateName::Expired,
            detail: json!({ "listed_at": listed_at, "looks": card.looks + 1 }),
        },
    )
    .await?;
    crate::purge::request(connection, ids, card.id, "expired").await?;
    Ok(Expired::Yes)
}

/// Marks a card whose message was dead-lettered: it waits for a replay, with an hourly look (R-C7, R-H1).
pub async fn park(
    connection: &mut PgConnection,
    id: CardId,
    queue: &str,
    reason: &str,
) -> Result<bool, StoreError> {
    let row = sqlx::query!(
        "update cards
         set parked_at = now(),
             parked_queue = $2,
             parked_reason = $3,
             next_check_at = now() + make_interval(secs => $4)
         where id = $1
           and state in ('queued', 'processing', 'deleting')
         returning owner_id, revision, state",
        id.0,
        queue,
        reason,
        seconds(timing::PARKED_LOOK),
    )
    .fetch_optional(&mut *connection)
    .await?;
    let Some(row) = row else { return Ok(false) };
    history::note(
        connection,
        Note {
            owner: cards::OwnerId(row.owner_id),
            card: id,
            revision: row.revision,
            event: "parked",
            state: row.state.parse().map_err(|_| StoreError::Unreadable {
                card: id.to_string(),
                column: "state",
                value: row.state.clone(),
            })?,
            detail: json!({ "queue": queue, "reason": reason }),
        },
    )
    .await?;
    Ok(true)
}
