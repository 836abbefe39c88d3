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

pub(super) struct DbTransaction<'a>(TransactionInner<'a>);

enum TransactionInner<'a> {
    Sqlite(&'a rusqlite::Connection),
    #[cfg(feature = "postgres")]
    Postgres(&'a postgres::PgTx<'a>),
}

impl<'a> DbTransaction<'a> {
    pub(super) const fn sqlite(db: &'a rusqlite::Connection) -> Self {
        Self(TransactionInner::Sqlite(db))
    }

    #[cfg(feature = "postgres")]
    const fn postgres(tx: &'a postgres::PgTx<'a>) -> Self {
        Self(TransactionInner::Postgres(tx))
    }

    /// Runs a statement that returns no rows.
    pub(super) fn execute(&self, statement: &str, values: &[BindValue<'_>]) -> DbResult<()> {
        match &self.0 {
            TransactionInner::Sqlite(db) => sqlite::execute(db, statement, values),
            #[cfg(feature = "postgres")]
            TransactionInner::Postgres(tx) => tx.execute(statement, values),
        }
    }

    /// Passes rows to `read` until it returns `false`.
    fn each(
        &self,
        statement: &str,
        values: &[BindValue<'_>],
        read: &mut dyn FnMut(&DbRow<'_>) -> DbResult<bool>,
    ) -> DbResult<()> {
        match &self.0 {
            TransactionInner::Sqlite(db) => sqlite::query(db, statement, values, read),
            #[cfg(feature = "postgres")]
            TransactionInner::Postgres(tx) => {
                for row in tx.query(statement, values)? {
                    if !read(&DbRow::Postgres(&row))? {
                        break;
                    }
                }
                Ok(())
            }
        }
    }

    pub(super) fn all<T: RowType>(
        &self,
        statement: &str,
        values: &[BindValue<'_>],
    ) -> DbResult<Vec<T>> {
        let mut found = Vec::new();
        self.each(statement, values, &mut |row| {
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
        self.each(statement, values, &mut |row| {
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

    /// Locks a queue until the transaction ends. Others wait before they change it. SQLite has one writer anyway.
    pub(super) fn lock_queue(&self, task_id: &str) -> DbResult<()> {
        let lock = "SELECT 1 FROM task_queues WHERE task_id = ?1 FOR UPDATE";
        self.lock(lock, values![task_id]).map(drop)
    }

    /// As [`DbTransaction::lock_queue`], unless another transaction has the lock. Returns whether it is locked now.
    pub(super) fn try_lock_queue(&self, task_id: &str) -> DbResult<bool> {
        let lock = "SELECT 1 FROM task_queues WHERE task_id = ?1 FOR UPDATE SKIP LOCKED";
        self.lock(lock, values![task_id])
    }

    /// Runs a statement that locks rows, on a server only. Returns whether it found any.
    fn lock(&self, statement: &str, values: &[BindValue<'_>]) -> DbResult<bool> {
        match &self.0 {
            TransactionInner::Sqlite(_) => {
                let _ = (statement, values);
                Ok(true)
            }
            #[cfg(feature = "postgres")]
            TransactionInner::Postgres(tx) => Ok(!tx.query(statement, values)?.is_empty()),
        }
    }

    /// Lets no other transaction change this table.
    pub(super) fn lock_table(&self, table: &str) -> DbResult<()> {
        match &self.0 {
            TransactionInner::Sqlite(_) => {
                let _ = table;
                Ok(())
            }
            #[cfg(feature = "postgres")]
            TransactionInner::Postgres(tx) => {
                tx.lock(&format!("LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE"))
            }
        }
    }

    /// Lets no other transaction hand a step to this agent on its own request.
    pub(super) fn lock_agent(&self, agent: &str) -> DbResult<()> {
        let lock = "SELECT pg_advisory_xact_lock(hashtext(current_schema()), hashtext(?1))";
        self.lock(lock, values![agent]).map(drop)
    }

    /// Stores what was observed in a boot. Removes what no host continues: in a file the observations of earlier
    /// boots, on a server those that were not renewed for long.
    pub(super) fn store_observation(&self, boot_id: &str, snapshot: &str) -> DbResult<()> {
        let (forget, store) = match &self.0 {
            TransactionInner::Sqlite(_) => (
                "DELETE FROM lease_observations WHERE boot_id <> ?1",
                "INSERT INTO lease_observations (boot_id, snapshot) VALUES (?1, ?2) \
                 ON CONFLICT (boot_id) DO UPDATE SET snapshot = excluded.snapshot",
            ),
            #[cfg(feature = "postgres")]
            TransactionInner::Postgres(_) => (
                "DELETE FROM lease_observations \
                 WHERE boot_id <> ?1 AND stored_at < now() - interval '7 days'",
                "INSERT INTO lease_observations (boot_id, snapshot) VALUES (?1, ?2) \
                 ON CONFLICT (boot_id) DO UPDATE SET snapshot = excluded.snapshot, stored_at = now()",
            ),
        };
        self.execute(forget, values![boot_id])?;
        self.execute(store, values![boot_id, snapshot])
    }
}

pub(super) enum DbRow<'r> {
    Sqlite(&'r rusqlite::Row<'r>),
    #[cfg(feature = "postgres")]
    Postgres(&'r postgres::PgRow),
}

impl DbRow<'_> {
    fn cell(&self, column: usize) -> DbResult<RowCell<'_>> {
        match self {
            Self::Sqlite(row) => sqlite::cell(row, column),
            #[cfg(feature = "postgres")]
            Self::Postgres(row) => row.cell(column),
        }
    }
}
