//! Leases: one worker's right to finish one card (R-C1).

use cards::{Card, CardId, Ids, LeaseToken, State, StateName, Timestamp, timing};
use events::work::Queue;
use serde_json::json;
use sqlx::PgConnection;

use crate::StoreError;
use crate::history::{self, Note};
use crate::row::CardRow;
use crate::tickets::seconds;

/// What came of asking for a lease.
#[derive(Clone, Debug, PartialEq)]
pub enum Leased {
    /// It is ours: the card is `processing` under the new token.
    Yes(Box<Card>),
    /// Somebody's lease lives until then.
    Held {
        /// The end of that lease.
        until: Timestamp,
    },
    /// The card can be leased neither now nor later; a purge was asked for in this transaction.
    Never(StateName),
    /// Its message lies dead: nothing is done with it until a replay (R-C7).
    Parked,
    /// The card is `pending`: nothing was confirmed, so the message is not ours.
    NotConfirmed,
    /// No such card.
    NotThere,
}

/// Takes `queued`, or `processing` past its deadline, sets a new token and counts an attempt.
pub async fn take(
    connection: &mut PgConnection,
    ids: Ids,
    id: CardId,
    token: LeaseToken,
) -> Result<Leased, StoreError> {
    let row = sqlx::query_as!(
        CardRow,
        "update cards
         set state = 'processing',
             revision = revision + 1,
             attempts = attempts + 1,
             lease_token = $2,
             lease_until = now() + make_interval(secs => $3),
             next_check_at = now() + make_interval(secs => $4),
             overdue_looks = 0,
             updated_at = now()
         where id = $1
           and parked_queue is distinct from 'card.decode'
           and (state = 'queued' or (state = 'processing' and lease_until <= now()))
         returning *",
        id.0,
        token.0,
        seconds(timing::LEASE_LIFE),
        seconds(timing::LEASE_LIFE + timing::DEAD_LEASE_GRACE),
    )
    .fetch_optional(&mut *connection)
    .await?;
    let Some(row) = row else { return why_not(connection, ids, id).await };
    let card = row.into_card()?;
    history::note(
        connection,
        Note {
            owner: card.owner,
            card: id,
            revision: card.revision,
            event: "leased",
            state: StateName::Processing,
            detail: json!({ "attempt": card.attempts }),
        },
    )
    .await?;
    Ok(Leased::Yes(Box::new(card)))
}

async fn why_not(connection: &mut PgConnection, ids: Ids, id: CardId) -> Result<Leased, StoreError> {
    let Some(card) = crate::cards::by_id(&mut *connection, id).await? else { return Ok(Leased::NotThere) };
    match &card.state {
        State::Queued { .. } | State::Processing { .. } if card.is_parked_for(Queue::Decode.as_str()) => {
            Ok(Leased::Parked)
        }
        State::Pending { .. } => Ok(Leased::NotConfirmed),
        // Between the UPDATE and this read the card may have become leasable: the message simply comes again.
        State::Queued { .. } => Ok(Leased::Held { until: card.updated_at }),
        State::Processing { lease, .. } => Ok(Leased::Held { until: lease.until }),
        State::Ready { .. }
        | State::Duplicate { .. }
        | State::Rejected { .. }
        | State::Expired
        | State::Deleting { .. }
        | State::Deleted { .. } => {
            crate::purge::request(connection, ids, id, "unleasable").await?;
            Ok(Leased::Never(card.state.name()))
        }
    }
}

/// Renews a lease for [`timing::LEASE_LIFE`]. False: it is lost, and its worker stops before its next store call.
pub async fn renew(connection: &mut PgConnection, id: CardId, token: LeaseToken) -> Result<bool, StoreError> {
    let renewed = sqlx::query!(
        "update cards
         set lease_until = now() + make_interval(secs => $3),
             next_check_at = now() + make_interval(secs => $4)
         where id = $1
           and state = 'processing'
           and lease_token = $2",
        id.0,
        token.0,
        seconds(timing::LEASE_LIFE),
        seconds(timing::LEASE_LIFE + timing::DEAD_LEASE_GRACE),
    )
    .execute(connection)
    .await?;
    Ok(renewed.rows_affected() == 1)
}

/// Whether a given-back lease counts as an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The job failed.
    Counts,
    /// A dependency was away, or the process stops: nobody's fault (R-C7).
    Refunded,
}

/// Hands work back: the lease ends now, so that the next message can take it at once. Nothing happens when it was
/// lost already.
pub async fn give_back(
    connection: &mut PgConnection,
    id: CardId,
    token: LeaseToken,
    attempt: Attempt,
) -> Result<(), StoreError> {
    sqlx::query!(
        "update cards
         set lease_until = now(),
             attempts = attempts - case when $3 and attempts > 0 then 1 else 0 end,
             next_check_at = now() + make_interval(secs => $4)
         where id = $1
           and state = 'processing'
           and lease_token = $2",
        id.0,
        token.0,
        attempt == Attempt::Refunded,
        seconds(timing::QUEUED_TOO_LONG),
    )
    .execute(connection)
    .await?;
    Ok(())
}
