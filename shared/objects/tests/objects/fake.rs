//! The fake's faults: each leaves the effect it says, once or as often as asked (STYLE 22).

use bytes::Bytes;
use cards::VersionId;
use objects::fake::{Fake, Fault, Upload};
use objects::{CopyObject, ErrorKind, Head, ObjectError, ObjectStore, Operation, PutObject, Stored};

const KEY: &str = "incoming/a";

fn copy(version: &VersionId) -> CopyObject<'_> {
    CopyObject {
        from: KEY,
        from_version: version,
        if_match: None,
        to: "files/a",
        content_type: "text/plain",
        content_disposition: None,
        cache_control: None,
    }
}

async fn put(fake: &Fake, key: &str) -> Result<Stored, ObjectError> {
    let bytes = Bytes::from_static(b"x");
    fake.put(PutObject {
        key,
        bytes,
        content_type: "image/webp",
        content_disposition: None,
        cache_control: None,
    })
    .await
}

#[tokio::test]
async fn a_fault_comes_as_often_as_asked_and_only_to_its_operation() {
    let fake = Fake::new();
    let version = fake.upload(KEY, "hello", "text/plain", &[]);
    fake.fail_times(Operation::Copy, Fault::Refuse, 2);
    assert!(matches!(fake.head(KEY, Some(&version)).await, Ok(Head::Found(_))));
    for _ in 0..2 {
        let error = fake.copy(copy(&version)).await.unwrap_err();
        assert!(matches!(error, ObjectError::Denied { .. }), "{error}");
        assert_eq!(error.kind(), ErrorKind::Suspect);
    }
    fake.copy(copy(&version)).await.unwrap();
    let copies = fake.calls().iter().filter(|call| call.operation == Operation::Copy).count();
    assert_eq!(copies, 3, "faulty calls are written down too");
}

#[tokio::test]
async fn an_unavailable_store_changes_nothing_and_a_lost_answer_changes_all() {
    let fake = Fake::new();
    fake.fail(Operation::Put, Fault::Unavailable);
    put(&fake, "files/a").await.unwrap_err();
    assert!(fake.all_keys().is_empty());
    fake.fail(Operation::Put, Fault::AfterEffect);
    let error = put(&fake, "files/a").await.unwrap_err();
    assert!(matches!(error, ObjectError::Unavailable { .. }), "{error}");
    assert_eq!(fake.all_keys(), ["files/a"]);

    let version = fake.versions("files/a").remove(0);
    fake.fail(Operation::DeleteVersions, Fault::AfterEffect);
    fake.delete_versions(&[("files/a".to_owned(), version)]).await.unwrap_err();
    assert!(fake.all_keys().is_empty());
}

#[tokio::test]
async fn a_missing_version_id_is_an_outage_and_an_object_that_is_missing_stays_missing() {
    let fake = Fake::new();
    fake.fail(Operation::Head, Fault::MissingVersionId);
    assert_eq!(fake.head(KEY, None).await, Ok(Head::Missing));
    let version = fake.upload(KEY, "hello", "text/plain", &[]);
    fake.fail(Operation::Head, Fault::MissingVersionId);
    let error = fake.head(KEY, Some(&version)).await.unwrap_err();
    assert!(error.is_versioning_required(), "{error}");
    assert_eq!(error.kind(), ErrorKind::Outage);
    fake.fail(Operation::Copy, Fault::MissingVersionId);
    assert!(fake.copy(copy(&version)).await.unwrap_err().is_versioning_required());
}

#[tokio::test]
async fn a_suspended_bucket_has_no_versions_to_name() {
    let fake = Fake::new();
    fake.suspend_versioning();
    fake.upload_unversioned(Upload { key: KEY.to_owned(), ..Upload::default() });
    assert!(fake.head(KEY, None).await.unwrap_err().is_versioning_required());
    assert!(fake.versions_of(KEY, 20).await.unwrap_err().is_versioning_required());
    assert!(fake.list_versions("", None, 10).await.unwrap_err().is_versioning_required());
    assert!(put(&fake, "files/a").await.unwrap_err().is_versioning_required());
    assert!(fake.probe().await.unwrap_err().is_versioning_required());
}

#[tokio::test(start_paused = true)]
async fn a_hanging_call_ends_when_the_real_client_gives_up() {
    let fake = Fake::new();
    fake.fail(Operation::Probe, Fault::Hang);
    let begun = tokio::time::Instant::now();
    fake.probe().await.unwrap_err();
    assert_eq!(begun.elapsed(), objects::s3::OPERATION_TIMEOUT);
}

#[tokio::test]
async fn a_batch_delete_can_fail_in_part() {
    let fake = Fake::new();
    let versions: Vec<_> =
        ["a", "b", "c"].map(|key| (key.to_owned(), fake.upload(key, "x", "text/plain", &[]))).into();
    fake.fail(Operation::DeleteVersions, Fault::Partly);
    let failures = fake.delete_versions(&versions).await.unwrap();
    assert_eq!(failures.iter().map(|failure| failure.key.as_str()).collect::<Vec<_>>(), ["a", "c"]);
    assert_eq!(fake.all_keys(), ["a", "c"]);
}

#[tokio::test]
async fn a_body_can_break_off() {
    let fake = Fake::new();
    let version = fake.upload(KEY, vec![7; 200_000], "text/plain", &[]);
    fake.fail(Operation::Get, Fault::Partly);
    let mut body = fake.get(KEY, &version, 1_000_000).await.unwrap();
    let mut seen_bytes = 0;
    let error = loop {
        match body.next_chunk().await.unwrap() {
            Ok(chunk) => seen_bytes += chunk.len(),
            Err(error) => break error,
        }
    };
    assert_eq!((seen_bytes, error.kind()), (100_000, ErrorKind::Suspect));
    assert!(body.next_chunk().await.is_none());
}

#[tokio::test]
async fn a_store_that_is_off_fails_its_probe_too_until_it_heals() {
    let fake = Fake::new();
    fake.switch_off();
    assert!(fake.probe().await.is_err());
    assert!(fake.head(KEY, None).await.is_err());
    fake.heal();
    assert_eq!(fake.probe().await, Ok(()));
}

#[tokio::test]
async fn last_modified_is_what_the_test_says() {
    let fake = Fake::new();
    let time = "2026-11-30T22:05:00Z".parse().unwrap();
    fake.set_now(time);
    let version = fake.upload(KEY, "x", "text/plain", &[("traceparent", "t")]);
    let found = fake.head(KEY, Some(&version)).await.unwrap().found().unwrap();
    assert_eq!(found.sighting.last_modified, time);
    assert_eq!(found.sighting.user_metadata["traceparent"], "t");
}
