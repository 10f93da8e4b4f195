//! Tickets: `POST /v1/files` and its renewal, `POST /v1/files/{id}/ticket` (R-A1, R-A2, R-A5).
//!
//! 1. Parse, with every fault named.
//! 2. One transaction: the owner, the card, its history. Commit point.
//! 3. Sign, from the times the database answered, so that signing again gives the same ticket; only `expires` tells what
//!    is left of it, 0 once it is over (then `links.ticket` renews it). No call to the store.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use axum::{Json, http};
use cards::{Card, CardId, StateName, TicketMethod, Timestamp};
use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderValue, StatusCode};
use objects::ticket::{Ticket, TicketRequest};
use serde::Serialize;
use sha2::{Digest, Sha256};
use store::deletion::Replaceable;
use store::tickets::{Issued, NewCard, Renewed};

use crate::error::{FieldError, Problem};
use crate::identity::Caller;
use crate::layers::{IDEMPOTENCY_KEY, Trace};
use crate::paths::{FileId, Paths};
use crate::{Api, request};

/// Longest `Idempotency-Key`, in bytes; the database's CHECK says the same.
const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;

/// A card with its ticket, as in ECOSYSTEM 1.2: `upload` goes to an upload library as it is.
#[derive(Debug, Serialize)]
pub(crate) struct TicketView {
    id: CardId,
    state: StateName,
    max_bytes: u64,
    /// Only while `pending`: afterwards there is nothing to upload.
    #[serde(skip_serializing_if = "Option::is_none")]
    upload: Option<Ticket>,
    links: Links,
}

#[derive(Debug, Serialize)]
struct Links {
    #[serde(rename = "self")]
    this: String,
    confirm: String,
    ticket: String,
}

/// `POST /v1/files`.
pub(crate) async fn issue(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Extension(trace): Extension<Trace>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let body = body.map_err(|rejection| Problem::of_status(rejection.status()))?;
    require_json(&headers)?;
    let key = idempotency_key(&headers)?;
    let request = request::parse(&body, &api.settings)?;
    check_method(&api, request.method)?;
    let new = |owner| NewCard {
        id: api.deps.ids.card(),
        owner,
        filename: request.filename,
        announced: request.announced,
        method: request.method,
        keep: request.keep,
        life: api.settings.ticket_life,
        replaces: request.replaces,
        traceparent: Some(trace.0.to_string()),
        idempotency: key.map(|key| (key, Sha256::digest(&body).into())),
    };

    let mut tx = api.deps.db.begin().await?;
    let owner = store::owners::of_subject(&mut tx, api.deps.ids, &caller.subject).await?;
    let issued = store::tickets::issue(&mut tx, &new(owner)).await?;
    if issued == Issued::ReplacementOpen {
        // The refused INSERT has ended the transaction.
        tx.rollback().await?;
        return Err(Problem::ReplacementOpen);
    }
    let now = store::clock::now(&mut tx).await?;
    tx.commit().await?;

    match issued {
        Issued::New(card) => {
            tracing::info!(card.id = %card.id, size_bytes = card.announced.size.get(), "issued a ticket");
            answer(&api, &card, now, StatusCode::CREATED)
        }
        Issued::Before(card) => answer(&api, &card, now, StatusCode::OK),
        Issued::OtherRequest => Err(Problem::IdempotencyMismatch),
        Issued::NotReplaceable(Replaceable::No(state)) => Err(Problem::InvalidState(state)),
        Issued::NotReplaceable(Replaceable::NotThere | Replaceable::Yes) => Err(Problem::NotFound),
        Issued::ReplacementOpen => Err(Problem::ReplacementOpen),
    }
}

/// `POST /v1/files/{id}/ticket`.
pub(crate) async fn renew(
    State(api): State<Arc<Api>>,
    caller: Caller,
    FileId(id): FileId,
) -> Result<Response, Problem> {
    let mut tx = api.deps.db.begin().await?;
    let owner = store::owners::of_subject(&mut tx, api.deps.ids, &caller.subject).await?;
    let renewed = store::tickets::renew(&mut tx, owner, id, api.settings.ticket_life).await?;
    let now = store::clock::now(&mut tx).await?;
    tx.commit().await?;

    match renewed {
        Renewed::Yes(card) => {
            tracing::info!(card.id = %card.id, "renewed a ticket");
            answer(&api, &card, now, StatusCode::OK)
        }
        Renewed::No(card) => Err(match card.state.name() {
            StateName::Pending => {
                Problem::TicketExpired("a ticket can be renewed for 24 hours; ask for a new one")
            }
            StateName::Expired => {
                Problem::TicketExpired("nothing that fits came in time; ask for a new ticket")
            }
            state @ (StateName::Queued
            | StateName::Processing
            | StateName::Ready
            | StateName::Duplicate
            | StateName::Rejected
            | StateName::Deleting
            | StateName::Deleted) => Problem::InvalidState(state),
        }),
        Renewed::NotThere => Err(Problem::NotFound),
    }
}

fn answer(api: &Api, card: &Card, now: Timestamp, status: StatusCode) -> Result<Response, Problem> {
    let paths = Paths::new(&api.settings, card.id);
    let state = card.state.name();
    let upload = if state == StateName::Pending { Some(sign(api, card, now)?) } else { None };
    let location = HeaderValue::try_from(paths.this()).map_err(|_| Problem::Internal)?;
    let view = TicketView {
        id: card.id,
        state,
        max_bytes: card.announced.size.get(),
        upload,
        links: Links { this: paths.this(), confirm: paths.confirm(), ticket: paths.ticket() },
    };
    Ok((status, [(LOCATION, location)], Json(view)).into_response())
}

/// The ticket as the card has it, and how long it is good from `now`: a request that came again, by its key, may come
/// when it is over.
fn sign(api: &Api, card: &Card, now: Timestamp) -> Result<Ticket, Problem> {
    check_method(api, card.ticket.method)?;
    let key = card.source_key().to_string();
    let request = TicketRequest {
        key: &key,
        size_bytes: card.announced.size.get(),
        content_type: card.announced.media_type.as_str(),
        sha256: card.announced.sha256,
        issued_at: card.ticket.issued_at,
        ends_at: card.ticket.ends_at,
        traceparent: card.ticket.traceparent.as_deref(),
    };
    let ticket = match card.ticket.method {
        TicketMethod::Post => api.deps.tickets.post(&request)?,
        TicketMethod::Put => api.deps.tickets.put(&request)?,
    };
    // Rounded up, since it was issued at a whole second: a fresh ticket has its full life.
    let left = ((card.ticket.ends_at - now).num_milliseconds().max(0) + 999) / 1000;
    Ok(Ticket { expires: u32::try_from(left).unwrap_or(ticket.expires).min(ticket.expires), ..ticket })
}

/// Where a store takes more with a presigned PUT than was signed, nobody gets one, old cards included (R-A2).
fn check_method(api: &Api, method: TicketMethod) -> Result<(), Problem> {
    match method {
        TicketMethod::Put if !api.settings.put_tickets => Err(Problem::PutTicketsUnavailable),
        TicketMethod::Put | TicketMethod::Post => Ok(()),
    }
}

/// Announced as JSON: a form of another site can't send that without a preflight.
pub(crate) fn require_json(headers: &HeaderMap) -> Result<(), Problem> {
    let announced = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = announced.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") { Ok(()) } else { Err(Problem::UnsupportedMediaType) }
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    match value.to_str() {
        Ok(key)
            if values.next().is_none()
                && (1..=IDEMPOTENCY_KEY_BYTES_MAX).contains(&key.len())
                && key.bytes().all(|byte| byte.is_ascii_graphic()) =>
        {
            Ok(Some(key.to_owned()))
        }
        Ok(_) | Err(_) => Err(Problem::InvalidRequest(vec![FieldError::header(
            &IDEMPOTENCY_KEY,
            "invalid_format",
            "one Idempotency-Key of 1 to 255 visible ASCII characters, such as a UUID",
        )])),
    }
}
