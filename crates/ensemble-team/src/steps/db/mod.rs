//! The database of the step queues. The same statements run in SQLite and in PostgreSQL.
//!
//! | | SQLite | PostgreSQL |
//! |---|---|---|
//! | place | `.ensemble/steps.db`, of one host | a schema of the team, for all hosts |
//! | a change | `BEGIN IMMEDIATE`: one writer at a time | row locks: one writer of a queue at a time |
//! | numbers, flags, texts | `INTEGER`, `INTEGER`, `TEXT` | `BIGINT`, `BIGINT`, `TEXT` |
//!
//! Statements name their values `?1`, `?2` …; for PostgreSQL these become `$1`, `$2` …

use std::time::Duration;

use super::DbFailure;

mod cell;
mod error;
#[cfg(feature = "postgres")]
pub(super) mod postgres;
pub(super) mod sqlite;

pub(super) use cell::{BindParameter, BindValue, RowCell, RowColumns, RowType, row_type};
pub(super) use error::{DbError, DbResult};

/// Values of a statement, in the order of their numbers.
macro_rules! values {
    ($($value:expr),* $(,)?) => {
        &[$($crate::steps::db::BindParameter::bind(&$value)),*][..]
    };
}
pub(super) use values;

pub(super) enum DbConnection {
    Sqlite(Box<sqlite::SqliteDatabase>),
    #[cfg(feature = "postgres")]
    Postgres(Box<postgres::PostgresDatabase>),
}

impl DbConnection {
    pub(super) fn data_version(&mut self) -> DbResult<i64> {
        match self {
            Self::Sqlite(db) => db.data_version(),
            #[cfg(feature = "postgres")]
            Self::Postgres(db) => db.data_version(),
        }
    }

    /// Lists the faults of the database; nothing is known of that on a server, which checks itself.
    pub(super) fn faults(&mut self, most: usize) -> DbResult<Vec<String>> {
        match self {
            Self::Sqlite(db) => db.faults(most),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => Ok(Vec::new()),
        }
    }

    /// Waits for news; `None` if this database has none.
    pub(super) fn wait(&mut self, longest: Duration) -> DbResult<Option<bool>> {
        match self {
            Self::Sqlite(_) => {
                let _ = longest;
                Ok(None)
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(db) => db.wait(longest).map(Some),
        }
    }

    pub(super) fn read<T>(
        &mut self,
        read: impl FnOnce(&DbTransaction<'_>) -> DbResult<T>,
    ) -> DbResult<T> {
        match self {
            Self::Sqlite(db) => db.read(read),
            #[cfg(feature = "postgres")]
            Self::Postgres(db) => db.read(read),
        }
    }

    pub(super) fn write<T>(
        &mut self,
        patience: Duration,
        write: impl FnOnce(&DbTransaction<'_>) -> Result<T, DbFailure>,
    ) -> Result<T, DbFailure> {
        match self {
            Self::Sqlite(db) => db.write(patience, write),
            #[cfg(feature = "postgres")]
            Self::Postgres(db) => db.write(write),
        }
    }
}

/// What each database does in a transaction.
pub(super) trait DbStatements {
    /// Runs a statement that returns no rows.
    fn execute(&self, statement: &str, values: &[BindValue<'_>]) -> DbResult<()>;

    /// Passes rows to `read` until it returns `false`.
    fn each(
        &self,
        statement: &str,
        values: &[BindValue<'_>],
        read: &mut dyn FnMut(&dyn DbRow) -> DbResult<bool>,
    ) -> DbResult<()>;

    /// Runs a statement that locks rows, on a server only: SQLite has one writer anyway. Returns whether it found any.
    fn lock(&self, _statement: &str, _values: &[BindValue<'_>]) -> DbResult<bool> {
        Ok(true)
    }

    /// Lets no other transaction change this table.
    fn lock_table(&self, _table: &str) -> DbResult<()> {
        Ok(())
    }

    /// The statements that remove the observations which no host continues, and store one.
    fn observation_statements(&self) -> [&'static str; 2];
}

pub(super) trait DbRow {
    fn cell(&self, column: usize) -> DbResult<RowCell<'_>>;
}

pub(super) struct DbTransaction<'a>(&'a dyn DbStatements);

impl DbTransaction<'_> {
    pub(super) fn execute(&self, statement: &str, values: &[BindValue<'_>]) -> DbResult<()> {
        self.0.execute(statement, values)
    }

    pub(super) fn all<T: RowType>(
        &self,
        statement: &str,
        values: &[BindValue<'_>],
    ) -> DbResult<Vec<T>> {
        let mut found = Vec::new();
        self.0.each(statement, values, &mut |row| {
            found.push(T::read(&mut RowColumns::of(row))?);
            Ok(true)
        })?;
        Ok(found)
    }

    /// Reads the first row; `None` if there is none.
    pub(super) fn first<T: RowType>(
        &self,
        statement: &str,
        values: &[BindValue<'_>],
    ) -> DbResult<Option<T>> {
        let mut found = None;
        self.0.each(statement, values, &mut |row| {
            found = Some(T::read(&mut RowColumns::of(row))?);
            Ok(false)
        })?;
        Ok(found)
    }

    pub(super) fn only<T: RowType>(
        &self,
        statement: &str,
        values: &[BindValue<'_>],
    ) -> DbResult<T> {
        self.first(statement, values)?.ok_or(DbError::NoRow)
    }

    /// Locks a queue until the transaction ends. Others wait before they change it.
    pub(super) fn lock_queue(&self, task_id: &str) -> DbResult<()> {
        let lock = "SELECT 1 FROM task_queues WHERE task_id = ?1 FOR UPDATE";
        self.0.lock(lock, values![task_id]).map(drop)
    }

    /// As [`DbTransaction::lock_queue`], unless another transaction has the lock. Returns whether it is locked now.
    pub(super) fn try_lock_queue(&self, task_id: &str) -> DbResult<bool> {
        let lock = "SELECT 1 FROM task_queues WHERE task_id = ?1 FOR UPDATE SKIP LOCKED";
        self.0.lock(lock, values![task_id])
    }

    pub(super) fn lock_table(&self, table: &str) -> DbResult<()> {
        self.0.lock_table(table)
    }

    /// Lets no other transaction hand a step to this agent on its own request.
    pub(super) fn lock_agent(&self, agent: &str) -> DbResult<()> {
        let lock = "SELECT pg_advisory_xact_lock(hashtext(current_schema()), hashtext(?1))";
        self.0.lock(lock, values![agent]).map(drop)
    }

    /// Stores what was observed in a boot. Removes what no host continues: in a file the observations of earlier
    /// boots, on a server those that were not renewed for long.
    pub(super) fn store_observation(&self, boot_id: &str, snapshot: &str) -> DbResult<()> {
        let [forget, store] = self.0.observation_statements();
        self.execute(forget, values![boot_id])?;
        self.execute(store, values![boot_id, snapshot])
    }
}
