//! The second reading: what looked wrong is asked about again, and only then counts.
//!
//! 1. The store: a HEAD of each reference, a listing of each stray's key.
//! 2. Then the database. A card that still points, read after the store said "not there", points at nothing: an object is
//!    removed only once nobody points at it, and the reference was older than the HEAD.
//! 3. Each suspect is decided by the two.

use std::collections::HashMap;
use std::sync::Arc;

use cards::purge::KeepSet;
use cards::{Card, CardId, ETag, Timestamp, VersionId};
use futures::{StreamExt as _, TryStreamExt as _};
use objects::{Head, ObjectError, ObjectStore};
use store::check::{Alias, Waiting};
use store::{Db, StoreError};

use super::judge::{self, Reference, Standing, span};
use super::report::counted;
use super::{Finding, FsckError, Kind};

/// Calls to the store at once.
const CALLS_AT_ONCE: usize = 16;
/// More versions than a ticket of ten minutes can make under one key.
const VERSIONS_MAX: usize = 100_000;

/// What looked wrong once.
#[derive(Clone, Debug)]
pub(super) enum Suspect {
    /// It was not listed, or not as recorded.
    Reference(Reference),
    /// It is listed, and nobody keeps it.
    Version { card: Option<CardId>, key: String, version: VersionId },
    /// The card's row.
    Row { kind: Kind, card: CardId },
    /// The queue's messages.
    Outbox { kind: Kind, queue: String },
}

impl Suspect {
    fn card(&self) -> Option<CardId> {
        match self {
            Self::Reference(reference) => Some(reference.card),
            Self::Version { card, .. } => *card,
            Self::Row { card, .. } => Some(*card),
            Self::Outbox { .. } => None,
        }
    }
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Reread {
    pub(super) findings: Vec<Finding>,
    /// Strays whose purge was asked for meanwhile.
    pub(super) on_its_way: u64,
}

/// What the store says the second time.
#[derive(Debug)]
enum InStore {
    There {
        size_bytes: u64,
        etag: Option<ETag>,
    },
    Gone,
    /// The suspect is none of the store's.
    NotAsked,
}

/// Reads every suspect again.
pub(super) async fn reread(
    db: &Db,
    store: Arc<dyn ObjectStore>,
    only: Option<CardId>,
    suspects: Vec<Suspect>,
) -> Result<Reread, FsckError> {
    let asked: Vec<(Suspect, InStore)> = futures::stream::iter(suspects)
        .map(|suspect| ask(Arc::clone(&store), suspect))
        .buffered(CALLS_AT_ONCE)
        .try_collect()
        .await?;
    let now = Now::read(db, only, &asked).await?;
    let mut reread = Reread::default();
    for (suspect, in_store) in &asked {
        match now.decide(suspect, in_store) {
            Decided::Fine => {}
            Decided::OnItsWay => reread.on_its_way += 1,
            Decided::Wrong(finding) => reread.findings.push(*finding),
        }
    }
    Ok(reread)
}

async fn ask(store: Arc<dyn ObjectStore>, suspect: Suspect) -> Result<(Suspect, InStore), ObjectError> {
    let in_store = match &suspect {
        Suspect::Reference(reference) => match store.head(&reference.key, Some(&reference.version)).await? {
            Head::Found(found) => {
                InStore::There { size_bytes: found.sighting.size_bytes, etag: Some(found.etag) }
            }
            Head::Missing => InStore::Gone,
        },
        // A HEAD can't see a delete marker.
        Suspect::Version { key, version, .. } => {
            let versions = store.versions_of(key, VERSIONS_MAX).await?;
            match versions.into_iter().find(|listed| listed.version == *version) {
                Some(listed) => InStore::There { size_bytes: listed.size_bytes, etag: listed.etag },
                None => InStore::Gone,
            }
        }
        Suspect::Row { .. } | Suspect::Outbox { .. } => InStore::NotAsked,
    };
    Ok((suspect, in_store))
}

enum Decided {
    Fine,
    OnItsWay,
    Wrong(Box<Finding>),
}

/// The database after the store was asked.
struct Now {
    at: Timestamp,
    /// The one card that is checked, where it is one.
    only: Option<CardId>,
    cards: HashMap<CardId, Result<Card, StoreError>>,
    aliases: Vec<Alias>,
    unproved: Vec<CardId>,
    outbox: Vec<Waiting>,
}

impl Now {
    async fn read(db: &Db, only: Option<CardId>, asked: &[(Suspect, InStore)]) -> Result<Self, StoreError> {
        let mut ids: Vec<_> = asked.iter().filter_map(|(suspect, _)| suspect.card()).collect();
        ids.sort_unstable();
        ids.dedup();
        let mut connection = db.acquire().await?;
        let found = store::check::some(&mut connection, &ids).await?;
        let aliases = store::check::aliases_of_nothing(&mut connection, &ids).await?;
        let unproved = store::check::deleted_without_receipt(&mut connection, &ids).await?;
        drop(connection);
        Ok(Self {
            at: found.at,
            only,
            cards: found.rows.into_iter().map(|row| (row.id, row.card)).collect(),
            aliases,
            unproved,
            outbox: super::outbox(db, only).await?,
        })
    }

    fn decide(&self, suspect: &Suspect, in_store: &InStore) -> Decided {
        match suspect {
            Suspect::Reference(reference) => self.reference(reference, in_store),
            Suspect::Version { card, key, version } => self.version(*card, key, version, in_store),
            Suspect::Row { kind, card } => wrong(self.row(*kind, *card)),
            Suspect::Outbox { kind, queue } => wrong(self.queue(*kind, queue)),
        }
    }

    fn reference(&self, reference: &Reference, in_store: &InStore) -> Decided {
        let Some(Ok(card)) = self.cards.get(&reference.card) else { return Decided::Fine };
        if !judge::expected(card).contains(reference) {
            return Decided::Fine;
        }
        let (kind, seen) = match in_store {
            InStore::Gone => (Kind::MissingObject, "the store says it is not there".to_owned()),
            InStore::There { size_bytes, etag } => {
                match judge::difference(reference, *size_bytes, etag.as_ref()) {
                    Some(seen) => (Kind::ObjectDiffers, seen),
                    None => return Decided::Fine,
                }
            }
            InStore::NotAsked => return Decided::Fine,
        };
        let detail = format!("the card is {}; {seen}", card.state.name());
        let finding = Finding::new(kind, Some(card.id), detail);
        wrong(Some(finding.of_version(&reference.key, &reference.version)))
    }

    fn version(&self, card: Option<CardId>, key: &str, version: &VersionId, in_store: &InStore) -> Decided {
        let (size_bytes, is_marker) = match in_store {
            InStore::There { size_bytes, etag } => (*size_bytes, etag.is_none()),
            InStore::Gone | InStore::NotAsked => return Decided::Fine,
        };
        let what = if is_marker { "a delete marker".to_owned() } else { format!("{size_bytes} bytes") };
        let (kind, detail) = match card.and_then(|card| self.cards.get(&card)) {
            None => (Kind::StrayUnknown, what),
            Some(Err(_)) => return Decided::Fine,
            Some(Ok(card)) => match judge::standing(card, &KeepSet::of(card, self.at), key, version) {
                Standing::Kept => return Decided::Fine,
                Standing::OnItsWay => return Decided::OnItsWay,
                Standing::Stray => (Kind::Stray, format!("{what}; the card is {}", card.state.name())),
            },
        };
        wrong(Some(Finding::new(kind, card, detail).of_version(key, version)))
    }

    fn row(&self, kind: Kind, id: CardId) -> Option<Finding> {
        let row = self.cards.get(&id)?;
        let detail = match (kind, row) {
            (Kind::UnreadableRow, Err(error)) => Some(error.to_string()),
            (Kind::AliasUnserved, _) => self.aliases.iter().find(|alias| alias.id == id).map(|alias| {
                format!("it is a duplicate of {}, which is {}", alias.original, alias.original_state)
            }),
            (Kind::DeletedUnproved, _) => {
                self.unproved.contains(&id).then(|| "it is deleted, and receipts has no row of it".to_owned())
            }
            (_, Ok(card)) => judge::trouble(kind, card, self.at),
            (_, Err(_)) => None,
        };
        Some(Finding::new(kind, Some(id), detail?))
    }

    fn queue(&self, kind: Kind, queue: &str) -> Option<Finding> {
        let waiting = self.outbox.iter().find(|waiting| waiting.queue == queue)?;
        let said = waiting.last_error.as_deref().unwrap_or("nothing");
        let detail = if kind == Kind::OutboxReturned {
            (waiting.returned > 0).then(|| {
                format!("{queue}: {}; the broker said: {said}", counted(waiting.returned, "message"))
            })
        } else {
            waiting.oldest_late.map(|late| {
                format!("{queue}: {}, the oldest for {}", counted(waiting.late, "message"), span(late))
            })
        };
        Some(Finding::new(kind, self.only, detail?))
    }
}

fn wrong(finding: Option<Finding>) -> Decided {
    finding.map_or(Decided::Fine, |finding| Decided::Wrong(Box::new(finding)))
}
