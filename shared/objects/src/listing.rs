//! What every listing and every key has in common, real or fake; and how a store's page of versions is read.
//!
//! The SDK hands versions and delete markers over as two lists, each newest first within a key. They come out as one,
//! in key order and oldest first within a key. A version without an id is [`ObjectError::VersioningRequired`].

use aws_sdk_s3::operation::list_object_versions::ListObjectVersionsOutput;
use aws_sdk_s3::types::{DeleteMarkerEntry, EncodingType, ObjectVersion};
use cards::ETag;
use percent_encoding::percent_decode_str;

use crate::s3::{parse_version, timestamp, unavailable};
use crate::{DELETE_BATCH_MAX, ListCursor, ListPage, ListedVersion, ObjectError, Operation};

/// S3's limit, in bytes.
pub(crate) const KEY_BYTES_MAX: usize = 1024;

pub(crate) fn check_key(operation: Operation, key: &str) -> Result<(), ObjectError> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(ObjectError::Invalid {
            operation,
            key: key.to_owned(),
            detail: format!("a key has 1 to {KEY_BYTES_MAX} bytes"),
        });
    }
    Ok(())
}

pub(crate) fn check_page(page: usize) -> Result<(), ObjectError> {
    if page == 0 || page > DELETE_BATCH_MAX {
        return Err(ObjectError::Invalid {
            operation: Operation::ListVersions,
            key: String::new(),
            detail: format!("a page has 1 to {DELETE_BATCH_MAX} versions, not {page}"),
        });
    }
    Ok(())
}

/// One page as it was answered.
pub(crate) struct RawPage<'a> {
    versions: &'a [ObjectVersion],
    markers: &'a [DeleteMarkerEntry],
    is_encoded: bool,
    is_truncated: bool,
    next_key: Option<&'a str>,
    next_version: Option<&'a str>,
}

impl<'a> From<&'a ListObjectVersionsOutput> for RawPage<'a> {
    fn from(answer: &'a ListObjectVersionsOutput) -> Self {
        Self {
            versions: answer.versions(),
            markers: answer.delete_markers(),
            // A store that does not know the parameter does not echo it either.
            is_encoded: answer.encoding_type() == Some(&EncodingType::Url),
            is_truncated: answer.is_truncated().unwrap_or(false),
            next_key: answer.next_key_marker(),
            next_version: answer.next_version_id_marker(),
        }
    }
}

/// Keys and version ids as they were answered, `null` among them: for removing a test's bucket.
pub(crate) fn named(answer: &ListObjectVersionsOutput) -> Vec<(String, String)> {
    let raw = RawPage::from(answer);
    let versions = answer.versions().iter().map(|entry| (entry.key(), entry.version_id()));
    let markers = answer.delete_markers().iter().map(|entry| (entry.key(), entry.version_id()));
    versions
        .chain(markers)
        .filter_map(|(key, version)| Some((raw.key(key)?, version.unwrap_or("null").to_owned())))
        .collect()
}

pub(crate) fn read(operation: Operation, prefix: &str, raw: &RawPage<'_>) -> Result<ListPage, ObjectError> {
    let nonsense = || unavailable(operation, prefix, "an entry of the listing has no key or no time");
    let mut versions = Vec::with_capacity(raw.versions.len() + raw.markers.len());
    for entry in raw.versions {
        let key = raw.key(entry.key()).ok_or_else(nonsense)?;
        versions.push(ListedVersion {
            version: parse_version(&key, entry.version_id())?,
            key,
            is_latest: entry.is_latest().unwrap_or(false),
            is_delete_marker: false,
            size_bytes: entry.size().and_then(|size| u64::try_from(size).ok()).unwrap_or(0),
            etag: entry.e_tag().map(ETag::new),
            last_modified: entry.last_modified().and_then(timestamp).ok_or_else(nonsense)?,
        });
    }
    for entry in raw.markers {
        let key = raw.key(entry.key()).ok_or_else(nonsense)?;
        versions.push(ListedVersion {
            version: parse_version(&key, entry.version_id())?,
            key,
            is_latest: entry.is_latest().unwrap_or(false),
            is_delete_marker: true,
            size_bytes: 0,
            etag: None,
            last_modified: entry.last_modified().and_then(timestamp).ok_or_else(nonsense)?,
        });
    }
    let next = raw.next(operation, prefix, &versions)?;
    oldest_first(&mut versions);
    Ok(ListPage { versions, next })
}

/// From newest first within a key to oldest first, keys in order. The store's own order decides between versions of
/// one moment: reversing it and then sorting stably by time keeps it.
fn oldest_first(versions: &mut [ListedVersion]) {
    versions.reverse();
    versions.sort_by(|a, b| {
        a.key
            .cmp(&b.key)
            .then_with(|| a.is_latest.cmp(&b.is_latest))
            .then_with(|| a.last_modified.cmp(&b.last_modified))
    });
}

impl RawPage<'_> {
    fn key(&self, text: Option<&str>) -> Option<String> {
        let text = text?;
        if self.is_encoded { decode(text) } else { Some(text.to_owned()) }
    }

    /// Where the next page begins. Ceph spells this key plainly on a page whose other keys are encoded, so the spelling
    /// that is on the page wins.
    fn next(
        &self,
        operation: Operation,
        prefix: &str,
        versions: &[ListedVersion],
    ) -> Result<Option<ListCursor>, ObjectError> {
        if !self.is_truncated {
            return Ok(None);
        }
        let raw = self
            .next_key
            .ok_or_else(|| unavailable(operation, prefix, "a page was cut and names no next one"))?;
        let is_plain = !self.is_encoded || versions.iter().any(|version| version.key == raw);
        let key = if is_plain { Some(raw.to_owned()) } else { decode(raw) }
            .ok_or_else(|| unavailable(operation, prefix, "the next page's key is no UTF-8"))?;
        let version = self.next_version.filter(|text| !text.is_empty()).map(str::to_owned);
        Ok(Some(ListCursor { key, version }))
    }
}

/// Form decoding: AWS writes a space as `+` and a plus as `%2B`; nobody leaves a plus bare.
fn decode(text: &str) -> Option<String> {
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8().ok().map(std::borrow::Cow::into_owned)
}
