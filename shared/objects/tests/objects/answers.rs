//! What each answer of a store means, also the ones the store at hand never gives (R-B8, R-C7, R-E2): a server that
//! says the same to everybody.

use cards::{ETag, VersionId};
use objects::{
    CopyObject, Credentials, ErrorKind, Head, ObjectError, ObjectStore, S3, S3Settings, StoreKind,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const STAMPS: &str = "Last-Modified: Mon, 30 Nov 2026 22:05:00 GMT\r\nETag: \"e\"\r\n";

/// A store that gives this answer to every request.
async fn answering(head: &str, body: &str) -> S3 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer =
        format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            // Requests here are small: they arrive in one piece, and what is left unread is nobody's loss.
            let mut request = [0; 16 * 1024];
            let _ = connection.read(&mut request).await;
            let _ = connection.write_all(answer.as_bytes()).await;
            let _ = connection.shutdown().await;
        }
    });
    S3::new(&S3Settings {
        endpoint: format!("http://127.0.0.1:{port}").parse().unwrap(),
        region: "default".to_owned(),
        bucket: "arkiv".to_owned(),
        credentials: Credentials::new("a", "hunter2"),
        kind: StoreKind::Rustfs,
    })
}

fn version() -> VersionId {
    VersionId::parse("v1").unwrap()
}

#[tokio::test]
async fn a_head_that_finds_nothing_is_missing() {
    for status in ["404 Not Found", "405 Method Not Allowed", "400 Bad Request"] {
        let store = answering(status, "").await;
        assert_eq!(store.head("incoming/a", Some(&version())).await, Ok(Head::Missing), "{status}");
    }
    let error = answering("400 Bad Request", "").await.head("incoming/a", None).await.unwrap_err();
    assert!(matches!(error, ObjectError::Invalid { .. }), "no version was named: {error}");
}

#[tokio::test]
async fn a_refusal_or_an_outage_is_never_missing() {
    for status in ["403 Forbidden", "401 Unauthorized", "500 Internal Server Error", "503 Slow Down"] {
        let store = answering(status, "").await;
        let error = store.head("incoming/a", Some(&version())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Suspect, "{status}: {error}");
        assert_eq!(store.probe().await.unwrap_err().kind(), ErrorKind::Suspect, "{status}");
        assert!(!error.to_string().contains("hunter2"));
    }
    let error = answering("404 Not Found", "").await.probe().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Suspect, "a bucket that is gone: {error}");
}

#[tokio::test]
async fn an_object_without_version_id_needs_versioning() {
    for line in ["", "x-amz-version-id: null\r\n", "x-amz-version-id: \r\n"] {
        let store = answering(&format!("200 OK\r\n{STAMPS}{line}X-End: 1"), "").await;
        let error = store.head("incoming/a", None).await.unwrap_err();
        assert!(error.is_versioning_required(), "{line:?}: {error}");
    }
}

#[tokio::test]
async fn an_answer_about_another_version_is_not_taken() {
    let store = answering(&format!("200 OK\r\n{STAMPS}x-amz-version-id: v2"), "").await;
    assert!(store.head("incoming/a", Some(&version())).await.is_err());
    assert!(matches!(store.head("incoming/a", None).await, Ok(Head::Found(_))));
}

#[tokio::test]
async fn the_stores_checksum_is_read_and_one_of_parts_is_not() {
    let digest = "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=";
    for (value, expected) in [(digest.to_owned(), true), (format!("{digest}-2"), false)] {
        let head = format!("200 OK\r\n{STAMPS}x-amz-version-id: v1\r\nx-amz-checksum-sha256: {value}");
        let found = answering(&head, "").await.head("incoming/a", None).await.unwrap().found().unwrap();
        assert_eq!(found.sighting.sha256.is_some(), expected, "{value}");
    }
}

#[tokio::test]
async fn a_listing_with_a_null_version_needs_versioning() {
    let entry = |version: &str| {
        format!(
            "<ListVersionsResult><IsTruncated>false</IsTruncated><Version><Key>incoming/a</Key>\
             <VersionId>{version}</VersionId><IsLatest>true</IsLatest><Size>1</Size><ETag>&quot;e&quot;</ETag>\
             <LastModified>2026-11-30T22:05:00.000Z</LastModified></Version></ListVersionsResult>"
        )
    };
    let listed = answering("200 OK", &entry("v1")).await.versions_of("incoming/a", 5).await.unwrap();
    assert_eq!(listed[0].etag, Some(ETag::new("e")));
    let error = answering("200 OK", &entry("null")).await.versions_of("incoming/a", 5).await.unwrap_err();
    assert!(error.is_versioning_required(), "{error}");
}

#[tokio::test]
async fn the_errors_of_a_successful_batch_delete_are_read() {
    let body = "<DeleteResult>\
        <Error><Key>files/a</Key><VersionId>v1</VersionId><Code>AccessDenied</Code><Message>no</Message></Error>\
        <Error><Key>files/b</Key><VersionId>v2</VersionId><Code>NoSuchVersion</Code><Message>gone</Message></Error>\
        </DeleteResult>";
    let store = answering("200 OK", body).await;
    let failures = store.delete_versions(&[("files/a".to_owned(), version())]).await.unwrap();
    assert_eq!(failures.len(), 1, "what is gone was removed: {failures:?}");
    assert_eq!((failures[0].key.as_str(), failures[0].code.as_str()), ("files/a", "AccessDenied"));
    assert_eq!(failures[0].version, Some(version()));
}

#[tokio::test]
async fn a_copy_that_answers_200_and_an_error_failed() {
    let body = "<Error><Code>InternalError</Code><Message>try again</Message></Error>";
    let store = answering("200 OK", body).await;
    let copy = CopyObject {
        from: "incoming/a",
        from_version: &version(),
        if_match: None,
        to: "files/a",
        content_type: "text/plain",
        content_disposition: None,
        cache_control: None,
    };
    let error = store.copy(copy).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Suspect, "{error}");
}
