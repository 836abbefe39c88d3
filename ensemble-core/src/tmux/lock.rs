//! One typist a pane, across processes.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::EXCHANGE_LIMIT;
use crate::{Error, Result};

/// How long to wait for whoever types before us: longer than any profile's delay before Enter.
pub(super) const LOCK_LIMIT: Duration = EXCHANGE_LIMIT;
/// How often to look whether the lock is free.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// The right to type into one pane; dropping it gives the right back. The file is a sidecar that
/// is never removed, and it is closed on exec, so no child can keep the lock.
#[derive(Debug)]
pub(super) struct PaneLock(#[expect(dead_code, reason = "held, not used")] File);

impl PaneLock {
    /// Waits for the right to type into the pane with this token, at most [`LOCK_LIMIT`].
    pub(super) fn acquire(directory: &Path, token: &str) -> Result<Self> {
        let path = directory.join(format!("pane-{token}.lock"));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|source| Error::io("open the pane lock", &path, source))?;
        let began = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self(file)),
                Err(TryLockError::Error(source)) => {
                    return Err(Error::io("lock", &path, source));
                }
                Err(TryLockError::WouldBlock) if began.elapsed() < LOCK_LIMIT => {
                    thread::sleep(LOOK_INTERVAL);
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(Error::Locked {
                        path,
                        holder: "another process that types into the same pane".to_owned(),
                        waited: began.elapsed(),
                    });
                }
            }
        }
    }
}
