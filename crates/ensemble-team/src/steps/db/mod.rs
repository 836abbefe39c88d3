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

use super::Trouble;

mod cell;
mod error;
pub(super) mod sqlite;

pub(super) use cell::{Bind, Cell, Column, Value};
pub(super) use error::{DbError, DbResult};

/// Values of a statement, in the order of their numbers.
macro_rules! values {
    ($($value:expr),* $(,)?) => {
        &[$($crate::steps::db::Bind::bind(&$value)),*][..]
    };
}
pub(super) use values;

/// A connection to either database.
pub(super) enum Db {
    Sqlite(sqlite::Sqlite),
}

impl Db {
    pub(super) fn data_version(&self) -> DbResult<i64> {
        match self {
            Self::Sqlite(db) => db.data_version(),
        }
    }

    pub(super) fn read<T>(&self, read: impl FnOnce(&Tx<'_>) -> DbResult<T>) -> DbResult<T> {
        match self {
            Self::Sqlite(db) => db.read(read),
        }
    }

    pub(super) fn write<T>(
        &self,
        patience: Duration,
        write: impl FnOnce(&Tx<'_>) -> Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        match self {
            Self::Sqlite(db) => db.write(patience, write),
        }
    }
}

/// An open transaction.
pub(super) struct Tx<'a>(Inner<'a>);

enum Inner<'a> {
    Sqlite(&'a rusqlite::Connection),
}

impl<'a> Tx<'a> {
    pub(super) const fn sqlite(db: &'a rusqlite::Connection) -> Self {
        Self(Inner::Sqlite(db))
    }

    /// Runs a statement that returns no rows.
    pub(super) fn execute(&self, statement: &str, values: &[Value<'_>]) -> DbResult<()> {
        match &self.0 {
            Inner::Sqlite(db) => sqlite::execute(db, statement, values),
        }
    }

    /// Reads all rows.
    pub(super) fn all<T>(
        &self,
        statement: &str,
        values: &[Value<'_>],
        mut read: impl FnMut(&Row<'_>) -> DbResult<T>,
    ) -> DbResult<Vec<T>> {
        match &self.0 {
            Inner::Sqlite(db) => {
                let mut found = Vec::new();
                sqlite::query(db, statement, values, &mut |row| {
                    found.push(read(row)?);
                    Ok(true)
                })?;
                Ok(found)
            }
        }
    }

    /// Reads the first row; `None` if there is none.
    pub(super) fn first<T>(
        &self,
        statement: &str,
        values: &[Value<'_>],
        read: impl FnOnce(&Row<'_>) -> DbResult<T>,
    ) -> DbResult<Option<T>> {
        match &self.0 {
            Inner::Sqlite(db) => {
                let (mut read, mut found) = (Some(read), None);
                sqlite::query(db, statement, values, &mut |row| {
                    found = read.take().map(|read| read(row)).transpose()?;
                    Ok(false)
                })?;
                Ok(found)
            }
        }
    }

    /// Reads the only row.
    pub(super) fn only<T>(
        &self,
        statement: &str,
        values: &[Value<'_>],
        read: impl FnOnce(&Row<'_>) -> DbResult<T>,
    ) -> DbResult<T> {
        self.first(statement, values, read)?.ok_or(DbError::NoRow)
    }

    /// Reads the first column of the only row.
    pub(super) fn value<T: Column>(&self, statement: &str, values: &[Value<'_>]) -> DbResult<T> {
        self.only(statement, values, |row| row.get(0))
    }
}

/// A row of a result.
pub(super) enum Row<'r> {
    Sqlite(&'r rusqlite::Row<'r>),
}

impl Row<'_> {
    /// Reads a column.
    pub(super) fn get<T: Column>(&self, column: usize) -> DbResult<T> {
        let cell = self.cell(column)?;
        T::from_cell(&cell).ok_or_else(|| DbError::damaged(column, "has another type"))
    }

    /// The text of a column that has one, without a copy.
    pub(super) fn text(&self, column: usize) -> DbResult<&str> {
        match self.cell(column)? {
            Cell::Text(text) => Ok(text),
            Cell::Null | Cell::Integer(_) => Err(DbError::damaged(column, "is no text")),
        }
    }

    fn cell(&self, column: usize) -> DbResult<Cell<'_>> {
        match self {
            Self::Sqlite(row) => sqlite::cell(row, column),
        }
    }
}
