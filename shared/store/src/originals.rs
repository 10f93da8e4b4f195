//! What the duplicates of a page stand for (R-C6).

use std::collections::HashMap;

use cards::{Card, CardId, OwnerId};
use sqlx::PgConnection;

use crate::StoreError;
use crate::row::CardRow;

/// The owner's cards of these ids, in one query. An id that is not the owner's, or not there, is left out.
pub async fn by_ids(
    connection: &mut PgConnection,
    owner: OwnerId,
    ids: &[CardId],
) -> Result<HashMap<CardId, Card>, StoreError> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let ids: Vec<_> = ids.iter().map(|id| id.0).collect();
    sqlx::query_as!(
        CardRow,
        "select *
         from cards
         where owner_id = $1
           and id = any($2)",
        owner.0,
        &ids,
    )
    .fetch_all(connection)
    .await?
    .into_iter()
    .map(|row| row.into_card().map(|card| (card.id, card)))
    .collect()
}
