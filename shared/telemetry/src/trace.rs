//! The W3C trace context (<https://www.w3.org/TR/trace-context/>), version 00.
//!
//! In: a `traceparent` from a request, object metadata, an outbox row or a message header. Out: a [`TraceParent`], or
//! nothing, and then the caller starts a trace of its own: a bad header never fails the work it came with. The ticket
//! carries it as `x-amz-meta-traceparent`, the outbox row and the message header as text, spans as the field
//! `trace_id`, so that one search shows an upload from ticket to last consumer (R-I5).

use std::fmt;
use std::str::FromStr;

use cards::Ids;

/// Which trace a piece of work belongs to, and which step asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceParent {
    trace_id: u128,
    span_id: u64,
    flags: u8,
}

/// The flag that the trace is recorded. Ours always are: logs carry every trace id.
const SAMPLED: u8 = 1;

/// A text that is no `traceparent` of version 00.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a traceparent is `00-<32 hex digits>-<16 hex digits>-<2 hex digits>` in lower case, neither id zero"
)]
pub struct TraceParentError;

impl TraceParent {
    /// A new trace.
    pub fn new(ids: Ids) -> Self {
        Self { trace_id: random(ids), span_id: span_id(ids), flags: SAMPLED }
    }

    /// The next step of the same trace.
    #[must_use]
    pub fn child(self, ids: Ids) -> Self {
        Self { span_id: span_id(ids), ..self }
    }

    /// Continues the trace a text names, or starts a new one where it names none.
    pub fn continue_or_new(text: Option<&str>, ids: Ids) -> Self {
        match text.and_then(|text| text.parse::<Self>().ok()) {
            Some(parent) => parent.child(ids),
            None => Self::new(ids),
        }
    }

    /// The trace's id, 32 hex digits: what people search for.
    pub fn trace_id(self) -> String {
        format!("{:032x}", self.trace_id)
    }
}

/// The trace id in a `traceparent` that may be missing or broken, for a span's field `trace_id`.
pub fn trace_id(traceparent: Option<&str>) -> Option<String> {
    Some(traceparent?.parse::<TraceParent>().ok()?.trace_id())
}

/// Randomness comes from the one id source, in its random kind (`UUIDv4`, never zero).
fn random(ids: Ids) -> u128 {
    ids.lease().0.as_u128()
}

fn span_id(ids: Ids) -> u64 {
    // The lower half of a `UUIDv4` is random but for its two upper bits, which are `10`: never zero.
    ids.lease().0.as_u64_pair().1
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, self.flags)
    }
}

impl FromStr for TraceParent {
    type Err = TraceParentError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split('-');
        let (Some("00"), Some(trace_id), Some(span_id), Some(flags), None) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(TraceParentError);
        };
        let trace_id = u128::from_str_radix(digits(trace_id, 32)?, 16).map_err(|_| TraceParentError)?;
        let span_id = u64::from_str_radix(digits(span_id, 16)?, 16).map_err(|_| TraceParentError)?;
        let flags = u8::from_str_radix(digits(flags, 2)?, 16).map_err(|_| TraceParentError)?;
        if trace_id == 0 || span_id == 0 {
            return Err(TraceParentError);
        }
        Ok(Self { trace_id, span_id, flags })
    }
}

/// Exactly so many lower-case hex digits: `from_str_radix` alone would take a sign and capitals.
fn digits(text: &str, count: usize) -> Result<&str, TraceParentError> {
    if text.len() == count && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        Ok(text)
    } else {
        Err(TraceParentError)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The example of the recommendation.
    const EXAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn the_recommendations_example_reads_back() {
        let parent: TraceParent = EXAMPLE.parse().unwrap();
        assert_eq!(parent.to_string(), EXAMPLE);
        assert_eq!(parent.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(trace_id(Some(EXAMPLE)).unwrap(), parent.trace_id());
    }

    #[test]
    fn anything_else_is_no_traceparent() {
        for text in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-+0f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-+1",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1",
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            " 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(text.parse::<TraceParent>(), Err(TraceParentError), "{text}");
            assert_eq!(trace_id(Some(text)), None);
        }
    }

    #[test]
    fn a_child_keeps_the_trace_and_its_flags_and_has_a_step_of_its_own() {
        let parent: TraceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00".parse().unwrap();
        let child = parent.child(Ids);
        assert_eq!(child.trace_id(), parent.trace_id());
        assert_eq!(child.flags, 0);
        assert_ne!(child.span_id, parent.span_id);
    }

    #[test]
    fn a_bad_header_starts_a_new_trace() {
        assert_eq!(
            TraceParent::continue_or_new(Some(EXAMPLE), Ids).trace_id(),
            "4bf92f3577b34da6a3ce929d0e0e4736"
        );
        let new = TraceParent::continue_or_new(Some("x"), Ids);
        assert_ne!(new.trace_id(), TraceParent::continue_or_new(None, Ids).trace_id());
    }

    #[test]
    fn what_we_make_reads_back() {
        for _ in 0..100 {
            let parent = TraceParent::new(Ids);
            assert_eq!(parent.to_string().parse(), Ok(parent));
        }
    }

    proptest! {
        #[test]
        fn only_one_spelling_is_read(text in "[0-9a-fA-F+-]{55}|00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}|.*") {
            if let Ok(parent) = text.parse::<TraceParent>() {
                prop_assert_eq!(parent.to_string(), text);
            }
        }
    }
}
