//! A walk meets each version under our prefixes once, whole keys at a time, wherever it is taken up again (R-H2).

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use objects::fake::{Fake, Fault};
use objects::{Chunk, ErrorKind, ObjectStore, Operation, PutObject, S3, Walk};

use crate::world::with_bucket;

async fn put(store: &dyn ObjectStore, key: &str) {
    let request = PutObject {
        key,
        bytes: Bytes::from_static(b"x"),
        content_type: "text/plain",
        content_disposition: None,
        cache_control: None,
    };
    store.put(request).await.unwrap();
}

async fn all(store: &Arc<dyn ObjectStore>, after: Option<String>) -> Vec<Chunk> {
    let mut walk = Walk::new(store.clone(), after);
    let mut chunks = Vec::new();
    while let Some(chunk) = walk.next().await.unwrap() {
        chunks.push(chunk);
    }
    chunks
}

fn names(chunks: &[Chunk]) -> Vec<(String, String)> {
    let versions = chunks.iter().flat_map(|chunk| &chunk.versions);
    versions.map(|listed| (listed.key.clone(), listed.version.to_string())).collect()
}

/// The chunks' ranges meet without a gap, hold their versions, and each is a place to go on from.
async fn check(store: &Arc<dyn ObjectStore>, expected: usize) -> Vec<Chunk> {
    let chunks = all(store, None).await;
    let seen = names(&chunks);
    assert_eq!(seen.len(), expected);
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), expected, "each once");
    assert!(seen.is_sorted_by_key(|(key, _)| key));
    let ends: Vec<_> =
        chunks.iter().filter(|chunk| chunk.through.is_none()).map(|chunk| chunk.prefix).collect();
    assert_eq!(ends, ["derived/", "files/", "incoming/"]);
    for (at, chunk) in chunks.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| chunks[at].through.clone());
        assert_eq!(chunk.after, before);
        for listed in &chunk.versions {
            assert!(listed.key.starts_with(chunk.prefix));
            assert!(chunk.after.as_ref().is_none_or(|after| *after < listed.key));
            assert!(chunk.through.as_ref().is_none_or(|through| listed.key <= *through));
        }
        let rest = all(store, Some(chunk.resume_after())).await;
        assert_eq!(names(&rest), names(&chunks[at + 1..]), "taken up after {:?}", chunk.resume_after());
    }
    chunks
}

/// One key whose versions lie on both sides of a page's end, others beside it, and keys that are not ours.
async fn a_bucket_of_pages(store: Arc<dyn ObjectStore>) {
    let mut keys =
        vec!["derived0/no".to_owned(), "file/no".to_owned(), "incoming".to_owned(), "z".to_owned()];
    keys.extend((0..990).map(|number| format!("incoming/a{number:04}")));
    keys.extend(["files/ y+%2F ключ".to_owned(), "files/".to_owned(), "incoming/c".to_owned()]);
    let puts = futures::stream::iter(&keys).for_each_concurrent(32, |key| put(&*store, key));
    puts.await;
    // One after the other: which of two versions of one moment is the older is the store's to say, and it may change its mind.
    for _ in 0..30 {
        put(&*store, "incoming/b").await;
    }
    let chunks = check(&store, 1023).await;
    let cut: Vec<_> = chunks
        .iter()
        .filter(|chunk| chunk.versions.iter().any(|listed| listed.key == "incoming/b"))
        .collect();
    let [cut] = cut[..] else { panic!("in one piece") };
    let of_the_key: Vec<_> =
        cut.versions.iter().filter(|listed| listed.key == "incoming/b").cloned().collect();
    assert_eq!(of_the_key, store.versions_of("incoming/b", 100).await.unwrap());
}

#[tokio::test]
async fn the_fake_is_walked_whole_keys_at_a_time() {
    a_bucket_of_pages(Arc::new(Fake::new())).await;
}

#[tokio::test]
async fn the_real_store_is_walked_whole_keys_at_a_time() {
    // A worker may not put what is not ours: the bucket's owner may.
    with_bucket(|world| a_bucket_of_pages(Arc::new(S3::new(&world.settings("ADMIN")))).boxed()).await;
}

#[tokio::test]
async fn an_empty_bucket_has_three_empty_ends() {
    let store: Arc<dyn ObjectStore> = Arc::new(Fake::new());
    assert_eq!(check(&store, 0).await.len(), 3);
}

#[tokio::test]
async fn a_failed_page_is_asked_for_again() {
    let fake = Fake::new();
    let store: Arc<dyn ObjectStore> = Arc::new(fake.clone());
    for number in 0..1500 {
        fake.upload(&format!("incoming/{number:04}"), "x", "text/plain", &[]);
    }
    let mut walk = Walk::new(store, None);
    let mut seen = Vec::new();
    // One page each for the two empty prefixes, two for the third.
    for _ in 0..4 {
        fake.fail(Operation::ListVersions, Fault::Unavailable);
        assert_eq!(walk.next().await.unwrap_err().kind(), ErrorKind::Suspect);
        seen.extend(names(&[walk.next().await.unwrap().unwrap()]));
    }
    assert_eq!(walk.next().await, Ok(None));
    assert_eq!(seen.len(), 1500);
}

#[tokio::test]
async fn a_key_without_end_is_handed_out_in_parts_that_cover_nothing_until_the_last() {
    let fake = Fake::new();
    let store: Arc<dyn ObjectStore> = Arc::new(fake.clone());
    fake.upload("incoming/a", "x", "text/plain", &[]);
    for _ in 0..6500 {
        fake.upload("incoming/b", "x", "text/plain", &[]);
    }
    fake.upload("incoming/c", "x", "text/plain", &[]);
    let chunks = all(&store, None).await;
    assert_eq!(names(&chunks).iter().collect::<BTreeSet<_>>().len(), 6502);
    let largest = chunks.iter().map(|chunk| chunk.versions.len()).max().unwrap();
    assert!(largest <= 6000, "{largest}");
    let parts: Vec<_> =
        chunks[2..].iter().map(|chunk| (chunk.after.as_deref(), chunk.through.as_deref())).collect();
    let a = Some("incoming/a");
    assert_eq!(parts, [(None, a), (a, a), (a, None)]);
    // Who goes on after a part is shown the key again from its beginning.
    assert_eq!(
        all(&store, Some(chunks[3].resume_after())).await.iter().map(|c| c.versions.len()).sum::<usize>(),
        6501
    );
}
