//! From a pending card and what the store shows under its key to what is done (R-B2, R-B5 to R-B7).
//!
//! In: what the ticket allows ([`Expectation`]), and one [`Sighting`] for each version looked at, oldest first. Out: a
//! [`Verdict`]. The event that led here is not an argument: it only said where to look.

use std::collections::BTreeMap;

use crate::timing;
use crate::{Card, MediaType, Problem, ProblemCode, Sha256, Timestamp, VersionId};

/// At most this many versions of one key are looked at (R-B2).
pub const VERSIONS_LOOKED_AT_MAX: usize = 20;
/// The one user metadata key a ticket carries, without its `x-amz-meta-`.
pub const TRACE_METADATA: &str = "traceparent";

/// What the ticket allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// Exact size in bytes.
    pub size_bytes: u64,
    /// Exact content type.
    pub media_type: MediaType,
    /// Digest, where announced.
    pub sha256: Option<Sha256>,
    /// When the ticket ends.
    pub ticket_ends_at: Timestamp,
    /// The trace context the ticket carries.
    pub traceparent: Option<String>,
}

impl From<&Card> for Expectation {
    fn from(card: &Card) -> Self {
        Self {
            size_bytes: card.announced.size.get(),
            media_type: card.announced.media_type,
            sha256: card.announced.sha256,
            ticket_ends_at: card.ticket.ends_at,
            traceparent: card.ticket.traceparent.clone(),
        }
    }
}

/// What a HEAD said of one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// The version that was asked for and answered.
    pub version: VersionId,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Content-Type, as sent.
    pub content_type: Option<String>,
    /// When the store took it.
    pub last_modified: Timestamp,
    /// The store's SHA-256, where it returns one.
    pub sha256: Option<Sha256>,
    /// Content-Disposition.
    pub content_disposition: Option<String>,
    /// Content-Encoding.
    pub content_encoding: Option<String>,
    /// User metadata, keys in lower case without `x-amz-meta-`.
    pub user_metadata: BTreeMap<String, String>,
}

/// A version that does not fit, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// That version.
    pub version: VersionId,
    /// Why, for the owner.
    pub problem: Problem,
}

/// What is done with the card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The first version that fits: it is pinned.
    pub pinned: Option<VersionId>,
    /// Versions that do not fit and were not refused before.
    pub refused: Vec<Refusal>,
    /// Versions that came too late to count: neither pinned nor held against anybody (R-B7).
    pub late: Vec<VersionId>,
}

/// Judges versions, oldest first. `refused_before` are the card's earlier refusals: they stay refused.
pub fn judge(expected: &Expectation, refused_before: &[VersionId], sightings: &[Sighting]) -> Verdict {
    let mut verdict = Verdict { pinned: None, refused: Vec::new(), late: Vec::new() };
    for sighting in sightings {
        if refused_before.contains(&sighting.version) {
            continue;
        }
        if !timing::in_time(sighting.last_modified, expected.ticket_ends_at) {
            verdict.late.push(sighting.version.clone());
            continue;
        }
        let Some(problem) = mismatch(expected, sighting) else {
            verdict.pinned = Some(sighting.version.clone());
            break;
        };
        verdict.refused.push(Refusal { version: sighting.version.clone(), problem });
    }
    verdict
}

fn mismatch(expected: &Expectation, seen: &Sighting) -> Option<Problem> {
    let detail = if seen.size_bytes != expected.size_bytes {
        format!("the ticket is for {} bytes, the upload has {}", expected.size_bytes, seen.size_bytes)
    } else if seen.content_type.as_deref() != Some(expected.media_type.as_str()) {
        let got = seen.content_type.as_deref().unwrap_or("none");
        format!("the ticket is for Content-Type {}, the upload has {got}", expected.media_type)
    } else if let (Some(announced), Some(stored)) = (expected.sha256, seen.sha256)
        && announced != stored
    {
        return Some(Problem::new(
            ProblemCode::ChecksumMismatch,
            format!("the announced SHA-256 is {announced}, the store says {stored}"),
        ));
    } else if seen.content_disposition.is_some() {
        "the upload carries a Content-Disposition, the ticket allows none".to_owned()
    } else if seen.content_encoding.is_some() {
        "the upload carries a Content-Encoding, the ticket allows none".to_owned()
    } else if let Some(key) = foreign_metadata(expected, seen) {
        format!("the upload carries x-amz-meta-{key}, which is not as the ticket says")
    } else {
        return None;
    };
    Some(Problem::new(ProblemCode::MetadataMismatch, detail))
}

fn foreign_metadata<'a>(expected: &Expectation, seen: &'a Sighting) -> Option<&'a str> {
    seen.user_metadata
        .iter()
        .find(|(key, value)| {
            key.as_str() != TRACE_METADATA || Some(value.as_str()) != expected.traceparent.as_deref()
        })
        .map(|(key, _)| key.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_timestamp(1_800_000_000 + seconds, 0).unwrap()
    }

    fn version(text: &str) -> VersionId {
        VersionId::parse(text).unwrap()
    }

    fn expectation() -> Expectation {
        Expectation {
            size_bytes: 10,
            media_type: MediaType::Jpeg,
            sha256: Some(Sha256([1; 32])),
            ticket_ends_at: at(600),
            traceparent: Some("00-aa-bb-01".to_owned()),
        }
    }

    fn fitting(name: &str) -> Sighting {
        Sighting {
            version: version(name),
            size_bytes: 10,
            content_type: Some("image/jpeg".to_owned()),
            last_modified: at(30),
            sha256: None,
            content_disposition: None,
            content_encoding: None,
            user_metadata: BTreeMap::from([("traceparent".to_owned(), "00-aa-bb-01".to_owned())]),
        }
    }

    #[test]
    fn the_first_version_that_fits_is_pinned_and_later_ones_are_not_looked_at() {
        let verdict = judge(&expectation(), &[], &[fitting("v1"), fitting("v2")]);
        assert_eq!(verdict, Verdict { pinned: Some(version("v1")), refused: vec![], late: vec![] });
    }

    #[test]
    fn a_wrong_version_first_is_refused_and_the_right_one_still_wins() {
        let wrong = Sighting { size_bytes: 11, ..fitting("v1") };
        let verdict = judge(&expectation(), &[], &[wrong, fitting("v2")]);
        assert_eq!(verdict.pinned, Some(version("v2")));
        assert_eq!(verdict.refused.len(), 1);
    }

    #[test]
    fn each_difference_from_the_ticket_is_a_mismatch() {
        let metadata = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        let wrong = [
            (Sighting { size_bytes: 9, ..fitting("v") }, ProblemCode::MetadataMismatch),
            (
                Sighting { content_type: Some("image/JPEG".into()), ..fitting("v") },
                ProblemCode::MetadataMismatch,
            ),
            (
                Sighting { content_type: Some("image/jpeg; x=y".into()), ..fitting("v") },
                ProblemCode::MetadataMismatch,
            ),
            (Sighting { content_type: None, ..fitting("v") }, ProblemCode::MetadataMismatch),
            (Sighting { sha256: Some(Sha256([2; 32])), ..fitting("v") }, ProblemCode::ChecksumMismatch),
            (
                Sighting { content_disposition: Some("inline".into()), ..fitting("v") },
                ProblemCode::MetadataMismatch,
            ),
            (
                Sighting { content_encoding: Some("gzip".into()), ..fitting("v") },
                ProblemCode::MetadataMismatch,
            ),
            (
                Sighting { user_metadata: metadata("role", "admin"), ..fitting("v") },
                ProblemCode::MetadataMismatch,
            ),
            (
                Sighting { user_metadata: metadata("traceparent", "x"), ..fitting("v") },
                ProblemCode::MetadataMismatch,
            ),
        ];
        for (sighting, code) in wrong {
            let verdict = judge(&expectation(), &[], std::slice::from_ref(&sighting));
            assert_eq!(verdict.pinned, None, "{sighting:?}");
            assert_eq!(verdict.refused[0].problem.code, code, "{sighting:?}");
        }
    }

    #[test]
    fn an_upload_may_leave_the_trace_out_and_a_store_may_leave_the_checksum_out() {
        let bare = Sighting { user_metadata: BTreeMap::new(), sha256: None, ..fitting("v") };
        assert!(judge(&expectation(), &[], &[bare]).pinned.is_some());
    }

    #[test]
    fn what_came_too_late_is_neither_pinned_nor_refused() {
        let late = Sighting { last_modified: at(901), ..fitting("v") };
        let verdict = judge(&expectation(), &[], &[late]);
        assert_eq!(verdict, Verdict { pinned: None, refused: vec![], late: vec![version("v")] });
    }

    #[test]
    fn a_version_refused_before_stays_refused() {
        let verdict = judge(&expectation(), &[version("v")], &[fitting("v")]);
        assert_eq!(verdict, Verdict { pinned: None, refused: vec![], late: vec![] });
    }
}
