//! Group commit: decided cards are written many at a time.
//!
//! A group closes after a few milliseconds or when it is full. Its cards are locked in id order and guarded each on its
//! own; a group that fails for any reason but an outage is bisected, so that one bad card never blocks the rest. Two
//! decisions for one card never share a group: the second has lost its race and is read again.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use cards::confirm::Refusal;
use cards::{CardId, Ids};
use futures::future::BoxFuture;
use store::confirm::{Confirmation, Refused};
use store::{Db, StoreError, StoreErrorKind};
use tokio::sync::{Mutex, mpsc, oneshot};

use crate::IntakeError;

/// How groups are made.
#[derive(Clone, Copy, Debug)]
pub struct GroupSettings {
    /// Cards in a group at most.
    pub cards_max: usize,
    /// How long the first card of a group waits for others.
    pub wait: Duration,
    /// Groups that commit at once, each on a connection of its own.
    pub committers: usize,
}

impl Default for GroupSettings {
    /// 100 cards or 5 ms, two committers: past that the database gains nothing (FACTS 4.2).
    fn default() -> Self {
        Self { cards_max: 100, wait: Duration::from_millis(5), committers: 2 }
    }
}

/// What is to be written for one card.
#[derive(Clone, Debug)]
pub(crate) enum Decided {
    /// Pin a version.
    Confirm(Confirmation),
    /// Refuse versions.
    Refuse { card: CardId, revision: i64, refusals: Vec<Refusal> },
}

impl Decided {
    fn card(&self) -> CardId {
        match self {
            Self::Confirm(confirmation) => confirmation.card,
            Self::Refuse { card, .. } => *card,
        }
    }
}

/// What came of writing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Committed {
    Confirmed,
    Refused(Refused),
    LostRace,
}

struct Waiting {
    decided: Decided,
    answer: oneshot::Sender<Result<Committed, IntakeError>>,
}

/// Hands decisions to the committers.
#[derive(Clone)]
pub(crate) struct Committer {
    queue: mpsc::Sender<Waiting>,
}

impl Committer {
    pub(crate) fn spawn(db: &Db, ids: Ids, settings: GroupSettings) -> Self {
        // As many may wait as one group more than is being committed: past that the callers wait here, not in memory.
        let (queue, waiting) = mpsc::channel(settings.cards_max * (settings.committers + 1));
        let waiting = Arc::new(Mutex::new(waiting));
        for _ in 0..settings.committers {
            tokio::spawn(run(db.clone(), ids, settings, Arc::clone(&waiting)));
        }
        Self { queue }
    }

    pub(crate) async fn commit(&self, decided: Decided) -> Result<Committed, IntakeError> {
        let (answer, answered) = oneshot::channel();
        self.queue.send(Waiting { decided, answer }).await.map_err(|_| IntakeError::Stopped)?;
        answered.await.map_err(|_| IntakeError::Stopped)?
    }
}

async fn run(db: Db, ids: Ids, settings: GroupSettings, waiting: Arc<Mutex<mpsc::Receiver<Waiting>>>) {
    loop {
        // One committer gathers while the others commit.
        let group = gather(&mut *waiting.lock().await, settings).await;
        if group.is_empty() {
            return;
        }
        // In a task of its own: a panic costs this group, not its committer.
        let (db, ids) = (db.clone(), ids);
        let decided: Vec<Decided> = group.iter().map(|waiting| waiting.decided.clone()).collect();
        let answers = contained(group.len(), async move { commit_group(&db, ids, &decided).await }).await;
        for (waiting, answer) in group.into_iter().zip(answers) {
            // A caller that is gone needs no answer.
            let _ = waiting.answer.send(answer);
        }
    }
}

/// The next group; empty when every caller is gone.
async fn gather(waiting: &mut mpsc::Receiver<Waiting>, settings: GroupSettings) -> Vec<Waiting> {
    let Some(first) = waiting.recv().await else { return Vec::new() };
    let mut group = vec![first];
    let closes = tokio::time::sleep(settings.wait);
    tokio::pin!(closes);
    while group.len() < settings.cards_max {
        tokio::select! {
            biased;
            next = waiting.recv() => match next {
                Some(next) => group.push(next),
                None => break,
            },
            () = &mut closes => break,
        }
    }
    group
}

/// Runs a group in a task of its own; one that panics answers each of its members with a fault.
async fn contained(
    members: usize,
    group: impl Future<Output = Vec<Result<Committed, IntakeError>>> + Send + 'static,
) -> Vec<Result<Committed, IntakeError>> {
    tokio::spawn(group).await.unwrap_or_else(|error| {
        tracing::error!(%error, cards = members, "a group of confirmations panicked");
        (0..members).map(|_| Err(IntakeError::Panicked)).collect()
    })
}

/// An answer for each decision, in their order.
async fn commit_group(db: &Db, ids: Ids, decided: &[Decided]) -> Vec<Result<Committed, IntakeError>> {
    let mut seen = HashSet::new();
    let first: Vec<bool> = decided.iter().map(|decided| seen.insert(decided.card())).collect();
    let group: Vec<Decided> =
        decided.iter().zip(&first).filter(|(_, first)| **first).map(|(decided, _)| decided.clone()).collect();
    let mut answers = bisect(db, ids, &group).await.into_iter();
    first
        .into_iter()
        .map(|first| {
            if first { answers.next().unwrap_or(Err(IntakeError::Panicked)) } else { Ok(Committed::LostRace) }
        })
        .collect()
}

/// Commits a group, and its halves each on its own where it fails. An outage fails all of it at once: halves would only
/// knock on the same closed door.
fn bisect<'a>(
    db: &'a Db,
    ids: Ids,
    group: &'a [Decided],
) -> BoxFuture<'a, Vec<Result<Committed, IntakeError>>> {
    Box::pin(async move {
        match write(db, ids, group).await {
            Ok(answers) => answers.into_iter().map(Ok).collect(),
            Err(error) if group.len() == 1 || error.kind() == StoreErrorKind::Outage => {
                let error = Arc::new(error);
                group.iter().map(|_| Err(IntakeError::Store(Arc::clone(&error)))).collect()
            }
            Err(error) => {
                tracing::warn!(%error, cards = group.len(), "a group of confirmations failed; halving it");
                let (left, right) = group.split_at(group.len() / 2);
                let mut answers = bisect(db, ids, left).await;
                answers.extend(bisect(db, ids, right).await);
                answers
            }
        }
    })
}

/// Step 5 for a group: one transaction.
async fn write(db: &Db, ids: Ids, group: &[Decided]) -> Result<Vec<Committed>, StoreError> {
    let confirmations: Vec<Confirmation> = group
        .iter()
        .filter_map(|decided| match decided {
            Decided::Confirm(confirmation) => Some(confirmation.clone()),
            Decided::Refuse { .. } => None,
        })
        .collect();
    // Each kind is locked by id. A group with both may still meet another in the opposite order: PostgreSQL then ends one
    // of them as a deadlock, which is contention, and its halves are written anew.
    let mut refusals: Vec<(CardId, i64, &[Refusal])> = group
        .iter()
        .filter_map(|decided| match decided {
            Decided::Confirm(_) => None,
            Decided::Refuse { card, revision, refusals } => Some((*card, *revision, refusals.as_slice())),
        })
        .collect();
    refusals.sort_by_key(|(card, ..)| *card);

    let mut tx = db.begin().await?;
    let confirmed = store::confirm::confirm(&mut tx, ids, &confirmations).await?;
    let mut refused = Vec::with_capacity(refusals.len());
    for (card, revision, refusals) in refusals {
        refused.push((card, store::confirm::refuse(&mut tx, ids, card, revision, refusals).await?));
    }
    telemetry::kill::point("confirm.before_commit");
    tx.commit().await?;
    telemetry::kill::point("confirm.after_commit");

    Ok(group
        .iter()
        .map(|decided| match decided {
            Decided::Confirm(confirmation) if confirmed.contains(&confirmation.card) => Committed::Confirmed,
            Decided::Confirm(_) => Committed::LostRace,
            Decided::Refuse { card, .. } => refused
                .iter()
                .find(|(of, _)| of == card)
                .map_or(Committed::LostRace, |(_, refused)| Committed::Refused(*refused)),
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_group_that_panics_answers_each_of_its_members_and_ends_no_committer() {
        let answers = contained(3, async { panic!("a bug") }).await;
        assert_eq!(answers.len(), 3);
        assert!(answers.iter().all(|answer| matches!(answer, Err(IntakeError::Panicked))), "{answers:?}");
    }
}
