//! The bucket itself: keys, each with its versions, oldest first.

use std::collections::BTreeMap;

use bytes::Bytes;
use cards::confirm::Sighting;
use cards::{ETag, Sha256, Timestamp, VersionId};
use sha2::Digest;

use super::Upload;
use crate::store::{CopyObject, Found, ListCursor, ListPage, ListedVersion, Operation, PutObject, Stored};
use crate::{ObjectError, listing};

/// One version, or a delete marker.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) version: String,
    pub(super) is_marker: bool,
    pub(super) bytes: Bytes,
    pub(super) content_type: Option<String>,
    pub(super) content_disposition: Option<String>,
    pub(super) cache_control: Option<String>,
    content_encoding: Option<String>,
    metadata: BTreeMap<String, String>,
    sha256: Option<Sha256>,
    last_modified: Timestamp,
}

impl Entry {
    pub(super) fn found(&self, key: &str) -> Result<Found, ObjectError> {
        Ok(Found {
            sighting: Sighting {
                version: self.parsed_version(key)?,
                size_bytes: self.bytes.len() as u64,
                content_type: self.content_type.clone(),
                last_modified: self.last_modified,
                sha256: self.sha256,
                content_disposition: self.content_disposition.clone(),
                content_encoding: self.content_encoding.clone(),
                user_metadata: self.metadata.clone(),
            },
            etag: self.etag(),
        })
    }

    fn parsed_version(&self, key: &str) -> Result<VersionId, ObjectError> {
        VersionId::parse(&self.version).map_err(|_| ObjectError::VersioningRequired { key: key.to_owned() })
    }

    fn etag(&self) -> ETag {
        ETag::new(&hex::encode(&sha2::Sha256::digest(&self.bytes)[..16]))
    }
}

#[derive(Debug, Default)]
pub(super) struct Bucket {
    keys: BTreeMap<String, Vec<Entry>>,
    is_suspended: bool,
    now: Option<Timestamp>,
    versions_given: u64,
}

impl Bucket {
    pub(super) fn suspend_versioning(&mut self) {
        self.is_suspended = true;
    }

    pub(super) fn is_suspended(&self) -> bool {
        self.is_suspended
    }

    pub(super) fn set_now(&mut self, now: Timestamp) {
        self.now = Some(now);
    }

    pub(super) fn keys(&self) -> Vec<String> {
        self.keys.keys().cloned().collect()
    }

    pub(super) fn entries(&self, key: &str) -> &[Entry] {
        self.keys.get(key).map_or(&[], Vec::as_slice)
    }

    /// The version that is asked for, or the latest; a delete marker is as good as nothing.
    pub(super) fn find(&self, key: &str, version: Option<&VersionId>) -> Option<&Entry> {
        match version {
            Some(version) => self.version(key, version),
            None => self.entries(key).last().filter(|entry| !entry.is_marker),
        }
    }

    pub(super) fn version(&self, key: &str, version: &VersionId) -> Option<&Entry> {
        self.entries(key).iter().find(|entry| entry.version == version.as_str() && !entry.is_marker)
    }

    pub(super) fn add(&mut self, upload: Upload) -> String {
        let last_modified = upload.last_modified.unwrap_or_else(|| self.now());
        let entry = Entry {
            version: self.next_version(),
            is_marker: false,
            bytes: upload.bytes,
            content_type: upload.content_type,
            content_disposition: upload.content_disposition,
            cache_control: None,
            content_encoding: upload.content_encoding,
            metadata: upload.metadata,
            sha256: upload.sha256,
            last_modified,
        };
        self.push(upload.key, entry)
    }

    pub(super) fn add_marker(&mut self, key: &str) -> String {
        let entry = Entry {
            version: self.next_version(),
            is_marker: true,
            bytes: Bytes::new(),
            content_type: None,
            content_disposition: None,
            cache_control: None,
            content_encoding: None,
            metadata: BTreeMap::new(),
            sha256: None,
            last_modified: self.now(),
        };
        self.push(key.to_owned(), entry)
    }

    pub(super) fn put(&mut self, request: &PutObject<'_>) -> Result<Stored, ObjectError> {
        let entry = Entry {
            version: self.next_version(),
            is_marker: false,
            bytes: request.bytes.clone(),
            content_type: Some(request.content_type.to_owned()),
            content_disposition: request.content_disposition.map(str::to_owned),
            cache_control: request.cache_control.map(str::to_owned),
            content_encoding: None,
            metadata: BTreeMap::new(),
            sha256: None,
            last_modified: self.now(),
        };
        self.store(request.key, entry)
    }

    pub(super) fn copy(&mut self, request: &CopyObject<'_>) -> Result<Stored, ObjectError> {
        let Some(source) = self.version(request.from, request.from_version) else {
            return Err(ObjectError::Missing {
                operation: Operation::Copy,
                key: request.from.to_owned(),
                version: Some(request.from_version.clone()),
            });
        };
        if request.if_match.is_some_and(|etag| *etag != source.etag()) {
            return Err(ObjectError::PreconditionFailed {
                operation: Operation::Copy,
                key: request.from.to_owned(),
            });
        }
        let bytes = source.bytes.clone();
        self.put(&PutObject {
            key: request.to,
            bytes,
            content_type: request.content_type,
            content_disposition: request.content_disposition,
            cache_control: request.cache_control,
        })
    }

    pub(super) fn remove(&mut self, key: &str, version: &VersionId) {
        if let Some(entries) = self.keys.get_mut(key) {
            entries.retain(|entry| entry.version != version.as_str());
            if entries.is_empty() {
                self.keys.remove(key);
            }
        }
    }

    /// Everything under a prefix in key order, oldest first within a key.
    pub(super) fn list(&self, prefix: &str) -> Result<Vec<ListedVersion>, ObjectError> {
        let mut listed = Vec::new();
        for (key, entries) in
            self.keys.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix))
        {
            for (at, entry) in entries.iter().enumerate() {
                listed.push(ListedVersion {
                    key: key.clone(),
                    version: entry.parsed_version(key)?,
                    is_latest: at + 1 == entries.len(),
                    is_delete_marker: entry.is_marker,
                    size_bytes: entry.bytes.len() as u64,
                    etag: (!entry.is_marker).then(|| entry.etag()),
                    last_modified: entry.last_modified,
                });
            }
        }
        Ok(listed)
    }

    fn store(&mut self, key: &str, entry: Entry) -> Result<Stored, ObjectError> {
        let (etag, size_bytes) = (entry.etag(), entry.bytes.len() as u64);
        let version = self.push(key.to_owned(), entry);
        let version = VersionId::parse(&version)
            .map_err(|_| ObjectError::VersioningRequired { key: key.to_owned() })?;
        Ok(Stored { version, etag, size_bytes })
    }

    fn push(&mut self, key: String, entry: Entry) -> String {
        let version = entry.version.clone();
        let entries = self.keys.entry(key).or_default();
        // `null` is one version that is overwritten in place: why it is an outage.
        entries.retain(|other| other.version != version);
        entries.push(entry);
        version
    }

    fn next_version(&mut self) -> String {
        if self.is_suspended {
            return "null".to_owned();
        }
        self.versions_given += 1;
        format!("fake-{:06}", self.versions_given)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "Last-Modified is by the store's own clock, and this is the store"
    )]
    fn now(&self) -> Timestamp {
        self.now.unwrap_or_else(chrono::Utc::now)
    }
}

/// Keys no store takes.
pub(super) fn check_key(operation: Operation, key: &str) -> Result<(), ObjectError> {
    listing::check_key(operation, key)
}

/// One page of a listing that is held in full: a real store pages newest first within a key.
pub(super) fn page(
    mut listed: Vec<ListedVersion>,
    after: Option<&ListCursor>,
    page: usize,
) -> Result<ListPage, ObjectError> {
    listing::check_page(page)?;
    listed.reverse();
    listed.sort_by(|a, b| a.key.cmp(&b.key));
    let start = after.map_or(0, |cursor| {
        let named = |version: &ListedVersion| {
            version.key == cursor.key && Some(version.version.as_str()) == cursor.version.as_deref()
        };
        match listed.iter().position(named) {
            Some(at) => at + 1,
            // What the cursor names is gone: the next key.
            None => listed.iter().filter(|version| version.key <= cursor.key).count(),
        }
    });
    let is_last = listed.len() - start <= page;
    let mut versions: Vec<_> = listed.into_iter().skip(start).take(page).collect();
    let next = versions
        .last()
        .filter(|_| !is_last)
        .map(|last| ListCursor { key: last.key.clone(), version: Some(last.version.to_string()) });
    versions.reverse();
    versions.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(ListPage { versions, next })
}
