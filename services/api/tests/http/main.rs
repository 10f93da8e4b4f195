//! The routes on a real PostgreSQL, one database a test, with the store's fake.

#![expect(clippy::unwrap_used, reason = "helpers of tests may unwrap as tests do")]

mod answers;
mod confirm;
mod deletion;
mod files;
mod identity;
mod links;
mod tickets;
mod world;
