//! The one table of exchanges, queues and bindings. Setup declares it, so does every connection, tests and docs read
//! it.
//!
//! `bucket.events` has no arguments, because MinIO declares it on every publish and both must agree (FACTS 1.3). There
//! is no alternate exchange: on `card.work` it would hide a return from the relay. Limits are explicit, since the
//! broker's defaults differ by version (FACTS 2, O-MQ-04), and overflow is always `reject-publish`: a full queue
//! refuses what comes, so that an outbox row or a dead letter stays where it was.

use lapin::options::{
    ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, ExchangeKind};

use crate::connection::{self, STEP_WITHIN, short, within};
use crate::{BrokerError, Settings};

/// The exchange the store's bucket events come to. Only the store's own user may write to it (R-B1).
pub const BUCKET_EVENTS: &str = "bucket.events";
/// The exchange our own messages go through; the routing key is the queue's name.
pub const CARD_WORK: &str = "card.work";

/// How an exchange routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// By the key's exact text.
    Direct,
    /// By patterns of the key.
    Topic,
}

/// A durable exchange without arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Its name.
    pub name: &'static str,
    /// How it routes.
    pub routing: Routing,
}

/// A durable quorum queue that refuses what goes beyond its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueRow {
    /// Its name.
    pub name: &'static str,
    /// Where its messages go after `deliveries_max`, at least once, through the default exchange: that way no binding
    /// can be missing. None for the dead-letter queues themselves.
    pub dead: Option<&'static str>,
    /// How often a message may come back before the broker dead-letters it.
    pub deliveries_max: i64,
    /// How many messages it holds.
    pub messages_max: i64,
    /// How many bytes of bodies it holds.
    pub bytes_max: i64,
}

/// What brings messages from an exchange to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// From.
    pub exchange: &'static str,
    /// With this routing key or pattern.
    pub key: &'static str,
    /// To.
    pub queue: &'static str,
}

/// The broker's own limit of redeliveries: far above our own attempts, which are counted in a header. It only ends
/// messages that kill their worker each time (R-I2).
const DELIVERIES_MAX: i64 = 20;
/// The collector of dead letters may come back to a message as often as it likes: RabbitMQ 4 would otherwise drop it
/// after 20 times, and 3.10 refuses to be told "never".
const DEAD_DELIVERIES_MAX: i64 = 1_000_000;
/// A day of events at more than ten a second with no consumer at all.
const MESSAGES_MAX: i64 = 1_000_000;
const BYTES_MAX: i64 = 1 << 30;
/// The collector empties these at once (R-I3); a flood beyond this waits in the work queue.
const DEAD_MESSAGES_MAX: i64 = 100_000;
const DEAD_BYTES_MAX: i64 = 256 << 20;

/// Every exchange.
pub const EXCHANGES: [Exchange; 2] = [
    Exchange { name: BUCKET_EVENTS, routing: Routing::Topic },
    Exchange { name: CARD_WORK, routing: Routing::Direct },
];

/// Every queue.
pub const QUEUES: [QueueRow; 6] = [
    work("card.confirm", "card.confirm.dead"),
    work("card.decode", "card.decode.dead"),
    work("card.purge", "card.purge.dead"),
    dead("card.confirm.dead"),
    dead("card.decode.dead"),
    dead("card.purge.dead"),
];

/// Every binding.
pub const BINDINGS: [Binding; 4] = [
    Binding { exchange: BUCKET_EVENTS, key: "#", queue: "card.confirm" },
    Binding { exchange: CARD_WORK, key: "card.confirm", queue: "card.confirm" },
    Binding { exchange: CARD_WORK, key: "card.decode", queue: "card.decode" },
    Binding { exchange: CARD_WORK, key: "card.purge", queue: "card.purge" },
];

const fn work(name: &'static str, dead: &'static str) -> QueueRow {
    QueueRow {
        name,
        dead: Some(dead),
        deliveries_max: DELIVERIES_MAX,
        messages_max: MESSAGES_MAX,
        bytes_max: BYTES_MAX,
    }
}

const fn dead(name: &'static str) -> QueueRow {
    QueueRow {
        name,
        dead: None,
        deliveries_max: DEAD_DELIVERIES_MAX,
        messages_max: DEAD_MESSAGES_MAX,
        bytes_max: DEAD_BYTES_MAX,
    }
}

/// One printable row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// exchange, queue or binding.
    pub what: &'static str,
    /// Its name.
    pub name: String,
    /// Its kind and arguments.
    pub detail: String,
}

/// The whole table in words, for docs and doctor.
pub fn table() -> Vec<Row> {
    let exchanges = EXCHANGES.iter().map(|exchange| {
        let kind = match exchange.routing {
            Routing::Direct => "direct",
            Routing::Topic => "topic",
        };
        Row {
            what: "exchange",
            name: exchange.name.to_owned(),
            detail: format!("{kind}, durable, no arguments"),
        }
    });
    let queues = QUEUES.iter().map(|queue| {
        let arguments =
            arguments("", queue).into_iter().map(|(name, value)| format!("{name}={}", shown(&value)));
        Row { what: "queue", name: queue.name.to_owned(), detail: arguments.collect::<Vec<_>>().join(" ") }
    });
    let bindings = BINDINGS.iter().map(|binding| Row {
        what: "binding",
        name: format!("{} -> {}", binding.exchange, binding.queue),
        detail: format!("key {}", binding.key),
    });
    exchanges.chain(queues).chain(bindings).collect()
}

/// What [`declare`] found or made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declared {
    /// How many exchanges.
    pub exchanges: usize,
    /// How many queues.
    pub queues: usize,
    /// How many bindings.
    pub bindings: usize,
}

/// Declares everything, on a connection of its own. Repeatable; fails where something of that name differs.
pub async fn declare(settings: &Settings) -> Result<Declared, BrokerError> {
    let connection = connection::connect(settings, "setup").await?;
    let channel = connection::channel(&connection).await?;
    let declared = declare_on(&channel, settings).await;
    connection::close(&connection).await;
    declared
}

/// Declares everything.
pub(crate) async fn declare_on(channel: &Channel, settings: &Settings) -> Result<Declared, BrokerError> {
    for exchange in &EXCHANGES {
        let name = settings.prefixed(exchange.name);
        let kind = match exchange.routing {
            Routing::Direct => ExchangeKind::Direct,
            Routing::Topic => ExchangeKind::Topic,
        };
        let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        let declaring = channel.exchange_declare(short(&name)?, kind, options, FieldTable::default());
        within("declaring", STEP_WITHIN, declaring).await?.map_err(refused("exchange", name))?;
    }
    for queue in &QUEUES {
        let name = settings.prefixed(queue.name);
        let mut table = FieldTable::default();
        for (argument, value) in arguments(&settings.prefix, queue) {
            table.insert(argument.into(), value);
        }
        let declaring = channel.queue_declare(short(&name)?, QueueDeclareOptions::durable(), table);
        within("declaring", STEP_WITHIN, declaring).await?.map_err(refused("queue", name))?;
    }
    for binding in &BINDINGS {
        let (queue, exchange) = (settings.prefixed(binding.queue), settings.prefixed(binding.exchange));
        let binding = channel.queue_bind(
            short(&queue)?,
            short(&exchange)?,
            binding.key.into(),
            QueueBindOptions::default(),
            FieldTable::default(),
        );
        let name = format!("{exchange} -> {queue}");
        within("declaring", STEP_WITHIN, binding).await?.map_err(refused("binding", name))?;
    }
    Ok(Declared { exchanges: EXCHANGES.len(), queues: QUEUES.len(), bindings: BINDINGS.len() })
}

/// Removes everything under a prefix. For tests.
pub async fn remove(settings: &Settings) -> Result<(), BrokerError> {
    if settings.prefix.is_empty() {
        return Err(BrokerError::NoPrefix);
    }
    let connection = connection::connect(settings, "remove").await?;
    let channel = connection::channel(&connection).await?;
    for queue in &QUEUES {
        let name = settings.prefixed(queue.name);
        let removing = channel.queue_delete(short(&name)?, QueueDeleteOptions::default());
        within("removing", STEP_WITHIN, removing).await?.map_err(refused("queue", name))?;
    }
    for exchange in &EXCHANGES {
        let name = settings.prefixed(exchange.name);
        let removing = channel.exchange_delete(short(&name)?, ExchangeDeleteOptions::default());
        within("removing", STEP_WITHIN, removing).await?.map_err(refused("exchange", name))?;
    }
    connection::close(&connection).await;
    Ok(())
}

/// How full a queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// Its name in the table.
    pub queue: &'static str,
    /// Messages no consumer holds.
    pub ready: u32,
    /// Its consumers.
    pub consumers: u32,
}

/// How full every queue is. Declares nothing: a queue that is missing is an error.
pub async fn depth(settings: &Settings) -> Result<Vec<Depth>, BrokerError> {
    let connection = connection::connect(settings, "depth").await?;
    let channel = connection::channel(&connection).await?;
    let mut depths = Vec::with_capacity(QUEUES.len());
    for queue in &QUEUES {
        let name = settings.prefixed(queue.name);
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::durable() };
        let looking = channel.queue_declare(short(&name)?, options, FieldTable::default());
        let found = within("looking", STEP_WITHIN, looking).await?.map_err(refused("queue", name))?;
        depths.push(Depth {
            queue: queue.name,
            ready: found.message_count(),
            consumers: found.consumer_count(),
        });
    }
    connection::close(&connection).await;
    Ok(depths)
}

/// The arguments a queue is declared with.
fn arguments(prefix: &str, queue: &QueueRow) -> Vec<(&'static str, AMQPValue)> {
    let text = |text: &str| AMQPValue::LongString(text.into());
    let mut arguments = vec![
        ("x-queue-type", text("quorum")),
        ("x-delivery-limit", AMQPValue::LongLongInt(queue.deliveries_max)),
        ("x-max-length", AMQPValue::LongLongInt(queue.messages_max)),
        ("x-max-length-bytes", AMQPValue::LongLongInt(queue.bytes_max)),
        ("x-overflow", text("reject-publish")),
    ];
    if let Some(dead) = queue.dead {
        arguments.extend([
            ("x-dead-letter-exchange", text("")),
            ("x-dead-letter-routing-key", text(&format!("{prefix}{dead}"))),
            ("x-dead-letter-strategy", text("at-least-once")),
        ]);
    }
    arguments
}

#[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum; only these two stand in the table")]
fn shown(value: &AMQPValue) -> String {
    match value {
        AMQPValue::LongString(text) => format!("{:?}", text.to_string()),
        AMQPValue::LongLongInt(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

fn refused(what: &'static str, name: String) -> impl FnOnce(lapin::Error) -> BrokerError {
    move |source| BrokerError::Topology { what, name, source }
}

#[cfg(test)]
mod tests {
    use events::work::Queue;

    use super::*;

    #[test]
    fn every_work_queue_is_bound_by_its_name_and_has_a_dead_letter_queue() {
        for queue in Queue::ALL {
            let row = QUEUES.iter().find(|row| row.name == queue.as_str()).unwrap();
            assert_eq!(row.dead, Some(format!("{queue}.dead").as_str()));
            assert!(QUEUES.iter().any(|dead| Some(dead.name) == row.dead && dead.dead.is_none()));
            assert!(BINDINGS.contains(&Binding {
                exchange: CARD_WORK,
                key: queue.as_str(),
                queue: queue.as_str(),
            }));
        }
        assert_eq!(QUEUES.len(), 2 * Queue::ALL.len());
    }

    #[test]
    fn a_full_queue_refuses_and_never_drops() {
        for queue in &QUEUES {
            let arguments = arguments("t.", queue);
            let value = |name: &str| arguments.iter().find(|(n, _)| *n == name).map(|(_, v)| shown(v));
            assert_eq!(value("x-overflow").as_deref(), Some(r#""reject-publish""#), "{}", queue.name);
            assert_eq!(value("x-queue-type").as_deref(), Some(r#""quorum""#));
            assert!(value("x-delivery-limit").is_some() && value("x-max-length-bytes").is_some());
            if let Some(dead) = queue.dead {
                assert_eq!(value("x-dead-letter-routing-key"), Some(format!("\"t.{dead}\"")));
                assert_eq!(value("x-dead-letter-strategy").as_deref(), Some(r#""at-least-once""#));
            }
        }
    }

    #[test]
    fn the_table_has_a_row_for_everything() {
        let rows = table();
        assert_eq!(rows.len(), EXCHANGES.len() + QUEUES.len() + BINDINGS.len());
        assert!(
            rows.iter()
                .any(|row| row.name == "bucket.events" && row.detail == "topic, durable, no arguments")
        );
        assert!(
            rows.iter().any(|row| row.name == "card.decode" && row.detail.contains("x-delivery-limit=20"))
        );
    }
}
