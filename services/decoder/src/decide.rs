//! From what was read and decoded to what is done with the card. Pure.

use broker::{Outcome, Reason};
use cards::{Announced, Card, Problem, ProblemCode, Sha256};
use store::finish::Finished;

use crate::child::ChildFailure;
use crate::error::JobError;
use crate::pipeline::{self, Decoded};

/// The pinned version, read in full.
pub(crate) struct Read<'a> {
    pub(crate) announced: &'a Announced,
    pub(crate) sha256: Sha256,
    pub(crate) bytes: &'a [u8],
}

/// What is done with the card.
#[derive(Debug)]
pub(crate) enum Decision {
    Accept(Decoded),
    Refuse(Problem),
}

/// What can be refused without decoding: other bytes than announced, another type than announced (R-C2).
pub(crate) fn before_decoding(read: &Read<'_>) -> Option<Problem> {
    match read.announced.sha256 {
        Some(announced) if announced != read.sha256 => Some(Problem::new(
            ProblemCode::ChecksumMismatch,
            format!("the announced SHA-256 is {announced}, the bytes have {}", read.sha256),
        )),
        _ => pipeline::check_type(read.announced.media_type, read.bytes).err(),
    }
}

/// A bad file is refused, a bad machine is an error: it never rejects (R-C7).
pub(crate) fn after_decoding(decoded: Result<Decoded, ChildFailure>) -> Result<Decision, JobError> {
    match decoded {
        Ok(decoded) => Ok(Decision::Accept(decoded)),
        Err(ChildFailure::Refused(problem)) => Ok(Decision::Refuse(problem)),
        Err(ChildFailure::Machine(fault)) => Err(JobError::Machine(fault)),
    }
}

/// What the message ends as, once the transaction is in.
pub(crate) fn outcome(card: &Card, finished: Finished) -> Outcome {
    match finished {
        Finished::Done(after) => {
            let seconds = (after.updated_at - after.created_at).as_seconds_f64();
            let word = after.state.name().as_str();
            metrics::counter!(telemetry::metric::UPLOADS, "outcome" => word).increment(1);
            if after.state.name() == cards::StateName::Ready {
                metrics::histogram!(telemetry::metric::TICKET_TO_READY).record(seconds);
                tracing::info!(card.id = %card.id, seconds, "a file is ready");
            }
            Outcome::Done
        }
        Finished::Duplicate(_) => {
            metrics::counter!(telemetry::metric::UPLOADS, "outcome" => "duplicate").increment(1);
            tracing::info!(card.id = %card.id, "a file is a duplicate of its owner's");
            Outcome::Done
        }
        // The transaction asked for the purge of what we wrote; whoever has the card now has its own message.
        Finished::LostLease => {
            tracing::warn!(card.id = %card.id, "the lease was lost before the hand-in; asked for a purge");
            Outcome::Done
        }
        Finished::TryAgain => {
            let detail = format!("card {}: identical files of its owner kept becoming ready first", card.id);
            Outcome::Retry(Reason::new("contended", detail))
        }
    }
}

/// The label of an end on the metrics page.
pub(crate) fn word(finished: &Finished) -> &'static str {
    match finished {
        Finished::Done(card) => card.state.name().as_str(),
        Finished::Duplicate(_) => "duplicate",
        Finished::LostLease => "lost_lease",
        Finished::TryAgain => "contended",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cards::{ByteCount, MediaType};

    fn announced(sha256: Option<Sha256>) -> Announced {
        Announced { size: ByteCount::new(5).unwrap(), media_type: MediaType::Text, sha256 }
    }

    #[test]
    fn other_bytes_than_announced_are_refused_before_anything_is_decoded() {
        let announced = announced(Some(Sha256([1; 32])));
        let read = Read { announced: &announced, sha256: Sha256([2; 32]), bytes: b"hello" };
        assert_eq!(before_decoding(&read).unwrap().code, ProblemCode::ChecksumMismatch);
        let read = Read { sha256: Sha256([1; 32]), ..read };
        assert_eq!(before_decoding(&read), None);
    }

    #[test]
    fn a_fault_of_the_machine_never_rejects() {
        let problem = Problem::new(ProblemCode::Corrupt, "x");
        assert!(matches!(after_decoding(Err(ChildFailure::Refused(problem))), Ok(Decision::Refuse(_))));
        let fault = crate::child::MachineFault::ShutDown;
        assert!(matches!(after_decoding(Err(ChildFailure::Machine(fault))), Err(JobError::Machine(_))));
    }
}
