//! Asking for a purge: a time on the card and a message (DESIGN "Purge"). What the purge itself does comes with the
//! deleter; until then the messages wait in their queue, and the time on the card says that one is owed.

use cards::{CardId, Ids, timing};
use sqlx::PgConnection;

use crate::StoreError;
use crate::tickets::seconds;

/// Sets `purge_at` to now, or leaves a later one, and writes the message. Works in every state; a card that is not
/// there owes nothing.
pub async fn request(
    connection: &mut PgConnection,
    ids: Ids,
    card: CardId,
    reason: &str,
) -> Result<(), StoreError> {
    sqlx::query!(
        r#"with asked as (
             update cards
             set purge_at = greatest(purge_at, now()),
                 next_check_at = coalesce(next_check_at, now() + make_interval(secs => $4))
             where id = $1
             returning id, traceparent
         )
         insert into outbox (queue, message_id, card_id, body, traceparent, reason)
         select 'card.purge', $2, id, convert_to(format('{"card":"%s"}', id), 'UTF8'), traceparent, $3
         from asked"#,
        card.0,
        ids.message().0,
        reason,
        seconds(timing::DELETE_WAIT),
    )
    .execute(connection)
    .await?;
    Ok(())
}
