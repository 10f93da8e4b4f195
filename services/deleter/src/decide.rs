//! From what was listed and the card that was read after it to what is removed. Pure.

use cards::purge::KeepSet;
use cards::{Card, State, Timestamp};
use objects::ListedVersion;
use store::purge::Removal;

/// The versions of a listing that the card does not keep, as they are written down.
pub(crate) fn strangers(card: &Card, now: Timestamp, listed: &[ListedVersion]) -> Vec<Removal> {
    let kept = KeepSet::of(card, now);
    listed
        .iter()
        .filter(|entry| !kept.keeps(&entry.key, &entry.version))
        .map(|entry| Removal {
            key: entry.key.clone(),
            version: entry.version.clone(),
            is_delete_marker: entry.is_delete_marker,
            size_bytes: entry.size_bytes,
            etag: entry.etag.clone(),
            last_modified: entry.last_modified,
        })
        .collect()
}

/// Whether this is an upload that came although its card had no use for it any more: surplus, refused or late (R-E3,
/// R-H5). The pinned version of a card that ended is none: its removal is the plan.
pub(crate) fn is_stale_source(card: &Card, removal: &Removal) -> bool {
    if removal.is_delete_marker || removal.key != card.source_key().to_string() {
        return false;
    }
    match &card.state {
        State::Pending { .. } | State::Expired => true,
        State::Queued { .. } | State::Processing { .. } | State::Ready { .. } => {
            card.state.pinned() != Some(&removal.version)
        }
        State::Duplicate { .. } | State::Rejected { .. } | State::Deleting { .. } | State::Deleted { .. } => {
            card.purged_at.is_some()
        }
    }
}
