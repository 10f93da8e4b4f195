//! For tests only: real parts, one of each per test, so that tests run in parallel and beside `./dev up`.
//!
//! - [`Env`]: where the development servers are; a missing one is a failure that says what to run.
//! - [`TestDb`]: a migrated database of its own, with the three roles.
//! - [`TestBroker`]: a vhost of its own, or ([`PrivateBroker`]) a whole broker that may be killed and wiped.
//! - [`TestBucket`]: a bucket of its own, set up as `arkiv setup` does it.
//! - [`fixture`]: cards in each state.
//! - [`Proxy`]: a wire that can be cut between a client and its server.

#![expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test's part that can't be made fails its test"
)]

mod broker;
mod bucket;
mod db;
mod env;
pub mod fixture;
mod proxy;
mod wait;

pub use broker::{PrivateBroker, TestBroker};
pub use bucket::TestBucket;
pub use db::TestDb;
pub use env::Env;
pub use proxy::Proxy;
pub use wait::until;
