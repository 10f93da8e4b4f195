//! Moves a message to its dead-letter queue: published with reason and error, confirmed, and only then acked by the
//! caller (R-I2).
//!
//! On a connection of its own, made when first needed: the broker holds back a connection that publishes when it is
//! short of memory, and acks on it too. One message at a time, so that a return can only be of this message.

use std::time::Duration;

use events::work::{DEAD_ERROR_HEADER, DEAD_REASON_HEADER};
use lapin::types::AMQPValue;
use lapin::types::ShortString;
use tokio::sync::Mutex;

use crate::connection::{short, within};
use crate::publisher::{Link, Published};
use crate::settle::Message;
use crate::{BrokerError, Reason, Settings, delivery};

const CONFIRM_WITHIN: Duration = Duration::from_secs(10);
/// An error text longer than this helps nobody, and headers must fit one frame.
const ERROR_BYTES_MAX: usize = 2048;

/// The way to the dead-letter queues.
#[derive(Debug)]
pub(crate) struct DeadLetters {
    settings: Settings,
    link: Mutex<Option<Link>>,
}

impl DeadLetters {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { settings, link: Mutex::new(None) }
    }

    /// Publishes a copy and awaits the confirm. Whatever is not a plain confirm drops the connection.
    pub(crate) async fn bury(&self, message: &Message, reason: &Reason) -> Result<Published, BrokerError> {
        let mut slot = self.link.lock().await;
        // Taken out while in use: cancelled in between, it is dropped and not used again.
        let link = match slot.take().filter(Link::stands) {
            Some(link) => link,
            None => Link::open(&self.settings, "dead letters").await?,
        };
        let key = short(&self.settings.prefixed(&format!("{}.dead", message.delivery.queue)))?;
        let text = |text: &str| AMQPValue::LongString(text.into());
        let added = [
            (DEAD_REASON_HEADER, text(reason.code)),
            (DEAD_ERROR_HEADER, text(cut(&reason.detail, ERROR_BYTES_MAX))),
        ];
        let properties = delivery::buried(&message.properties, &added);
        let publishing = link.publish(ShortString::from(""), key, true, properties, &message.delivery.body);
        let published = within("a dead letter", CONFIRM_WITHIN, publishing).await??;
        if published == Published::Confirmed {
            *slot = Some(link);
        }
        Ok(published)
    }
}

/// At most `bytes_max` bytes of a text, cut between characters.
fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_error_is_cut_between_characters() {
        assert_eq!(cut("abc", 10), "abc");
        assert_eq!(cut("äöü", 3), "ä");
        assert_eq!(cut("äöü", 4), "äö");
    }
}
