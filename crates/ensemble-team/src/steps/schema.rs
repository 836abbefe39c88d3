//! The tables, and the migration of older databases.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::trace::{TraceEvent, TraceEventCodes};
use rusqlite::{Connection, TransactionBehavior};

use super::{StepOptions, Trouble, failed, fixes};
use ensemble_core::durable::{Durability, LockFile};
use ensemble_core::{Error, Result};

/// The newest version of the tables, in `PRAGMA user_version`.
pub const SCHEMA_VERSION: u32 = 2;
/// Migrations from each version to the next; the first creates version 1.
const MIGRATIONS: [&str; SCHEMA_VERSION as usize] =
    [include_str!("schema.sql"), include_str!("schema_2.sql")];
/// First wait for another writer's lock. It doubles with each try, up to 3.2 ms.
const WAIT_MIN: Duration = Duration::from_micros(50);
const WAIT_DOUBLINGS: u32 = 6;
/// Capacity of the cache of prepared statements; there are fewer statements.
const STATEMENTS: usize = 64;

/// Creates the file, readable by its owner only, if it does not exist. SQLite gives its side files
/// the same mode.
pub(super) fn make_private(path: &Path) -> Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_file() => Ok(()),
        Ok(_) => Err(Error::malformed(path, "file", "is not a regular file: move it away")),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o600);
            options.open(path).map(drop).map_err(|e| Error::io("create", path, e))
        }
        Err(error) => Err(Error::io("examine", path, error)),
    }
}

/// Sets a connection up, and migrates the tables.
///
/// Connections do this one at a time. If several change the journal mode at once, each waits for
/// all others to stop reading, and SQLite ends that with an error.
pub(super) fn prepare(
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
        migrate(db, path, &options.root)?;
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

fn migrate(db: &Connection, path: &Path, root: &Path) -> Result<()> {
    let fail = |error: rusqlite::Error| failed("bring up to date", path, &error);
    let tx =
        rusqlite::Transaction::new_unchecked(db, TransactionBehavior::Immediate).map_err(fail)?;
    // Check again, now that this connection has the write lock.
    let found = version(&tx).map_err(fail)?;
    if found > SCHEMA_VERSION {
        let detail =
            format!("is {found}, but this program supports {SCHEMA_VERSION}: use a newer one");
        return Err(Error::malformed(path, "user_version", detail));
    }
    for migration in MIGRATIONS.iter().skip(found as usize) {
        tx.execute_batch(migration).map_err(fail)?;
    }
    if found == 1 {
        fixes::migrate(&tx, root).map_err(|trouble| match trouble {
            Trouble::Sql(error) => fail(error),
            Trouble::Told(error) => error,
        })?;
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
