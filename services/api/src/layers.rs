//! What every request passes through, from outside in:
//!
//! 1. [`answer`]: the trace (R-I5), the body of every problem, security headers, metrics, one log line;
//! 2. CORS for the configured origins ([`cors`]), so that a browser can read problems too;
//! 3. panics become problems ([`on_panic`]);
//! 4. a bound on time ([`bounded`]).

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{
    ACCEPT, AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    HeaderName, IF_NONE_MATCH, LINK, LOCATION, REFERRER_POLICY, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method};
use telemetry::{TraceParent, metric};
use tower_http::cors::CorsLayer;
use tracing::Instrument;

use crate::error::Problem;
use crate::{Api, ApiError, ApiSettings};

pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Longest time a request may take. What it asks of the database and the store has shorter limits.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a browser keeps a preflight's answer.
const PREFLIGHT_LIFE: Duration = Duration::from_mins(10);

/// Which trace a request belongs to; handlers find it among the request's extensions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trace(pub(crate) TraceParent);

pub(crate) async fn answer(State(api): State<Arc<Api>>, mut request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let told = request.headers().get(TRACEPARENT).and_then(|value| value.to_str().ok());
    let trace = TraceParent::continue_or_new(told, api.deps.ids);
    request.extensions_mut().insert(Trace(trace));
    let method = method_label(request.method());
    // Without the query, which can hold what a log or a page must not show.
    let path = request.uri().path().to_owned();
    // A pattern, never a path: labels are bounded, and ids stay out of them.
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or_else(|| "unmatched".to_owned(), |path| path.as_str().to_owned());
    let trace_id = trace.trace_id();
    let span = tracing::info_span!("http.request", method, route, trace_id);

    let response = next.run(request).instrument(span.clone()).await;
    let mut response = with_problem(&api.settings, response, &path, &trace_id);

    let _inside = span.enter();
    let status = response.status();
    let took = begun.elapsed();
    tracing::debug!(status = status.as_u16(), took_ms = took.as_millis(), "answered a request");
    metrics::counter!(
        metric::HTTP_REQUESTS,
        "method" => method, "route" => route.clone(), "status" => status.as_u16().to_string()
    )
    .increment(1);
    metrics::histogram!(metric::HTTP_REQUEST_DURATION, "method" => method, "route" => route)
        .record(took.as_secs_f64());
    secure(response.headers_mut());
    if let Ok(value) = HeaderValue::try_from(trace.to_string()) {
        response.headers_mut().insert(TRACEPARENT, value);
    }
    response
}

/// Writes the body of a problem; what failed without one gets the one of its status.
fn with_problem(settings: &ApiSettings, response: Response, path: &str, trace_id: &str) -> Response {
    let status = response.status();
    let problem = match response.extensions().get::<Problem>() {
        Some(problem) => problem.clone(),
        None if status.is_client_error() || status.is_server_error() => Problem::of_status(status),
        None => return response,
    };
    // The headers stay: Allow, Retry-After, WWW-Authenticate, CORS.
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    Response::from_parts(parts, Body::from(problem.body(settings, path, trace_id).to_string()))
}

/// An answer of ours is data: never sniffed, framed or kept unless its handler says so.
fn secure(headers: &mut HeaderMap) {
    for (name, value) in [
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}

/// Methods are free text on the wire, labels are not.
fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        Method::PATCH => "PATCH",
        _ => "other",
    }
}

pub(crate) async fn bounded(request: Request, next: Next) -> Response {
    if let Ok(response) = tokio::time::timeout(REQUEST_TIMEOUT, next.run(request)).await {
        return response;
    }
    tracing::warn!("a request took too long");
    Problem::Timeout.into_response()
}

#[expect(clippy::needless_pass_by_value, reason = "the layer hands over the panic itself")]
pub(crate) fn on_panic(panic: Box<dyn Any + Send>) -> Response {
    let said = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no text");
    tracing::error!(panic = said, "a request panicked");
    Problem::Internal.into_response()
}

/// CORS for exactly these origins; none: no layer, and no browser of another origin reads anything.
pub(crate) fn cors(origins: &[String]) -> Result<Option<CorsLayer>, ApiError> {
    if origins.is_empty() {
        return Ok(None);
    }
    let origins = origins.iter().map(|origin| check_origin(origin)).collect::<Result<Vec<_>, _>>()?;
    Ok(Some(
        CorsLayer::new()
            .allow_origin(origins)
            .allow_methods([Method::GET, Method::HEAD, Method::POST, Method::DELETE])
            .allow_headers([
                ACCEPT,
                AUTHORIZATION,
                CONTENT_TYPE,
                IDEMPOTENCY_KEY,
                IF_NONE_MATCH,
                HeaderName::from_static("last-event-id"),
                HeaderName::from_static("prefer"),
                TRACEPARENT,
            ])
            .expose_headers([
                LOCATION,
                HeaderName::from_static("ratelimit"),
                HeaderName::from_static("ratelimit-policy"),
                RETRY_AFTER,
                ETAG,
                LINK,
                TRACEPARENT,
            ])
            .max_age(PREFLIGHT_LIFE),
    ))
}

/// An origin as browsers send it; `*` and paths are refused, for they would never match or match everybody.
fn check_origin(origin: &str) -> Result<HeaderValue, ApiError> {
    let refused = || ApiError::Setting {
        name: "cors_origins",
        detail: format!("`{origin}` is no origin such as https://app.example.org"),
    };
    let url = url::Url::parse(origin).map_err(|_| refused())?;
    if !matches!(url.scheme(), "http" | "https") || url.origin().ascii_serialization() != origin {
        return Err(refused());
    }
    HeaderValue::from_str(origin).map_err(|_| refused())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_scheme_host_and_port_and_nothing_else() {
        for origin in ["https://app.example.org", "http://127.0.0.1:5173"] {
            assert!(cors(&[origin.to_owned()]).unwrap().is_some(), "{origin}");
        }
        for wrong in ["*", "null", "https://a.example/", "https://a.example/x", "ftp://a", "a.example"] {
            assert!(cors(&[wrong.to_owned()]).is_err(), "{wrong}");
        }
        assert!(cors(&[]).unwrap().is_none());
    }

    #[test]
    fn a_method_nobody_knows_is_no_label_of_its_own() {
        assert_eq!(method_label(&Method::from_bytes(b"BREW").unwrap()), "other");
    }
}
