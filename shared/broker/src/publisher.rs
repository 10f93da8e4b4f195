//! The relay's side: a batch of outbox rows in, one [`Published`] for each out.
//!
//! Steps of a batch: 1. publish all, mandatory and persistent; 2. await all confirms within the bound; 3. match
//! returns to rows. On a time-out, a blocked or a lost connection nothing is known of any row: the connection is
//! dropped, and the caller claims nothing until [`Publisher::ready`] answers again (DESIGN "Relay").
//!
//! A returned message is matched by its message id. lapin hands the returns of a channel to whichever confirm resolves
//! next (its `acknowledgement.rs`), and with one ack for many that is any row: believing it would lose one row and
//! send another twice.

use std::collections::HashMap;
use std::time::Duration;

use events::work::Outgoing;
use lapin::message::BasicReturnMessage;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::ShortString;
use lapin::{BasicProperties, Channel, Confirmation, Connection};

use crate::connection::{self, STEP_WITHIN, short, within};
use crate::topology::{CARD_WORK, declare_on};
use crate::waits::Waits;
use crate::{BrokerError, Settings, delivery};

/// A key nothing is bound to: what is published there is confirmed and dropped, unless publishers are blocked.
const PROBE_KEY: &str = "card.probe";
/// Not empty: the broker blocks a connection between a message's header and its body, so an empty one slips through.
const PROBE_BODY: &[u8] = b"probe";
/// A broker that is not blocked confirms in milliseconds.
const PROBE_WITHIN: Duration = Duration::from_secs(5);
/// How often a batch in flight looks whether the broker said "blocked".
const BLOCKED_LOOK: Duration = Duration::from_millis(50);

/// What the broker said of one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Published {
    /// It is in its queue, safely.
    Confirmed,
    /// No queue took it: `mandatory` brought it back (O-MQ-03).
    Returned {
        /// The broker's code.
        code: u16,
        /// The broker's text.
        text: String,
    },
    /// The broker could not take it, as when the queue is full.
    Refused,
}

/// Publishes outbox rows.
#[derive(Debug)]
pub struct Publisher {
    settings: Settings,
    link: Option<Link>,
    waits: Waits,
    /// The last attempt to connect or to publish failed: the next connection waits first.
    failed: bool,
}

impl Publisher {
    /// A publisher that is not connected yet.
    pub fn new(settings: Settings) -> Self {
        Self { settings, link: None, waits: Waits::new(), failed: false }
    }

    /// Returns once an unblocked connection with the topology declared stands. An error is one failed attempt: call
    /// again, the growing wait in between is in here. May be cancelled.
    pub async fn ready(&mut self) -> Result<(), BrokerError> {
        if self.link.as_ref().is_some_and(Link::stands) {
            return Ok(());
        }
        self.link = None;
        if self.failed {
            let wait = self.waits.next();
            tokio::time::sleep(wait).await;
        }
        self.failed = true;
        self.link = Some(Link::open(&self.settings, "publish").await?);
        self.failed = false;
        Ok(())
    }

    /// Publishes a batch and awaits every confirm within `within`. One answer for each row, in order; an error says
    /// nothing about any row. May be cancelled: that too drops the connection.
    pub async fn publish(
        &mut self,
        batch: &[Outgoing],
        within: Duration,
    ) -> Result<Vec<Published>, BrokerError> {
        // Taken out, and put back only when every confirm is in: no later batch can inherit a half-done one's answers.
        let link = self.link.take().filter(Link::stands).ok_or(BrokerError::NotReady)?;
        self.failed = true;
        let answers = tokio::select! {
            answers = connection::within("confirming a batch", within, link.publish_all(&self.settings, batch)) => answers??,
            () = link.blocked() => return Err(BrokerError::Blocked),
        };
        self.failed = false;
        self.waits.reset();
        self.link = Some(link);
        Ok(answers)
    }
}

/// A connection with one channel in confirm mode.
#[derive(Debug)]
pub(crate) struct Link {
    connection: Connection,
    channel: Channel,
}

impl Link {
    /// Connects, declares the topology, and proves that publishing is not blocked: a broker in alarm tells a
    /// connection so only after its first publish.
    pub(crate) async fn open(settings: &Settings, role: &str) -> Result<Self, BrokerError> {
        let connection = connection::connect(settings, role).await?;
        let channel = connection::channel(&connection).await?;
        declare_on(&channel, settings).await?;
        within("confirm mode", STEP_WITHIN, channel.confirm_select(ConfirmSelectOptions::default()))
            .await?
            .map_err(BrokerError::step("confirm mode"))?;
        let link = Self { connection, channel };
        let exchange = short(&settings.prefixed(CARD_WORK))?;
        let probe = link.publish(exchange, PROBE_KEY.into(), false, BasicProperties::default(), PROBE_BODY);
        match within("a probe", PROBE_WITHIN, probe).await {
            Ok(answer) => answer.map(|_| link),
            Err(_) if link.connection.status().blocked() => Err(BrokerError::Blocked),
            Err(timeout) => Err(timeout),
        }
    }

    /// A channel that is already in confirm mode.
    #[cfg(feature = "testing")]
    pub(crate) fn adopt(connection: Connection, channel: Channel) -> Self {
        Self { connection, channel }
    }

    /// Closes it.
    #[cfg(feature = "testing")]
    pub(crate) async fn close(&self) {
        connection::close(&self.connection).await;
    }

    /// Connected and not blocked.
    pub(crate) fn stands(&self) -> bool {
        let status = self.connection.status();
        status.connected() && !status.blocked() && self.channel.status().connected()
    }

    /// Ends when the broker says "blocked".
    async fn blocked(&self) {
        while !self.connection.status().blocked() {
            tokio::time::sleep(BLOCKED_LOOK).await;
        }
    }

    /// Publishes one message and awaits its confirm.
    pub(crate) async fn publish(
        &self,
        exchange: ShortString,
        key: ShortString,
        mandatory: bool,
        properties: BasicProperties,
        body: &[u8],
    ) -> Result<Published, BrokerError> {
        let options = BasicPublishOptions { mandatory, ..BasicPublishOptions::default() };
        let confirm = self
            .channel
            .basic_publish(exchange, key, options, body, properties)
            .await
            .map_err(BrokerError::step("publishing"))?;
        let (answer, returned) = answer(confirm.await.map_err(BrokerError::step("a confirm"))?);
        Ok(returned.map_or(answer, |message| came_back(&message)))
    }

    async fn publish_all(
        &self,
        settings: &Settings,
        batch: &[Outgoing],
    ) -> Result<Vec<Published>, BrokerError> {
        let exchange = short(&settings.prefixed(CARD_WORK))?;
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        // 1. All out.
        let mut confirms = Vec::with_capacity(batch.len());
        for row in batch {
            let properties = delivery::properties(row)?;
            let key = ShortString::from(row.queue.as_str());
            let publishing =
                self.channel.basic_publish(exchange.clone(), key, options, &row.body, properties);
            confirms.push(publishing.await.map_err(BrokerError::step("publishing"))?);
        }
        // 2. All answered.
        let mut answers = Vec::with_capacity(batch.len());
        let mut returns = HashMap::new();
        for confirm in confirms {
            let (answer, returned) = answer(confirm.await.map_err(BrokerError::step("a confirm"))?);
            answers.push(answer);
            if let Some(message) = returned {
                let id = message.properties.message_id().as_ref().map(ToString::to_string);
                returns.insert(id.unwrap_or_default(), came_back(&message));
            }
        }
        // 3. Returns to the rows they are of, whichever confirm carried them.
        let mut matched = 0;
        for (row, answer) in batch.iter().zip(&mut answers) {
            if let Some(returned) = returns.get(&row.message_id.to_string()) {
                *answer = returned.clone();
                matched += 1;
            }
        }
        if matched < returns.len() {
            let text = format!("{} returns, {matched} of this batch", returns.len());
            return Err(BrokerError::StrangeReturn { text });
        }
        Ok(answers)
    }
}

fn answer(confirmation: Confirmation) -> (Published, Option<BasicReturnMessage>) {
    match confirmation {
        // NotRequested cannot be: the channel is in confirm mode. If it were, nothing would be known: not confirmed.
        Confirmation::NotRequested => (Published::Refused, None),
        Confirmation::Ack(returned) => (Published::Confirmed, returned),
        Confirmation::Nack(returned) => (Published::Refused, returned),
    }
}

fn came_back(message: &BasicReturnMessage) -> Published {
    Published::Returned { code: message.reply_code, text: message.reply_text.to_string() }
}
