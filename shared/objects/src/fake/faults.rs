//! What can go wrong, and when.

use std::collections::{HashMap, VecDeque};

use cards::VersionId;

use crate::Operation;

/// How a call goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// 403, nothing happened.
    Refuse,
    /// 503, nothing happened.
    Unavailable,
    /// It happened, and the answer was lost. A GET breaks off after half its bytes.
    AfterEffect,
    /// It happened, and the answer had no version id, nor had HEAD.
    MissingVersionId,
    /// No answer for as long as the real client waits, nothing happened.
    Hang,
    /// A batch delete answers 200 with an error for every other entry, from the first. A GET breaks off.
    Partly,
}

/// One call, as it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What was called.
    pub operation: Operation,
    /// The key or prefix; a copy's target; a batch delete's first key.
    pub key: String,
    /// The version that was named; a copy's source version.
    pub version: Option<VersionId>,
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    waiting: HashMap<Operation, VecDeque<(Fault, usize)>>,
    is_off: bool,
}

impl Faults {
    pub(super) fn add(&mut self, operation: Operation, fault: Fault, times: usize) {
        if times > 0 {
            self.waiting.entry(operation).or_default().push_back((fault, times));
        }
    }

    pub(super) fn switch_off(&mut self) {
        self.is_off = true;
    }

    pub(super) fn next(&mut self, operation: Operation) -> Option<Fault> {
        if self.is_off {
            return Some(Fault::Unavailable);
        }
        let queue = self.waiting.get_mut(&operation)?;
        let (fault, left) = queue.front_mut()?;
        let fault = *fault;
        *left -= 1;
        if *left == 0 {
            queue.pop_front();
        }
        Some(fault)
    }
}
