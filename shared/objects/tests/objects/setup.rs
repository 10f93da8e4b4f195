//! What setup makes of a real bucket (R-I4). The wire to the broker needs RabbitMQ too.

use futures::FutureExt;
use objects::notify::{NotifyPlan, NotifySpec, queue_arn};
use objects::{ObjectStore, StoreKind};

use crate::world::{World, request, with_bucket, without_versioning};

const SPEC: &str = r#"{ "QueueConfigurations": [ {
    "Id": "arkiv-created", "QueueArn": "arn:minio:sqs::ARKIV:amqp",
    "Events": ["s3:ObjectCreated:Put", "s3:ObjectCreated:Post", "s3:ObjectCreated:CompleteMultipartUpload"],
    "Filter": { "Key": { "FilterRules": [ { "Name": "prefix", "Value": "incoming/" } ] } } } ] }"#;

/// The bucket's events to the exchange that is everybody's, under a topic of its own name.
fn plan(world: &World) -> NotifyPlan {
    NotifyPlan {
        exchange: "bucket.events".to_owned(),
        amqp_url: world.env["ARKIV_AMQP_STORE_URL"].clone(),
        topic: world.bucket.clone(),
        spec: NotifySpec::parse(SPEC).unwrap(),
    }
}

#[test]
fn a_spec_that_sends_everything_or_removals_is_refused() {
    assert_eq!(NotifySpec::parse(SPEC).unwrap().queues[0].events.len(), 3);
    for (from, to) in [
        ("\"s3:ObjectCreated:Put\"", "\"s3:ObjectRemoved:*\""),
        ("{ \"Name\": \"prefix\", \"Value\": \"incoming/\" }", ""),
        ("QueueConfigurations", "TopicConfigurations"),
        ("\"Events\"", "\"Event\""),
    ] {
        let changed = SPEC.replacen(from, to, 1);
        assert_ne!(changed, SPEC);
        assert!(NotifySpec::parse(&changed).is_err(), "{to}");
    }
}

#[test]
fn an_arn_is_spelled_as_each_store_wants_it() {
    let arn = "arn:minio:sqs::ARKIV:amqp";
    assert_eq!(queue_arn(StoreKind::Minio, arn), arn);
    assert_eq!(queue_arn(StoreKind::Rustfs, arn), "arn:rustfs:sqs::arkiv:amqp");
    assert_eq!(queue_arn(StoreKind::Aws, "arn:aws:sqs:eu:1:q"), "arn:aws:sqs:eu:1:q");
}

#[test]
fn a_plan_keeps_the_brokers_password_to_itself() {
    let plan = NotifyPlan {
        exchange: "bucket.events".to_owned(),
        amqp_url: "amqp://store:hunter2@127.0.0.1/%2f".to_owned(),
        topic: "arkiv".to_owned(),
        spec: NotifySpec::parse(SPEC).unwrap(),
    };
    assert!(!format!("{plan:?}").contains("hunter2"));
}

#[tokio::test]
async fn setup_may_be_repeated() {
    with_bucket(|world| {
        async move {
            for _ in 0..2 {
                world.admin.create_bucket().await.unwrap();
                world.admin.enable_versioning().await.unwrap();
                world.admin.put_policy(&world.principals()).await.unwrap();
                world.admin.block_public_access().await.unwrap();
                assert!(world.admin.put_cors(&["http://127.0.0.1:8080".to_owned()]).await.unwrap());
                world.admin.put_lifecycle().await.unwrap();
            }
            assert!(world.admin.versioning_enabled().await.unwrap());
            assert!(world.admin.public_access_is_blocked().await.unwrap());
            assert_eq!(world.admin.expiring_lifecycle_rules().await.unwrap(), Vec::<String>::new());
        }
        .boxed()
    })
    .await;
}

#[tokio::test]
async fn a_page_of_the_named_origin_may_upload_and_no_other() {
    with_bucket(|world| {
        async move {
            world.admin.put_cors(&["http://127.0.0.1:8080".to_owned()]).await.unwrap();
            let url = format!("{}/{}", world.env["ARKIV_S3_ENDPOINT"].trim_end_matches('/'), world.bucket);
            for (origin, method, expected) in [
                ("http://127.0.0.1:8080", "POST", true),
                ("http://127.0.0.1:8080", "PUT", true),
                ("http://127.0.0.1:8080", "DELETE", false),
                ("http://evil.example", "POST", false),
            ] {
                let answer = world
                    .http
                    .request(reqwest::Method::OPTIONS, &url)
                    .header("origin", origin)
                    .header("access-control-request-method", method)
                    .header(
                        "access-control-request-headers",
                        "content-type,x-amz-meta-traceparent,if-none-match",
                    )
                    .send()
                    .await
                    .unwrap();
                assert_eq!(answer.status().is_success(), expected, "{origin} {method}");
                if expected {
                    assert_eq!(answer.headers()["access-control-allow-origin"], origin);
                }
            }
        }
        .boxed()
    })
    .await;
}

#[tokio::test]
async fn a_bucket_without_versioning_is_an_outage() {
    without_versioning(|world| {
        async move {
            assert!(!world.admin.versioning_enabled().await.unwrap());
            let key = "incoming/a";
            let ticket = world.tickets.post(&request(key, 5, "text/plain")).unwrap();
            assert_eq!(world.send_form(&ticket, &[], b"hello").await.0, 201);
            let error = world.worker.head(key, None).await.unwrap_err();
            assert!(error.is_versioning_required(), "{error}");
            let error = world.worker.versions_of(key, 5).await.unwrap_err();
            assert!(error.is_versioning_required(), "{error}");
        }
        .boxed()
    })
    .await;
}

#[tokio::test]
async fn events_are_wired_again_and_unwired() {
    with_bucket(|world| {
        async move {
            let plan = plan(world);
            for _ in 0..2 {
                world.admin.wire_notifications(&plan).await.unwrap();
                assert_eq!(world.admin.wired_notifications().await.unwrap(), ["arkiv-created"]);
            }
            world.admin.unwire_notifications().await.unwrap();
            assert_eq!(world.admin.wired_notifications().await.unwrap(), Vec::<String>::new());
        }
        .boxed()
    })
    .await;
}

/// Ceph's list of topics is read, changed and written back: without trying again, one of these vanishes.
#[tokio::test]
async fn many_setups_at_once_are_all_wired() {
    let wire = |_| {
        with_bucket(|world| {
            async move {
                let plan = plan(world);
                for _ in 0..3 {
                    world.admin.wire_notifications(&plan).await.unwrap();
                    assert_eq!(world.admin.wired_notifications().await.unwrap(), ["arkiv-created"]);
                }
            }
            .boxed()
        })
    };
    futures::future::join_all((0..6).map(wire)).await;
}

#[tokio::test]
async fn an_upload_under_incoming_arrives_at_the_exchange_and_nothing_else_does() {
    with_bucket(|world| {
        async move {
            // One Ceph gateway publishes to one exchange of a broker, whatever its topics say: a second one hears
            // nothing (measured). So the exchange is everybody's, and the topic's name tells the buckets apart.
            let (exchange, queue) = ("bucket.events", format!("{}.heard", world.bucket));
            let rabbit = Rabbit::new(world);
            rabbit.put(&format!("exchanges/%2F/{exchange}"), r#"{"type":"topic","durable":true}"#).await;
            rabbit.put(&format!("queues/%2F/{queue}"), r#"{"durable":true}"#).await;
            rabbit
                .post(
                    &format!("bindings/%2F/e/{exchange}/q/{queue}"),
                    &format!(r#"{{"routing_key":"{}"}}"#, world.bucket),
                )
                .await;
            let plan = NotifyPlan {
                exchange: exchange.to_owned(),
                amqp_url: world.env["ARKIV_AMQP_STORE_URL"].clone(),
                topic: world.bucket.clone(),
                spec: NotifySpec::parse(SPEC).unwrap(),
            };
            world.admin.wire_notifications(&plan).await.unwrap();

            let file = bytes::Bytes::from_static(b"x");
            let put = objects::PutObject {
                key: "files/x",
                bytes: file,
                content_type: "text/plain",
                content_disposition: None,
                cache_control: None,
            };
            world.worker.put(put).await.unwrap();
            let ticket = world.tickets.post(&request("incoming/posted", 5, "text/plain")).unwrap();
            assert_eq!(world.send_form(&ticket, &[], b"hello").await.0, 201);
            let ticket = world.tickets.put(&request("incoming/put", 5, "text/plain")).unwrap();
            assert_eq!(world.send_put(&ticket, &[], b"hello").await.0, 200);

            let heard = rabbit.get_messages(&queue, 2).await;
            rabbit.delete(&format!("queues/%2F/{queue}")).await;
            world.admin.unwire_notifications().await.unwrap();
            assert!(heard[0].contains("incoming") && heard[0].contains("ObjectCreated:Post"), "{heard:?}");
            assert!(heard[1].contains("incoming") && heard[1].contains("ObjectCreated:Put"), "{heard:?}");
        }
        .boxed()
    })
    .await;
}

/// The broker's management interface: enough of it to hear what the store says.
struct Rabbit<'a> {
    http: &'a reqwest::Client,
    url: url::Url,
}

impl<'a> Rabbit<'a> {
    fn new(world: &'a World) -> Self {
        Self { http: &world.http, url: world.env["ARKIV_AMQP_MANAGEMENT_URL"].parse().unwrap() }
    }

    async fn put(&self, path: &str, body: &str) {
        self.call(reqwest::Method::PUT, path, body).await;
    }

    async fn post(&self, path: &str, body: &str) -> String {
        self.call(reqwest::Method::POST, path, body).await
    }

    async fn delete(&self, path: &str) {
        self.call(reqwest::Method::DELETE, path, "").await;
    }

    /// Waits until so many messages came, at most 100 looks of 100 ms.
    async fn get_messages(&self, queue: &str, count: usize) -> Vec<String> {
        let mut heard = Vec::new();
        for _ in 0..100 {
            let ask = r#"{"count":10,"ackmode":"ack_requeue_false","encoding":"auto"}"#;
            let answer = self.post(&format!("queues/%2F/{queue}/get"), ask).await;
            let messages: Vec<serde_json::Value> = serde_json::from_str(&answer).unwrap();
            heard.extend(messages.iter().map(|message| message["payload"].as_str().unwrap().to_owned()));
            if heard.len() >= count {
                assert_eq!(heard.len(), count, "{heard:?}");
                return heard;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        panic!("only {} of {count} messages came: {heard:?}", heard.len());
    }

    async fn call(&self, method: reqwest::Method, path: &str, body: &str) -> String {
        let mut url = self.url.clone();
        url.set_path(&format!("/api/{path}"));
        let answer = self
            .http
            .request(method, url)
            .header("content-type", "application/json")
            .body(body.to_owned())
            .send()
            .await
            .unwrap();
        let status = answer.status();
        let text = answer.text().await.unwrap();
        assert!(status.is_success(), "{path}: {status} {text}");
        text
    }
}

/// R-C7, R-B9: else a consumer would be told that all is well and begin again, for ever.
#[tokio::test]
async fn the_probe_of_a_worker_sees_versioning_suspended_while_running() {
    with_bucket(|world| {
        async move {
            assert_eq!(world.worker.probe().await, Ok(()));
            world.suspend_versioning().await;
            assert!(world.worker.probe().await.unwrap_err().is_versioning_required());
            world.admin.enable_versioning().await.unwrap();
            assert_eq!(world.worker.probe().await, Ok(()));
        }
        .boxed()
    })
    .await;
    without_versioning(|world| {
        async move { assert!(world.worker.probe().await.unwrap_err().is_versioning_required()) }.boxed()
    })
    .await;
}

#[tokio::test]
async fn a_bucket_that_is_not_there_is_an_outage_and_not_a_missing_object() {
    let env = crate::world::env();
    let mut settings = crate::world::settings(&env, "no-such-bucket-here", "WORKER");
    let store = objects::S3::new(&settings);
    assert!(store.probe().await.is_err());
    let error = store.versions_of("incoming/a", 5).await.unwrap_err();
    assert_eq!(error.kind(), objects::ErrorKind::Suspect, "{error}");
    settings.endpoint = "http://127.0.0.1:1".parse().unwrap();
    let error = objects::S3::new(&settings).head("incoming/a", None).await.unwrap_err();
    assert!(matches!(error, objects::ObjectError::Unavailable { .. }), "{error}");
    assert!(!error.to_string().contains(&settings.credentials.secret_key));
}
