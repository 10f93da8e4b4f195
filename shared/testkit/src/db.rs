//! A migrated database per test.

use anyhow::{Context, Result};
use cards::Ids;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use store::{Db, DbSettings};

use crate::Env;

/// Serializes the making of the template among test processes.
const TEMPLATE_LOCK: i64 = 0x6172_6b69_7674;

/// A database of its own, dropped with this value.
#[derive(Debug)]
pub struct TestDb {
    /// Its name.
    pub name: String,
    /// As the owner of the schema.
    pub owner_url: String,
    /// As the API's role.
    pub api_url: String,
    /// As the workers' role.
    pub worker_url: String,
}

impl TestDb {
    /// A copy of the migrated template, which is made when the migrations are new.
    pub async fn new() -> Self {
        Self::create().await.expect("a test database; is ./dev servers running?")
    }

    async fn create() -> Result<Self> {
        let env = Env::get();
        let mut connection = PgConnection::connect(&maintenance_url()).await?;
        let template = ensure_template(&mut connection).await?;
        let name = format!("t_{}", Ids.message().0.simple());
        connection.execute(AssertSqlSafe(format!("create database {name} template {template}"))).await?;
        connection.close().await?;
        Ok(Self {
            owner_url: with_database(env.value("ARKIV_OWNER_DATABASE_URL"), &name),
            api_url: with_database(env.value("ARKIV_API_DATABASE_URL"), &name),
            worker_url: with_database(env.value("ARKIV_DATABASE_URL"), &name),
            name,
        })
    }

    /// A pool as the workers' role.
    pub fn worker(&self) -> Db {
        pool(&self.worker_url)
    }

    /// A pool as the API's role.
    pub fn api(&self) -> Db {
        pool(&self.api_url)
    }

    /// Runs statements as the owner of the schema: to move a row's times, never to fake a result.
    pub async fn sql(&self, statements: &str) {
        self.try_sql(statements).await.unwrap_or_else(|error| panic!("{statements}: {error}"));
    }

    /// Runs statements that may be refused.
    pub async fn try_sql(&self, statements: &str) -> Result<(), sqlx::Error> {
        let mut connection = PgConnection::connect(&self.owner_url).await?;
        let done = connection.execute(AssertSqlSafe(statements.to_owned())).await.map(|_| ());
        connection.close().await?;
        done
    }

    /// Runs statements as `api` or `worker`.
    pub async fn try_sql_as(&self, role: &str, statements: &str) -> Result<(), sqlx::Error> {
        let url = if role == "api" { &self.api_url } else { &self.worker_url };
        let mut connection = PgConnection::connect(url).await?;
        let done = connection.execute(AssertSqlSafe(statements.to_owned())).await.map(|_| ());
        connection.close().await?;
        done
    }

    /// The one number a query answers.
    pub async fn count(&self, query: &str) -> i64 {
        let mut connection = PgConnection::connect(&self.owner_url).await.expect("the test database");
        sqlx::query_scalar(AssertSqlSafe(query.to_owned()))
            .fetch_one(&mut connection)
            .await
            .unwrap_or_else(|error| panic!("{query}: {error}"))
    }

    /// The first column of a query, as texts.
    pub async fn texts(&self, query: &str) -> Vec<String> {
        let mut connection = PgConnection::connect(&self.owner_url).await.expect("the test database");
        sqlx::query_scalar(AssertSqlSafe(query.to_owned()))
            .fetch_all(&mut connection)
            .await
            .unwrap_or_else(|error| panic!("{query}: {error}"))
    }

    /// Lets time pass for every card: all its times move into the past, as the clock is the database's alone.
    pub async fn pass_time(&self, seconds: u32) {
        let statements = format!(
            "update cards
             set ticket_issued_at = ticket_issued_at - interval '{seconds} seconds',
                 ticket_ends_at = ticket_ends_at - interval '{seconds} seconds',
                 next_check_at = next_check_at - interval '{seconds} seconds',
                 lease_until = lease_until - interval '{seconds} seconds',
                 created_at = created_at - interval '{seconds} seconds',
                 purge_at = purge_at - interval '{seconds} seconds',
                 purge_until = purge_until - interval '{seconds} seconds',
                 delete_requested_at = delete_requested_at - interval '{seconds} seconds',
                 delete_after = delete_after - interval '{seconds} seconds';
             update outbox
             set available_at = available_at - interval '{seconds} seconds';
             update database_identity
             set accepted_at = accepted_at - interval '{seconds} seconds';
             update strays
             set first_seen_at = first_seen_at - interval '{seconds} seconds',
                 last_seen_at = last_seen_at - interval '{seconds} seconds'"
        );
        // It locks every card in no order at all: beside running processes it is the victim of a deadlock now and then.
        for _ in 0..DEADLOCKS_MAX {
            match self.try_sql(&statements).await {
                Ok(()) => return,
                Err(error) if is_deadlock(&error) => {}
                Err(error) => panic!("{statements}: {error}"),
            }
        }
        panic!("{DEADLOCKS_MAX} deadlocks in a row");
    }

    /// Drops it now and says so if that fails; without it, it is dropped in the background.
    pub async fn finish(self) {
        drop_database(&self.name).await.expect("dropping the test database");
    }
}

/// So many in a row are no accident.
const DEADLOCKS_MAX: u32 = 20;

fn is_deadlock(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(sqlx::error::DatabaseError::code).is_some_and(|code| code == "40P01")
}

impl Drop for TestDb {
    fn drop(&mut self) {
        let name = self.name.clone();
        // A test's own runtime may be gone or busy: a thread with its own one drops the database even after a panic.
        let dropper = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let Ok(runtime) = runtime {
                let _ = runtime.block_on(drop_database(&name));
            }
        });
        let _ = dropper.join();
    }
}

async fn drop_database(name: &str) -> Result<()> {
    let mut connection = PgConnection::connect(&maintenance_url()).await?;
    connection.execute(AssertSqlSafe(format!("drop database if exists {name} with (force)"))).await?;
    connection.close().await?;
    Ok(())
}

/// The template's name carries what is in the migrations: other migrations, another template.
async fn ensure_template(connection: &mut PgConnection) -> Result<String> {
    let name = format!("arkiv_template_{:016x}", store::migrations_fingerprint());
    sqlx::query("select pg_advisory_lock($1)").bind(TEMPLATE_LOCK).execute(&mut *connection).await?;
    let there: bool = sqlx::query_scalar("select exists (select from pg_database where datname = $1)")
        .bind(&name)
        .fetch_one(&mut *connection)
        .await?;
    if !there {
        // Renamed when complete: a template that was left half-made is made again.
        let draft = format!("{name}_draft");
        connection.execute(AssertSqlSafe(format!("drop database if exists {draft} with (force)"))).await?;
        connection.execute(AssertSqlSafe(format!("create database {draft}"))).await?;
        let url = with_database(Env::get().value("ARKIV_OWNER_DATABASE_URL"), &draft);
        store::migrate(&url).await.context("migrating the template")?;
        connection.execute(AssertSqlSafe(format!("alter database {draft} rename to {name}"))).await?;
    }
    sqlx::query("select pg_advisory_unlock($1)").bind(TEMPLATE_LOCK).execute(&mut *connection).await?;
    Ok(name)
}

fn pool(url: &str) -> Db {
    let settings = DbSettings { url: url.to_owned(), connections_max: 8, name: "arkiv test".to_owned() };
    Db::new(&settings).expect("a database URL")
}

fn maintenance_url() -> String {
    with_database(Env::get().value("ARKIV_OWNER_DATABASE_URL"), "postgres")
}

fn with_database(url: &str, name: &str) -> String {
    let mut url = url::Url::parse(url).expect("a database URL in .dev/env");
    url.set_path(name);
    url.to_string()
}
