//! Tickets at a real store: the right upload is taken, each wrong one is refused (R-A2).

use chrono::TimeDelta;
use futures::FutureExt;
use objects::ticket::TicketRequest;
use objects::{Head, ObjectStore};

use crate::world::{now, request, with_bucket};

const KEY: &str = "incoming/0192f3c4-7a11-7c3e-9d2f-5b6a7c8d9e01";
const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[tokio::test]
async fn a_form_with_the_file_last_is_taken() {
    with_bucket(|world| {
        async move {
            let ticket = world
                .tickets
                .post(&TicketRequest { traceparent: Some(TRACE), ..request(KEY, 5, "text/plain") })
                .unwrap();
            let (status, answer) = world.send_form(&ticket, &[], b"hello").await;
            assert_eq!(status, 201, "{answer}");
            assert!(answer.contains("<Key>") && answer.contains("<ETag>"), "{answer}");
            let found = world.worker.head(KEY, None).await.unwrap().found().unwrap().sighting;
            assert_eq!((found.size_bytes, found.content_type.as_deref()), (5, Some("text/plain")));
            assert_eq!(found.user_metadata.len(), 1);
            assert_eq!(found.user_metadata["traceparent"], TRACE, "it rides along");
            assert_eq!(found.content_disposition, None);
        }
        .boxed()
    })
    .await;
}

#[tokio::test]
async fn a_form_that_differs_from_its_policy_is_refused() {
    with_bucket(|world| {
        async move {
            let ticket = world.tickets.post(&request(KEY, 5, "text/plain")).unwrap();
            for (changed, bytes) in [
                (vec![], &b"hello!"[..]),
                (vec![], b"hell"),
                (vec![], b""),
                (vec![("Content-Type", "text/html")], b"hello"),
                (vec![("key", "incoming/other")], b"hello"),
                (vec![("key", "files/other")], b"hello"),
                (vec![("acl", "public-read")], b"hello"),
                (vec![("Content-Disposition", "inline")], b"hello"),
                (vec![("Content-Encoding", "gzip")], b"hello"),
                (vec![("x-amz-meta-role", "admin")], b"hello"),
                (vec![("x-amz-meta-traceparent", TRACE)], b"hello"),
                (vec![("success_action_status", "200")], b"hello"),
                (vec![("success_action_redirect", "https://example.com")], b"hello"),
                (vec![("x-amz-tagging", "a=b")], b"hello"),
                (vec![("x-amz-signature", &"0".repeat(64))], b"hello"),
            ] {
                let (status, answer) = world.send_form(&ticket, &changed, bytes).await;
                assert!(matches!(status, 400 | 403), "{changed:?} {bytes:?}: {status} {answer}");
            }
            assert_eq!(world.worker.list_versions("", None, 10).await.unwrap().versions, []);
            let (status, _) = world.send_form(&ticket, &[], b"hello").await;
            assert_eq!(status, 201, "the ticket itself is good");
        }
        .boxed()
    })
    .await;
}

#[tokio::test]
async fn an_expired_ticket_is_refused() {
    with_bucket(|world| {
        async move {
            let expired = TicketRequest {
                issued_at: now() - TimeDelta::seconds(700),
                ends_at: now() - TimeDelta::seconds(100),
                ..request(KEY, 5, "text/plain")
            };
            let (status, answer) =
                world.send_form(&world.tickets.post(&expired).unwrap(), &[], b"hello").await;
            assert!(matches!(status, 400 | 403), "{status} {answer}");
            let (status, answer) = world.send_put(&world.tickets.put(&expired).unwrap(), &[], b"hello").await;
            assert!(matches!(status, 400 | 403), "{status} {answer}");
            assert_eq!(world.worker.head(KEY, None).await, Ok(Head::Missing));
        }
        .boxed()
    })
    .await;
}

#[tokio::test]
async fn a_put_is_taken_as_signed_and_not_otherwise() {
    with_bucket(|world| {
        async move {
            let ticket = world
                .tickets
                .put(&TicketRequest { traceparent: Some(TRACE), ..request(KEY, 5, "text/plain") })
                .unwrap();
            for (changed, bytes) in [
                (vec![], &b"hello!"[..]),
                (vec![], b"hell"),
                (vec![("Content-Type", "text/html")], b"hello"),
                (vec![("x-amz-meta-traceparent", "00-1")], b"hello"),
                // Not signed at all: the tricks of R-A2, refused by identity and access block.
                (vec![("x-amz-acl", "public-read")], b"hello"),
                (
                    vec![("x-amz-grant-read", "uri=\"http://acs.amazonaws.com/groups/global/AllUsers\"")],
                    b"hello",
                ),
            ] {
                let (status, answer) = world.send_put(&ticket, &changed, bytes).await;
                assert_eq!(status, 403, "{changed:?} {bytes:?}: {answer}");
            }
            assert_eq!(world.worker.head(KEY, None).await, Ok(Head::Missing));
            let (status, answer) = world.send_put(&ticket, &[], b"hello").await;
            assert_eq!(status, 200, "{answer}");
            let found = world.worker.head(KEY, None).await.unwrap().found().unwrap().sighting;
            assert_eq!((found.size_bytes, found.content_type.as_deref()), (5, Some("text/plain")));
            assert_eq!(found.user_metadata["traceparent"], TRACE);
        }
        .boxed()
    })
    .await;
}

#[tokio::test]
async fn a_put_with_the_announced_digest_is_taken() {
    with_bucket(|world| {
        async move {
            let digest = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824".parse().unwrap();
            let ticket = world
                .tickets
                .put(&TicketRequest { sha256: Some(digest), ..request(KEY, 5, "text/plain") })
                .unwrap();
            let (status, answer) = world.send_put(&ticket, &[], b"hello").await;
            assert_eq!(status, 200, "{answer}");
            let found = world.worker.head(KEY, None).await.unwrap().found().unwrap().sighting;
            // Where the store answers one it is the right one; Ceph answers none (FACTS 2).
            assert!(found.sha256.is_none_or(|stored| stored == digest), "{:?}", found.sha256);
        }
        .boxed()
    })
    .await;
}
