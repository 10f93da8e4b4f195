//! From what was listed and read to what it means: pure (STYLE 4).

use std::collections::{HashMap, HashSet};

use cards::key::SOURCE_PREFIX;
use cards::purge::{self, KeepSet, card_of};
use cards::{Card, CardId, StateName, Timestamp, VersionId};
use objects::{Chunk, ListedVersion};
use serde::Serialize;
use store::reconcile::{Counts, IdRange, Known, MissingObject, Removals};
use store::strays::Seen;
use uuid::Uuid;

/// R-H2: past this share of strays the rules, or the database, are more likely wrong than the bucket.
const STRAYS_PERCENT_MAX: u64 = 1;

/// The cards that a chunk's keys name, as they were read after it was listed.
#[derive(Debug, Default)]
pub(super) struct Cards {
    /// `None`: there is such a card, and its row can't be read. Nothing of it is a stray.
    known: HashMap<CardId, Option<(Card, KeepSet)>>,
}

impl Cards {
    /// `now`: the database's time before they were read. A card that is not yet due at it was not due when it was read.
    pub(super) fn new(now: Timestamp, rows: impl IntoIterator<Item = (CardId, Option<Card>)>) -> Self {
        let known = rows.into_iter().map(|(id, card)| {
            let known = card.map(|card| {
                let kept = KeepSet::of(&card, now);
                (card, kept)
            });
            (id, known)
        });
        Self { known: known.collect() }
    }

    pub(super) fn ids(&self) -> Vec<CardId> {
        self.known.keys().copied().collect()
    }

    pub(super) fn readable(&self) -> impl Iterator<Item = &Card> {
        self.known.values().flatten().map(|(card, _)| card)
    }
}

/// What a listed version is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Its card keeps it.
    Kept,
    /// Its card does not, and owes a purge: it is on its way.
    Owed,
    /// Its card does not, and nobody was asked to remove it.
    StrayOf(CardId),
    /// There is no such card, or the key is of no form of ours.
    Unknown,
}

pub(super) fn standing(key: &str, version: &VersionId, cards: &Cards) -> Standing {
    let Some(id) = card_of(key) else { return Standing::Unknown };
    match cards.known.get(&id) {
        None => Standing::Unknown,
        Some(None) => Standing::Kept,
        Some(Some((_, kept))) if kept.keeps(key, version) => Standing::Kept,
        Some(Some((card, _))) if purge::owed_at(card).is_some() => Standing::Owed,
        Some(Some(_)) => Standing::StrayOf(id),
    }
}

/// What a chunk adds to a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sorted {
    pub(super) counts: Counts,
    /// What nobody keeps.
    pub(super) seen: Vec<Seen>,
    /// Of these, keys that no column can hold: counted, told, never removed.
    pub(super) unspeakable: usize,
}

pub(super) fn sort(listed: &[ListedVersion], cards: &Cards) -> Sorted {
    let mut sorted = Sorted::default();
    for version in listed {
        sorted.counts.versions += 1;
        let card = match standing(&version.key, &version.version, cards) {
            Standing::Kept => {
                sorted.counts.kept += 1;
                continue;
            }
            Standing::Owed => {
                sorted.counts.owed += 1;
                continue;
            }
            Standing::StrayOf(card) => {
                sorted.counts.card_strays += 1;
                Some(card)
            }
            Standing::Unknown => {
                sorted.counts.unknown += 1;
                None
            }
        };
        // PostgreSQL's text takes every character but this one.
        if version.key.contains('\0') {
            sorted.unspeakable += 1;
            continue;
        }
        sorted.seen.push(Seen {
            key: version.key.clone(),
            version: version.version.clone(),
            card,
            is_delete_marker: version.is_delete_marker,
            size_bytes: version.size_bytes,
            last_modified: version.last_modified,
        });
    }
    sorted
}

/// The states whose cards point at keys under a prefix (`cards::purge::references`).
pub(super) fn pointing_states(prefix: &str) -> &'static [StateName] {
    if prefix == SOURCE_PREFIX { &[StateName::Queued, StateName::Processing] } else { &[StateName::Ready] }
}

/// The cards that keys of this chunk's range may name; none where it covers no key.
pub(super) fn id_range(chunk: &Chunk) -> Option<IdRange> {
    if chunk.through.is_some() && chunk.through == chunk.after {
        return None;
    }
    let bound = |key: &Option<String>, fill: char| {
        let text = key.as_ref().and_then(|key| key.strip_prefix(chunk.prefix)).unwrap_or_default();
        CardId(nearest_id(text, fill))
    };
    let last = if chunk.through.is_some() { bound(&chunk.through, 'f') } else { CardId(Uuid::max()) };
    Some(IdRange { first: bound(&chunk.after, '0'), last })
}

/// As much of an id as the text spells, and `fill` after it. Text order is id order, so `0` gives an id that no later text
/// is below, and `f` one that no earlier text is above.
fn nearest_id(text: &str, fill: char) -> Uuid {
    let mut hex = String::with_capacity(32);
    for (at, character) in text.chars().take(36).enumerate() {
        let is_hyphen = matches!(at, 8 | 13 | 18 | 23);
        match character {
            '-' if is_hyphen => {}
            '0'..='9' | 'a'..='f' if !is_hyphen => hex.push(character),
            _ => break,
        }
    }
    while hex.len() < 32 {
        hex.push(fill);
    }
    Uuid::try_parse(&hex).unwrap_or_default()
}

/// Whether a chunk says all that there is under this key.
fn covers(chunk: &Chunk, key: &str) -> bool {
    key.starts_with(chunk.prefix)
        && chunk.after.as_deref().is_none_or(|after| after < key)
        && chunk.through.as_deref().is_none_or(|through| key <= through)
}

/// What these cards point at in the chunk's range and the listing did not show. Suspects only: the cards were read after
/// the listing, and a key with very many versions is not listed in full.
pub(super) fn suspects<'a>(chunk: &Chunk, cards: impl Iterator<Item = &'a Card>) -> Vec<MissingObject> {
    let listed: HashSet<(&str, &str)> = chunk
        .versions
        .iter()
        .filter(|version| !version.is_delete_marker)
        .map(|version| (version.key.as_str(), version.version.as_str()))
        .collect();
    let points_at = |card: &'a Card| {
        purge::references(card).into_iter().map(move |(key, version)| MissingObject {
            card: card.id,
            state: card.state.name().as_str().to_owned(),
            key,
            version,
        })
    };
    cards
        .flat_map(points_at)
        .filter(|object| covers(chunk, &object.key))
        .filter(|object| !listed.contains(&(object.key.as_str(), object.version.as_str())))
        .collect()
}

/// What a run came to, as far as strays go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// There was nothing to remove, or nothing yet.
    Clean,
    /// Something was removed, or its purge asked for.
    Removed,
    /// There are strays, and it was a dry run.
    DryRun,
    /// More than 1 % are strays: nothing was removed. An alarm.
    TooManyStrays,
    /// The database is not the one that was known: nothing was removed. An alarm.
    DatabaseChanged,
}

impl Verdict {
    /// As in the database, in JSON and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Removed => "removed",
            Self::DryRun => "dry_run",
            Self::TooManyStrays => "too_many_strays",
            Self::DatabaseChanged => "database_changed",
        }
    }

    /// Whether somebody should look.
    pub fn is_alarm(self) -> bool {
        match self {
            Self::TooManyStrays | Self::DatabaseChanged => true,
            Self::Clean | Self::Removed | Self::DryRun => false,
        }
    }
}

/// What forbids all removal, if anything does (R-H2).
pub(super) fn forbidden(known: &Known, counts: &Counts, allow_strays: Option<u64>) -> Option<Verdict> {
    match known {
        Known::No { recorded: _, found: _ } => return Some(Verdict::DatabaseChanged),
        Known::Yes => {}
    }
    let strays = counts.strays();
    let is_few = strays.saturating_mul(100) <= counts.versions.saturating_mul(STRAYS_PERCENT_MAX);
    let is_allowed = allow_strays.is_some_and(|allowed| strays <= allowed);
    (!is_few && !is_allowed).then_some(Verdict::TooManyStrays)
}

/// The verdict where nothing forbade removal.
pub(super) fn verdict(applies: bool, counts: &Counts, removals: &Removals) -> Verdict {
    match (applies, counts.strays(), removals.purges + removals.removed) {
        (true, _, 0) | (false, 0, _) => Verdict::Clean,
        (true, _, _) => Verdict::Removed,
        (false, _, _) => Verdict::DryRun,
    }
}

#[cfg(test)]
mod tests;
