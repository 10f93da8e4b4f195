//! From a row of `cards` to a [`Card`]: the one place that trusts the CHECKs and says so where they can't help.

use std::str::FromStr;

use cards::card::{Parked, Ticket};
use cards::{
    Announced, ByteCount, Card, CardId, Derivative, ETag, Facts, Lease, LeaseToken, ObjectFacts, OwnerId,
    Problem, Sha256, State, StateName, Timestamp, VersionId,
};
use uuid::Uuid;

use crate::StoreError;

/// `select * from cards`, column for column.
#[derive(Debug)]
pub(crate) struct CardRow {
    pub(crate) id: Uuid,
    pub(crate) owner_id: Uuid,
    pub(crate) revision: i64,
    pub(crate) state: String,
    #[expect(dead_code, reason = "derived from the id; a CHECK holds them equal")]
    pub(crate) source_key: String,
    pub(crate) filename: String,
    pub(crate) size_bytes: i64,
    pub(crate) content_type: String,
    pub(crate) announced_sha256: Option<Vec<u8>>,
    pub(crate) keep: String,
    #[expect(dead_code, reason = "only ever compared in SQL")]
    pub(crate) idempotency_key: Option<String>,
    pub(crate) idempotency_fingerprint: Option<Vec<u8>>,
    pub(crate) ticket_method: String,
    pub(crate) ticket_issued_at: Timestamp,
    pub(crate) ticket_ends_at: Timestamp,
    pub(crate) traceparent: Option<String>,
    pub(crate) looks: i32,
    pub(crate) refused_versions: Vec<String>,
    pub(crate) pinned_version: Option<String>,
    pub(crate) confirmed_by: Option<String>,
    pub(crate) problem_code: Option<String>,
    pub(crate) problem_detail: Option<String>,
    pub(crate) attempts: i32,
    pub(crate) lease_token: Option<Uuid>,
    pub(crate) lease_until: Option<Timestamp>,
    pub(crate) accepted_token: Option<Uuid>,
    pub(crate) sha256: Option<Vec<u8>>,
    pub(crate) object_version: Option<String>,
    pub(crate) object_etag: Option<String>,
    pub(crate) ready_at: Option<Timestamp>,
    pub(crate) facts: Option<serde_json::Value>,
    pub(crate) derivatives: serde_json::Value,
    pub(crate) original_id: Option<Uuid>,
    pub(crate) delete_after: Option<Timestamp>,
    pub(crate) purge_at: Option<Timestamp>,
    pub(crate) purged_at: Option<Timestamp>,
    #[expect(dead_code, reason = "read by the orphan timer of a later part")]
    pub(crate) orphan_since: Option<Timestamp>,
    pub(crate) next_check_at: Option<Timestamp>,
    pub(crate) parked_at: Option<Timestamp>,
    pub(crate) parked_queue: Option<String>,
    pub(crate) parked_reason: Option<String>,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
    pub(crate) overdue_looks: i32,
    pub(crate) delete_requested_at: Option<Timestamp>,
    #[expect(dead_code, reason = "only ever compared in SQL")]
    pub(crate) purge_until: Option<Timestamp>,
    pub(crate) replaces_id: Option<Uuid>,
}

impl CardRow {
    pub(crate) fn into_card(self) -> Result<Card, StoreError> {
        let state = self.read_state()?;
        let refused = self.refused()?;
        let problem = self.problem()?;
        let read = Reader(self.id);
        Ok(Card {
            id: CardId(self.id),
            owner: OwnerId(self.owner_id),
            announced: Announced {
                size: read
                    .with("size_bytes", self.size_bytes, |n| ByteCount::new(u64::try_from(*n).ok()?).ok())?,
                media_type: read.word("content_type", &self.content_type)?,
                sha256: read.optional("announced_sha256", self.announced_sha256, Sha256::try_from)?,
            },
            ticket: Ticket {
                method: read.word("ticket_method", &self.ticket_method)?,
                issued_at: self.ticket_issued_at,
                ends_at: self.ticket_ends_at,
                traceparent: self.traceparent,
            },
            keep: read.word("keep", &self.keep)?,
            filename: self.filename,
            state,
            revision: self.revision,
            attempts: self.attempts.unsigned_abs(),
            looks: self.looks.unsigned_abs(),
            overdue_looks: self.overdue_looks.unsigned_abs(),
            problem,
            refused,
            confirmed_by: self
                .confirmed_by
                .as_deref()
                .map(|word| read.word("confirmed_by", word))
                .transpose()?,
            facts: read.optional("facts", self.facts, serde_json::from_value::<Facts>)?,
            derivatives: read.with("derivatives", self.derivatives, |json| {
                serde_json::from_value::<Vec<Derivative>>(json.clone()).ok()
            })?,
            replaces: self.replaces_id.map(CardId),
            parked: match (self.parked_at, self.parked_queue, self.parked_reason) {
                (Some(at), Some(queue), Some(reason)) => Some(Parked { at, queue, reason }),
                _ => None,
            },
            purge_at: self.purge_at,
            purged_at: self.purged_at,
            delete_requested_at: self.delete_requested_at,
            next_check_at: self.next_check_at,
            created_at: self.created_at,
            updated_at: self.updated_at,
        })
    }

    fn read_state(&self) -> Result<State, StoreError> {
        let read = Reader(self.id);
        Ok(match read.word::<StateName>("state", &self.state)? {
            StateName::Pending => State::Pending { refused: self.refused()? },
            StateName::Queued => State::Queued { pinned: self.pinned()? },
            StateName::Processing => State::Processing {
                pinned: self.pinned()?,
                lease: Lease {
                    token: LeaseToken(read.there("lease_token", self.lease_token)?),
                    until: read.there("lease_until", self.lease_until)?,
                },
            },
            StateName::Ready => State::Ready {
                pinned: self.pinned()?,
                object: ObjectFacts {
                    token: LeaseToken(read.there("accepted_token", self.accepted_token)?),
                    version: self.version("object_version", self.object_version.as_deref())?,
                    etag: ETag::new(&read.there("object_etag", self.object_etag.clone())?),
                    sha256: read
                        .with("sha256", self.sha256.clone(), |bytes| Sha256::try_from(bytes.clone()?).ok())?,
                    ready_at: read.there("ready_at", self.ready_at)?,
                },
            },
            StateName::Duplicate => {
                State::Duplicate { original: CardId(read.there("original_id", self.original_id)?) }
            }
            StateName::Rejected => {
                State::Rejected { problem: self.problem()?.ok_or_else(|| read.missing("problem_code"))? }
            }
            StateName::Expired => State::Expired,
            StateName::Deleting => {
                State::Deleting { delete_after: read.there("delete_after", self.delete_after)? }
            }
            StateName::Deleted => {
                State::Deleted { delete_after: read.there("delete_after", self.delete_after)? }
            }
        })
    }

    fn pinned(&self) -> Result<VersionId, StoreError> {
        self.version("pinned_version", self.pinned_version.as_deref())
    }

    fn version(&self, column: &'static str, value: Option<&str>) -> Result<VersionId, StoreError> {
        Reader(self.id).with(column, value.unwrap_or_default().to_owned(), |text| VersionId::parse(text).ok())
    }

    fn refused(&self) -> Result<Vec<VersionId>, StoreError> {
        self.refused_versions.iter().map(|text| self.version("refused_versions", Some(text))).collect()
    }

    fn problem(&self) -> Result<Option<Problem>, StoreError> {
        let (Some(code), Some(detail)) = (&self.problem_code, &self.problem_detail) else { return Ok(None) };
        Ok(Some(Problem { code: Reader(self.id).word("problem_code", code)?, detail: detail.clone() }))
    }
}

/// Reads columns of one card, and names card and column where one can't be read.
struct Reader(Uuid);

impl Reader {
    fn word<T: FromStr>(&self, column: &'static str, text: &str) -> Result<T, StoreError> {
        text.parse().map_err(|_| self.unreadable(column, text))
    }

    fn with<V: std::fmt::Debug, T>(
        &self,
        column: &'static str,
        value: V,
        parse: impl FnOnce(&V) -> Option<T>,
    ) -> Result<T, StoreError> {
        parse(&value).ok_or_else(|| self.unreadable(column, &format!("{value:?}")))
    }

    fn optional<V: std::fmt::Debug + Clone, T, E>(
        &self,
        column: &'static str,
        value: Option<V>,
        parse: impl FnOnce(V) -> Result<T, E>,
    ) -> Result<Option<T>, StoreError> {
        let Some(value) = value else { return Ok(None) };
        let shown = value.clone();
        parse(value).map(Some).map_err(|_| self.unreadable(column, &format!("{shown:?}")))
    }

    fn there<T>(&self, column: &'static str, value: Option<T>) -> Result<T, StoreError> {
        value.ok_or_else(|| self.missing(column))
    }

    fn missing(&self, column: &'static str) -> StoreError {
        self.unreadable(column, "null")
    }

    fn unreadable(&self, column: &'static str, value: &str) -> StoreError {
        StoreError::Unreadable { card: self.0.to_string(), column, value: value.to_owned() }
    }
}
