//! What the cards point at under one prefix, in key order: one side of the merge that finds what is missing.
//!
//! Cards come in pages by id and a reference's key begins with its card's id, so both the bucket and this go up together
//! and neither is ever held whole.

use std::collections::VecDeque;

use cards::key::SOURCE_PREFIX;
use cards::{CardId, StateName};
use store::{Db, StoreError};

use super::PAGE_CARDS;
use super::judge::{self, Reference};

/// A stream that is asked for as much as the bucket was listed.
#[derive(Debug)]
pub(super) struct Expected {
    prefix: &'static str,
    states: &'static [StateName],
    waiting: VecDeque<Reference>,
    after: Option<CardId>,
    is_over: bool,
}

impl Expected {
    pub(super) fn new(prefix: &'static str) -> Self {
        let states: &[_] = if prefix == SOURCE_PREFIX {
            &[StateName::Queued, StateName::Processing]
        } else {
            &[StateName::Ready]
        };
        Self { prefix, states, waiting: VecDeque::new(), after: None, is_over: false }
    }

    pub(super) fn prefix(&self) -> &'static str {
        self.prefix
    }

    /// The next reference whose key is at most `through`; `None` of it: to the end. Its card may have moved on since it
    /// was read, by a page at most: what follows from it is read again before it counts.
    pub(super) async fn next(
        &mut self,
        db: &Db,
        through: Option<&str>,
    ) -> Result<Option<Reference>, StoreError> {
        loop {
            if let Some(first) = self.waiting.front() {
                let is_listed = through.is_none_or(|through| first.key.as_str() <= through);
                return Ok(if is_listed { self.waiting.pop_front() } else { None });
            }
            if self.is_over {
                return Ok(None);
            }
            self.read_page(db).await?;
        }
    }

    async fn read_page(&mut self, db: &Db) -> Result<(), StoreError> {
        let mut connection = db.acquire().await?;
        let page = store::check::page(&mut connection, self.after, self.states, PAGE_CARDS).await?;
        // A row that can't be read is found by the walk over the cards.
        let cards = page.found.rows.iter().filter_map(|row| row.card.as_ref().ok());
        self.waiting.extend(
            cards.flat_map(judge::expected).filter(|reference| reference.key.starts_with(self.prefix)),
        );
        self.is_over = page.through.is_none();
        self.after = page.through;
        Ok(())
    }
}
