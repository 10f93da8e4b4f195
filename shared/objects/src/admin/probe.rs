//! Whether a PUT ticket can be misused here (R-A2).
//!
//! Some stores take headers with a presigned PUT that its signature does not cover. `x-amz-copy-source` then makes the
//! store copy somebody else's object under the ticket's key, `x-amz-acl` publishes it. The probe tries both, as a
//! ticket's holder would.
//!
//! 1. Put the victim.
//! 2. Use a ticket as it should be: a signer whose key or policy is wrong is refused whatever it tries, and proves
//!    nothing. What that made is removed at once, for `If-None-Match` would refuse the tricks too.
//! 3. Try each trick.
//! 4. Remove all of it, whatever came of it.

use aws_sdk_s3::primitives::ByteStream;
use cards::key::{FILE_PREFIX, SOURCE_PREFIX};
use cards::{Ids, Timestamp};
use chrono::TimeDelta;

use super::Admin;
use crate::s3::{self, unavailable};
use crate::sign::encode_path;
use crate::ticket::{TicketRequest, TicketSigner};
use crate::{ObjectError, ObjectStore, Operation, S3};

/// The keys of one probe. No card names them; they are there for moments. Each probe has its own, since several
/// processes may start at once and none may find another's gone, or there.
struct Keys {
    /// Where workers may put, so that they can probe as well as the bucket's owner.
    victim: String,
    /// Where the signer may put.
    target: String,
}

/// What a probing ticket is for: no bytes, since an event of an empty object is nobody's upload (R-B1).
const PROBE_BYTES: &[u8] = b"";

/// What the store answered, as HTTP statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutProbe {
    /// The plain PUT that the ticket is for was not taken, so nothing else was tried.
    NoControl {
        /// What it was answered.
        status: u16,
    },
    /// It was, and so both tricks were tried.
    Tried {
        /// To an unsigned `x-amz-copy-source`.
        copy_source: u16,
        /// To an unsigned `x-amz-acl`.
        acl: u16,
    },
}

impl PutProbe {
    /// Whether PUT tickets may be given out. Only a 403 to a trick is a refusal: any other answer means that the store
    /// looked at the header.
    pub fn is_safe(self) -> bool {
        match self {
            Self::NoControl { .. } => false,
            Self::Tried { copy_source, acl } => copy_source == 403 && acl == 403,
        }
    }
}

impl Admin {
    /// Tries both tricks with tickets of this signer, and cleans up what they left.
    pub async fn probe_put(&self, signer: &TicketSigner) -> Result<PutProbe, ObjectError> {
        let probe = Ids.message();
        let keys = Keys {
            victim: format!("{FILE_PREFIX}arkiv-probe-{probe}"),
            target: format!("{SOURCE_PREFIX}arkiv-probe-{probe}"),
        };
        self.client
            .put_object()
            .bucket(self.bucket())
            .key(&keys.victim)
            .body(ByteStream::from_static(PROBE_BYTES))
            .send()
            .await
            .map_err(|error| self.failed(&error))?;
        let told = self.try_all(signer, &keys).await;
        // The first error is the one that is told.
        let removed = self.remove_all(&[&keys.victim, &keys.target]).await;
        let told = told?;
        removed.map(|()| told)
    }

    async fn try_all(&self, signer: &TicketSigner, keys: &Keys) -> Result<PutProbe, ObjectError> {
        let status = self.try_put(signer, &keys.target, None).await?;
        if !(200..300).contains(&status) {
            return Ok(PutProbe::NoControl { status });
        }
        self.remove_all(&[&keys.target]).await?;
        let source = format!("/{}/{}", encode_path(self.bucket()), keys.victim);
        let copy_source = self.try_put(signer, &keys.target, Some(("x-amz-copy-source", &source))).await?;
        let acl = self.try_put(signer, &keys.target, Some(("x-amz-acl", "public-read"))).await?;
        Ok(PutProbe::Tried { copy_source, acl })
    }

    async fn try_put(
        &self,
        signer: &TicketSigner,
        key: &str,
        trick: Option<(&str, &str)>,
    ) -> Result<u16, ObjectError> {
        let issued_at = Self::clock();
        let ticket = signer.put(&TicketRequest {
            key,
            size_bytes: PROBE_BYTES.len() as u64,
            content_type: "text/plain",
            sha256: None,
            issued_at,
            ends_at: issued_at + TimeDelta::seconds(60),
            traceparent: None,
        })?;
        // Signed, and not sent by itself with a body of nothing.
        let mut request = self.http.put(&ticket.url).header("content-length", "0").body(PROBE_BYTES);
        for (name, value) in &ticket.headers {
            request = request.header(name, value);
        }
        if let Some((name, value)) = trick {
            request = request.header(name, value);
        }
        match request.send().await {
            Ok(answer) => Ok(answer.status().as_u16()),
            // Without its URL: that is a ticket.
            Err(error) => Err(unavailable(Operation::Setup, key, &s3::chain(&error.without_url()))),
        }
    }

    async fn remove_all(&self, keys: &[&str]) -> Result<(), ObjectError> {
        let store = S3::new(&self.settings);
        let mut versions = Vec::new();
        for key in keys {
            for version in store.versions_of(key, usize::MAX).await? {
                versions.push((version.key, version.version));
            }
        }
        match store.delete_versions(&versions).await?.first() {
            None => Ok(()),
            Some(failed) => Err(s3::invalid(Operation::Setup, &failed.key, &failed.code)),
        }
    }

    /// Our own requests are dated by this machine's clock, as the SDK dates its.
    #[expect(
        clippy::disallowed_methods,
        reason = "the date of a request sent now; nothing is stored or compared"
    )]
    pub(super) fn clock() -> Timestamp {
        chrono::Utc::now()
    }
}
