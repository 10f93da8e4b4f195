//! `arkiv fsck`: does the bucket hold what the cards say, and is nothing forgotten (R-H4)?
//!
//! In: the database as the workers' role, the bucket as the workers' identity. Out: a [`Report`]. Nothing is written
//! anywhere. A dependency that does not answer is an error ([`FsckError::is_outage`]), never a finding.
//!
//! 1. The bucket, chunk by chunk under our three prefixes. The cards of the listed keys are read **after** the listing: a
//!    version that its card does not keep is a stray (R-H2). Beside it go the references of all cards in key order: one that
//!    is not listed, or not as its card records it, is suspect (R-H3, INV-1, INV-3).
//! 2. The cards, page by page: rows that say of themselves that something is forgotten or stuck (INV-2).
//! 3. The outbox, a line a queue (INV-2).
//! 4. The system runs on meanwhile, so all of that is only suspicion. A second later each suspect is read again, the store
//!    first and the database second, and counts if both still say so ([`Kind`] has the list).
//!
//! Memory is flat: a chunk, a page of cards, a thousand suspects, a thousand findings of a kind.

mod expected;
mod judge;
mod kind;
mod live;
mod report;
mod reread;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cards::key::{DERIVED_PREFIX, FILE_PREFIX, SOURCE_PREFIX};
use cards::purge::{KeepSet, card_of};
use cards::{CardId, StateName};
use objects::{DELETE_BATCH_MAX, ErrorKind, ListedVersion, ObjectError, ObjectStore, Walk};
use store::check::Waiting;
use store::{Db, StoreError, StoreErrorKind};
use tokio::time::Instant;

pub use self::kind::{Class, KINDS, Kind, KindRow};
pub use self::live::Live;
pub use self::report::{Checked, FINDINGS_MAX, Finding, Report};

use self::expected::Expected;
use self::judge::Standing;
use self::reread::Suspect;

/// Cards read at once.
const PAGE_CARDS: u32 = 1000;
/// Suspects that are held until they are read again.
const SUSPECTS_MAX: usize = 1000;
/// The relay pushes a row back with doubling waits: this often is half a minute of them.
const RETURNED_TIMES: i32 = 5;

/// What is checked, and how.
#[derive(Clone, Debug)]
pub struct FsckSettings {
    /// Only this card.
    pub card: Option<CardId>,
    /// The least time between the two readings of a finding.
    pub reread_after: Duration,
}

impl Default for FsckSettings {
    fn default() -> Self {
        Self { card: None, reread_after: Duration::from_secs(1) }
    }
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum FsckError {
    /// The database.
    #[error("fsck broke off")]
    Store(#[from] StoreError),
    /// The store. What could not be asked about is not missing.
    #[error("fsck broke off, and nothing follows about any object")]
    Objects(#[from] ObjectError),
    /// `--card` names a card that is not there, and nothing lies under its keys.
    #[error("there is no card {0}, and the bucket holds nothing of it")]
    NoSuchCard(CardId),
}

impl FsckError {
    /// Whether trying later may help: a dependency did not answer, or turned us away.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Store(error) => match error.kind() {
                StoreErrorKind::Outage => true,
                StoreErrorKind::Fault | StoreErrorKind::Permanent => false,
            },
            Self::Objects(error) => match error.kind() {
                ErrorKind::Outage | ErrorKind::Suspect => true,
                ErrorKind::Object => false,
            },
            Self::NoSuchCard(_) => false,
        }
    }
}

/// How far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What it does now.
    pub doing: &'static str,
    /// Of 1000, by the ages of the cards it has come past.
    pub permille: u64,
    /// What it has looked at so far.
    pub checked: Checked,
    /// What looks wrong and is still to be read again.
    pub suspects: usize,
    /// What is wrong.
    pub findings: usize,
}

/// Checks. `progress` is told after each chunk and page.
pub async fn run(
    db: &Db,
    store: Arc<dyn ObjectStore>,
    settings: &FsckSettings,
    progress: &mut (dyn FnMut(&Progress) + Send),
) -> Result<Report, FsckError> {
    let began = Instant::now();
    let ends = store::check::ends(&mut *db.acquire().await?).await?;
    let mut run = Run {
        db,
        store,
        settings,
        progress,
        ends: ends.map(|(oldest, newest)| (millis(oldest), millis(newest))),
        permille: 0,
        suspects: Vec::new(),
        last_found: began,
        report: Report::default(),
    };
    match settings.card {
        Some(card) => run.one(card).await?,
        None => run.all().await?,
    }
    run.flush().await?;
    run.report.seconds = began.elapsed().as_secs_f64();
    Ok(run.report)
}

struct Run<'a> {
    db: &'a Db,
    store: Arc<dyn ObjectStore>,
    settings: &'a FsckSettings,
    progress: &'a mut (dyn FnMut(&Progress) + Send),
    /// The times in the oldest and the newest card's id.
    ends: Option<(u128, u128)>,
    permille: u64,
    suspects: Vec<Suspect>,
    last_found: Instant,
    report: Report,
}

/// The parts of a whole run, in order; a quarter of the way each.
const PARTS: [&str; 4] = [DERIVED_PREFIX, FILE_PREFIX, SOURCE_PREFIX, "cards"];

impl Run<'_> {
    async fn all(&mut self) -> Result<(), FsckError> {
        let mut expected = [DERIVED_PREFIX, FILE_PREFIX, SOURCE_PREFIX].map(Expected::new);
        let mut walk = Walk::new(Arc::clone(&self.store), None);
        while let Some(chunk) = walk.next().await? {
            self.versions(&chunk.versions).await?;
            if let Some(expected) = expected.iter_mut().find(|expected| expected.prefix() == chunk.prefix) {
                let listed = &chunk.versions;
                self.references(expected, chunk.through.as_deref(), listed).await?;
            }
            let seen = chunk.through.as_deref().and_then(card_of);
            self.come_to(chunk.prefix, seen);
        }
        let mut after = None;
        loop {
            let page = store::check::page(&mut *self.db.acquire().await?, after, &StateName::ALL, PAGE_CARDS)
                .await?;
            self.rows(&page.found).await?;
            after = page.through;
            self.come_to("cards", after);
            if after.is_none() {
                break;
            }
        }
        self.outbox().await
    }

    async fn one(&mut self, card: CardId) -> Result<(), FsckError> {
        for prefix in cards::purge::prefixes(card) {
            let mut after = None;
            loop {
                let page = self.store.list_versions(&prefix, after.as_ref(), DELETE_BATCH_MAX).await?;
                // A key that merely starts alike is another's (R-E2).
                let own: Vec<_> =
                    page.versions.into_iter().filter(|version| card_of(&version.key) == Some(card)).collect();
                self.versions(&own).await?;
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        let found = store::check::some(&mut *self.db.acquire().await?, &[card]).await?;
        if found.rows.is_empty() && self.report.checked.versions == 0 {
            return Err(FsckError::NoSuchCard(card));
        }
        // Few enough to ask about each.
        for reference in found.rows.iter().filter_map(|row| row.card.as_ref().ok()).flat_map(judge::expected)
        {
            self.report.checked.references += 1;
            self.suspect(Suspect::Reference(reference)).await?;
        }
        self.rows(&found).await?;
        self.outbox().await
    }

    /// Listed versions: does anybody keep them?
    async fn versions(&mut self, listed: &[ListedVersion]) -> Result<(), FsckError> {
        self.report.checked.versions += listed.len() as u64;
        let mut ids: Vec<_> = listed.iter().filter_map(|version| card_of(&version.key)).collect();
        ids.sort_unstable();
        ids.dedup();
        let rows = store::check::some(&mut *self.db.acquire().await?, &ids).await?;
        let cards: HashMap<_, _> = rows
            .rows
            .iter()
            .map(|row| (row.id, row.card.as_ref().ok().map(|card| (card, KeepSet::of(card, rows.at)))))
            .collect();
        for version in listed {
            let card = card_of(&version.key);
            let standing = match card.and_then(|card| cards.get(&card)) {
                None => Standing::Stray,
                // A row that can't be read is found by itself; nothing follows about its versions.
                Some(None) => Standing::Kept,
                Some(Some((card, kept))) => judge::standing(card, kept, &version.key, &version.version),
            };
            match standing {
                Standing::Kept => {}
                Standing::OnItsWay => self.report.on_its_way += 1,
                Standing::Stray => {
                    let (key, version) = (version.key.clone(), version.version.clone());
                    self.suspect(Suspect::Version { card, key, version }).await?;
                }
            }
        }
        Ok(())
    }

    /// References up to the key that was listed last: are they there, and as recorded?
    async fn references(
        &mut self,
        expected: &mut Expected,
        through: Option<&str>,
        listed: &[ListedVersion],
    ) -> Result<(), FsckError> {
        let there: HashMap<_, _> =
            listed.iter().map(|version| ((version.key.as_str(), &version.version), version)).collect();
        while let Some(reference) = expected.next(self.db, through).await? {
            self.report.checked.references += 1;
            let is_fine = there.get(&(reference.key.as_str(), &reference.version)).is_some_and(|listed| {
                judge::difference(&reference, listed.size_bytes, listed.etag.as_ref()).is_none()
            });
            if !is_fine {
                self.suspect(Suspect::Reference(reference)).await?;
            }
        }
        Ok(())
    }

    /// Cards as they were read: what do their rows say of themselves?
    async fn rows(&mut self, found: &store::check::Rows) -> Result<(), FsckError> {
        self.report.checked.cards += found.rows.len() as u64;
        let ids: Vec<_> = found.rows.iter().map(|row| row.id).collect();
        for row in &found.rows {
            let kinds = match &row.card {
                Ok(card) => judge::troubles(card, found.at),
                Err(_) => vec![Kind::UnreadableRow],
            };
            for kind in kinds {
                self.suspect(Suspect::Row { kind, card: row.id }).await?;
            }
        }
        let mut connection = self.db.acquire().await?;
        let aliases = store::check::aliases_of_nothing(&mut connection, &ids).await?;
        let unproved = store::check::deleted_without_receipt(&mut connection, &ids).await?;
        drop(connection);
        for alias in aliases {
            self.suspect(Suspect::Row { kind: Kind::AliasUnserved, card: alias.id }).await?;
        }
        for card in unproved {
            self.suspect(Suspect::Row { kind: Kind::DeletedUnproved, card }).await?;
        }
        Ok(())
    }

    async fn outbox(&mut self) -> Result<(), FsckError> {
        for waiting in outbox(self.db, self.settings.card).await? {
            self.report.checked.outbox_rows += waiting.rows;
            let late = waiting
                .oldest_late
                .map(|late| if late > judge::OVERDUE_AFTER { Kind::OutboxOverdue } else { Kind::OutboxLate });
            let returned = (waiting.returned > 0).then_some(Kind::OutboxReturned);
            for kind in late.into_iter().chain(returned) {
                self.suspect(Suspect::Outbox { kind, queue: waiting.queue.clone() }).await?;
            }
        }
        Ok(())
    }

    async fn suspect(&mut self, suspect: Suspect) -> Result<(), FsckError> {
        self.suspects.push(suspect);
        self.last_found = Instant::now();
        if self.suspects.len() >= SUSPECTS_MAX {
            self.flush().await?;
        }
        Ok(())
    }

    /// Reads every suspect again, each a while after it was found; what still looks wrong counts.
    async fn flush(&mut self) -> Result<(), FsckError> {
        if self.suspects.is_empty() {
            return Ok(());
        }
        self.tell("reading again what looks wrong");
        tokio::time::sleep_until(self.last_found + self.settings.reread_after).await;
        let suspects = std::mem::take(&mut self.suspects);
        let reread = reread::reread(self.db, Arc::clone(&self.store), self.settings.card, suspects).await?;
        self.report.on_its_way += reread.on_its_way;
        for finding in reread.findings {
            self.report.add(finding);
        }
        Ok(())
    }

    /// The part has come to this card; none: to its end.
    fn come_to(&mut self, part: &'static str, seen: Option<CardId>) {
        let before = PARTS.iter().position(|other| *other == part).unwrap_or(0) as u64;
        let within = match (seen, self.ends) {
            (Some(seen), Some((oldest, newest))) => {
                let (come, whole) = (millis(seen).saturating_sub(oldest), (newest - oldest).max(1));
                u64::try_from(come * 1000 / whole).unwrap_or(1000).min(1000)
            }
            (None, _) | (_, None) => 1000,
        };
        self.permille = (before * 1000 + within) / PARTS.len() as u64;
        self.tell(part);
    }

    fn tell(&mut self, doing: &'static str) {
        (self.progress)(&Progress {
            doing,
            permille: self.permille,
            checked: self.report.checked,
            suspects: self.suspects.len(),
            findings: self.report.violations.len() + self.report.warnings.len(),
        });
    }
}

async fn outbox(db: &Db, card: Option<CardId>) -> Result<Vec<Waiting>, StoreError> {
    store::check::outbox(&mut *db.acquire().await?, card, judge::LATE_AFTER, RETURNED_TIMES).await
}

/// The time in a UUIDv7: its first 48 bits.
fn millis(card: CardId) -> u128 {
    card.0.as_u128() >> 80
}
