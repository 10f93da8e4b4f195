//! Step 5 of the confirmation: guarded writes for many cards in one transaction (R-B3, R-B5).
//!
//! Rows are locked in id order, so that two groups can't deadlock, and each is guarded on its own by the state and
//! revision it was decided from: a lost race is a named result of that one card.

use std::collections::HashSet;

use cards::confirm::Refusal;
use cards::state::{Event, Transition};
use cards::{Card, CardId, ConfirmedBy, Ids, State, StateName, VersionId, timing};
use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::StoreError;
use crate::history::{self, Note};
use crate::row::CardRow;
use crate::tickets::seconds;

/// A version to pin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confirmation {
    /// The card.
    pub card: CardId,
    /// The revision it was decided from.
    pub revision: i64,
    /// The version that fits.
    pub pinned: VersionId,
    /// What found it.
    pub by: ConfirmedBy,
    /// Other versions were seen under the key: they are surplus (R-B6).
    pub surplus: bool,
}

/// Pins versions and moves `pending` to `queued`, with history and the decode message. Answers the cards that moved;
/// any other lost a race.
pub async fn confirm(
    connection: &mut PgConnection,
    ids: Ids,
    confirmations: &[Confirmation],
) -> Result<HashSet<CardId>, StoreError> {
    let cards: Vec<Uuid> = confirmations.iter().map(|c| c.card.0).collect();
    let revisions: Vec<i64> = confirmations.iter().map(|c| c.revision).collect();
    let versions: Vec<String> = confirmations.iter().map(|c| c.pinned.as_str().to_owned()).collect();
    let by: Vec<String> = confirmations.iter().map(|c| c.by.as_str().to_owned()).collect();
    let surplus: Vec<bool> = confirmations.iter().map(|c| c.surplus).collect();
    let decode_ids: Vec<Uuid> = confirmations.iter().map(|_| ids.message().0).collect();
    let purge_ids: Vec<Uuid> = confirmations.iter().map(|_| ids.message().0).collect();
    let moved = sqlx::query_scalar!(
        r#"with wanted as (
             select *
             from unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::boolean[], $6::uuid[], $7::uuid[])
                 as w (id, revision, version, confirmed_by, surplus, decode_id, purge_id)
         ),
         locked as (
             -- READ COMMITTED looks at the row again once it is locked: a card that moved meanwhile is left out
             select c.id
             from cards c
             join wanted w on w.id = c.id
             where c.state = 'pending'
               and c.revision = w.revision
             order by c.id
             for update of c
         ),
         moved as (
             update cards c
             set state = 'queued',
                 revision = c.revision + 1,
                 pinned_version = w.version,
                 confirmed_by = w.confirmed_by,
                 problem_code = null,
                 problem_detail = null,
                 overdue_looks = 0,
                 purge_at = case when w.surplus then greatest(c.purge_at, now()) else c.purge_at end,
                 next_check_at = now() + make_interval(secs => $8),
                 updated_at = now()
             from wanted w
             join locked l on l.id = w.id
             where c.id = w.id
             returning c.id, c.owner_id, c.revision, c.traceparent,
                       w.version, w.confirmed_by, w.surplus, w.decode_id, w.purge_id
         ),
         noted as (
             insert into card_history (owner_id, card_id, revision, event, state, detail)
             select owner_id, id, revision, 'confirmed', 'queued',
                    jsonb_build_object('version', version, 'by', confirmed_by)
             from moved
         ),
         decodes as (
             insert into outbox (queue, message_id, card_id, body, traceparent)
             select 'card.decode', decode_id, id, convert_to(format('{"card":"%s"}', id), 'UTF8'), traceparent
             from moved
         ),
         purges as (
             insert into outbox (queue, message_id, card_id, body, traceparent, reason)
             select 'card.purge', purge_id, id, convert_to(format('{"card":"%s"}', id), 'UTF8'), traceparent,
                    'surplus_version'
             from moved
             where surplus
         )
         select id as "id!" from moved"#,
        &cards,
        &revisions,
        &versions,
        &by,
        &surplus,
        &decode_ids,
        &purge_ids,
        seconds(timing::QUEUED_TOO_LONG),
    )
    .fetch_all(connection)
    .await?;
    Ok(moved.into_iter().map(CardId).collect())
}

/// What came of refusing versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Written down; the card stays `pending`.
    Noted,
    /// One too many: the card is `rejected`.
    Rejected,
    /// All of them had been refused before.
    AlreadyThere,
    /// The card moved, or its ticket was renewed, since it was read.
    LostRace,
}

/// Writes refused versions and the problem on a pending card, and asks for their removal (R-B5).
pub async fn refuse(
    connection: &mut PgConnection,
    ids: Ids,
    card: CardId,
    revision: i64,
    refusals: &[Refusal],
) -> Result<Refused, StoreError> {
    let row = sqlx::query_as!(
        CardRow,
        "select * from cards where id = $1 and state = 'pending' and revision = $2 for update",
        card.0,
        revision,
    )
    .fetch_optional(&mut *connection)
    .await?;
    let Some(row) = row else { return Ok(Refused::LostRace) };
    let card = row.into_card()?;
    let mut state = card.state.clone();
    let mut noted = Vec::new();
    for refusal in refusals {
        let event =
            Event::RefuseVersion { version: refusal.version.clone(), problem: refusal.problem.clone() };
        match state.on(event) {
            Transition::Note(next) => {
                noted.push(refusal);
                state = next;
            }
            Transition::Move(State::Rejected { problem }) => {
                noted.push(refusal);
                state = State::Rejected { problem };
                break;
            }
            Transition::AlreadyThere | Transition::Illegal => {}
            Transition::Move(other) => {
                return Err(StoreError::Unreadable {
                    card: card.id.to_string(),
                    column: "state",
                    value: format!("a refused version leads to {}", other.name()),
                });
            }
        }
    }
    let Some(last) = noted.last() else { return Ok(Refused::AlreadyThere) };
    let problem = if let State::Rejected { problem } = &state { problem } else { &last.problem };
    write_refusal(connection, &card, state.name(), problem, &noted).await?;
    crate::purge::request(connection, ids, card.id, "refused_version").await?;
    Ok(if state.name() == StateName::Rejected { Refused::Rejected } else { Refused::Noted })
}

async fn write_refusal(
    connection: &mut PgConnection,
    card: &Card,
    state: StateName,
    problem: &cards::Problem,
    noted: &[&Refusal],
) -> Result<(), StoreError> {
    let versions: Vec<String> = noted.iter().map(|refusal| refusal.version.as_str().to_owned()).collect();
    // A refused version alone does not raise the revision, the move to rejected does (DESIGN "The state machine").
    let revision = card.revision + i64::from(state == StateName::Rejected);
    sqlx::query!(
        "update cards
         set state = $2,
             revision = $3,
             refused_versions = refused_versions || $4,
             problem_code = $5,
             problem_detail = $6,
             next_check_at = case
                 when $2 = 'rejected' then greatest(now(), ticket_ends_at + make_interval(secs => $7))
                 else next_check_at
             end,
             updated_at = now()
         where id = $1",
        card.id.0,
        state.as_str(),
        revision,
        &versions,
        problem.code.as_str(),
        problem.detail,
        seconds(timing::SETTLED_AFTER_END),
    )
    .execute(&mut *connection)
    .await?;
    let event = if state == StateName::Rejected { "rejected" } else { "version_refused" };
    history::note(
        connection,
        Note {
            owner: card.owner,
            card: card.id,
            revision,
            event,
            state,
            detail: json!({ "versions": versions, "code": problem.code.as_str(), "detail": problem.detail }),
        },
    )
    .await
}
