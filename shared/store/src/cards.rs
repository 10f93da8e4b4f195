//! Reading cards.

use cards::{Card, CardId, OwnerId, StateName, Timestamp};
use sqlx::PgConnection;

use crate::StoreError;
use crate::row::CardRow;

/// The card of this id, whoever it belongs to: for workers.
pub async fn by_id(connection: &mut PgConnection, id: CardId) -> Result<Option<Card>, StoreError> {
    sqlx::query_as!(CardRow, "select * from cards where id = $1", id.0)
        .fetch_optional(connection)
        .await?
        .map(CardRow::into_card)
        .transpose()
}

/// The owner's card of this id: another owner's is not there (R-D3).
pub async fn of_owner(
    connection: &mut PgConnection,
    owner: OwnerId,
    id: CardId,
) -> Result<Option<Card>, StoreError> {
    sqlx::query_as!(CardRow, "select * from cards where owner_id = $1 and id = $2", owner.0, id.0)
        .fetch_optional(connection)
        .await?
        .map(CardRow::into_card)
        .transpose()
}

/// Where a page of the list begins: after this card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Its creation.
    pub created_at: Timestamp,
    /// Its id.
    pub id: CardId,
}

/// Which of the owner's cards are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only these states; all when empty.
    pub states: Vec<StateName>,
    /// Only this content type.
    pub content_type: Option<String>,
}

/// The owner's cards, newest first, at most `limit`. A row that can't be read is told and left out: one does not hide the
/// others.
pub async fn list(
    connection: &mut PgConnection,
    owner: OwnerId,
    filter: &Filter,
    after: Option<Cursor>,
    limit: i64,
) -> Result<Vec<Card>, StoreError> {
    let states: Vec<String> = filter.states.iter().map(|state| state.as_str().to_owned()).collect();
    let rows = sqlx::query_as!(
        CardRow,
        "select *
         from cards
         where owner_id = $1
           and (cardinality($2::text[]) = 0 or state = any($2))
           and ($3::text is null or content_type = $3)
           and ($4::timestamptz is null or (created_at, id) < ($4, $5::uuid))
         order by created_at desc, id desc
         limit $6",
        owner.0,
        &states,
        filter.content_type,
        after.map(|cursor| cursor.created_at),
        after.map(|cursor| cursor.id.0),
        limit,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .filter_map(|row| {
            let id = row.id;
            row.into_card()
                .inspect_err(|error| tracing::error!(card.id = %id, %error, "left a card out of a list"))
                .ok()
        })
        .collect())
}
