//! The decoder: reads an accepted upload in full, makes its previews, and promotes it to a permanent file.
//!
//! In: `card.decode` messages, a card id each. Out: a card that is `ready`, `duplicate` or `rejected`. The steps are those
//! of ARCHITECTURE.md "Decode":
//!
//! 1. lease the card (R-C1),
//! 2. GET the pinned version, bounded, hashing as it streams,
//! 3. magic bytes against the announced type,
//! 4. decode in a fresh child ([`child`]), with [`pipeline`],
//! 5. PUT the derivatives under the token,
//! 6. copy the pinned version to `files/<card>/<token>` and HEAD it,
//! 7. one transaction guarded by state and token: ready or duplicate, history, the purge that clears the source.
//!    **Commit point.** Zero rows: the same transaction asks for a purge instead,
//! 8. ack, by the consumer loop.
//!
//! Asked to stop, it lets a job go on for a while, then ends it and gives its lease back at once (R-I5).
//!
//! A crash before 7 leaves objects under a token nobody points at, and a lease that ends by itself; the next lease has
//! another token. A crash after 7 meets a card that can't be leased, and asks for a purge.

pub mod child;
mod decide;
mod error;
mod keeper;
pub mod pipeline;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use broker::{Delivery, Handler, Outcome, Reason};
use bytes::BytesMut;
use cards::retry::{Next, Schedule};
use cards::size::OBJECT_BYTES_MAX;
use cards::{Card, CardId, DerivedKey, FileKey, Ids, LeaseToken, ObjectFacts, Sha256, VersionId, timing};
use events::work::CardMessage;
use objects::{CopyObject, ObjectStore, PutObject};
use sha2::Digest;
use store::finish::{self, Accepted, Finished};
use store::lease::{self, Attempt, Leased};
use store::{Db, StoreError};
use tokio_util::sync::CancellationToken;

use child::{Children, MachineFault};
use decide::{Decision, Read};
pub use error::JobError;
use error::LeaseEnd;
use pipeline::Decoded;

/// How often a hand-in that met another worker's identical file begins anew (R-C6): each round that worker is locked
/// and seen, so a second round is rare and a fourth means something else is wrong.
const HAND_INS_MAX: u32 = 4;
/// Past a message's own deadline by this much, it comes again: a lease that was renewed meanwhile answers again.
const HELD_GRACE: chrono::TimeDelta = chrono::TimeDelta::seconds(1);
/// What originals are stored with: links override both, but an object must be harmless without them too (R-D2).
const ORIGINAL_DISPOSITION: &str = "attachment";
/// A version never changes.
const CACHE_CONTROL: &str = "private, max-age=31536000, immutable";

/// For the purge request or the lease that a failed job leaves: one short transaction.
const CLEAN_UP_WITHIN: Duration = Duration::from_secs(10);

/// A decoder's own times.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How often a lease is renewed (R-C1).
    pub renewal: Duration,
    /// How long a job may go on after shutdown. Below the consumer loop's drain limit: past that one the job is aborted,
    /// and nobody hears why.
    pub stop_within: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            renewal: timing::LEASE_RENEWAL.to_std().unwrap_or_default(),
            stop_within: Duration::from_secs(15),
        }
    }
}

/// Decodes cards.
pub struct Decoder {
    db: Db,
    objects: Arc<dyn ObjectStore>,
    children: Children,
    ids: Ids,
    shutdown: CancellationToken,
    pace: Pace,
}

impl Decoder {
    /// A decoder with its own pool of children. After `shutdown` jobs end within [`Pace::stop_within`].
    pub fn new(
        db: Db,
        objects: Arc<dyn ObjectStore>,
        children: Children,
        ids: Ids,
        shutdown: CancellationToken,
        pace: Pace,
    ) -> Arc<Self> {
        Arc::new(Self { db, objects, children, ids, shutdown, pace })
    }

    /// How long the consumer loop may let a message take: the job's own limit, and the hand-in.
    pub fn handler_timeout() -> Duration {
        timing::JOB_LIFE.to_std().unwrap_or_default() + Duration::from_secs(30)
    }

    /// Ends the children that wait for work; a message that still comes goes back. For when the consumer loop has ended.
    pub async fn shutdown(&self) {
        self.children.shutdown().await;
    }

    /// Step 1, then the job.
    async fn handle_card(&self, id: CardId) -> Outcome {
        let token = self.ids.lease();
        let asked_at = tokio::time::Instant::now();
        let leased = match self.lease(id, token).await {
            Ok(leased) => leased,
            // There is no lease, or nobody knows: it is left alone.
            Err(error) => return JobError::from(error).judge(&*self.objects).await.0,
        };
        match leased {
            Leased::Yes(card) => self.handle_leased(&card, token, asked_at).await,
            // Somebody else's work: again after its deadline, using no attempt (R-C1).
            Leased::Held { until } => {
                let reason = Reason::new("lease_held", format!("another worker has the card until {until}"));
                Outcome::Later { due: until + HELD_GRACE, reason }
            }
            // A repeat or a late message; the transaction asked for a purge (R-C1).
            Leased::Never(state) => {
                tracing::debug!(card.id = %id, %state, "a decode message came too late or twice");
                Outcome::Done
            }
            // Done: its dead letter is the message that counts, and a replay starts anew.
            Leased::Parked => {
                tracing::debug!(card.id = %id, "a decode message for a card that waits for a replay");
                Outcome::Done
            }
            // Its confirmation will write a message of its own.
            Leased::NotConfirmed => {
                tracing::warn!(card.id = %id, "a decode message for a card that is still pending");
                Outcome::Done
            }
            Leased::NotThere => Outcome::Dead(Reason::new("unknown_card", format!("no card {id}"))),
        }
    }

    async fn lease(&self, id: CardId, token: LeaseToken) -> Result<Leased, StoreError> {
        let mut tx = self.db.begin().await?;
        let leased = lease::take(&mut tx, self.ids, id, token).await?;
        tx.commit().await?;
        telemetry::kill::point("decode.after_lease");
        Ok(leased)
    }

    async fn handle_leased(
        &self,
        card: &Card,
        token: LeaseToken,
        leased_at: tokio::time::Instant,
    ) -> Outcome {
        // Crashes count as attempts too: they show on the card, not in the message (R-C1).
        if card.attempts > 1 && Schedule::Fault.after(card.attempts - 1) == Next::Exhausted {
            give_back(&self.db, card.id, token, Attempt::Refunded).await;
            let detail = format!("{} attempts ended without a result", card.attempts - 1);
            return Outcome::Dead(Reason::new("attempts_exhausted", detail));
        }
        let begun = Instant::now();
        let mut held = Held { db: self.db.clone(), card: card.id, token, is_over: false };
        let done = tokio::select! {
            biased;
            // A worker that lost its lease stops before its next store call; dropping the job kills its child.
            lost = keeper::keep(&self.db, card.id, token, leased_at, self.pace.renewal) => Err(lost),
            () = self.time_to_stop() => Err(JobError::Machine(MachineFault::ShutDown)),
            done = self.job(card, token) => done,
        };
        let (word, outcome) = match done {
            Ok(finished) => (decide::word(&finished), decide::outcome(card, finished)),
            Err(error) => {
                let (outcome, lease) = error.judge(&*self.objects).await;
                match lease {
                    LeaseEnd::GiveBack(attempt) => give_back(&self.db, card.id, token, attempt).await,
                    LeaseEnd::Purge => {
                        tracing::warn!(card.id = %card.id, "the lease was lost in mid-work; asking for a purge");
                        self.ask_purge(card.id, "lost_lease", &error).await;
                    }
                    LeaseEnd::Leave => {}
                }
                (error.code(), outcome)
            }
        };
        held.is_over = true;
        metrics::histogram!(
            telemetry::metric::DECODE_DURATION,
            "format" => card.announced.media_type.as_str(),
            "outcome" => word
        )
        .record(begun.elapsed().as_secs_f64());
        outcome
    }

    /// Ends when jobs must.
    async fn time_to_stop(&self) {
        self.shutdown.cancelled().await;
        tokio::time::sleep(self.pace.stop_within).await;
    }

    /// Steps 2 to 7.
    async fn job(&self, card: &Card, token: LeaseToken) -> Result<Finished, JobError> {
        let pinned = card.state.pinned().ok_or(JobError::NothingPinned(card.id))?;
        let (bytes, sha256) = self.read(card, pinned).await?;
        telemetry::kill::point("decode.after_get");
        let read = Read { announced: &card.announced, sha256, bytes: &bytes };
        // 3. Cheap refusals first: no child is spent on them.
        let decision = match decide::before_decoding(&read) {
            Some(problem) => Decision::Refuse(problem),
            // 4.
            None => decide::after_decoding(self.children.decode(card.announced.media_type, &bytes).await)?,
        };
        match decision {
            Decision::Refuse(problem) => {
                tracing::info!(card.id = %card.id, %problem, "rejected a file");
                let mut tx = self.db.begin().await?;
                let rejected =
                    finish::reject(&mut tx, self.ids, card.id, token, &problem, Some(sha256)).await?;
                tx.commit().await?;
                Ok(rejected)
            }
            Decision::Accept(decoded) => self.promote(card, pinned, token, sha256, decoded).await,
        }
    }

    /// Step 2.
    async fn read(&self, card: &Card, pinned: &VersionId) -> Result<(BytesMut, Sha256), JobError> {
        let key = card.source_key().to_string();
        let mut body = self.objects.get(&key, pinned, OBJECT_BYTES_MAX).await?;
        let mut digest = sha2::Sha256::new();
        let mut bytes =
            BytesMut::with_capacity(usize::try_from(card.announced.size.get()).unwrap_or_default());
        while let Some(chunk) = body.next_chunk().await {
            let chunk = chunk?;
            digest.update(&chunk);
            bytes.extend_from_slice(&chunk);
        }
        Ok((bytes, Sha256(digest.finalize().into())))
    }

    /// Steps 5 to 7.
    async fn promote(
        &self,
        card: &Card,
        pinned: &VersionId,
        token: LeaseToken,
        sha256: Sha256,
        decoded: Decoded,
    ) -> Result<Finished, JobError> {
        // 5.
        let mut derivatives = Vec::with_capacity(decoded.derivatives.len());
        for image in decoded.derivatives {
            let key = DerivedKey { card: card.id, token, name: image.name }.to_string();
            let size_bytes = image.bytes.len() as u64;
            let stored = self
                .objects
                .put(PutObject {
                    key: &key,
                    bytes: image.bytes.into(),
                    content_type: image.content_type,
                    content_disposition: None,
                    cache_control: Some(CACHE_CONTROL),
                })
                .await?;
            derivatives.push(cards::Derivative {
                name: image.name,
                content_type: image.content_type.to_owned(),
                width_px: image.width_px,
                height_px: image.height_px,
                size_bytes,
                version: stored.version,
            });
        }
        telemetry::kill::point("decode.after_derivatives");
        // 6. The HEAD of the copy is part of `copy`.
        let copy = self
            .objects
            .copy(CopyObject {
                from: &card.source_key().to_string(),
                from_version: pinned,
                if_match: None,
                to: &FileKey { card: card.id, token }.to_string(),
                content_type: decoded.facts.media_type.as_str(),
                content_disposition: Some(ORIGINAL_DISPOSITION),
                cache_control: Some(CACHE_CONTROL),
            })
            .await?;
        telemetry::kill::point("decode.after_copy");
        if copy.size_bytes != card.announced.size.get() {
            return Err(JobError::CopyDiffers {
                card: card.id,
                size_bytes: copy.size_bytes,
                expected_bytes: card.announced.size.get(),
            });
        }
        // 7.
        let object = ObjectFacts {
            token,
            version: copy.version,
            etag: copy.etag,
            sha256,
            // The database sets its own time.
            ready_at: card.updated_at,
        };
        let accepted = Accepted { card: card.id, object, facts: decoded.facts, derivatives };
        match self.hand_in(&accepted).await {
            Ok(finished) => Ok(finished),
            Err(error) => {
                self.compensate(card.id, &error).await;
                Err(error.into())
            }
        }
    }

    async fn hand_in(&self, accepted: &Accepted) -> Result<Finished, StoreError> {
        let mut finished = Finished::TryAgain;
        for _ in 0..HAND_INS_MAX {
            let mut tx = self.db.begin().await?;
            finished = finish::accept(&mut tx, self.ids, accepted).await?;
            if finished == Finished::TryAgain {
                tx.rollback().await?;
                continue;
            }
            telemetry::kill::point("decode.before_commit");
            tx.commit().await?;
            telemetry::kill::point("decode.after_commit");
            break;
        }
        Ok(finished)
    }

    /// A COMMIT that surely failed leaves a copy nobody points at: ask for a purge. Where its outcome is unknown nothing
    /// is asked: the copy may be the file (R-C5).
    async fn compensate(&self, id: CardId, error: &StoreError) {
        if !matches!(error, StoreError::CommitUnknown(_)) {
            self.ask_purge(id, "failed_commit", error).await;
        }
    }

    /// What can't be asked for is counted. The first error is the one that is reported (R-C5).
    async fn ask_purge(&self, id: CardId, reason: &str, first: &(dyn std::error::Error + Sync)) {
        let asked = clean_up(async {
            let mut tx = self.db.begin().await?;
            store::purge::request(&mut tx, self.ids, id, reason).await?;
            tx.commit().await
        });
        if let Err(second) = asked.await {
            metrics::counter!(telemetry::metric::FAILED_COMPENSATIONS).increment(1);
            tracing::warn!(card.id = %id, reason, %first, second, "could not ask for the purge of what a failed job stored");
        }
    }
}

/// A lease under a job that runs. Where the consumer loop aborts the job, as it does with one that outlives an outage's or a
/// shutdown's drain, the lease is given back and no attempt is used (R-C7, R-I5).
struct Held {
    db: Db,
    card: CardId,
    token: LeaseToken,
    is_over: bool,
}

impl Drop for Held {
    fn drop(&mut self) {
        // A panic is a crash, and counts as one (R-C1).
        if self.is_over || std::thread::panicking() {
            return;
        }
        // Without a runtime the process ends: the lease does by itself.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (db, card, token) = (self.db.clone(), self.card, self.token);
            // Guarded by the token: a hand-in that was committed after all has cleared it.
            runtime.spawn(async move { give_back(&db, card, token, Attempt::Refunded).await });
        }
    }
}

async fn give_back(db: &Db, id: CardId, token: LeaseToken, attempt: Attempt) {
    let given = clean_up(async {
        let mut tx = db.begin().await?;
        lease::give_back(&mut tx, id, token, attempt).await?;
        tx.commit().await
    });
    if let Err(error) = given.await {
        // The lease ends by itself; the janitor looks at the card then.
        tracing::debug!(card.id = %id, error, "could not give a lease back; it ends by itself");
    }
}

#[async_trait]
impl Handler for Decoder {
    async fn handle(&self, delivery: &Delivery) -> Outcome {
        match CardMessage::parse(&delivery.body) {
            Ok(message) => self.handle_card(message.card).await,
            Err(error) => Outcome::Dead(Reason::new("unparsable", error.to_string())),
        }
    }

    async fn probe(&self) -> bool {
        self.db.probe().await.is_ok() && objects::answers(&*self.objects).await
    }
}

/// Bounds a transaction that follows a failure: a silent database must not keep the failure from being told.
async fn clean_up(transaction: impl Future<Output = Result<(), StoreError>>) -> Result<(), String> {
    match tokio::time::timeout(CLEAN_UP_WITHIN, transaction).await {
        Ok(ended) => ended.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {CLEAN_UP_WITHIN:?}")),
    }
}
