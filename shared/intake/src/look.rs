//! Step 3: what the store shows under a card's key. No transaction is open here.

use cards::confirm::{Sighting, VERSIONS_LOOKED_AT_MAX};
use cards::{Card, ETag, VersionId};
use events::bucket::Created;
use futures::{StreamExt, TryStreamExt, stream};
use objects::{Head, ObjectError, ObjectStore};

/// HEADs of one key's versions that run at once: a listing that has more than one version is rare.
const HEADS_AT_ONCE: usize = 4;

/// What was seen.
#[derive(Debug)]
pub(crate) struct Looked {
    /// The versions that a HEAD answered for, oldest first.
    pub(crate) sightings: Vec<Sighting>,
    /// The entity tag of each, for the comparison with the event.
    etags: Vec<ETag>,
    /// Every version that was listed; empty where only one was asked for.
    listed: Vec<VersionId>,
}

impl Looked {
    /// Whether the key has versions besides this one.
    pub(crate) fn has_more_than(&self, pinned: &VersionId) -> bool {
        self.listed.iter().any(|version| version != pinned)
    }
}

/// HEADs the version an event names. Missing is an answer: a marker, or bytes already removed (R-B8).
pub(crate) async fn at_version(
    objects: &dyn ObjectStore,
    card: &Card,
    version: &VersionId,
) -> Result<Looked, ObjectError> {
    let found = objects.head(&card.source_key().to_string(), Some(version)).await?.found();
    let (sightings, etags) = found.map(|found| (found.sighting, found.etag)).into_iter().unzip();
    Ok(Looked { sightings, etags, listed: Vec::new() })
}

/// Lists the key's versions, oldest first, and HEADs those not refused before.
pub(crate) async fn at_all(objects: &dyn ObjectStore, card: &Card) -> Result<Looked, ObjectError> {
    let key = card.source_key().to_string();
    let listed: Vec<VersionId> = objects
        .versions_of(&key, VERSIONS_LOOKED_AT_MAX)
        .await?
        .into_iter()
        .filter(|entry| !entry.is_delete_marker)
        .map(|entry| entry.version)
        .collect();
    // A version that vanishes between listing and HEAD is simply not there.
    let heads: Vec<_> = listed
        .iter()
        .filter(|version| !card.refused.contains(version))
        .map(|version| objects.head(&key, Some(version)))
        .collect();
    let heads: Vec<Head> = stream::iter(heads).buffered(HEADS_AT_ONCE).try_collect().await?;
    let (sightings, etags) =
        heads.into_iter().filter_map(Head::found).map(|found| (found.sighting, found.etag)).unzip();
    Ok(Looked { sightings, etags, listed })
}

/// An event that disagrees with HEAD is counted and logged: HEAD is what is compared with the card (R-B2).
pub(crate) fn compare_with_event(created: &Created, looked: &Looked) {
    let [sighting] = looked.sightings.as_slice() else { return };
    let etag_differs = match (&created.etag, looked.etags.first()) {
        (Some(told), Some(seen)) => told != seen,
        _ => false,
    };
    if sighting.size_bytes != created.size_bytes || etag_differs {
        metrics::counter!(telemetry::metric::EVENT_HEAD_DISAGREEMENTS).increment(1);
        tracing::warn!(
            key = created.key,
            event.size_bytes = created.size_bytes,
            head.size_bytes = sighting.size_bytes,
            etag_differs,
            "the event and HEAD disagree; HEAD counts"
        );
    }
}
