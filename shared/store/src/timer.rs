//! The one timer: cards whose `next_check_at` has come (R-H1, INV-2).

use std::collections::HashSet;

use cards::{Card, CardId, Ids, Look, StateName, Timestamp, timing};
use events::work::Queue;
use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::StoreError;
use crate::history::{self, Note};
use crate::outbox::Due;
use crate::row::CardRow;
use crate::tickets::seconds;

/// What was claimed.
#[derive(Clone, Debug, PartialEq)]
pub struct Claimed {
    /// The database's time of the claim: a listing that follows has *begun* at or after it.
    pub at: Timestamp,
    /// How many cards were due. One may be in several of the lists below.
    pub due: usize,
    /// `pending` cards to look at in the store.
    pub pending: Vec<Card>,
    /// `queued` and `processing` cards that got a fresh decode message in this transaction.
    pub decodes: Vec<CardId>,
    /// Cards that owe a purge and got a fresh message in this transaction.
    pub purges: Vec<CardId>,
    /// Cards whose message lies dead: looked at, left alone.
    pub parked: usize,
    /// Cards whose work is overdue and whose message waits in the outbox already, and finished cards that owe nothing.
    pub waiting: usize,
    /// Rows that can't be read: told, and left for an hour. They stop nobody else.
    pub unreadable: Vec<CardId>,
}

impl Claimed {
    /// Whether nothing was due.
    pub fn is_empty(&self) -> bool {
        self.due == 0
    }
}

/// Claims due cards: their next look moves on in this transaction, and overdue work gets a fresh message in it, unless one
/// waits in the outbox already.
pub async fn claim(connection: &mut PgConnection, ids: Ids, limit: i64) -> Result<Claimed, StoreError> {
    let at = crate::clock::now(&mut *connection).await?;
    let rows = sqlx::query_as!(
        CardRow,
        "select *
         from cards
         where next_check_at <= now()
         order by next_check_at
         limit $1
         for update skip locked",
        limit,
    )
    .fetch_all(&mut *connection)
    .await?;
    let mut claimed = Claimed {
        at,
        due: rows.len(),
        pending: Vec::new(),
        decodes: Vec::new(),
        purges: Vec::new(),
        parked: 0,
        waiting: 0,
        unreadable: Vec::new(),
    };
    let has_message = waiting_messages(&mut *connection, &rows).await?;
    let mut moves = Moves::default();
    for row in rows {
        let id = CardId(row.id);
        let card = match row.into_card() {
            Ok(card) => card,
            Err(error) => {
                tracing::error!(card.id = %id, %error, "a due card can't be read; looking again in an hour");
                claimed.unreadable.push(id);
                moves.push(id, Some(at + timing::PARKED_LOOK), false);
                continue;
            }
        };
        let look = card.look(at);
        let decode = look.decode && !has_message.contains(&(id, Queue::Decode));
        let purge = look.purge && !has_message.contains(&(id, Queue::Purge));
        moves.push(id, look.next, look.decode || look.purge);
        claimed.take(card, look, decode, purge);
    }
    moves.write(&mut *connection).await?;
    enqueue(&mut *connection, ids, Queue::Decode, &claimed.decodes).await?;
    enqueue(connection, ids, Queue::Purge, &claimed.purges).await?;
    Ok(claimed)
}

impl Claimed {
    fn take(&mut self, card: Card, look: Look, decode: bool, purge: bool) {
        if decode {
            self.decodes.push(card.id);
        }
        if purge {
            self.purges.push(card.id);
        }
        match (look.lists, decode || purge, card.parked.is_some()) {
            (true, ..) => self.pending.push(card),
            (false, true, _) => {}
            (false, false, true) => self.parked += 1,
            (false, false, false) => self.waiting += 1,
        }
    }
}

/// Which of these cards have a message in the outbox, now or later.
async fn waiting_messages(
    connection: &mut PgConnection,
    rows: &[CardRow],
) -> Result<HashSet<(CardId, Queue)>, StoreError> {
    let cards: Vec<Uuid> = rows.iter().map(|row| row.id).collect();
    let waiting = sqlx::query!(
        r#"select distinct card_id as "card_id!", queue
         from outbox
         where card_id = any($1)
           and queue in ('card.decode', 'card.purge')"#,
        &cards,
    )
    .fetch_all(connection)
    .await?;
    Ok(waiting
        .into_iter()
        .filter_map(|row| Some((CardId(row.card_id), row.queue.parse::<Queue>().ok()?)))
        .collect())
}

/// The next looks of one claim, written in one statement.
#[derive(Default)]
struct Moves {
    cards: Vec<Uuid>,
    next: Vec<Option<Timestamp>>,
    overdue: Vec<bool>,
}

impl Moves {
    fn push(&mut self, card: CardId, next: Option<Timestamp>, overdue: bool) {
        self.cards.push(card.0);
        self.next.push(next);
        self.overdue.push(overdue);
    }

    async fn write(&self, connection: &mut PgConnection) -> Result<(), StoreError> {
        sqlx::query!(
            "update cards c
             set next_check_at = m.next,
                 overdue_looks = case when m.overdue then c.overdue_looks + 1 else 0 end
             from unnest($1::uuid[], $2::timestamptz[], $3::boolean[]) as m (id, next, overdue)
             where c.id = m.id",
            &self.cards,
            &self.next as &[Option<Timestamp>],
            &self.overdue,
        )
        .execute(connection)
        .await?;
        Ok(())
    }
}

async fn enqueue(
    connection: &mut PgConnection,
    ids: Ids,
    queue: Queue,
    cards: &[CardId],
) -> Result<(), StoreError> {
    let card_ids: Vec<Uuid> = cards.iter().map(|card| card.0).collect();
    let message_ids: Vec<Uuid> = cards.iter().map(|_| ids.message().0).collect();
    sqlx::query!(
        r#"insert into outbox (queue, message_id, card_id, body, traceparent, reason)
         select $1, w.message_id, c.id, convert_to(format('{"card":"%s"}', c.id), 'UTF8'), c.traceparent, 'overdue'
         from unnest($2::uuid[], $3::uuid[]) as w (id, message_id)
         join cards c on c.id = w.id"#,
        queue.as_str(),
        &card_ids,
        &message_ids,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Leaves a card alone until its retry has had its turn: the timer looks at it a while after that. A purge's retry does not
/// hold up the looks that confirmation and decoding want.
pub async fn wait_for_retry(
    connection: &mut PgConnection,
    id: CardId,
    queue: Queue,
    due: Due,
) -> Result<(), StoreError> {
    let (after, at) = due.parts();
    sqlx::query!(
        "update cards
         set next_check_at = greatest(
             next_check_at, coalesce($2, now() + make_interval(secs => $3)) + make_interval(secs => $4)
         )
         where id = $1
           and next_check_at is not null
           and ($5 <> 'card.purge' or state not in ('pending', 'queued', 'processing'))",
        id.0,
        at,
        after,
        seconds(timing::QUEUED_TOO_LONG),
        queue.as_str(),
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

/// Marks a card whose message was dead-lettered: that queue's work on it waits for a replay, with an hourly look (R-C7,
/// R-H1). A card that somebody works on, or that owes nothing any more, is not parked: the dead message was a late one.
pub async fn park(
    connection: &mut PgConnection,
    id: CardId,
    queue: Queue,
    reason: &str,
) -> Result<bool, StoreError> {
    let row = sqlx::query!(
        "update cards
         set parked_at = now(),
             parked_queue = $2,
             parked_reason = $3,
             -- a look that is due sooner may be for other work: it stands, and the next ones are hourly
             next_check_at = least(next_check_at, now() + make_interval(secs => $4))
         where id = $1
           -- a purge that lies dead makes room for a decode that does: that one is what the card waits for
           and (parked_at is null or (parked_queue = 'card.purge' and $2 = 'card.decode'))
           and case $2
               when 'card.decode' then state = 'queued' or (state = 'processing' and lease_until <= now())
               when 'card.purge' then
                   purge_at is not null
                   or state = 'deleting'
                   or (state in ('rejected', 'expired', 'duplicate') and purged_at is null)
               else false
           end
         returning owner_id, revision, state",
        id.0,
        queue.as_str(),
        reason,
        seconds(timing::PARKED_LOOK),
    )
    .fetch_optional(&mut *connection)
    .await?;
    let Some(row) = row else { return Ok(false) };
    let detail = json!({ "queue": queue.as_str(), "reason": reason });
    note(connection, id, row.owner_id, row.revision, &row.state, "parked", detail).await?;
    Ok(true)
}

/// Ends the parking of a card, for a replay: its attempts begin anew, and the timer looks soon. False: it was not parked
/// for this queue.
pub async fn unpark(connection: &mut PgConnection, id: CardId, queue: Queue) -> Result<bool, StoreError> {
    let row = sqlx::query!(
        "update cards
         set parked_at = null,
             parked_queue = null,
             parked_reason = null,
             attempts = case when $2 = 'card.decode' then 0 else attempts end,
             overdue_looks = 0,
             next_check_at = now() + make_interval(secs => $3)
         where id = $1
           and parked_queue = $2
         returning owner_id, revision, state",
        id.0,
        queue.as_str(),
        seconds(timing::QUEUED_TOO_LONG),
    )
    .fetch_optional(&mut *connection)
    .await?;
    let Some(row) = row else { return Ok(false) };
    let detail = json!({ "queue": queue.as_str() });
    note(connection, id, row.owner_id, row.revision, &row.state, "unparked", detail).await?;
    Ok(true)
}

async fn note(
    connection: &mut PgConnection,
    card: CardId,
    owner: Uuid,
    revision: i64,
    state: &str,
    event: &str,
    detail: serde_json::Value,
) -> Result<(), StoreError> {
    let state: StateName = state.parse().map_err(|_| StoreError::Unreadable {
        card: card.to_string(),
        column: "state",
        value: state.to_owned(),
    })?;
    history::note(connection, Note { owner: cards::OwnerId(owner), card, revision, event, state, detail })
        .await
}
