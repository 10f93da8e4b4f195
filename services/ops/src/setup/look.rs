//! What a bucket's configuration is now, as the store spells it: read before and after a step writes, so that the report
//! says `already` only of what did not change. Never parsed.

use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SignatureLocation, SigningSettings, sign};
use aws_sigv4::sign::v4;
use objects::S3Settings;
use reqwest::StatusCode;
use url::Url;

use super::Cause;

/// For one answer: some kilobytes at most.
const LOOK_WITHIN: Duration = Duration::from_secs(10);

/// A part of the bucket's configuration: the query that reads it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part(pub(super) &'static str);

/// Its text; `None` where there is none. Stores say that with a 404, or with a document that has nothing in it.
pub(super) async fn at(settings: &S3Settings, part: Part) -> Result<Option<String>, Cause> {
    let broken = |detail: String, is_away| Cause::Look { what: part.0, detail, is_away };
    let url = signed(settings, part).map_err(|detail| broken(detail, false))?;
    let http = reqwest::Client::builder()
        .timeout(LOOK_WITHIN)
        .build()
        .map_err(|error| broken(error.to_string(), false))?;
    // Errors are told without the URL: it is signed.
    let away = |error: reqwest::Error| broken(error.without_url().to_string(), true);
    let answer = http.get(url).send().await.map_err(away)?;
    let status = answer.status();
    let text = answer.text().await.map_err(away)?;
    match status {
        StatusCode::OK => Ok(Some(text).filter(|text| has_something(text))),
        StatusCode::NOT_FOUND => Ok(None),
        other => Err(broken(format!("{other}: {}", code(&text)), other.is_server_error())),
    }
}

/// A JSON document, or an XML one with an element inside its root.
fn has_something(text: &str) -> bool {
    text.starts_with('{') || text.matches("</").count() > 1
}

fn code(text: &str) -> &str {
    let code = text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
    code.map_or("no code", |(code, _)| code)
}

fn signed(settings: &S3Settings, part: Part) -> Result<Url, String> {
    let mut url = settings.endpoint.clone();
    url.path_segments_mut()
        .map_err(|()| "no address of a store".to_owned())?
        .pop_if_empty()
        .push(&settings.bucket);
    url.query_pairs_mut().append_pair(part.0, "");
    let keys = &settings.credentials;
    let identity = Credentials::new(&keys.access_key, &keys.secret_key, None, None, "settings").into();
    let mut how = SigningSettings::default();
    how.signature_location = SignatureLocation::QueryParams;
    how.expires_in = Some(LOOK_WITHIN);
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region(&settings.region)
        .name("s3")
        .time(clock())
        .settings(how)
        .build()
        .map_err(|error| error.to_string())?
        .into();
    let request =
        SignableRequest::new("GET", url.as_str(), std::iter::empty(), SignableBody::UnsignedPayload)
            .map_err(|error| error.to_string())?;
    let (instructions, _) = sign(request, &params).map_err(|error| error.to_string())?.into_parts();
    url.query_pairs_mut()
        .extend_pairs(instructions.params().iter().map(|(name, value)| (*name, value.as_ref())));
    Ok(url)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the date of a request sent now; nothing is stored or compared"
)]
fn clock() -> SystemTime {
    SystemTime::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_with_nothing_in_it_is_none() {
        assert!(!has_something("<NotificationConfiguration xmlns=\"x\"></NotificationConfiguration>"));
        assert!(!has_something("<?xml version=\"1.0\"?><NotificationConfiguration/>"));
        assert!(has_something("<N><TopicConfiguration><Id>a</Id></TopicConfiguration></N>"));
        assert!(has_something(r#"{"Version":"2012-10-17"}"#));
    }
}
