//! What a bucket's configuration is now, as the store spells it: setup reads it before and after it writes, so that its
//! report says `already` only of what did not change. Never parsed.

use std::time::Duration;

use reqwest::StatusCode;

use super::Admin;
use crate::s3::{self, invalid, unavailable};
use crate::sign::{Signable, bucket_url, presign};
use crate::{ObjectError, Operation};

/// The signature's life; the request is sent at once.
const SIGNED_FOR: Duration = Duration::from_secs(30);

/// A part of a bucket's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Configuration {
    /// Who may do what.
    Policy,
    /// Which pages may ask.
    Cors,
    /// What is tidied up by itself.
    Lifecycle,
    /// What is told to whom.
    Notification,
    /// Whether ACLs and policies can publish.
    PublicAccessBlock,
}

impl Configuration {
    /// The query that reads it, and its name in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Cors => "cors",
            Self::Lifecycle => "lifecycle",
            Self::Notification => "notification",
            Self::PublicAccessBlock => "publicAccessBlock",
        }
    }
}

impl Admin {
    /// The text of a part; `None` where there is none. Stores say that with a 404, or with a document that has nothing
    /// in it.
    pub async fn configuration(&self, part: Configuration) -> Result<Option<String>, ObjectError> {
        let url = format!("{}?{}=", bucket_url(&self.settings.endpoint, self.bucket()), part.as_str());
        let url = presign(
            &Signable {
                method: "GET",
                url: &url,
                headers: &[],
                credentials: &self.settings.credentials,
                region: &self.settings.region,
                at: Self::clock(),
            },
            SIGNED_FOR,
        )?;
        // Errors are told without the URL: it is signed.
        let away = |error: reqwest::Error| {
            unavailable(Operation::Setup, self.bucket(), &s3::chain(&error.without_url()))
        };
        let answer = self.http.get(url).send().await.map_err(away)?;
        let status = answer.status();
        let text = answer.text().await.map_err(away)?;
        let detail = || format!("{}: {status}: {}", part.as_str(), code(&text));
        match status {
            StatusCode::OK => Ok(Some(text).filter(|text| has_something(text))),
            StatusCode::NOT_FOUND => Ok(None),
            StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => Err(ObjectError::Denied {
                operation: Operation::Setup,
                key: self.bucket().to_owned(),
                detail: detail(),
            }),
            other if other.is_server_error() => Err(unavailable(Operation::Setup, self.bucket(), &detail())),
            _ => Err(invalid(Operation::Setup, self.bucket(), &detail())),
        }
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
