//! Every move to `deleting` (R-E1): by its owner, by its replacement, with its original.
//!
//! One function writes it, so that all of them clear the lease, wait the same, leave a history line and a message due
//! when the wait is over. New downloads stop at the caller's COMMIT.

use cards::{Card, CardId, Ids, OwnerId, StateName, timing};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::StoreError;
use crate::row::CardRow;
use crate::tickets::seconds;

/// What came of asking for a deletion.
#[derive(Clone, Debug, PartialEq)]
pub enum Requested {
    /// It is `deleting` now.
    Now {
        /// The card.
        card: Box<Card>,
        /// Aliases that went with it (R-C6).
        aliases: Vec<CardId>,
    },
    /// It was `deleting` or `deleted` before: as it is.
    Before(Box<Card>),
    /// The owner has no such card.
    NotThere,
}

/// Why a card is deleted; the word in its timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its owner asked.
    Owner,
    /// Another file took its place.
    Replaced {
        /// That file.
        by: CardId,
    },
}

/// Deletes an owner's card, and its aliases with it.
pub async fn request(
    connection: &mut PgConnection,
    ids: Ids,
    owner: OwnerId,
    id: CardId,
) -> Result<Requested, StoreError> {
    let Some(card) = lock(&mut *connection, owner, id).await? else { return Ok(Requested::NotThere) };
    match card.state.name() {
        StateName::Deleting | StateName::Deleted => return Ok(Requested::Before(Box::new(card))),
        StateName::Pending
        | StateName::Queued
        | StateName::Processing
        | StateName::Ready
        | StateName::Duplicate
        | StateName::Rejected
        | StateName::Expired => {}
    }
    let aliases = begin(&mut *connection, ids, &card, Why::Owner).await?;
    let card = crate::cards::of_owner(connection, owner, id).await?;
    Ok(card.map_or(Requested::NotThere, |card| Requested::Now { card: Box::new(card), aliases }))
}

/// The owner's card, locked until the transaction ends.
pub(crate) async fn lock(
    connection: &mut PgConnection,
    owner: OwnerId,
    id: CardId,
) -> Result<Option<Card>, StoreError> {
    sqlx::query_as!(CardRow, "select * from cards where owner_id = $1 and id = $2 for update", owner.0, id.0)
        .fetch_optional(connection)
        .await?
        .map(CardRow::into_card)
        .transpose()
}

/// Moves a card that the transaction has locked, and its aliases, to `deleting`. Answers the aliases.
///
/// An alias that is being made at this moment waits for the card's lock, then finds that it is not `ready` any more
/// (R-C6); one that is made already is seen by this statement, which reads after the lock was had.
pub(crate) async fn begin(
    connection: &mut PgConnection,
    ids: Ids,
    card: &Card,
    why: Why,
) -> Result<Vec<CardId>, StoreError> {
    let mut moving: Vec<Uuid> = vec![card.id.0];
    moving.extend(
        sqlx::query_scalar!(
            "select id
             from cards
             where owner_id = $1
               and original_id = $2
               and state = 'duplicate'
             order by id
             for update",
            card.owner.0,
            card.id.0,
        )
        .fetch_all(&mut *connection)
        .await?,
    );
    let messages: Vec<Uuid> = moving.iter().map(|_| ids.message().0).collect();
    let (word, by) = match why {
        Why::Owner => ("owner", None),
        Why::Replaced { by } => ("replacement", Some(by)),
    };
    let moved = sqlx::query_scalar!(
        r#"with wanted as (
             select * from unnest($1::uuid[], $2::uuid[]) as w (id, message_id)
         ),
         moved as (
             update cards c
             set state = 'deleting',
                 revision = c.revision + 1,
                 lease_token = null,
                 lease_until = null,
                 object_version = null,
                 object_etag = null,
                 ready_at = null,
                 derivatives = '[]',
                 original_id = null,
                 orphan_since = null,
                 -- what lay dead was about a card that is going: its purge is a new piece of work
                 parked_at = null,
                 parked_queue = null,
                 parked_reason = null,
                 overdue_looks = 0,
                 delete_requested_at = now(),
                 delete_after = greatest(
                     now() + make_interval(secs => $3), c.ticket_ends_at + make_interval(secs => $4)
                 ),
                 next_check_at = greatest(
                     now() + make_interval(secs => $3), c.ticket_ends_at + make_interval(secs => $4)
                 ) + make_interval(secs => $5),
                 updated_at = now()
             from wanted w
             where c.id = w.id
               and c.state not in ('deleting', 'deleted')
             returning c.id, c.owner_id, c.revision, c.delete_after, c.traceparent, w.message_id
         ),
         noted as (
             insert into card_history (owner_id, card_id, revision, event, state, detail)
             select owner_id, id, revision, 'delete_requested', 'deleting',
                    jsonb_build_object('delete_after', delete_after) || case
                        when id <> $6 then jsonb_build_object('by', 'original', 'original', $6)
                        when $8::uuid is null then jsonb_build_object('by', $7::text)
                        else jsonb_build_object('by', $7::text, 'replacement', $8)
                    end
             from moved
         ),
         purges as (
             insert into outbox (queue, message_id, card_id, body, traceparent, reason, available_at)
             select 'card.purge', message_id, id, convert_to(format('{"card":"%s"}', id), 'UTF8'), traceparent,
                    'deleted', delete_after
             from moved
         )
         select id as "id!" from moved order by id"#,
        &moving,
        &messages,
        seconds(timing::DELETE_WAIT),
        seconds(timing::SETTLED_AFTER_END),
        seconds(timing::QUEUED_TOO_LONG),
        card.id.0,
        word,
        by.map(|by| by.0),
    )
    .fetch_all(connection)
    .await?;
    Ok(moved.into_iter().filter(|id| *id != card.id.0).map(CardId).collect())
}

/// What the file that a new one takes the place of allows (R-F1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replaceable {
    /// It is served; it may be replaced.
    Yes,
    /// It is in a state that serves nothing.
    No(StateName),
    /// The owner has no such card.
    NotThere,
}

/// Whether a card may be replaced: `ready`, or a `duplicate`, the alias of a ready one.
pub async fn replaceable(
    connection: &mut PgConnection,
    owner: OwnerId,
    id: CardId,
) -> Result<Replaceable, StoreError> {
    let Some(card) = crate::cards::of_owner(connection, owner, id).await? else {
        return Ok(Replaceable::NotThere);
    };
    Ok(match card.state.name() {
        StateName::Ready | StateName::Duplicate => Replaceable::Yes,
        state @ (StateName::Pending
        | StateName::Queued
        | StateName::Processing
        | StateName::Rejected
        | StateName::Expired
        | StateName::Deleting
        | StateName::Deleted) => Replaceable::No(state),
    })
}

/// The swap, in the transaction that made `card` ready: the file it replaces becomes `deleting`, if it is still there to be
/// replaced. Answers it and its aliases; none: the new file is a plain one (R-F1).
pub(crate) async fn swap(
    connection: &mut PgConnection,
    ids: Ids,
    owner: OwnerId,
    card: CardId,
    replaced: CardId,
) -> Result<Vec<CardId>, StoreError> {
    let Some(old) = lock(&mut *connection, owner, replaced).await? else { return Ok(Vec::new()) };
    match old.state.name() {
        StateName::Ready | StateName::Duplicate => {
            let mut gone = vec![old.id];
            gone.extend(begin(connection, ids, &old, Why::Replaced { by: card }).await?);
            Ok(gone)
        }
        StateName::Pending
        | StateName::Queued
        | StateName::Processing
        | StateName::Rejected
        | StateName::Expired
        | StateName::Deleting
        | StateName::Deleted => Ok(Vec::new()),
    }
}
