//! The child program, and pools of it.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail their test")]

use decoder::child::{ChildProgram, Children};
use decoder::pipeline::Options;

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
