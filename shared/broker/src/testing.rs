//! What tests need beside the public face: raw bucket events, and a look into queues.
//!
//! Everything here opens a connection of its own and closes it again.

use std::collections::BTreeMap;

use events::work::Queue;
use lapin::BasicProperties;
use lapin::options::{
    BasicAckOptions, BasicGetOptions, ConfirmSelectOptions, QueueDeclareOptions, QueuePurgeOptions,
};
use lapin::types::{AMQPValue, FieldTable};

use crate::connection::{self, short};
use crate::publisher::{Link, Published};
use crate::topology::{BUCKET_EVENTS, CARD_WORK};
use crate::{BrokerError, Settings, delivery};

/// A message as it lies in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its message id.
    pub message_id: Option<String>,
    /// Its headers, numbers as text; tables and arrays in their debug form.
    pub headers: BTreeMap<String, String>,
    /// Its body.
    pub body: Vec<u8>,
}

/// Publishes a bucket event as the store would. `settings` carries the store's URL; the topology must stand.
pub async fn publish_bucket_event(settings: &Settings, body: &[u8]) -> Result<Published, BrokerError> {
    let connection = connection::connect(settings, "test store").await?;
    let channel = connection::channel(&connection).await?;
    channel
        .confirm_select(ConfirmSelectOptions::default())
        .await
        .map_err(BrokerError::step("confirm mode"))?;
    let link = Link::adopt(connection, channel);
    let exchange = short(&settings.prefixed(BUCKET_EVENTS))?;
    let published = link.publish(exchange, "".into(), true, delivery::persistent_json(), body).await;
    link.close().await;
    published
}

/// Takes everything out of a queue, by its name in the table.
pub async fn take_all(settings: &Settings, queue: &str) -> Result<Vec<Found>, BrokerError> {
    let connection = connection::connect(settings, "test").await?;
    let channel = connection::channel(&connection).await?;
    let name = short(&settings.prefixed(queue))?;
    let mut found = Vec::new();
    while let Some(message) = channel
        .basic_get(name.clone(), BasicGetOptions::default())
        .await
        .map_err(BrokerError::step("basic.get"))?
    {
        message.acker.ack(BasicAckOptions::default()).await.map_err(BrokerError::step("basic.ack"))?;
        found.push(Found {
            message_id: message.properties.message_id().as_ref().map(ToString::to_string),
            headers: headers(&message.properties),
            body: message.delivery.data,
        });
    }
    connection::close(&connection).await;
    Ok(found)
}

/// Takes one message and lets go of it by closing the channel, as a worker that dies does. False: the queue is empty.
pub async fn take_one_and_die(settings: &Settings, queue: Queue) -> Result<bool, BrokerError> {
    let connection = connection::connect(settings, "test").await?;
    let channel = connection::channel(&connection).await?;
    let name = short(&settings.prefixed(queue.as_str()))?;
    let got =
        channel.basic_get(name, BasicGetOptions::default()).await.map_err(BrokerError::step("basic.get"))?;
    connection::close(&connection).await;
    Ok(got.is_some())
}

/// How many messages lie ready in a queue, by its name in the table.
pub async fn count(settings: &Settings, queue: &str) -> Result<u32, BrokerError> {
    let connection = connection::connect(settings, "test").await?;
    let channel = connection::channel(&connection).await?;
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::durable() };
    let found = channel
        .queue_declare(short(&settings.prefixed(queue))?, options, FieldTable::default())
        .await
        .map_err(BrokerError::step("looking"))?;
    connection::close(&connection).await;
    Ok(found.message_count())
}

/// Empties a queue, by its name in the table.
pub async fn purge(settings: &Settings, queue: &str) -> Result<(), BrokerError> {
    let connection = connection::connect(settings, "test").await?;
    let channel = connection::channel(&connection).await?;
    channel
        .queue_purge(short(&settings.prefixed(queue))?, QueuePurgeOptions::default())
        .await
        .map_err(BrokerError::step("purging"))?;
    connection::close(&connection).await;
    Ok(())
}

/// Removes the binding that brings work to a queue, so that messages to it come back.
pub async fn unbind(settings: &Settings, queue: Queue) -> Result<(), BrokerError> {
    let connection = connection::connect(settings, "test").await?;
    let channel = connection::channel(&connection).await?;
    channel
        .queue_unbind(
            short(&settings.prefixed(queue.as_str()))?,
            short(&settings.prefixed(CARD_WORK))?,
            queue.as_str().into(),
            FieldTable::default(),
        )
        .await
        .map_err(BrokerError::step("unbinding"))?;
    connection::close(&connection).await;
    Ok(())
}

#[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum; all else is shown in its debug form")]
fn headers(properties: &BasicProperties) -> BTreeMap<String, String> {
    let headers = properties.headers().iter().flat_map(FieldTable::inner);
    headers
        .map(|(name, value)| {
            let text = match value {
                AMQPValue::LongString(text) => text.to_string(),
                AMQPValue::LongLongInt(number) => number.to_string(),
                AMQPValue::LongInt(number) => number.to_string(),
                other => format!("{other:?}"),
            };
            (name.to_string(), text)
        })
        .collect()
}
