//! What a database failure means.

use std::io;

/// A failure of the database, or of a row that is not as the code expects.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database can't be reached, or turned us away: wait and try again.
    #[error("the database is not reachable: {0}")]
    Unavailable(#[source] sqlx::Error),
    /// A deadlock or serialization failure: the same transaction may go through next time.
    #[error("the transaction lost against another: {0}")]
    Contention(#[source] sqlx::Error),
    /// A CHECK, key or type refused the data: the same statement will never go through.
    #[error("the database refuses the data ({constraint}): {source}")]
    Refused {
        /// The constraint, or the SQLSTATE where there is none.
        constraint: String,
        /// What the database said.
        #[source]
        source: sqlx::Error,
    },
    /// COMMIT was sent and its answer did not arrive: nobody knows whether the transaction is in.
    #[error("the outcome of COMMIT is unknown: {0}")]
    CommitUnknown(#[source] sqlx::Error),
    /// A row holds something the code can't read.
    #[error("card {card}: column {column} holds `{value}`")]
    Unreadable {
        /// The card.
        card: String,
        /// The column.
        column: &'static str,
        /// What is in it.
        value: String,
    },
    /// A migration failed.
    #[error("migration failed: {0}")]
    Migration(#[from] sqlx::migrate::MigrateError),
    /// The URL or a statement is wrong: a bug or a setting.
    #[error("{0}")]
    Statement(#[source] sqlx::Error),
}

/// What a [`StoreError`] asks of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// The dependency is away: hold, and use no attempt (R-C7).
    Outage,
    /// This one operation failed: retry it.
    Fault,
    /// It can never work: dead-letter it.
    Permanent,
}

impl StoreError {
    /// What this failure asks of its caller. An unknown COMMIT is an outage: the work comes again and finds out.
    pub fn kind(&self) -> StoreErrorKind {
        match self {
            Self::Unavailable(_) | Self::CommitUnknown(_) => StoreErrorKind::Outage,
            Self::Contention(_) | Self::Unreadable { .. } | Self::Migration(_) | Self::Statement(_) => {
                StoreErrorKind::Fault
            }
            Self::Refused { .. } => StoreErrorKind::Permanent,
        }
    }

    /// Whether a unique or other constraint of this name refused the data.
    pub fn is_constraint(&self, name: &str) -> bool {
        matches!(self, Self::Refused { constraint, .. } if constraint == name)
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        let Some(database) = error.as_database_error() else {
            return if is_transport(&error) { Self::Unavailable(error) } else { Self::Statement(error) };
        };
        let code = database.code().unwrap_or_default().into_owned();
        let constraint = database.constraint().map_or_else(|| format!("SQLSTATE {code}"), str::to_owned);
        match (code.get(..2), code.as_str()) {
            // Our own statement_timeout, or a lock somebody holds: this statement's trouble, not the server's. It would be an
            // outage of everybody's otherwise (`a_locked_row_holds_up_only_its_own_card`).
            (_, "57014") | (Some("40" | "55"), _) => Self::Contention(error),
            // Connection exceptions, role or database gone, out of resources, system errors; operator intervention
            // (shutdown, crash, the database dropped); and a server that has become read-only.
            (Some("08" | "28" | "3D" | "53" | "58"), _)
            | (_, "57P01" | "57P02" | "57P03" | "57P04" | "57P05" | "25006") => Self::Unavailable(error),
            (Some("22" | "23"), _) => Self::Refused { constraint, source: error },
            _ => Self::Statement(error),
        }
    }
}

fn is_transport(error: &sqlx::Error) -> bool {
    matches!(
        error,
        sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
    )
}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> Self {
        Self::Unavailable(sqlx::Error::Io(error))
    }
}
