//! The envelopes that records come in.
//!
//! In: a body. Out: its records, still unread, so that one bad record spoils no other (`aws_lambda_events::S3Event` is
//! all or nothing). An envelope's own `EventName` and Key are not read: the record decides, and they need not agree.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::{DeadReason, record};

/// A body, opened.
pub(super) enum Envelope<'a> {
    /// Records, at least one.
    Records(Vec<&'a RawValue>),
    /// SNS: the body it carries.
    Sns(String),
    /// EventBridge: one event.
    EventBridge(EventBridge<'a>),
    /// `s3:TestEvent`.
    Test,
    /// None of these.
    Dead(DeadReason),
}

/// An EventBridge event, its detail still unread.
pub(super) struct EventBridge<'a> {
    pub(super) detail_type: String,
    pub(super) source: String,
    pub(super) detail: &'a RawValue,
}

/// Every field raw: one of a wrong type is as good as missing, never an error.
#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow, rename = "Records")]
    records: Option<&'a RawValue>,
    #[serde(borrow, rename = "Event")]
    event: Option<&'a RawValue>,
    #[serde(borrow, rename = "Type")]
    sns_type: Option<&'a RawValue>,
    #[serde(borrow, rename = "Message")]
    sns_message: Option<&'a RawValue>,
    #[serde(borrow, rename = "detail-type")]
    detail_type: Option<&'a RawValue>,
    #[serde(borrow)]
    source: Option<&'a RawValue>,
    #[serde(borrow)]
    detail: Option<&'a RawValue>,
}

impl<'a> Envelope<'a> {
    /// Opens a body.
    pub(super) fn open(body: &'a [u8]) -> Self {
        // First the syntax of all of it: a later error is then one of shape. Skipping keeps no stack, so depth is harmless.
        if serde_json::from_slice::<IgnoredAny>(body).is_err() {
            return Self::Dead(DeadReason::NotJson);
        }
        // serde would read a struct from an array too.
        if !body.trim_ascii_start().starts_with(b"{") {
            return Self::Dead(DeadReason::NoRecords);
        }
        let fields: Fields<'a> = match serde_json::from_slice(body) {
            Ok(fields) => fields,
            // Two `Records`, say: which one counts is anybody's guess.
            Err(error) if error.is_data() => return Self::Dead(record::unparsable(&error)),
            // Bytes that are not UTF-8 in a field we read; in one we skip they do no harm.
            Err(_) => return Self::Dead(DeadReason::NotJson),
        };
        if let Some(records) = fields.records.and_then(list) {
            return Self::Records(records);
        }
        if text(fields.event).as_deref() == Some("s3:TestEvent") {
            return Self::Test;
        }
        if text(fields.sns_type).as_deref() == Some("Notification")
            && let Some(message) = text(fields.sns_message)
        {
            return Self::Sns(message);
        }
        if let (Some(detail_type), Some(source), Some(detail)) =
            (text(fields.detail_type), text(fields.source), fields.detail)
        {
            return Self::EventBridge(EventBridge { detail_type, source, detail });
        }
        Self::Dead(DeadReason::NoRecords)
    }
}

fn list(raw: &RawValue) -> Option<Vec<&RawValue>> {
    serde_json::from_str::<Vec<&RawValue>>(raw.get()).ok().filter(|records| !records.is_empty())
}

fn text(raw: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(raw?.get()).ok()
}
