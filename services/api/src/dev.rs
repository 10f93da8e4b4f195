//! `POST /dev/token`: a token for whoever asks. The route exists only in development, on loopback, with a secret.
//!
//! Loopback alone keeps no browser out: the page of a site whose name is made to lead to 127.0.0.1 (DNS rebinding) is of
//! our origin then. Its Host gives it away, so only names of this machine are answered.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::response::{IntoResponse, Response};
use chrono::{SecondsFormat, TimeDelta};
use http::HeaderMap;
use http::header::HOST;
use http::uri::Authority;
use serde_json::{Value, json};

use crate::error::{FieldError, Problem};
use crate::identity::is_subject;
use crate::{Api, ApiSettings, tickets};

/// How long such a token is good: a working day.
const TOKEN_LIFE: TimeDelta = TimeDelta::hours(12);

/// Whether the route exists.
pub(crate) fn is_open(settings: &ApiSettings, can_issue: bool) -> bool {
    settings.development && settings.listen.ip().is_loopback() && can_issue
}

pub(crate) async fn token(
    State(api): State<Arc<Api>>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    require_this_machine(&headers)?;
    let body = body.map_err(|rejection| Problem::of_status(rejection.status()))?;
    // Another site's form can't send this Content-Type without a preflight.
    tickets::require_json(&headers)?;
    let value: Value = serde_json::from_slice(&body)
        .map_err(|_| Problem::MalformedJson("the body can't be read as JSON".to_owned()))?;
    let subject = value.get("subject").and_then(Value::as_str).filter(|subject| is_subject(subject));
    let Some(subject) = subject else {
        let error =
            FieldError::field("#/subject", "invalid_value", "subject is a text of 1 to 255 characters");
        return Err(Problem::InvalidRequest(vec![error]));
    };
    let ends_at = (api.deps.clock)() + TOKEN_LIFE;
    let token = api.verifier.issue(subject, ends_at.timestamp()).ok_or(Problem::Internal)?;
    let expires_at = ends_at.to_rfc3339_opts(SecondsFormat::Secs, true);
    Ok(Json(json!({ "token": token, "expires_at": expires_at })).into_response())
}

/// Exactly one Host, and it is a loopback address or `localhost`.
fn require_this_machine(headers: &HeaderMap) -> Result<(), Problem> {
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().filter(|_| hosts.next().is_none()).and_then(|host| host.to_str().ok());
    if host.is_some_and(is_loopback) { Ok(()) } else { Err(Problem::ForeignHost) }
}

fn is_loopback(host: &str) -> bool {
    // An authority may have a user before `@`; a Host has none.
    let Ok(authority) = host.parse::<Authority>() else { return false };
    if host.contains('@') {
        return false;
    }
    let name = authority.host();
    if let Some(address) = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return address.parse::<Ipv6Addr>().is_ok_and(|address| address.is_loopback());
    }
    match name.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => name.trim_end_matches('.').eq_ignore_ascii_case("localhost"),
    }
}
