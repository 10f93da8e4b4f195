//! Wires the bucket's events to the broker (R-I4).
//!
//! 1. Ceph only: `CreateTopic`, a signed form at the store's own address. A password in the broker's URL is taken only
//!    over TLS or from a proxy that says it was; the header says so.
//! 2. `PutBucketNotificationConfiguration`, which replaces all that was there.

use std::time::Duration;

use aws_sdk_s3::types::{
    Event, FilterRule, FilterRuleName, NotificationConfiguration, NotificationConfigurationFilter,
    QueueConfiguration, S3KeyFilter, TopicConfiguration,
};
use reqwest::Method;

use super::Admin;
use crate::notify::{NotifyPlan, QueueSpec, create_topic_form, delete_topic_form, queue_arn, topic_arn};
use crate::s3::{self, invalid, unavailable};
use crate::sign::{Service, Signable, bucket_url, sign_headers};
use crate::{ObjectError, Operation, StoreKind};

/// How often topics are wired again, and the pause before, which grows: under 3 s in all, enough for tens of setups at
/// once.
const TOPIC_TRIES_MAX: u32 = 10;
const TOPIC_PAUSE: Duration = Duration::from_millis(50);

/// Ceph keeps all topics in one list that is read, changed and written back: of two calls at once one is answered with a
/// 500, or its topic is gone again a moment later (seen with parallel setups, 16.2.15). So calls are repeated.
async fn patiently<T, A: Future<Output = Result<T, ObjectError>>>(
    attempt: impl Fn() -> A,
) -> Result<T, ObjectError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match attempt().await {
            Err(error @ (ObjectError::Missing { .. } | ObjectError::Unavailable { .. }))
                if tries < TOPIC_TRIES_MAX =>
            {
                tracing::debug!(tries, %error, "asking Ceph for its topics once more");
                tokio::time::sleep(TOPIC_PAUSE * tries).await;
            }
            done => return done,
        }
    }
}

impl Admin {
    /// Sends the bucket's events to the broker. Putting it again with another plan replaces the first.
    pub async fn wire_notifications(&self, plan: &NotifyPlan) -> Result<(), ObjectError> {
        match self.settings.kind {
            StoreKind::Ceph => patiently(|| self.wire_topics(plan)).await,
            StoreKind::Minio | StoreKind::Rustfs | StoreKind::Aws => self.wire_queues(plan).await,
        }
    }

    async fn wire_topics(&self, plan: &NotifyPlan) -> Result<(), ObjectError> {
        let answer = self.sns(&create_topic_form(plan)).await?;
        let arn = topic_arn(&answer)
            .ok_or_else(|| invalid(Operation::Setup, &plan.topic, "CreateTopic answered no ARN"))?;
        let mut wired = NotificationConfiguration::builder();
        for spec in &plan.spec.queues {
            let topic = TopicConfiguration::builder()
                .id(&spec.id)
                .topic_arn(arn)
                .set_events(Some(events(spec)))
                .filter(filter(spec))
                .build()
                .map_err(|error| self.unbuilt(&error))?;
            wired = wired.topic_configurations(topic);
        }
        self.put_notifications(wired.build()).await
    }

    async fn wire_queues(&self, plan: &NotifyPlan) -> Result<(), ObjectError> {
        let mut wired = NotificationConfiguration::builder();
        for spec in &plan.spec.queues {
            let queue = QueueConfiguration::builder()
                .id(&spec.id)
                .queue_arn(queue_arn(self.settings.kind, &spec.queue_arn))
                .set_events(Some(events(spec)))
                .filter(filter(spec))
                .build()
                .map_err(|error| self.unbuilt(&error))?;
            wired = wired.queue_configurations(queue);
        }
        self.put_notifications(wired.build()).await
    }

    /// The ids of what is wired, for doctor.
    pub async fn wired_notifications(&self) -> Result<Vec<String>, ObjectError> {
        let answer = self
            .client
            .get_bucket_notification_configuration()
            .bucket(self.bucket())
            .send()
            .await
            .map_err(|error| self.failed(&error))?;
        let topics = answer.topic_configurations().iter().filter_map(TopicConfiguration::id);
        let queues = answer.queue_configurations().iter().filter_map(QueueConfiguration::id);
        Ok(topics.chain(queues).map(str::to_owned).collect())
    }

    /// Takes the wires away again, Ceph's topics among them: for tests.
    pub async fn unwire_notifications(&self) -> Result<(), ObjectError> {
        let answer = self
            .client
            .get_bucket_notification_configuration()
            .bucket(self.bucket())
            .send()
            .await
            .map_err(|error| self.failed(&error))?;
        match self.settings.kind {
            StoreKind::Ceph => {
                // An empty configuration is malformed to Ceph; it has a DELETE of its own.
                let bucket = bucket_url(&self.settings.endpoint, self.bucket());
                let url = format!("{bucket}?notification");
                patiently(|| self.call(Method::DELETE, &url, Service::S3, &[], "")).await?;
                for topic in answer.topic_configurations() {
                    let form = delete_topic_form(topic.topic_arn());
                    patiently(|| self.sns(&form)).await?;
                }
                Ok(())
            }
            StoreKind::Minio | StoreKind::Rustfs | StoreKind::Aws => {
                self.put_notifications(NotificationConfiguration::builder().build()).await
            }
        }
    }

    async fn put_notifications(&self, wired: NotificationConfiguration) -> Result<(), ObjectError> {
        self.client
            .put_bucket_notification_configuration()
            .bucket(self.bucket())
            .notification_configuration(wired)
            .send()
            .await
            .map(drop)
            .map_err(|error| self.failed(&error))
    }

    /// A call of the notification service that Ceph answers at the store's own address.
    async fn sns(&self, form: &str) -> Result<String, ObjectError> {
        let content_type = [("content-type", "application/x-www-form-urlencoded")];
        self.call(Method::POST, self.settings.endpoint.as_str(), Service::Sns, &content_type, form).await
    }

    /// A call the SDK does not know, signed by hand.
    async fn call(
        &self,
        method: Method,
        url: &str,
        service: Service,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<String, ObjectError> {
        let signed = sign_headers(
            &Signable {
                method: method.as_str(),
                url,
                headers,
                credentials: &self.settings.credentials,
                region: &self.settings.region,
                at: Self::clock(),
            },
            service,
            body.as_bytes(),
        )?;
        let mut request = self
            .http
            .request(method, url)
            // Not signed: a proxy would set it. Without it a broker's URL with a password is refused.
            .header("x-forwarded-proto", "https")
            .body(body.to_owned());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        for (name, value) in signed {
            request = request.header(name, value);
        }
        let broken = |error: reqwest::Error| {
            unavailable(Operation::Setup, self.bucket(), &s3::chain(&error.without_url()))
        };
        let answer = request.send().await.map_err(broken)?;
        let status = answer.status();
        let text = answer.text().await.map_err(broken)?;
        if status.is_success() {
            return Ok(text);
        }
        // The answer may repeat the broker's URL: only the code is told.
        let code = text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
        let detail = format!("{status}: {}", code.map_or("no code", |(code, _)| code));
        let (operation, key) = (Operation::Setup, self.bucket().to_owned());
        Err(match status.as_u16() {
            401 | 403 => ObjectError::Denied { operation, key, detail },
            500.. => unavailable(operation, &key, &detail),
            _ => invalid(operation, &key, &detail),
        })
    }
}

fn events(spec: &QueueSpec) -> Vec<Event> {
    spec.events.iter().map(|event| Event::from(event.as_str())).collect()
}

fn filter(spec: &QueueSpec) -> NotificationConfigurationFilter {
    let rules = spec.filter.key.filter_rules.iter().map(|rule| {
        FilterRule::builder().name(FilterRuleName::from(rule.name.as_str())).value(&rule.value).build()
    });
    NotificationConfigurationFilter::builder()
        .key(S3KeyFilter::builder().set_filter_rules(Some(rules.collect())).build())
        .build()
}
