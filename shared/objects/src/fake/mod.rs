//! A bucket in memory, with versions and with faults, for the tests of other crates (STYLE 22).
//!
//! It is never laxer than a real store: the contract tests run against both. What a browser or an operator does goes
//! through [`Fake::upload`] and its kin, which no fault touches; what our code does goes through [`ObjectStore`], where
//! [`Fake::fail`] makes the next call of one kind go wrong.

mod bucket;
mod faults;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use cards::{Sha256, Timestamp, VersionId};
use futures::StreamExt;

use self::bucket::{Bucket, Entry};
use self::faults::Faults;
pub use self::faults::{Call, Fault};
use crate::store::{
    Body, CopyObject, DeleteFailure, Head, ListCursor, ListPage, ListedVersion, ObjectStore, Operation,
    PutObject, Stored,
};
use crate::{ObjectError, s3};

/// Chunks of a GET are this long, so that a test sees several.
const CHUNK_BYTES: usize = 64 * 1024;

/// The store. Clones share one bucket.
#[derive(Clone, Debug, Default)]
pub struct Fake {
    world: Arc<Mutex<World>>,
}

#[derive(Debug, Default)]
struct World {
    bucket: Bucket,
    faults: Faults,
    calls: Vec<Call>,
}

/// What a browser uploads.
#[derive(Clone, Debug, Default)]
pub struct Upload {
    /// The key.
    pub key: String,
    /// The bytes.
    pub bytes: Bytes,
    /// Content-Type.
    pub content_type: Option<String>,
    /// Content-Disposition.
    pub content_disposition: Option<String>,
    /// Content-Encoding.
    pub content_encoding: Option<String>,
    /// User metadata without `x-amz-meta-`.
    pub metadata: BTreeMap<String, String>,
    /// The checksum HEAD answers; stores that keep none answer none.
    pub sha256: Option<Sha256>,
    /// When the store takes it; `None`: now.
    pub last_modified: Option<Timestamp>,
}

impl Fake {
    /// An empty bucket with versioning.
    pub fn new() -> Self {
        Self::default()
    }

    /// The next call of this kind goes wrong.
    pub fn fail(&self, operation: Operation, fault: Fault) {
        self.fail_times(operation, fault, 1);
    }

    /// The next `times` calls of this kind go wrong. Faults of one operation come in the order they were asked for.
    pub fn fail_times(&self, operation: Operation, fault: Fault, times: usize) {
        self.world().faults.add(operation, fault, times);
    }

    /// Every call fails as if the store were switched off, until [`Fake::heal`].
    pub fn switch_off(&self) {
        self.world().faults.switch_off();
    }

    /// Forgets all faults not yet met.
    pub fn heal(&self) {
        self.world().faults = Faults::default();
    }

    /// New versions are called `null` from now on, as in a bucket whose versioning is suspended.
    pub fn suspend_versioning(&self) {
        self.world().bucket.suspend_versioning();
    }

    /// The store's clock stands at this time from now on.
    pub fn set_now(&self, now: Timestamp) {
        self.world().bucket.set_now(now);
    }

    /// A browser's upload.
    ///
    /// # Panics
    /// If versioning is suspended: use [`Fake::upload_unversioned`].
    pub fn upload(
        &self,
        key: &str,
        bytes: impl Into<Bytes>,
        content_type: &str,
        metadata: &[(&str, &str)],
    ) -> VersionId {
        self.upload_as(Upload {
            key: key.to_owned(),
            bytes: bytes.into(),
            content_type: Some(content_type.to_owned()),
            metadata: metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            ..Upload::default()
        })
    }

    /// A browser's upload, in full.
    ///
    /// # Panics
    /// If versioning is suspended: use [`Fake::upload_unversioned`].
    pub fn upload_as(&self, upload: Upload) -> VersionId {
        let version = self.world().bucket.add(upload);
        VersionId::parse(&version).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A browser's upload into a bucket whose versioning is suspended.
    pub fn upload_unversioned(&self, upload: Upload) {
        self.world().bucket.add(upload);
    }

    /// Somebody deletes the key without naming a version.
    ///
    /// # Panics
    /// If versioning is suspended.
    pub fn add_delete_marker(&self, key: &str) -> VersionId {
        let version = self.world().bucket.add_marker(key);
        VersionId::parse(&version).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The versions of a key, markers among them, oldest first.
    pub fn versions(&self, key: &str) -> Vec<VersionId> {
        self.world()
            .bucket
            .entries(key)
            .iter()
            .filter_map(|entry| VersionId::parse(&entry.version).ok())
            .collect()
    }

    /// Every key with at least one version or marker, in order.
    pub fn all_keys(&self) -> Vec<String> {
        self.world().bucket.keys()
    }

    /// The bytes of a version.
    pub fn bytes(&self, key: &str, version: &VersionId) -> Option<Bytes> {
        self.world().bucket.version(key, version).map(|entry| entry.bytes.clone())
    }

    /// Content-Type, Content-Disposition and Cache-Control of a version.
    pub fn headers(&self, key: &str, version: &VersionId) -> Option<[Option<String>; 3]> {
        self.world().bucket.version(key, version).map(|entry| {
            [entry.content_type.clone(), entry.content_disposition.clone(), entry.cache_control.clone()]
        })
    }

    /// Every call made through [`ObjectStore`], in order, faulty ones among them.
    pub fn calls(&self) -> Vec<Call> {
        self.world().calls.clone()
    }

    /// Forgets the calls so far.
    pub fn clear_calls(&self) {
        self.world().calls.clear();
    }

    fn world(&self) -> MutexGuard<'_, World> {
        // A test that panicked elsewhere has already failed; what it left is still good to look at.
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the call down and meets its fault. `Ok`: what is left to happen after the effect.
    async fn meet(
        &self,
        operation: Operation,
        key: &str,
        version: Option<&VersionId>,
    ) -> Result<Option<Fault>, ObjectError> {
        let fault = {
            let mut world = self.world();
            world.calls.push(Call { operation, key: key.to_owned(), version: version.cloned() });
            world.faults.next(operation)
        };
        match fault {
            None => Ok(None),
            Some(Fault::Refuse) => {
                Err(ObjectError::Denied { operation, key: key.to_owned(), detail: "AccessDenied".to_owned() })
            }
            Some(Fault::Unavailable) => Err(unavailable(operation, key, "503 SlowDown")),
            Some(Fault::Hang) => {
                // As long as the real client waits before it gives up.
                tokio::time::sleep(s3::OPERATION_TIMEOUT).await;
                Err(unavailable(operation, key, "no answer in time"))
            }
            Some(fault @ (Fault::AfterEffect | Fault::MissingVersionId | Fault::Partly)) => Ok(Some(fault)),
        }
    }
}

fn unavailable(operation: Operation, key: &str, detail: &str) -> ObjectError {
    ObjectError::Unavailable { operation, key: key.to_owned(), detail: detail.to_owned() }
}

/// What remains of a fault once the effect has happened.
fn aftermath(fault: Option<Fault>, operation: Operation, key: &str) -> Result<(), ObjectError> {
    match fault {
        None | Some(Fault::Partly) => Ok(()),
        Some(Fault::MissingVersionId) => Err(ObjectError::VersioningRequired { key: key.to_owned() }),
        Some(Fault::AfterEffect | Fault::Refuse | Fault::Unavailable | Fault::Hang) => {
            Err(unavailable(operation, key, "the connection broke after the request was sent"))
        }
    }
}

#[async_trait]
impl ObjectStore for Fake {
    async fn head(&self, key: &str, version: Option<&VersionId>) -> Result<Head, ObjectError> {
        let fault = self.meet(Operation::Head, key, version).await?;
        let head = match self.world().bucket.find(key, version) {
            Some(entry) => Head::Found(entry.found(key)?),
            None => Head::Missing,
        };
        // A missing object has no version id to leave out.
        if head != Head::Missing || fault != Some(Fault::MissingVersionId) {
            aftermath(fault, Operation::Head, key)?;
        }
        Ok(head)
    }

    async fn versions_of(&self, key: &str, at_most: usize) -> Result<Vec<ListedVersion>, ObjectError> {
        let fault = self.meet(Operation::VersionsOf, key, None).await?;
        bucket::check_key(Operation::VersionsOf, key)?;
        let mut listed = self.world().bucket.list(key)?;
        listed.retain(|version| version.key == key);
        aftermath(fault, Operation::VersionsOf, key)?;
        listed.truncate(at_most);
        Ok(listed)
    }

    async fn list_versions(
        &self,
        prefix: &str,
        after: Option<&ListCursor>,
        page: usize,
    ) -> Result<ListPage, ObjectError> {
        let fault = self.meet(Operation::ListVersions, prefix, None).await?;
        let listed = self.world().bucket.list(prefix)?;
        aftermath(fault, Operation::ListVersions, prefix)?;
        bucket::page(listed, after, page)
    }

    async fn get(&self, key: &str, version: &VersionId, bytes_max: u64) -> Result<Body, ObjectError> {
        let fault = self.meet(Operation::Get, key, Some(version)).await?;
        let entry = self.world().bucket.find(key, Some(version)).cloned();
        let Some(Entry { bytes, .. }) = entry else {
            return Err(ObjectError::Missing {
                operation: Operation::Get,
                key: key.to_owned(),
                version: Some(version.clone()),
            });
        };
        let size_bytes = bytes.len() as u64;
        let broken = fault.map(|_| Err(unavailable(Operation::Get, key, "the body broke off")));
        // A fault in the body comes after half of it.
        let sent = if broken.is_some() { bytes.slice(..bytes.len() / 2) } else { bytes };
        let chunks: Vec<_> =
            sent.chunks(CHUNK_BYTES).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).chain(broken).collect();
        Body::new(key, size_bytes, bytes_max, futures::stream::iter(chunks).boxed())
    }

    async fn put(&self, request: PutObject<'_>) -> Result<Stored, ObjectError> {
        let fault = self.meet(Operation::Put, request.key, None).await?;
        bucket::check_key(Operation::Put, request.key)?;
        let stored = self.world().bucket.put(&request)?;
        aftermath(fault, Operation::Put, request.key)?;
        Ok(stored)
    }

    async fn copy(&self, request: CopyObject<'_>) -> Result<Stored, ObjectError> {
        let fault = self.meet(Operation::Copy, request.to, Some(request.from_version)).await?;
        bucket::check_key(Operation::Copy, request.to)?;
        let stored = self.world().bucket.copy(&request)?;
        aftermath(fault, Operation::Copy, request.to)?;
        Ok(stored)
    }

    async fn delete_versions(
        &self,
        versions: &[(String, VersionId)],
    ) -> Result<Vec<DeleteFailure>, ObjectError> {
        let Some((first, _)) = versions.first() else { return Ok(Vec::new()) };
        let fault = self.meet(Operation::DeleteVersions, first, None).await?;
        let mut failures = Vec::new();
        for (at, (key, version)) in versions.iter().enumerate() {
            // The first, third, ... entry is refused, so that one version alone can fail too.
            if fault == Some(Fault::Partly) && at % 2 == 0 {
                failures.push(DeleteFailure {
                    key: key.clone(),
                    version: Some(version.clone()),
                    code: "InternalError".to_owned(),
                    message: "we encountered an internal error".to_owned(),
                });
            } else {
                self.world().bucket.remove(key, version);
            }
        }
        aftermath(fault, Operation::DeleteVersions, first)?;
        Ok(failures)
    }

    async fn probe(&self) -> Result<(), ObjectError> {
        let fault = self.meet(Operation::Probe, "", None).await?;
        if self.world().bucket.is_suspended() {
            return Err(ObjectError::VersioningRequired { key: "the bucket".to_owned() });
        }
        aftermath(fault, Operation::Probe, "")
    }
}
