//! One record, judged alone, in the order of R-B1.

use aws_lambda_events::s3::S3EventRecord;
use cards::{ETag, VersionId};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::envelope::EventBridge;
use super::{Created, DeadReason, EventVersion, Ignored, Scope, Source, Verdict, key};

/// Longest text from a body that goes into a reason, in characters: enough to see what it was.
const REASON_CHARS_MAX: usize = 300;

/// What a record claims, whoever sent it.
struct Claim {
    starts_work: bool,
    /// The source, or the name that is none.
    source: Result<Source, String>,
    bucket: Option<String>,
    key: Option<String>,
    size: Option<i64>,
    version: Option<String>,
    etag: Option<String>,
}

/// Judges a record of MinIO, RustFS, Ceph or AWS.
pub(super) fn judge(raw: &RawValue, scope: &Scope<'_>) -> Verdict {
    // serde would read a struct from an array too.
    if !raw.get().starts_with('{') {
        return Verdict::Dead(DeadReason::Unparsable("it is no object".to_owned()));
    }
    let record: S3EventRecord = match serde_json::from_str(raw.get()) {
        Ok(record) => record,
        Err(error) => return Verdict::Dead(unparsable(&error)),
    };
    judge_claim(
        Claim {
            starts_work: record.event_name.as_deref().is_some_and(name_starts_work),
            source: source(record.event_source.as_deref()),
            bucket: record.s3.bucket.name,
            key: record.s3.object.key,
            size: record.s3.object.size,
            version: record.s3.object.version_id,
            etag: record.s3.object.e_tag,
        },
        scope,
    )
}

/// The part of an EventBridge event that is the record; as strict as `aws_lambda_events` is with the others.
#[derive(Deserialize)]
struct Detail {
    bucket: DetailBucket,
    object: DetailObject,
    reason: Option<String>,
}

#[derive(Deserialize)]
struct DetailBucket {
    name: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct DetailObject {
    key: Option<String>,
    size: Option<i64>,
    etag: Option<String>,
    version_id: Option<String>,
}

/// Judges an EventBridge event.
pub(super) fn judge_event_bridge(event: &EventBridge<'_>, scope: &Scope<'_>) -> Verdict {
    let detail: Detail = match serde_json::from_str(event.detail.get()) {
        Ok(detail) => detail,
        Err(error) => return Verdict::Dead(unparsable(&error)),
    };
    judge_claim(
        Claim {
            starts_work: event.detail_type == "Object Created"
                && detail.reason.as_deref().is_some_and(reason_starts_work),
            source: if event.source == "aws.s3" {
                Ok(Source::EventBridge)
            } else {
                Err(shortened(&event.source))
            },
            bucket: detail.bucket.name,
            key: detail.object.key,
            size: detail.object.size,
            version: detail.object.version_id,
            etag: detail.object.etag,
        },
        scope,
    )
}

fn judge_claim(claim: Claim, scope: &Scope<'_>) -> Verdict {
    if !claim.starts_work {
        return Verdict::Ignored(Ignored::OtherEvent);
    }
    let source = match claim.source {
        Ok(source) => source,
        Err(name) => return Verdict::Dead(DeadReason::UnknownSource(name)),
    };
    if claim.bucket.as_deref() != Some(scope.bucket) {
        return Verdict::Ignored(Ignored::OtherBucket);
    }
    let key = match key::decode(source, &claim.key.unwrap_or_default()) {
        Ok(key) => key,
        Err(reason) => return Verdict::Dead(reason),
    };
    if !key.starts_with(scope.prefix) {
        return Verdict::Ignored(Ignored::OtherPrefix);
    }
    let Some(size_bytes) = size(claim.size) else {
        return Verdict::Ignored(Ignored::Empty);
    };
    let version = match version(claim.version.as_deref()) {
        Ok(version) => version,
        Err(reason) => return Verdict::Dead(reason),
    };
    let etag = claim.etag.as_deref().map(ETag::new).filter(|etag| !etag.as_str().is_empty());
    Verdict::Created(Created { source, key, version, size_bytes, etag })
}

/// MinIO and RustFS write `s3:` before the name, AWS and Ceph don't. `ObjectCreated:*` of MinIO holds tagging,
/// retention and legal hold too, so names are matched whole.
fn name_starts_work(name: &str) -> bool {
    matches!(
        name.strip_prefix("s3:").unwrap_or(name),
        "ObjectCreated:Put" | "ObjectCreated:Post" | "ObjectCreated:CompleteMultipartUpload"
    )
}

/// The same three as EventBridge calls them.
fn reason_starts_work(reason: &str) -> bool {
    matches!(reason, "PutObject" | "POST Object" | "CompleteMultipartUpload")
}

fn source(name: Option<&str>) -> Result<Source, String> {
    match name {
        Some("minio:s3") => Ok(Source::Minio),
        Some("rustfs:s3") => Ok(Source::Rustfs),
        Some("ceph:s3") => Ok(Source::Ceph),
        Some("aws:s3") => Ok(Source::Aws),
        Some(other) => Err(shortened(other)),
        None => Err(String::new()),
    }
}

/// Negative counts as none: MinIO sends -1 where it could not find the size out, so it says nothing, as an absent one.
/// If there are bytes after all the sweep finds them (R-B9).
fn size(claimed: Option<i64>) -> Option<u64> {
    claimed.and_then(|size| u64::try_from(size).ok()).filter(|&size| size > 0)
}

fn version(claimed: Option<&str>) -> Result<EventVersion, DeadReason> {
    match claimed {
        None | Some("") => Ok(EventVersion::Absent),
        Some("null") => Ok(EventVersion::Null),
        // No store gives such an id and no request can carry it; taking it for absent would look at another version.
        Some(text) => VersionId::parse(text)
            .map(EventVersion::Id)
            .map_err(|error| DeadReason::Unparsable(error.to_string())),
    }
}

/// What serde said, cut: it may quote the body.
pub(super) fn unparsable(error: &serde_json::Error) -> DeadReason {
    DeadReason::Unparsable(shortened(&error.to_string()))
}

fn shortened(text: &str) -> String {
    text.chars().take(REASON_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_three_events_start_work_with_or_without_s3() {
        for name in ["Put", "Post", "CompleteMultipartUpload"] {
            assert!(name_starts_work(&format!("ObjectCreated:{name}")));
            assert!(name_starts_work(&format!("s3:ObjectCreated:{name}")));
        }
        for name in [
            "",
            "s3:",
            "ObjectCreated:*",
            "s3:s3:ObjectCreated:Put",
            "S3:ObjectCreated:Put",
            "ObjectCreated:put",
            "ObjectCreated:Put ",
            "ObjectCreated:PutTagging",
            "ObjectCreated:DeleteTagging",
            "ObjectCreated:PutRetention",
            "ObjectCreated:PutLegalHold",
            "ObjectCreated:Copy",
            "ObjectTagging:Put",
            "ObjectRemoved:Delete",
        ] {
            assert!(!name_starts_work(name), "{name}");
        }
        assert!(!reason_starts_work("CopyObject"));
    }

    #[test]
    fn a_size_that_is_none_is_none() {
        assert_eq!(size(Some(1)), Some(1));
        assert_eq!(size(Some(i64::MAX)), Some(i64::MAX.unsigned_abs()));
        for nothing in [None, Some(0), Some(-1), Some(i64::MIN)] {
            assert_eq!(size(nothing), None);
        }
    }

    #[test]
    fn a_missing_version_is_not_null_and_null_is_not_a_version() {
        assert_eq!(version(None), Ok(EventVersion::Absent));
        assert_eq!(version(Some("")), Ok(EventVersion::Absent));
        assert_eq!(version(Some("null")), Ok(EventVersion::Null));
        assert_eq!(version(Some("v1")), Ok(EventVersion::Id(VersionId::parse("v1").unwrap())));
        assert_eq!(version(Some("v 1")).unwrap_err().code(), "unparsable");
    }

    #[test]
    fn a_reason_never_quotes_a_whole_body() {
        assert_eq!(source(Some(&"x".repeat(5000))).unwrap_err().len(), REASON_CHARS_MAX);
    }
}
