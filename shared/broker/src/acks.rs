//! Which deliveries may be acked, and with how few acks. Pure.
//!
//! The broker numbers a channel's deliveries 1, 2, 3, ... . `multiple` acks everything up to a number, so it is only
//! safe over a run without gaps from the start; what lies beyond a gap is acked one by one, or a slow first message
//! would hold up the whole prefetch window. A delivery that is never finished is never acked: closing the channel
//! hands it back.

use std::collections::BTreeMap;

/// One ack to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ack {
    /// The delivery's number.
    pub(crate) tag: u64,
    /// Everything up to it as well.
    pub(crate) multiple: bool,
}

/// The deliveries of one channel.
#[derive(Debug, Default)]
pub(crate) struct AckTracker {
    /// Everything up to here has been acked.
    floor: u64,
    /// Finished above the floor; true once acked on its own.
    finished: BTreeMap<u64, bool>,
}

impl AckTracker {
    /// The delivery's effect is committed.
    pub(crate) fn finish(&mut self, tag: u64) {
        if tag > self.floor {
            self.finished.entry(tag).or_insert(false);
        }
    }

    /// The acks to send now, in order. Each finished delivery is acked exactly once.
    pub(crate) fn take(&mut self) -> Vec<Ack> {
        let mut acks = Vec::new();
        // The run from the floor: one ack, at its last member that the broker still waits for (a number it has already
        // seen acked would be a protocol error).
        let mut last = None;
        let mut count = 0;
        while let Some(acked) = self.finished.remove(&(self.floor + 1)) {
            self.floor += 1;
            if !acked {
                last = Some(self.floor);
                count += 1;
            }
        }
        if let Some(tag) = last {
            acks.push(Ack { tag, multiple: count > 1 });
        }
        for (tag, acked) in &mut self.finished {
            if !*acked {
                *acked = true;
                acks.push(Ack { tag: *tag, multiple: false });
            }
        }
        acks
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn one(tag: u64) -> Ack {
        Ack { tag, multiple: false }
    }

    fn up_to(tag: u64) -> Ack {
        Ack { tag, multiple: true }
    }

    #[test]
    fn a_run_is_one_ack_and_a_gap_is_never_crossed() {
        let mut acks = AckTracker::default();
        for tag in [2, 1, 3, 5, 7] {
            acks.finish(tag);
        }
        assert_eq!(acks.take(), [up_to(3), one(5), one(7)]);
        assert_eq!(acks.take(), []);
        acks.finish(4);
        assert_eq!(acks.take(), [one(4)]);
        acks.finish(6);
        acks.finish(8);
        assert_eq!(acks.take(), [up_to(8)]);
    }

    #[test]
    fn the_end_of_a_run_that_was_acked_alone_is_not_acked_again() {
        let mut acks = AckTracker::default();
        acks.finish(3);
        assert_eq!(acks.take(), [one(3)]);
        acks.finish(1);
        acks.finish(2);
        assert_eq!(acks.take(), [up_to(2)]);
        acks.finish(3);
        acks.finish(1);
        assert_eq!(acks.take(), []);
    }

    /// What the broker does with an ack: closes the channel over a number it does not wait for.
    fn receive(unacked: &mut BTreeSet<u64>, ack: Ack) -> Result<(), String> {
        if !unacked.remove(&ack.tag) {
            return Err(format!("PRECONDITION_FAILED unknown delivery tag {}", ack.tag));
        }
        if ack.multiple {
            unacked.retain(|tag| *tag > ack.tag);
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn exactly_the_finished_deliveries_are_acked_in_any_order(
            order in Just((1..=60_u64).collect::<Vec<_>>()).prop_shuffle(),
            unfinished in prop::collection::btree_set(1..=60_u64, 0..8),
            flush in prop::collection::vec(any::<bool>(), 60),
        ) {
            let mut unacked: BTreeSet<u64> = (1..=60).collect();
            let mut finished = BTreeSet::new();
            let mut acks = AckTracker::default();
            for (tag, flush) in order.into_iter().zip(flush) {
                if !unfinished.contains(&tag) {
                    acks.finish(tag);
                    finished.insert(tag);
                }
                if flush {
                    for ack in acks.take() {
                        receive(&mut unacked, ack).map_err(TestCaseError::fail)?;
                    }
                    prop_assert!(unacked.is_disjoint(&finished), "{unacked:?}");
                }
                prop_assert!(unacked.is_superset(&unfinished));
            }
            for ack in acks.take() {
                receive(&mut unacked, ack).map_err(TestCaseError::fail)?;
            }
            prop_assert_eq!(unacked, unfinished);
        }
    }
}
