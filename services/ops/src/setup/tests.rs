//! On the real store and the real broker (R-I4, R-A2, R-B1).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use broker::topology;
use bytes::Bytes;
use cards::{Ids, MediaType, SourceKey, StateName, TicketMethod};
use futures::FutureExt as _;
use objects::{ErrorKind, Head, ObjectError, ObjectStore, PutObject, S3};
use serde_json::{Value, json};

use super::*;
use crate::demo::{self, Sample, Upload};
use crate::rig::{Rig, request, with_rig};

/// A sync topic's event is there when the PUT returns; a busy machine gets time.
const EVENT_WITHIN: Duration = Duration::from_secs(20);

async fn run(rig: &Rig, mode: Mode) -> SetupReport {
    setup(&rig.settings, mode, &mut |_: &Step| {}).await.unwrap()
}

fn results(report: &SetupReport) -> Vec<StepResult> {
    assert_eq!(report.steps.iter().map(|step| step.id).collect::<Vec<_>>(), StepId::ALL);
    report.steps.iter().map(|step| step.result).collect()
}

fn is_denied<T: std::fmt::Debug>(outcome: &Result<T, ObjectError>) -> bool {
    matches!(outcome, Err(ObjectError::Denied { .. }))
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    with_rig(|rig| {
        async move {
            let report = run(rig, Mode::DryRun).await;
            let mut expected = [StepResult::WouldChange; 9];
            expected[8] = StepResult::Skipped;
            assert_eq!(results(&report), expected);
            assert_eq!(report.put_tickets, None);
            assert_eq!(rig.exchanges().await, Vec::<String>::new());
            let bucket = S3::new(&rig.settings.store).probe().await;
            assert_eq!(bucket.unwrap_err().kind(), ErrorKind::Suspect, "there is no bucket");
        }
        .boxed()
    })
    .await;
}

#[tokio::test]
async fn a_second_run_finds_everything_as_it_should_be() {
    use StepResult::{Already, Checked, Created, Skipped, WouldRepeat};
    with_rig(|rig| {
        async move {
            let mut seen = Vec::new();
            let mut show = |step: &Step| seen.push(step.clone());
            let first = setup(&rig.settings, Mode::Apply, &mut show).await.unwrap();
            assert_eq!(seen, first.steps, "each step is shown as it ends");
            assert_eq!(results(&first)[..8], [Created; 8], "{first}");
            let second = run(rig, Mode::Apply).await;
            assert_eq!(results(&second)[..8], [Already; 8], "{second}");
            assert_eq!(second.result(StepId::PutTickets), Some(Checked));
            let third = run(rig, Mode::DryRun).await;
            assert_eq!(
                results(&third),
                [
                    Already,
                    Already,
                    Already,
                    WouldRepeat,
                    Already,
                    WouldRepeat,
                    WouldRepeat,
                    WouldRepeat,
                    Skipped
                ],
                "{third}"
            );
            let stands = topology::depth(&rig.settings.broker).await.unwrap();
            assert_eq!(stands.len(), topology::QUEUES.len());
        }
        .boxed()
    })
    .await;
}

#[tokio::test]
async fn what_somebody_changed_is_put_right_and_said() {
    with_rig(|rig| {
        async move {
            run(rig, Mode::Apply).await;
            let mut other = rig.settings.clone();
            other.cors_origins = vec!["http://127.0.0.1:9999".to_owned()];
            other.principals.reader.clone_from(&other.principals.worker);
            let report = setup(&other, Mode::Apply, &mut |_: &Step| {}).await.unwrap();
            assert_eq!(report.result(StepId::Cors), Some(StepResult::Changed), "{report}");
            assert_eq!(report.result(StepId::Policy), Some(StepResult::Changed), "{report}");
            assert_eq!(report.result(StepId::Lifecycle), Some(StepResult::Already), "{report}");
        }
        .boxed()
    })
    .await;
}

#[tokio::test]
async fn an_upload_arrives_as_an_event_and_the_signer_may_do_no_more() {
    with_rig(|rig| {
        async move {
            let report = run(rig, Mode::Apply).await;
            assert_eq!(report.put_tickets, Some(PutTickets::Allowed), "{report}");
            let by_post = upload(rig, TicketMethod::Post).await;
            let by_put = upload(rig, TicketMethod::Put).await;
            until_events(rig, &[by_post.to_string(), by_put.to_string()]).await;

            let signer = S3::new(&rig.store_as("SIGNER"));
            assert!(is_denied(&signer.list_versions("", None, 10).await));
            let worker = S3::new(&rig.store_as("WORKER"));
            let Ok(Head::Found(found)) = worker.head(&by_post.to_string(), None).await else { panic!() };
            let version = found.sighting.version;
            assert!(is_denied(&signer.get(&by_post.to_string(), &version, 100).await));
            let put = PutObject {
                key: "files/x",
                bytes: Bytes::from_static(b"x"),
                content_type: "text/plain",
                content_disposition: None,
                cache_control: None,
            };
            assert!(is_denied(&signer.put(put).await));
        }
        .boxed()
    })
    .await;
}

/// R-A2: such a signer is answered 403 whatever it tries, also where the store would take the tricks.
#[tokio::test]
async fn a_signer_whose_plain_put_is_refused_proves_nothing_about_put_tickets() {
    with_rig(|rig| {
        async move {
            run(rig, Mode::Apply).await;
            let reader = rig.store_as("READER").credentials;
            let mut forged = rig.settings.signer.credentials.clone();
            forged.secret_key = "wrong".to_owned();
            for credentials in [reader, forged] {
                let signer = SignerSettings { credentials, ..rig.settings.signer.clone() };
                match probe_put_tickets(&rig.settings.store, &signer).await {
                    PutTickets::Refused { reason } => assert!(reason.contains("plain PUT"), "{reason}"),
                    PutTickets::Allowed => panic!("a 403 to everything is no proof"),
                }
            }
            let left = S3::new(&rig.settings.store).list_versions("", None, 10).await.unwrap().versions;
            assert_eq!(left, [], "no traces");
        }
        .boxed()
    })
    .await;
}

#[tokio::test]
async fn credentials_that_are_wrong_are_refused_at_once_and_say_whose_are_needed() {
    with_rig(|rig| {
        async move {
            let mut settings = rig.settings.clone();
            settings.store.credentials.secret_key = "wrong".to_owned();
            let error = setup(&settings, Mode::Apply, &mut |_: &Step| {}).await.unwrap_err();
            assert!(matches!(error, SetupError::Refused { step: StepId::Bucket, .. }), "{error:?}");
            assert!(error.to_string().contains("ARKIV_S3_ADMIN_"), "{error}");
        }
        .boxed()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_is_away_is_waited_for_and_said_so() {
    with_rig(|rig| {
        async move {
            let mut settings = rig.settings.clone();
            settings.broker.url = "amqp://arkiv:hunter2@127.0.0.1:1/%2f".to_owned();
            let mut waits = Vec::new();
            let outcome = setup(&settings, Mode::Apply, &mut |step: &Step| waits.push(step.clone())).await;
            let error = outcome.unwrap_err();
            assert!(matches!(error, SetupError::StillAway { step: StepId::Topology, .. }), "{error:?}");
            assert!(error.to_string().contains("start the broker and run setup again"), "{error}");
            assert!(waits.len() > 3 && waits.iter().all(|step| step.result == StepResult::Waiting));
            assert!(!format!("{error} {waits:?}").contains("hunter2"));
        }
        .boxed()
    })
    .await;
}

#[test]
fn the_report_is_a_table_and_json() {
    let step = |id: StepId, result| Step { id, what: id.what(), result, evidence: "seen".to_owned() };
    let report = SetupReport {
        bucket: "arkiv".to_owned(),
        mode: Mode::Apply,
        steps: vec![
            step(StepId::Bucket, StepResult::Created),
            step(StepId::AccessBlock, StepResult::WouldChange),
        ],
        put_tickets: Some(PutTickets::Refused { reason: "x-amz-acl got 200".to_owned() }),
    };
    let table = report.to_string();
    assert!(table.contains("would change") && table.contains("PUT tickets: refused, x-amz-acl got 200"));
    assert_eq!(
        serde_json::to_value(&report).unwrap(),
        json!({
            "bucket": "arkiv", "mode": "apply",
            "steps": [
                { "id": "bucket", "what": "makes the bucket", "result": "created", "evidence": "seen" },
                { "id": "access_block", "what": "makes ACLs powerless", "result": "would_change",
                  "evidence": "seen" },
            ],
            "put_tickets": { "result": "refused", "reason": "x-amz-acl got 200" },
        })
    );
}

#[test]
fn secrets_are_not_shown() {
    let url = StoreUrl("amqp://store:hunter2@127.0.0.1/%2f".to_owned());
    assert!(!format!("{url:?}").contains("hunter2"));
}

/// Uploads with a real ticket and the demo's own hands.
async fn upload(rig: &Rig, method: TicketMethod) -> SourceKey {
    let key = SourceKey(Ids.card());
    let name = key.to_string();
    let sample = Sample {
        name: "письмо.txt",
        media_type: MediaType::Text,
        method,
        bytes: Bytes::from(vec![b'a'; 200_000]),
        expected: StateName::Ready,
        reason: None,
        thumb_px: None,
    };
    let wish = request(&name, sample.bytes.len() as u64, sample.media_type.as_str());
    let ticket = match method {
        TicketMethod::Post => rig.tickets().post(&wish),
        TicketMethod::Put => rig.tickets().put(&wish),
    };
    let ticket: Upload = serde_json::from_value(serde_json::to_value(ticket.unwrap()).unwrap()).unwrap();
    let sent = Arc::new(AtomicU64::new(0));
    demo::upload(ticket, &sample, Arc::clone(&sent), EVENT_WITHIN).await.unwrap();
    assert_eq!(sent.load(Ordering::Relaxed), 200_000, "progress reached the end");
    key
}

async fn until_events(rig: &Rig, keys: &[String]) {
    let mut missing = keys.to_vec();
    let all = async {
        while !missing.is_empty() {
            for message in broker::testing::take_all(&rig.settings.broker, "card.confirm").await.unwrap() {
                let body: Value = serde_json::from_slice(&message.body).unwrap();
                for record in body["Records"].as_array().unwrap() {
                    let key = record["s3"]["object"]["key"].as_str().unwrap().replace("%2F", "/");
                    missing.retain(|one| *one != key);
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let came = tokio::time::timeout(EVENT_WITHIN, all).await;
    assert!(came.is_ok(), "events that never came: {missing:?}");
}
