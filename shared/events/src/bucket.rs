//! What arrives from buckets: notifications of MinIO, RustFS, Ceph RGW and AWS S3 (bare, in SNS, in EventBridge),
//! parsed strictly (R-B1).
//!
//! In: the body of a message, as the broker delivered it, and the bucket and prefix that are ours. Out: a verdict for
//! each record, in the body's order. Nothing here fails: what cannot be taken is [`DeadReason`], what is no upload of
//! ours is [`Ignored`].
//!
//! The order of judgement: size of the body, JSON, records (none: dead, a test event: acked), then for each record alone:
//!
//! 1. its shape: what `aws_lambda_events` refuses is unparsable,
//! 2. event name: only Put, Post and `CompleteMultipartUpload`,
//! 3. source,
//! 4. bucket,
//! 5. key: not empty, strictly decodable by its source's rule,
//! 6. prefix,
//! 7. size: 0 or none is not an upload,
//! 8. version id: absent and `null` are values, anything no header can carry is unparsable.
//!
//! An event only says where to look: size and `ETag` are for comparison with HEAD, never instead of it (R-B2).

mod envelope;
mod key;
mod record;

use std::fmt;

use cards::{ETag, VersionId};

use envelope::Envelope;

/// Largest body read, in bytes: 1 MiB. A record is about 1 KB (a key of 1024 bytes escapes to 3 KB), AWS sends at most
/// 256 KiB and the others one record a message; more than this is no notification.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;
/// Longest key taken, in bytes after decoding: the limit of S3 and of every store here.
pub const KEY_BYTES_MAX: usize = 1024;

/// What is ours: events of other buckets and prefixes are acked and counted. Stores match their filters with wildcards
/// and one exchange may serve several buckets, so both are checked here again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope<'a> {
    /// The bucket, exactly.
    pub bucket: &'a str,
    /// What the decoded key begins with.
    pub prefix: &'a str,
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// One verdict a record, in the body's order; at least one.
    Records(Vec<Verdict>),
    /// `s3:TestEvent`, which AWS sends when a notification is configured: acked.
    Test,
    /// The message as a whole can't be read.
    Dead(DeadReason),
}

/// What one record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// An object may have been created where tickets point: look there.
    Created(Created),
    /// No upload of ours: acked and counted.
    Ignored(Ignored),
    /// Dead-lettered, once the message's good records are done.
    Dead(DeadReason),
}

/// Where to look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// Who sent it.
    pub source: Source,
    /// The key, decoded: 1 to [`KEY_BYTES_MAX`] bytes, no NUL.
    pub key: String,
    /// The version.
    pub version: EventVersion,
    /// The size the event claims, in bytes; at least 1.
    pub size_bytes: u64,
    /// The `ETag` the event claims.
    pub etag: Option<ETag>,
}

/// The version an event names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventVersion {
    /// Missing or empty: no versioning, or Ceph on POST and multipart, which leaves it out on versioned buckets too.
    Absent,
    /// `null`: versioning is suspended, the version can be overwritten in place.
    Null,
    /// This one.
    Id(VersionId),
}

/// Who sent an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// `minio:s3`
    Minio,
    /// `rustfs:s3`
    Rustfs,
    /// `ceph:s3`
    Ceph,
    /// `aws:s3`, bare or in SNS.
    Aws,
    /// `aws.s3`, AWS through EventBridge.
    EventBridge,
}

impl Source {
    /// The name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Minio => "minio",
            Self::Rustfs => "rustfs",
            Self::Ceph => "ceph",
            Self::Aws => "aws",
            Self::EventBridge => "eventbridge",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a record is no upload of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ignored {
    /// Not Put, Post or `CompleteMultipartUpload`: a copy, a tag, a lock, a removal.
    OtherEvent,
    /// Another bucket.
    OtherBucket,
    /// Another prefix.
    OtherPrefix,
    /// Size 0 or none: no object yet (Ceph's initiated multipart, MinIO's failed fan-out) or an empty one, which no
    /// ticket allows.
    Empty,
}

impl Ignored {
    /// Every reason.
    pub const ALL: [Self; 4] = [Self::OtherEvent, Self::OtherBucket, Self::OtherPrefix, Self::Empty];

    /// The name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OtherEvent => "other_event",
            Self::OtherBucket => "other_bucket",
            Self::OtherPrefix => "other_prefix",
            Self::Empty => "empty",
        }
    }
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a message or a record is dead-lettered. Its upload, if there is one, is found by the sweep (R-B9).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeadReason {
    /// Nothing this long is a notification.
    #[error("the body is larger than {BODY_BYTES_MAX} bytes")]
    TooLarge,
    /// Not JSON.
    #[error("the body is not JSON in UTF-8")]
    NotJson,
    /// JSON of another shape.
    #[error("the body has no Records, and is neither a test event nor an SNS or EventBridge envelope of any")]
    NoRecords,
    /// A record of another shape; what was wrong.
    #[error("the record can't be read: {0}")]
    Unparsable(String),
    /// A sender whose key encoding is not known; its name.
    #[error("the event source `{0}` is not known: keys are decoded by source, so its key can't be read")]
    UnknownSource(String),
    /// No key, or an empty one (a known bug of early RustFS multipart events). A HEAD on it would ask for the bucket.
    #[error("the key is empty")]
    KeyEmpty,
    /// A broken escape, bytes that are not UTF-8, or NUL, which PostgreSQL refuses in text.
    #[error("the key can't be decoded: a broken escape, invalid UTF-8 or NUL")]
    KeyUndecodable,
    /// Longer than any store's.
    #[error("the key is longer than {KEY_BYTES_MAX} bytes")]
    KeyTooLong,
}

impl DeadReason {
    /// A stable code for metrics and dead letters.
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::NotJson => "not_json",
            Self::NoRecords => "no_records",
            Self::Unparsable(_) => "unparsable",
            Self::UnknownSource(_) => "unknown_source",
            Self::KeyEmpty => "key_empty",
            Self::KeyUndecodable => "key_undecodable",
            Self::KeyTooLong => "key_too_long",
        }
    }
}

/// Parses the body of a bucket notification and judges each record.
pub fn parse(body: &[u8], scope: &Scope<'_>) -> Message {
    if body.len() > BODY_BYTES_MAX {
        return Message::Dead(DeadReason::TooLarge);
    }
    let outer = Envelope::open(body);
    if let Envelope::Sns(message) = &outer {
        return judge(Envelope::open(message.as_bytes()), scope);
    }
    judge(outer, scope)
}

fn judge(envelope: Envelope<'_>, scope: &Scope<'_>) -> Message {
    match envelope {
        Envelope::Records(records) => {
            Message::Records(records.into_iter().map(|record| record::judge(record, scope)).collect())
        }
        Envelope::EventBridge(event) => Message::Records(vec![record::judge_event_bridge(&event, scope)]),
        Envelope::Test => Message::Test,
        // SNS in SNS: no sender wraps twice, and one level keeps the work bounded.
        Envelope::Sns(_) => Message::Dead(DeadReason::NoRecords),
        Envelope::Dead(reason) => Message::Dead(reason),
    }
}
