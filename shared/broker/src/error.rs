//! What can go wrong between us and the broker. Never carries the URL: it holds a password.

use std::time::Duration;

/// A failure at the broker.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// The URL is no AMQP URL: no retry helps.
    #[error("the AMQP URL is not valid; it looks like amqp://user:password@host:5672/%2f")]
    Url,
    /// No connection came about.
    #[error("cannot connect to the broker")]
    Connect(#[source] lapin::Error),
    /// A name or header the protocol cannot carry.
    #[error("`{0}` is longer than the 255 bytes AMQP allows")]
    TooLong(String),
    /// The broker refused to declare, find or remove something.
    #[error("the broker refused {what} `{name}`")]
    Topology {
        /// exchange, queue or binding.
        what: &'static str,
        /// Its name at the broker.
        name: String,
        /// What the broker said.
        #[source]
        source: lapin::Error,
    },
    /// [`crate::topology::remove`] without a prefix would remove production's queues.
    #[error("topology is only removed under a prefix")]
    NoPrefix,
    /// A step failed on a connection that stood.
    #[error("{step} failed")]
    Step {
        /// What was tried.
        step: &'static str,
        /// What the broker or the connection said.
        #[source]
        source: lapin::Error,
    },
    /// No answer in time.
    #[error("{step} had no answer within {within:?}")]
    Timeout {
        /// What was tried.
        step: &'static str,
        /// The bound.
        within: Duration,
    },
    /// The broker holds publishers back (memory or disk alarm).
    #[error("the broker blocks publishers: it is short of memory or disk")]
    Blocked,
    /// [`crate::Publisher::publish`] without a [`crate::Publisher::ready`] that stands.
    #[error("there is no connection to publish on")]
    NotReady,
    /// A message came back that is none of the batch.
    #[error("the broker returned a message that was not sent: {text}")]
    StrangeReturn {
        /// Its reply text.
        text: String,
    },
    /// The broker ended the consumer: its queue was removed.
    #[error("the broker cancelled the consumer")]
    Cancelled,
}

impl BrokerError {
    /// The whole chain in one line, for logs.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut source = std::error::Error::source(self);
        // lapin's errors repeat their own source in their text, so one level says it all.
        if let Some(error) = source.take() {
            text = format!("{text}: {error}");
        }
        text
    }

    pub(crate) fn step(step: &'static str) -> impl FnOnce(lapin::Error) -> Self {
        move |source| Self::Step { step, source }
    }
}
