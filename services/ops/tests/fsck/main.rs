//! `fsck` on a real PostgreSQL and a bucket with faults (R-H4): what is whole is clean, what is broken is found, and what
//! only looks broken for a moment is not.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail their test")]

mod bucket;
mod rows;
mod world;
