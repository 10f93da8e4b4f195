//! All AMQP, and the only crate that knows lapin.
//!
//! - [`topology`]: the one table of exchanges, queues and bindings; declared by setup, and again on every connection,
//!   so that a wiped broker is whole again before the first message (R-I1).
//! - [`Publisher`]: the relay's side. A batch goes out, every confirm is awaited within a bound; an error means that
//!   nothing is known of any row (R-I1, INV-2).
//! - [`consume`]: the workers' side. It owns connecting, parsing, span, time limit, panics, attempts, settling and
//!   draining; a [`Handler`] only turns a [`Delivery`] into an [`Outcome`] (DESIGN "Broker").
//!
//! lapin's own recovery is off: a connection that broke is dropped and a new one made, with the topology declared
//! anew. Recovery would keep channels whose delivery tags no longer mean anything, and gives up after 16 tries.

mod acks;
mod connection;
mod consumer;
mod dead;
mod delivery;
mod error;
mod handler;
mod publisher;
mod settle;
#[cfg(feature = "testing")]
pub mod testing;
pub mod topology;
mod waits;

use std::fmt;

pub use consumer::{Limits, consume, consume_and_report};
pub use delivery::Delivery;
pub use error::BrokerError;
pub use handler::{Due, Handler, Ledger, LedgerError, Outcome, Reason, Retry};
pub use publisher::{Published, Publisher};

/// How to reach the broker.
#[derive(Clone)]
pub struct Settings {
    /// `amqp://user:password@host:port/vhost`; carries a password, so it is never printed.
    pub url: String,
    /// Stands before every exchange and queue name: empty in production, one of its own in each test.
    pub prefix: String,
    /// The connection's name, as the broker's operators see it.
    pub name: String,
}

impl Settings {
    /// A name in the table as it is at the broker.
    pub(crate) fn prefixed(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("url", &masked(&self.url))
            .field("prefix", &self.prefix)
            .field("name", &self.name)
            .finish()
    }
}

/// The URL with its password replaced. What does not look like a URL is not shown at all.
fn masked(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "***".to_owned() };
    // The last `@`: a password that was not percent-encoded may hold one, and must not show.
    match rest.rsplit_once('@') {
        Some((userinfo, host)) => {
            let user = userinfo.split_once(':').map_or(userinfo, |(user, _)| user);
            format!("{scheme}://{user}:***@{host}")
        }
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_printed() {
        for url in
            ["amqp://arkiv:hunter2@host:5672/%2f", "amqps://arkiv:hunter2@@host/%2f", "arkiv:hunter2@host"]
        {
            let settings = Settings { url: url.to_owned(), prefix: String::new(), name: "relay".to_owned() };
            let shown = format!("{settings:?}");
            assert!(!shown.contains("hunter2"), "{shown}");
        }
        assert_eq!(masked("amqp://arkiv:hunter2@host:5672/%2f"), "amqp://arkiv:***@host:5672/%2f");
    }
}
