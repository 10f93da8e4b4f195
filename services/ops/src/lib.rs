//! What operators and newcomers run by hand: setup, and the demo.
//!
//! - [`setup`]: makes bucket and broker what the product needs, and says what it found and did (R-I4). Repeatable.
//! - [`demo`]: uploads made samples exactly as a browser would and watches them travel to `ready`.
//!
//! Neither is imported by a service. Settings come in as arguments; nothing here reads the environment.

pub mod demo;
#[cfg(test)]
mod rig;
pub mod setup;
