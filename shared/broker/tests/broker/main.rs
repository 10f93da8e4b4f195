//! The broker crate on a real RabbitMQ (ring 3): `./dev servers` first.

// Marked as tests, so that helpers may unwrap like the tests they help.
#[cfg(test)]
mod consume;
#[cfg(test)]
mod publish;
#[cfg(test)]
mod restart;
#[cfg(test)]
mod rig;
