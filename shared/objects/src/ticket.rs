//! The ticket: the short signed permission to upload one file (R-A2), in the shape of ECOSYSTEM 1.2's `upload` object.
//!
//! In: what the card says. Out: a [`Ticket`] that a browser can use and cannot stretch: exact key, exact Content-Type,
//! exact length, an end. A ticket is signed from the times the database gave, so that signing it again gives the same
//! ticket. Whoever signs may only `PutObject` under `incoming/`; no clock and no network is used here.
//!
//! A PUT ticket is only as good as the store: one that takes unsigned `x-amz-copy-source` or `x-amz-acl` headers beside
//! a presigned PUT must not be given any ([`crate::admin::Admin::probe_put`]).

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use cards::confirm::TRACE_METADATA;
use cards::{Sha256, Timestamp};
use chrono::SecondsFormat;
use serde::{Serialize, Serializer};
use serde_json::json;

use crate::sign::{Signable, bucket_url, credential_scope, object_url, presign, sign_policy};
use crate::{ObjectError, Operation, SignerSettings, listing};

/// What a store answers an upload by form with: 201 has a body that names the key and its `ETag`, 204 has none.
const FORM_ANSWER_STATUS: &str = "201";

/// Signs tickets.
#[derive(Clone, Debug)]
pub struct TicketSigner {
    settings: SignerSettings,
}

/// What a ticket permits.
#[derive(Clone, Copy, Debug)]
pub struct TicketRequest<'a> {
    /// The exact key.
    pub key: &'a str,
    /// The exact size in bytes.
    pub size_bytes: u64,
    /// The exact Content-Type.
    pub content_type: &'a str,
    /// The digest, where announced. Only a PUT can carry it to the store.
    pub sha256: Option<Sha256>,
    /// When it is issued: the date in the signature.
    pub issued_at: Timestamp,
    /// When it ends.
    pub ends_at: Timestamp,
    /// The trace context that rides along as `x-amz-meta-traceparent`.
    pub traceparent: Option<&'a str>,
}

/// The ticket as the client gets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ticket {
    /// `POST` or `PUT`.
    pub method: &'static str,
    /// Where the bytes go.
    pub url: String,
    /// The key they will have.
    pub key: String,
    /// For how many seconds from its issue it is good.
    pub expires: u32,
    /// Until when it is good.
    #[serde(serialize_with = "in_seconds")]
    pub expires_at: Timestamp,
    /// Headers the client must send: exactly the signed ones that a browser does not set by itself.
    pub headers: BTreeMap<String, String>,
    /// Form fields that go before the file; a PUT ticket has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fields: Option<BTreeMap<String, String>>,
}

impl TicketSigner {
    /// A signer for one bucket.
    pub fn new(settings: SignerSettings) -> Self {
        Self { settings }
    }

    /// The permission to POST a form: a SigV4 policy.
    pub fn post(&self, request: &TicketRequest<'_>) -> Result<Ticket, ObjectError> {
        let expires = life_seconds(request)?;
        let SignerSettings { endpoint, region, bucket, credentials } = &self.settings;
        let scope = credential_scope(credentials, region, request.issued_at);
        let date = request.issued_at.format("%Y%m%dT%H%M%SZ").to_string();
        // Every field is a condition, and every condition that is compared is a field: they can't disagree.
        let mut fields = BTreeMap::from([
            ("key".to_owned(), request.key.to_owned()),
            ("Content-Type".to_owned(), request.content_type.to_owned()),
            ("success_action_status".to_owned(), FORM_ANSWER_STATUS.to_owned()),
            ("x-amz-algorithm".to_owned(), "AWS4-HMAC-SHA256".to_owned()),
            ("x-amz-credential".to_owned(), scope),
            ("x-amz-date".to_owned(), date),
        ]);
        if let Some(traceparent) = request.traceparent {
            fields.insert(format!("x-amz-meta-{TRACE_METADATA}"), traceparent.to_owned());
        }
        let mut conditions = vec![
            json!({ "bucket": bucket }),
            json!(["content-length-range", request.size_bytes, request.size_bytes]),
        ];
        conditions.extend(fields.iter().map(|(name, value)| json!({ name: value })));
        let policy = json!({
            "expiration": request.ends_at.to_rfc3339_opts(SecondsFormat::Millis, true),
            "conditions": conditions,
        });
        let policy = BASE64.encode(policy.to_string());
        let signature = sign_policy(credentials, region, request.issued_at, &policy);
        fields.insert("policy".to_owned(), policy);
        fields.insert("x-amz-signature".to_owned(), signature);
        Ok(Ticket {
            method: "POST",
            url: bucket_url(endpoint, bucket),
            key: request.key.to_owned(),
            expires,
            expires_at: request.ends_at,
            headers: BTreeMap::new(),
            fields: Some(fields),
        })
    }

    /// The permission to PUT the bytes: a presigned URL and the headers that are signed with it.
    pub fn put(&self, request: &TicketRequest<'_>) -> Result<Ticket, ObjectError> {
        let expires = life_seconds(request)?;
        let SignerSettings { endpoint, region, bucket, credentials } = &self.settings;
        let mut headers = BTreeMap::from([
            ("Content-Type".to_owned(), request.content_type.to_owned()),
            // A second upload on the same ticket is refused, where the store heeds it (Ceph does not: R-B6 holds anyway).
            ("If-None-Match".to_owned(), "*".to_owned()),
        ]);
        if let Some(digest) = request.sha256 {
            headers.insert("x-amz-checksum-sha256".to_owned(), BASE64.encode(digest.0));
        }
        if let Some(traceparent) = request.traceparent {
            headers.insert(format!("x-amz-meta-{TRACE_METADATA}"), traceparent.to_owned());
        }
        // Signed as well, but a browser sets it by itself and lets nobody else do so.
        let length = request.size_bytes.to_string();
        let mut signed: Vec<_> =
            headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        signed.push(("Content-Length", &length));
        let url = presign(
            &Signable {
                method: "PUT",
                url: &object_url(endpoint, bucket, request.key),
                headers: &signed,
                credentials,
                region,
                at: request.issued_at,
            },
            Duration::from_secs(expires.into()),
        )?;
        Ok(Ticket {
            method: "PUT",
            url: url.into(),
            key: request.key.to_owned(),
            expires,
            expires_at: request.ends_at,
            headers,
            fields: None,
        })
    }
}

/// Whole seconds, counted from the date in the signature, which has whole seconds too.
fn life_seconds(request: &TicketRequest<'_>) -> Result<u32, ObjectError> {
    listing::check_key(Operation::Sign, request.key)?;
    u32::try_from(request.ends_at.timestamp() - request.issued_at.timestamp())
        .ok()
        .filter(|seconds| *seconds > 0)
        .ok_or_else(|| ObjectError::Invalid {
            operation: Operation::Sign,
            key: request.key.to_owned(),
            detail: format!("a ticket issued at {} can't end at {}", request.issued_at, request.ends_at),
        })
}

fn in_seconds<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&time.to_rfc3339_opts(SecondsFormat::Secs, true))
}
