//! The routes on a real PostgreSQL, one database a test, with the store's fake.

mod answers;
mod confirm;
mod files;
mod identity;
mod links;
mod tickets;
mod world;
