//! The confirmer: a bucket's event becomes a confirmed card.
//!
//! In: deliveries of `card.confirm`, bucket events as they came. Out: cards moved from `pending` to `queued`, with their
//! decode message in the outbox. The steps are those of ARCHITECTURE.md "Confirm": 1 here, 2 to 5 in `intake` (**commit
//! point** in 5), 6 by the consumer loop, which acks when [`Handler::handle`] says `Done`.

mod decide;
mod error;

use std::sync::Arc;

use async_trait::async_trait;
use broker::{Delivery, Handler, Outcome, Reason};
use cards::retry::{Next, Schedule};
use events::bucket::{self, Created, EventVersion, Message, Scope, Verdict};
use futures::{FutureExt, StreamExt, stream};
use intake::Intake;
use store::StoreError;

use decide::Record;

/// Records of one message that are confirmed at once. Stores other than AWS send one record a message.
const RECORDS_AT_ONCE: usize = 16;

/// Confirms uploads from bucket events.
pub struct Confirmer {
    intake: Intake,
    bucket: String,
    prefix: String,
}

impl Confirmer {
    /// A confirmer for one bucket and the prefix that tickets allow.
    pub fn new(intake: Intake, bucket: impl Into<String>, prefix: impl Into<String>) -> Arc<Self> {
        Arc::new(Self { intake, bucket: bucket.into(), prefix: prefix.into() })
    }

    /// Steps 2 to 5 for one record.
    async fn record(&self, verdict: Verdict, attempt: u32) -> Record {
        let created = match verdict {
            Verdict::Created(created) => created,
            Verdict::Ignored(ignored) => {
                count(ignored.as_str());
                return Record::Done;
            }
            Verdict::Dead(reason) => {
                count("dead");
                return Record::Dead(Reason::new(reason.code(), reason.to_string()));
            }
        };
        match self.intake.by_event(&created).await {
            Ok(intake::Outcome::UnknownKey) => self.unknown_key(&created, attempt).await,
            Ok(outcome) => {
                let word = decide::word(&outcome);
                count(word);
                tracing::debug!(key = created.key, outcome = word, "followed a bucket event");
                Record::Done
            }
            Err(error) => error::record(&error, self.intake.objects()).await,
        }
    }

    /// R-B11: the card may not be there yet; after the last try the object is a stray.
    async fn unknown_key(&self, created: &Created, attempt: u32) -> Record {
        match Schedule::UnknownKey.after(attempt) {
            Next::After(_) => {
                Record::RetryOn(Schedule::UnknownKey, Reason::new("unknown_key", created.key.clone()))
            }
            Next::Exhausted => match self.record_stray(created).await {
                Ok(()) => {
                    count("stray");
                    metrics::counter!(telemetry::metric::STRAYS).increment(1);
                    tracing::warn!(key = created.key, "no card has this key; recorded it as a stray");
                    Record::Done
                }
                Err(error) => error::record(&error.into(), self.intake.objects()).await,
            },
        }
    }

    async fn record_stray(&self, created: &Created) -> Result<(), StoreError> {
        let version = match &created.version {
            EventVersion::Id(version) => version.as_str(),
            EventVersion::Absent | EventVersion::Null => "",
        };
        let mut connection = self.intake.db().acquire().await?;
        store::strays::record(&mut connection, &created.key, version, created.size_bytes).await
    }
}

#[async_trait]
impl Handler for Confirmer {
    async fn handle(&self, delivery: &Delivery) -> Outcome {
        // 1. Parse strictly, record by record.
        let verdicts =
            match bucket::parse(&delivery.body, &Scope { bucket: &self.bucket, prefix: &self.prefix }) {
                Message::Records(verdicts) => verdicts,
                Message::Test => {
                    count("test");
                    return Outcome::Done;
                }
                Message::Dead(reason) => {
                    count("dead");
                    return Outcome::Dead(Reason::new(reason.code(), reason.to_string()));
                }
            };
        // 2 to 5. Each record alone; the message ends as its worst record asks.
        let looks: Vec<_> =
            verdicts.into_iter().map(|verdict| self.record(verdict, delivery.attempt).boxed()).collect();
        let records: Vec<Record> = stream::iter(looks).buffer_unordered(RECORDS_AT_ONCE).collect().await;
        decide::outcome(records)
    }

    async fn probe(&self) -> bool {
        self.intake.db().probe().await.is_ok() && objects::answers(self.intake.objects()).await
    }
}

fn count(verdict: &'static str) {
    metrics::counter!(telemetry::metric::BUCKET_EVENTS, "verdict" => verdict).increment(1);
}
