//! Whether a PUT ticket can be misused here (R-A2).
//!
//! Some stores take headers with a presigned PUT that its signature does not cover. `x-amz-copy-source` then makes the
//! store copy somebody else's object under the ticket's key, `x-amz-acl` publishes it. The probe tries both, as a
//! ticket's holder would.

use aws_sdk_s3::primitives::ByteStream;
use cards::key::FILE_PREFIX;
use cards::{Ids, Timestamp};
use chrono::TimeDelta;

use super::Admin;
use crate::s3::{self, unavailable};
use crate::sign::encode_path;
use crate::ticket::{TicketRequest, TicketSigner};
use crate::{ObjectError, ObjectStore, Operation, S3};

/// Where workers may put, so that they can probe as well as the bucket's owner. No card names it; it is there for
/// moments. Each probe has its own, since several processes may start at once and none may find another's gone.
fn victim(ids: Ids) -> String {
    format!("{FILE_PREFIX}arkiv-probe-{}", ids.message())
}

/// Where the signer may put. No card has this key.
const TARGET: &str = "incoming/arkiv-probe";
/// The bytes a probing ticket is for.
const PROBE_BYTES: &[u8] = b"x";

/// What the store answered to the two tricks, as HTTP statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutMisuse {
    /// To an unsigned `x-amz-copy-source`.
    pub copy_source: u16,
    /// To an unsigned `x-amz-acl`.
    pub acl: u16,
}

impl PutMisuse {
    /// Whether PUT tickets must not be given out. Only a 403 is a refusal: any other answer means that the store looked
    /// at the header.
    pub fn is_possible(self) -> bool {
        self.copy_source != 403 || self.acl != 403
    }
}

impl Admin {
    /// Tries both tricks with a ticket of this signer, and cleans up what they left.
    pub async fn signer_can_misuse_put(&self, signer: &TicketSigner) -> Result<PutMisuse, ObjectError> {
        let victim = victim(Ids);
        self.client
            .put_object()
            .bucket(self.bucket())
            .key(&victim)
            .body(ByteStream::from_static(PROBE_BYTES))
            .send()
            .await
            .map_err(|error| self.failed(&error))?;
        let source = format!("/{}/{victim}", encode_path(self.bucket()));
        let copy_source = self.try_header(signer, "x-amz-copy-source", &source).await;
        let acl = self.try_header(signer, "x-amz-acl", "public-read").await;
        // What was tried is removed whatever came of it; the first error is the one that is told.
        let removed = self.remove_probes(&victim).await;
        let misuse = PutMisuse { copy_source: copy_source?, acl: acl? };
        removed.map(|()| misuse)
    }

    async fn try_header(&self, signer: &TicketSigner, name: &str, value: &str) -> Result<u16, ObjectError> {
        let issued_at = Self::clock();
        let ticket = signer.put(&TicketRequest {
            key: TARGET,
            size_bytes: PROBE_BYTES.len() as u64,
            content_type: "text/plain",
            sha256: None,
            issued_at,
            ends_at: issued_at + TimeDelta::seconds(60),
            traceparent: None,
        })?;
        let mut request = self.http.put(&ticket.url).header(name, value).body(PROBE_BYTES);
        for (name, value) in &ticket.headers {
            request = request.header(name, value);
        }
        match request.send().await {
            Ok(answer) => Ok(answer.status().as_u16()),
            // Without its URL: that is a ticket.
            Err(error) => Err(unavailable(Operation::Setup, TARGET, &s3::chain(&error.without_url()))),
        }
    }

    async fn remove_probes(&self, victim: &str) -> Result<(), ObjectError> {
        let store = S3::new(&self.settings);
        let mut versions = Vec::new();
        for key in [victim, TARGET] {
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
