//! Numbers for the metrics page.

use sqlx::PgConnection;

use crate::StoreError;

/// Numbers read from the tables.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overview {
    /// Cards by state.
    pub cards: Vec<(String, i64)>,
    /// Cards that wait for a replay.
    pub parked: i64,
    /// Unfinished cards whose look is overdue by more than a minute.
    pub overdue: i64,
    /// Outbox rows that are due.
    pub outbox_due: i64,
    /// Outbox rows that are due later.
    pub outbox_delayed: i64,
    /// How long the oldest due row has been due, in seconds.
    pub outbox_oldest_seconds: f64,
    /// Strays recorded.
    pub strays: i64,
}

/// Reads them all in one snapshot.
pub async fn read(connection: &mut PgConnection) -> Result<Overview, StoreError> {
    let cards = sqlx::query!(r#"select state, count(*) as "count!" from cards group by state"#)
        .fetch_all(&mut *connection)
        .await?;
    let row = sqlx::query!(
        r#"select
             (select count(*) from cards where parked_at is not null) as "parked!",
             (
                 select count(*)
                 from cards
                 where next_check_at < now() - interval '1 minute'
             ) as "overdue!",
             (select count(*) from outbox where available_at <= now()) as "outbox_due!",
             (select count(*) from outbox where available_at > now()) as "outbox_delayed!",
             coalesce(
                 (select extract(epoch from now() - min(available_at))::float8 from outbox where available_at <= now()),
                 0
             ) as "outbox_oldest_seconds!",
             (select count(*) from strays) as "strays!""#
    )
    .fetch_one(connection)
    .await?;
    Ok(Overview {
        cards: cards.into_iter().map(|row| (row.state, row.count)).collect(),
        parked: row.parked,
        overdue: row.overdue,
        outbox_due: row.outbox_due,
        outbox_delayed: row.outbox_delayed,
        outbox_oldest_seconds: row.outbox_oldest_seconds,
        strays: row.strays,
    })
}
