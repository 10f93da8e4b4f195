//! Runs of bucket reconciliation (R-H2, R-H3): who walks, how far, what was counted, and which database it is.
//!
//! A run is one row of `reconcile_runs` from its first page to its report, and at most one is open. Whoever walks holds a
//! claim; every write names it, so that a walker which was thought dead stops at its next write ([`save`]'s `false`).
//! Strays themselves are in [`crate::strays`].

use cards::{CardId, StateName, Timestamp, VersionId};
use chrono::TimeDelta;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::StoreError;
use crate::check::Row;
use crate::row::CardRow;
use crate::tickets::seconds;

/// What a run has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Versions and delete markers seen: the next four together.
    pub versions: u64,
    /// Those that their card keeps.
    pub kept: u64,
    /// Those that their card does not keep and whose purge is owed anyway.
    pub owed: u64,
    /// Those that their card does not keep and nobody was asked to remove.
    pub card_strays: u64,
    /// Those of no card.
    pub unknown: u64,
    /// References that the store does not have.
    pub missing: u64,
}

impl Counts {
    /// What nobody keeps and nothing is under way for.
    pub fn strays(&self) -> u64 {
        self.card_strays + self.unknown
    }
}

/// What a run has removed, or tried to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removals {
    /// Cards whose purge was asked for.
    pub purges: u64,
    /// Versions removed.
    pub removed: u64,
    /// Versions the store did not remove when asked.
    pub failed: u64,
    /// Versions whose card was there when it was looked up again.
    pub spared: u64,
}

/// A version that a card points at and the store does not have (R-H3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingObject {
    /// The card.
    pub card: CardId,
    /// Its state.
    pub state: String,
    /// The key.
    pub key: String,
    /// The version.
    pub version: VersionId,
}

/// An open run and the claim on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Its number.
    pub id: i64,
    /// The claim: a value of this walker alone.
    pub claim: Uuid,
    /// When it began.
    pub begun_at: Timestamp,
    /// All keys up to this text are done.
    pub cursor: Option<String>,
    /// Whether the walk is over.
    pub is_walked: bool,
    /// What it has counted.
    pub counts: Counts,
    /// What it has removed.
    pub removals: Removals,
    /// The first of what is missing.
    pub missing: Vec<MissingObject>,
}

/// What came of wanting to walk.
#[derive(Clone, Debug, PartialEq)]
pub enum Begun {
    /// It is ours: a new run, or one that somebody left.
    Yes(Box<Run>),
    /// Somebody walks.
    Busy {
        /// Which run.
        run: i64,
        /// The end of its claim, unless it is renewed.
        until: Timestamp,
    },
}

/// Begins a run, or takes the open one over whose walker has not been heard of since its claim ended. A run that is taken
/// over is from then on as careful as its new walker: `applies` says whether it may remove.
pub async fn begin(
    connection: &mut PgConnection,
    claim: Uuid,
    applies: bool,
    life: TimeDelta,
) -> Result<Begun, StoreError> {
    let mode = if applies { "apply" } else { "dry_run" };
    let row = sqlx::query!(
        r#"with taken as (
             update reconcile_runs
             set mode = $1,
                 claim = $2,
                 claimed_until = now() + make_interval(secs => $3)
             where ended_at is null
               and claimed_until <= now()
             returning *
         ),
         made as (
             insert into reconcile_runs (mode, claim, claimed_until)
             select $1, $2, now() + make_interval(secs => $3)
             where not exists (select from reconcile_runs where ended_at is null)
             on conflict do nothing
             returning *
         )
         select id as "id!", begun_at as "begun_at!", cursor, walked_at is not null as "is_walked!",
                versions as "versions!", kept as "kept!", owed as "owed!", card_strays as "card_strays!",
                unknown as "unknown!", missing as "missing!", missing_objects as "missing_objects!",
                purges as "purges!", removed as "removed!", failed as "failed!", spared as "spared!"
         from (select * from taken union all select * from made) as run"#,
        mode,
        claim,
        seconds(life),
    )
    .fetch_optional(&mut *connection)
    .await?;
    if let Some(row) = row {
        return Ok(Begun::Yes(Box::new(Run {
            id: row.id,
            claim,
            begun_at: row.begun_at,
            cursor: row.cursor,
            is_walked: row.is_walked,
            counts: Counts {
                versions: row.versions.unsigned_abs(),
                kept: row.kept.unsigned_abs(),
                owed: row.owed.unsigned_abs(),
                card_strays: row.card_strays.unsigned_abs(),
                unknown: row.unknown.unsigned_abs(),
                missing: row.missing.unsigned_abs(),
            },
            removals: Removals {
                purges: row.purges.unsigned_abs(),
                removed: row.removed.unsigned_abs(),
                failed: row.failed.unsigned_abs(),
                spared: row.spared.unsigned_abs(),
            },
            // Only shown: what an earlier version wrote otherwise is no reason to stop.
            missing: serde_json::from_value(row.missing_objects).unwrap_or_default(),
        })));
    }
    let open = sqlx::query!("select id, claimed_until from reconcile_runs where ended_at is null")
        .fetch_optional(&mut *connection)
        .await?;
    Ok(match open {
        Some(open) => Begun::Busy { run: open.id, until: open.claimed_until },
        // It ended between the two statements: there is nothing to wait for.
        None => Begun::Busy { run: 0, until: crate::clock::now(connection).await? },
    })
}

/// Writes down how far the walk came and what it has counted by now, and renews the claim. In the caller's transaction
/// with [`crate::strays::see`], and before it. False: the run is somebody else's by now, and the transaction must go.
pub async fn save(connection: &mut PgConnection, run: &Run, life: TimeDelta) -> Result<bool, StoreError> {
    let Run { counts, removals, .. } = run;
    let saved = sqlx::query!(
        "update reconcile_runs
         set cursor = $3,
             walked_at = case when $4 then coalesce(walked_at, now()) end,
             versions = $5,
             kept = $6,
             owed = $7,
             card_strays = $8,
             unknown = $9,
             missing = $10,
             missing_objects = $11,
             purges = $12,
             removed = $13,
             failed = $14,
             spared = $15,
             claimed_until = now() + make_interval(secs => $16)
         where id = $1
           and claim = $2
           and ended_at is null",
        run.id,
        run.claim,
        run.cursor,
        run.is_walked,
        number(counts.versions),
        number(counts.kept),
        number(counts.owed),
        number(counts.card_strays),
        number(counts.unknown),
        number(counts.missing),
        serde_json::to_value(&run.missing).unwrap_or_default(),
        number(removals.purges),
        number(removals.removed),
        number(removals.failed),
        number(removals.spared),
        seconds(life),
    )
    .execute(connection)
    .await?;
    Ok(saved.rows_affected() == 1)
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Gives the claim back, so that the next walker need not wait for its end.
pub async fn release(connection: &mut PgConnection, run: &Run) -> Result<(), StoreError> {
    sqlx::query!(
        "update reconcile_runs set claimed_until = now() where id = $1 and claim = $2 and ended_at is null",
        run.id,
        run.claim,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Ends a run with its report. False: it is somebody else's by now.
pub async fn end(
    connection: &mut PgConnection,
    run: &Run,
    verdict: &str,
    report: &Value,
) -> Result<bool, StoreError> {
    let ended = sqlx::query!(
        "update reconcile_runs
         set ended_at = now(),
             verdict = $3,
             report = $4
         where id = $1
           and claim = $2
           and ended_at is null",
        run.id,
        run.claim,
        verdict,
        report,
    )
    .execute(connection)
    .await?;
    Ok(ended.rows_affected() == 1)
}

/// The run that ended last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Last {
    /// How long it has been over.
    pub ended_for: TimeDelta,
    /// Versions it saw.
    pub versions: u64,
    /// What it missed.
    pub missing: u64,
}

/// The run that ended last, and whether one is open.
pub async fn last(connection: &mut PgConnection) -> Result<(Option<Last>, bool), StoreError> {
    let row = sqlx::query!(
        r#"select (select exists (select from reconcile_runs where ended_at is null)) as "is_open!",
                extract(epoch from now() - r.ended_at)::float8 as ended_for_seconds,
                r.versions as "versions?",
                r.missing as "missing?"
         from (select 1) as one
         left join lateral (
             select *
             from reconcile_runs
             where ended_at is not null
             order by ended_at desc
             limit 1
         ) as r on true"#
    )
    .fetch_one(connection)
    .await?;
    let last = row.ended_for_seconds.map(|ended_for| Last {
        ended_for: whole_seconds(ended_for),
        versions: row.versions.unwrap_or_default().unsigned_abs(),
        missing: row.missing.unwrap_or_default().unsigned_abs(),
    });
    Ok((last, row.is_open))
}

#[expect(clippy::cast_possible_truncation, reason = "an age in seconds; a fraction of one says nothing here")]
fn whole_seconds(seconds: f64) -> TimeDelta {
    TimeDelta::seconds(seconds as i64)
}

/// Which database this is. Every restore changes at least one of the four, except a file system's snapshot put back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster's: another one after initdb, so after a dump was restored elsewhere.
    pub system_identifier: i64,
    /// Raised by point-in-time recovery and by promotion.
    pub timeline_id: i32,
    /// Another after the database was made anew.
    pub database_oid: i64,
    /// Another after the table `cards` was made anew, as `pg_restore --clean` does.
    pub cards_oid: i64,
}

/// Whether this is the database that was known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// It is; or it was recorded just now, for the first time.
    Yes,
    /// It is not.
    No {
        /// What was recorded.
        recorded: Identity,
        /// What it is.
        found: Identity,
    },
}

/// Compares the database with what was recorded of it; the first to ask records it.
pub async fn identify(connection: &mut PgConnection) -> Result<Known, StoreError> {
    let found = identity(&mut *connection).await?;
    sqlx::query!(
        "insert into database_identity (system_identifier, timeline_id, database_oid, cards_oid)
         values ($1, $2, $3, $4)
         on conflict do nothing",
        found.system_identifier,
        found.timeline_id,
        found.database_oid,
        found.cards_oid,
    )
    .execute(&mut *connection)
    .await?;
    let recorded = sqlx::query_as!(
        Identity,
        "select system_identifier, timeline_id, database_oid, cards_oid from database_identity"
    )
    .fetch_one(connection)
    .await?;
    Ok(if recorded == found { Known::Yes } else { Known::No { recorded, found } })
}

async fn identity(connection: &mut PgConnection) -> Result<Identity, StoreError> {
    Ok(sqlx::query_as!(
        Identity,
        r#"select (select system_identifier from pg_control_system()) as "system_identifier!",
                -- of the WAL that is written now: pg_control_checkpoint() has the last checkpoint's, which comes later
                ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::integer as "timeline_id!",
                (select oid::bigint from pg_database where datname = current_database()) as "database_oid!",
                'cards'::regclass::oid::bigint as "cards_oid!""#
    )
    .fetch_one(connection)
    .await?)
}

/// An operator says that the database that was restored is the truth. What was known of strays is forgotten: each gets its
/// whole grace again, for a card that the restore lost may be why its object is one.
pub async fn accept_restore(connection: &mut PgConnection) -> Result<(), StoreError> {
    let found = identity(&mut *connection).await?;
    sqlx::query!(
        "insert into database_identity (system_identifier, timeline_id, database_oid, cards_oid, accepted_at)
         values ($1, $2, $3, $4, now())
         on conflict (is_the_only_row) do update
         set accepted_at = excluded.accepted_at,
             system_identifier = excluded.system_identifier,
             timeline_id = excluded.timeline_id,
             database_oid = excluded.database_oid,
             cards_oid = excluded.cards_oid,
             recorded_at = now()",
        found.system_identifier,
        found.timeline_id,
        found.database_oid,
        found.cards_oid,
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!("delete from strays").execute(connection).await?;
    Ok(())
}

/// A range of cards, both ends in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// The first id it may hold.
    pub first: CardId,
    /// The last.
    pub last: CardId,
}

/// A page of a range.
#[derive(Debug)]
pub struct Page {
    /// Those of the page that are in a state asked for, in the order of their ids.
    pub rows: Vec<Row>,
    /// The last card the page spans, whatever its state; `None`: the range is done.
    pub through: Option<CardId>,
}

/// The cards of a range after `after` in one of these states, but for those in `except`: they were read before. At most
/// `limit` cards are looked at.
pub async fn in_range(
    connection: &mut PgConnection,
    range: IdRange,
    after: Option<CardId>,
    states: &[StateName],
    except: &[CardId],
    limit: u32,
) -> Result<Page, StoreError> {
    let states: Vec<String> = states.iter().map(|state| state.as_str().to_owned()).collect();
    let except: Vec<Uuid> = except.iter().map(|card| card.0).collect();
    let after = after.map(|card| card.0);
    // The page's end first, from the index alone: a page of few cards in these states is as quick as any other.
    let span = sqlx::query!(
        r#"with page as (
             select id
             from cards
             where id >= $1
               and id <= $2
               and ($3::uuid is null or id > $3)
             order by id
             limit $4
         )
         select count(*) as "spanned!", (select id from page order by id desc limit 1) as last
         from page"#,
        range.first.0,
        range.last.0,
        after,
        i64::from(limit),
    )
    .fetch_one(&mut *connection)
    .await?;
    let Some(last) = span.last else { return Ok(Page { rows: Vec::new(), through: None }) };
    let rows = sqlx::query_as!(
        CardRow,
        "select *
         from cards
         where id >= $1
           and id <= $2
           and ($3::uuid is null or id > $3)
           and state = any($4)
           and id <> all($5)
         order by id",
        range.first.0,
        last,
        after,
        &states,
        &except,
    )
    .fetch_all(connection)
    .await?;
    let is_full = span.spanned == i64::from(limit);
    Ok(Page { rows: rows.into_iter().map(Row::from).collect(), through: is_full.then_some(CardId(last)) })
}
