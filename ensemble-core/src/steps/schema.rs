//! The tables, and how an older database is brought up to date.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::trace::{TraceEvent, TraceEventCodes};
use rusqlite::{Connection, TransactionBehavior};

use super::{StepOptions, failed};
use crate::durable::{Durability, LockFile};
use crate::{Error, Result};

/// The newest version of the tables, in `PRAGMA user_version`.
pub const SCHEMA_VERSION: u32 = 1;
/// What leads from each version to the next; the first from nothing to 1.
const MIGRATIONS: [&str; SCHEMA_VERSION as usize] = [include_str!("schema.sql")];
/// How long it waits for another one's lock at first, and how often that is doubled: up to 3.2 ms.
const WAIT_MIN: Duration = Duration::from_micros(50);
const WAIT_DOUBLINGS: u32 = 6;
/// How many statements are kept prepared; more than there are.
const STATEMENTS: usize = 64;

/// Makes the file, if there is none, readable by its owner only; SQLite gives its side files the
/// same mode.
pub(super) fn make_private(path: &Path) -> Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_file() => Ok(()),
        Ok(_) => Err(Error::malformed(path, "file", "is no regular file: move it away")),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o600);
            options.open(path).map(drop).map_err(|e| Error::io("create", path, e))
        }
        Err(error) => Err(Error::io("examine", path, error)),
    }
}

/// Sets a connection up, and brings the tables up to date.
///
/// Of several that change the journal's mode at once each would wait for all others to stop reading, which
/// SQLite ends with an error: so they take turns.
pub(super) fn prepare(
    db: &mut Connection,
    path: &Path,
    turn: Option<&LockFile>,
    options: &StepOptions,
) -> Result<()> {
    let fail = |error: rusqlite::Error| failed("open", path, &error);
    wait_patiently(db, options.patience).map_err(fail)?;
    db.set_prepared_statement_cache_capacity(STATEMENTS);
    // Plans do not depend on what is bound. Otherwise SQLite prepares each statement that could use a
    // partial index anew whenever a value is bound to it.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(fail)?;
    db.pragma_update(None, "foreign_keys", true).map_err(fail)?;
    let synchronous = match options.durability {
        Durability::Power => "FULL",
        Durability::Process => "NORMAL",
    };
    db.pragma_update(None, "synchronous", synchronous).map_err(fail)?;
    if version(db).map_err(fail)? != SCHEMA_VERSION {
        let _turn = turn.and_then(|turn| turn.lock_resting(options.patience).ok());
        // It stays in the file; changing it needs the whole database for a moment.
        db.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).map_err(fail)?;
        migrate(db, path)?;
    }
    if let Some(told) = options.on_statement {
        trace(db, told).map_err(fail)?;
    }
    Ok(())
}

/// Others hold the lock for a tenth of a millisecond. SQLite's own waiting (1, 2, 5 … 100 ms) leaves it
/// idle for most of the time when several want it.
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

fn migrate(db: &Connection, path: &Path) -> Result<()> {
    let fail = |error: rusqlite::Error| failed("bring up to date", path, &error);
    let tx =
        rusqlite::Transaction::new_unchecked(db, TransactionBehavior::Immediate).map_err(fail)?;
    // Again, now that nobody else can be at it.
    let found = version(&tx).map_err(fail)?;
    if found > SCHEMA_VERSION {
        let detail = format!("is {found}, this program knows {SCHEMA_VERSION}: use a newer one");
        return Err(Error::malformed(path, "user_version", detail));
    }
    for migration in MIGRATIONS.iter().skip(found as usize) {
        tx.execute_batch(migration).map_err(fail)?;
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
