//! SQLite: the file, its tables, and the statements.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use ensemble_core::durable::{Dir, Durability, LockFile, temporary_name};
use ensemble_core::{Error, Result};
use rusqlite::config::DbConfig;
use rusqlite::trace::{TraceEvent, TraceEventCodes};
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OpenFlags, TransactionBehavior, params_from_iter};

use super::{BindValue, DbError, DbResult, DbRow, DbStatements, DbTransaction, RowCell};
use crate::steps::{DbFailure, StepError, StepOptions};

/// The version of the tables, in `PRAGMA user_version`.
pub const SCHEMA_VERSION: u32 = 2;
/// First wait for another writer's lock. It doubles with each try, up to 3.2 ms.
const WAIT_MIN: Duration = Duration::from_micros(50);
const WAIT_DOUBLINGS: u32 = 6;
/// Capacity of the cache of prepared statements; there are fewer statements.
const STATEMENTS: usize = 64;

/// A writer holds this lock, beside the database, until its change is committed. Correctness does
/// not depend on it: SQLite has its own locks. But SQLite copies its log into the database between
/// two changes. If other writers wait inside SQLite, the next one interrupts that copy, and the log
/// grows without bound.
const LOCK_FILE: &str = "steps.lock";

pub(in crate::steps) struct SqliteDatabase {
    db: Connection,
    /// The writers' lock file; `None` if it cannot be opened.
    write_lock: Option<LockFile>,
}

impl SqliteDatabase {
    pub(in crate::steps) fn open(path: &Path, options: &StepOptions) -> Result<Self> {
        find_database(path, options)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut db = Connection::open_with_flags(path, flags)
            .map_err(|error| failed("open", path, &error))?;
        let home = path.parent().map(Dir::open);
        let write_lock = home.and_then(|home| LockFile::open(&home.ok()?, LOCK_FILE).ok());
        prepare(&mut db, path, write_lock.as_ref(), options)?;
        Ok(Self { db, write_lock })
    }

    pub(super) fn data_version(&self) -> DbResult<i64> {
        Ok(self.db.pragma_query_value(None, "data_version", |row| row.get(0))?)
    }

    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&DbTransaction<'_>) -> DbResult<T>,
    ) -> DbResult<T> {
        let transaction = SqliteTransaction::begin(&self.db, "BEGIN")?;
        let value = read(&DbTransaction(&self.db))?;
        transaction.commit()?;
        Ok(value)
    }

    pub(super) fn write<T>(
        &self,
        patience: Duration,
        write: impl FnOnce(&DbTransaction<'_>) -> Result<T, DbFailure>,
    ) -> Result<T, DbFailure> {
        // If another process holds it for too long, SQLite's own locks decide.
        let write_lock = self.write_lock.as_ref().map(|lock| lock.lock_resting(patience));
        let _held = write_lock.and_then(Result::ok);
        let transaction =
            SqliteTransaction::begin(&self.db, "BEGIN IMMEDIATE").map_err(DbError::from)?;
        let value = write(&DbTransaction(&self.db))?;
        transaction.commit().map_err(DbError::from)?;
        Ok(value)
    }

    /// Lists the faults of the file, up to a maximum number.
    pub(super) fn faults(&self, most: usize) -> DbResult<Vec<String>> {
        let statement = format!("PRAGMA integrity_check({most})");
        let mut found: Vec<String> = DbTransaction(&self.db).all(&statement, &[])?;
        found.retain(|line| line != "ok");
        Ok(found)
    }

    #[cfg(test)]
    pub(in crate::steps) const fn connection(&self) -> &Connection {
        &self.db
    }
}

/// A transaction whose statements stay prepared, as all others do. Dropping it rolls it back.
struct SqliteTransaction<'a>(&'a Connection);

impl<'a> SqliteTransaction<'a> {
    fn begin(db: &'a Connection, how: &str) -> rusqlite::Result<Self> {
        db.prepare_cached(how)?.execute([])?;
        Ok(Self(db))
    }

    fn commit(self) -> rusqlite::Result<()> {
        self.0.prepare_cached("COMMIT")?.execute([]).map(drop)
    }
}

impl Drop for SqliteTransaction<'_> {
    fn drop(&mut self) {
        // SQLite has already rolled it back after some errors.
        if !self.0.is_autocommit() {
            let _ = self.0.execute_batch("ROLLBACK");
        }
    }
}

impl ToSql for BindValue<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Integer(Some(number)) => ValueRef::Integer(*number),
            Self::Text(Some(text)) => ValueRef::Text(text.as_bytes()),
            Self::Integer(None) | Self::Text(None) => ValueRef::Null,
        }))
    }
}

impl DbStatements for Connection {
    fn execute(&self, statement: &str, values: &[BindValue<'_>]) -> DbResult<()> {
        self.prepare_cached(statement)?.execute(params_from_iter(values))?;
        Ok(())
    }

    fn each(
        &self,
        statement: &str,
        values: &[BindValue<'_>],
        read: &mut dyn FnMut(&dyn DbRow) -> DbResult<bool>,
    ) -> DbResult<()> {
        let mut statement = self.prepare_cached(statement)?;
        let mut rows = statement.query(params_from_iter(values))?;
        while let Some(row) = rows.next()? {
            if !read(row)? {
                break;
            }
        }
        Ok(())
    }

    fn observation_statements(&self) -> [&'static str; 2] {
        [
            "DELETE FROM lease_observations WHERE boot_id <> ?1",
            "INSERT INTO lease_observations (boot_id, snapshot) VALUES (?1, ?2) \
             ON CONFLICT (boot_id) DO UPDATE SET snapshot = excluded.snapshot",
        ]
    }
}

impl DbRow for rusqlite::Row<'_> {
    fn cell(&self, column: usize) -> DbResult<RowCell<'_>> {
        match self.get_ref(column)? {
            ValueRef::Null => Ok(RowCell::Null),
            ValueRef::Integer(number) => Ok(RowCell::Integer(number)),
            ValueRef::Text(text) => match std::str::from_utf8(text) {
                Ok(text) => Ok(RowCell::Text(text)),
                Err(error) => Err(DbError::damaged(column, error)),
            },
            ValueRef::Real(_) | ValueRef::Blob(_) => {
                Err(DbError::damaged(column, "has another type"))
            }
        }
    }
}

/// Makes sure that there is a database. One that has lost its content would look like one without steps.
fn find_database(path: &Path, options: &StepOptions) -> Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => {
            Err(Error::malformed(path, "file", "is not a regular file: move it away"))
        }
        Ok(found) if found.len() == 0 => {
            let detail = "is empty: restore it from a copy, or remove it to begin without steps";
            Err(Error::malformed(path, "file", detail))
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => create_database(path, options),
        Err(error) => Err(Error::io("examine", path, error)),
    }
}

/// Creates the database with its tables, readable by its owner only, and gives it its name once it is whole. SQLite
/// gives its side files the same mode. A crash leaves a file of another name.
fn create_database(path: &Path, options: &StepOptions) -> Result<()> {
    let home = Dir::open(path.parent().unwrap_or(path))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = temporary_name(&name);
    let made = path.with_file_name(&temporary);
    let mut file = OpenOptions::new();
    file.write(true).create_new(true).mode(0o600);
    file.open(&made).map_err(|error| Error::io("create", path, error))?;
    let filled = Connection::open_with_flags(&made, OpenFlags::SQLITE_OPEN_READ_WRITE)
        .map_err(|error| failed("create", path, &error))
        .and_then(|mut db| prepare(&mut db, path, None, options));
    // If another process was first, its database counts.
    let named = filled.and_then(|()| home.move_new(&temporary, &home, &name).map(drop));
    for left in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(path.with_file_name(format!("{temporary}{left}")));
    }
    named
}

/// Sets a connection up, and creates the tables.
///
/// Connections do this one at a time. If several change the journal mode at once, each waits for
/// all others to stop reading, and SQLite ends that with an error.
fn prepare(
    db: &mut Connection,
    path: &Path,
    write_lock: Option<&LockFile>,
    options: &StepOptions,
) -> Result<()> {
    let fail = |error: rusqlite::Error| failed("open", path, &error);
    wait_patiently(db, options.patience).map_err(fail)?;
    db.set_prepared_statement_cache_capacity(STATEMENTS);
    // Query plans must not depend on bound values. Otherwise SQLite prepares each statement that
    // could use a partial index again whenever a value is bound.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(fail)?;
    db.pragma_update(None, "foreign_keys", true).map_err(fail)?;
    let synchronous = match options.durability {
        Durability::Power => "FULL",
        Durability::Process => "NORMAL",
    };
    db.pragma_update(None, "synchronous", synchronous).map_err(fail)?;
    if version(db).map_err(fail)? != SCHEMA_VERSION {
        let _held =
            write_lock.and_then(|write_lock| write_lock.lock_resting(options.patience).ok());
        // The mode is stored in the file. Changing it needs the whole database for a moment.
        db.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).map_err(fail)?;
        create_tables(db, path)?;
    }
    if let Some(told) = options.on_statement {
        trace(db, told).map_err(fail)?;
    }
    Ok(())
}

/// Other writers hold the lock for a tenth of a millisecond. SQLite's own waits (1, 2, 5 … 100 ms)
/// would leave it idle most of the time under contention.
fn wait_patiently(db: &mut Connection, patience: Duration) -> rusqlite::Result<()> {
    let mut since = Instant::now();
    db.busy_handler(Some(move |tries: i32| {
        if tries == 0 {
            since = Instant::now();
        }
        let waited = since.elapsed();
        if waited >= patience {
            return false;
        }
        let tries = u32::try_from(tries).unwrap_or(u32::MAX).min(WAIT_DOUBLINGS);
        std::thread::sleep((WAIT_MIN * 2_u32.pow(tries)).min(patience - waited));
        true
    }))
}

fn version(db: &Connection) -> rusqlite::Result<u32> {
    db.pragma_query_value(None, "user_version", |row| row.get(0))
}

fn create_tables(db: &Connection, path: &Path) -> Result<()> {
    let fail = |error: rusqlite::Error| failed("create tables", path, &error);
    let tx =
        rusqlite::Transaction::new_unchecked(db, TransactionBehavior::Immediate).map_err(fail)?;
    // Check again, now that this connection has the write lock.
    match version(&tx).map_err(fail)? {
        SCHEMA_VERSION => return Ok(()),
        0 => tx.execute_batch(include_str!("schema.sql")).map_err(fail)?,
        found => {
            let detail = format!(
                "is {found}, but this program supports {SCHEMA_VERSION}: use the one that made it"
            );
            return Err(Error::malformed(path, "user_version", detail));
        }
    }
    tx.pragma_update(None, "user_version", SCHEMA_VERSION).map_err(fail)?;
    tx.commit().map_err(fail)
}

fn trace(db: &mut Connection, told: fn(&str)) -> rusqlite::Result<()> {
    let tell = move |event: TraceEvent<'_>| {
        if let TraceEvent::Stmt(_, text) = event {
            told(text);
        }
    };
    db.trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(tell))
}

pub(super) fn failed(operation: &'static str, path: &Path, error: &rusqlite::Error) -> Error {
    use rusqlite::ErrorCode;
    let code = error.sqlite_error_code();
    if matches!(code, Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt)) {
        return Error::malformed(path, "file", format!("{error}: move it away, or restore it"));
    }
    if code == Some(ErrorCode::CannotOpen) {
        let (path, detail) = (path.to_owned(), error.to_string());
        return StepError::Unopened { operation, path, detail }.into();
    }
    let transient = matches!(
        code,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::DiskFull)
    );
    let hint = match code {
        Some(ErrorCode::DiskFull) => " (the disk is full: free some room)",
        Some(ErrorCode::SystemIoFailure) => {
            " (the disk fails or is full: free some room, see the kernel's log, and try again)"
        }
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            " (it may not be written: check who owns it, and whether the file system is read-only)"
        }
        _ => "",
    };
    let detail = format!("{error}{hint}");
    StepError::Database { operation, path: path.to_owned(), detail, transient }.into()
}
