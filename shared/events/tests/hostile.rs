//! Bodies nobody sends, and envelopes in combinations the samples don't have (R-B1).

#![expect(clippy::unwrap_used, reason = "helpers of tests may unwrap as tests do")]

use events::bucket::{
    BODY_BYTES_MAX, DeadReason, Ignored, KEY_BYTES_MAX, Message, Scope, Source, Verdict, parse,
};
use proptest::prelude::*;
use serde_json::{Value, json};

const SCOPE: Scope<'static> = Scope { bucket: "intake", prefix: "incoming/" };

fn record(source: &str, key: &str) -> Value {
    json!({
        "eventSource": source,
        "eventName": "ObjectCreated:Put",
        "eventTime": "2026-11-30T10:00:00Z",
        "userIdentity": {},
        "requestParameters": {},
        "s3": {
            "bucket": { "name": "intake" },
            "object": { "key": key, "size": 7, "eTag": "\"abc-2\"", "versionId": "v1" },
        },
    })
}

fn event_bridge() -> Value {
    json!({
        "detail-type": "Object Created",
        "source": "aws.s3",
        "detail": {
            "bucket": { "name": "intake" },
            "object": { "key": "incoming/a", "size": 7, "etag": "abc", "version-id": "v1" },
            "reason": "PutObject",
        },
    })
}

fn judged(body: &Value) -> Message {
    parse(body.to_string().as_bytes(), &SCOPE)
}

/// The verdict on the one record of a body.
fn verdict(body: &Value) -> Verdict {
    match judged(body) {
        Message::Records(mut verdicts) if verdicts.len() == 1 => verdicts.remove(0),
        other @ (Message::Records(_) | Message::Test | Message::Dead(_)) => panic!("{other:?}"),
    }
}

/// [`record`] with one field set, judged.
fn altered(pointer: &str, value: Value) -> Verdict {
    let mut record = record("minio:s3", "incoming%2Fa");
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    record.pointer_mut(parent).unwrap()[field] = value;
    verdict(&json!({ "Records": [record] }))
}

fn code(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Created(_) => "created",
        Verdict::Ignored(reason) => reason.as_str(),
        Verdict::Dead(reason) => reason.code(),
    }
}

#[test]
fn the_order_of_judgement_is_the_contracts() {
    // Each row is wrong in what it names and in everything judged later.
    let mut record = record("nobody:s3", "%ZZ");
    record["eventName"] = json!("ObjectRemoved:Delete");
    record["s3"]["bucket"]["name"] = json!("other");
    record["s3"]["object"]["size"] = json!(0);
    record["s3"]["object"]["versionId"] = json!("v 1");
    record["eventTime"] = json!("");
    let mut check = |pointer: &str, mended: Value, expected: &str| {
        assert_eq!(code(&verdict(&json!({ "Records": [record] }))), expected);
        *record.pointer_mut(pointer).unwrap() = mended;
    };
    check("/eventTime", json!("2026-11-30T10:00:00Z"), "unparsable");
    check("/eventName", json!("ObjectCreated:Put"), "other_event");
    check("/eventSource", json!("minio:s3"), "unknown_source");
    check("/s3/bucket/name", json!("intake"), "other_bucket");
    check("/s3/object/key", json!("elsewhere%2Fa"), "key_undecodable");
    check("/s3/object/key", json!("incoming%2Fa"), "other_prefix");
    check("/s3/object/size", json!(1), "empty");
    check("/s3/object/versionId", json!("v1"), "unparsable");
    assert_eq!(code(&verdict(&json!({ "Records": [record] }))), "created");
}

#[test]
fn a_field_that_is_missing_or_null_is_judged_where_it_is_looked_at() {
    for (pointer, expected) in [
        ("/eventName", "other_event"),
        ("/eventSource", "unknown_source"),
        ("/s3/bucket/name", "other_bucket"),
        ("/s3/object/key", "key_empty"),
        ("/s3/object/size", "empty"),
        ("/s3/object/versionId", "created"),
        ("/s3/object/eTag", "created"),
        ("/eventTime", "unparsable"),
        ("/s3/object", "unparsable"),
        ("/s3", "unparsable"),
    ] {
        assert_eq!(code(&altered(pointer, Value::Null)), expected, "{pointer}");
    }
}

#[test]
fn a_record_of_another_shape_is_unparsable_alone() {
    let good = record("aws:s3", "incoming/a");
    // The good one's values without their names, in the order serde's derive would take them.
    let fields = ["eventVersion", "eventSource", "awsRegion", "eventTime", "eventName"];
    let more = ["userIdentity", "requestParameters", "responseElements", "s3"];
    let positional: Vec<_> = fields.iter().chain(&more).map(|field| good[*field].clone()).collect();
    for bad in [json!(positional), json!(null), json!(1), json!("x"), json!([]), json!({}), json!([good])] {
        let Message::Records(verdicts) = judged(&json!({ "Records": [good, bad, good] })) else {
            panic!("{bad}")
        };
        let codes: Vec<_> = verdicts.iter().map(code).collect();
        assert_eq!(codes, ["created", "unparsable", "created"], "{bad}");
    }
}

#[test]
fn an_etag_loses_its_quotes_and_an_empty_one_is_none() {
    let Verdict::Created(created) = altered("/s3/object/eTag", json!("\"abc-2\"")) else { panic!() };
    assert_eq!(created.etag.unwrap().as_str(), "abc-2");
    let Verdict::Created(created) = altered("/s3/object/eTag", json!("")) else { panic!() };
    assert_eq!(created.etag, None);
}

#[test]
fn a_key_is_decoded_by_its_source() {
    for (source, key) in [
        ("minio:s3", "incoming/a b+c"),
        ("rustfs:s3", "incoming/a b+c"),
        ("aws:s3", "incoming/a b+c"),
        ("ceph:s3", "incoming/a+b%2Bc"),
    ] {
        let Verdict::Created(created) = verdict(&json!({ "Records": [record(source, "incoming/a+b%2Bc")] }))
        else {
            panic!("{source}")
        };
        assert_eq!(created.key, key);
        assert_eq!(format!("{}:s3", created.source), source);
    }
    let other = verdict(&json!({ "Records": [record("MinIO:s3", "incoming/a")] }));
    assert_eq!(other, Verdict::Dead(DeadReason::UnknownSource("MinIO:s3".to_owned())));
}

#[test]
fn a_prefix_is_compared_with_the_decoded_key_byte_by_byte() {
    for (key, expected) in [
        ("incoming/", "created"),
        ("incoming", "other_prefix"),
        ("Incoming%2Fa", "other_prefix"),
        ("in*", "other_prefix"),
    ] {
        assert_eq!(code(&altered("/s3/object/key", json!(key))), expected, "{key}");
    }
}

#[test]
fn an_event_bridge_event_is_judged_like_a_record() {
    let Verdict::Created(created) = verdict(&event_bridge()) else { panic!() };
    assert_eq!(created.source, Source::EventBridge);
    for (pointer, value, expected) in [
        ("/detail/reason", json!("POST Object"), "created"),
        ("/detail/reason", json!("CompleteMultipartUpload"), "created"),
        ("/detail/reason", json!("CopyObject"), "other_event"),
        ("/detail/reason", Value::Null, "other_event"),
        ("/detail-type", json!("Object Deleted"), "other_event"),
        ("/source", json!("custom.s3"), "unknown_source"),
        ("/detail/bucket/name", json!("other"), "other_bucket"),
        ("/detail/object/key", json!(""), "key_empty"),
        ("/detail/object/key", json!("incoming%2Fa"), "other_prefix"),
        ("/detail/object/size", json!(0), "empty"),
        ("/detail/object/size", json!("7"), "unparsable"),
        ("/detail/object", Value::Null, "unparsable"),
        ("/detail", json!({}), "unparsable"),
    ] {
        let mut event = event_bridge();
        *event.pointer_mut(pointer).unwrap() = value;
        assert_eq!(code(&verdict(&event)), expected, "{pointer}");
    }
}

#[test]
fn sns_carries_any_body_but_not_another_sns() {
    let sns = |inner: &str| json!({ "Type": "Notification", "Message": inner });
    let test_event = json!({ "Event": "s3:TestEvent" });
    assert_eq!(judged(&sns(&test_event.to_string())), Message::Test);
    assert_eq!(code(&verdict(&sns(&event_bridge().to_string()))), "created");
    assert_eq!(judged(&sns("Records=1")), Message::Dead(DeadReason::NotJson));
    let twice = sns(&sns(&test_event.to_string()).to_string());
    assert_eq!(judged(&twice), Message::Dead(DeadReason::NoRecords));
    let subscription = json!({ "Type": "SubscriptionConfirmation", "Message": test_event.to_string() });
    assert_eq!(judged(&subscription), Message::Dead(DeadReason::NoRecords));
}

#[test]
fn a_body_without_records_is_dead_whatever_else_it_holds() {
    for body in [
        json!({}),
        json!("Records"),
        json!(null),
        json!([{ "Records": [record("minio:s3", "incoming/a")] }]),
        json!({ "Records": {} }),
        json!({ "Records": "[]" }),
        json!({ "Event": "s3:OtherEvent" }),
        json!({ "Type": "Notification", "Message": { "Records": [] } }),
        json!({ "records": [record("minio:s3", "incoming/a")] }),
    ] {
        assert_eq!(judged(&body), Message::Dead(DeadReason::NoRecords), "{body}");
    }
}

#[test]
fn two_lists_of_records_are_unparsable() {
    let Message::Dead(reason) = parse(br#"{"Records":[{}],"Records":[]}"#, &SCOPE) else { panic!() };
    assert_eq!(reason.code(), "unparsable");
}

#[test]
fn what_is_not_json_is_said_to_be_so() {
    let in_a_record = [br#"{"Records":[{"a":""#.as_slice(), b"\xff", br#""}]}"#].concat();
    let bodies: [&[u8]; 6] =
        [b"{", br#"{"Records":[{}]"#, br#"{"Records":[{}]} x"#, b"\xef\xbb\xbf{}", b"\0", &in_a_record];
    for body in bodies {
        assert_eq!(parse(body, &SCOPE), Message::Dead(DeadReason::NotJson), "{body:?}");
    }
}

#[test]
fn a_body_has_at_most_a_mebibyte() {
    let mut body = json!({ "Records": [record("minio:s3", "incoming/a")] }).to_string().into_bytes();
    body.resize(BODY_BYTES_MAX, b' ');
    assert!(matches!(parse(&body, &SCOPE), Message::Records(_)));
    body.push(b' ');
    assert_eq!(parse(&body, &SCOPE), Message::Dead(DeadReason::TooLarge));
}

#[test]
fn deep_nesting_is_harmless() {
    let depth = BODY_BYTES_MAX / 4;
    let nest = |inner: &str| [&"[".repeat(depth), inner, &"]".repeat(depth)].concat();
    assert_eq!(parse(nest("").as_bytes(), &SCOPE), Message::Dead(DeadReason::NoRecords));
    let unread = format!(r#"{{"x":{},"Records":[{}]}}"#, nest(""), record("minio:s3", "incoming/a"));
    assert!(matches!(parse(unread.as_bytes(), &SCOPE), Message::Records(_)));
    let message = parse(format!(r#"{{"Records":{}}}"#, nest("")).as_bytes(), &SCOPE);
    assert!(matches!(&message, Message::Records(verdicts) if code(&verdicts[0]) == "unparsable"));
}

#[test]
fn many_records_are_each_judged() {
    let body = format!(r#"{{"Records":[{}]}}"#, vec!["0"; 100_000].join(","));
    let Message::Records(verdicts) = parse(body.as_bytes(), &SCOPE) else { panic!() };
    assert_eq!(verdicts.len(), 100_000);
}

#[test]
fn every_reason_has_its_own_name_in_metrics() {
    let mut names: Vec<_> = Ignored::ALL.into_iter().map(Ignored::as_str).collect();
    names.extend(
        [
            DeadReason::TooLarge,
            DeadReason::NotJson,
            DeadReason::NoRecords,
            DeadReason::Unparsable(String::new()),
            DeadReason::UnknownSource(String::new()),
            DeadReason::KeyEmpty,
            DeadReason::KeyUndecodable,
            DeadReason::KeyTooLong,
        ]
        .iter()
        .map(DeadReason::code),
    );
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

/// The promises of [`events::bucket::Created`], on whatever came out.
fn holds_its_promises(message: &Message, scope: &Scope<'_>) {
    let Message::Records(verdicts) = message else { return };
    assert!(!verdicts.is_empty());
    for verdict in verdicts {
        if let Verdict::Created(created) = verdict {
            assert!((1..=KEY_BYTES_MAX).contains(&created.key.len()));
            assert!(created.key.starts_with(scope.prefix) && !created.key.contains('\0'));
            assert!(created.size_bytes > 0);
        }
    }
}

fn samples() -> Vec<Vec<u8>> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/samples");
    let mut paths: Vec<_> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    paths.into_iter().map(|path| std::fs::read(path).unwrap()).filter(|body| !body.is_empty()).collect()
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_judged(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        holds_its_promises(&parse(&body, &SCOPE), &SCOPE);
    }

    #[test]
    fn any_key_comes_back_as_it_was(
        name in proptest::collection::vec(any::<char>(), 0..200).prop_map(|chars| chars.into_iter().collect::<String>())
    ) {
        let key = format!("incoming/{name}");
        let encoded: String = url::form_urlencoded::byte_serialize(key.as_bytes()).collect();
        for (source, wire) in [("minio:s3", &encoded), ("ceph:s3", &key)] {
            match verdict(&json!({ "Records": [record(source, wire)] })) {
                Verdict::Created(created) => prop_assert_eq!(&created.key, &key),
                Verdict::Dead(DeadReason::KeyUndecodable) => prop_assert!(key.contains('\0')),
                other @ (Verdict::Dead(_) | Verdict::Ignored(_)) => prop_assert!(false, "{:?}", other),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn a_mutated_sample_is_judged(
        body in proptest::sample::select(samples()),
        edits in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>(), 0..4_u8), 1..6),
    ) {
        let mut body = body;
        for (index, byte, edit) in edits {
            let at = index.index(body.len());
            match edit {
                0 => body[at] = byte,
                1 => body.insert(at, byte),
                2 if body.len() > 1 => drop(body.remove(at)),
                _ => body[at] = b"{}[]\",:0-n\\%+"[usize::from(byte) % 13],
            }
        }
        let scope = Scope { bucket: "intake", prefix: "" };
        holds_its_promises(&parse(&body, &scope), &scope);
    }
}
