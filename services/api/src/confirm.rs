//! `POST /v1/files/{id}/confirm`: "I have uploaded it" (R-B10). Optional: the bucket's event does the same.
//!
//! 1. Read the card, and the database's clock. Past `pending` its state is the answer.
//! 2. Look at the store as the sweep does (`intake`, which commits): no transaction of ours is open.
//! 3. Say what came of it, from the card as it is now.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use cards::{Card, CardId, ConfirmedBy, Problem as CardProblem, ProblemCode, StateName, timing};
use http::StatusCode;
use intake::Outcome;

use crate::error::Problem;
use crate::identity::Caller;
use crate::paths::FileId;
use crate::{Api, files};

/// Longest look at the store: shorter than a request may take, so that the answer says who is to blame.
const LOOK_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) async fn confirm(
    State(api): State<Arc<Api>>,
    caller: Caller,
    FileId(id): FileId,
) -> Result<Response, Problem> {
    let (mut tx, owner) = api.begin_as(&caller).await?;
    let card = store::cards::of_owner(&mut tx, owner, id).await?.ok_or(Problem::NotFound)?;
    // Only a listing begun after the last moment in time proves that nothing will come (R-B7). By the database's clock:
    // the ticket's end is its time.
    let begun_at = store::clock::now(&mut tx).await?;
    tx.commit().await?;
    if card.state.name() != StateName::Pending {
        return settled(&api, &caller, &card, StatusCode::OK).await;
    }

    let looked =
        tokio::time::timeout(LOOK_TIMEOUT, api.deps.intake.by_listing(&card, ConfirmedBy::Request)).await;
    let Ok(outcome) = looked else {
        tracing::warn!(card.id = %id, "the object store did not answer a look in time");
        return Err(Problem::StoreUnavailable);
    };
    let outcome = outcome?;

    let now = read(&api, &caller, id).await?;
    match outcome {
        Outcome::Confirmed { .. } => settled(&api, &caller, &now, StatusCode::ACCEPTED).await,
        // Somebody else was faster: its answer.
        Outcome::Rejected | Outcome::Repeat(_) | Outcome::Surplus(_) | Outcome::UnknownKey => {
            settled(&api, &caller, &now, StatusCode::OK).await
        }
        Outcome::Mismatch | Outcome::RefusedBefore | Outcome::NothingFits => {
            if now.state.name() != StateName::Pending {
                return settled(&api, &caller, &now, StatusCode::OK).await;
            }
            Err(pending(&now, begun_at))
        }
    }
}

/// Why a card is still pending. What did not fit is remembered, although it was removed at once (R-B5).
fn pending(card: &Card, begun_at: cards::Timestamp) -> Problem {
    if begun_at >= timing::settled_at(card.ticket.ends_at) {
        return Problem::TicketExpired("nothing that fits came in time; ask for a new ticket");
    }
    if card.refused.is_empty() {
        return Problem::UploadMissing;
    }
    let unsaid = || CardProblem::new(ProblemCode::MetadataMismatch, "the upload does not fit the ticket");
    Problem::MetadataMismatch(card.problem.clone().unwrap_or_else(unsaid))
}

/// The answer for a card past `pending`: its details, or why it can't be confirmed any more.
async fn settled(api: &Api, caller: &Caller, card: &Card, status: StatusCode) -> Result<Response, Problem> {
    match card.state.name() {
        StateName::Queued | StateName::Processing | StateName::Ready | StateName::Duplicate => {
            let (mut tx, owner) = api.begin_as(caller).await?;
            let view = files::details(api, &mut tx, owner, card.id).await?;
            tx.commit().await?;
            Ok((status, Json(view)).into_response())
        }
        state @ (StateName::Rejected | StateName::Deleting | StateName::Deleted) => {
            Err(Problem::InvalidState(state))
        }
        StateName::Expired => {
            Err(Problem::TicketExpired("nothing that fits came in time; ask for a new ticket"))
        }
        // It moved and was read in between: only a renewal can do that.
        StateName::Pending => Err(Problem::Contended),
    }
}

async fn read(api: &Api, caller: &Caller, id: CardId) -> Result<Card, Problem> {
    let (mut tx, owner) = api.begin_as(caller).await?;
    let card = store::cards::of_owner(&mut tx, owner, id).await?.ok_or(Problem::NotFound)?;
    tx.commit().await?;
    Ok(card)
}
