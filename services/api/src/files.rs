//! Reading: `GET /v1/files` and `GET /v1/files/{id}` (R-D1).

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use cards::{Card, CardId, OwnerId, State as CardState};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LINK};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::json;
use sha2::{Digest, Sha256};
use store::Tx;

use crate::error::Problem;
use crate::identity::Caller;
use crate::paths::{self, FileId};
use crate::view::{FileView, FileWithTimeline};
use crate::{Api, paging};

/// A client may keep a file's details, but asks each time whether they still hold.
const REVALIDATE: HeaderValue = HeaderValue::from_static("private, no-cache");

/// `GET /v1/files`: newest first.
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let page = paging::parse(query.as_deref().unwrap_or_default())?;
    // One more than asked for tells whether there is a next page.
    let asked = i64::try_from(page.limit + 1).map_err(|_| Problem::Internal)?;
    let (mut tx, owner) = api.begin_as(&caller).await?;
    let mut cards = store::cards::list(&mut tx, owner, &page.filter, page.after, asked).await?;
    let has_more = cards.len() > page.limit;
    cards.truncate(page.limit);
    let originals: Vec<CardId> = cards.iter().filter_map(original_of).collect();
    let originals = store::originals::by_ids(&mut tx, owner, &originals).await?;
    tx.commit().await?;

    let mut headers = HeaderMap::new();
    let last = cards.last().filter(|_| has_more);
    let next_cursor = last.map(paging::cursor_after);
    if let Some(last) = last {
        let next = paging::next_query(&page, last);
        let link = format!("<{}?{next}>; rel=\"next\"", paths::files(&api.settings));
        headers.insert(LINK, HeaderValue::try_from(link).map_err(|_| Problem::Internal)?);
    }
    let data: Vec<FileView> = cards
        .into_iter()
        .map(|card| {
            let original = original_of(&card).and_then(|id| originals.get(&id));
            FileView::new(&api.settings, card, original)
        })
        .collect();
    Ok((headers, Json(json!({ "data": data, "has_more": has_more, "next_cursor": next_cursor })))
        .into_response())
}

/// `GET /v1/files/{id}`: details and timeline.
pub(crate) async fn show(
    State(api): State<Arc<Api>>,
    caller: Caller,
    FileId(id): FileId,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (mut tx, owner) = api.begin_as(&caller).await?;
    let view = details(&api, &mut tx, owner, id).await?;
    tx.commit().await?;

    // The revision alone would not do: problem texts, looks and parking change the answer without raising it.
    let body = serde_json::to_vec(&view).map_err(|_| Problem::Internal)?;
    let etag = format!("\"{}\"", hex::encode(&Sha256::digest(&body)[..16]));
    let is_known = headers
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|known| matches!(known.trim(), "*") || known.trim().trim_start_matches("W/") == etag);
    let etag = HeaderValue::try_from(etag).map_err(|_| Problem::Internal)?;
    let headers = [(ETAG, etag), (CACHE_CONTROL, REVALIDATE)];
    if is_known {
        return Ok((StatusCode::NOT_MODIFIED, headers).into_response());
    }
    let json = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    Ok((headers, json, Body::from(body)).into_response())
}

/// A file with its timeline; a duplicate with what its original has.
pub(crate) async fn details(
    api: &Api,
    tx: &mut Tx,
    owner: OwnerId,
    id: CardId,
) -> Result<FileWithTimeline, Problem> {
    let card = store::cards::of_owner(tx, owner, id).await?.ok_or(Problem::NotFound)?;
    let original = original(tx, &card).await?;
    let entries = store::history::of_card(tx, owner, id).await?;
    Ok(FileView::new(&api.settings, card, original.as_ref()).with_timeline(entries))
}

/// What a duplicate stands for (R-C6).
pub(crate) async fn original(tx: &mut Tx, card: &Card) -> Result<Option<Card>, Problem> {
    match original_of(card) {
        Some(original) => Ok(store::cards::of_owner(tx, card.owner, original).await?),
        None => Ok(None),
    }
}

fn original_of(card: &Card) -> Option<CardId> {
    match &card.state {
        CardState::Duplicate { original } => Some(*original),
        CardState::Pending { .. }
        | CardState::Queued { .. }
        | CardState::Processing { .. }
        | CardState::Ready { .. }
        | CardState::Rejected { .. }
        | CardState::Expired
        | CardState::Deleting { .. }
        | CardState::Deleted { .. } => None,
    }
}
