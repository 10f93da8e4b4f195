//! What `arkiv fsck` reads (R-H4): cards page by page, and what one card's row can't tell. Nothing here writes.
//!
//! Every answer is bounded by its caller: a page of so many cards, these cards only, one line a queue. A card whose row
//! can't be read is handed out as what is wrong with it, and spoils no page.

use cards::{Card, CardId, StateName, Timestamp};
use chrono::TimeDelta;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::StoreError;
use crate::row::CardRow;
use crate::tickets::seconds;

/// One row of `cards`.
#[derive(Debug)]
pub struct Row {
    /// Its id.
    pub id: CardId,
    /// What it says, or [`StoreError::Unreadable`].
    pub card: Result<Card, StoreError>,
}

impl From<CardRow> for Row {
    fn from(row: CardRow) -> Self {
        Self { id: CardId(row.id), card: row.into_card() }
    }
}

/// Cards as they were read at one time.
#[derive(Debug)]
pub struct Rows {
    /// The database's time before they were read.
    pub at: Timestamp,
    /// In the order of their ids.
    pub rows: Vec<Row>,
}

/// One page of cards.
#[derive(Debug)]
pub struct Page {
    /// Those of the page that are in one of the states asked for.
    pub found: Rows,
    /// How many cards the page spans, whatever their state.
    pub spanned: u64,
    /// Where the next page begins; `None`: this was the last.
    pub through: Option<CardId>,
}

/// The next `limit` cards after `after`, in the order of their ids, of which those in `states` are handed out.
pub async fn page(
    connection: &mut PgConnection,
    after: Option<CardId>,
    states: &[StateName],
    limit: u32,
) -> Result<Page, StoreError> {
    let at = crate::clock::now(&mut *connection).await?;
    let after = after.map_or(Uuid::nil(), |card| card.0);
    // The page's end first, from the index alone: a page of few cards in these states is as quick as any other.
    let span = sqlx::query!(
        r#"with page as (select id from cards where id > $1 order by id limit $2)
         select count(*) as "spanned!", (select id from page order by id desc limit 1) as last
         from page"#,
        after,
        i64::from(limit),
    )
    .fetch_one(&mut *connection)
    .await?;
    let rows = sqlx::query_as!(
        CardRow,
        "select *
         from cards
         where id > $1
           and id <= $2
           and state = any($3)
         order by id",
        after,
        span.last.unwrap_or(after),
        &words(states),
    )
    .fetch_all(connection)
    .await?;
    let is_full = span.spanned == i64::from(limit);
    Ok(Page {
        found: Rows { at, rows: rows.into_iter().map(Row::from).collect() },
        spanned: span.spanned.unsigned_abs(),
        through: span.last.filter(|_| is_full).map(CardId),
    })
}

fn words(states: &[StateName]) -> Vec<String> {
    states.iter().map(|state| state.as_str().to_owned()).collect()
}

/// Those of these cards that there are.
pub async fn some(connection: &mut PgConnection, ids: &[CardId]) -> Result<Rows, StoreError> {
    let at = crate::clock::now(&mut *connection).await?;
    let rows = sqlx::query_as!(CardRow, "select * from cards where id = any($1) order by id", &uuids(ids))
        .fetch_all(connection)
        .await?;
    Ok(Rows { at, rows: rows.into_iter().map(Row::from).collect() })
}

fn uuids(ids: &[CardId]) -> Vec<Uuid> {
    ids.iter().map(|id| id.0).collect()
}

/// The oldest and the newest card: ids rise with time, so what lies between says how far a walk has come.
pub async fn ends(connection: &mut PgConnection) -> Result<Option<(CardId, CardId)>, StoreError> {
    let ends = sqlx::query!(
        "select (select id from cards order by id limit 1) as oldest,
                (select id from cards order by id desc limit 1) as newest"
    )
    .fetch_one(connection)
    .await?;
    Ok(ends.oldest.map(CardId).zip(ends.newest.map(CardId)))
}

/// An alias, and what became of its original.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    /// The `duplicate`.
    pub id: CardId,
    /// What it stands for.
    pub original: CardId,
    /// The original's state.
    pub original_state: String,
}

/// Those of these cards that are `duplicate` of a card that is not `ready` (R-C6: it goes with it, in one transaction).
pub async fn aliases_of_nothing(
    connection: &mut PgConnection,
    ids: &[CardId],
) -> Result<Vec<Alias>, StoreError> {
    let rows = sqlx::query!(
        "select alias.id, original.id as original, original.state
         from cards alias
         join cards original on original.owner_id = alias.owner_id and original.id = alias.original_id
         where alias.id = any($1)
           and alias.state = 'duplicate'
           and original.state <> 'ready'
         order by alias.id",
        &uuids(ids),
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Alias { id: CardId(row.id), original: CardId(row.original), original_state: row.state })
        .collect())
}

/// Those of these cards that are `deleted` and have no receipt (R-E5: it is written with that state).
pub async fn deleted_without_receipt(
    connection: &mut PgConnection,
    ids: &[CardId],
) -> Result<Vec<CardId>, StoreError> {
    let rows = sqlx::query_scalar!(
        "select c.id
         from cards c
         where c.id = any($1)
           and c.state = 'deleted'
           and not exists (select from receipts r where r.card_id = c.id)
         order by c.id",
        &uuids(ids),
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(CardId).collect())
}

/// What waits in the outbox for one queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The queue.
    pub queue: String,
    /// Rows, due or not.
    pub rows: u64,
    /// Rows that have been due for longer than `late_after`.
    pub late: u64,
    /// For how long the oldest of them has been due.
    pub oldest_late: Option<TimeDelta>,
    /// Rows that the broker has returned or refused at least `returned_times`.
    pub returned: u64,
    /// What it said about one of them.
    pub last_error: Option<String>,
}

/// The outbox, a line a queue. `card`: only the rows about it.
pub async fn outbox(
    connection: &mut PgConnection,
    card: Option<CardId>,
    late_after: TimeDelta,
    returned_times: i32,
) -> Result<Vec<Waiting>, StoreError> {
    let rows = sqlx::query!(
        r#"select queue,
                count(*) as "rows!",
                count(*) filter (where available_at < now() - make_interval(secs => $2)) as "late!",
                extract(epoch from now() - min(available_at) filter (
                    where available_at < now() - make_interval(secs => $2)
                ))::float8 as oldest_late_seconds,
                count(*) filter (where publish_attempts >= $3) as "returned!",
                max(last_error) filter (where publish_attempts >= $3) as last_error
         from outbox
         where $1::uuid is null
            or card_id = $1
         group by queue
         order by queue"#,
        card.map(|card| card.0),
        seconds(late_after),
        returned_times,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Waiting {
            queue: row.queue,
            rows: row.rows.unsigned_abs(),
            late: row.late.unsigned_abs(),
            oldest_late: row.oldest_late_seconds.map(whole_seconds),
            returned: row.returned.unsigned_abs(),
            last_error: row.last_error,
        })
        .collect())
}

#[expect(clippy::cast_possible_truncation, reason = "an age in seconds; a fraction of one says nothing here")]
fn whole_seconds(seconds: f64) -> TimeDelta {
    TimeDelta::seconds(seconds as i64)
}
