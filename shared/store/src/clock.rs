//! The database's clock, the only one that is stored or compared.

use cards::Timestamp;
use sqlx::PgConnection;

use crate::StoreError;

/// The time of the transaction; outside one, the time of this statement.
pub async fn now(connection: &mut PgConnection) -> Result<Timestamp, StoreError> {
    Ok(sqlx::query_scalar!(r#"select now() as "now!""#).fetch_one(connection).await?)
}
