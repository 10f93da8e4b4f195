//! Every body in `samples/` has exactly one row here: what it means for the bucket and prefix of the samples, and what
//! it means where every key of that bucket is ours (R-B1).

#![expect(clippy::unwrap_used, reason = "helpers of tests may unwrap as tests do")]

use std::collections::BTreeSet;
use std::path::PathBuf;

use cards::{ETag, VersionId};
use events::bucket::{Created, DeadReason, EventVersion, Ignored, Message, Scope, Source, Verdict, parse};

use Expected::{Created as Upload, Dead, Ignored as Skip, Test};
use Version::{Absent, Id, Null};

const BUCKET: &str = "intake";
const PREFIX: &str = "tenants/tn_0001/uploads/";

const ORIGINAL: &str = "tenants/tn_0001/uploads/0192f3c4-7a11-7c3e-9d2f-5b6a7c8d9e01/original";
const ORIGINAL_2: &str = "tenants/tn_0001/uploads/0192f3c4-7a11-7c3e-9d2f-5b6a7c8d9e01/original-2";
const V1: Version = Id("5f0d3c1e-1111-4a2b-8c3d-000000000001");
const V2: Version = Id("5f0d3c1e-2222-4a2b-8c3d-000000000002");
const CEPH: Version = Id("MwcVz2nAG1.TVstHXOxwMiL5OwrkVeS");
const TAG: &str = "9e107d9d372bb6826bd81d3542a419d6";

/// What a message, or one of its records, must come to. Reasons by their code.
#[derive(Clone, Copy, Debug)]
enum Expected {
    Created(Source, &'static str, Version, u64, &'static str),
    Ignored(Ignored),
    Dead(&'static str),
    /// The message as a whole.
    Test,
    Refused(&'static str),
}

#[derive(Clone, Copy, Debug)]
enum Version {
    Absent,
    Null,
    Id(&'static str),
}

struct Row {
    file: &'static str,
    /// With the prefix of the samples.
    ours: Vec<Expected>,
    /// With no prefix, where that differs.
    anywhere: Option<Vec<Expected>>,
}

fn row(file: &'static str, expected: impl Into<Vec<Expected>>) -> Row {
    Row { file, ours: expected.into(), anywhere: None }
}

/// A key that is not under the prefix.
fn elsewhere(file: &'static str, anywhere: Expected) -> Row {
    Row { file, ours: vec![Skip(Ignored::OtherPrefix)], anywhere: Some(vec![anywhere]) }
}

fn put(source: Source, key: &'static str, version: Version) -> [Expected; 1] {
    [Upload(source, key, version, 1234, TAG)]
}

fn unreadable(code: &'static str) -> [Expected; 1] {
    [Expected::Refused(code)]
}

fn rows() -> Vec<Row> {
    [aws(), bad(), ceph(), minio(), others()].into_iter().flatten().collect()
}

fn aws() -> Vec<Row> {
    vec![
        row("aws-eventbridge-created", put(Source::EventBridge, "tenants/tn_0001/uploads/a b+c.jpg", V1)),
        elsewhere(
            "aws-key-slash-escaped",
            Upload(Source::Aws, "test/10:47:07.2026-11-30.log.bz2", V1, 1234, TAG),
        ),
        row("aws-key-slash-raw", put(Source::Aws, "tenants/tn_0001/uploads/a b+c&d.jpg", V1)),
        row("aws-put", put(Source::Aws, ORIGINAL, V1)),
        row("aws-put-v2.6", put(Source::Aws, ORIGINAL, V1)),
        row("aws-restore-completed", [Skip(Ignored::OtherEvent)]),
        row("aws-sns-envelope", put(Source::Aws, ORIGINAL, V1)),
        row("aws-tagging", [Skip(Ignored::OtherEvent)]),
        row("aws-testevent", [Test]),
        row("aws-two-records", [put(Source::Aws, ORIGINAL, V1)[0], put(Source::Aws, ORIGINAL_2, V2)[0]]),
    ]
}

fn bad() -> Vec<Row> {
    vec![
        row("bad-array-top", unreadable("no_records")),
        row("bad-empty-body", unreadable("not_json")),
        row("bad-empty-records", unreadable("no_records")),
        // The record says it was a removal; the envelope's EventName is not asked.
        row("bad-eventname-lie", [Skip(Ignored::OtherEvent)]),
        row("bad-eventtime-empty", [Dead("unparsable")]),
        row("bad-eventtime-no-zone", [Dead("unparsable")]),
        row("bad-key-decodes-to-invalid-utf8", [Dead("key_undecodable")]),
        // A key is compared, never resolved: this is simply one that no card has.
        row("bad-key-dotdot", put(Source::Minio, "tenants/tn_0001/uploads/../../tn_0002/x.jpg", Absent)),
        // Decoded once.
        elsewhere(
            "bad-key-double-encoded",
            Upload(Source::Minio, "tenants%2Ftn_0001%2Fuploads%2Fx.jpg", Absent, 1234, TAG),
        ),
        row("bad-key-empty", [Dead("key_empty")]),
        // The envelope's Key names another tenant; it is not asked.
        row("bad-key-mismatch-top", put(Source::Minio, ORIGINAL, V1)),
        row("bad-key-nul", [Dead("key_undecodable")]),
        row("bad-key-percent-invalid", [Dead("key_undecodable")]),
        row("bad-missing-useridentity", [Dead("unparsable")]),
        row("bad-mixed-records", [put(Source::Aws, ORIGINAL, V1)[0], Dead("unparsable")]),
        row("bad-no-records", unreadable("no_records")),
        row("bad-not-json", unreadable("not_json")),
        row("bad-null-records", unreadable("no_records")),
        row("bad-responseelements-null", put(Source::Minio, ORIGINAL, Absent)),
        row("bad-size-float", [Dead("unparsable")]),
        row("bad-size-negative", [Skip(Ignored::Empty)]),
        row("bad-size-u64max", [Dead("unparsable")]),
        // The bytes that are not UTF-8 are in the envelope's Key, which is not read.
        row("bad-utf8", put(Source::Minio, "tenants/tn_0001/uploads/bad", Absent)),
    ]
}

fn ceph() -> Vec<Row> {
    vec![
        row("ceph-initiate-multipart", [Skip(Ignored::Empty)]),
        row("ceph-key-raw-plus", put(Source::Ceph, "tenants/tn_0001/uploads/a b+c%2Bd.jpg", Absent)),
        row("ceph-put", put(Source::Ceph, ORIGINAL, Absent)),
        row("ceph-put-size-string", [Dead("unparsable")]),
        elsewhere("ceph16-key-ctrl", Upload(Source::Ceph, "tab\tnl\n.txt", CEPH, 1, TAG)),
        elsewhere("ceph16-key-dotdot", Upload(Source::Ceph, "a/../b", CEPH, 1, TAG)),
        elsewhere("ceph16-key-double-slash", Upload(Source::Ceph, "//dbl", CEPH, 1, TAG)),
        elsewhere("ceph16-key-percent", Upload(Source::Ceph, "per%cent%20x.txt", CEPH, 1, TAG)),
        row(
            "ceph16-multipart-versioned-bucket",
            [Upload(Source::Ceph, ORIGINAL, Absent, 10_485_760, "7181cbc0d3760cb3e220d8321a5ea84c-2")],
        ),
        row(
            "ceph16-post-versioned-bucket",
            [Upload(
                Source::Ceph,
                "tenants/tn_0001/uploads/my pic.png",
                Absent,
                7,
                "fcea920f7412b5da7be0cf42b8c93759",
            )],
        ),
        row(
            "ceph16-put-versioned-bucket",
            [Upload(Source::Ceph, ORIGINAL, Id("NmmxgbfztsSFsnxNvMvPoL-e0S8TCoS"), 7, TAG)],
        ),
        row("ceph16-removed-deletemarker", [Skip(Ignored::OtherEvent)]),
    ]
}

fn minio() -> Vec<Row> {
    vec![
        row(
            "minio-complete-multipart",
            [Upload(Source::Minio, ORIGINAL, V1, 6_291_456, "b54357faf0632cce46e942fa68356b38-2")],
        ),
        row("minio-copy", [Skip(Ignored::OtherEvent)]),
        row("minio-dup-redelivered", put(Source::Minio, ORIGINAL, V1)),
        // 24 bytes of prefix and 500 letters of two bytes each.
        row("minio-key-1024-bytes", put(Source::Minio, key_of_1024_bytes(), V1)),
        row("minio-key-emoji", put(Source::Minio, "tenants/tn_0001/uploads/📷-👩\u{200d}🔬.jpg", V1)),
        row("minio-key-nfc", put(Source::Minio, "tenants/tn_0001/uploads/Z\u{fc}rich-\u{e9}.jpg", V1)),
        row("minio-key-nfd", put(Source::Minio, "tenants/tn_0001/uploads/Zu\u{308}rich-e\u{301}.jpg", V2)),
        row("minio-key-special", put(Source::Minio, "tenants/tn_0001/uploads/a b+c%2Bd&e=<f>'g\".jpg", V1)),
        row(
            "minio-order-1-newer-first",
            [Upload(Source::Minio, ORIGINAL, V2, 2222, "e4d909c290d0fb1ca068ffaddf22cbd0")],
        ),
        row("minio-order-2-older-second", put(Source::Minio, ORIGINAL, V1)),
        row("minio-other-bucket", [Skip(Ignored::OtherBucket)]),
        elsewhere(
            "minio-other-prefix",
            Upload(
                Source::Minio,
                "tmp/tenants/tn_0001/uploads/0192f3c4-7a11-7c3e-9d2f-5b6a7c8d9e01/original",
                V1,
                1234,
                TAG,
            ),
        ),
        row("minio-post-fanout-failed", [Skip(Ignored::Empty)]),
        row("minio-post-policy", put(Source::Minio, ORIGINAL, V1)),
        row("minio-put-legalhold", [Skip(Ignored::OtherEvent)]),
        row("minio-put-size0", [Skip(Ignored::Empty)]),
        row("minio-put-suspended-null", put(Source::Minio, ORIGINAL, Null)),
        row("minio-put-tagging", [Skip(Ignored::OtherEvent)]),
        row("minio-put-tilde-star", put(Source::Minio, "tenants/tn_0001/uploads/a~b*c(d)!.jpg", V1)),
        row("minio-put-unversioned", put(Source::Minio, ORIGINAL, Absent)),
        row("minio-put-versioned", put(Source::Minio, ORIGINAL, V1)),
        row("minio-removed-delete", [Skip(Ignored::OtherEvent)]),
        row("minio-removed-deletemarker", [Skip(Ignored::OtherEvent)]),
        row("minio-removed-noop", [Skip(Ignored::OtherEvent)]),
    ]
}

fn others() -> Vec<Row> {
    vec![
        row("ok-eventtime-no-fraction", put(Source::Minio, ORIGINAL, Absent)),
        row("ok-unknown-fields", put(Source::Minio, ORIGINAL, Absent)),
        row("rustfs-eventtime-nanos", put(Source::Rustfs, ORIGINAL, V1)),
        row("rustfs-key-special", put(Source::Rustfs, "tenants/tn_0001/uploads/a b+c~d*e.jpg", V1)),
        row("rustfs-multipart-empty-key-bug", [Dead("key_empty")]),
        row("rustfs-post-policy", put(Source::Rustfs, ORIGINAL, V1)),
        row("rustfs-put-size0", [Skip(Ignored::Empty)]),
        row("rustfs-put-versioned", put(Source::Rustfs, ORIGINAL, V1)),
    ]
}

fn key_of_1024_bytes() -> &'static str {
    let key = format!("{PREFIX}{}", "é".repeat(500));
    assert_eq!(key.len(), 1024);
    key.leak()
}

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("samples")
}

fn body(file: &str) -> Vec<u8> {
    std::fs::read(directory().join(format!("{file}.json"))).unwrap()
}

/// A message as the table writes it: reasons by their code, so that texts may change.
fn told(message: Message) -> Vec<String> {
    let dead = |reason: DeadReason| {
        assert!(!reason.to_string().is_empty());
        reason.code()
    };
    match message {
        Message::Test => vec!["test".to_owned()],
        Message::Dead(reason) => vec![format!("message dead: {}", dead(reason))],
        Message::Records(verdicts) => verdicts
            .into_iter()
            .map(|verdict| match verdict {
                Verdict::Created(created) => format!("{created:?}"),
                Verdict::Ignored(reason) => format!("ignored: {reason}"),
                Verdict::Dead(reason) => format!("record dead: {}", dead(reason)),
            })
            .collect(),
    }
}

fn written(expected: &[Expected]) -> Vec<String> {
    expected
        .iter()
        .map(|expected| match expected {
            Upload(source, key, version, size_bytes, etag) => {
                let version = match version {
                    Absent => EventVersion::Absent,
                    Null => EventVersion::Null,
                    Id(text) => EventVersion::Id(VersionId::parse(text).unwrap()),
                };
                let created = Created {
                    source: *source,
                    key: (*key).to_owned(),
                    version,
                    size_bytes: *size_bytes,
                    etag: Some(ETag::new(etag)),
                };
                format!("{created:?}")
            }
            Skip(reason) => format!("ignored: {reason}"),
            Dead(code) => format!("record dead: {code}"),
            Test => "test".to_owned(),
            Expected::Refused(code) => format!("message dead: {code}"),
        })
        .collect()
}

#[test]
fn every_sample_comes_to_what_its_row_says() {
    for row in rows() {
        let ours = parse(&body(row.file), &Scope { bucket: BUCKET, prefix: PREFIX });
        assert_eq!(told(ours), written(&row.ours), "{}", row.file);
        let anywhere = parse(&body(row.file), &Scope { bucket: BUCKET, prefix: "" });
        assert_eq!(told(anywhere), written(row.anywhere.as_ref().unwrap_or(&row.ours)), "{}", row.file);
    }
}

#[test]
fn every_sample_has_one_row_and_every_row_a_sample() {
    let mut rowed = BTreeSet::new();
    for row in rows() {
        assert!(rowed.insert(format!("{}.json", row.file)), "{} has two rows", row.file);
    }
    let files: BTreeSet<String> = std::fs::read_dir(directory())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "README.md")
        .collect();
    assert_eq!(files, rowed);
}

#[test]
fn nothing_of_another_bucket_is_ours() {
    for row in rows() {
        let message = parse(&body(row.file), &Scope { bucket: "INTAKE", prefix: "" });
        assert!(!format!("{message:?}").contains("Created("), "{}: {message:?}", row.file);
    }
}
