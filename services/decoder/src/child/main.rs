//! The child's side: one request in, one answer out, then the end.
//!
//! It runs on the main thread alone and must be called before any runtime is started: threads would each reserve
//! address space, which is limited. A panic is caught and answered; all that can't be caught ends the process, and the
//! parent judges that ([`super::verdict`]).

use std::io::{Read, Write, stdin, stdout};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use super::{verdict, wire};
use crate::pipeline;

/// Exit code for a request that can't be read or an answer that can't be written: the parent's fault, not the file's.
const NO_TALK: u8 = 3;

/// Reads one request from standard input, answers on standard output. Without a request (the parent is gone or does
/// not need the child any more) it just ends.
pub fn child_main() -> ExitCode {
    let mut bytes = Vec::new();
    // One byte more than any request has, so that a longer one is seen as such.
    let read = stdin().lock().take(wire::REQUEST_BYTES_MAX + 1).read_to_end(&mut bytes);
    if read.is_err() {
        return NO_TALK.into();
    }
    if bytes.is_empty() {
        return ExitCode::SUCCESS;
    }
    let Ok(request) = wire::read_request(&bytes) else { return NO_TALK.into() };
    let decoded = catch_unwind(AssertUnwindSafe(|| {
        pipeline::decode(request.announced, request.file, &request.options)
    }))
    .unwrap_or_else(|_| Err(verdict::crashed()));
    let answer = wire::answer(&decoded);
    let mut stdout = stdout().lock();
    if stdout.write_all(&answer).and_then(|()| stdout.flush()).is_err() {
        return NO_TALK.into();
    }
    ExitCode::SUCCESS
}
