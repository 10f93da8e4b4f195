//! What `arkiv setup` makes of a bucket, and what `arkiv doctor` asks of it (R-I4). Every call may be repeated.
//!
//! In order: bucket, versioning, policy, access block (in this order: a block on policies refuses the policy itself),
//! CORS, lifecycle, events. The admin identity owns the bucket and is used by nothing that runs.

mod configuration;
mod policy;
mod probe;
mod wire;

use aws_sdk_s3::Client;
use aws_sdk_s3::error::ProvideErrorMetadata;
use aws_sdk_s3::types::{
    AbortIncompleteMultipartUpload, BucketLifecycleConfiguration, BucketVersioningStatus, CorsConfiguration,
    CorsRule, Delete, EncodingType, ExpirationStatus, LifecycleExpiration, LifecycleRule,
    LifecycleRuleFilter, ObjectIdentifier, PublicAccessBlockConfiguration, VersioningConfiguration,
};
use aws_smithy_types::error::operation::BuildError;

pub use self::configuration::Configuration;
pub use self::policy::Principals;
pub use self::probe::PutProbe;
use crate::s3::{self, failure, invalid};
use crate::{ObjectError, Operation, S3Settings, StoreKind, listing};

/// Uploads in parts that nobody finished are dropped after this many days. They are no objects and no versions.
const MULTIPART_DAYS_MAX: i32 = 1;
/// How long a browser may remember a preflight, in seconds.
const PREFLIGHT_SECONDS: i32 = 3600;
/// Rounds of removal in [`Admin::delete_bucket_and_all`], a page each.
const REMOVAL_PAGES_MAX: usize = 1000;

/// The identity that owns the bucket.
#[derive(Clone, Debug)]
pub struct Admin {
    settings: S3Settings,
    client: Client,
    http: reqwest::Client,
}

impl Admin {
    /// An admin of one bucket.
    pub fn new(settings: S3Settings) -> Result<Self, ObjectError> {
        let http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(s3::CONNECT_TIMEOUT)
            .timeout(s3::ATTEMPT_TIMEOUT)
            .build()
            .map_err(|error| invalid(Operation::Setup, &settings.bucket, &s3::chain(&error)))?;
        Ok(Self { client: s3::client(&settings), http, settings })
    }

    /// Makes the bucket; one of ours that exists is left as it is.
    pub async fn create_bucket(&self) -> Result<(), ObjectError> {
        let answer = self.client.create_bucket().bucket(self.bucket()).send().await;
        match answer {
            Ok(_) => Ok(()),
            Err(error) if error.code() == Some("BucketAlreadyOwnedByYou") => Ok(()),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Switches versioning on.
    pub async fn enable_versioning(&self) -> Result<(), ObjectError> {
        let enabled = VersioningConfiguration::builder().status(BucketVersioningStatus::Enabled).build();
        self.client
            .put_bucket_versioning()
            .bucket(self.bucket())
            .versioning_configuration(enabled)
            .send()
            .await
            .map(drop)
            .map_err(|error| self.failed(&error))
    }

    /// Whether versioning is on: suspended is off (R-B9).
    pub async fn versioning_enabled(&self) -> Result<bool, ObjectError> {
        let answer = self
            .client
            .get_bucket_versioning()
            .bucket(self.bucket())
            .send()
            .await
            .map_err(|error| self.failed(&error))?;
        Ok(answer.status() == Some(&BucketVersioningStatus::Enabled))
    }

    /// Lets each identity do what it is for, and nothing else.
    pub async fn put_policy(&self, principals: &Principals) -> Result<(), ObjectError> {
        self.client
            .put_bucket_policy()
            .bucket(self.bucket())
            .policy(policy::document(self.bucket(), principals))
            .send()
            .await
            .map(drop)
            .map_err(|error| self.failed(&error))
    }

    /// Makes ACLs powerless, old and new: a ticket's holder could send one along (FACTS 2). Public *policies* stay
    /// possible, or the next [`Admin::put_policy`] would be refused.
    ///
    /// Ceph 16.2.15 refuses every PUT, ACL or not, while `BlockPublicAcls` is on (measured; POST still works). There
    /// ACLs are only ignored, and the policy refuses the headers that carry one.
    pub async fn block_public_access(&self) -> Result<(), ObjectError> {
        let block = PublicAccessBlockConfiguration::builder()
            .block_public_acls(self.can_block_acls())
            .ignore_public_acls(true)
            .block_public_policy(false)
            .restrict_public_buckets(false)
            .build();
        self.client
            .put_public_access_block()
            .bucket(self.bucket())
            .public_access_block_configuration(block)
            .send()
            .await
            .map(drop)
            .map_err(|error| self.failed(&error))
    }

    /// Whether ACLs are powerless.
    pub async fn public_access_is_blocked(&self) -> Result<bool, ObjectError> {
        let answer = self.client.get_public_access_block().bucket(self.bucket()).send().await;
        let (blocks, ignores) = match answer {
            Ok(answer) => answer.public_access_block_configuration().map_or((false, false), |block| {
                (block.block_public_acls().unwrap_or(false), block.ignore_public_acls().unwrap_or(false))
            }),
            Err(error) if error.code() == Some("NoSuchPublicAccessBlockConfiguration") => (false, false),
            // Ceph's answer has another root than S3's, which the SDK does not read; its words are the same.
            Err(error) => match misnamed_answer(&error) {
                Some(text) => {
                    (text.contains("<BlockPublicAcls>true<"), text.contains("<IgnorePublicAcls>true<"))
                }
                None => return Err(self.failed(&error)),
            },
        };
        Ok(ignores && (blocks || !self.can_block_acls()))
    }

    fn can_block_acls(&self) -> bool {
        match self.settings.kind {
            StoreKind::Ceph => false,
            StoreKind::Minio | StoreKind::Rustfs | StoreKind::Aws => true,
        }
    }

    /// Lets pages of these origins upload and read. `false`: this store knows no rules per bucket (MinIO: its
    /// environment says it for all of them).
    pub async fn put_cors(&self, origins: &[String]) -> Result<bool, ObjectError> {
        match self.settings.kind {
            StoreKind::Minio => return Ok(false),
            StoreKind::Ceph | StoreKind::Rustfs | StoreKind::Aws => {}
        }
        let strings = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect());
        let rule = CorsRule::builder()
            .id("arkiv")
            .set_allowed_origins(Some(origins.to_vec()))
            .set_allowed_methods(strings(&["POST", "PUT", "GET", "HEAD"]))
            .set_allowed_headers(strings(&[
                "content-type",
                "x-amz-*",
                "if-none-match",
                "cache-control",
                "x-requested-with",
            ]))
            .set_expose_headers(strings(&["ETag", "Location"]))
            .max_age_seconds(PREFLIGHT_SECONDS)
            .build()
            .map_err(|error| self.unbuilt(&error))?;
        let rules =
            CorsConfiguration::builder().cors_rules(rule).build().map_err(|error| self.unbuilt(&error))?;
        self.client
            .put_bucket_cors()
            .bucket(self.bucket())
            .cors_configuration(rules)
            .send()
            .await
            .map_err(|error| self.failed(&error))?;
        Ok(true)
    }

    /// Drops unfinished multipart uploads and delete markers with nothing behind them. It never expires a version: only
    /// the product removes bytes (INV-3).
    pub async fn put_lifecycle(&self) -> Result<(), ObjectError> {
        let all = || LifecycleRuleFilter::builder().prefix("").build();
        let multiparts = LifecycleRule::builder()
            .id("arkiv-multiparts")
            .status(ExpirationStatus::Enabled)
            .filter(all())
            .abort_incomplete_multipart_upload(
                AbortIncompleteMultipartUpload::builder().days_after_initiation(MULTIPART_DAYS_MAX).build(),
            )
            .expiration(LifecycleExpiration::builder().expired_object_delete_marker(true).build())
            .build()
            .map_err(|error| self.unbuilt(&error))?;
        let rules = BucketLifecycleConfiguration::builder()
            .rules(multiparts)
            .build()
            .map_err(|error| self.unbuilt(&error))?;
        self.client
            .put_bucket_lifecycle_configuration()
            .bucket(self.bucket())
            .lifecycle_configuration(rules)
            .send()
            .await
            .map(drop)
            .map_err(|error| self.failed(&error))
    }

    /// The ids of lifecycle rules that would remove bytes behind the product's back: doctor refuses them (R-I4).
    pub async fn expiring_lifecycle_rules(&self) -> Result<Vec<String>, ObjectError> {
        let answer = self.client.get_bucket_lifecycle_configuration().bucket(self.bucket()).send().await;
        match answer {
            Ok(answer) => Ok(answer
                .rules()
                .iter()
                .filter(|rule| rule.status() == &ExpirationStatus::Enabled && expires_bytes(rule))
                .map(|rule| rule.id().unwrap_or("without id").to_owned())
                .collect()),
            Err(error) if error.code() == Some("NoSuchLifecycleConfiguration") => Ok(Vec::new()),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Removes the bucket and everything in it, versions called `null` too: for tests.
    pub async fn delete_bucket_and_all(&self) -> Result<(), ObjectError> {
        for _ in 0..REMOVAL_PAGES_MAX {
            if self.delete_page().await? == 0 {
                break;
            }
        }
        match self.client.delete_bucket().bucket(self.bucket()).send().await {
            Ok(_) => Ok(()),
            // Gone is what was asked for.
            Err(error) if error.code() == Some("NoSuchBucket") => Ok(()),
            Err(error) => Err(self.failed(&error)),
        }
    }

    async fn delete_page(&self) -> Result<usize, ObjectError> {
        let listed = self
            .client
            .list_object_versions()
            .bucket(self.bucket())
            .encoding_type(EncodingType::Url)
            .send()
            .await;
        let answer = match listed {
            Ok(answer) => answer,
            Err(error) if error.code() == Some("NoSuchBucket") => return Ok(0),
            Err(error) => return Err(self.failed(&error)),
        };
        let named = listing::named(&answer);
        if named.is_empty() {
            return Ok(0);
        }
        let mut delete = Delete::builder().quiet(true);
        for (key, version) in &named {
            let object = ObjectIdentifier::builder().key(key).version_id(version).build();
            delete = delete.objects(object.map_err(|error| self.unbuilt(&error))?);
        }
        let answer = self
            .client
            .delete_objects()
            .bucket(self.bucket())
            .delete(delete.build().map_err(|error| self.unbuilt(&error))?)
            .send()
            .await
            .map_err(|error| self.failed(&error))?;
        match answer.errors().first() {
            None => Ok(named.len()),
            Some(failed) => Err(invalid(
                Operation::Setup,
                failed.key().unwrap_or_default(),
                failed.code().unwrap_or("unknown"),
            )),
        }
    }

    fn bucket(&self) -> &str {
        &self.settings.bucket
    }

    fn failed<E>(&self, error: &SdkFailure<E>) -> ObjectError
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        failure(Operation::Setup, self.bucket(), None, error)
    }

    fn unbuilt(&self, error: &BuildError) -> ObjectError {
        invalid(Operation::Setup, self.bucket(), &error.to_string())
    }
}

type SdkFailure<E> = aws_sdk_s3::error::SdkError<E, aws_sdk_s3::config::http::HttpResponse>;

fn misnamed_answer<E>(error: &SdkFailure<E>) -> Option<&str> {
    let answer = error.raw_response().filter(|answer| answer.status().is_success())?;
    std::str::from_utf8(answer.body().bytes()?).ok().filter(|text| text.contains("PublicAcls>"))
}

fn expires_bytes(rule: &LifecycleRule) -> bool {
    rule.noncurrent_version_expiration().is_some()
        || rule
            .expiration()
            .is_some_and(|expiration| expiration.days().is_some() || expiration.date().is_some())
}
