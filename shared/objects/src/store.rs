//! What the product may do with a bucket: [`ObjectStore`], and the values that go in and out.
//!
//! Every read names a version except the two that look for one ([`ObjectStore::head`] without version,
//! [`ObjectStore::versions_of`]). "Not there" is an answer of HEAD, not an error (R-B8).

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use cards::confirm::Sighting;
use cards::{ETag, Timestamp, VersionId};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};

use crate::ObjectError;

/// S3 takes at most this many keys in one `DeleteObjects` call (R-E2).
pub const DELETE_BATCH_MAX: usize = 1000;

/// A bucket with versioning.
#[async_trait]
pub trait ObjectStore: Send + Sync + 'static {
    /// What one version is, or the latest. 404, 405 (a delete marker) and a malformed version id are
    /// [`Head::Missing`]; an answer without a version id is [`ObjectError::VersioningRequired`].
    async fn head(&self, key: &str, version: Option<&VersionId>) -> Result<Head, ObjectError>;

    /// The oldest `at_most` versions of exactly this key, oldest first, delete markers among them (R-B2, R-E2).
    async fn versions_of(&self, key: &str, at_most: usize) -> Result<Vec<ListedVersion>, ObjectError>;

    /// One page of at most `page` versions and delete markers (1 to 1000) under a prefix, in key order.
    async fn list_versions(
        &self,
        prefix: &str,
        after: Option<&ListCursor>,
        page: usize,
    ) -> Result<ListPage, ObjectError>;

    /// The bytes of one version, never more than `bytes_max` of them.
    async fn get(&self, key: &str, version: &VersionId, bytes_max: u64) -> Result<Body, ObjectError>;

    /// Stores bytes under a key nothing else writes to.
    async fn put(&self, request: PutObject<'_>) -> Result<Stored, ObjectError>;

    /// Copies one version server-side with our own headers, and HEADs the copy (R-C5).
    async fn copy(&self, request: CopyObject<'_>) -> Result<Stored, ObjectError>;

    /// Removes exactly these versions or markers, at most [`DELETE_BATCH_MAX`] a call, and reads the per-key errors of
    /// each 200. A version that is already gone is removed. Empty: all are gone.
    async fn delete_versions(
        &self,
        versions: &[(String, VersionId)],
    ) -> Result<Vec<DeleteFailure>, ObjectError>;

    /// The independent probe of R-C7: HEAD of the bucket, and whether its versioning is enabled (R-B9).
    async fn probe(&self) -> Result<(), ObjectError>;
}

/// A call to the store, for errors, logs and the fake's faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// [`ObjectStore::head`]
    Head,
    /// [`ObjectStore::versions_of`]
    VersionsOf,
    /// [`ObjectStore::list_versions`]
    ListVersions,
    /// [`ObjectStore::get`]
    Get,
    /// [`ObjectStore::put`]
    Put,
    /// [`ObjectStore::copy`]
    Copy,
    /// [`ObjectStore::delete_versions`]
    DeleteVersions,
    /// [`ObjectStore::probe`]
    Probe,
    /// A call of [`crate::admin`].
    Setup,
    /// The making of a ticket or a link: no call.
    Sign,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Head => "head",
            Self::VersionsOf => "listing the versions",
            Self::ListVersions => "list",
            Self::Get => "get",
            Self::Put => "put",
            Self::Copy => "copy",
            Self::DeleteVersions => "delete",
            Self::Probe => "probe",
            Self::Setup => "setup",
            Self::Sign => "sign",
        })
    }
}

/// What a HEAD answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Head {
    /// It is there.
    Found(Found),
    /// It is not: an expected answer (R-B8).
    Missing,
}

impl Head {
    /// What was found, if anything.
    pub fn found(self) -> Option<Found> {
        match self {
            Self::Found(found) => Some(found),
            Self::Missing => None,
        }
    }
}

/// One version as HEAD showed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What is compared with the card.
    pub sighting: Sighting,
    /// Its entity tag; a copy is pinned to it, it never stands in for the version.
    pub etag: ETag,
}

/// One entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedVersion {
    /// Its key.
    pub key: String,
    /// Its version id.
    pub version: VersionId,
    /// Whether a read without version finds this one.
    pub is_latest: bool,
    /// Whether it only says that the key was deleted.
    pub is_delete_marker: bool,
    /// Size in bytes; 0 for a delete marker.
    pub size_bytes: u64,
    /// Its entity tag; a delete marker has none.
    pub etag: Option<ETag>,
    /// When the store took it.
    pub last_modified: Timestamp,
}

/// Where the next page begins. Opaque.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListCursor {
    pub(crate) key: String,
    pub(crate) version: Option<String>,
}

impl ListCursor {
    /// The page that begins with the first key after this one. Ceph begins with this one.
    pub(crate) fn after_key(key: &str) -> Self {
        Self { key: key.to_owned(), version: None }
    }
}

/// One page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPage {
    /// Versions and delete markers in key order, oldest first within a key. A key that is cut in two has its newer
    /// versions on the earlier page.
    pub versions: Vec<ListedVersion>,
    /// Where the next page begins; `None`: this was the last.
    pub next: Option<ListCursor>,
}

/// What [`ObjectStore::put`] stores.
#[derive(Clone, Debug)]
pub struct PutObject<'a> {
    /// The key.
    pub key: &'a str,
    /// The bytes.
    pub bytes: Bytes,
    /// Content-Type.
    pub content_type: &'a str,
    /// Content-Disposition.
    pub content_disposition: Option<&'a str>,
    /// Cache-Control.
    pub cache_control: Option<&'a str>,
}

/// What [`ObjectStore::copy`] copies. Metadata is replaced: nothing the uploader said survives (R-C5).
#[derive(Clone, Debug)]
pub struct CopyObject<'a> {
    /// The source's key.
    pub from: &'a str,
    /// The source's version.
    pub from_version: &'a VersionId,
    /// The source's `ETag`; another one is [`ObjectError::PreconditionFailed`].
    pub if_match: Option<&'a ETag>,
    /// The copy's key.
    pub to: &'a str,
    /// The copy's Content-Type.
    pub content_type: &'a str,
    /// The copy's Content-Disposition.
    pub content_disposition: Option<&'a str>,
    /// The copy's Cache-Control.
    pub cache_control: Option<&'a str>,
}

/// What was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The version the store gave it.
    pub version: VersionId,
    /// Its entity tag.
    pub etag: ETag,
    /// Its size in bytes.
    pub size_bytes: u64,
}

/// A version that a batch delete did not remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteFailure {
    /// Its key.
    pub key: String,
    /// The version; `None` where the store did not say.
    pub version: Option<VersionId>,
    /// The store's code, such as `AccessDenied`.
    pub code: String,
    /// The store's text.
    pub message: String,
}

/// An object's bytes as they arrive: exactly [`Body::size_bytes`] of them, or an error at the end.
pub struct Body {
    key: String,
    size_bytes: u64,
    bytes_max: u64,
    seen_bytes: u64,
    is_over: bool,
    chunks: BoxStream<'static, Result<Bytes, ObjectError>>,
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body")
            .field("key", &self.key)
            .field("size_bytes", &self.size_bytes)
            .field("seen_bytes", &self.seen_bytes)
            .finish_non_exhaustive()
    }
}

impl Body {
    pub(crate) fn new(
        key: &str,
        size_bytes: u64,
        bytes_max: u64,
        chunks: BoxStream<'static, Result<Bytes, ObjectError>>,
    ) -> Result<Self, ObjectError> {
        if size_bytes > bytes_max {
            return Err(ObjectError::TooLarge { key: key.to_owned(), bytes_max });
        }
        Ok(Self { key: key.to_owned(), size_bytes, bytes_max, seen_bytes: 0, is_over: false, chunks })
    }

    /// The size the store announced, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The next chunk; `None` after the last, or after an error.
    pub async fn next_chunk(&mut self) -> Option<Result<Bytes, ObjectError>> {
        self.next().await
    }

    /// All of it. At most the `bytes_max` of the GET is ever held.
    pub async fn collect_all(mut self) -> Result<Bytes, ObjectError> {
        let mut all = BytesMut::new();
        while let Some(chunk) = self.next_chunk().await {
            all.extend_from_slice(&chunk?);
        }
        Ok(all.freeze())
    }

    fn check(&mut self, chunk: &Bytes) -> Result<(), ObjectError> {
        self.seen_bytes += chunk.len() as u64;
        if self.seen_bytes > self.bytes_max {
            return Err(ObjectError::TooLarge { key: self.key.clone(), bytes_max: self.bytes_max });
        }
        if self.seen_bytes > self.size_bytes {
            return Err(self.wrong_length());
        }
        Ok(())
    }

    fn wrong_length(&self) -> ObjectError {
        ObjectError::Unavailable {
            operation: Operation::Get,
            key: self.key.clone(),
            detail: format!(
                "the store announced {} bytes and sent {} by now",
                self.size_bytes, self.seen_bytes
            ),
        }
    }
}

impl Stream for Body {
    type Item = Result<Bytes, ObjectError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let item = match self.chunks.poll_next_unpin(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(Ok(chunk))) => Some(self.check(&chunk).map(|()| chunk)),
            Poll::Ready(Some(Err(error))) => Some(Err(error)),
            Poll::Ready(None) if self.seen_bytes == self.size_bytes => None,
            Poll::Ready(None) => Some(Err(self.wrong_length())),
        };
        self.is_over = !matches!(item, Some(Ok(_)));
        Poll::Ready(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(size_bytes: u64, bytes_max: u64, chunks: &[&'static str]) -> Result<Body, ObjectError> {
        let chunks: Vec<_> = chunks.iter().map(|chunk| Ok(Bytes::from_static(chunk.as_bytes()))).collect();
        Body::new("k", size_bytes, bytes_max, futures::stream::iter(chunks).boxed())
    }

    #[tokio::test]
    async fn a_body_is_as_long_as_announced_or_an_error() {
        assert_eq!(body(5, 5, &["he", "llo"]).unwrap().collect_all().await.unwrap(), "hello");
        assert!(body(6, 5, &[]).is_err(), "too large before a byte is read");
        for (size_bytes, chunks) in [(5, &["he", "ll"][..]), (5, &[]), (3, &["he", "llo"])] {
            let error = body(size_bytes, 10, chunks).unwrap().collect_all().await.unwrap_err();
            assert!(matches!(error, ObjectError::Unavailable { .. }), "{size_bytes} {chunks:?}: {error}");
        }
    }
}
