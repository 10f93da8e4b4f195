//! The query of `GET /v1/files`: filters, limit and the opaque cursor (ECOSYSTEM 1.3). Pure.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use cards::{Card, MediaType, StateName, Timestamp};
use store::cards::{Cursor, Filter};
use url::form_urlencoded;

use crate::error::{FieldError, Problem};

const LIMIT_DEFAULT: usize = 20;
const LIMIT_MAX: usize = 100;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) filter: Filter,
    pub(crate) after: Option<Cursor>,
    pub(crate) limit: usize,
}

/// Reads the query; unknown parameters are refused, for a misspelt filter would show everything.
pub(crate) fn parse(query: &str) -> Result<Page, Problem> {
    let mut page = Page { filter: Filter::default(), after: None, limit: LIMIT_DEFAULT };
    let mut errors = Vec::new();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let result = match name.as_ref() {
            "limit" => limit(&value).map(|limit| page.limit = limit),
            "cursor" => cursor(&value).map(|cursor| page.after = Some(cursor)),
            "state" => states(&value).map(|states| page.filter.states.extend(states)),
            "content_type" => media_type(&value).map(|media_type| {
                page.filter.content_type = Some(media_type.as_str().to_owned());
            }),
            other => Err(FieldError::parameter(
                other,
                "unknown_parameter",
                "the parameters are limit, cursor, state and content_type",
            )),
        };
        errors.extend(result.err());
    }
    if errors.is_empty() { Ok(page) } else { Err(Problem::InvalidRequest(errors)) }
}

/// The query of the page after `last`, with the same filters.
pub(crate) fn next_query(page: &Page, last: &Card) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for state in &page.filter.states {
        query.append_pair("state", state.as_str());
    }
    if let Some(content_type) = &page.filter.content_type {
        query.append_pair("content_type", content_type);
    }
    query.append_pair("limit", &page.limit.to_string());
    query.append_pair("cursor", &cursor_after(last));
    query.finish()
}

/// The cursor of the page after `last`.
pub(crate) fn cursor_after(last: &Card) -> String {
    BASE64.encode(format!("{}.{}", last.created_at.timestamp_micros(), last.id))
}

fn cursor(text: &str) -> Result<Cursor, FieldError> {
    let read = || {
        let decoded = String::from_utf8(BASE64.decode(text).ok()?).ok()?;
        let (micros, id) = decoded.split_once('.')?;
        let created_at = Timestamp::from_timestamp_micros(micros.parse().ok()?)?;
        // What PostgreSQL's timestamptz can't hold would be a fault of the database instead of one of the cursor.
        (1970..=9999).contains(&chrono::Datelike::year(&created_at)).then_some(())?;
        Some(Cursor { created_at, id: id.parse().ok()? })
    };
    read().ok_or_else(|| {
        FieldError::parameter(
            "cursor",
            "invalid_cursor",
            "a cursor is taken as it was given, from next_cursor",
        )
    })
}

fn limit(text: &str) -> Result<usize, FieldError> {
    text.parse()
        .ok()
        .filter(|limit| (1..=LIMIT_MAX).contains(limit))
        .ok_or_else(|| FieldError::parameter("limit", "out_of_range", format!("limit is 1 to {LIMIT_MAX}")))
}

/// One state, or several with commas.
fn states(text: &str) -> Result<Vec<StateName>, FieldError> {
    text.split(',').map(str::parse).collect::<Result<_, _>>().map_err(|_| {
        let names = StateName::ALL.map(StateName::as_str).join(", ");
        FieldError::parameter("state", "invalid_value", format!("the states are {names}"))
    })
}

fn media_type(text: &str) -> Result<MediaType, FieldError> {
    text.parse().map_err(|_| {
        let names = MediaType::ALL.map(MediaType::as_str).join(", ");
        FieldError::parameter("content_type", "invalid_value", format!("the content types are {names}"))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_query_reads_as_it_says() {
        let page = parse("limit=5&state=ready,duplicate&state=rejected&content_type=image%2Fpng").unwrap();
        assert_eq!(page.limit, 5);
        assert_eq!(page.filter.states, [StateName::Ready, StateName::Duplicate, StateName::Rejected]);
        assert_eq!(page.filter.content_type.as_deref(), Some("image/png"));
        assert_eq!(parse("").unwrap().limit, LIMIT_DEFAULT);
    }

    #[test]
    fn each_wrong_parameter_is_named() {
        for (query, name, code) in [
            ("limit=0", "limit", "out_of_range"),
            ("limit=101", "limit", "out_of_range"),
            ("limit=x", "limit", "out_of_range"),
            ("state=Ready", "state", "invalid_value"),
            ("state=", "state", "invalid_value"),
            ("content_type=image/svg%2Bxml", "content_type", "invalid_value"),
            ("cursor=", "cursor", "invalid_cursor"),
            ("cursor=AAAA", "cursor", "invalid_cursor"),
            ("owner=x", "owner", "unknown_parameter"),
        ] {
            let Err(Problem::InvalidRequest(errors)) = parse(query) else { panic!("{query}") };
            let error = serde_json::to_value(&errors[0]).unwrap();
            assert_eq!((errors.len(), &error["parameter"], &error["code"]), (1, &name.into(), &code.into()));
        }
    }

    proptest! {
        #[test]
        fn no_query_panics(query in ".{0,200}") {
            let _ = parse(&query);
        }

        #[test]
        fn no_cursor_reaches_the_database_that_it_could_not_hold(text in "-?[0-9]{1,20}") {
            let cursor = BASE64.encode(format!("{text}.0192f3c4-7a11-7c3e-9d2f-5b6a7c8d9e01"));
            if let Ok(page) = parse(&format!("cursor={cursor}")) {
                prop_assert!(page.after.unwrap().created_at.timestamp() < 253_402_300_800);
            }
        }
    }
}
