//! Objects under our prefix that no card has (R-B11).

use sqlx::PgConnection;

use crate::StoreError;

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
