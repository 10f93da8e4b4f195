//! Each identity may do what it is for, and nothing else (R-A2, DESIGN "Identities").

use bytes::Bytes;
use futures::FutureExt;
use objects::admin::PutProbe;
use objects::link::{LINK_LIFE, LinkRequest, LinkSigner, attachment};
use objects::ticket::TicketSigner;
use objects::{CopyObject, Head, ObjectError, ObjectStore, PutObject, S3, Stored};

use crate::world::{World, now, request, with_bucket};

const KEY: &str = "incoming/0192f3c4-7a11-7c3e-9d2f-5b6a7c8d9e01";
const FILE: &str = "files/0192f3c4-7a11-7c3e-9d2f-5b6a7c8d9e01/token";

#[expect(clippy::needless_pass_by_value, reason = "the outcome of a call, looked at once")]
fn is_denied<T>(outcome: Result<T, ObjectError>) -> bool {
    matches!(outcome, Err(ObjectError::Denied { .. }))
}

async fn put(store: &S3, key: &str, bytes: &'static [u8]) -> Result<Stored, ObjectError> {
    let bytes = Bytes::from_static(bytes);
    store
        .put(PutObject {
            key,
            bytes,
            content_type: "text/plain",
            content_disposition: None,
            cache_control: None,
        })
        .await
}

/// What a presigned request of this identity is answered.
async fn presigned(world: &World, identity: &str, key: &str, version: &cards::VersionId) -> u16 {
    let link = LinkSigner::new(world.signer(identity))
        .link(&LinkRequest {
            key,
            version,
            issued_at: now(),
            life: LINK_LIFE,
            content_type: "text/plain",
            disposition: "attachment",
        })
        .unwrap();
    world.http.get(link).send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn the_signer_may_put_under_incoming_and_nothing_else() {
    with_bucket(|world| {
        async move {
            let signer = S3::new(&world.settings("SIGNER"));
            let file = put(&world.worker, FILE, b"served").await.unwrap();
            put(&signer, KEY, b"hello").await.unwrap();
            let upload = world.worker.head(KEY, None).await.unwrap().found().unwrap().sighting.version;

            for key in [FILE, "derived/x", "x", "incomingx"] {
                assert!(is_denied(put(&signer, key, b"x").await), "{key}");
            }
            assert!(is_denied(signer.get(FILE, &file.version, 100).await));
            assert!(is_denied(signer.head(FILE, Some(&file.version)).await));
            assert!(is_denied(signer.versions_of(KEY, 10).await));
            assert!(is_denied(signer.list_versions("", None, 10).await));
            let copy = CopyObject {
                from: FILE,
                from_version: &file.version,
                if_match: None,
                to: KEY,
                content_type: "text/plain",
                content_disposition: None,
                cache_control: None,
            };
            assert!(is_denied(signer.copy(copy).await));
            for (key, version) in [(KEY, &upload), (FILE, &file.version)] {
                match signer.delete_versions(&[(key.to_owned(), version.clone())]).await {
                    Ok(failures) => assert_eq!(failures[0].code, "AccessDenied", "{key}"),
                    Err(error) => assert!(is_denied::<()>(Err(error)), "{key}"),
                }
                assert!(matches!(world.worker.head(key, Some(version)).await, Ok(Head::Found(_))), "{key}");
            }
            for key in [FILE, KEY] {
                for what in ["get", "acl", "tagging"] {
                    let status = world.try_unversioned("SIGNER", key, what).await;
                    assert_eq!(status, 403, "{what} of {key}, even where the signer owns the upload");
                }
            }
        }
        .boxed()
    })
    .await;
}

#[tokio::test]
async fn a_ticket_signed_for_another_prefix_is_worthless() {
    with_bucket(|world| {
        async move {
            let ticket = world.tickets.post(&request(FILE, 5, "text/plain")).unwrap();
            assert_eq!(world.send_form(&ticket, &[], b"hello").await.0, 403);
            let ticket = world.tickets.put(&request(FILE, 5, "text/plain")).unwrap();
            assert_eq!(world.send_put(&ticket, &[], b"hello").await.0, 403);
            // Nor does the reader's signature upload anything.
            let reader = TicketSigner::new(world.signer("READER"));
            let ticket = reader.post(&request(KEY, 5, "text/plain")).unwrap();
            assert_eq!(world.send_form(&ticket, &[], b"hello").await.0, 403);
            assert_eq!(world.worker.list_versions("", None, 10).await.unwrap().versions, []);
        }
        .boxed()
    })
    .await;
}

#[tokio::test]
async fn copying_and_publishing_by_unsigned_headers_is_refused() {
    with_bucket(|world| {
        async move {
            let victim = put(&world.worker, FILE, b"secret").await.unwrap();
            let ticket = world.tickets.put(&request(KEY, 1, "text/plain")).unwrap();
            let source = format!("/{}/{FILE}?versionId={}", world.bucket, victim.version);
            let (status, answer) = world.send_put(&ticket, &[("x-amz-copy-source", &source)], b"x").await;
            assert_eq!(status, 403, "{answer}");
            let probe = world.admin.probe_put(&world.tickets).await.unwrap();
            assert!(probe.is_safe(), "{probe:?}");
            let keys = world.worker.list_versions("", None, 10).await.unwrap().versions;
            assert_eq!(
                keys.iter().map(|version| version.key.as_str()).collect::<Vec<_>>(),
                [FILE],
                "no traces"
            );
        }
        .boxed()
    })
    .await;
}

#[tokio::test]
async fn a_signer_that_owns_the_bucket_is_found_out() {
    with_bucket(|world| {
        async move {
            // The setting R-A2 forbids: the admin signs tickets.
            let owner = TicketSigner::new(world.signer("ADMIN"));
            let probe = world.admin.probe_put(&owner).await.unwrap();
            let PutProbe::Tried { copy_source: 200, .. } = probe else {
                panic!("the trick works: {probe:?}")
            };
            assert!(!probe.is_safe(), "the probe must be able to fail: {probe:?}");
            assert_eq!(world.worker.list_versions("", None, 10).await.unwrap().versions, [], "no traces");
        }
        .boxed()
    })
    .await;
}

/// R-A2: without a plain PUT that is taken, a refusal of the tricks is no proof.
#[tokio::test]
async fn a_signer_that_may_put_nothing_proves_nothing() {
    with_bucket(|world| {
        async move {
            for identity in ["READER", "WORKER"] {
                let signer = TicketSigner::new(world.signer(identity));
                let probe = world.admin.probe_put(&signer).await.unwrap();
                assert_eq!(probe, PutProbe::NoControl { status: 403 }, "{identity}");
                assert!(!probe.is_safe());
            }
            assert_eq!(world.worker.list_versions("", None, 10).await.unwrap().versions, [], "no traces");
        }
        .boxed()
    })
    .await;
}

#[tokio::test]
async fn the_worker_confirms_promotes_and_removes_what_the_signer_uploaded() {
    with_bucket(|world| {
        async move {
            let pinned = world.upload(KEY, b"hello", "text/plain").await;
            let worker = &world.worker;
            let found = worker.head(KEY, Some(&pinned)).await.unwrap().found().unwrap();
            let bytes = worker.get(KEY, &pinned, 5).await.unwrap().collect_all().await.unwrap();
            assert_eq!(bytes, "hello");
            let copy = CopyObject {
                from: KEY,
                from_version: &pinned,
                if_match: Some(&found.etag),
                to: FILE,
                content_type: "text/plain",
                content_disposition: Some("attachment"),
                cache_control: None,
            };
            let stored = worker.copy(copy).await.unwrap();
            assert_eq!(stored.size_bytes, 5);
            assert_eq!(worker.delete_versions(&[(KEY.to_owned(), pinned)]).await, Ok(vec![]));
            assert_eq!(worker.versions_of(KEY, 5).await, Ok(vec![]));
            // It makes no uploads, and no policies.
            assert!(is_denied(put(worker, KEY, b"x").await));
            assert!(is_denied(
                objects::admin::Admin::new(world.settings("WORKER"))
                    .unwrap()
                    .put_policy(&world.principals())
                    .await
            ));
        }
        .boxed()
    })
    .await;
}

#[tokio::test]
async fn a_link_gives_the_pinned_version_as_we_describe_it() {
    with_bucket(|world| {
        async move {
            let first = put(&world.worker, FILE, b"first").await.unwrap().version;
            put(&world.worker, FILE, b"second").await.unwrap();
            let link = world
                .links
                .link(&LinkRequest {
                    key: FILE,
                    version: &first,
                    issued_at: now(),
                    life: LINK_LIFE,
                    content_type: "image/png",
                    disposition: &attachment("кот \"1\".png"),
                })
                .unwrap();
            let answer = world.http.get(link.clone()).send().await.unwrap();
            assert_eq!(answer.status(), 200);
            assert_eq!(answer.headers()["content-type"], "image/png");
            assert_eq!(answer.headers()["content-disposition"], attachment("кот \"1\".png").as_str());
            assert_eq!(answer.headers()["cache-control"], "private, max-age=60");
            assert_eq!(answer.text().await.unwrap(), "first");

            for (from, to) in
                [("image%2Fpng", "text%2Fhtml"), ("attachment", "inline"), (first.as_str(), "other")]
            {
                let forged = link.as_str().replacen(from, to, 1);
                assert_ne!(forged, link.as_str());
                assert_eq!(world.http.get(&forged).send().await.unwrap().status(), 403, "{to}");
            }
        }
        .boxed()
    })
    .await;
}

#[tokio::test]
async fn a_link_dies_after_its_minute() {
    with_bucket(|world| {
        async move {
            let version = put(&world.worker, FILE, b"first").await.unwrap().version;
            for (age_s, expected) in [(30, 200), (90, 403)] {
                let link = world
                    .links
                    .link(&LinkRequest {
                        key: FILE,
                        version: &version,
                        issued_at: now() - chrono::TimeDelta::seconds(age_s),
                        life: LINK_LIFE,
                        content_type: "text/plain",
                        disposition: "attachment",
                    })
                    .unwrap();
                assert_eq!(world.http.get(link).send().await.unwrap().status(), expected, "{age_s} s old");
            }
        }
        .boxed()
    })
    .await;
}

#[tokio::test]
async fn the_reader_reads_what_is_served_and_no_upload() {
    with_bucket(|world| {
        async move {
            let upload = world.upload(KEY, b"hello", "text/plain").await;
            let file = put(&world.worker, FILE, b"served").await.unwrap().version;
            let derived = put(&world.worker, "derived/a/b/thumb", b"served").await.unwrap().version;
            assert_eq!(presigned(world, "READER", FILE, &file).await, 200);
            assert_eq!(presigned(world, "READER", "derived/a/b/thumb", &derived).await, 200);
            assert_eq!(
                presigned(world, "READER", KEY, &upload).await,
                403,
                "nothing unverified is served (INV-1)"
            );
            assert_eq!(presigned(world, "SIGNER", FILE, &file).await, 403);
            let reader = S3::new(&world.settings("READER"));
            assert!(is_denied(put(&reader, FILE, b"x").await));
            assert!(is_denied(reader.list_versions("", None, 10).await));
        }
        .boxed()
    })
    .await;
}
