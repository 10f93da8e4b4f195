//! One connection to the broker: bounded in time, named, with heartbeats short enough to notice a dead peer.

use std::time::Duration;

use lapin::types::ShortString;
use lapin::uri::AMQPUri;
use lapin::{Channel, Connection, ConnectionProperties};

use crate::{BrokerError, Settings};

/// For the TCP and TLS handshakes and the AMQP greeting together.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// For one declaration, channel or cancel: each is one round trip.
pub(crate) const STEP_WITHIN: Duration = Duration::from_secs(10);
/// A peer that vanished without a word is given up after two of these.
const HEARTBEAT_SECONDS: u16 = 10;

/// Connects once. `role` tells apart the connections of one process.
pub(crate) async fn connect(settings: &Settings, role: &str) -> Result<Connection, BrokerError> {
    let mut uri: AMQPUri = settings.url.parse().map_err(|_| BrokerError::Url)?;
    uri.query.heartbeat.get_or_insert(HEARTBEAT_SECONDS);
    let name = format!("{} {role}", settings.name);
    let properties = ConnectionProperties::default().with_connection_name(name.into());
    within("connecting", CONNECT_WITHIN, Connection::connect_uri(uri, properties))
        .await?
        .map_err(BrokerError::Connect)
}

/// Opens a channel.
pub(crate) async fn channel(connection: &Connection) -> Result<Channel, BrokerError> {
    within("opening a channel", STEP_WITHIN, connection.create_channel())
        .await?
        .map_err(BrokerError::step("opening a channel"))
}

/// Closes politely, but does not wait long for somebody who may be gone. Whatever was unsettled goes back.
pub(crate) async fn close(connection: &Connection) {
    let polite = connection.close(lapin::protocol::constants::REPLY_SUCCESS, ShortString::from("bye"));
    if let Err(error) = tokio::time::timeout(Duration::from_secs(2), polite).await {
        tracing::debug!(%error, "the connection did not close in time and is dropped");
    }
}

/// A name as AMQP carries it.
pub(crate) fn short(text: &str) -> Result<ShortString, BrokerError> {
    ShortString::try_new(text).map_err(|_| BrokerError::TooLong(text.chars().take(80).collect()))
}

/// Bounds one step.
pub(crate) async fn within<T>(
    step: &'static str,
    within: Duration,
    future: impl Future<Output = T>,
) -> Result<T, BrokerError> {
    tokio::time::timeout(within, future).await.map_err(|_| BrokerError::Timeout { step, within })
}
