//! Versions in the bucket that nobody keeps: what events told of (R-B11), what a reconciliation saw, and what it removes
//! (R-H2).
//!
//! A row is one version. It comes with the first event or run that saw it, counts one sighting for each further one, and
//! goes when it is removed, asked to be purged, or not seen any more.

use cards::{CardId, Ids, Timestamp, VersionId};
use chrono::TimeDelta;
use serde::Serialize;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::StoreError;
use crate::tickets::seconds;

/// Records a stray, or one more sighting of it. `version` is empty where the event had none.
pub async fn record(
    connection: &mut PgConnection,
    key: &str,
    version: &str,
    size_bytes: u64,
) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into strays (key, version, size_bytes)
         values ($1, $2, $3)
         on conflict (key, version) do update
         set last_seen_at = now(),
             sightings = strays.sightings + 1",
        key,
        version,
        i64::try_from(size_bytes).unwrap_or(i64::MAX),
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// How many strays are recorded.
pub async fn count(connection: &mut PgConnection) -> Result<i64, StoreError> {
    Ok(sqlx::query_scalar!(r#"select count(*) as "count!" from strays"#).fetch_one(connection).await?)
}

/// A version that a run saw and nobody keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its key.
    pub key: String,
    /// Its version id.
    pub version: VersionId,
    /// The card that does not keep it; none: there is no card.
    pub card: Option<CardId>,
    /// Whether it only says that the key was deleted.
    pub is_delete_marker: bool,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// When the store took it.
    pub last_modified: Timestamp,
}

/// Records what a run saw: one sighting a run, however often a chunk of it is done again.
pub async fn see(connection: &mut PgConnection, run: i64, seen: &[Seen]) -> Result<(), StoreError> {
    let keys: Vec<String> = seen.iter().map(|seen| seen.key.clone()).collect();
    let versions: Vec<String> = seen.iter().map(|seen| seen.version.as_str().to_owned()).collect();
    let cards: Vec<Option<Uuid>> = seen.iter().map(|seen| seen.card.map(|card| card.0)).collect();
    let markers: Vec<bool> = seen.iter().map(|seen| seen.is_delete_marker).collect();
    let sizes: Vec<i64> =
        seen.iter().map(|seen| i64::try_from(seen.size_bytes).unwrap_or(i64::MAX)).collect();
    let modified: Vec<Timestamp> = seen.iter().map(|seen| seen.last_modified).collect();
    sqlx::query!(
        "insert into strays (key, version, card_id, is_delete_marker, size_bytes, last_modified, seen_in)
         -- a store that names a version twice on a page must not stop the walk
         select distinct on (s.key, s.version) s.key, s.version, s.card, s.marker, s.size_bytes, s.modified, $1::bigint
         from unnest($2::text[], $3::text[], $4::uuid[], $5::boolean[], $6::bigint[], $7::timestamptz[])
             as s (key, version, card, marker, size_bytes, modified)
         on conflict (key, version) do update
         set card_id = excluded.card_id,
             is_delete_marker = excluded.is_delete_marker,
             size_bytes = excluded.size_bytes,
             last_modified = excluded.last_modified,
             last_seen_at = now(),
             sightings = strays.sightings
                 + case when strays.seen_in is distinct from excluded.seen_in then 1 else 0 end,
             seen_in = excluded.seen_in",
        run,
        &keys,
        &versions,
        &cards as &[Option<Uuid>],
        &markers,
        &sizes,
        &modified,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Asks for the purges of at most `limit` cards of which this run saw strays, and forgets those strays: they are on their
/// way. Answers how many cards it asked for; 0: there are no more, or a restore was accepted less than a day ago.
pub async fn request_purges(
    connection: &mut PgConnection,
    ids: Ids,
    run: i64,
    limit: i64,
) -> Result<u64, StoreError> {
    let cards = sqlx::query_scalar!(
        r#"select distinct card_id as "card!"
         from strays
         where seen_in = $1
           and card_id is not null
           -- a row that a restore put back may call for less than it did: an operator has a day to look
           and not exists (
               select
               from database_identity
               where accepted_at > now() - interval '24 hours'
           )
         order by 1
         limit $2"#,
        run,
        limit,
    )
    .fetch_all(&mut *connection)
    .await?;
    for card in &cards {
        crate::purge::request(&mut *connection, ids, CardId(*card), "reconciliation").await?;
    }
    sqlx::query!("delete from strays where seen_in = $1 and card_id = any($2)", run, &cards)
        .execute(connection)
        .await?;
    Ok(cards.len() as u64)
}

/// A version of no card that may be removed: old enough, seen often enough, and seen by this run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its key.
    pub key: String,
    /// Its version id.
    pub version: VersionId,
    /// The card that its key names, if it names one: there was no such card.
    pub named: Option<CardId>,
}

/// When a stray may go, and how often it must have been seen: R-H2's grace and second sighting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grace {
    /// So long after it was first seen.
    pub life: TimeDelta,
    /// Seen so often, once by this run.
    pub sightings: i32,
}

/// The next candidates of this run, in the order of key and version, after `after`.
pub async fn candidates(
    connection: &mut PgConnection,
    run: i64,
    grace: Grace,
    after: Option<&Candidate>,
    limit: i64,
) -> Result<Vec<Candidate>, StoreError> {
    let rows = sqlx::query!(
        "select key, version
         from strays
         where seen_in = $1
           and card_id is null
           and version <> ''
           and first_seen_at <= now() - make_interval(secs => $2)
           and sightings >= $3
           and (key, version) > ($4, $5)
         order by key, version
         limit $6",
        run,
        seconds(grace.life),
        grace.sightings,
        after.map_or("", |after| after.key.as_str()),
        after.map_or("", |after| after.version.as_str()),
        limit,
    )
    .fetch_all(connection)
    .await?;
    // What can't be read back is nothing the store could have listed: it stays.
    Ok(rows
        .into_iter()
        .filter_map(|row| {
            let version = VersionId::parse(&row.version).ok()?;
            Some(Candidate { named: cards::purge::card_of(&row.key), key: row.key, version })
        })
        .collect())
}

/// Looks the cards of these candidates up once more, and writes down those that still have none: **only what this answers
/// may be removed** (R-H2). The others are no strays any more and are forgotten.
pub async fn record_removals(
    connection: &mut PgConnection,
    run: i64,
    candidates: &[Candidate],
) -> Result<Vec<(String, VersionId)>, StoreError> {
    let keys: Vec<String> = candidates.iter().map(|candidate| candidate.key.clone()).collect();
    let versions: Vec<String> =
        candidates.iter().map(|candidate| candidate.version.as_str().to_owned()).collect();
    let named: Vec<Option<Uuid>> =
        candidates.iter().map(|candidate| candidate.named.map(|card| card.0)).collect();
    let rows = sqlx::query!(
        "insert into stray_removals (
             key, version, is_delete_marker, size_bytes, last_modified, first_seen_at, sightings, run_id
         )
         select s.key, s.version, s.is_delete_marker, s.size_bytes, s.last_modified, s.first_seen_at, s.sightings, $1
         from unnest($2::text[], $3::text[], $4::uuid[]) as r (key, version, named)
         join strays s on s.key = r.key and s.version = r.version
         -- A card points only at keys that name it: no card of that id, no reference.
         where not exists (select from cards c where c.id = r.named)
         on conflict (key, version) do update
         set run_id = excluded.run_id,
             recorded_at = now(),
             removed_at = null
         returning key, version",
        run,
        &keys,
        &versions,
        &named as &[Option<Uuid>],
    )
    .fetch_all(&mut *connection)
    .await?;
    let recorded: Vec<String> = rows.iter().map(|row| row.key.clone()).collect();
    sqlx::query!(
        "delete from strays s
         using unnest($1::text[], $2::text[]) as r (key, version)
         where s.key = r.key
           and s.version = r.version
           and s.key <> all($3)",
        &keys,
        &versions,
        &recorded,
    )
    .execute(connection)
    .await?;
    Ok(rows
        .into_iter()
        .filter_map(|row| VersionId::parse(&row.version).ok().map(|version| (row.key, version)))
        .collect())
}

/// Writes down that the store removed these, and forgets them as strays.
pub async fn removed(
    connection: &mut PgConnection,
    versions: &[(String, VersionId)],
) -> Result<(), StoreError> {
    let keys: Vec<String> = versions.iter().map(|(key, _)| key.clone()).collect();
    let versions: Vec<String> = versions.iter().map(|(_, version)| version.as_str().to_owned()).collect();
    sqlx::query!(
        "update stray_removals s
         set removed_at = now()
         from unnest($1::text[], $2::text[]) as r (key, version)
         where s.key = r.key
           and s.version = r.version",
        &keys,
        &versions,
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!(
        "delete from strays s
         using unnest($1::text[], $2::text[]) as r (key, version)
         where s.key = r.key
           and s.version = r.version",
        &keys,
        &versions,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// What is left of a run's strays of no card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Left {
    /// They might go: old enough, seen often enough.
    pub removable: u64,
    /// They wait for their grace or another sighting.
    pub waiting: u64,
    /// When the first of these is old enough.
    pub first_due_at: Option<Timestamp>,
}

/// Counts what is left of this run's strays of no card.
pub async fn left(connection: &mut PgConnection, run: i64, grace: Grace) -> Result<Left, StoreError> {
    let row = sqlx::query!(
        r#"select count(*) filter (where is_due) as "removable!",
                count(*) filter (where not is_due) as "waiting!",
                min(old_enough_at) filter (where not is_due) as first_due_at
         from (
             select first_seen_at + make_interval(secs => $2) as old_enough_at,
                    first_seen_at + make_interval(secs => $2) <= now() and sightings >= $3 as is_due
             from strays
             where seen_in = $1
               and card_id is null
         ) as s"#,
        run,
        seconds(grace.life),
        grace.sightings,
    )
    .fetch_one(connection)
    .await?;
    Ok(Left {
        removable: row.removable.unsigned_abs(),
        waiting: row.waiting.unsigned_abs(),
        first_due_at: row.first_due_at,
    })
}

/// Forgets what was last seen before a run began that has met every version there is: it is gone. Events that had no
/// version go too, for that run has seen the version they told of.
pub async fn forget_unseen(connection: &mut PgConnection, run: i64) -> Result<u64, StoreError> {
    let forgotten = sqlx::query!(
        "delete from strays
         where last_seen_at < (select begun_at from reconcile_runs where id = $1)",
        run,
    )
    .execute(connection)
    .await?;
    Ok(forgotten.rows_affected())
}
