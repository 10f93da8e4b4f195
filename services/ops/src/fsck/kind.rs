//! Everything that can be found, in one table: what it is called, what it means, what to run.

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A reference leads nowhere.
    MissingObject,
    /// A reference leads to other bytes.
    ObjectDiffers,
    /// An alias of something that is not served.
    AliasUnserved,
    /// Unfinished, and no next look.
    NoNextLook,
    /// Its look is overdue by more than an hour.
    OverdueLook,
    /// A message has been due for more than an hour.
    OutboxOverdue,
    /// A row the code can't read.
    UnreadableRow,
    /// `deleted`, and no receipt.
    DeletedUnproved,
    /// Its look is late by more than ten minutes.
    LateLook,
    /// A message has been due for more than ten minutes.
    OutboxLate,
    /// A message that the broker gives back again and again.
    OutboxReturned,
    /// Its work lies dead.
    Parked,
    /// `pending` past the last moment.
    StuckPending,
    /// `queued` for more than an hour.
    StuckQueued,
    /// `processing` under a lease that ended long ago.
    StuckProcessing,
    /// A lease that is renewed past a job's life.
    LongLease,
    /// A purge has been owed for more than an hour.
    StuckPurge,
    /// A version that its card does not keep.
    Stray,
    /// A version of no card.
    StrayUnknown,
}

/// What a finding means for the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// One of the three invariants does not hold; its name.
    Violation(&'static str),
    /// Somebody should look; nothing is broken.
    Warning,
}

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub struct KindRow {
    /// Which.
    pub kind: Kind,
    /// Its stable name, in tables and in JSON.
    pub code: &'static str,
    /// What it means.
    pub class: Class,
    /// What it is, in a sentence.
    pub what: &'static str,
    /// What to do about it; `{card}` stands for the card's id.
    pub run: &'static str,
}

const INV_1: Class = Class::Violation("INV-1");
const INV_2: Class = Class::Violation("INV-2");
const INV_3: Class = Class::Violation("INV-3");

/// All of them, the worst first.
pub const KINDS: [KindRow; 19] = [
    KindRow {
        kind: Kind::MissingObject,
        code: "missing_object",
        class: INV_3,
        what: "a card points at an object version that is not in the bucket",
        run: "bring that version back from a replica that keeps version ids; if there is none, the owner uploads the file \
              again and deletes this one: DELETE /v1/files/{card}",
    },
    KindRow {
        kind: Kind::ObjectDiffers,
        code: "object_differs",
        class: INV_1,
        what: "an object version is not what its card records",
        run: "find out who else may write under files/ and derived/ (arkiv setup puts the policy right); the owner uploads \
              the file again and deletes this one: DELETE /v1/files/{card}",
    },
    KindRow {
        kind: Kind::AliasUnserved,
        code: "alias_unserved",
        class: INV_1,
        what: "a duplicate stands for a file that is not ready",
        run: "the owner uploads the file again and deletes the alias: DELETE /v1/files/{card}",
    },
    KindRow {
        kind: Kind::NoNextLook,
        code: "no_next_look",
        class: INV_2,
        what: "an unfinished card has no time at which it is looked at again",
        run: "as the schema's owner: update cards set next_check_at = now() where id = '{card}'; then find out where the \
              CHECK cards_unfinished_has_a_next_look went",
    },
    KindRow {
        kind: Kind::OverdueLook,
        code: "overdue_look",
        class: INV_2,
        what: "a card's look has been due for more than an hour",
        run: "is a janitor running? arkiv janitor; if it is, its log says why it does not get to this card",
    },
    KindRow {
        kind: Kind::OutboxOverdue,
        code: "outbox_overdue",
        class: INV_2,
        what: "committed messages have been due for more than an hour",
        run: "is a relay running, and the broker up? arkiv relay; if both are, the relay's log says why",
    },
    KindRow {
        kind: Kind::UnreadableRow,
        code: "unreadable_row",
        class: INV_2,
        what: "a card's row holds something that no role can read, so none can move it on",
        run: "as the schema's owner: select * from cards where id = '{card}'; put the named column right",
    },
    KindRow {
        kind: Kind::DeletedUnproved,
        code: "deleted_unproved",
        class: INV_2,
        what: "a card is deleted and has no receipt",
        run: "arkiv fsck --card {card} says whether the bucket still holds anything of it; who has changed the row by hand?",
    },
    KindRow {
        kind: Kind::LateLook,
        code: "late_look",
        class: Class::Warning,
        what: "a card's look has been due for more than ten minutes",
        run: "is a janitor running? arkiv janitor",
    },
    KindRow {
        kind: Kind::OutboxLate,
        code: "outbox_late",
        class: Class::Warning,
        what: "committed messages have been due for more than ten minutes",
        run: "is a relay running, and the broker up? arkiv relay",
    },
    KindRow {
        kind: Kind::OutboxReturned,
        code: "outbox_returned",
        class: Class::Warning,
        what: "the broker gives messages back again and again",
        run: "returned: a queue or binding is missing, run arkiv setup; refused: a queue or the broker's disk is full",
    },
    KindRow {
        kind: Kind::Parked,
        code: "parked",
        class: Class::Warning,
        what: "a card's work failed for good and waits for an operator",
        run: "mend what the reason names, then move its message from the dead queue back to the queue it came from",
    },
    KindRow {
        kind: Kind::StuckPending,
        code: "stuck_pending",
        class: Class::Warning,
        what: "a card is pending although nothing can be uploaded any more",
        run: "does the janitor reach the store? its log names this card: {card}",
    },
    KindRow {
        kind: Kind::StuckQueued,
        code: "stuck_queued",
        class: Class::Warning,
        what: "a card has been queued for more than an hour",
        run: "is a decoder running, and enough of them for the depth of card.decode? arkiv decoder",
    },
    KindRow {
        kind: Kind::StuckProcessing,
        code: "stuck_processing",
        class: Class::Warning,
        what: "a card is processing under a lease that ended more than ten minutes ago",
        run: "is a decoder running? arkiv decoder; its log names this card: {card}",
    },
    KindRow {
        kind: Kind::LongLease,
        code: "long_lease",
        class: Class::Warning,
        what: "a lease is renewed although its job should have ended",
        run: "end the decoder whose log names this card: {card}; another takes it over",
    },
    KindRow {
        kind: Kind::StuckPurge,
        code: "stuck_purge",
        class: Class::Warning,
        what: "a card has owed a purge for more than an hour",
        run: "is a deleter running, and does it reach the store? arkiv deleter",
    },
    KindRow {
        kind: Kind::Stray,
        code: "stray",
        class: Class::Warning,
        what: "the bucket holds a version that its card does not keep, and no purge is owed",
        run: "arkiv reconcile --apply, which asks for the card's purge",
    },
    KindRow {
        kind: Kind::StrayUnknown,
        code: "stray_unknown",
        class: Class::Warning,
        what: "the bucket holds a version of no card",
        run: "arkiv reconcile --apply, which removes it once it has been seen for a day",
    },
];

impl Kind {
    /// Its line of the table.
    pub fn row(self) -> &'static KindRow {
        &KINDS[self as usize]
    }

    /// Its stable name.
    pub fn code(self) -> &'static str {
        self.row().code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_finds_its_own_line_and_no_code_is_used_twice() {
        let mut codes = Vec::new();
        for (at, row) in KINDS.iter().enumerate() {
            assert_eq!((row.kind as usize, row.kind.code()), (at, row.code));
            codes.push(row.code);
        }
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), KINDS.len());
    }
}
