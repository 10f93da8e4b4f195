//! Where a store is and who asks, and SigV4 query signing for links and PUT tickets.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SignatureLocation,
    SigningSettings, UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4;
use cards::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use url::Url;

use crate::{ObjectError, Operation};

/// All that SigV4 wants encoded in a query.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The same in a path, whose slashes stay.
const PATH: &AsciiSet = &QUERY.remove(b'/');

/// An access key and its secret. The secret never reaches a log.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The access key: public, it stands in every link.
    pub access_key: String,
    /// The secret key.
    pub secret_key: String,
}

impl Credentials {
    /// Takes both parts.
    pub fn new(access_key: impl Into<String>, secret_key: impl Into<String>) -> Self {
        Self { access_key: access_key.into(), secret_key: secret_key.into() }
    }

    pub(crate) fn for_sdk(&self) -> aws_credential_types::Credentials {
        aws_credential_types::Credentials::new(&self.access_key, &self.secret_key, None, None, "settings")
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("access_key", &self.access_key)
            .field("secret_key", &"***")
            .finish()
    }
}

/// Which server answers: they differ in what FACTS 2 and 2b list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// Ceph RADOS gateway.
    Ceph,
    /// `MinIO` and its forks.
    Minio,
    /// `RustFS`.
    Rustfs,
    /// Amazon S3.
    Aws,
}

/// A text that names no kind of store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no kind of store; the kinds are ceph, minio, rustfs, aws")]
pub struct StoreKindError(pub String);

impl StoreKind {
    /// The word in settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ceph => "ceph",
            Self::Minio => "minio",
            Self::Rustfs => "rustfs",
            Self::Aws => "aws",
        }
    }
}

impl FromStr for StoreKind {
    type Err = StoreKindError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Ceph, Self::Minio, Self::Rustfs, Self::Aws]
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| StoreKindError(text.to_owned()))
    }
}

/// One bucket as one identity sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Settings {
    /// Where the store answers our processes.
    pub endpoint: Url,
    /// The region that goes into signatures.
    pub region: String,
    /// The bucket.
    pub bucket: String,
    /// Who asks.
    pub credentials: Credentials,
    /// Which server it is.
    pub kind: StoreKind,
}

/// What tickets and links are signed for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignerSettings {
    /// Where the store answers a browser: not always where it answers our processes.
    pub endpoint: Url,
    /// The region that goes into signatures.
    pub region: String,
    /// The bucket.
    pub bucket: String,
    /// Who signs.
    pub credentials: Credentials,
}

/// What is signed: a request somebody else will send, or one of ours.
pub(crate) struct Signable<'a> {
    pub(crate) method: &'a str,
    pub(crate) url: &'a str,
    /// Exactly these headers, and `host`, are signed.
    pub(crate) headers: &'a [(&'a str, &'a str)],
    pub(crate) credentials: &'a Credentials,
    pub(crate) region: &'a str,
    pub(crate) at: Timestamp,
}

/// The URL with its signature in the query; the body is not signed.
pub(crate) fn presign(request: &Signable<'_>, life: Duration) -> Result<Url, ObjectError> {
    let mut settings = s3_settings();
    settings.signature_location = SignatureLocation::QueryParams;
    settings.expires_in = Some(life);
    let signed = signature(request, "s3", SignableBody::UnsignedPayload, settings)?;
    let mut url = request.url.to_owned();
    for (name, value) in signed.params() {
        url.push(if url.contains('?') { '&' } else { '?' });
        url.push_str(&encode_query(name));
        url.push('=');
        url.push_str(&encode_query(value));
    }
    Url::parse(&url).map_err(|error| refuse(request.url, &error.to_string()))
}

/// The service a request of ours is signed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    S3,
    Sns,
}

/// The headers that make a request of ours a signed one.
pub(crate) fn sign_headers(
    request: &Signable<'_>,
    service: Service,
    body: &[u8],
) -> Result<Vec<(String, String)>, ObjectError> {
    let (name, settings) = match service {
        Service::S3 => {
            let mut settings = s3_settings();
            settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
            ("s3", settings)
        }
        Service::Sns => ("sns", SigningSettings::default()),
    };
    let signed = signature(request, name, SignableBody::Bytes(body), settings)?;
    Ok(signed.headers().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

/// The hex signature of a POST policy: the policy in base64 is all that is signed.
pub(crate) fn sign_policy(credentials: &Credentials, region: &str, at: Timestamp, policy: &str) -> String {
    let key = v4::generate_signing_key(&credentials.secret_key, SystemTime::from(at), region, "s3");
    v4::calculate_signature(key, policy.as_bytes())
}

/// `<access key>/<day>/<region>/s3/aws4_request`.
pub(crate) fn credential_scope(credentials: &Credentials, region: &str, at: Timestamp) -> String {
    format!("{}/{}/{region}/s3/aws4_request", credentials.access_key, at.format("%Y%m%d"))
}

/// Path-style: a bucket's name need not be a host name.
pub(crate) fn bucket_url(endpoint: &Url, bucket: &str) -> String {
    format!("{}/{}", endpoint.as_str().trim_end_matches('/'), encode_path(bucket))
}

pub(crate) fn object_url(endpoint: &Url, bucket: &str, key: &str) -> String {
    format!("{}/{}", bucket_url(endpoint, bucket), encode_path(key))
}

pub(crate) fn encode_path(text: &str) -> String {
    utf8_percent_encode(text, PATH).to_string()
}

pub(crate) fn encode_query(text: &str) -> String {
    utf8_percent_encode(text, QUERY).to_string()
}

/// S3 takes the path as it is sent: encoded once, `..` and `//` left alone.
fn s3_settings() -> SigningSettings {
    let mut settings = SigningSettings::default();
    settings.percent_encoding_mode = PercentEncodingMode::Single;
    settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
    settings
}

fn signature(
    request: &Signable<'_>,
    service: &str,
    body: SignableBody<'_>,
    settings: SigningSettings,
) -> Result<aws_sigv4::http_request::SigningInstructions, ObjectError> {
    let refused = |error: &dyn fmt::Display| refuse(request.url, &error.to_string());
    let identity = request.credentials.for_sdk().into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region(request.region)
        .name(service)
        .time(SystemTime::from(request.at))
        .settings(settings)
        .build()
        .map_err(|error| refused(&error))?
        .into();
    let signable = SignableRequest::new(request.method, request.url, request.headers.iter().copied(), body)
        .map_err(|error| refused(&error))?;
    let (instructions, _) = sign(signable, &params).map_err(|error| refused(&error))?.into_parts();
    Ok(instructions)
}

fn refuse(url: &str, detail: &str) -> ObjectError {
    ObjectError::Invalid { operation: Operation::Sign, key: url.to_owned(), detail: detail.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn example() -> Credentials {
        // AWS's published example credentials.
        Credentials::new("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    }

    #[test]
    fn query_signing_gives_the_signature_aws_publishes() {
        // "Authenticating Requests: Using Query Parameters (AWS Signature Version 4)", docs.aws.amazon.com.
        let url = presign(
            &Signable {
                method: "GET",
                url: "https://examplebucket.s3.amazonaws.com/test.txt",
                headers: &[],
                credentials: &example(),
                region: "us-east-1",
                at: "2013-05-24T00:00:00Z".parse().unwrap(),
            },
            Duration::from_hours(24),
        )
        .unwrap();
        let query: BTreeMap<_, _> = url.query_pairs().into_owned().collect();
        assert_eq!(
            query["X-Amz-Signature"],
            "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
        );
        assert_eq!(query["X-Amz-SignedHeaders"], "host");
        assert_eq!(query["X-Amz-Credential"], "AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request");
    }

    #[test]
    fn policy_signing_gives_the_signature_aws_publishes() {
        // "Example: Browser-Based Upload using HTTP POST (Using AWS Signature Version 4)", docs.aws.amazon.com. The
        // page's base64 is of this text with CRLF line ends and an empty line before the credential.
        let policy = [
            r#"{ "expiration": "2015-12-30T12:00:00.000Z","#,
            r#"  "conditions": ["#,
            r#"    {"bucket": "sigv4examplebucket"},"#,
            r#"    ["starts-with", "$key", "user/user1/"],"#,
            r#"    {"acl": "public-read"},"#,
            r#"    {"success_action_redirect": "http://sigv4examplebucket.s3.amazonaws.com/successful_upload.html"},"#,
            r#"    ["starts-with", "$Content-Type", "image/"],"#,
            r#"    {"x-amz-meta-uuid": "14365123651274"},"#,
            r#"    {"x-amz-server-side-encryption": "AES256"},"#,
            r#"    ["starts-with", "$x-amz-meta-tag", ""],"#,
            "",
            r#"    {"x-amz-credential": "AKIAIOSFODNN7EXAMPLE/20151229/us-east-1/s3/aws4_request"},"#,
            r#"    {"x-amz-algorithm": "AWS4-HMAC-SHA256"},"#,
            r#"    {"x-amz-date": "20151229T000000Z" }"#,
            "  ]",
            "}",
        ]
        .join("\r\n");
        let encoded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, policy);
        let at = "2015-12-29T00:00:00Z".parse().unwrap();
        assert_eq!(
            sign_policy(&example(), "us-east-1", at, &encoded),
            "8afdbf4008c03f22c2cd3cdb72e4afbb1f6a588f3255ac628749a66d7f09699e"
        );
        assert_eq!(
            credential_scope(&example(), "us-east-1", at),
            "AKIAIOSFODNN7EXAMPLE/20151229/us-east-1/s3/aws4_request"
        );
    }

    #[test]
    fn a_secret_never_shows_in_debug_output() {
        let settings = S3Settings {
            endpoint: "http://127.0.0.1:9000".parse().unwrap(),
            region: "default".to_owned(),
            bucket: "arkiv".to_owned(),
            credentials: example(),
            kind: StoreKind::Ceph,
        };
        let shown = format!("{settings:?}");
        assert!(shown.contains("AKIAIOSFODNN7EXAMPLE") && !shown.contains("wJalr"), "{shown}");
    }

    #[test]
    fn a_store_kind_reads_back() {
        for kind in [StoreKind::Ceph, StoreKind::Minio, StoreKind::Rustfs, StoreKind::Aws] {
            assert_eq!(kind.as_str().parse(), Ok(kind));
        }
        assert!("s3".parse::<StoreKind>().is_err());
    }
}
