//! An SQLite table as a queue, in this program.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior};

use super::Started;
use crate::rows::shared::Queue;
use crate::support::Outcome;

/// Longer than any round.
const LOCK_PATIENCE: Duration = Duration::from_secs(30);

pub fn start(home: &Path, synchronous: &str) -> Started {
    let path = home.join(format!("{synchronous}.db"));
    let queue = Sqlite::open(path.to_str().ok_or("a path that is no text")?, synchronous)?;
    queue.0.execute_batch(
        "create table work(id integer primary key, body text, state integer);
         create index waiting on work(id) where state = 0;",
    )?;
    Ok((path, None))
}

pub struct Sqlite(Connection);

impl Sqlite {
    pub fn open(path: &str, synchronous: &str) -> Outcome<Self> {
        let db = Connection::open(path)?;
        db.busy_timeout(LOCK_PATIENCE)?;
        db.pragma_update(None, "journal_mode", "wal")?;
        db.pragma_update(None, "synchronous", synchronous)?;
        Ok(Self(db))
    }
}

const INSERT: &str = "insert into work(body, state) values (?1, 0)";
const TAKE: &str = "update work set state = 1
    where id = (select id from work where state = 0 order by id limit 1) returning id, body";
const SETTLE: &str = "update work set state = 2 where id = ?1";

impl Queue for Sqlite {
    fn send(&mut self, body: &str) -> Outcome<bool> {
        self.0.prepare_cached(INSERT)?.execute([body])?;
        Ok(true)
    }

    /// One transaction.
    fn send_batch(&mut self, body: &str, count: usize) -> Outcome<bool> {
        let all = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for _ in 0..count {
            all.prepare_cached(INSERT)?.execute([body])?;
        }
        all.commit()?;
        Ok(true)
    }

    fn take(&mut self) -> Outcome<bool> {
        let taken: Option<(i64, String)> = self
            .0
            .prepare_cached(TAKE)?
            .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some((id, _)) = taken else { return Ok(false) };
        self.0.prepare_cached(SETTLE)?.execute([id])?;
        Ok(true)
    }
}
