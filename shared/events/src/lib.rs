//! What arrives from buckets ([`bucket`]) and what goes through our own queues ([`work`]), parsed strictly. Pure.

pub mod bucket;
pub mod work;
