//! Kill points: named places at which a failure test lets a process die, as a power cut would: nothing unwinds,
//! nothing is flushed or handed back.
//!
//! With the crate's feature `kill-points` and `ARKIV_KILL_AT=<name>` the process aborts when it first comes to that
//! point, with `ARKIV_KILL_AT=<name>:<n>` at the n-th time. Without the feature [`point`] does nothing.

/// Every kill point, with what has been done when it is passed.
pub const POINTS: &[(&str, &str)] = &[
    ("confirm.after_head", "HEAD answered; nothing is written"),
    ("confirm.before_commit", "state, history and outbox row are written, not committed"),
    ("confirm.after_commit", "the card is queued; the event is not acked"),
    ("relay.after_claim", "outbox rows are locked; nothing is published"),
    ("relay.after_publish", "messages are confirmed by the broker; their rows are still there"),
    ("relay.after_commit", "the rows are gone"),
    ("decode.after_lease", "the lease is committed; nothing is read"),
    ("decode.after_get", "the pinned version was read in full and hashed"),
    ("decode.after_derivatives", "derivatives are stored under the token"),
    ("decode.after_copy", "the permanent copy is stored and looked at"),
    ("decode.before_commit", "ready or duplicate is written, not committed"),
    ("decode.after_commit", "the card is ready or duplicate; the message is not acked"),
    ("purge.after_claim", "the card's purge is claimed; nothing is listed"),
    ("purge.after_list", "a page of the card's keys is listed; the card is not read again"),
    ("purge.after_record", "strangers are written down; none is removed"),
    ("purge.after_remove", "a page's strangers are removed"),
    ("purge.before_commit", "what the clean listing proves is written, not committed"),
    ("purge.after_commit", "it is committed; the message is not acked"),
    ("janitor.after_claim", "cards are claimed for a look; none is looked at"),
    ("janitor.after_list", "a card's versions are listed; nothing is decided"),
];

/// Passes a kill point. The name is one of [`POINTS`].
pub fn point(name: &'static str) {
    debug_assert!(is_known(name), "{name} is not in kill::POINTS");
    #[cfg(feature = "kill-points")]
    armed::point(name);
}

fn is_known(name: &str) -> bool {
    POINTS.iter().any(|(known, _)| *known == name)
}

#[cfg(feature = "kill-points")]
mod armed {
    use std::io::Write;
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Where to die.
    struct Armed {
        name: String,
        /// How often the point is passed alive.
        spared: u32,
        passed: AtomicU32,
    }

    static ARMED: LazyLock<Option<Armed>> = LazyLock::new(|| {
        #[expect(
            clippy::disallowed_methods,
            reason = "a kill point is no setting; read once, in test builds only"
        )]
        let wish = std::env::var("ARKIV_KILL_AT").ok().filter(|wish| !wish.is_empty())?;
        let armed = parse(&wish);
        if armed.is_none() {
            // A wish that can never come true would make a failure test pass for nothing.
            die(&format!("ARKIV_KILL_AT={wish} names no kill point"));
        }
        armed
    });

    pub(super) fn point(name: &str) {
        let Some(armed) = ARMED.as_ref().filter(|armed| armed.name == name) else { return };
        if armed.passed.fetch_add(1, Ordering::Relaxed) == armed.spared {
            die(&format!("kill point {name}"));
        }
    }

    fn parse(wish: &str) -> Option<Armed> {
        let (name, nth) = match wish.split_once(':') {
            Some((name, nth)) => (name, nth.parse::<u32>().ok()?),
            None => (wish, 1),
        };
        let armed = Armed { name: name.to_owned(), spared: nth.checked_sub(1)?, passed: AtomicU32::new(0) };
        super::is_known(name).then_some(armed)
    }

    fn die(last_words: &str) -> ! {
        // Whether anybody hears it is no reason to live.
        let _ = writeln!(std::io::stderr(), "{last_words}");
        std::process::abort()
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_wish_names_a_point_and_maybe_which_time() {
            let spared = |wish| parse(wish).map(|armed| armed.spared);
            assert_eq!(spared("confirm.after_head"), Some(0));
            assert_eq!(spared("confirm.after_head:3"), Some(2));
            for wish in ["", "x", "confirm.after_head:", "confirm.after_head:0", "confirm.after_head:x", ":1"]
            {
                assert_eq!(spared(wish), None, "{wish}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_point_is_named_once() {
        let names: BTreeSet<_> = POINTS.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), POINTS.len());
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "not in kill::POINTS")]
    fn a_point_that_is_not_in_the_table_is_found_by_any_test_that_passes_it() {
        point("confirm.somewhere");
    }
}
