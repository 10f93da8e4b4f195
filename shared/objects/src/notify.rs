//! `minio-notify.json`: which of the bucket's events are sent, and what that means for each kind of store (R-I4).
//!
//! MinIO and RustFS take it as it is (their own ARN in it), AWS with its queue's ARN. Ceph knows no queues: it wants a
//! topic that was made first, and its events go to the exchange with the topic's name as routing key.

use serde::Deserialize;

use crate::{ObjectError, Operation, StoreKind, s3};

/// The file: an S3 notification configuration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotifySpec {
    /// What is sent where.
    #[serde(rename = "QueueConfigurations")]
    pub queues: Vec<QueueSpec>,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
pub struct QueueSpec {
    /// Its name.
    pub id: String,
    /// The target's ARN, as MinIO spells it.
    pub queue_arn: String,
    /// The events, with `s3:`.
    pub events: Vec<String>,
    /// Which keys.
    pub filter: FilterSpec,
}

/// Which keys.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
pub struct FilterSpec {
    /// By key.
    pub key: KeyFilterSpec,
}

/// Which keys, by rule.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
pub struct KeyFilterSpec {
    /// `prefix` and `suffix`, at most one each.
    pub filter_rules: Vec<FilterRuleSpec>,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
pub struct FilterRuleSpec {
    /// `prefix` or `suffix`, in lower case.
    pub name: String,
    /// What the key begins or ends with.
    pub value: String,
}

impl NotifySpec {
    /// Reads the file. Only what starts work may be subscribed (R-B1): removals crash some gateways (FACTS 2), and a
    /// spec without events or prefix would send everything.
    pub fn parse(json: &str) -> Result<Self, ObjectError> {
        let refuse = |detail: &str| s3::invalid(Operation::Setup, "minio-notify.json", detail);
        let spec: Self = serde_json::from_str(json).map_err(|error| refuse(&error.to_string()))?;
        if spec.queues.is_empty() {
            return Err(refuse("it subscribes nothing"));
        }
        for queue in &spec.queues {
            if queue.events.is_empty() || queue.filter.key.filter_rules.is_empty() {
                return Err(refuse(&format!("`{}` has no events or no filter", queue.id)));
            }
            if let Some(event) = queue.events.iter().find(|event| !event.starts_with("s3:ObjectCreated:")) {
                return Err(refuse(&format!("`{}` subscribes {event}, which starts no work", queue.id)));
            }
        }
        Ok(spec)
    }
}

/// What [`crate::admin::Admin::wire_notifications`] is told.
#[derive(Clone)]
pub struct NotifyPlan {
    /// The exchange the store publishes to; it must exist (FACTS 2: else events are lost without a word). A Ceph
    /// gateway knows one exchange for each broker and vhost: a second plan with another one is taken and never sends.
    pub exchange: String,
    /// The broker as the store's own user reaches it. Only Ceph is told; the others have it in their environment.
    pub amqp_url: String,
    /// The name of Ceph's topic, which is also the routing key.
    pub topic: String,
    /// `minio-notify.json`.
    pub spec: NotifySpec,
}

impl std::fmt::Debug for NotifyPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NotifyPlan")
            .field("exchange", &self.exchange)
            .field("amqp_url", &"***")
            .field("topic", &self.topic)
            .field("spec", &self.spec)
            .finish()
    }
}

/// The target's ARN as this kind of store spells it. RustFS lower-cases the id, and a configuration that spells it
/// otherwise is taken and never sends anything (FACTS 2b).
pub fn queue_arn(kind: StoreKind, arn: &str) -> String {
    match kind {
        StoreKind::Rustfs => match arn.split(':').collect::<Vec<_>>().as_slice() {
            ["arn", _, "sqs", region, id, target] => {
                format!("arn:rustfs:sqs:{region}:{}:{target}", id.to_lowercase())
            }
            _ => arn.to_owned(),
        },
        StoreKind::Minio | StoreKind::Aws | StoreKind::Ceph => arn.to_owned(),
    }
}

/// The form of `CreateTopic`. Not persistent: that crashes this gateway now and then, and what a broker's outage loses is
/// found by the sweep (R-B9).
pub(crate) fn create_topic_form(plan: &NotifyPlan) -> String {
    let attributes = [
        ("push-endpoint", plan.amqp_url.as_str()),
        ("amqp-exchange", plan.exchange.as_str()),
        ("amqp-ack-level", "broker"),
        ("verify-ssl", "false"),
    ];
    let mut form = url::form_urlencoded::Serializer::new(String::new());
    form.append_pair("Action", "CreateTopic").append_pair("Name", &plan.topic);
    for (at, (key, value)) in attributes.iter().enumerate() {
        form.append_pair(&format!("Attributes.entry.{}.key", at + 1), key);
        form.append_pair(&format!("Attributes.entry.{}.value", at + 1), value);
    }
    form.finish()
}

pub(crate) fn delete_topic_form(arn: &str) -> String {
    url::form_urlencoded::Serializer::new(String::new())
        .append_pair("Action", "DeleteTopic")
        .append_pair("TopicArn", arn)
        .finish()
}

pub(crate) fn topic_arn(answer: &str) -> Option<&str> {
    let (_, rest) = answer.split_once("<TopicArn>")?;
    rest.split_once("</TopicArn>").map(|(arn, _)| arn)
}
