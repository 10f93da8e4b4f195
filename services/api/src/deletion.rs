//! `DELETE /v1/files/{id}` (R-E1), and `GET /v1/files/{id}/receipt` (R-E5).
//!
//! 1. One transaction: the card and its aliases become `deleting`. **Commit point.** From here nothing new is served.
//! 2. 202 with the card as it is now. A repeat finds it so and answers the same.
//!
//! The bytes go later, by the deleter: not before `deletion.delete_after`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use cards::CardId;
use http::StatusCode;
use serde::Serialize;
use store::deletion::Requested;

use crate::error::Problem;
use crate::identity::Caller;
use crate::paths::FileId;
use crate::view::FileWithTimeline;
use crate::{Api, files};

/// A file whose deletion was asked for.
#[derive(Debug, Serialize)]
struct Deleting {
    #[serde(flatten)]
    file: FileWithTimeline,
    /// Duplicates of it that go with it (R-C6); empty in a repeat.
    also_deleted: Vec<CardId>,
}

/// `DELETE /v1/files/{id}`.
pub(crate) async fn delete(
    State(api): State<Arc<Api>>,
    caller: Caller,
    FileId(id): FileId,
) -> Result<Response, Problem> {
    // 1.
    let (mut tx, owner) = api.begin_as(&caller).await?;
    let also_deleted = match store::deletion::request(&mut tx, api.deps.ids, owner, id).await? {
        Requested::Now { card, aliases } => {
            tracing::info!(card.id = %card.id, aliases = aliases.len(), "deletion of a file was asked for");
            aliases
        }
        Requested::Before(_) => Vec::new(),
        Requested::NotThere => return Err(Problem::NotFound),
    };
    let file = files::details(&api, &mut tx, owner, id).await?;
    tx.commit().await?;
    // 2.
    Ok((StatusCode::ACCEPTED, Json(Deleting { file, also_deleted })).into_response())
}

/// `GET /v1/files/{id}/receipt`: only a deleted file has one.
pub(crate) async fn receipt(
    State(api): State<Arc<Api>>,
    caller: Caller,
    FileId(id): FileId,
) -> Result<Response, Problem> {
    let (mut tx, owner) = api.begin_as(&caller).await?;
    let card = store::cards::of_owner(&mut tx, owner, id).await?.ok_or(Problem::NotFound)?;
    let receipt = store::purge::receipt(&mut tx, Some(owner), id).await?;
    tx.commit().await?;
    receipt.map(|receipt| Json(receipt).into_response()).ok_or(Problem::InvalidState(card.state.name()))
}
