//! All SQL. The only crate with sqlx.
//!
//! Functions take `&mut PgConnection`, so callers compose them into one transaction; a transaction begins with
//! [`Db::begin`] and ends with [`Tx::commit`] in the same function. What failed, and whether a COMMIT's outcome is
//! known, is said by [`StoreError`]. A guarded write that met another revision is a named result, never an error.
//!
//! Every stored or compared time is the database's `now()`.

pub mod cards;
pub mod check;
pub mod clock;
pub mod confirm;
mod db;
pub mod deletion;
mod error;
pub mod finish;
pub mod history;
pub mod lease;
pub mod originals;
pub mod outbox;
pub mod overview;
pub mod owners;
pub mod purge;
pub mod reconcile;
mod row;
pub mod strays;
pub mod tickets;
pub mod timer;

pub use db::{Db, DbSettings, Tx, migrate, migrations_fingerprint, pending_migrations};
pub use error::{StoreError, StoreErrorKind};
pub use sqlx::PgConnection;
