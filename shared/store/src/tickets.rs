//! Tickets: a pending card is made with its ticket, and renewed (R-A1, R-A5).

use cards::{Announced, Card, CardId, Keep, OwnerId, StateName, TicketMethod, timing};
use chrono::TimeDelta;
use serde_json::json;
use sqlx::PgConnection;

use crate::StoreError;
use crate::deletion::Replaceable;
use crate::history::{self, Note};
use crate::row::CardRow;

/// What a ticket is asked for.
#[derive(Clone, Debug)]
pub struct NewCard {
    /// Its id.
    pub id: CardId,
    /// Whose.
    pub owner: OwnerId,
    /// What the owner calls it.
    pub filename: String,
    /// What the bytes will be.
    pub announced: Announced,
    /// The ticket's form.
    pub method: TicketMethod,
    /// Whether it may vanish.
    pub keep: Keep,
    /// The ticket's life, in whole seconds.
    pub life: TimeDelta,
    /// The file it takes the place of once it is ready (R-F1).
    pub replaces: Option<CardId>,
    /// The trace it starts.
    pub traceparent: Option<String>,
    /// `Idempotency-Key`, and the digest of the request's body.
    pub idempotency: Option<(String, [u8; 32])>,
}

/// What came of asking for a ticket.
#[derive(Clone, Debug, PartialEq)]
pub enum Issued {
    /// A new card.
    New(Card),
    /// The card an earlier request with the same key and body made.
    Before(Card),
    /// The key was used with another body.
    OtherRequest,
    /// The file it would replace is not there, or serves nothing (R-F1).
    NotReplaceable(Replaceable),
    /// That file has an open replacement already. The transaction is dead and must be rolled back.
    ReplacementOpen,
}

/// The index that makes a second open replacement of a file impossible (R-F1).
const ONE_OPEN_REPLACEMENT: &str = "cards_one_open_replacement";

/// Makes a pending card. Its ticket is signed from the times this answers: the database's clock, in whole seconds.
pub async fn issue(connection: &mut PgConnection, new: &NewCard) -> Result<Issued, StoreError> {
    let (key, fingerprint) = match &new.idempotency {
        Some((key, fingerprint)) => (Some(key.as_str()), Some(fingerprint.as_slice())),
        None => (None, None),
    };
    if let Some(replaced) = new.replaces {
        match crate::deletion::replaceable(&mut *connection, new.owner, replaced).await? {
            Replaceable::Yes => {}
            no @ (Replaceable::No(_) | Replaceable::NotThere) => {
                // A repeat of a request that was served finds its card, whatever became of the file meanwhile.
                return match before(connection, new.owner, key, fingerprint).await? {
                    Some(issued) => Ok(issued),
                    None => Ok(Issued::NotReplaceable(no)),
                };
            }
        }
    }
    let inserted = sqlx::query_as!(
        CardRow,
        "insert into cards (
             id, owner_id, state, source_key, filename, size_bytes, content_type, announced_sha256, keep,
             idempotency_key, idempotency_fingerprint, ticket_method, ticket_issued_at, ticket_ends_at, traceparent,
             next_check_at, replaces_id
         )
         values (
             $1, $2, 'pending', 'incoming/' || $1::uuid::text, $3, $4, $5, $6, $7,
             $8, $9, $10, date_trunc('second', now()), date_trunc('second', now()) + make_interval(secs => $11), $12,
             now() + make_interval(secs => $13), $14
         )
         on conflict (owner_id, idempotency_key) where idempotency_key is not null do nothing
         returning *",
        new.id.0,
        new.owner.0,
        new.filename,
        i64::try_from(new.announced.size.get()).unwrap_or(i64::MAX),
        new.announced.media_type.as_str(),
        new.announced.sha256.map(|digest| digest.0.to_vec()),
        new.keep.as_str(),
        key,
        fingerprint,
        new.method.as_str(),
        seconds(new.life),
        new.traceparent,
        seconds(timing::FIRST_LOOK),
        new.replaces.map(|card| card.0),
    )
    .fetch_optional(&mut *connection)
    .await
    .map_err(StoreError::from);
    let row = match inserted {
        Err(error) if error.is_constraint(ONE_OPEN_REPLACEMENT) => return Ok(Issued::ReplacementOpen),
        other => other?,
    };
    let Some(row) = row else {
        let issued = before(connection, new.owner, key, fingerprint).await?;
        return issued.ok_or(StoreError::Contention(sqlx::Error::RowNotFound));
    };
    let card = row.into_card()?;
    note(connection, &card, "ticket_issued").await?;
    Ok(Issued::New(card))
}

/// What an earlier request with this key made; none: there was none.
async fn before(
    connection: &mut PgConnection,
    owner: OwnerId,
    key: Option<&str>,
    fingerprint: Option<&[u8]>,
) -> Result<Option<Issued>, StoreError> {
    let row = sqlx::query_as!(
        CardRow,
        "select *
         from cards
         where owner_id = $1
           and idempotency_key = $2",
        owner.0,
        key,
    )
    .fetch_optional(connection)
    .await?;
    let Some(row) = row else { return Ok(None) };
    if row.idempotency_fingerprint.as_deref() == fingerprint {
        row.into_card().map(|card| Some(Issued::Before(card)))
    } else {
        Ok(Some(Issued::OtherRequest))
    }
}

/// What came of asking for a renewal.
#[derive(Clone, Debug, PartialEq)]
pub enum Renewed {
    /// The ticket runs anew.
    Yes(Card),
    /// The card is no longer pending, or its 24 hours are over; as it is now.
    No(Card),
    /// No such card.
    NotThere,
}

/// Renews a pending card's ticket, up to 24 h after its creation. Raises the revision, so that an expiry decided
/// before it no longer fits (R-B7).
pub async fn renew(
    connection: &mut PgConnection,
    owner: OwnerId,
    id: CardId,
    life: TimeDelta,
) -> Result<Renewed, StoreError> {
    let row = sqlx::query_as!(
        CardRow,
        "update cards
         set revision = revision + 1,
             ticket_issued_at = date_trunc('second', now()),
             ticket_ends_at = greatest(
                 ticket_ends_at, date_trunc('second', now()) + make_interval(secs => $3)
             ),
             looks = 0,
             next_check_at = now() + make_interval(secs => $4),
             updated_at = now()
         where owner_id = $1
           and id = $2
           and state = 'pending'
           and created_at + make_interval(secs => $5) > now()
         returning *",
        owner.0,
        id.0,
        seconds(life),
        seconds(timing::FIRST_LOOK),
        seconds(timing::RENEWAL_WINDOW),
    )
    .fetch_optional(&mut *connection)
    .await?;
    let Some(row) = row else {
        let card = crate::cards::of_owner(connection, owner, id).await?;
        return Ok(card.map_or(Renewed::NotThere, Renewed::No));
    };
    let card = row.into_card()?;
    note(connection, &card, "ticket_renewed").await?;
    Ok(Renewed::Yes(card))
}

async fn note(connection: &mut PgConnection, card: &Card, event: &str) -> Result<(), StoreError> {
    history::note(
        connection,
        Note {
            owner: card.owner,
            card: card.id,
            revision: card.revision,
            event,
            state: StateName::Pending,
            detail: json!({ "method": card.ticket.method.as_str(), "ends_at": card.ticket.ends_at }),
        },
    )
    .await
}

/// Spans go into SQL as seconds.
pub(crate) fn seconds(span: TimeDelta) -> f64 {
    span.as_seconds_f64()
}
