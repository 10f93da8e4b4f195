//! A walk over every version under our three prefixes, in key order, whole keys at a time (R-H2, R-H4).
//!
//! In comes a store, and the key after which an earlier walk ended; out come [`Chunk`]s, each with all versions of a range
//! of keys, so that a reader may also say what is *not* there (R-H3). An error leaves the walk where it was: the next call
//! asks for the same page. Keys under no prefix of ours are nobody's business here and never listed.
//!
//! A page may end in the middle of a key. What it showed of that key is held back until the key is complete. A key with
//! more than [`KEY_VERSIONS_HELD`] versions is handed out in parts, so that nobody can fill the memory by uploading to one
//! key: only the last part's range covers the key, and that part has not all of its versions.

use std::sync::Arc;

use cards::key::{DERIVED_PREFIX, FILE_PREFIX, SOURCE_PREFIX};

use crate::{DELETE_BATCH_MAX, ListCursor, ListedVersion, ObjectError, ObjectStore, Operation};

/// Ours, in key order.
const PREFIXES: [&str; 3] = [DERIVED_PREFIX, FILE_PREFIX, SOURCE_PREFIX];

/// Five pages. A card accepts 5 refused versions (R-B5); past a thousand somebody abuses a ticket.
pub const KEY_VERSIONS_HELD: usize = 5 * DELETE_BATCH_MAX;

/// Walks every version under our three prefixes in key order, whole keys at a time.
pub struct Walk {
    store: Arc<dyn ObjectStore>,
    /// Which of [`PREFIXES`].
    at: usize,
    cursor: Option<ListCursor>,
    /// Where an earlier walk ended. Ceph lists a key that is named without a version once more.
    resumed: Option<String>,
    /// The last key that was handed out in full.
    after: Option<String>,
    /// Listed and not handed out, oldest first within a key.
    held: Vec<ListedVersion>,
}

/// All versions of the keys in (`after`, `through`], in key order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Versions and delete markers, oldest first within a key. May be none.
    pub versions: Vec<ListedVersion>,
    /// Under which all of these keys are.
    pub prefix: &'static str,
    /// The range begins after this key; `None`: at the prefix's first.
    pub after: Option<String>,
    /// The range ends with this key; `None`: with the prefix's last. The same as `after` where a part of a key is handed
    /// out before its last one: such a chunk covers no key.
    pub through: Option<String>,
}

impl Chunk {
    /// What [`Walk::new`] takes to go on after this chunk. Behind a prefix's last key stands the first text that sorts
    /// after all of its keys.
    pub fn resume_after(&self) -> String {
        self.through.clone().unwrap_or_else(|| end_of(self.prefix))
    }
}

/// The first text after every key of a prefix: `0` follows `/`.
fn end_of(prefix: &str) -> String {
    prefix.replace('/', "0")
}

impl Walk {
    /// A walk over what comes after this key; `None`: over all.
    pub fn new(store: Arc<dyn ObjectStore>, after_key: Option<String>) -> Self {
        let at = after_key.as_ref().map_or(0, |key| {
            PREFIXES.iter().take_while(|prefix| end_of(prefix).as_str() <= key.as_str()).count()
        });
        let inside = PREFIXES.get(at).copied().unwrap_or_default();
        let after = after_key.filter(|key| key.starts_with(inside) && !inside.is_empty());
        let cursor = after.as_deref().map(ListCursor::after_key);
        Self { store, at, cursor, resumed: after.clone(), after, held: Vec::new() }
    }

    /// The next keys; `None`: that was the last prefix. Every prefix ends with a chunk, an empty one too.
    pub async fn next(&mut self) -> Result<Option<Chunk>, ObjectError> {
        let Some(prefix) = PREFIXES.get(self.at).copied() else { return Ok(None) };
        loop {
            let mut page = self.store.list_versions(prefix, self.cursor.as_ref(), DELETE_BATCH_MAX).await?;
            if page.next.is_some() && page.next == self.cursor {
                return Err(ObjectError::Unavailable {
                    operation: Operation::ListVersions,
                    key: prefix.to_owned(),
                    detail: "the next page begins where this one began".to_owned(),
                });
            }
            if let Some(done) = &self.resumed {
                page.versions.retain(|listed| listed.key > *done);
            }
            let held = std::mem::take(&mut self.held);
            self.held = joined(held, page.versions);
            self.cursor = page.next;
            if self.cursor.is_none() {
                self.at += 1;
                let versions = std::mem::take(&mut self.held);
                return Ok(Some(Chunk { versions, prefix, after: self.after.take(), through: None }));
            }
            if let Some(chunk) = self.ripe(prefix) {
                return Ok(Some(chunk));
            }
        }
    }

    /// The keys that are certainly complete, or a part of one that is too large to hold.
    fn ripe(&mut self, prefix: &'static str) -> Option<Chunk> {
        let last = self.held.last()?.key.clone();
        let whole = self.held.iter().take_while(|version| version.key != last).count();
        if whole > 0 {
            let rest = self.held.split_off(whole);
            let versions = std::mem::replace(&mut self.held, rest);
            let through = versions.last().map(|version| version.key.clone());
            let after = std::mem::replace(&mut self.after, through.clone());
            return Some(Chunk { versions, prefix, after, through });
        }
        if self.held.len() < KEY_VERSIONS_HELD {
            return None;
        }
        let versions = std::mem::take(&mut self.held);
        // Before the first key of a prefix stands the prefix itself.
        let nothing = self.after.clone().unwrap_or_else(|| prefix.to_owned());
        Some(Chunk { versions, prefix, after: Some(nothing.clone()), through: Some(nothing) })
    }
}

/// A later page has the older versions of a key that was cut.
fn joined(held: Vec<ListedVersion>, page: Vec<ListedVersion>) -> Vec<ListedVersion> {
    let Some(cut) = held.first().map(|version| version.key.clone()) else { return page };
    let of_the_cut_key = page.iter().take_while(|version| version.key == cut).count();
    let mut older = page;
    let rest = older.split_off(of_the_cut_key);
    older.extend(held);
    older.extend(rest);
    older
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    #[test]
    fn a_walk_goes_on_after_any_text() {
        assert!(PREFIXES.is_sorted());
        let at = |key: &str| {
            let walk = Walk::new(Arc::new(Fake::new()), Some(key.to_owned()));
            (walk.at, walk.after)
        };
        let inside = |at, key: &str| (at, Some(key.to_owned()));
        assert_eq!(at(""), (0, None));
        assert_eq!(at("derived/"), inside(0, "derived/"));
        assert_eq!(at("derived/x"), inside(0, "derived/x"));
        assert_eq!(at("derived0"), (1, None));
        assert_eq!(at("e"), (1, None));
        assert_eq!(at("files/\u{10ffff}"), inside(1, "files/\u{10ffff}"));
        assert_eq!(at("files0"), (2, None));
        assert_eq!(at("incoming/x"), inside(2, "incoming/x"));
        assert_eq!(at("incoming0"), (3, None));
    }
}
