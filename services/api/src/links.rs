//! `GET /v1/files/{id}/download`, `…/thumb`, `…/preview`: a redirect to a link for one version, good for a minute (R-D2).
//!
//! Only a `ready` card has bytes to show (INV-1); a duplicate shows its original's, under its own name. Nothing is read
//! from the store here: the card names key and version.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use cards::{
    Card, DerivativeName, DerivedKey, FileKey, MediaType, ObjectFacts, State as CardState, VersionId,
};
use chrono::SecondsFormat;
use http::header::{ACCEPT, LOCATION, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};
use objects::link::{LINK_LIFE, LinkRequest, attachment};
use serde_json::json;

use crate::error::Problem;
use crate::identity::Caller;
use crate::paths::FileId;
use crate::{Api, files};

pub(crate) async fn download(
    State(api): State<Arc<Api>>,
    caller: Caller,
    FileId(id): FileId,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (card, served) = find(&api, &caller, id).await?;
    let (served, object) = ready(&card, served.as_ref())?;
    let key = FileKey { card: served.id, token: object.token }.to_string();
    let media_type: MediaType =
        served.facts.as_ref().map_or(served.announced.media_type, |facts| facts.media_type);
    let disposition = attachment(&card.filename);
    answer(
        &api,
        &headers,
        &Target { key, version: &object.version, content_type: media_type.as_str(), disposition },
    )
}

pub(crate) async fn thumb(
    state: State<Arc<Api>>,
    caller: Caller,
    id: FileId,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    derivative(state, caller, id, headers, DerivativeName::Thumb).await
}

pub(crate) async fn preview(
    state: State<Arc<Api>>,
    caller: Caller,
    id: FileId,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    derivative(state, caller, id, headers, DerivativeName::Preview).await
}

async fn derivative(
    State(api): State<Arc<Api>>,
    caller: Caller,
    FileId(id): FileId,
    headers: HeaderMap,
    name: DerivativeName,
) -> Result<Response, Problem> {
    let (card, served) = find(&api, &caller, id).await?;
    let (served, object) = ready(&card, served.as_ref())?;
    let derivative = served
        .derivatives
        .iter()
        .find(|derivative| derivative.name == name)
        .ok_or(Problem::NoDerivative(name))?;
    let key = DerivedKey { card: served.id, token: object.token, name }.to_string();
    answer(
        &api,
        &headers,
        &Target {
            key,
            version: &derivative.version,
            content_type: &derivative.content_type,
            disposition: "inline".to_owned(),
        },
    )
}

/// The card, and what a duplicate stands for.
async fn find(api: &Api, caller: &Caller, id: cards::CardId) -> Result<(Card, Option<Card>), Problem> {
    let (mut tx, owner) = api.begin_as(caller).await?;
    let card = store::cards::of_owner(&mut tx, owner, id).await?.ok_or(Problem::NotFound)?;
    let original = files::original(&mut tx, &card).await?;
    tx.commit().await?;
    Ok((card, original))
}

/// Whose bytes are served; or why none are.
fn ready<'a>(card: &'a Card, original: Option<&'a Card>) -> Result<(&'a Card, &'a ObjectFacts), Problem> {
    let state = card.state.name();
    match &card.state {
        CardState::Ready { object, .. } => Ok((card, object)),
        CardState::Duplicate { .. } => match original {
            Some(original) if !matches!(original.state, CardState::Duplicate { .. }) => ready(original, None),
            // An original is never an alias itself.
            Some(_) | None => Err(Problem::NotReady(state)),
        },
        CardState::Pending { .. }
        | CardState::Queued { .. }
        | CardState::Processing { .. }
        | CardState::Rejected { .. }
        | CardState::Expired => Err(Problem::NotReady(state)),
        CardState::Deleting { .. } | CardState::Deleted { .. } => Err(Problem::Gone(state)),
    }
}

/// What a link gives.
struct Target<'a> {
    key: String,
    version: &'a VersionId,
    content_type: &'a str,
    disposition: String,
}

fn answer(api: &Api, headers: &HeaderMap, target: &Target<'_>) -> Result<Response, Problem> {
    let issued_at = (api.deps.clock)();
    let url = api.deps.links.link(&LinkRequest {
        key: &target.key,
        version: target.version,
        issued_at,
        life: LINK_LIFE,
        content_type: target.content_type,
        disposition: &target.disposition,
    })?;
    let vary = (VARY, HeaderValue::from_static("Accept"));
    if wants_json(headers) {
        let expires_at = (issued_at + LINK_LIFE).to_rfc3339_opts(SecondsFormat::Secs, true);
        return Ok(([vary], Json(json!({ "url": url.as_str(), "expires_at": expires_at }))).into_response());
    }
    let location = HeaderValue::try_from(url.as_str()).map_err(|_| Problem::Internal)?;
    Ok((StatusCode::FOUND, [vary, (LOCATION, location)]).into_response())
}

/// Whether JSON is asked for by name; a browser's `*/*` is not.
fn wants_json(headers: &HeaderMap) -> bool {
    headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|range| {
            let mut parts = range.split(';').map(str::trim);
            let is_json = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("application/json"));
            is_json && !parts.any(|parameter| matches!(parameter, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_given_to_those_who_name_it() {
        for (accept, expected) in [
            ("application/json", true),
            ("text/html, application/json;q=0.9", true),
            ("Application/JSON", true),
            ("*/*", false),
            ("text/html", false),
            ("application/json; q=0", false),
            ("application/jsonx", false),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
            assert_eq!(wants_json(&headers), expected, "{accept}");
        }
        assert!(!wants_json(&HeaderMap::new()));
    }
}
