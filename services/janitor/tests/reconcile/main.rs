//! Bucket reconciliation on a real PostgreSQL: exactly the strays go, and nothing while anything is in doubt (R-H2,
//! R-H3). `large` needs the real store too.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail their test")]

mod large;
mod missing;
mod removal;
mod runs;
mod world;
