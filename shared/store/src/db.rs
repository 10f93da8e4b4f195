//! Pools, transactions and migrations.

use std::ops::{Deref, DerefMut};
use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{ConnectOptions, Connection, Executor, PgConnection, Postgres, Transaction};

use crate::StoreError;

static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("../../migrations");

/// How to reach the database as one role.
#[derive(Clone)]
pub struct DbSettings {
    /// `postgres://role:password@host:port/database`.
    pub url: String,
    /// Connections at most.
    pub connections_max: u32,
    /// Shown in `pg_stat_activity`.
    pub name: String,
}

impl std::fmt::Debug for DbSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DbSettings")
            .field("url", &"(masked)")
            .field("connections_max", &self.connections_max)
            .field("name", &self.name)
            .finish()
    }
}

/// Longest wait for a free connection, in production and in tests: past it the database counts as away.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// A pool of connections of one role.
#[derive(Clone, Debug)]
pub struct Db {
    pool: PgPool,
}

/// A transaction. Dropped without [`Tx::commit`], it is rolled back.
pub struct Tx {
    inner: Transaction<'static, Postgres>,
}

impl Db {
    /// A pool that connects when first used, so that a database that is away at start is waited for by its users.
    pub fn new(settings: &DbSettings) -> Result<Self, StoreError> {
        let options = connect_options(&settings.url, &settings.name)?;
        let pool = PgPoolOptions::new()
            .max_connections(settings.connections_max)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .idle_timeout(Duration::from_mins(5))
            .max_lifetime(Duration::from_mins(30))
            .test_before_acquire(false)
            // A request that was cancelled in the middle of BEGIN leaves a connection in a transaction its pool does
            // not know of (transact-rs/sqlx#4385). ROLLBACK at every acquire both heals that and tests the connection.
            .before_acquire(|connection, _| {
                Box::pin(async move {
                    connection.execute("rollback").await?;
                    Ok(true)
                })
            })
            .connect_lazy_with(options);
        Ok(Self { pool })
    }

    /// Begins a transaction.
    pub async fn begin(&self) -> Result<Tx, StoreError> {
        Ok(Tx { inner: self.pool.begin().await? })
    }

    /// A connection outside any transaction: single statements only.
    pub async fn acquire(&self) -> Result<impl DerefMut<Target = PgConnection> + use<>, StoreError> {
        Ok(self.pool.acquire().await?)
    }

    /// A connection that is not of the pool, for work that must not wait for one (lease renewal, R-C1).
    pub async fn dedicated(&self) -> Result<PgConnection, StoreError> {
        Ok(self.pool.connect_options().connect().await?)
    }

    /// The independent probe of R-C7: a write that is rolled back. `SELECT 1` succeeds on a server that has become read-only
    /// or whose disk is full, and a consumer that believed it would fail again at once.
    pub async fn probe(&self) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        // The one table every role may insert into. Too far off for a relay, were it ever seen.
        sqlx::query!(
            "insert into outbox (queue, message_id, body, available_at)
             values ('card.purge', gen_random_uuid(), '', 'infinity')"
        )
        .execute(&mut *tx)
        .await?;
        tx.rollback().await
    }

    /// Closes every connection.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

impl Tx {
    /// Ends the transaction. A database that answers says whether it is in; no answer is [`StoreError::CommitUnknown`]
    /// (R-C5: then nothing may be undone).
    pub async fn commit(self) -> Result<(), StoreError> {
        self.inner.commit().await.map_err(|error| match StoreError::from(error) {
            // 57P01..57P03 while COMMIT runs can come before or after the commit record: unknown too.
            StoreError::Unavailable(source) | StoreError::Statement(source) => {
                StoreError::CommitUnknown(source)
            }
            known @ (StoreError::Contention(_)
            | StoreError::Refused { .. }
            | StoreError::CommitUnknown(_)
            | StoreError::Unreadable { .. }
            | StoreError::Migration(_)) => known,
        })
    }

    /// Undoes the transaction now rather than when it is dropped.
    pub async fn rollback(self) -> Result<(), StoreError> {
        Ok(self.inner.rollback().await?)
    }
}

impl Deref for Tx {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.inner
    }
}

impl DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.inner
    }
}

fn connect_options(url: &str, name: &str) -> Result<PgConnectOptions, StoreError> {
    Ok(PgConnectOptions::from_str(url)?
        .application_name(name)
        .options([
            ("timezone", "UTC"),
            // "there is no transaction in progress" is what the ROLLBACK at acquire expects to hear.
            ("client_min_messages", "error"),
            // No statement of ours takes seconds; a hung one must not hold its locks.
            ("statement_timeout", "15s"),
            ("idle_in_transaction_session_timeout", "30s"),
        ])
        .log_slow_statements(tracing::log::LevelFilter::Warn, Duration::from_secs(1)))
}

/// Applies the migrations that are missing, as the owner of the schema. Answers how many were applied.
pub async fn migrate(owner_url: &str) -> Result<usize, StoreError> {
    let mut connection = connect_options(owner_url, "arkiv migrate")?.connect().await?;
    // A migration may rewrite a table: only it may run for long.
    connection.execute("set statement_timeout = 0").await?;
    let missing = missing_migrations(&mut connection).await?;
    MIGRATIONS.run(&mut connection).await?;
    // The table of migrations is made by the migrator, after the grants: readable for readiness.
    connection.execute("grant select on _sqlx_migrations to arkiv_api, arkiv_worker").await?;
    connection.close().await?;
    Ok(missing)
}

/// How many of this binary's migrations the database lacks.
pub async fn pending_migrations(db: &Db) -> Result<usize, StoreError> {
    let mut connection = db.pool.acquire().await?;
    missing_migrations(&mut connection).await
}

async fn missing_migrations(connection: &mut PgConnection) -> Result<usize, StoreError> {
    let known: Option<bool> = sqlx::query_scalar("select to_regclass('_sqlx_migrations') is not null")
        .fetch_one(&mut *connection)
        .await?;
    let applied: Vec<i64> = if known.unwrap_or(false) {
        sqlx::query_scalar("select version from _sqlx_migrations where success").fetch_all(connection).await?
    } else {
        Vec::new()
    };
    Ok(MIGRATIONS.iter().filter(|migration| !applied.contains(&migration.version)).count())
}

/// Changes with the migrations: names what a database copied from a template must have in it.
pub fn migrations_fingerprint() -> u64 {
    MIGRATIONS
        .iter()
        .flat_map(|migration| migration.checksum.iter())
        // FNV-1a: any mixing will do, it only tells two sets of migrations apart.
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
