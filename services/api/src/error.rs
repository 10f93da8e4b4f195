//! Every answer that is not a success: RFC 9457 `application/problem+json` (R-D5).
//!
//! A handler returns a [`Problem`]. Its response has status and headers only; [`crate::layers`] writes the body, because
//! only there the trace id is known, and gives one to what axum refuses by itself (404, 405, 413). What a problem means
//! for a client is one table: [`crate::codes`].

use std::io;
use std::net::SocketAddr;

use axum::response::{IntoResponse, Response};
use cards::{DerivativeName, StateName};
use http::header::{HeaderName, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use intake::IntakeError;
use objects::{ErrorKind, ObjectError};
use serde::Serialize;
use serde_json::{Map, Value, json};
use store::{StoreError, StoreErrorKind};

use crate::codes::{Code, Row};
use crate::{ApiSettings, Check, paths};

/// Why the service can't start or stopped by itself.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The address can't be listened on.
    #[error("can't listen on {listen}: {source}")]
    Listen {
        /// That address.
        listen: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// A setting is not usable.
    #[error("setting {name}: {detail}")]
    Setting {
        /// Which.
        name: &'static str,
        /// Why.
        detail: String,
    },
    /// The server ended.
    #[error("the server ended: {0}")]
    Serve(#[source] io::Error),
}

/// Everything that can be wrong, as clients are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// The body is no JSON.
    MalformedJson(String),
    /// Fields, query parameters or headers are not as they must be.
    InvalidRequest(Vec<FieldError>),
    /// The body is not announced as JSON.
    UnsupportedMediaType,
    /// The body is larger than any request of ours.
    PayloadTooLarge,
    /// No file of the caller has this id: another owner's looks the same (R-D3).
    NotFound,
    /// No route has this path.
    NoRoute,
    /// The route has other methods.
    MethodNotAllowed,
    /// There is no token.
    MissingToken,
    /// The token is not accepted.
    InvalidToken(&'static str),
    /// The token was good once.
    TokenExpired,
    /// The keys that tokens are checked with can't be read.
    KeysUnavailable,
    /// The development issuer was asked under a name that is not this machine's.
    ForeignHost,
    /// The idempotency key came with another body before.
    IdempotencyMismatch,
    /// This store can't be trusted with PUT tickets (R-A2).
    PutTicketsUnavailable,
    /// The file's state does not allow this.
    InvalidState(StateName),
    /// Another replacement of the same file is under way (R-F1).
    ReplacementOpen,
    /// The ticket is over, and nothing that fits came.
    TicketExpired(&'static str),
    /// Nothing that fits is there yet.
    UploadMissing,
    /// What is there does not fit the ticket.
    MetadataMismatch(cards::Problem),
    /// The file is not served yet, or never will be.
    NotReady(StateName),
    /// The file is deleted or about to be.
    Gone(StateName),
    /// The file has no such derivative.
    NoDerivative(DerivativeName),
    /// The bucket has no versioning.
    VersioningRequired,
    /// The object store does not answer.
    StoreUnavailable,
    /// The database does not answer.
    DatabaseUnavailable,
    /// Others changed the same file at the same time, again and again.
    Contended,
    /// The answer took too long.
    Timeout,
    /// Something this process needs is away.
    Unready(Vec<Check>),
    /// A bug.
    Internal,
    /// What the server itself refused, with no words of its own.
    Other(StatusCode),
}

/// One thing that is wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct FieldError {
    #[serde(flatten)]
    place: Place,
    detail: String,
    code: &'static str,
}

/// Where it is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Place {
    /// RFC 6901, as a URI fragment.
    Pointer(String),
    /// A query parameter.
    Parameter(String),
    /// A header.
    Header(String),
}

impl FieldError {
    /// A field of the body, by its JSON pointer such as `#/size`.
    pub(crate) fn field(pointer: impl Into<String>, code: &'static str, detail: impl Into<String>) -> Self {
        Self { place: Place::Pointer(pointer.into()), detail: detail.into(), code }
    }

    pub(crate) fn parameter(name: impl Into<String>, code: &'static str, detail: impl Into<String>) -> Self {
        Self { place: Place::Parameter(name.into()), detail: detail.into(), code }
    }

    pub(crate) fn header(name: &HeaderName, code: &'static str, detail: impl Into<String>) -> Self {
        Self { place: Place::Header(name.to_string()), detail: detail.into(), code }
    }
}

/// How long a client waits before it tries again where a dependency is away, in seconds.
const RETRY_AFTER_SECONDS: u32 = 5;

impl Problem {
    fn code(&self) -> Code {
        match self {
            Self::MalformedJson(_) => Code::MalformedJson,
            Self::InvalidRequest(_) => Code::InvalidRequest,
            Self::UnsupportedMediaType => Code::UnsupportedMediaType,
            Self::PayloadTooLarge => Code::PayloadTooLarge,
            Self::NotFound => Code::NotFound,
            Self::NoRoute => Code::RouteNotFound,
            Self::MethodNotAllowed => Code::MethodNotAllowed,
            Self::MissingToken => Code::MissingToken,
            Self::InvalidToken(_) => Code::InvalidToken,
            Self::TokenExpired => Code::TokenExpired,
            Self::KeysUnavailable => Code::KeysUnavailable,
            Self::ForeignHost => Code::ForeignHost,
            Self::IdempotencyMismatch => Code::IdempotencyMismatch,
            Self::PutTicketsUnavailable => Code::PutTicketsUnavailable,
            Self::InvalidState(_) => Code::InvalidState,
            Self::ReplacementOpen => Code::ReplacementOpen,
            Self::TicketExpired(_) => Code::TicketExpired,
            Self::UploadMissing => Code::UploadMissing,
            Self::MetadataMismatch(_) => Code::MetadataMismatch,
            Self::NotReady(_) => Code::NotReady,
            Self::Gone(_) => Code::Gone,
            Self::NoDerivative(_) => Code::NoDerivative,
            Self::VersioningRequired => Code::VersioningRequired,
            Self::StoreUnavailable => Code::StoreUnavailable,
            Self::DatabaseUnavailable => Code::DatabaseUnavailable,
            Self::Contended => Code::Contended,
            Self::Timeout => Code::Timeout,
            Self::Unready(_) => Code::Unready,
            Self::Other(status) if status.is_client_error() => Code::Refused,
            Self::Internal | Self::Other(_) => Code::InternalError,
        }
    }

    /// The code's row, with what this case knows better.
    fn row(&self) -> Row {
        let row = self.code().row();
        if let Self::Other(status) = self {
            return Row { status: *status, ..row };
        }
        if let Self::NotReady(state) = self {
            // A rejected or expired file never will be.
            return Row { is_retryable: !state.is_settled(), ..row };
        }
        row
    }

    /// One sentence on this case, for people. Never a driver's text, a URL or a token.
    fn detail(&self) -> String {
        match self {
            Self::MalformedJson(detail) => detail.clone(),
            Self::InvalidRequest(errors) => match errors.as_slice() {
                [one] => one.detail.clone(),
                several => format!("{} things are not as they must be; `errors` lists them", several.len()),
            },
            Self::UnsupportedMediaType => "send Content-Type: application/json".to_owned(),
            Self::PayloadTooLarge => {
                format!("a request's body has at most {} bytes", crate::BODY_BYTES_MAX)
            }
            Self::NotFound => "you have no file of this id".to_owned(),
            Self::NoRoute => "the path leads nowhere".to_owned(),
            Self::MethodNotAllowed => "the header Allow names the methods".to_owned(),
            Self::MissingToken => "send Authorization: Bearer <token>".to_owned(),
            Self::InvalidToken(why) | Self::TicketExpired(why) => (*why).to_owned(),
            Self::TokenExpired => "get a new token".to_owned(),
            Self::KeysUnavailable => "the key set can't be read".to_owned(),
            Self::ForeignHost => "the development issuer is for localhost and 127.0.0.1 alone".to_owned(),
            Self::IdempotencyMismatch => {
                "this Idempotency-Key came with another body before; use a new key for a new request"
                    .to_owned()
            }
            Self::PutTicketsUnavailable => {
                "this object store takes more with a presigned PUT than was signed; ask for method POST"
                    .to_owned()
            }
            Self::InvalidState(state) | Self::Gone(state) => format!("the file is {state}"),
            Self::ReplacementOpen => {
                "another file is about to take its place: wait for that one, or delete it".to_owned()
            }
            Self::UploadMissing => "nothing was uploaded under this ticket yet".to_owned(),
            Self::MetadataMismatch(problem) => problem.detail.clone(),
            Self::NotReady(state) => format!("the file is {state}; only ready files are served"),
            Self::NoDerivative(name) => format!("no {name} was made of this file"),
            Self::VersioningRequired => {
                "nothing can be accepted safely without versions; nobody is to blame".to_owned()
            }
            Self::StoreUnavailable | Self::DatabaseUnavailable | Self::Contended | Self::Timeout => {
                "nothing is lost; try again in a few seconds".to_owned()
            }
            Self::Unready(checks) => {
                let failed: Vec<&str> =
                    checks.iter().filter(|check| !check.ok).map(|check| check.name.as_str()).collect();
                format!("not ready: {}", failed.join(", "))
            }
            Self::Internal => "the trace id helps those who look into it".to_owned(),
            Self::Other(status) => status.canonical_reason().unwrap_or("refused").to_owned(),
        }
    }

    /// Members beside those every problem has.
    fn members(&self) -> Map<String, Value> {
        let members = match self {
            Self::InvalidRequest(errors) => json!({ "errors": errors }),
            Self::PutTicketsUnavailable => json!({
                "errors": [FieldError::field("#/method", "put_tickets_unavailable", self.detail())]
            }),
            Self::InvalidState(state) | Self::NotReady(state) | Self::Gone(state) => {
                json!({ "state": state })
            }
            Self::MetadataMismatch(problem) => json!({ "problem": problem }),
            Self::Unready(checks) => json!({ "checks": checks }),
            Self::MalformedJson(_)
            | Self::UnsupportedMediaType
            | Self::PayloadTooLarge
            | Self::NotFound
            | Self::NoRoute
            | Self::MethodNotAllowed
            | Self::MissingToken
            | Self::InvalidToken(_)
            | Self::TokenExpired
            | Self::KeysUnavailable
            | Self::ForeignHost
            | Self::IdempotencyMismatch
            | Self::ReplacementOpen
            | Self::TicketExpired(_)
            | Self::UploadMissing
            | Self::NoDerivative(_)
            | Self::VersioningRequired
            | Self::StoreUnavailable
            | Self::DatabaseUnavailable
            | Self::Contended
            | Self::Timeout
            | Self::Internal
            | Self::Other(_) => Value::Null,
        };
        match members {
            Value::Object(members) => members,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Map::new()
            }
        }
    }

    /// The body. But for the request's own trace id and path it depends on the problem alone: what must look alike does
    /// (R-D3).
    pub(crate) fn body(&self, settings: &ApiSettings, path: &str, trace_id: &str) -> Value {
        let row = self.row();
        let mut body = self.members();
        body.insert("type".to_owned(), paths::problem(settings, row.code).into());
        body.insert("title".to_owned(), row.title.into());
        body.insert("status".to_owned(), row.status.as_u16().into());
        body.insert("detail".to_owned(), self.detail().into());
        body.insert("instance".to_owned(), paths::below_prefix(settings, path).into());
        body.insert("code".to_owned(), row.code.into());
        body.insert("retryable".to_owned(), row.is_retryable.into());
        body.insert("trace_id".to_owned(), trace_id.into());
        Value::Object(body)
    }

    /// What the server itself refused, by status.
    pub(crate) fn of_status(status: StatusCode) -> Self {
        match status {
            StatusCode::NOT_FOUND => Self::NoRoute,
            StatusCode::METHOD_NOT_ALLOWED => Self::MethodNotAllowed,
            StatusCode::PAYLOAD_TOO_LARGE => Self::PayloadTooLarge,
            StatusCode::UNSUPPORTED_MEDIA_TYPE => Self::UnsupportedMediaType,
            StatusCode::INTERNAL_SERVER_ERROR => Self::Internal,
            other => Self::Other(other),
        }
    }

    /// The challenge of RFC 6750; without a token it names no error.
    fn challenge(&self) -> &'static str {
        if *self == Self::TokenExpired {
            r#"Bearer realm="arkiv", error="invalid_token", error_description="the token has expired""#
        } else if matches!(self, Self::InvalidToken(_)) {
            r#"Bearer realm="arkiv", error="invalid_token""#
        } else {
            r#"Bearer realm="arkiv""#
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.row().status;
        let mut response = status.into_response();
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(self.challenge()));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, RETRY_AFTER_SECONDS.into());
        }
        response.extensions_mut().insert(self);
        response
    }
}

impl From<StoreError> for Problem {
    /// The database's failure becomes an answer here, so it is logged here.
    fn from(error: StoreError) -> Self {
        of_store(&error)
    }
}

fn of_store(error: &StoreError) -> Problem {
    match error.kind() {
        StoreErrorKind::Outage => {
            tracing::warn!(%error, "a request met a database that is away");
            Problem::DatabaseUnavailable
        }
        StoreErrorKind::Fault if matches!(error, StoreError::Contention(_)) => {
            tracing::warn!(%error, "a request lost against others");
            Problem::Contended
        }
        StoreErrorKind::Fault | StoreErrorKind::Permanent => {
            tracing::error!(%error, "a request met a fault of the database");
            Problem::Internal
        }
    }
}

impl From<IntakeError> for Problem {
    fn from(error: IntakeError) -> Self {
        match error {
            IntakeError::Store(error) => of_store(&error),
            IntakeError::Objects(error) => Self::from(error),
            IntakeError::Contended(_) => Self::Contended,
            IntakeError::Panicked => {
                tracing::error!(%error, "a request met a bug");
                Self::Internal
            }
            IntakeError::Stopped => {
                tracing::warn!("a confirmation came while the process was stopping");
                Self::Timeout
            }
        }
    }
}

impl From<ObjectError> for Problem {
    /// Refused credentials are an outage too, never "not uploaded" (R-B8).
    fn from(error: ObjectError) -> Self {
        match error.kind() {
            ErrorKind::Outage if error.is_versioning_required() => {
                tracing::error!(%error, "the bucket has no versioning");
                Self::VersioningRequired
            }
            ErrorKind::Outage | ErrorKind::Suspect => {
                tracing::warn!(%error, "a request met an object store that is away");
                Self::StoreUnavailable
            }
            ErrorKind::Object => {
                tracing::error!(%error, "a request met a fault of the object store");
                Self::Internal
            }
        }
    }
}
