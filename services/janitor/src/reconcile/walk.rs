//! Steps 2 to 5: the walk, chunk by chunk. Memory holds one chunk and its cards.

use std::collections::BTreeSet;
use std::sync::Arc;

use cards::purge::{self, card_of};
use cards::{Card, CardId};
use futures::{FutureExt, StreamExt, stream};
use objects::{Chunk, Head, Walk};
use store::check::{self, Row};
use store::reconcile::{self, MissingObject, Run};
use store::strays;
use tokio_util::sync::CancellationToken;

use super::decide::{self, Cards};
use super::report::Phase;
use super::{ReconcileError, Reconciler, save_in};

/// Cards looked at by one statement where a range of keys has few or none: as many as a page of keys names.
const RANGE_CARDS_MAX: u32 = 1000;
/// Suspects asked for at once.
const HEADS_AT_ONCE: usize = 16;
/// Missing objects that are told one by one; past this it is one trouble, not many.
const MISSING_TOLD_MAX: usize = 100;
/// S3's limit for a key, and the column's.
const CURSOR_BYTES_MAX: usize = 1024;

impl Reconciler {
    /// From the run's cursor to the end of the last prefix.
    pub(super) async fn walk(
        &self,
        run: &mut Run,
        shutdown: &CancellationToken,
        tell: &mut (dyn FnMut(&Run, Phase) + Send),
    ) -> Result<(), ReconcileError> {
        if run.is_walked {
            return Ok(());
        }
        let mut walk = Walk::new(Arc::clone(&self.objects), run.cursor.clone());
        loop {
            if shutdown.is_cancelled() {
                return Err(ReconcileError::Stopped { run: run.id });
            }
            // 2.
            let Some(chunk) = walk.next().await? else { break };
            self.chunk(run, &chunk).await?;
            tell(run, Phase::Walking { prefix: chunk.prefix });
        }
        run.is_walked = true;
        self.save(run).await
    }

    async fn chunk(&self, run: &mut Run, chunk: &Chunk) -> Result<(), ReconcileError> {
        // 2: after the listing, never before it.
        let cards = self.cards_of(chunk).await?;
        // 3.
        let sorted = decide::sort(&chunk.versions, &cards);
        if sorted.unspeakable > 0 {
            tracing::error!(
                run = run.id,
                prefix = chunk.prefix,
                versions = sorted.unspeakable,
                "keys with a NUL: no card has such a key, and reconciliation can't remove it; remove it by hand"
            );
        }
        // 4.
        let missing = self.missing(run, chunk, &cards).await?;
        for object in &missing {
            if run.missing.len() < MISSING_TOLD_MAX {
                tracing::error!(
                    card.id = %object.card,
                    state = object.state,
                    key = object.key,
                    version = %object.version,
                    "a card points at an object that the store does not have"
                );
                run.missing.push(object.clone());
            }
        }
        // 5.
        run.counts.versions += sorted.counts.versions;
        run.counts.kept += sorted.counts.kept;
        run.counts.owed += sorted.counts.owed;
        run.counts.card_strays += sorted.counts.card_strays;
        run.counts.unknown += sorted.counts.unknown;
        run.counts.missing += missing.len() as u64;
        run.cursor = Some(cursor(&chunk.resume_after()));
        let mut tx = self.db.begin().await?;
        save_in(&mut tx, run).await?;
        if !sorted.seen.is_empty() {
            strays::see(&mut tx, run.id, &sorted.seen).await?;
        }
        Ok(tx.commit().await?)
    }

    async fn cards_of(&self, chunk: &Chunk) -> Result<Cards, ReconcileError> {
        let ids: BTreeSet<CardId> =
            chunk.versions.iter().filter_map(|version| card_of(&version.key)).collect();
        let ids: Vec<CardId> = ids.into_iter().collect();
        let rows = check::some(&mut *self.db.acquire().await?, &ids).await?;
        Ok(Cards::new(rows.at, rows.rows.into_iter().map(|row| (row.id, readable(row)))))
    }

    /// Step 4: what was listed names cards, and so do the cards in between, of which nothing was listed.
    async fn missing(
        &self,
        run: &Run,
        chunk: &Chunk,
        cards: &Cards,
    ) -> Result<Vec<MissingObject>, ReconcileError> {
        let mut missing = self.confirmed(decide::suspects(chunk, cards.readable())).await?;
        let Some(range) = decide::id_range(chunk) else { return Ok(missing) };
        let states = decide::pointing_states(chunk.prefix);
        let listed = cards.ids();
        let mut after = None;
        loop {
            let page = reconcile::in_range(
                &mut *self.db.acquire().await?,
                range,
                after,
                states,
                &listed,
                RANGE_CARDS_MAX,
            )
            .await?;
            let between: Vec<Card> = page.rows.into_iter().filter_map(readable).collect();
            missing.extend(self.confirmed(decide::suspects(chunk, between.iter())).await?);
            after = page.through;
            if after.is_none() {
                return Ok(missing);
            }
            // A bucket that lost much is looked at for long.
            self.save(run).await?;
        }
    }

    /// Those suspects that the store does not have and whose card, read after that answer, still points at them: a card
    /// stops pointing before anything is removed (INV-3).
    async fn confirmed(&self, suspects: Vec<MissingObject>) -> Result<Vec<MissingObject>, ReconcileError> {
        if suspects.is_empty() {
            return Ok(suspects);
        }
        let heads: Vec<_> = suspects.into_iter().map(|suspect| self.gone(suspect).boxed()).collect();
        let mut heads = stream::iter(heads).buffer_unordered(HEADS_AT_ONCE);
        let mut gone = Vec::new();
        while let Some(head) = heads.next().await {
            gone.extend(head?);
        }
        let ids: Vec<CardId> = gone.iter().map(|object: &MissingObject| object.card).collect();
        let now = check::some(&mut *self.db.acquire().await?, &ids).await?;
        let points_at: BTreeSet<_> =
            now.rows.into_iter().filter_map(readable).flat_map(|card| purge::references(&card)).collect();
        gone.retain(|object| points_at.contains(&(object.key.clone(), object.version.clone())));
        gone.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(gone)
    }

    /// The suspect itself, if the store says that it is not there.
    async fn gone(&self, suspect: MissingObject) -> Result<Option<MissingObject>, ReconcileError> {
        match self.objects.head(&suspect.key, Some(&suspect.version)).await {
            Ok(Head::Missing) => Ok(Some(suspect)),
            Ok(Head::Found(_)) => Ok(None),
            Err(error) if error.is_outage(&*self.objects).await => Err(error.into()),
            // Who can't be asked about is not missing (R-B8); one object's own trouble does not stop the walk.
            Err(error) => {
                tracing::error!(card.id = %suspect.card, %error, "could not ask for an object that was not listed");
                Ok(None)
            }
        }
    }
}

/// A card whose row can't be read is told and stands for itself: nothing of it is a stray, nothing of it is missing.
fn readable(row: Row) -> Option<Card> {
    row.card
        .inspect_err(|error| tracing::error!(card.id = %row.id, %error, "a card's row can't be read"))
        .ok()
}

/// A text that the column takes and that is not after the key: what lies between is done twice.
fn cursor(key: &str) -> String {
    let spoken = key.split('\0').next().unwrap_or_default();
    let mut end = spoken.len().min(CURSOR_BYTES_MAX);
    while !spoken.is_char_boundary(end) {
        end -= 1;
    }
    spoken.get(..end).unwrap_or_default().to_owned()
}
