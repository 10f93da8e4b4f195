//! Purges in the database: asking for one, who does it, what it is about to remove, and what its clean listing proves
//! (DESIGN "Purge", R-E2 to R-E5).
//!
//! Everybody asks through [`request`]: a time on the card and a message. The deleter claims ([`claim`]), lists, reads the
//! card ([`read`]), writes down what it removes ([`record`]), removes, and when a listing shows no stranger, [`settle`]s:
//! that is the commit point.

use cards::purge::{self, Proof};
use cards::{Card, CardId, ETag, Ids, OwnerId, StateName, Timestamp, VersionId, timing};
use chrono::TimeDelta;
use serde::Serialize;
use serde_json::json;
use sqlx::PgConnection;

use crate::StoreError;
use crate::history::{self, Note};
use crate::row::CardRow;
use crate::tickets::seconds;

/// Sets `purge_at` to now, or leaves a later one, and writes the message. Works in every state; a card that is not
/// there owes nothing.
pub async fn request(
    connection: &mut PgConnection,
    ids: Ids,
    card: CardId,
    reason: &str,
) -> Result<(), StoreError> {
    sqlx::query!(
        r#"with asked as (
             update cards
             -- not the transaction's beginning: a listing may have begun, and the card been read, since then
             set purge_at = greatest(purge_at, clock_timestamp()),
                 next_check_at = coalesce(next_check_at, now() + make_interval(secs => $4))
             where id = $1
             returning id, traceparent
         )
         insert into outbox (queue, message_id, card_id, body, traceparent, reason)
         select 'card.purge', $2, id, convert_to(format('{"card":"%s"}', id), 'UTF8'), traceparent, $3
         from asked"#,
        card.0,
        ids.message().0,
        reason,
        seconds(timing::QUEUED_TOO_LONG),
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// What came of claiming a card's purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// It is ours. A listing that follows has *begun* at or after this time of the database.
    Yes {
        /// That time.
        at: Timestamp,
    },
    /// Another deleter has it until then.
    Held {
        /// The end of its claim.
        until: Timestamp,
    },
    /// No such card.
    NotThere,
}

/// Claims a card's purge for `life`, so that two deleters don't meet. Only a saving: two that meet do the same twice.
pub async fn claim(
    connection: &mut PgConnection,
    card: CardId,
    life: TimeDelta,
) -> Result<Claimed, StoreError> {
    let at = sqlx::query_scalar!(
        r#"update cards
         set purge_until = now() + make_interval(secs => $2)
         where id = $1
           and (purge_until is null or purge_until <= now())
         returning now() as "now!""#,
        card.0,
        seconds(life),
    )
    .fetch_optional(&mut *connection)
    .await?;
    if let Some(at) = at {
        return Ok(Claimed::Yes { at });
    }
    let held = sqlx::query_scalar!(
        // A claim given back since the UPDATE looked: the message simply comes again.
        r#"select coalesce(purge_until, now()) as "until!" from cards where id = $1"#,
        card.0,
    )
    .fetch_optional(connection)
    .await?;
    Ok(held.map_or(Claimed::NotThere, |until| Claimed::Held { until }))
}

/// Gives a claim back after a purge that failed.
pub async fn release(connection: &mut PgConnection, card: CardId) -> Result<(), StoreError> {
    sqlx::query!("update cards set purge_until = null where id = $1", card.0).execute(connection).await?;
    Ok(())
}

/// The card as it is now, and the database's time of this reading: what a listing taken before it is compared with.
pub async fn read(
    connection: &mut PgConnection,
    id: CardId,
) -> Result<Option<(Card, Timestamp)>, StoreError> {
    // The time is read first: a card that is not yet due at it was not due when it was read either.
    let now = crate::clock::now(&mut *connection).await?;
    Ok(crate::cards::by_id(connection, id).await?.map(|card| (card, now)))
}

/// One version that is about to be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// Its key.
    pub key: String,
    /// Its version id.
    pub version: VersionId,
    /// Whether it only says that the key was deleted.
    pub is_delete_marker: bool,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Its entity tag.
    pub etag: Option<ETag>,
    /// When the store took it.
    pub last_modified: Timestamp,
}

/// Writes down what is about to be removed, before the store is asked (R-E5). A version that was written down before is
/// left as it was: the first listing counts.
pub async fn record(
    connection: &mut PgConnection,
    card: &Card,
    listed_at: Timestamp,
    removals: &[Removal],
) -> Result<(), StoreError> {
    let keys: Vec<String> = removals.iter().map(|removal| removal.key.clone()).collect();
    let versions: Vec<String> = removals.iter().map(|removal| removal.version.as_str().to_owned()).collect();
    let markers: Vec<bool> = removals.iter().map(|removal| removal.is_delete_marker).collect();
    let sizes: Vec<i64> =
        removals.iter().map(|removal| i64::try_from(removal.size_bytes).unwrap_or(i64::MAX)).collect();
    let etags: Vec<Option<String>> =
        removals.iter().map(|removal| removal.etag.as_ref().map(|etag| etag.as_str().to_owned())).collect();
    let modified: Vec<Timestamp> = removals.iter().map(|removal| removal.last_modified).collect();
    sqlx::query!(
        "insert into removals (
             owner_id, card_id, key, version, is_delete_marker, size_bytes, etag, last_modified, listed_at, state
         )
         select $1, $2, r.key, r.version, r.marker, r.size_bytes, r.etag, r.modified, $3, $4
         from unnest($5::text[], $6::text[], $7::boolean[], $8::bigint[], $9::text[], $10::timestamptz[])
             as r (key, version, marker, size_bytes, etag, modified)
         on conflict (card_id, key, version) do nothing",
        card.owner.0,
        card.id.0,
        listed_at,
        card.state.name().as_str(),
        &keys,
        &versions,
        &markers,
        &sizes,
        &etags as &[Option<String>],
        &modified,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// What came of settling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It is written down.
    Yes {
        /// What the listing proved.
        proof: Proof,
        /// When the next purge is owed; its message is in the outbox, due then.
        again_at: Option<Timestamp>,
    },
    /// The card moved since it was read: list and read again.
    LostRace,
}

/// Writes down what a listing begun at `listed_at` proves, when it showed nothing but what `card`, read after it, keeps.
/// `is_empty`: it showed nothing at all. Gives the claim back, and leaves a message for what is still owed.
///
/// Guarded by state and revision. `purge_at` is compared again: a request made since then stays (INV-2). `purged_at` is
/// set once, whoever comes (R-E4).
pub async fn settle(
    connection: &mut PgConnection,
    ids: Ids,
    card: &Card,
    listed_at: Timestamp,
    is_empty: bool,
) -> Result<Settled, StoreError> {
    let proof = purge::prove(card, listed_at, is_empty);
    let row = sqlx::query_as!(
        CardRow,
        "update cards
         set state = case when $5 then 'deleted' else state end,
             revision = revision + case when $5 then 1 else 0 end,
             purge_at = case when purge_at <= $3 then null else purge_at end,
             purged_at = case when $4 then coalesce(purged_at, now()) else purged_at end,
             purge_until = null,
             overdue_looks = 0,
             -- an earlier purge that lay dead has been made good
             parked_at = case when parked_queue = 'card.purge' then null else parked_at end,
             parked_reason = case when parked_queue = 'card.purge' then null else parked_reason end,
             parked_queue = case when parked_queue = 'card.purge' then null else parked_queue end,
             updated_at = case when $5 then now() else updated_at end
         where id = $1
           and state = $6
           and revision = $2
         returning *",
        card.id.0,
        card.revision,
        listed_at,
        proof.is_purged,
        proof.is_deleted,
        card.state.name().as_str(),
    )
    .fetch_optional(&mut *connection)
    .await?;
    let Some(row) = row else { return Ok(Settled::LostRace) };
    let after = row.into_card()?;
    note(&mut *connection, &after, proof, listed_at).await?;
    let again_at = purge::owed_at(&after);
    look_again(connection, ids, &after, again_at).await?;
    Ok(Settled::Yes { proof, again_at })
}

async fn note(
    connection: &mut PgConnection,
    card: &Card,
    proof: Proof,
    listed_at: Timestamp,
) -> Result<(), StoreError> {
    if !proof.is_purged && !proof.is_deleted {
        return Ok(());
    }
    if proof.is_deleted {
        sqlx::query!(
            "insert into receipts (
                 card_id, owner_id, requested_at, delete_after, proved_at, versions_removed, bytes_removed
             )
             select c.id, c.owner_id, c.delete_requested_at, c.delete_after, $2,
                    (select count(*) from removals r where r.card_id = c.id)::integer,
                    (select coalesce(sum(r.size_bytes), 0) from removals r where r.card_id = c.id)::bigint
             from cards c
             where c.id = $1
             on conflict (card_id) do nothing",
            card.id.0,
            listed_at,
        )
        .execute(&mut *connection)
        .await?;
    }
    let event = if proof.is_deleted { "deleted" } else { "purged" };
    let state: StateName = card.state.name();
    history::note(
        connection,
        Note {
            owner: card.owner,
            card: card.id,
            revision: card.revision,
            event,
            state,
            detail: json!({ "listed_at": listed_at }),
        },
    )
    .await
}

/// The next purge's message, and the timer's look a while after it. A row that is due later already does: it will look at
/// what is owed then. One that is due now may be the very message that is being handled.
async fn look_again(
    connection: &mut PgConnection,
    ids: Ids,
    card: &Card,
    again_at: Option<Timestamp>,
) -> Result<(), StoreError> {
    if let Some(again_at) = again_at {
        sqlx::query!(
            r#"insert into outbox (queue, message_id, card_id, body, traceparent, reason, available_at)
             select 'card.purge', $2, c.id, convert_to(format('{"card":"%s"}', c.id), 'UTF8'), c.traceparent,
                    'owed', $3
             from cards c
             where c.id = $1
               and not exists (
                   select
                   from outbox o
                   where o.card_id = $1
                     and o.queue = 'card.purge'
                     and o.available_at > now()
                     and o.available_at <= $3
               )"#,
            card.id.0,
            ids.message().0,
            again_at,
        )
        .execute(&mut *connection)
        .await?;
    }
    match card.state.name() {
        // Their own times stand: confirmation and decoding.
        StateName::Pending | StateName::Queued | StateName::Processing => Ok(()),
        StateName::Ready
        | StateName::Duplicate
        | StateName::Rejected
        | StateName::Expired
        | StateName::Deleting
        | StateName::Deleted => {
            sqlx::query!(
                "update cards
                 set next_check_at = case
                         when $2::timestamptz is not null then greatest($2, now()) + make_interval(secs => $3)
                     end
                 where id = $1",
                card.id.0,
                again_at,
                seconds(timing::QUEUED_TOO_LONG),
            )
            .execute(connection)
            .await?;
            Ok(())
        }
    }
}

/// What was removed of a deleted card, and what proves that nothing is left (R-E5). Serialized, it is what the API answers
/// and `arkiv receipt --json` prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Receipt {
    /// The card.
    pub card: CardId,
    /// When deletion was asked for.
    pub requested_at: Timestamp,
    /// The wait that was kept.
    pub delete_after: Timestamp,
    /// The database's time before the listing that came back empty.
    pub proved_at: Timestamp,
    /// When it was recorded.
    pub deleted_at: Timestamp,
    /// Versions and markers removed up to then.
    pub versions_removed: u32,
    /// Their bytes.
    pub bytes_removed: u64,
    /// The first [`RECEIPT_LINES_MAX`] of them, in order of recording; what came late is among them.
    pub removed: Vec<Removed>,
}

/// One line of a receipt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Removed {
    /// Its key.
    pub key: String,
    /// Its version id.
    pub version: String,
    /// Whether it only said that the key was deleted.
    pub is_delete_marker: bool,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Its entity tag.
    pub etag: Option<String>,
    /// When the store had taken it.
    pub last_modified: Timestamp,
    /// The database's time before the listing that showed it.
    pub listed_at: Timestamp,
    /// The card's state that did not keep it.
    pub state: String,
}

/// A card has a handful of versions; past this somebody abuses a ticket, and an operator reads SQL.
pub const RECEIPT_LINES_MAX: i64 = 1000;

/// The receipt of a deleted card; none while it is not `deleted`. `owner`: only this owner's card is there (R-D3).
pub async fn receipt(
    connection: &mut PgConnection,
    owner: Option<OwnerId>,
    card: CardId,
) -> Result<Option<Receipt>, StoreError> {
    let head = sqlx::query!(
        "select requested_at, delete_after, proved_at, deleted_at, versions_removed, bytes_removed
         from receipts
         where card_id = $1
           and ($2::uuid is null or owner_id = $2)",
        card.0,
        owner.map(|owner| owner.0),
    )
    .fetch_optional(&mut *connection)
    .await?;
    let Some(head) = head else { return Ok(None) };
    let removed = sqlx::query!(
        "select key, version, is_delete_marker, size_bytes, etag, last_modified, listed_at, state
         from removals
         where card_id = $1
         order by id
         limit $2",
        card.0,
        RECEIPT_LINES_MAX,
    )
    .fetch_all(connection)
    .await?
    .into_iter()
    .map(|row| Removed {
        key: row.key,
        version: row.version,
        is_delete_marker: row.is_delete_marker,
        size_bytes: row.size_bytes.unsigned_abs(),
        etag: row.etag,
        last_modified: row.last_modified,
        listed_at: row.listed_at,
        state: row.state,
    })
    .collect();
    Ok(Some(Receipt {
        card,
        requested_at: head.requested_at,
        delete_after: head.delete_after,
        proved_at: head.proved_at,
        deleted_at: head.deleted_at,
        versions_removed: head.versions_removed.unsigned_abs(),
        bytes_removed: head.bytes_removed.unsigned_abs(),
        removed,
    }))
}
