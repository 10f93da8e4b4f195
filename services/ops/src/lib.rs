//! What operators and newcomers run by hand: setup, checking, and the demo.
//!
//! - [`setup`]: makes bucket and broker what the product needs, and says what it found and did (R-I4). Repeatable.
//! - [`fsck`]: whether bucket and database say the same, and nothing is forgotten (R-H4). Read-only.
//! - [`demo`]: uploads made samples exactly as a browser would and watches them travel to `ready`.
//!
//! None is imported by a service. Settings come in as arguments; nothing here reads the environment.

pub mod demo;
pub mod fsck;
pub mod receipt;
#[cfg(test)]
mod rig;
pub mod setup;
