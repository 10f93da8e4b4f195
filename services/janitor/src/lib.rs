//! The janitor: every unfinished card is looked at when its time comes (INV-2, R-H1).
//!
//! In: cards whose `next_check_at` has come. Out: confirmed uploads whose event was lost, expired cards, fresh messages
//! for work that is overdue. Several janitors may run at once.
//!
//! 1. Claim due cards, SKIP LOCKED, and COMMIT: no transaction stays open over a store call. In it `queued` too long, dead
//!    leases and purges that are owed get a fresh outbox row, unless parked or unless one waits there already.
//! 2. For each `pending` card list its versions and confirm what fits, by the confirmer's own code (R-B9).
//! 3. Nothing fits: expire it, if the listing began at or after ticket end + 6 min (R-B7), else set the next look.
//!
//! A janitor that dies leaves its claimed cards due again a minute later.

mod decide;
pub mod reconcile;

use std::io;
use std::time::Duration;

use cards::{Card, ConfirmedBy, Ids, Timestamp};
use futures::{FutureExt, StreamExt, stream};
use intake::{Intake, IntakeError, Trouble};
use store::timer::{self, Claimed, Expired};
use store::{Db, StoreError};
use tokio_util::sync::CancellationToken;

use decide::After;

/// How the janitor works.
#[derive(Clone, Copy, Debug)]
pub struct JanitorSettings {
    /// Cards claimed at a time.
    pub batch_cards_max: i64,
    /// Cards whose versions are listed at once.
    pub looks_at_once: usize,
    /// How long it waits when nothing is due.
    pub pause: Duration,
}

impl Default for JanitorSettings {
    /// A claim lasts 60 s: 100 cards, 16 at once, are looked at well within it even at a second each.
    fn default() -> Self {
        Self { batch_cards_max: 100, looks_at_once: 16, pause: Duration::from_secs(1) }
    }
}

/// After a failure it waits this long; the cards it had claimed come again by themselves.
const FAILED_PAUSE: Duration = Duration::from_secs(5);

/// For one claim: twice the server's limit for a statement.
const CLAIM_WITHIN: Duration = Duration::from_secs(30);

/// Looks at cards.
pub struct Janitor {
    db: Db,
    intake: Intake,
    ids: Ids,
    settings: JanitorSettings,
}

/// What one round did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Cards claimed.
    pub claimed: usize,
    /// Uploads confirmed although their event was lost.
    pub confirmed: usize,
    /// Cards expired.
    pub expired: usize,
    /// Cards that got a fresh decode message.
    pub decodes: usize,
    /// Cards that got a fresh purge message.
    pub purges: usize,
}

impl Janitor {
    /// A janitor.
    pub fn new(db: Db, intake: Intake, ids: Ids, settings: JanitorSettings) -> Self {
        Self { db, intake, ids, settings }
    }

    /// Runs until `shutdown`; a round in hand is finished.
    pub async fn run(&self, shutdown: CancellationToken) {
        let mut failing = false;
        while !shutdown.is_cancelled() {
            let pause = match self.round().await {
                Ok(round) => {
                    failing = false;
                    let full = i64::try_from(round.claimed).is_ok_and(|n| n >= self.settings.batch_cards_max);
                    if full { Duration::ZERO } else { self.settings.pause }
                }
                Err(error) => {
                    if !failing {
                        tracing::warn!(%error, "the janitor waits; its cards stay due");
                    }
                    failing = true;
                    FAILED_PAUSE
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// One round. An error is an outage: what was not looked at comes again.
    pub async fn round(&self) -> Result<Round, IntakeError> {
        // 1.
        let claimed = self.claim().await?;
        if claimed.is_empty() {
            return Ok(Round::default());
        }
        telemetry::kill::point("janitor.after_claim");
        count("decode_enqueued", claimed.decodes.len());
        count("purge_enqueued", claimed.purges.len());
        count("parked", claimed.parked);
        count("waiting", claimed.waiting);
        count("unreadable", claimed.unreadable.len());
        let mut round = Round {
            claimed: claimed.due,
            decodes: claimed.decodes.len(),
            purges: claimed.purges.len(),
            ..Round::default()
        };
        if round.decodes + round.purges > 0 {
            let Round { decodes, purges, .. } = round;
            tracing::warn!(decodes, purges, "wrote fresh messages for overdue work");
        }
        // 2 and 3.
        let looks: Vec<_> = claimed.pending.iter().map(|card| self.look(card, claimed.at).boxed()).collect();
        let mut looks = stream::iter(looks).buffer_unordered(self.settings.looks_at_once);
        let mut outage = None;
        while let Some(looked) = looks.next().await {
            match looked {
                Ok(After::Confirmed) => round.confirmed += 1,
                Ok(After::Expired) => round.expired += 1,
                Ok(After::LookAgain | After::Moved) => {}
                Err(error) => outage = Some(error),
            }
        }
        outage.map_or(Ok(round), Err)
    }

    /// Step 1. A database that takes the statement and never answers is away, whatever the server's own limits.
    async fn claim(&self) -> Result<Claimed, StoreError> {
        tokio::time::timeout(CLAIM_WITHIN, self.claim_now()).await.unwrap_or_else(|_| {
            let silent = format!("a claim of due cards had no answer within {CLAIM_WITHIN:?}");
            Err(io::Error::new(io::ErrorKind::TimedOut, silent).into())
        })
    }

    async fn claim_now(&self) -> Result<Claimed, StoreError> {
        let mut tx = self.db.begin().await?;
        let claimed = timer::claim(&mut tx, self.ids, self.settings.batch_cards_max).await?;
        tx.commit().await?;
        Ok(claimed)
    }

    async fn look(&self, card: &Card, listed_at: Timestamp) -> Result<After, IntakeError> {
        // 2.
        let outcome = match self.intake.by_listing(card, ConfirmedBy::Sweep).await {
            Ok(outcome) => outcome,
            Err(error) => {
                return match error.trouble(self.intake.objects()).await {
                    Trouble::Outage => Err(error),
                    // One card's own trouble harms no other; its claim ends and it is looked at again.
                    Trouble::Fault | Trouble::Permanent => {
                        tracing::error!(card.id = %card.id, %error, "could not look at a card");
                        count("failed", 1);
                        Ok(After::LookAgain)
                    }
                };
            }
        };
        // 3.
        let after = decide::after(card.ticket.ends_at, &outcome, listed_at);
        let after = match after {
            After::Expired => self.expire(card, listed_at).await?,
            After::LookAgain => {
                let next = cards::timing::next_look(listed_at, card.ticket.ends_at, card.looks + 1);
                let mut connection = self.db.acquire().await?;
                timer::looked(&mut connection, card, next).await?;
                After::LookAgain
            }
            After::Confirmed | After::Moved => after,
        };
        count(after.as_str(), 1);
        Ok(after)
    }

    async fn expire(&self, card: &Card, listed_at: Timestamp) -> Result<After, StoreError> {
        let mut tx = self.db.begin().await?;
        let expired = timer::expire(&mut tx, self.ids, card, listed_at).await?;
        tx.commit().await?;
        Ok(match expired {
            Expired::Yes => {
                metrics::counter!(telemetry::metric::UPLOADS, "outcome" => "expired").increment(1);
                tracing::info!(card.id = %card.id, "a ticket ran out without an upload that fits");
                After::Expired
            }
            // Renewed or confirmed meanwhile: whoever did it set the next look.
            Expired::LostRace => After::Moved,
        })
    }
}

fn count(outcome: &'static str, cards: usize) {
    metrics::counter!(telemetry::metric::JANITOR_LOOKS, "outcome" => outcome).increment(cards as u64);
}
