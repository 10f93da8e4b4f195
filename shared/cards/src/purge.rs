//! What the bucket may hold of a card: every removal is the difference (DESIGN "Purge").
//!
//! In: a card as it was read **after** the keys were listed, and the database's time of that reading. Out: a
//! [`KeepSet`], which says of each listed version whether the card still calls for it. Wide sets while work is under way
//! and listing before reading are two lines of defence; either would do (R-E2).
//!
//! | state | kept |
//! |---|---|
//! | `pending` | every source version but the refused ones; nothing else |
//! | `queued`, `processing` | the pinned source, and everything under `files/` and `derived/` |
//! | `ready` | its object version and its derivatives' versions |
//! | `deleting` before `delete_after` | everything |
//! | all others | nothing |

use crate::key::{DERIVED_PREFIX, FILE_PREFIX, SOURCE_PREFIX};
use crate::{Card, CardId, DerivedKey, FileKey, SourceKey, State, Timestamp, VersionId, timing};

/// What a card keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepSet {
    card: CardId,
    source: Source,
    outputs: Outputs,
}

/// Which versions of `incoming/<card>`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    All,
    AllBut(Vec<VersionId>),
    Only(VersionId),
    None,
}

/// What under `files/<card>/` and `derived/<card>/`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outputs {
    All,
    /// Key and version, each as the card records it.
    Only(Vec<(String, VersionId)>),
    None,
}

impl KeepSet {
    /// What this card keeps at this time.
    pub fn of(card: &Card, now: Timestamp) -> Self {
        let (source, outputs) = match &card.state {
            State::Pending { refused } => (Source::AllBut(refused.clone()), Outputs::None),
            State::Queued { pinned } | State::Processing { pinned, .. } => {
                (Source::Only(pinned.clone()), Outputs::All)
            }
            State::Ready { object, .. } => {
                let file = FileKey { card: card.id, token: object.token }.to_string();
                let mut kept = vec![(file, object.version.clone())];
                // The recorded version, not whatever lies under its key: a PUT whose answer was lost is there twice.
                kept.extend(card.derivatives.iter().map(|derivative| {
                    let key = DerivedKey { card: card.id, token: object.token, name: derivative.name };
                    (key.to_string(), derivative.version.clone())
                }));
                (Source::None, Outputs::Only(kept))
            }
            State::Deleting { delete_after } if now < *delete_after => (Source::All, Outputs::All),
            State::Duplicate { .. }
            | State::Rejected { .. }
            | State::Expired
            | State::Deleting { .. }
            | State::Deleted { .. } => (Source::None, Outputs::None),
        };
        Self { card: card.id, source, outputs }
    }

    /// Whether this version, or delete marker, stays. What is under no key of this card always stays: whoever asks
    /// about it asks the wrong card.
    pub fn keeps(&self, key: &str, version: &VersionId) -> bool {
        if card_of(key) != Some(self.card) {
            return true;
        }
        if key.starts_with(SOURCE_PREFIX) {
            return match &self.source {
                Source::All => true,
                Source::AllBut(refused) => !refused.contains(version),
                Source::Only(pinned) => pinned == version,
                Source::None => false,
            };
        }
        match &self.outputs {
            Outputs::All => true,
            Outputs::Only(kept) => {
                kept.iter().any(|(kept_key, kept_version)| kept_key == key && kept_version == version)
            }
            Outputs::None => false,
        }
    }
}

/// The versions that a card's row points at: each must exist (INV-3). Key and version.
pub fn references(card: &Card) -> Vec<(String, VersionId)> {
    match &card.state {
        State::Queued { pinned } | State::Processing { pinned, .. } => {
            vec![(card.source_key().to_string(), pinned.clone())]
        }
        State::Ready { .. } => match KeepSet::of(card, card.updated_at).outputs {
            Outputs::Only(kept) => kept,
            Outputs::All | Outputs::None => Vec::new(),
        },
        State::Pending { .. }
        | State::Duplicate { .. }
        | State::Rejected { .. }
        | State::Expired
        | State::Deleting { .. }
        | State::Deleted { .. } => Vec::new(),
    }
}

/// What is listed for a card: its exact source key, and all under its own two prefixes (R-E2).
pub fn prefixes(card: CardId) -> [String; 3] {
    [SourceKey(card).to_string(), format!("{FILE_PREFIX}{card}/"), format!("{DERIVED_PREFIX}{card}/")]
}

/// The card whose key this is: `incoming/<card>` exactly, or anything under `files/<card>/` or `derived/<card>/`. A key
/// that merely starts alike is nobody's (R-E2).
pub fn card_of(key: &str) -> Option<CardId> {
    if let Some(SourceKey(card)) = SourceKey::parse(key) {
        return Some(card);
    }
    let below = key.strip_prefix(FILE_PREFIX).or_else(|| key.strip_prefix(DERIVED_PREFIX))?;
    below.split_once('/')?.0.parse().ok()
}

/// When the card owes its next purge, if it owes one: as asked for, as its deletion waits, or as R-E4 wants a listing that
/// proves that nothing came late.
pub fn owed_at(card: &Card) -> Option<Timestamp> {
    let settled = timing::settled_at(card.ticket.ends_at);
    let by_state = match &card.state {
        State::Deleting { delete_after } => Some(settled.max(*delete_after)),
        State::Duplicate { .. } | State::Rejected { .. } | State::Expired => {
            card.purged_at.is_none().then_some(settled)
        }
        State::Pending { .. }
        | State::Queued { .. }
        | State::Processing { .. }
        | State::Ready { .. }
        | State::Deleted { .. } => None,
    };
    match (card.purge_at, by_state) {
        (Some(asked), Some(by_state)) => Some(asked.min(by_state)),
        (asked, by_state) => asked.or(by_state),
    }
}

/// What a listing without a stranger proves about a card that was read after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The request that was answered: one at or before the listing's beginning.
    pub clears_request: bool,
    /// The bytes are gone for good: `purged_at` may be set, quota returned (R-E4).
    pub is_purged: bool,
    /// `deleting` becomes `deleted` (R-E2).
    pub is_deleted: bool,
}

/// What is proved by a listing *begun* at `listed_at` that showed nothing but what the card keeps; `is_empty`: it showed
/// nothing at all.
pub fn prove(card: &Card, listed_at: Timestamp, is_empty: bool) -> Proof {
    let nothing_comes_any_more = listed_at >= timing::settled_at(card.ticket.ends_at);
    let gone = is_empty && nothing_comes_any_more;
    let (is_purged, is_deleted) = match &card.state {
        State::Deleting { delete_after } => {
            let waited = gone && listed_at >= *delete_after;
            (waited && card.purged_at.is_none(), waited)
        }
        State::Deleted { .. } | State::Duplicate { .. } | State::Rejected { .. } | State::Expired => {
            (gone && card.purged_at.is_none(), false)
        }
        State::Pending { .. } | State::Queued { .. } | State::Processing { .. } | State::Ready { .. } => {
            (false, false)
        }
    };
    Proof { clears_request: card.purge_at.is_some_and(|asked| asked <= listed_at), is_purged, is_deleted }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::card::{Announced, Keep, Ticket, TicketMethod};
    use crate::{
        ByteCount, Derivative, DerivativeName, ETag, Ids, Lease, LeaseToken, MediaType, ObjectFacts, Problem,
        ProblemCode, Sha256,
    };

    pub(crate) fn at(seconds: i64) -> Timestamp {
        Timestamp::from_timestamp(1_800_000_000 + seconds, 0).unwrap()
    }

    fn version(text: &str) -> VersionId {
        VersionId::parse(text).unwrap()
    }

    /// A card whose ticket ran from 0 s to 600 s: a listing begun from 960 s on proves.
    pub(crate) fn card(state: State) -> Card {
        let announced =
            Announced { size: ByteCount::new(5).unwrap(), media_type: MediaType::Jpeg, sha256: None };
        Card {
            id: Ids.card(),
            owner: Ids.owner(),
            filename: "a.jpg".to_owned(),
            announced,
            ticket: Ticket {
                method: TicketMethod::Post,
                issued_at: at(0),
                ends_at: at(600),
                traceparent: None,
            },
            keep: Keep::Always,
            state,
            revision: 1,
            attempts: 0,
            looks: 0,
            overdue_looks: 0,
            problem: None,
            refused: vec![version("refused")],
            confirmed_by: None,
            facts: None,
            derivatives: vec![Derivative {
                name: DerivativeName::Thumb,
                content_type: "image/webp".to_owned(),
                width_px: 1,
                height_px: 1,
                size_bytes: 1,
                version: version("thumb"),
            }],
            replaces: None,
            parked: None,
            purge_at: None,
            purged_at: None,
            delete_requested_at: None,
            next_check_at: None,
            created_at: at(0),
            updated_at: at(0),
        }
    }

    fn token() -> LeaseToken {
        LeaseToken("00000000-0000-4000-8000-000000000001".parse().unwrap())
    }

    pub(crate) fn states() -> Vec<State> {
        let problem = Problem::new(ProblemCode::Corrupt, "broken");
        let object = ObjectFacts {
            token: token(),
            version: version("object"),
            etag: ETag::new("e"),
            sha256: Sha256([7; 32]),
            ready_at: at(5),
        };
        vec![
            State::Pending { refused: vec![version("refused")] },
            State::Queued { pinned: version("pinned") },
            State::Processing { pinned: version("pinned"), lease: Lease { token: token(), until: at(60) } },
            State::Ready { pinned: version("pinned"), object },
            State::Duplicate { original: Ids.card() },
            State::Rejected { problem },
            State::Expired,
            State::Deleting { delete_after: at(960) },
            State::Deleted { delete_after: at(960) },
        ]
    }

    #[test]
    fn each_state_keeps_what_the_table_says() {
        // Columns: source pinned, source refused, source other; own copy, its other version, another token's copy;
        // own thumb, its other version, another token's preview.
        let table = [
            ("pending", "y.y ... ..."),
            ("queued", "y.. yyy yyy"),
            ("processing", "y.. yyy yyy"),
            ("ready", "... y.. y.."),
            ("duplicate", "... ... ..."),
            ("rejected", "... ... ..."),
            ("expired", "... ... ..."),
            ("deleting", "yyy yyy yyy"),
            ("deleting", "... ... ..."),
            ("deleted", "... ... ..."),
        ];
        let mut rows = Vec::new();
        for state in states() {
            let card = card(state);
            let (id, name) = (card.id, card.state.name().as_str());
            let source = card.source_key().to_string();
            let own = format!("files/{id}/{}", token());
            let other = format!("files/{id}/{}", Ids.lease());
            let thumb = format!("derived/{id}/{}/thumb", token());
            let preview = format!("derived/{id}/{}/preview", Ids.lease());
            let asked = [
                [(&source, "pinned"), (&source, "refused"), (&source, "other")],
                [(&own, "object"), (&own, "other"), (&other, "object")],
                [(&thumb, "thumb"), (&thumb, "other"), (&preview, "thumb")],
            ];
            let times: &[i64] = if name == "deleting" { &[959, 960] } else { &[959] };
            for now in times {
                let kept = KeepSet::of(&card, at(*now));
                let cells = asked.map(|group| {
                    group
                        .map(|(key, v)| if kept.keeps(key, &version(v)) { 'y' } else { '.' })
                        .iter()
                        .collect::<String>()
                });
                rows.push((name, cells.join(" ")));
            }
        }
        assert_eq!(rows, table.map(|(name, cells)| (name, cells.to_owned())));
    }

    #[test]
    fn a_key_that_merely_starts_alike_is_nobodys_and_never_touched() {
        let card = card(State::Expired);
        let id = card.id;
        let kept = KeepSet::of(&card, at(2000));
        for alike in [
            format!("incoming/{id}2"),
            format!("incoming/{id}/"),
            format!("incoming/{}", id.to_string().to_uppercase()),
            format!("files/{id}"),
            format!("files/{id}2/x"),
            format!("derived/x{id}/x"),
            format!("other/{id}/x"),
            String::new(),
        ] {
            assert_eq!(card_of(&alike), None, "{alike}");
            assert!(kept.keeps(&alike, &version("v")), "{alike}");
        }
        for own in prefixes(id) {
            let key = if own.ends_with('/') { format!("{own}x") } else { own };
            assert_eq!(card_of(&key), Some(id));
            assert!(!kept.keeps(&key, &version("v")), "{key}");
        }
        let another = format!("incoming/{}", Ids.card());
        assert!(kept.keeps(&another, &version("v")), "another card's");
    }

    #[test]
    fn what_a_row_points_at_is_always_kept() {
        for state in states() {
            let card = card(state);
            let kept = KeepSet::of(&card, at(100_000));
            for (key, version) in references(&card) {
                assert!(kept.keeps(&key, &version), "{key}");
            }
        }
    }

    #[test]
    fn a_listing_proves_only_what_was_asked_before_it_and_absence_only_once_nothing_can_come() {
        let mut asked = card(states().remove(3));
        asked.purge_at = Some(at(960));
        assert!(!prove(&asked, at(959), false).clears_request);
        assert!(prove(&asked, at(960), false).clears_request);

        let rejected = card(states().remove(5));
        assert!(!prove(&rejected, at(959), true).is_purged, "an upload may be under way");
        assert!(!prove(&rejected, at(960), false).is_purged, "something is there");
        assert!(prove(&rejected, at(960), true).is_purged);

        let mut deleting = card(State::Deleting { delete_after: at(2000) });
        assert_eq!(
            prove(&deleting, at(1999), true),
            Proof { clears_request: false, is_purged: false, is_deleted: false }
        );
        assert_eq!(
            prove(&deleting, at(2000), true),
            Proof { clears_request: false, is_purged: true, is_deleted: true }
        );
        // Its quota went back already: it is deleted, and not purged a second time (R-E4).
        deleting.purged_at = Some(at(1000));
        assert_eq!(
            prove(&deleting, at(2000), true),
            Proof { clears_request: false, is_purged: false, is_deleted: true }
        );
        for unfinished in states().into_iter().take(4) {
            assert!(!prove(&card(unfinished), at(5000), true).is_purged);
        }
    }

    #[test]
    fn a_purge_is_owed_when_asked_for_or_when_the_state_wants_its_proof() {
        let owed: Vec<_> = states().into_iter().map(|state| owed_at(&card(state))).collect();
        let settled = Some(at(960));
        assert_eq!(owed, [None, None, None, None, settled, settled, settled, settled, None]);
        let mut expired = card(State::Expired);
        expired.purge_at = Some(at(700));
        assert_eq!(owed_at(&expired), Some(at(700)));
        expired.purge_at = None;
        expired.purged_at = Some(at(961));
        assert_eq!(owed_at(&expired), None);
    }
}
