//! Owners: who files belong to.

use cards::{Ids, OwnerId};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::StoreError;

/// The owner of a token's subject; made when seen for the first time.
pub async fn of_subject(
    connection: &mut PgConnection,
    ids: Ids,
    subject: &str,
) -> Result<OwnerId, StoreError> {
    if let Some(id) = find(&mut *connection, subject).await? {
        return Ok(id);
    }
    sqlx::query!(
        "insert into owners (id, subject)
         values ($1, $2)
         on conflict (subject) do nothing",
        ids.owner().0,
        subject,
    )
    .execute(&mut *connection)
    .await?;
    // Another request may have made it first: the row that is there counts.
    find(connection, subject).await?.ok_or_else(|| StoreError::Statement(sqlx::Error::RowNotFound))
}

async fn find(connection: &mut PgConnection, subject: &str) -> Result<Option<OwnerId>, StoreError> {
    let id: Option<Uuid> = sqlx::query_scalar!("select id from owners where subject = $1", subject)
        .fetch_optional(connection)
        .await?;
    Ok(id.map(OwnerId))
}
