//! A message as a handler sees it, and the headers it travels with.
//!
//! Headers are read leniently: bucket events come from stores that send none (FACTS 1.5), and a first attempt without
//! a header is the rule there.

use std::fmt;

use cards::MessageId;
use events::work::{ATTEMPT_HEADER, Outgoing, Queue, TRACEPARENT_HEADER};
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use telemetry::trace::TraceParent;

use crate::BrokerError;
use crate::connection::short;

/// The quorum queue's own count; it would be a lie on a copy of the message.
const DELIVERY_COUNT_HEADER: &str = "x-delivery-count";
/// AMQP's number for "survives a restart"; at-least-once dead-lettering demands it from the first publish on.
const PERSISTENT: u8 = 2;

/// A message from one of our queues.
#[derive(Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Where it came from.
    pub queue: Queue,
    /// The outbox row's message id; bucket events have none.
    pub message_id: Option<MessageId>,
    /// 1 for the first.
    pub attempt: u32,
    /// The broker delivered it before, and never heard the end of it.
    pub redelivered: bool,
    /// The trace it belongs to; a text that is no W3C trace context was dropped.
    pub traceparent: Option<String>,
    /// The body.
    pub body: Vec<u8>,
}

impl Delivery {
    /// From what lapin received. The body is moved, not copied.
    pub(crate) fn receive(queue: Queue, message: &mut lapin::message::Delivery) -> Self {
        let properties = &message.properties;
        Self {
            queue,
            message_id: properties.message_id().as_ref().and_then(|id| id.as_str().parse().ok()),
            attempt: header(properties, ATTEMPT_HEADER).and_then(integer).unwrap_or(1).max(1),
            redelivered: message.redelivered,
            // Whoever publishes chooses this text, and a retry row must be able to hold it.
            traceparent: header(properties, TRACEPARENT_HEADER)
                .and_then(text)
                .filter(|text| text.parse::<TraceParent>().is_ok()),
            body: std::mem::take(&mut message.data),
        }
    }

    /// The trace id inside the trace context, for logs.
    pub fn trace_id(&self) -> Option<String> {
        telemetry::trace::trace_id(self.traceparent.as_deref())
    }
}

impl fmt::Debug for Delivery {
    /// Without the body: it would fill logs with other people's key names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("queue", &self.queue)
            .field("message_id", &self.message_id)
            .field("attempt", &self.attempt)
            .field("redelivered", &self.redelivered)
            .field("traceparent", &self.traceparent)
            .field("body_bytes", &self.body.len())
            .finish()
    }
}

/// The properties an outbox row leaves with (R-I1).
pub(crate) fn properties(outgoing: &Outgoing) -> Result<BasicProperties, BrokerError> {
    let mut headers = FieldTable::default();
    headers.insert(ATTEMPT_HEADER.into(), AMQPValue::LongLongInt(i64::from(outgoing.attempt)));
    if let Some(traceparent) = &outgoing.traceparent {
        headers.insert(TRACEPARENT_HEADER.into(), AMQPValue::LongString(traceparent.as_str().into()));
    }
    Ok(persistent_json().with_message_id(short(&outgoing.message_id.to_string())?).with_headers(headers))
}

/// What every message of ours has.
pub(crate) fn persistent_json() -> BasicProperties {
    BasicProperties::default()
        .with_content_type(ShortString::from("application/json"))
        .with_delivery_mode(PERSISTENT)
}

/// The original's properties for its copy in the dead-letter queue, with `added` headers.
pub(crate) fn buried(original: &BasicProperties, added: &[(&'static str, AMQPValue)]) -> BasicProperties {
    let mut headers = FieldTable::default();
    for (name, value) in original.headers().iter().flat_map(FieldTable::inner) {
        if name.as_str() != DELIVERY_COUNT_HEADER {
            headers.insert(name.clone(), value.clone());
        }
    }
    for (name, value) in added {
        headers.insert((*name).into(), value.clone());
    }
    let mut properties = persistent_json().with_headers(headers);
    if let Some(id) = original.message_id() {
        properties = properties.with_message_id(id.clone());
    }
    properties
}

fn header<'a>(properties: &'a BasicProperties, name: &str) -> Option<&'a AMQPValue> {
    properties.headers().as_ref()?.inner().get(name)
}

fn text(value: &AMQPValue) -> Option<String> {
    if let AMQPValue::LongString(text) = value {
        return std::str::from_utf8(text.as_bytes()).ok().map(str::to_owned);
    }
    None
}

/// Any of AMQP's integers: which one arrives depends on who published.
#[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum; all else is no integer")]
fn integer(value: &AMQPValue) -> Option<u32> {
    match *value {
        AMQPValue::ShortShortInt(n) => n.try_into().ok(),
        AMQPValue::ShortShortUInt(n) => Some(n.into()),
        AMQPValue::ShortInt(n) => n.try_into().ok(),
        AMQPValue::ShortUInt(n) => Some(n.into()),
        AMQPValue::LongInt(n) => n.try_into().ok(),
        AMQPValue::LongUInt(n) => Some(n),
        AMQPValue::LongLongInt(n) => n.try_into().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(properties: BasicProperties) -> Delivery {
        let mut message = lapin::message::Delivery::mock(1, "".into(), "".into(), false, b"{}".to_vec());
        message.properties = properties;
        Delivery::receive(Queue::Decode, &mut message)
    }

    #[test]
    fn what_is_sent_is_what_is_received() {
        let outgoing = Outgoing {
            queue: Queue::Decode,
            message_id: cards::Ids.message(),
            attempt: 7,
            traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned()),
            body: b"{}".to_vec(),
        };
        let delivery = received(properties(&outgoing).unwrap());
        assert_eq!(delivery.message_id, Some(outgoing.message_id));
        assert_eq!(delivery.attempt, 7);
        assert_eq!(delivery.trace_id().as_deref(), Some("0af7651916cd43dd8448eb211c80319c"));
        assert_eq!(delivery.body, b"{}");
    }

    #[test]
    fn a_message_without_our_headers_is_a_first_attempt() {
        let delivery = received(BasicProperties::default());
        assert_eq!((delivery.message_id, delivery.attempt, delivery.trace_id()), (None, 1, None));
        for value in [
            AMQPValue::LongInt(-3),
            AMQPValue::LongLongInt(0),
            AMQPValue::LongLongInt(i64::MAX),
            AMQPValue::LongString("4".into()),
        ] {
            let mut headers = FieldTable::default();
            headers.insert(ATTEMPT_HEADER.into(), value.clone());
            let properties =
                BasicProperties::default().with_message_id("not ours".into()).with_headers(headers);
            assert_eq!(received(properties).attempt, 1, "{value:?}");
        }
    }

    /// A retry row carries it, and a NUL in it could never be stored: such a message would be an outage for ever.
    #[test]
    fn a_traceparent_that_is_none_is_dropped() {
        for text in ["", "x", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0\0"] {
            let mut headers = FieldTable::default();
            headers.insert(TRACEPARENT_HEADER.into(), AMQPValue::LongString(text.into()));
            let properties = BasicProperties::default().with_headers(headers);
            assert_eq!(received(properties).traceparent, None, "{text:?}");
        }
    }

    #[test]
    fn a_dead_letter_keeps_its_headers_but_not_the_delivery_count() {
        let mut headers = FieldTable::default();
        headers.insert("minio-event".into(), AMQPValue::LongString("put".into()));
        headers.insert(DELIVERY_COUNT_HEADER.into(), AMQPValue::LongLongInt(3));
        let original = BasicProperties::default().with_message_id("id".into()).with_headers(headers);
        let copy = buried(&original, &[("x-arkiv-reason", AMQPValue::LongString("poison".into()))]);
        let names: Vec<_> =
            copy.headers().as_ref().unwrap().inner().keys().map(ShortString::as_str).collect();
        assert_eq!(names, ["minio-event", "x-arkiv-reason"]);
        assert_eq!(copy.message_id().as_ref().unwrap().as_str(), "id");
        assert_eq!(*copy.delivery_mode(), Some(PERSISTENT));
    }
}
