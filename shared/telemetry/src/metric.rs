//! Every metric, by name. Labels are bounded: never an id, a key or a text from outside.

/// What kind of metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Seconds, in buckets.
    Histogram,
}

/// A metric, described.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

macro_rules! metrics {
    ($($constant:ident = $name:literal, $kind:ident, [$($label:literal),*], $help:literal;)*) => {
        $(
            #[doc = $help]
            pub const $constant: &str = $name;
        )*

        /// Every metric.
        pub const ALL: &[Metric] = &[
            $(Metric { name: $constant, kind: Kind::$kind, labels: &[$($label),*], help: $help },)*
        ];
    };
}

metrics! {
    BUILD_INFO = "arkiv_build_info", Gauge, ["version"], "Always 1; the label says which version runs.";

    // From ticket to ready.
    UPLOADS = "arkiv_uploads_total", Counter, ["outcome"],
        "Cards that reached an end of their upload: ready, duplicate, rejected or expired.";
    TICKET_TO_READY = "arkiv_ticket_to_ready_seconds", Histogram, [],
        "From the ticket to the file being ready, the client's own time included.";
    CARDS = "arkiv_cards", Gauge, ["state"], "Cards in each state.";

    // Confirmation.
    BUCKET_EVENTS = "arkiv_bucket_events_total", Counter, ["verdict"],
        "Records of bucket notifications, by what they came to.";
    CONFIRMATIONS = "arkiv_confirmations_total", Counter, ["by"],
        "Uploads accepted, by what found them; by=\"sweep\" are events that were lost.";
    EVENT_HEAD_DISAGREEMENTS = "arkiv_event_head_disagreements_total", Counter, [],
        "Events whose size or entity tag HEAD did not bear out. HEAD counts.";
    STRAYS = "arkiv_strays_total", Counter, [], "Events for keys that no card has, after the last retry.";

    // Messages.
    MESSAGES = "arkiv_messages_total", Counter, ["queue", "outcome"],
        "Messages handled, by queue and what became of them: done, retry, later, dead, outage or stale.";
    MESSAGE_DURATION = "arkiv_message_duration_seconds", Histogram, ["queue"], "Time a handler took for a message.";
    QUEUE_MESSAGES = "arkiv_queue_messages", Gauge, ["queue"], "Messages ready in a queue.";
    CONSUMER_PAUSED = "arkiv_consumer_paused", Gauge, ["queue"],
        "1 while a consumer waits for a dependency that is out.";
    DEAD_LETTERS = "arkiv_dead_letters", Gauge, ["queue"], "Dead letters that nobody has dealt with.";
    DEAD_LETTER_OLDEST_AGE = "arkiv_dead_letter_oldest_age_seconds", Gauge, ["queue"],
        "Age of the oldest dead letter that nobody has dealt with.";

    // Outbox.
    OUTBOX_DEPTH = "arkiv_outbox_depth", Gauge, [], "Outbox rows that are due.";
    OUTBOX_OLDEST_AGE = "arkiv_outbox_oldest_age_seconds", Gauge, [],
        "How long the oldest due outbox row has been due.";
    PUBLISHED = "arkiv_published_total", Counter, ["result"],
        "Messages published from the outbox: confirmed, returned or refused.";

    // Decoding.
    DECODE_DURATION = "arkiv_decode_duration_seconds", Histogram, ["format", "outcome"],
        "Time a file's decoding took, by announced format and outcome.";

    // Janitor and removals (R-H5): each apart, for each has its own remedy.
    JANITOR_LOOKS = "arkiv_janitor_looks_total", Counter, ["outcome"],
        "Cards the janitor looked at, by what it did.";
    FAILED_COMPENSATIONS = "arkiv_failed_compensations_total", Counter, [],
        "Clean-ups after a failed step that failed too; what they left is a stray object.";
    VERSIONS_REMOVED = "arkiv_versions_removed_total", Counter, ["state"],
        "Object versions that a purge removed, by the state of the card that did not keep them.";
    FAILED_REMOVALS = "arkiv_failed_removals_total", Counter, [], "Object versions the store did not remove when asked.";
    STALE_SOURCES = "arkiv_stale_sources_total", Counter, [],
        "Uploads removed although their card had ended: surplus, late or refused versions.";
    RECONCILIATION_REMOVALS = "arkiv_reconciliation_removals_total", Counter, [],
        "Object versions of no card, removed by bucket reconciliation.";
    RECONCILIATIONS = "arkiv_reconciliations_total", Counter, ["verdict"],
        "Reconciliations that ended, by what they came to. Too many strays, or another database, is an alarm.";
    MISSING_OBJECTS = "arkiv_missing_objects", Gauge, [],
        "Objects that cards point at and the store does not have, as of the last reconciliation. Must be 0.";

    // HTTP.
    HTTP_REQUESTS = "arkiv_http_requests_total", Counter, ["method", "route", "status"],
        "Requests answered, by the route's pattern.";
    HTTP_REQUEST_DURATION = "arkiv_http_request_duration_seconds", Histogram, ["method", "route"],
        "Time a request took.";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_follow_the_conventions_of_prometheus() {
        for metric in ALL {
            assert!(metric.name.starts_with("arkiv_"), "{}", metric.name);
            assert!(
                metric.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
                "{}",
                metric.name
            );
            let ending = match metric.kind {
                Kind::Counter => "_total",
                Kind::Histogram => "_seconds",
                Kind::Gauge => "",
            };
            assert!(metric.name.ends_with(ending), "{}", metric.name);
            assert_eq!(metric.name.ends_with("_total"), metric.kind == Kind::Counter, "{}", metric.name);
        }
        let names: BTreeSet<_> = ALL.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), ALL.len());
    }
}
