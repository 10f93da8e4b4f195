//! Who may do what (R-A2): the bucket's policy.
//!
//! An uploaded object belongs to whoever signed the ticket (Ceph; AWS with ACLs on). So even the bucket's owner may not
//! read it without an explicit grant (FACTS 2): the workers get one. And its signer could read, publish and tag it
//! without any grant: that takes an explicit denial, and so do the headers with which a ticket's holder would publish it
//! (`NotAction` would be shorter; measured on Ceph 16.2.15: it denies nothing there).

use cards::key::{DERIVED_PREFIX, FILE_PREFIX, SOURCE_PREFIX};
use serde_json::json;

/// The identities, as the store names them (Ceph, AWS: ARNs of users or roles).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principals {
    /// Signs tickets.
    pub signer: String,
    /// Signs links.
    pub reader: String,
    /// Confirms, decodes, deletes, reconciles.
    pub worker: String,
}

/// What nobody who signs tickets may do, its own uploads included.
const SIGNER_DENIED: [&str; 14] = [
    "s3:GetObject",
    "s3:GetObjectVersion",
    "s3:GetObjectAcl",
    "s3:GetObjectVersionAcl",
    "s3:GetObjectTagging",
    "s3:GetObjectVersionTagging",
    "s3:PutObjectAcl",
    "s3:PutObjectVersionAcl",
    "s3:PutObjectTagging",
    "s3:PutObjectVersionTagging",
    "s3:DeleteObject",
    "s3:DeleteObjectVersion",
    "s3:ListBucket",
    "s3:ListBucketVersions",
];
/// Headers that give rights to others. A store that does not insist on signed headers takes them with a ticket.
const GRANTING_HEADERS: [(&str, &str); 6] = [
    ("Acl", "s3:x-amz-acl"),
    ("GrantRead", "s3:x-amz-grant-read"),
    ("GrantWrite", "s3:x-amz-grant-write"),
    ("GrantReadAcp", "s3:x-amz-grant-read-acp"),
    ("GrantWriteAcp", "s3:x-amz-grant-write-acp"),
    ("GrantFullControl", "s3:x-amz-grant-full-control"),
];

/// The policy: the signer puts under `incoming/`, the reader gets what is served, the worker does the rest. Nobody's
/// ACLs and nobody's tags.
pub(super) fn document(bucket: &str, principals: &Principals) -> String {
    let all = format!("arn:aws:s3:::{bucket}");
    let under = |prefix: &str| format!("arn:aws:s3:::{bucket}/{prefix}*");
    let mut statements = vec![
        json!({
            "Sid": "TicketsOnlyPut",
            "Effect": "Allow",
            "Principal": { "AWS": [principals.signer] },
            "Action": ["s3:PutObject"],
            "Resource": [under(SOURCE_PREFIX)],
        }),
        json!({
            "Sid": "TicketsOnlyPutEvenWhatTheyOwn",
            "Effect": "Deny",
            "Principal": { "AWS": [principals.signer] },
            "Action": SIGNER_DENIED,
            "Resource": [all, under("")],
        }),
        json!({
            "Sid": "LinksOnlyGetWhatIsServed",
            "Effect": "Allow",
            "Principal": { "AWS": [principals.reader] },
            "Action": ["s3:GetObject", "s3:GetObjectVersion"],
            "Resource": [under(FILE_PREFIX), under(DERIVED_PREFIX)],
        }),
        json!({
            "Sid": "WorkersReadAndRemove",
            "Effect": "Allow",
            "Principal": { "AWS": [principals.worker] },
            "Action": [
                "s3:GetObject", "s3:GetObjectVersion", "s3:DeleteObject", "s3:DeleteObjectVersion",
            ],
            // Ceph asks for the right to a batch delete at the bucket, AWS at each object.
            "Resource": [all, under("")],
        }),
        json!({
            "Sid": "WorkersWriteWhatIsOurs",
            "Effect": "Allow",
            "Principal": { "AWS": [principals.worker] },
            "Action": ["s3:PutObject"],
            "Resource": [under(FILE_PREFIX), under(DERIVED_PREFIX)],
        }),
        json!({
            "Sid": "WorkersList",
            "Effect": "Allow",
            "Principal": { "AWS": [principals.worker] },
            "Action": ["s3:ListBucket", "s3:ListBucketVersions", "s3:GetBucketVersioning"],
            "Resource": [all],
        }),
    ];
    statements.extend(GRANTING_HEADERS.map(|(name, key)| {
        json!({
            "Sid": format!("TicketsGrantNothing{name}"),
            "Effect": "Deny",
            "Principal": { "AWS": [principals.signer] },
            "Action": ["s3:PutObject"],
            "Resource": [under("")],
            // Any value at all: the condition is not met where the header is absent.
            "Condition": { "StringLike": { key: "?*" } },
        })
    }));
    json!({ "Version": "2012-10-17", "Statement": statements }).to_string()
}
