//! The append-only history of each card.

use cards::{CardId, OwnerId, StateName, Timestamp};
use sqlx::PgConnection;

use crate::StoreError;

/// One line of a card's timeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Rises with insertion.
    pub id: i64,
    /// The card's revision after it.
    pub revision: i64,
    /// What happened.
    pub event: String,
    /// The card's state after it.
    pub state: String,
    /// Facts of it, for people.
    pub detail: serde_json::Value,
    /// When.
    pub at: Timestamp,
}

/// What to write down.
pub(crate) struct Note<'a> {
    pub(crate) owner: OwnerId,
    pub(crate) card: CardId,
    pub(crate) revision: i64,
    pub(crate) event: &'a str,
    pub(crate) state: StateName,
    pub(crate) detail: serde_json::Value,
}

pub(crate) async fn note(connection: &mut PgConnection, note: Note<'_>) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into card_history (owner_id, card_id, revision, event, state, detail)
         values ($1, $2, $3, $4, $5, $6)",
        note.owner.0,
        note.card.0,
        note.revision,
        note.event,
        note.state.as_str(),
        note.detail,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// A card's timeline, oldest first. At most 200 lines: a card that has more is one an operator looks at in SQL.
pub async fn of_card(
    connection: &mut PgConnection,
    owner: OwnerId,
    card: CardId,
) -> Result<Vec<Entry>, StoreError> {
    Ok(sqlx::query_as!(
        Entry,
        "select id, revision, event, state, detail, at
         from card_history
         where owner_id = $1
           and card_id = $2
         order by id
         limit 200",
        owner.0,
        card.0,
    )
    .fetch_all(connection)
    .await?)
}
