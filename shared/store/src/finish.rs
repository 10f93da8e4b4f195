//! Step 7 of decoding: the three ends of a job, each guarded by state and token (R-C5 to R-C7).
//!
//! On zero rows the lease was lost: the same transaction asks for a purge, because the worker may have left a copy or
//! derivatives that nobody points at.

use cards::{
    Card, CardId, Derivative, Facts, Ids, LeaseToken, ObjectFacts, OwnerId, Problem, Sha256, StateName,
    timing,
};
use serde_json::json;
use sqlx::PgConnection;

use crate::history::{self, Note};
use crate::row::CardRow;
use crate::tickets::seconds;
use crate::{StoreError, deletion, purge};

/// The index that makes a second ready file with the same bytes impossible (R-C6).
const ONE_READY_PER_HASH: &str = "cards_one_ready_per_hash";

/// What a decoder hands in.
#[derive(Clone, Debug, PartialEq)]
pub struct Accepted {
    /// The card.
    pub card: CardId,
    /// The permanent copy; names the lease. Its `ready_at` is set by the database.
    pub object: ObjectFacts,
    /// What was read from the bytes.
    pub facts: Facts,
    /// What was made of them.
    pub derivatives: Vec<Derivative>,
}

/// What came of handing it in.
#[derive(Clone, Debug, PartialEq)]
pub enum Finished {
    /// The card is where the worker wanted it.
    Done(Box<Card>),
    /// The owner had the same bytes: the card is a duplicate of that file.
    Duplicate(Box<Card>),
    /// The lease was lost; a purge was asked for.
    LostLease,
    /// Another worker made the same bytes ready at this moment: begin a new transaction and hand in again.
    TryAgain,
}

/// Makes the card ready, or a duplicate of the owner's ready file with the same bytes. After [`Finished::TryAgain`] the
/// transaction is dead and must be rolled back.
pub async fn accept(
    connection: &mut PgConnection,
    ids: Ids,
    accepted: &Accepted,
) -> Result<Finished, StoreError> {
    if let Some(original) = lock_others(&mut *connection, accepted).await? {
        return duplicate(connection, ids, accepted, original).await;
    }
    let updated = sqlx::query_as!(
        CardRow,
        "update cards
         set state = 'ready',
             revision = revision + 1,
             lease_token = null,
             lease_until = null,
             accepted_token = $2,
             object_version = $3,
             object_etag = $4,
             sha256 = $5,
             ready_at = now(),
             facts = $6,
             derivatives = $7,
             problem_code = null,
             problem_detail = null,
             orphan_since = case when keep = 'attached' then now() end,
             -- the source goes now; one more purge is owed when no upload can be under way any more (R-H1)
             purge_at = greatest(purge_at, now(), ticket_ends_at + make_interval(secs => $8)),
             next_check_at = greatest(now(), ticket_ends_at + make_interval(secs => $8)),
             -- the work that lay dead was done all the same
             parked_at = case when parked_queue = 'card.decode' then null else parked_at end,
             parked_reason = case when parked_queue = 'card.decode' then null else parked_reason end,
             parked_queue = case when parked_queue = 'card.decode' then null else parked_queue end,
             overdue_looks = 0,
             updated_at = now()
         where id = $1
           and state = 'processing'
           and lease_token = $2
         returning *",
        accepted.card.0,
        accepted.object.token.0,
        accepted.object.version.as_str(),
        accepted.object.etag.as_str(),
        accepted.object.sha256.0.to_vec(),
        json!(accepted.facts),
        json!(accepted.derivatives),
        seconds(timing::SETTLED_AFTER_END),
    )
    .fetch_optional(&mut *connection)
    .await
    .map_err(StoreError::from);
    let row = match updated {
        Err(error) if error.is_constraint(ONE_READY_PER_HASH) => return Ok(Finished::TryAgain),
        other => other?,
    };
    let mut detail = json!({
        "sha256": accepted.object.sha256,
        "object_version": accepted.object.version,
    });
    if let Some(row) = &row
        && let Some(replaced) = row.replaces_id.map(CardId)
    {
        let gone =
            deletion::swap(&mut *connection, ids, OwnerId(row.owner_id), accepted.card, replaced).await?;
        detail["replaces"] = json!(replaced);
        // Deleted meanwhile: the new one is a plain file (R-F1).
        detail["swapped"] = json!(!gone.is_empty());
    }
    ended(connection, ids, accepted.card, row, "ready", detail, "source_accepted").await
}

/// The owner's ready file with these bytes, and the file that this one replaces, are locked in id order until we commit:
/// neither can leave its state. Answers the first.
async fn lock_others(
    connection: &mut PgConnection,
    accepted: &Accepted,
) -> Result<Option<CardId>, StoreError> {
    let others = sqlx::query!(
        r#"with others as (
             select winner.id
             from cards mine
             join cards winner on winner.owner_id = mine.owner_id
             where mine.id = $1
               and winner.sha256 = $2
               and winner.state = 'ready'
               and winner.id <> mine.id
             union
             select replaces_id
             from cards
             where id = $1
               and replaces_id is not null
         )
         -- read again once it is locked: a file that left `ready` meanwhile is no winner
         select c.id, coalesce(c.state = 'ready' and c.sha256 = $2, false) as "is_winner!"
         from cards c
         where c.id in (select id from others)
         order by c.id
         for update"#,
        accepted.card.0,
        accepted.object.sha256.0.to_vec(),
    )
    .fetch_all(connection)
    .await?;
    Ok(others.into_iter().find(|other| other.is_winner).map(|other| CardId(other.id)))
}

async fn duplicate(
    connection: &mut PgConnection,
    ids: Ids,
    accepted: &Accepted,
    original: CardId,
) -> Result<Finished, StoreError> {
    let row = sqlx::query_as!(
        CardRow,
        "update cards
         set state = 'duplicate',
             revision = revision + 1,
             lease_token = null,
             lease_until = null,
             original_id = $3,
             sha256 = $4,
             facts = $5,
             problem_code = null,
             problem_detail = null,
             next_check_at = greatest(now(), ticket_ends_at + make_interval(secs => $6)),
             -- the work that lay dead was done all the same
             parked_at = case when parked_queue = 'card.decode' then null else parked_at end,
             parked_reason = case when parked_queue = 'card.decode' then null else parked_reason end,
             parked_queue = case when parked_queue = 'card.decode' then null else parked_queue end,
             overdue_looks = 0,
             updated_at = now()
         where id = $1
           and state = 'processing'
           and lease_token = $2
         returning *",
        accepted.card.0,
        accepted.object.token.0,
        original.0,
        accepted.object.sha256.0.to_vec(),
        json!(accepted.facts),
        seconds(timing::SETTLED_AFTER_END),
    )
    .fetch_optional(&mut *connection)
    .await?;
    // A duplicate that must stay makes its original stay (R-C6).
    sqlx::query!(
        "update cards original
         set keep = 'always',
             orphan_since = null
         from cards alias
         where original.id = $1
           and alias.id = $2
           and alias.keep = 'always'
           and alias.state = 'duplicate'
           and original.keep = 'attached'",
        original.0,
        accepted.card.0,
    )
    .execute(&mut *connection)
    .await?;
    let mut detail = json!({ "original": original });
    if let Some(replaced) = row.as_ref().and_then(|row| row.replaces_id) {
        // The same bytes are served already: no swap, and the timeline says so (R-F1).
        detail["replaces"] = json!(replaced);
        detail["swapped"] = json!(false);
    }
    match ended(connection, ids, accepted.card, row, "duplicate", detail, "duplicate").await? {
        Finished::Done(card) => Ok(Finished::Duplicate(card)),
        other @ (Finished::Duplicate(_) | Finished::LostLease | Finished::TryAgain) => Ok(other),
    }
}

/// Rejects the card for a reason its owner can read.
pub async fn reject(
    connection: &mut PgConnection,
    ids: Ids,
    id: CardId,
    token: LeaseToken,
    problem: &Problem,
    sha256: Option<Sha256>,
) -> Result<Finished, StoreError> {
    let row = sqlx::query_as!(
        CardRow,
        "update cards
         set state = 'rejected',
             revision = revision + 1,
             lease_token = null,
             lease_until = null,
             sha256 = $3,
             problem_code = $4,
             problem_detail = $5,
             next_check_at = greatest(now(), ticket_ends_at + make_interval(secs => $6)),
             -- the work that lay dead was done all the same
             parked_at = case when parked_queue = 'card.decode' then null else parked_at end,
             parked_reason = case when parked_queue = 'card.decode' then null else parked_reason end,
             parked_queue = case when parked_queue = 'card.decode' then null else parked_queue end,
             overdue_looks = 0,
             updated_at = now()
         where id = $1
           and state = 'processing'
           and lease_token = $2
         returning *",
        id.0,
        token.0,
        sha256.map(|digest| digest.0.to_vec()),
        problem.code.as_str(),
        problem.detail,
        seconds(timing::SETTLED_AFTER_END),
    )
    .fetch_optional(&mut *connection)
    .await?;
    let detail = json!({ "code": problem.code.as_str(), "detail": problem.detail });
    ended(connection, ids, id, row, "rejected", detail, "rejected").await
}

/// What every end has in common: history, and the purge that makes the bucket what the card now says.
async fn ended(
    connection: &mut PgConnection,
    ids: Ids,
    id: CardId,
    row: Option<CardRow>,
    event: &str,
    detail: serde_json::Value,
    purge_reason: &str,
) -> Result<Finished, StoreError> {
    let Some(row) = row else {
        purge::request(connection, ids, id, "lost_lease").await?;
        return Ok(Finished::LostLease);
    };
    let card = row.into_card()?;
    let state: StateName = card.state.name();
    history::note(
        &mut *connection,
        Note { owner: card.owner, card: id, revision: card.revision, event, state, detail },
    )
    .await?;
    purge::request(connection, ids, id, purge_reason).await?;
    Ok(Finished::Done(Box::new(card)))
}
