//! What the tests of the decoder share: the child program, and pools of it.

use cards::MediaType;
use decoder::child::{ChildFailure, Children};
use decoder::pipeline::Decoded;

/// Decodes a file and puts the outcome into one line: `ready …` or the code it was rejected with.
pub(crate) async fn outcome(
    children: &Children,
    announced: MediaType,
    bytes: &[u8],
) -> (String, Option<Decoded>) {
    match children.decode(announced, bytes).await {
        Ok(decoded) => {
            let facts = &decoded.facts;
            let line = match (facts.width_px, facts.height_px, facts.frames, facts.pages) {
                (Some(width), Some(height), Some(frames), None) => {
                    format!("ready {width}x{height} frames {frames}")
                }
                (None, None, None, Some(pages)) => format!("ready pages {pages}"),
                (None, None, None, None) => "ready".to_owned(),
                other => panic!("facts make no sense: {other:?}"),
            };
            (line, Some(decoded))
        }
        Err(ChildFailure::Refused(problem)) => (problem.code.to_string(), None),
        Err(ChildFailure::Machine(fault)) => (format!("machine: {fault}"), None),
    }
}
