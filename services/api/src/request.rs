//! What is asked for: the body of `POST /v1/files`, field by field. Pure.
//!
//! In: the bytes. Out: a [`TicketRequest`], or everything that is wrong with them, each with its JSON pointer (R-D5).

use cards::{Announced, ByteCount, CardId, Keep, MediaType, Sha256, TicketMethod};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};

use crate::ApiSettings;
use crate::error::{FieldError, Problem};

/// Longest file name, in characters; the database's CHECK says the same.
const FILENAME_CHARACTERS_MAX: usize = 255;
/// Most errors listed: a body of nothing but unknown fields need not come back doubled.
const ERRORS_MAX: usize = 20;
/// What stays as it is in a URI fragment (RFC 6901, 6).
const FRAGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A request for a ticket that has nothing wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TicketRequest {
    pub(crate) filename: String,
    pub(crate) announced: Announced,
    pub(crate) method: TicketMethod,
    pub(crate) keep: Keep,
    pub(crate) replaces: Option<CardId>,
}

/// Reads the body of `POST /v1/files`.
pub(crate) fn parse(body: &[u8], settings: &ApiSettings) -> Result<TicketRequest, Problem> {
    let value: Value = serde_json::from_slice(body).map_err(|error| {
        Problem::MalformedJson(format!(
            "the body can't be read as JSON at line {}, column {}",
            error.line(),
            error.column()
        ))
    })?;
    let Value::Object(fields) = value else {
        let error = FieldError::field("#", "invalid_type", "the body must be an object");
        return Err(Problem::InvalidRequest(vec![error]));
    };
    let mut errors = Errors(Vec::new());
    let filename = errors.take(required(&fields, "filename").and_then(filename));
    let size = errors.take(required(&fields, "size").and_then(|value| size(value, settings)));
    let media_type =
        errors.take(required(&fields, "content_type").and_then(|value| media_type(value, settings)));
    let sha256 = errors.take(optional(&fields, "sha256", sha256));
    let method = errors.take(optional(&fields, "method", method));
    let keep = errors.take(optional(&fields, "keep", keep));
    let replaces = errors.take(optional(&fields, "replaces", replaces));
    for name in fields.keys() {
        match name.as_str() {
            "filename" | "size" | "content_type" | "sha256" | "method" | "keep" | "replaces" => {}
            other => {
                errors.push(FieldError::field(pointer(other), "unknown_field", "there is no such field"));
            }
        }
    }
    match (filename, size, media_type, sha256, method, keep, replaces) {
        (
            Some(filename),
            Some(size),
            Some(media_type),
            Some(sha256),
            Some(method),
            Some(keep),
            Some(replaces),
        ) if errors.0.is_empty() => Ok(TicketRequest {
            filename,
            announced: Announced { size, media_type, sha256 },
            method: method.unwrap_or_default(),
            keep: keep.unwrap_or_default(),
            replaces,
        }),
        _ => Err(Problem::InvalidRequest(errors.0)),
    }
}

struct Errors(Vec<FieldError>);

impl Errors {
    fn push(&mut self, error: FieldError) {
        if self.0.len() < ERRORS_MAX {
            self.0.push(error);
        }
    }

    fn take<T>(&mut self, parsed: Result<T, FieldError>) -> Option<T> {
        parsed.map_err(|error| self.push(error)).ok()
    }
}

fn required<'a>(fields: &'a Map<String, Value>, name: &str) -> Result<&'a Value, FieldError> {
    fields
        .get(name)
        .ok_or_else(|| FieldError::field(format!("#/{name}"), "required", format!("{name} is needed")))
}

/// A field that may be left out, or be null, which says the same.
fn optional<T>(
    fields: &Map<String, Value>,
    name: &str,
    parse: impl FnOnce(&Value) -> Result<T, FieldError>,
) -> Result<Option<T>, FieldError> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => parse(value).map(Some),
    }
}

/// White space around a name is never meant.
fn filename(value: &Value) -> Result<String, FieldError> {
    let wrong = |code, detail: &str| FieldError::field("#/filename", code, detail);
    let name = value.as_str().ok_or_else(|| wrong("invalid_type", "filename is a text"))?.trim();
    if name.is_empty() {
        return Err(wrong("too_short", "a file name has at least one character that shows"));
    }
    if name.chars().count() > FILENAME_CHARACTERS_MAX {
        return Err(wrong("too_long", "a file name has at most 255 characters"));
    }
    if name.chars().any(char::is_control) {
        return Err(wrong("control_character", "a file name has no control characters"));
    }
    Ok(name.to_owned())
}

fn size(value: &Value, settings: &ApiSettings) -> Result<ByteCount, FieldError> {
    let wrong = |code, detail: String| FieldError::field("#/size", code, detail);
    let bytes = value
        .as_u64()
        .ok_or_else(|| wrong("invalid_type", "size is a whole number of bytes, 1 or more".to_owned()))?;
    match ByteCount::new(bytes) {
        Ok(size) if bytes <= settings.size_bytes_max => Ok(size),
        Err(_) if bytes == 0 => Err(wrong("too_small", "an empty file is no file".to_owned())),
        Ok(_) | Err(_) => {
            Err(wrong("too_large", format!("a file has at most {} bytes", settings.size_bytes_max)))
        }
    }
}

fn media_type(value: &Value, settings: &ApiSettings) -> Result<MediaType, FieldError> {
    let wrong = |code, detail: String| FieldError::field("#/content_type", code, detail);
    let text = value.as_str().ok_or_else(|| wrong("invalid_type", "content_type is a text".to_owned()))?;
    match text.parse() {
        Ok(media_type) if is_taken_in(media_type, settings) => Ok(media_type),
        Ok(_) | Err(_) => {
            let taken: Vec<&str> = MediaType::ALL
                .into_iter()
                .filter(|media_type| is_taken_in(*media_type, settings))
                .map(MediaType::as_str)
                .collect();
            Err(wrong("unsupported_content_type", format!("these are taken in: {}", taken.join(", "))))
        }
    }
}

fn is_taken_in(media_type: MediaType, settings: &ApiSettings) -> bool {
    media_type != MediaType::Gif || settings.allow_gif
}

fn sha256(value: &Value) -> Result<Sha256, FieldError> {
    value.as_str().and_then(|text| text.parse().ok()).ok_or_else(|| {
        FieldError::field("#/sha256", "invalid_format", "a SHA-256 is written as 64 hex digits")
    })
}

fn method(value: &Value) -> Result<TicketMethod, FieldError> {
    value
        .as_str()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| FieldError::field("#/method", "invalid_value", "method is POST or PUT"))
}

fn keep(value: &Value) -> Result<Keep, FieldError> {
    value
        .as_str()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| FieldError::field("#/keep", "invalid_value", "keep is always or attached"))
}

fn replaces(value: &Value) -> Result<CardId, FieldError> {
    value.as_str().and_then(|text| text.parse().ok()).ok_or_else(|| {
        FieldError::field("#/replaces", "invalid_format", "replaces is the id of one of your files")
    })
}

/// RFC 6901, as a URI fragment: any name can be pointed at, and none can break out.
fn pointer(name: &str) -> String {
    let escaped = name.replace('~', "~0").replace('/', "~1");
    format!("#/{}", utf8_percent_encode(&escaped, FRAGMENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_escapes_what_pointers_and_fragments_give_a_meaning() {
        assert_eq!(pointer("size"), "#/size");
        assert_eq!(pointer("a/b~c"), "#/a~1b~0c");
        assert_eq!(pointer("a b\"#\u{e9}"), "#/a%20b%22%23%C3%A9");
    }
}
