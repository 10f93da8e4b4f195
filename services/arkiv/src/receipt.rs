//! `arkiv receipt`: what was removed of a deleted file, for people and for programs (R-E5).

use std::process::ExitCode;

use anyhow::Context;
use cards::{CardId, State};
use store::{Db, PgConnection, StoreErrorKind};

use crate::cli::ReceiptArgs;
use crate::commands::{EXIT_TEMPFAIL, say};

pub(crate) async fn receipt(args: &ReceiptArgs) -> anyhow::Result<ExitCode> {
    let db = Db::new(&args.database.settings("receipt"))?;
    let mut connection = match db.acquire().await {
        Ok(connection) => connection,
        Err(error) if error.kind() == StoreErrorKind::Outage => {
            crate::report(&error.into());
            return Ok(ExitCode::from(EXIT_TEMPFAIL));
        }
        Err(error) => return Err(error.into()),
    };
    let Some(receipt) = store::purge::receipt(&mut connection, None, args.card).await? else {
        anyhow::bail!("{}", why_none(&mut connection, args.card).await?);
    };
    say(&if args.json { serde_json::to_string_pretty(&receipt)? } else { ops::receipt::render(&receipt) })?;
    Ok(ExitCode::SUCCESS)
}

/// Says what is the case instead, and when to ask again.
async fn why_none(connection: &mut PgConnection, id: CardId) -> anyhow::Result<String> {
    let card = store::cards::by_id(connection, id).await.context("reading the card")?;
    Ok(match card.as_ref().map(|card| &card.state) {
        None => format!("there is no file {id}"),
        Some(State::Deleting { delete_after }) => format!(
            "{id} is being deleted and not gone yet: nothing is removed before {delete_after}; ask again then"
        ),
        Some(State::Deleted { .. }) => {
            format!("{id} is deleted and its receipt is missing; run: arkiv fsck --card {id}")
        }
        Some(
            state @ (State::Pending { .. }
            | State::Queued { .. }
            | State::Processing { .. }
            | State::Ready { .. }
            | State::Duplicate { .. }
            | State::Rejected { .. }
            | State::Expired),
        ) => format!("{id} is {}, not deleted: only a deleted file has a receipt", state.name()),
    })
}
