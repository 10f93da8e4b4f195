//! All S3, and the only crate with the AWS SDK.
//!
//! In come keys, versions and bytes; out come plain values of [`cards`] or one [`ObjectError`], which tells what may be
//! the store's fault from what is this object's alone (R-B8, R-C7). Every call has a limit in time.
//!
//! - [`ObjectStore`]: what workers may do with the bucket. [`S3`] is the real one, `fake` one with faults for tests.
//! - [`ticket`]: the signed permission to upload (R-A2). [`link`]: the signed permission to read (R-D2).
//! - [`admin`]: what `arkiv setup` makes of a bucket (R-I4).
//! - [`Walk`]: every version under our prefixes, whole keys at a time (R-H2).
//!
//! Deliberately absent: overwriting, deleting without a version, listing without versions. A bucket whose answers carry
//! no version id is an outage ([`ObjectError::VersioningRequired`]), never an empty answer (R-B2).

pub mod admin;
pub mod error;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
pub mod link;
mod listing;
pub mod notify;
mod outage;
pub mod s3;
mod sign;
pub mod store;
pub mod ticket;
pub mod walk;

pub use error::{ErrorKind, ObjectError};
pub use outage::answers;
pub use s3::S3;
pub use sign::{Credentials, S3Settings, SignerSettings, StoreKind};
pub use store::{
    Body, CopyObject, DELETE_BATCH_MAX, DeleteFailure, Found, Head, ListCursor, ListPage, ListedVersion,
    ObjectStore, Operation, PutObject, Stored,
};
pub use walk::{Chunk, Walk};
