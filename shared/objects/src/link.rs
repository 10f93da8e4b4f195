//! The link: the signed permission to read one version for a minute (R-D2).
//!
//! In: a version of a `ready` card's object or derivative. Out: a URL that gives exactly these bytes, with the type and
//! the disposition we chose; what the uploader said about them is not asked. Signed by an identity that may only read.

use std::time::Duration;

use cards::{Timestamp, VersionId};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use url::Url;

use crate::sign::{Signable, encode_query, object_url, presign};
use crate::{ObjectError, Operation, SignerSettings, listing};

/// How long a link lives (R-D2).
pub const LINK_LIFE: Duration = Duration::from_mins(1);
/// Longest name that is offered, in characters: what file systems take with room for "(1)".
const NAME_CHARACTERS_MAX: usize = 180;
/// What a name is called that has nothing left.
const NAMELESS: &str = "file";
/// RFC 8187's `attr-char`: all else is encoded.
const ATTRIBUTE: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

/// Signs links.
#[derive(Clone, Debug)]
pub struct LinkSigner {
    settings: SignerSettings,
}

/// What a link gives.
#[derive(Clone, Copy, Debug)]
pub struct LinkRequest<'a> {
    /// The key.
    pub key: &'a str,
    /// The version it is fixed to.
    pub version: &'a VersionId,
    /// When it is issued: the date in the signature.
    pub issued_at: Timestamp,
    /// How long it is good; [`LINK_LIFE`] unless a test says otherwise.
    pub life: Duration,
    /// The Content-Type it answers with.
    pub content_type: &'a str,
    /// The Content-Disposition it answers with: [`attachment`], or `inline` for derivatives.
    pub disposition: &'a str,
}

impl LinkSigner {
    /// A signer for one bucket.
    pub fn new(settings: SignerSettings) -> Self {
        Self { settings }
    }

    /// The link.
    pub fn link(&self, request: &LinkRequest<'_>) -> Result<Url, ObjectError> {
        listing::check_key(Operation::Sign, request.key)?;
        let SignerSettings { endpoint, region, bucket, credentials } = &self.settings;
        let mut url = object_url(endpoint, bucket, request.key);
        for (at, (name, value)) in [
            // Whoever holds the link may keep the answer for as long as it lives, a shared cache may not.
            ("response-cache-control", format!("private, max-age={}", request.life.as_secs()).as_str()),
            ("response-content-disposition", request.disposition),
            ("response-content-type", request.content_type),
            ("versionId", request.version.as_str()),
        ]
        .into_iter()
        .enumerate()
        {
            url.push(if at == 0 { '?' } else { '&' });
            url.push_str(name);
            url.push('=');
            url.push_str(&encode_query(value));
        }
        presign(
            &Signable { method: "GET", url: &url, headers: &[], credentials, region, at: request.issued_at },
            request.life,
        )
    }
}

/// A Content-Disposition that makes a browser save the file under its name, whatever the name (RFC 6266, RFC 8187).
///
/// Quotes, control and right-to-left characters are dropped, so that the name can't end the header early or show
/// `exe.gpj` as `jpg.exe`; path separators become `_`. Any script goes through as UTF-8, beside an ASCII fallback.
pub fn attachment(filename: &str) -> String {
    let name = safe_name(filename);
    let fallback: String = name.chars().map(|c| if c.is_ascii() && c != '%' { c } else { '_' }).collect();
    format!("attachment; filename=\"{fallback}\"; filename*=UTF-8''{}", utf8_percent_encode(&name, ATTRIBUTE))
}

fn safe_name(filename: &str) -> String {
    let kept: String = filename
        .chars()
        .filter(|c| !is_dropped(*c))
        .map(|c| if matches!(c, '/' | '\\' | ':' | '*' | '?' | '<' | '>' | '|') { '_' } else { c })
        .collect();
    // A leading dot hides the file, a trailing dot or space is dropped by some systems and makes another name.
    let trimmed = kept.trim_start_matches(|c: char| c == '.' || c.is_whitespace());
    let trimmed = trimmed.trim_end_matches(|c: char| c == '.' || c.is_whitespace());
    if trimmed.is_empty() { NAMELESS.to_owned() } else { shorten(trimmed) }
}

fn is_dropped(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '"' | '\''
            // Arabic letter mark, zero-width space, direction marks, embeddings, overrides and isolates.
            | '\u{061C}' | '\u{200B}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}'
            // Line and paragraph separator, byte order mark.
            | '\u{2028}' | '\u{2029}' | '\u{FEFF}'
        )
}

/// Cuts the middle, never the extension: it is what opens the file.
fn shorten(name: &str) -> String {
    if name.chars().count() <= NAME_CHARACTERS_MAX {
        return name.to_owned();
    }
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    if extension.is_empty() || extension.chars().count() > 16 {
        return name.chars().take(NAME_CHARACTERS_MAX).collect();
    }
    let stem_characters = NAME_CHARACTERS_MAX - extension.chars().count() - 1;
    format!("{}.{extension}", name.chars().take(stem_characters).collect::<String>())
}
