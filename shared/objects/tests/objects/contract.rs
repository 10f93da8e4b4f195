//! What [`ObjectStore`] promises, on the fake and on the real store: the fake is never laxer (R-B2, R-B8, R-C5, R-E2).

use async_trait::async_trait;
use bytes::Bytes;
use cards::{ETag, VersionId};
use futures::FutureExt;
use objects::fake::Fake;
use objects::{CopyObject, DELETE_BATCH_MAX, Head, ObjectError, ObjectStore, PutObject, S3, Stored};

use crate::world::{World, with_bucket};

const UPLOAD: &str = "incoming/0192f3c4-7a11-7c3e-9d2f-5b6a7c8d9e01";

/// A store, and who uploads to it.
#[async_trait]
trait Bench: Sync {
    fn store(&self) -> &dyn ObjectStore;
    async fn upload(&self, key: &str, bytes: &'static [u8]) -> VersionId;
    /// A delete without a version.
    async fn add_delete_marker(&self, key: &str);
}

#[async_trait]
impl Bench for Fake {
    fn store(&self) -> &dyn ObjectStore {
        self
    }

    async fn upload(&self, key: &str, bytes: &'static [u8]) -> VersionId {
        Fake::upload(self, key, bytes, "text/plain", &[])
    }

    async fn add_delete_marker(&self, key: &str) {
        Fake::add_delete_marker(self, key);
    }
}

#[async_trait]
impl Bench for World {
    fn store(&self) -> &dyn ObjectStore {
        &self.worker
    }

    async fn upload(&self, key: &str, bytes: &'static [u8]) -> VersionId {
        World::upload(self, key, bytes, "text/plain").await
    }

    async fn add_delete_marker(&self, key: &str) {
        self.delete_unversioned(key).await;
    }
}

macro_rules! contract {
    ($($name:ident),+ $(,)?) => {
        mod the_fake {
            $(#[tokio::test]
            async fn $name() {
                super::$name(&super::Fake::new()).await;
            })+
        }

        mod the_real_store {
            use super::*;
            $(#[tokio::test]
            async fn $name() {
                with_bucket(|world| super::$name(world).boxed()).await;
            })+
        }
    };
}

contract!(
    a_head_says_what_a_version_is,
    what_is_not_there_is_missing_and_not_an_error,
    versions_are_of_exactly_this_key_and_oldest_first,
    pages_meet_each_version_once,
    odd_keys_come_through_a_listing,
    a_get_gives_the_version_and_never_more_than_asked,
    a_put_is_found_again_with_its_headers,
    a_copy_replaces_what_the_uploader_said,
    a_copy_of_something_else_is_refused,
    a_delete_takes_exactly_the_named_versions,
    a_large_delete_is_cut_into_batches,
);

async fn put(store: &dyn ObjectStore, key: &str, bytes: &'static [u8]) -> Result<Stored, ObjectError> {
    store
        .put(PutObject {
            key,
            bytes: Bytes::from_static(bytes),
            content_type: "image/webp",
            content_disposition: Some("inline"),
            cache_control: Some("private"),
        })
        .await
}

fn copy<'a>(from: &'a str, from_version: &'a VersionId, if_match: Option<&'a ETag>) -> CopyObject<'a> {
    CopyObject {
        from,
        from_version,
        if_match,
        to: "files/copy",
        content_type: "image/png",
        content_disposition: Some("attachment"),
        cache_control: None,
    }
}

async fn a_head_says_what_a_version_is(bench: &impl Bench) {
    let store = bench.store();
    let first = bench.upload(UPLOAD, b"hello").await;
    let second = bench.upload(UPLOAD, b"hello, world").await;
    let Ok(Head::Found(found)) = store.head(UPLOAD, Some(&first)).await else { panic!() };
    assert_eq!((&found.sighting.version, found.sighting.size_bytes), (&first, 5));
    assert_eq!(found.sighting.content_type.as_deref(), Some("text/plain"));
    assert_eq!(found.sighting.content_disposition, None);
    assert_eq!(found.sighting.content_encoding, None);
    assert!(found.sighting.user_metadata.is_empty());
    assert!(!found.etag.as_str().contains('"'));
    let Ok(Head::Found(latest)) = store.head(UPLOAD, None).await else { panic!() };
    assert_eq!((latest.sighting.version, latest.sighting.size_bytes), (second, 12));
}

async fn what_is_not_there_is_missing_and_not_an_error(bench: &impl Bench) {
    let store = bench.store();
    let version = bench.upload(UPLOAD, b"hello").await;
    let unknown = VersionId::parse("O2kVhrI6Zxs0kKcc3lml1WrBfsqWFrs").unwrap();
    let malformed = VersionId::parse("not%a/version").unwrap();
    assert_eq!(store.head("incoming/other", None).await, Ok(Head::Missing));
    assert_eq!(store.head("incoming/other", Some(&version)).await, Ok(Head::Missing));
    assert_eq!(store.head(UPLOAD, Some(&unknown)).await, Ok(Head::Missing));
    assert_eq!(store.head(UPLOAD, Some(&malformed)).await, Ok(Head::Missing));
    assert!(store.get(UPLOAD, &unknown, 100).await.unwrap_err().is_missing());

    bench.add_delete_marker(UPLOAD).await;
    let marker = store.versions_of(UPLOAD, 20).await.unwrap().pop().unwrap();
    assert!(marker.is_delete_marker && marker.is_latest);
    assert_eq!(store.head(UPLOAD, None).await, Ok(Head::Missing));
    assert_eq!(store.head(UPLOAD, Some(&marker.version)).await, Ok(Head::Missing));
    assert!(store.get(UPLOAD, &marker.version, 100).await.unwrap_err().is_missing());
    assert!(matches!(store.head(UPLOAD, Some(&version)).await, Ok(Head::Found(_))));
    assert_eq!(store.probe().await, Ok(()));
}

async fn versions_are_of_exactly_this_key_and_oldest_first(bench: &impl Bench) {
    let store = bench.store();
    assert_eq!(store.versions_of(UPLOAD, 20).await, Ok(vec![]));
    let first = bench.upload(UPLOAD, b"1").await;
    bench.upload(&format!("{UPLOAD}/x"), b"no").await;
    bench.upload(&format!("{UPLOAD}2"), b"no").await;
    let second = bench.upload(UPLOAD, b"22").await;
    bench.add_delete_marker(UPLOAD).await;
    let third = bench.upload(UPLOAD, b"333").await;

    let listed = store.versions_of(UPLOAD, 20).await.unwrap();
    assert!(listed.iter().all(|version| version.key == UPLOAD));
    assert_eq!(
        listed.iter().map(|version| version.is_delete_marker).collect::<Vec<_>>(),
        [false, false, true, false]
    );
    let versions: Vec<_> = listed.iter().map(|version| version.version.clone()).collect();
    assert_eq!([&versions[0], &versions[1], &versions[3]], [&first, &second, &third]);
    assert_eq!(listed.iter().map(|version| version.size_bytes).collect::<Vec<_>>(), [1, 2, 0, 3]);
    assert_eq!(
        listed.iter().map(|version| version.is_latest).collect::<Vec<_>>(),
        [false, false, false, true]
    );
    assert!(listed.is_sorted_by_key(|version| version.last_modified));
    assert!(listed.iter().all(|version| version.etag.is_none() == version.is_delete_marker));

    let oldest = store.versions_of(UPLOAD, 2).await.unwrap();
    assert_eq!(oldest, listed[..2], "a limit keeps the oldest: they were in time first (R-B2)");
}

async fn pages_meet_each_version_once(bench: &impl Bench) {
    let store = bench.store();
    let mut expected = Vec::new();
    for key in ["files/a", "files/b", "files/c"] {
        for _ in 0..3 {
            expected.push((key.to_owned(), put(store, key, b"x").await.unwrap().version));
        }
    }
    put(store, "derived/a", b"x").await.unwrap();
    bench.add_delete_marker("files/b").await;

    let all = store.list_versions("files/", None, 1000).await.unwrap();
    assert_eq!(all.next, None);
    let listed: Vec<_> = all
        .versions
        .iter()
        .filter(|version| !version.is_delete_marker)
        .map(|version| (version.key.clone(), version.version.clone()))
        .collect();
    assert_eq!(listed, expected, "in key order, oldest first");
    assert_eq!(all.versions.len(), 10);

    for page_size in [1, 2, 4, 9, 10] {
        let (mut met, mut cursor, mut rounds) = (Vec::new(), None, 0);
        loop {
            let page = store.list_versions("files/", cursor.as_ref(), page_size).await.unwrap();
            assert!(page.versions.len() <= page_size);
            met.extend(page.versions.into_iter().map(|version| (version.key, version.version)));
            rounds += 1;
            assert!(rounds <= 20, "pages of {page_size} never end");
            match page.next {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
        let mut all: Vec<_> =
            all.versions.iter().map(|version| (version.key.clone(), version.version.clone())).collect();
        met.sort();
        all.sort();
        assert_eq!(met, all, "pages of {page_size}");
    }
    assert!(store.list_versions("files/", None, 0).await.is_err());
    assert!(store.list_versions("files/", None, 1001).await.is_err());
    assert_eq!(store.list_versions("none/", None, 10).await.unwrap().versions, []);
}

async fn odd_keys_come_through_a_listing(bench: &impl Bench) {
    let store = bench.store();
    let mut keys = [
        "files/sp ace+plus",
        "files/per%20cent",
        "files/ünï/日本",
        "files/a&b=c?d#e",
        "files/<\"'>",
        "files/tab\there",
        "files/~*!()",
    ];
    keys.sort_unstable();
    let mut versions = Vec::new();
    for key in keys {
        versions.push((key.to_owned(), put(store, key, b"x").await.unwrap().version));
    }
    let (mut met, mut cursor) = (Vec::new(), None);
    for _ in 0..=keys.len() {
        let page = store.list_versions("files/", cursor.as_ref(), 1).await.unwrap();
        met.extend(page.versions.into_iter().map(|version| (version.key, version.version)));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(met, versions);
    for (key, version) in &versions {
        assert_eq!(store.versions_of(key, 5).await.unwrap().len(), 1, "{key}");
        assert!(matches!(store.head(key, Some(version)).await, Ok(Head::Found(_))), "{key}");
        store.copy(copy(key, version, None)).await.unwrap();
    }
    assert_eq!(store.delete_versions(&versions).await, Ok(vec![]));
    let left = store.list_versions("files/", None, 100).await.unwrap().versions;
    assert!(left.iter().all(|version| version.key == "files/copy"), "{left:?}");
}

async fn a_get_gives_the_version_and_never_more_than_asked(bench: &impl Bench) {
    let store = bench.store();
    let first = bench.upload(UPLOAD, b"hello").await;
    bench.upload(UPLOAD, b"other").await;
    let body = store.get(UPLOAD, &first, 5).await.unwrap();
    assert_eq!(body.size_bytes(), 5);
    assert_eq!(body.collect_all().await.unwrap(), "hello");
    let error = store.get(UPLOAD, &first, 4).await.unwrap_err();
    assert_eq!(error, ObjectError::TooLarge { key: UPLOAD.to_owned(), bytes_max: 4 });
    let error = store.get("incoming/other", &first, 5).await.unwrap_err();
    assert!(error.is_missing(), "{error}");
}

async fn a_put_is_found_again_with_its_headers(bench: &impl Bench) {
    let store = bench.store();
    let stored = put(store, "derived/a/b/thumb", b"webp").await.unwrap();
    assert_eq!(stored.size_bytes, 4);
    let found = store.head("derived/a/b/thumb", Some(&stored.version)).await.unwrap().found().unwrap();
    assert_eq!(found.etag, stored.etag);
    assert_eq!(found.sighting.content_type.as_deref(), Some("image/webp"));
    assert_eq!(found.sighting.content_disposition.as_deref(), Some("inline"));
    let again = put(store, "derived/a/b/thumb", b"webp").await.unwrap();
    assert_ne!(again.version, stored.version);
    assert!(put(store, "", b"x").await.is_err());
    assert!(put(store, &"k".repeat(1025), b"x").await.is_err());
}

async fn a_copy_replaces_what_the_uploader_said(bench: &impl Bench) {
    let store = bench.store();
    let pinned = bench.upload(UPLOAD, b"hello").await;
    bench.upload(UPLOAD, b"a later, longer one").await;
    let source = store.head(UPLOAD, Some(&pinned)).await.unwrap().found().unwrap();
    let stored = store.copy(copy(UPLOAD, &pinned, Some(&source.etag))).await.unwrap();
    assert_eq!(stored.size_bytes, 5);
    let found = store.head("files/copy", Some(&stored.version)).await.unwrap().found().unwrap();
    assert_eq!(found.etag, stored.etag);
    assert_eq!(found.sighting.content_type.as_deref(), Some("image/png"));
    assert_eq!(found.sighting.content_disposition.as_deref(), Some("attachment"));
    assert!(found.sighting.user_metadata.is_empty());
    let bytes = store.get("files/copy", &stored.version, 5).await.unwrap().collect_all().await.unwrap();
    assert_eq!(bytes, "hello");
}

async fn a_copy_of_something_else_is_refused(bench: &impl Bench) {
    let store = bench.store();
    let pinned = bench.upload(UPLOAD, b"hello").await;
    let other = ETag::new("00000000000000000000000000000000");
    let error = store.copy(copy(UPLOAD, &pinned, Some(&other))).await.unwrap_err();
    assert!(matches!(error, ObjectError::PreconditionFailed { .. }), "{error}");
    let unknown = VersionId::parse("O2kVhrI6Zxs0kKcc3lml1WrBfsqWFrs").unwrap();
    let error = store.copy(copy(UPLOAD, &unknown, None)).await.unwrap_err();
    assert!(error.is_missing(), "{error}");
    let error = store.copy(copy("incoming/other", &pinned, None)).await.unwrap_err();
    assert!(error.is_missing(), "{error}");
    assert_eq!(store.versions_of("files/copy", 5).await, Ok(vec![]), "nothing was made");
}

async fn a_delete_takes_exactly_the_named_versions(bench: &impl Bench) {
    let store = bench.store();
    let first = bench.upload(UPLOAD, b"1").await;
    let second = bench.upload(UPLOAD, b"2").await;
    bench.add_delete_marker(UPLOAD).await;
    let beside = bench.upload(&format!("{UPLOAD}2"), b"no").await;
    let marker = store.versions_of(UPLOAD, 20).await.unwrap().pop().unwrap().version;
    let named = [(UPLOAD.to_owned(), first), (UPLOAD.to_owned(), marker)];
    assert_eq!(store.delete_versions(&named).await, Ok(vec![]));
    let left = store.versions_of(UPLOAD, 20).await.unwrap();
    assert_eq!(left.iter().map(|version| &version.version).collect::<Vec<_>>(), [&second]);
    assert!(left[0].is_latest);
    assert!(matches!(store.head(&format!("{UPLOAD}2"), Some(&beside)).await, Ok(Head::Found(_))));
    assert_eq!(store.delete_versions(&named).await, Ok(vec![]), "what is gone stays gone");
    assert_eq!(store.versions_of(UPLOAD, 20).await.unwrap().len(), 1, "and leaves no marker");
    assert_eq!(store.delete_versions(&[]).await, Ok(vec![]));
}

async fn a_large_delete_is_cut_into_batches(bench: &impl Bench) {
    let store = bench.store();
    let stored = put(store, "files/last", b"x").await.unwrap();
    // All but the last are gone already: S3 removes what isn't there without a word.
    let mut versions: Vec<_> =
        (0..DELETE_BATCH_MAX).map(|n| (format!("files/gone-{n}"), stored.version.clone())).collect();
    versions.push(("files/last".to_owned(), stored.version));
    assert_eq!(store.delete_versions(&versions).await, Ok(vec![]));
    assert_eq!(store.list_versions("", None, 10).await.unwrap().versions, [], "no markers are left either");
}

#[test]
fn a_store_of_either_kind_is_an_object_store() {
    fn check<T: ObjectStore + Clone>() {}
    check::<Fake>();
    check::<S3>();
}
