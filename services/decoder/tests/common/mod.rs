//! What the tests of the decoder share: the child program, and pools of it.

use cards::MediaType;
use decoder::child::{ChildFailure, ChildProgram, Children};
use decoder::pipeline::{Decoded, Options};

/// `examples/decode_child.rs`, which `cargo test` builds beside the tests.
pub(crate) fn program(args: &[&str]) -> ChildProgram {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.push("examples/decode_child");
    assert!(path.exists(), "{} is missing: `cargo build -p decoder --examples` makes it", path.display());
    ChildProgram { path, args: args.iter().map(Into::into).collect() }
}

/// A pool of sound children.
pub(crate) fn children(options: Options) -> Children {
    Children::new(program(&[]), options, 2)
}

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
