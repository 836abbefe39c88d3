//! PostgreSQL: a schema of the team, for all hosts.
//!
//! | promise | how it is kept |
//! |---|---|
//! | a step is handed out once | its queue's row is locked (`FOR UPDATE`) before it is read; a take for any task passes over queues that others change (`SKIP LOCKED`) |
//! | no two steps hold one file | the table `file_locks` is locked while a step with files is taken |
//! | an agent that asks twice at once gets one step | an advisory lock with the agent's name |
//! | waiting processes learn of a change | each change notifies the channel of the schema |
//! | a host that vanishes blocks no other | the server ends a transaction that is idle for four times the patience |
//!
//! *Order of locks.* An agent, then one queue, for both of which a process waits; then other queues, for which it
//! does not; then the files. A process that has the files waits for nothing. So no circle can arise.
//!
//! *A crash* of a process or of the server rolls its transaction back. A connection that ends during a commit leaves
//! the caller in doubt. Each change can be repeated, and changes nothing the second time.

use std::cell::{Cell as Flag, RefCell};
use std::time::Duration;

use super::{BindValue, DbError, DbResult, DbRow, DbStatements, DbTransaction};
use crate::steps::{DbFailure, SCHEMA_VERSION};

mod client;
mod error;
mod options;
mod row;
mod tls;

pub(super) use error::PgError;
pub use options::PostgresOptions;

use client::PostgresClient;
use row::PgRow;

const SCHEMA: &str = include_str!("../postgres.sql");
const BEGIN_READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY";
const BEGIN_WRITE: &str = "BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE";
const UNDEFINED: [&str; 2] = ["42P01", "3F000"];

/// The team's schema on a server. It connects when it is first used, and again after a connection has ended.
pub(in crate::steps) struct PostgresDatabase {
    options: PostgresOptions,
    on_statement: Option<fn(&str)>,
    client: Option<PostgresClient>,
    listens: bool,
    /// Changes of others that were noticed over earlier connections, and the connections.
    version: i64,
}

impl PostgresDatabase {
    pub(in crate::steps) const fn new(
        options: PostgresOptions,
        on_statement: Option<fn(&str)>,
    ) -> Self {
        Self { options, on_statement, client: None, listens: false, version: 0 }
    }

    /// A number that has changed if another connection has changed something.
    pub(super) fn data_version(&mut self) -> DbResult<i64> {
        self.listens = true;
        // The server passes news on before it is ready again.
        self.run("")?;
        let client = self.client()?;
        Ok(client.notified().wrapping_add(self.version))
    }

    /// Waits for a change by another connection, for at most `patience`. Returns whether there was one.
    pub(super) fn wait(&mut self, patience: Duration) -> DbResult<bool> {
        self.listens = true;
        let waited = self.client()?.wait(patience);
        self.close_if_ended(waited)
    }

    pub(super) fn read<T>(
        &mut self,
        read: impl FnOnce(&DbTransaction<'_>) -> DbResult<T>,
    ) -> DbResult<T> {
        self.begin(BEGIN_READ)?;
        let value = read(&DbTransaction(&PgTx::new(self.client()?)));
        self.end(value.is_ok(), false)?;
        value
    }

    pub(super) fn write<T>(
        &mut self,
        write: impl FnOnce(&DbTransaction<'_>) -> Result<T, DbFailure>,
    ) -> Result<T, DbFailure> {
        self.begin(BEGIN_WRITE)?;
        let tx = PgTx::new(self.client()?);
        let value = write(&DbTransaction(&tx));
        let is_changed = tx.is_changed.get();
        self.end(value.is_ok(), is_changed)?;
        value
    }

    /// The connection; a new one if there is none.
    fn client(&mut self) -> Result<&mut PostgresClient, PgError> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => {
                let mut client = PostgresClient::connect(&self.options, self.on_statement)?;
                prepare(&mut client, &self.options.schema)?;
                // Changes by others in the meantime may have been missed.
                self.version = self.version.wrapping_add(1);
                client
            }
        };
        if self.listens && !client.listens && !client.is_in_transaction {
            client.batch(&format!("LISTEN \"{}\"", self.options.schema))?;
            client.listens = true;
        }
        Ok(self.client.insert(client))
    }

    /// Keeps the connection unless it has ended.
    fn close_if_ended<T>(&mut self, result: Result<T, PgError>) -> DbResult<T> {
        if result.as_ref().is_err_and(PgError::ends_connection) {
            self.hang_up();
        }
        Ok(result?)
    }

    fn hang_up(&mut self) {
        if let Some(client) = self.client.take() {
            self.version = self.version.wrapping_add(client.notified());
        }
    }

    /// Runs a statement with which nothing has begun yet. A connection that has ended while it was idle is replaced.
    fn run(&mut self, statement: &str) -> DbResult<()> {
        // A panic left a transaction open.
        if self.client.as_ref().is_some_and(|client| client.is_in_transaction) {
            self.hang_up();
        }
        let is_new = self.client.is_none();
        match self.client()?.batch(statement) {
            Err(error) if error.ends_connection() && !is_new => {
                self.hang_up();
                let again = self.client()?.batch(statement);
                self.close_if_ended(again)
            }
            result => self.close_if_ended(result),
        }
    }

    fn begin(&mut self, how: &str) -> DbResult<()> {
        self.run(how)?;
        self.client()?.is_in_transaction = true;
        Ok(())
    }

    /// Ends the transaction, and notifies other connections if it has changed something.
    fn end(&mut self, is_good: bool, is_changed: bool) -> DbResult<()> {
        let notify = format!("NOTIFY \"{}\"", self.options.schema);
        let client = self.client()?;
        client.is_in_transaction = false;
        if !is_good {
            // The server rolls back by itself once the connection has ended.
            let ended = client.batch("ROLLBACK");
            if ended.is_err() {
                self.hang_up();
            }
            return Ok(());
        }
        let told = if is_changed { client.batch(&notify) } else { Ok(()) };
        let committed = told.and_then(|()| {
            client.batch("COMMIT").map_err(|error| match error {
                PgError::Away(why) if is_changed => PgError::Unanswered(why),
                PgError::Refused { message, .. } if is_changed && error.ends_connection() => {
                    PgError::Unanswered(message)
                }
                error => error,
            })
        });
        if committed.is_err() {
            self.hang_up();
        }
        self.close_if_ended(committed)
    }
}

struct PgTx<'a> {
    client: RefCell<&'a mut PostgresClient>,
    is_changed: Flag<bool>,
}

impl<'a> PgTx<'a> {
    const fn new(client: &'a mut PostgresClient) -> Self {
        Self { client: RefCell::new(client), is_changed: Flag::new(false) }
    }

    fn query(&self, statement: &str, values: &[BindValue<'_>]) -> DbResult<Vec<PgRow>> {
        Ok(self.client.borrow_mut().query(statement, values)?)
    }
}

impl DbStatements for PgTx<'_> {
    fn execute(&self, statement: &str, values: &[BindValue<'_>]) -> DbResult<()> {
        self.is_changed.set(true);
        self.query(statement, values).map(drop)
    }

    fn each(
        &self,
        statement: &str,
        values: &[BindValue<'_>],
        read: &mut dyn FnMut(&dyn DbRow) -> DbResult<bool>,
    ) -> DbResult<()> {
        for row in self.query(statement, values)? {
            if !read(&row)? {
                break;
            }
        }
        Ok(())
    }

    fn lock(&self, statement: &str, values: &[BindValue<'_>]) -> DbResult<bool> {
        Ok(!self.query(statement, values)?.is_empty())
    }

    fn lock_table(&self, table: &str) -> DbResult<()> {
        let lock = format!("LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE");
        Ok(self.client.borrow_mut().batch(&lock)?)
    }

    fn observation_statements(&self) -> [&'static str; 2] {
        [
            "DELETE FROM lease_observations \
             WHERE boot_id <> ?1 AND stored_at < now() - interval '7 days'",
            "INSERT INTO lease_observations (boot_id, snapshot) VALUES (?1, ?2) \
             ON CONFLICT (boot_id) DO UPDATE SET snapshot = excluded.snapshot, stored_at = now()",
        ]
    }
}

fn prepare(client: &mut PostgresClient, schema: &str) -> Result<(), PgError> {
    match version(client)? {
        Some(found) => check(found),
        None => {
            client.batch(BEGIN_WRITE)?;
            let made = make(client, schema);
            client.batch(if made.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
            made
        }
    }
}

fn make(client: &mut PostgresClient, schema: &str) -> Result<(), PgError> {
    // Another process may make them at the same time.
    let lock = "SELECT pg_advisory_xact_lock(hashtext('ensemble schema'), hashtext(?1))";
    client.query(lock, super::values![schema])?;
    let made = client.query(
        "SELECT 1 FROM pg_namespace n LEFT JOIN pg_class c \
           ON c.relnamespace = n.oid AND c.relname = 'step_schema' \
         WHERE n.nspname = ?1 AND c.oid IS NOT NULL",
        super::values![schema],
    )?;
    if !made.is_empty() {
        return Ok(());
    }
    let known =
        client.query("SELECT 1 FROM pg_namespace WHERE nspname = ?1", super::values![schema])?;
    if known.is_empty() {
        client.batch(&format!("CREATE SCHEMA \"{schema}\""))?;
    }
    client.batch(SCHEMA)?;
    client.batch(&format!("INSERT INTO step_schema (version) VALUES ({SCHEMA_VERSION})"))
}

/// The version of the tables; `None` without any.
fn version(client: &mut PostgresClient) -> Result<Option<i64>, PgError> {
    match client.query("SELECT version FROM step_schema", &[]) {
        Ok(rows) => match rows.first().map(|row| row.cell(0)) {
            Some(Ok(super::RowCell::Integer(found))) => Ok(Some(found)),
            _ => Ok(Some(0)),
        },
        Err(PgError::Refused { code, .. }) if UNDEFINED.contains(&code.as_str()) => Ok(None),
        Err(error) => Err(error),
    }
}

fn check(found: i64) -> Result<(), PgError> {
    match found == i64::from(SCHEMA_VERSION) {
        true => Ok(()),
        false => Err(PgError::Unusable(format!(
            "the tables have version {found}, and this program supports {SCHEMA_VERSION}"
        ))),
    }
}

impl From<PgError> for DbFailure {
    fn from(error: PgError) -> Self {
        Self::Sql(DbError::Postgres(error))
    }
}
