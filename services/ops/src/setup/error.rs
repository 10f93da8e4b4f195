//! What can end a setup: each says what was tried, why it failed, and what to do next.

use broker::BrokerError;
use objects::ObjectError;

use super::StepId;

/// Why the run ended.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A server said no, or something we can't work with.
    #[error("{step}: {cause}. Next: {}", next(*step, cause))]
    Refused {
        /// The step.
        step: StepId,
        /// What was said.
        cause: Cause,
    },
    /// A server did not come back within the time setup waits.
    #[error(
        "{step}: no answer for {waited_seconds} s, the last: {cause}. Next: start {} and run setup again",
        cause.server()
    )]
    StillAway {
        /// The step.
        step: StepId,
        /// How long it was waited for.
        waited_seconds: u64,
        /// The last failure.
        cause: Cause,
    },
    /// The bucket took the order to keep versions and does not.
    #[error(
        "versioning: bucket `{bucket}` does not keep versions although it was told to. Next: use a store that can \
         (Ceph, MinIO on erasure-coded or single-drive storage, RustFS, AWS); without it nothing can be pinned (R-B9)"
    )]
    NoVersioning {
        /// The bucket.
        bucket: String,
    },
}

/// What a server said.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// The store.
    #[error(transparent)]
    Store(#[from] ObjectError),
    /// The broker.
    #[error("{}", .0.chain())]
    Broker(Box<BrokerError>),
}

impl From<BrokerError> for Cause {
    fn from(error: BrokerError) -> Self {
        Self::Broker(Box::new(error))
    }
}

impl Cause {
    /// Whether waiting may help: nobody answered, or somebody who is not ready.
    pub(super) fn is_away(&self) -> bool {
        match self {
            Self::Store(error) => match error {
                ObjectError::Unavailable { .. } => !is_no_bucket(error),
                ObjectError::Missing { .. }
                | ObjectError::VersioningRequired { .. }
                | ObjectError::Denied { .. }
                | ObjectError::PreconditionFailed { .. }
                | ObjectError::TooLarge { .. }
                | ObjectError::Invalid { .. } => false,
            },
            Self::Broker(error) => match **error {
                BrokerError::Connect(_) | BrokerError::Timeout { .. } | BrokerError::Blocked => true,
                BrokerError::Url
                | BrokerError::TooLong(_)
                | BrokerError::Topology { .. }
                | BrokerError::NoPrefix
                | BrokerError::Step { .. }
                | BrokerError::NotReady
                | BrokerError::StrangeReturn { .. }
                | BrokerError::Cancelled => false,
            },
        }
    }

    fn server(&self) -> &'static str {
        match self {
            Self::Store(_) => "the store",
            Self::Broker(_) => "the broker",
        }
    }
}

/// Whether the store answered, and only the bucket is missing. `objects` calls both an outage, as a service must; the
/// code at the beginning of the detail is S3's own.
pub(super) fn is_no_bucket(error: &ObjectError) -> bool {
    match error {
        ObjectError::Unavailable { detail, .. } => detail.starts_with("NoSuchBucket"),
        ObjectError::Missing { .. }
        | ObjectError::VersioningRequired { .. }
        | ObjectError::Denied { .. }
        | ObjectError::PreconditionFailed { .. }
        | ObjectError::TooLarge { .. }
        | ObjectError::Invalid { .. } => false,
    }
}

/// What a person does about it.
fn next(step: StepId, cause: &Cause) -> &'static str {
    if let Cause::Store(ObjectError::Denied { .. }) = cause {
        return "give setup the credentials of the identity that owns the bucket (ARKIV_S3_ADMIN_*)";
    }
    match step {
        StepId::Topology => match cause {
            Cause::Broker(error) if matches!(**error, BrokerError::Topology { .. }) => {
                "something of that name exists with other arguments, or the user may not configure it: compare with \
                 infra/rabbitmq/definitions.json; delete the queue once it is empty, and run setup again"
            }
            Cause::Broker(_) | Cause::Store(_) => "check ARKIV_AMQP_URL",
        },
        StepId::Bucket => "if the name is somebody else's, set ARKIV_S3_BUCKET to another",
        StepId::Versioning => "check that the store keeps versions and that this identity owns the bucket",
        StepId::Policy => "check the ARKIV_S3_*_PRINCIPAL settings: each must name a user the store knows",
        StepId::AccessBlock => "lift a block of public policies that somebody else put on the bucket",
        StepId::Cors => "check the origins: scheme, host and port, without a path",
        StepId::Lifecycle => "remove lifecycle rules that somebody else put on the bucket",
        StepId::Notification => {
            "check that minio-notify.json names a target this store has (MinIO, RustFS: in its own environment), and \
             for Ceph that ARKIV_AMQP_STORE_URL is the broker as the store reaches it and `rgw trust forwarded https` \
             is set"
        }
        StepId::PutTickets => "run setup again",
    }
}
