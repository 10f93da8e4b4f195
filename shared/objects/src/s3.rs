//! The real store.
//!
//! Each call is bounded in time and tried at most `ATTEMPTS_MAX` times; what the SDK says is sorted into
//! [`ObjectError`] in one place (`failure`). Where a store's answer leaves the version id out (Ceph on copies), a HEAD
//! finds it; where HEAD has none either, the bucket has no versioning.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{BehaviorVersion, Region, RequestChecksumCalculation, ResponseChecksumValidation};
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::operation::head_object::HeadObjectOutput;
use aws_sdk_s3::primitives::{ByteStream, DateTime};
use aws_sdk_s3::types::{
    BucketVersioningStatus, ChecksumMode, Delete, EncodingType, MetadataDirective, ObjectIdentifier,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use cards::confirm::Sighting;
use cards::{ETag, Sha256, Timestamp, VersionId};
use futures::StreamExt;
use futures::stream::BoxStream;

use crate::listing::{self, RawPage};
use crate::sign::{encode_path, encode_query};
use crate::store::{
    Body, CopyObject, DELETE_BATCH_MAX, DeleteFailure, Found, Head, ListCursor, ListPage, ListedVersion,
    ObjectStore, Operation, PutObject, Stored,
};
use crate::{ObjectError, S3Settings, StoreKind};

/// The longest a connection may take to stand.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest one attempt may take, the body of a GET excepted.
pub const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest one operation may take, its retries among it.
pub const OPERATION_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest a body may stand still between two chunks.
pub const CHUNK_TIMEOUT: Duration = Duration::from_secs(10);
/// Tries of one call. More would hide an outage from the consumers, which pause by themselves (R-C7).
const ATTEMPTS_MAX: u32 = 3;
/// Pages read for the versions of one key: 100,000 versions. A ticket of 10 minutes can't make as many.
const KEY_PAGES_MAX: usize = 100;

/// A bucket as one identity sees it.
#[derive(Clone)]
pub struct S3 {
    client: Client,
    bucket: String,
    kind: StoreKind,
}

impl fmt::Debug for S3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3").field("bucket", &self.bucket).finish_non_exhaustive()
    }
}

impl S3 {
    /// A client; it connects with the first call.
    pub fn new(settings: &S3Settings) -> Self {
        Self { client: client(settings), bucket: settings.bucket.clone(), kind: settings.kind }
    }

    async fn list_page(
        &self,
        operation: Operation,
        prefix: &str,
        after: Option<&ListCursor>,
        page: usize,
    ) -> Result<ListPage, ObjectError> {
        listing::check_page(page)?;
        let answer = self
            .client
            .list_object_versions()
            .bucket(&self.bucket)
            .prefix(prefix)
            // Keys that XML can't spell come through too: a stray's key is not ours to choose.
            .encoding_type(EncodingType::Url)
            .max_keys(i32::try_from(page).unwrap_or(i32::MAX))
            .set_key_marker(after.map(|cursor| cursor.key.clone()))
            .set_version_id_marker(after.and_then(|cursor| cursor.version.clone()))
            .send()
            .await
            .map_err(|error| failure(operation, prefix, None, &error))?;
        listing::read(operation, prefix, &RawPage::from(&answer))
    }

    /// HEAD of what was just stored, where the answer named no version.
    async fn stored(
        &self,
        operation: Operation,
        key: &str,
        version: Option<&VersionId>,
        answered: &ETag,
    ) -> Result<Stored, ObjectError> {
        let Head::Found(Found { sighting, etag }) = self.head(key, version).await? else {
            return Err(ObjectError::Missing { operation, key: key.to_owned(), version: version.cloned() });
        };
        if etag != *answered {
            return Err(invalid(
                operation,
                key,
                &format!("the answer's ETag was {}, HEAD says {}", answered.as_str(), etag.as_str()),
            ));
        }
        Ok(Stored { version: sighting.version, etag, size_bytes: sighting.size_bytes })
    }

    /// Of a bucket that is gone nothing can be said to be missing.
    fn probe_failure<E>(&self, error: &SdkError<E, aws_sdk_s3::config::http::HttpResponse>) -> ObjectError
    where
        E: ProvideErrorMetadata + Error + 'static,
    {
        match status(error) {
            Some(404) => unavailable(Operation::Probe, &self.bucket, "the bucket is not there"),
            Some(_) | None => failure(Operation::Probe, &self.bucket, None, error),
        }
    }

    async fn delete_batch(
        &self,
        versions: &[(String, VersionId)],
    ) -> Result<Vec<DeleteFailure>, ObjectError> {
        let first = versions.first().map_or("", |(key, _)| key);
        let mut objects = Vec::with_capacity(versions.len());
        for (key, version) in versions {
            let object = ObjectIdentifier::builder().key(key).version_id(version.as_str()).build();
            objects
                .push(object.map_err(|error| invalid(Operation::DeleteVersions, key, &error.to_string()))?);
        }
        let delete = Delete::builder()
            .set_objects(Some(objects))
            .quiet(true)
            .build()
            .map_err(|error| invalid(Operation::DeleteVersions, first, &error.to_string()))?;
        let answer = self
            .client
            .delete_objects()
            .bucket(&self.bucket)
            .delete(delete)
            .send()
            .await
            .map_err(|error| failure(Operation::DeleteVersions, first, None, &error))?;
        Ok(answer
            .errors()
            .iter()
            // What is gone already is what was asked for.
            .filter(|error| !matches!(error.code(), Some("NoSuchKey" | "NoSuchVersion")))
            .map(|error| DeleteFailure {
                key: error.key().unwrap_or_default().to_owned(),
                version: error.version_id().and_then(|text| VersionId::parse(text).ok()),
                code: error.code().unwrap_or("unknown").to_owned(),
                message: error.message().unwrap_or_default().to_owned(),
            })
            .collect())
    }
}

#[async_trait]
impl ObjectStore for S3 {
    async fn head(&self, key: &str, version: Option<&VersionId>) -> Result<Head, ObjectError> {
        let answer = self
            .client
            .head_object()
            .bucket(&self.bucket)
            .key(key)
            .set_version_id(version.map(|version| version.as_str().to_owned()))
            .checksum_mode(ChecksumMode::Enabled)
            .send()
            .await;
        match answer {
            Ok(answer) => {
                let found = found(key, &answer)?;
                match version {
                    Some(asked) if *asked != found.sighting.version => Err(invalid(
                        Operation::Head,
                        key,
                        &format!("version {asked} was asked for, {} answered", found.sighting.version),
                    )),
                    Some(_) | None => Ok(Head::Found(found)),
                }
            }
            // 405: a delete marker. 400: a version id this store could never have given (FACTS 2b).
            Err(error) => match status(&error) {
                Some(404 | 405) => Ok(Head::Missing),
                Some(400) if version.is_some() => Ok(Head::Missing),
                Some(_) | None => Err(failure(Operation::Head, key, version, &error)),
            },
        }
    }

    async fn versions_of(&self, key: &str, at_most: usize) -> Result<Vec<ListedVersion>, ObjectError> {
        listing::check_key(Operation::VersionsOf, key)?;
        let mut found: Vec<ListedVersion> = Vec::new();
        let mut cursor = None;
        for _ in 0..KEY_PAGES_MAX {
            let page = self.list_page(Operation::VersionsOf, key, cursor.as_ref(), DELETE_BATCH_MAX).await?;
            // A key sorts before all that it is a prefix of: another key on the page ends this one.
            let is_past = page.versions.iter().any(|version| version.key != key);
            // A later page has older versions.
            let newer = std::mem::take(&mut found);
            found.extend(page.versions.into_iter().filter(|version| version.key == key));
            found.extend(newer);
            cursor = page.next;
            if is_past || cursor.is_none() {
                found.truncate(at_most);
                return Ok(found);
            }
        }
        Err(invalid(Operation::VersionsOf, key, &format!("more than {KEY_PAGES_MAX} pages of versions")))
    }

    async fn list_versions(
        &self,
        prefix: &str,
        after: Option<&ListCursor>,
        page: usize,
    ) -> Result<ListPage, ObjectError> {
        self.list_page(Operation::ListVersions, prefix, after, page).await
    }

    async fn get(&self, key: &str, version: &VersionId, bytes_max: u64) -> Result<Body, ObjectError> {
        let answer =
            self.client.get_object().bucket(&self.bucket).key(key).version_id(version.as_str()).send().await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                return Err(match status(&error) {
                    Some(400 | 405) => missing(Operation::Get, key, version),
                    Some(_) | None => failure(Operation::Get, key, Some(version), &error),
                });
            }
        };
        let size_bytes = answer
            .content_length()
            .and_then(|length| u64::try_from(length).ok())
            .ok_or_else(|| unavailable(Operation::Get, key, "the answer has no length"))?;
        Body::new(key, size_bytes, bytes_max, chunks(key, answer.body))
    }

    async fn put(&self, request: PutObject<'_>) -> Result<Stored, ObjectError> {
        let PutObject { key, bytes, content_type, content_disposition, cache_control } = request;
        listing::check_key(Operation::Put, key)?;
        let size_bytes = bytes.len() as u64;
        let answer = self
            .client
            .put_object()
            .bucket(&self.bucket)
            .key(key)
            .body(ByteStream::from(bytes))
            .content_type(content_type)
            .set_content_disposition(content_disposition.map(str::to_owned))
            .set_cache_control(cache_control.map(str::to_owned))
            .send()
            .await
            .map_err(|error| failure(Operation::Put, key, None, &error))?;
        let etag = etag(Operation::Put, key, answer.e_tag())?;
        match parse_version(key, answer.version_id()) {
            Ok(version) => Ok(Stored { version, etag, size_bytes }),
            Err(_) => self.stored(Operation::Put, key, None, &etag).await,
        }
    }

    async fn copy(&self, request: CopyObject<'_>) -> Result<Stored, ObjectError> {
        let CopyObject { from, from_version, if_match, to, .. } = request;
        listing::check_key(Operation::Copy, to)?;
        let source = format!(
            "{}/{}?versionId={}",
            encode_path(&self.bucket),
            encode_path(from),
            encode_query(from_version.as_str())
        );
        let if_match = if_match.map(|etag| format!("\"{}\"", etag.as_str()));
        let mut call = self
            .client
            .copy_object()
            .bucket(&self.bucket)
            .key(to)
            .copy_source(source)
            .set_copy_source_if_match(if_match.clone())
            .metadata_directive(MetadataDirective::Replace)
            .content_type(request.content_type)
            .set_content_disposition(request.content_disposition.map(str::to_owned))
            .set_cache_control(request.cache_control.map(str::to_owned))
            .customize();
        // Ceph 16.2.15 ignores S3's header and heeds this one (measured).
        if let (StoreKind::Ceph, Some(etag)) = (self.kind, if_match) {
            call = call.mutate_request(move |sent| {
                sent.headers_mut().insert("x-amz-copy-if-match", etag.clone());
            });
        }
        let answer = call.send().await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                return Err(match status(&error) {
                    Some(400 | 405) if is_about_version(&error) => {
                        missing(Operation::Copy, from, from_version)
                    }
                    Some(_) | None => failure(Operation::Copy, from, Some(from_version), &error),
                });
            }
        };
        // S3 may answer 200 and an error in the body; then there is no ETag.
        let etag = etag(Operation::Copy, to, answer.copy_object_result().and_then(|copy| copy.e_tag()))?;
        let version = parse_version(to, answer.version_id()).ok();
        self.stored(Operation::Copy, to, version.as_ref(), &etag).await
    }

    async fn delete_versions(
        &self,
        versions: &[(String, VersionId)],
    ) -> Result<Vec<DeleteFailure>, ObjectError> {
        let mut failures = Vec::new();
        for batch in versions.chunks(DELETE_BATCH_MAX) {
            failures.extend(self.delete_batch(batch).await?);
        }
        Ok(failures)
    }

    async fn probe(&self) -> Result<(), ObjectError> {
        if let Err(error) = self.client.head_bucket().bucket(&self.bucket).send().await {
            return Err(self.probe_failure(&error));
        }
        let versioning = self.client.get_bucket_versioning().bucket(&self.bucket).send().await;
        match versioning.map_err(|error| self.probe_failure(&error))?.status() {
            Some(BucketVersioningStatus::Enabled) => Ok(()),
            Some(_) | None => Err(ObjectError::VersioningRequired { key: self.bucket.clone() }),
        }
    }
}

pub(crate) fn client(settings: &S3Settings) -> Client {
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .operation_attempt_timeout(ATTEMPT_TIMEOUT)
        .operation_timeout(OPERATION_TIMEOUT)
        .build();
    let config = aws_sdk_s3::Config::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .endpoint_url(settings.endpoint.as_str())
        .region(Region::new(settings.region.clone()))
        .credentials_provider(settings.credentials.for_sdk())
        .force_path_style(true)
        .timeout_config(timeouts)
        .retry_config(RetryConfig::standard().with_max_attempts(ATTEMPTS_MAX))
        .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
        .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
        .build();
    Client::from_conf(config)
}

fn found(key: &str, answer: &HeadObjectOutput) -> Result<Found, ObjectError> {
    let last_modified = answer
        .last_modified()
        .and_then(timestamp)
        .ok_or_else(|| unavailable(Operation::Head, key, "the answer has no Last-Modified"))?;
    let size_bytes = answer
        .content_length()
        .and_then(|length| u64::try_from(length).ok())
        .ok_or_else(|| unavailable(Operation::Head, key, "the answer has no length"))?;
    Ok(Found {
        sighting: Sighting {
            version: parse_version(key, answer.version_id())?,
            size_bytes,
            content_type: answer.content_type().map(str::to_owned),
            last_modified,
            sha256: answer.checksum_sha256().and_then(checksum),
            content_disposition: answer.content_disposition().map(str::to_owned),
            content_encoding: answer.content_encoding().map(str::to_owned),
            user_metadata: answer
                .metadata()
                .into_iter()
                .flatten()
                .map(|(name, value)| (name.to_ascii_lowercase(), value.clone()))
                .collect(),
        },
        etag: etag(Operation::Head, key, answer.e_tag())?,
    })
}

/// A checksum of the whole; one of a multipart upload's parts (`…-2`) says nothing we announced.
fn checksum(text: &str) -> Option<Sha256> {
    Sha256::try_from(BASE64.decode(text).ok()?).ok()
}

fn chunks(key: &str, body: ByteStream) -> BoxStream<'static, Result<Bytes, ObjectError>> {
    futures::stream::unfold((body, key.to_owned()), |(mut body, key)| async move {
        let chunk = match tokio::time::timeout(CHUNK_TIMEOUT, body.next()).await {
            Ok(Some(Ok(chunk))) => Ok(chunk),
            Ok(Some(Err(error))) => Err(unavailable(Operation::Get, &key, &chain(&error))),
            Ok(None) => return None,
            Err(_) => Err(unavailable(Operation::Get, &key, "the body stands still")),
        };
        Some((chunk, (body, key)))
    })
    .boxed()
}

pub(crate) fn timestamp(time: &DateTime) -> Option<Timestamp> {
    Timestamp::from_timestamp(time.secs(), time.subsec_nanos())
}

pub(crate) fn parse_version(key: &str, text: Option<&str>) -> Result<VersionId, ObjectError> {
    VersionId::parse(text.unwrap_or_default())
        .map_err(|_| ObjectError::VersioningRequired { key: key.to_owned() })
}

fn etag(operation: Operation, key: &str, text: Option<&str>) -> Result<ETag, ObjectError> {
    text.map(ETag::new).ok_or_else(|| unavailable(operation, key, "the answer has no ETag"))
}

/// The HTTP status, where there was an answer.
pub(crate) fn status<E>(error: &SdkError<E, aws_sdk_s3::config::http::HttpResponse>) -> Option<u16> {
    error.raw_response().map(|response| response.status().as_u16())
}

fn is_about_version<E: ProvideErrorMetadata>(
    error: &SdkError<E, aws_sdk_s3::config::http::HttpResponse>,
) -> bool {
    error.message().is_some_and(|text| text.to_ascii_lowercase().contains("version"))
}

/// From what the SDK says to whose fault it may be.
pub(crate) fn failure<E>(
    operation: Operation,
    key: &str,
    version: Option<&VersionId>,
    error: &SdkError<E, aws_sdk_s3::config::http::HttpResponse>,
) -> ObjectError
where
    E: ProvideErrorMetadata + Error + 'static,
{
    let code = error.code().unwrap_or("no code");
    let detail = format!("{code}: {}", chain(error));
    match status(error) {
        Some(401 | 403) => ObjectError::Denied { operation, key: key.to_owned(), detail },
        // A bucket that is gone is no object that is gone.
        Some(404) if code == "NoSuchBucket" => unavailable(operation, key, &detail),
        Some(404) => ObjectError::Missing { operation, key: key.to_owned(), version: version.cloned() },
        Some(412) => ObjectError::PreconditionFailed { operation, key: key.to_owned() },
        // No answer, one that made no sense, or one that says "later".
        None | Some(200..=299 | 408 | 409 | 429 | 500..) => unavailable(operation, key, &detail),
        Some(_) => invalid(operation, key, &detail),
    }
}

fn missing(operation: Operation, key: &str, version: &VersionId) -> ObjectError {
    ObjectError::Missing { operation, key: key.to_owned(), version: Some(version.clone()) }
}

pub(crate) fn unavailable(operation: Operation, key: &str, detail: &str) -> ObjectError {
    ObjectError::Unavailable { operation, key: key.to_owned(), detail: detail.to_owned() }
}

pub(crate) fn invalid(operation: Operation, key: &str, detail: &str) -> ObjectError {
    ObjectError::Invalid { operation, key: key.to_owned(), detail: detail.to_owned() }
}

/// An error and what caused it, in one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
