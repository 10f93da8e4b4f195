//! Every code a problem can have, and what it means: the one table (R-D5). Answers and the pages under `/problems` are
//! both made of it, so they can't disagree.

use http::StatusCode;

/// A stable code: the last part of a problem's `type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    MalformedJson,
    InvalidRequest,
    UnsupportedMediaType,
    PayloadTooLarge,
    NotFound,
    RouteNotFound,
    MethodNotAllowed,
    MissingToken,
    InvalidToken,
    TokenExpired,
    KeysUnavailable,
    ForeignHost,
    IdempotencyMismatch,
    PutTicketsUnavailable,
    InvalidState,
    ReplacementOpen,
    TicketExpired,
    UploadMissing,
    MetadataMismatch,
    NotReady,
    Gone,
    NoDerivative,
    VersioningRequired,
    StoreUnavailable,
    DatabaseUnavailable,
    Contended,
    Timeout,
    Unready,
    Refused,
    InternalError,
}

/// What a code means for a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) code: &'static str,
    pub(crate) status: StatusCode,
    pub(crate) title: &'static str,
    /// Whether the same request may go through later.
    pub(crate) is_retryable: bool,
    /// For people: how it comes to this.
    pub(crate) meaning: &'static str,
    /// For people: what to do next.
    pub(crate) next: &'static str,
}

impl Code {
    /// Every code, as the list of pages has them: by what they are about.
    pub(crate) const ALL: [Self; 30] = [
        Self::MalformedJson,
        Self::InvalidRequest,
        Self::UnsupportedMediaType,
        Self::PayloadTooLarge,
        Self::IdempotencyMismatch,
        Self::PutTicketsUnavailable,
        Self::Refused,
        Self::RouteNotFound,
        Self::MethodNotAllowed,
        Self::MissingToken,
        Self::InvalidToken,
        Self::TokenExpired,
        Self::ForeignHost,
        Self::NotFound,
        Self::UploadMissing,
        Self::MetadataMismatch,
        Self::TicketExpired,
        Self::InvalidState,
        Self::ReplacementOpen,
        Self::NotReady,
        Self::NoDerivative,
        Self::Gone,
        Self::Contended,
        Self::Timeout,
        Self::StoreUnavailable,
        Self::DatabaseUnavailable,
        Self::KeysUnavailable,
        Self::VersioningRequired,
        Self::Unready,
        Self::InternalError,
    ];

    /// The code of this name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.row().code == name)
    }

    #[expect(clippy::too_many_lines, reason = "a table")]
    pub(crate) fn row(self) -> Row {
        let row = |status, code, title, meaning, next| Row {
            code,
            status,
            title,
            is_retryable: false,
            meaning,
            next,
        };
        let retryable = |status, code, title, meaning, next| Row {
            is_retryable: true,
            ..row(status, code, title, meaning, next)
        };
        let unavailable = |code, title, meaning, next| {
            retryable(StatusCode::SERVICE_UNAVAILABLE, code, title, meaning, next)
        };
        match self {
            Self::MalformedJson => row(
                StatusCode::BAD_REQUEST,
                "malformed_json",
                "The body is no JSON",
                "The body of the request can't be read as JSON, or a member stands in it twice.",
                "Send one JSON object; `detail` says where reading ended.",
            ),
            Self::InvalidRequest => row(
                StatusCode::UNPROCESSABLE_ENTITY,
                "invalid_request",
                "The request is not valid",
                "A field, a query parameter or a header is not as it must be.",
                "Each entry of `errors` names one by pointer, parameter or header, and says what is allowed. Mend it \
                 and send the request again.",
            ),
            Self::UnsupportedMediaType => row(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported_media_type",
                "The body must be JSON",
                "The request's Content-Type is not application/json.",
                "Send Content-Type: application/json.",
            ),
            Self::PayloadTooLarge => row(
                StatusCode::PAYLOAD_TOO_LARGE,
                "payload_too_large",
                "The body is too large",
                "The body is larger than any request of this service. A file's bytes never go through here.",
                "Ask for a ticket with POST /v1/files, and send the bytes to the address in it.",
            ),
            Self::NotFound => row(
                StatusCode::NOT_FOUND,
                "not_found",
                "There is no such file",
                "You have no file of this id. A file of somebody else looks the same.",
                "Check the id, and whether the token is the right person's.",
            ),
            Self::RouteNotFound => row(
                StatusCode::NOT_FOUND,
                "route_not_found",
                "There is no such route",
                "The path leads nowhere.",
                "Check the path: spelling, version, and no slash at its end.",
            ),
            Self::MethodNotAllowed => row(
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "The route has other methods",
                "The path is right, its method is not.",
                "Use a method that the header Allow names.",
            ),
            Self::MissingToken => row(
                StatusCode::UNAUTHORIZED,
                "missing_token",
                "A token is needed",
                "The request has no Bearer token.",
                "Send the header Authorization: Bearer <token>.",
            ),
            Self::InvalidToken => row(
                StatusCode::UNAUTHORIZED,
                "invalid_token",
                "The token is not accepted",
                "The token is of another issuer, for another service, not valid yet, or not signed as it must be.",
                "`detail` says which. Get a token from the issuer this service trusts.",
            ),
            Self::TokenExpired => row(
                StatusCode::UNAUTHORIZED,
                "token_expired",
                "The token has expired",
                "The token was good once; its time is over.",
                "Get a new token and send the request again.",
            ),
            Self::KeysUnavailable => unavailable(
                "keys_unavailable",
                "Tokens can't be checked at the moment",
                "The keys that tokens are checked with can't be read. The token may be good.",
                "Wait as long as Retry-After says and try again.",
            ),
            Self::ForeignHost => row(
                StatusCode::FORBIDDEN,
                "foreign_host",
                "Only this machine is served here",
                "The development issuer gives tokens to pages of this machine alone, and the request's Host is \
                 another one.",
                "Use http://127.0.0.1 or http://localhost in the address.",
            ),
            Self::IdempotencyMismatch => row(
                StatusCode::UNPROCESSABLE_ENTITY,
                "idempotency_mismatch",
                "The idempotency key belongs to another request",
                "This Idempotency-Key came with another body before.",
                "Use a new key for a new request, and the old key only to repeat the old one.",
            ),
            Self::PutTicketsUnavailable => row(
                StatusCode::UNPROCESSABLE_ENTITY,
                "put_tickets_unavailable",
                "PUT tickets are not given here",
                "This object store takes more with a presigned PUT than was signed, so no PUT tickets are given.",
                "Ask for method POST: the ticket then is a form.",
            ),
            Self::InvalidState => row(
                StatusCode::CONFLICT,
                "invalid_state",
                "The file's state does not allow this",
                "The file is past what was asked for; `state` says where it is.",
                "Read the file: its state, problem and timeline say what happened.",
            ),
            Self::ReplacementOpen => row(
                StatusCode::CONFLICT,
                "replacement_open",
                "The file has an open replacement already",
                "A ticket that takes the place of this file is out, or its upload is being read.",
                "Wait until that one has ended, or delete it, and ask again.",
            ),
            Self::TicketExpired => row(
                StatusCode::GONE,
                "ticket_expired",
                "The ticket is over",
                "The ticket's time is over and nothing that fits was uploaded in time.",
                "Ask for a new ticket with POST /v1/files, and upload again.",
            ),
            Self::UploadMissing => retryable(
                StatusCode::CONFLICT,
                "upload_missing",
                "The upload is not there",
                "Nothing was uploaded under this ticket yet.",
                "Finish the upload, then ask again. It is confirmed without being asked for, too.",
            ),
            Self::MetadataMismatch => row(
                StatusCode::UNPROCESSABLE_ENTITY,
                "metadata_mismatch",
                "The upload is not what the ticket is for",
                "Size, type or metadata of what was uploaded are not those that the ticket permits; it was removed.",
                "`problem` says what differs. Upload the right file with the same ticket while it lives.",
            ),
            Self::NotReady => row(
                StatusCode::CONFLICT,
                "not_ready",
                "The file is not ready",
                "Only files that were read in full are served. A rejected or expired one never will be.",
                "If `retryable` is true, ask again in a few seconds; else the file's problem says why it was refused.",
            ),
            Self::Gone => row(
                StatusCode::GONE,
                "gone",
                "The file is deleted",
                "The file was deleted, or its deletion was asked for.",
                "Upload it again if it is still needed.",
            ),
            Self::NoDerivative => row(
                StatusCode::NOT_FOUND,
                "no_derivative",
                "The file has no such derivative",
                "No such picture was made of this file; of a text none is.",
                "The file's `derivatives` list those there are.",
            ),
            Self::VersioningRequired => unavailable(
                "versioning_required",
                "The bucket has no versioning: an operator must act",
                "Nothing can be accepted safely in a bucket without versions. Nobody who uploads is to blame.",
                "Operators: run `arkiv setup`. All others: try again later; nothing is lost.",
            ),
            Self::StoreUnavailable => unavailable(
                "store_unavailable",
                "The object store does not answer",
                "The object store is away, slow, or refuses this service.",
                "Nothing is lost: wait as long as Retry-After says and try again.",
            ),
            Self::DatabaseUnavailable => unavailable(
                "database_unavailable",
                "The database does not answer",
                "The database is away or too slow.",
                "Nothing is lost: wait as long as Retry-After says and try again.",
            ),
            Self::Contended => unavailable(
                "contended",
                "The file is being changed by others",
                "Others changed the same file at the same time, again and again.",
                "Nothing is lost: wait as long as Retry-After says and try again.",
            ),
            Self::Timeout => unavailable(
                "timeout",
                "The answer took too long",
                "The request took longer than it may.",
                "Wait as long as Retry-After says and try again; a new file is made once if the request has an \
                 Idempotency-Key.",
            ),
            Self::Unready => unavailable(
                "unready",
                "Something this process needs is away",
                "This process can't do its work at the moment; `checks` says what it lacks.",
                "Operators: /readyz?verbose says more, the log most. All others: try again later.",
            ),
            Self::Refused => row(
                StatusCode::BAD_REQUEST,
                "refused",
                "The request was refused",
                "The server itself refused the request, with the status that the answer has.",
                "`status` and `detail` say why.",
            ),
            Self::InternalError => row(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal_error",
                "Something is wrong on our side",
                "A fault of the service itself.",
                "Tell its operators the `trace_id`: it finds the log of this request.",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_reads_back_and_none_is_there_twice() {
        for code in Code::ALL {
            assert_eq!(Code::parse(code.row().code), Some(code));
        }
        assert_eq!(Code::parse("nonsense"), None);
    }

    #[test]
    fn every_row_says_what_to_do_in_whole_sentences() {
        for row in Code::ALL.map(Code::row) {
            assert!(row.meaning.ends_with('.') && row.next.ends_with('.'), "{}", row.code);
            assert!(row.status.is_client_error() || row.status.is_server_error(), "{}", row.code);
            assert!(row.code.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase()), "{}", row.code);
        }
    }
}
