//! The lock of a tmux server for attaching and detaching clients and for opening and closing windows.
//!
//! Before tmux 3.7 a server can crash when it notifies its control clients of a new or closed window, or of a client
//! that detaches: it segfaults if one of the clients is just attaching (tmux#4980: the client is in the list but has
//! no state yet). No user may lose sessions for our convenience, so only one process at a time may attach or detach a
//! control client, or open or close windows. Before attaching, a process waits for orphaned clients (`left_behind`).
//! Only long-lived processes attach a control client (see [`TmuxServer::brief`](super::TmuxServer::brief)), and send
//! as little as possible while attaching, to keep that moment short.
//!
//! The lock is released when its process exits (see `sys`).

use std::path::{Path, PathBuf};

use super::EXCHANGE_LIMIT;
use crate::sys::NamedLock;

#[derive(Debug)]
pub(super) struct AttachLock {
    _held: Option<NamedLock>,
}

impl AttachLock {
    /// Waits for the lock. After [`EXCHANGE_LIMIT`], or where there is no such lock, the process continues
    /// without it: the moment to be avoided is short.
    pub(super) fn wait_for_lock(socket: &Path) -> Self {
        Self { _held: NamedLock::wait_for_lock(&real(socket), EXCHANGE_LIMIT) }
    }
}

/// The same for all who mean this socket, also before it is made.
fn real(socket: &Path) -> PathBuf {
    let in_its_directory = || Some(socket.parent()?.canonicalize().ok()?.join(socket.file_name()?));
    socket.canonicalize().ok().or_else(in_its_directory).unwrap_or_else(|| socket.to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Instant;

    use super::*;

    #[test]
    fn one_after_the_other() {
        let home = tempfile::tempdir().expect("a directory");
        let socket = home.path().join("socket");
        let (inside, most) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|threads| {
            for _ in 0..8 {
                threads.spawn(|| {
                    for _ in 0..20 {
                        let began = Instant::now();
                        let lock = AttachLock::wait_for_lock(&socket);
                        if lock._held.is_none() {
                            // All of us paused for that long; then it continues without.
                            assert!(began.elapsed() >= EXCHANGE_LIMIT);
                            continue;
                        }
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(most.load(Ordering::SeqCst), 1);
        // The same socket by another path.
        let detour = home.path().join("detour");
        std::os::unix::fs::symlink(home.path(), &detour).expect("a link");
        assert_eq!(real(&detour.join("socket")), real(&socket));
        // Another server has another lock.
        let _one = AttachLock::wait_for_lock(&socket);
        assert!(AttachLock::wait_for_lock(&home.path().join("other"))._held.is_some());
    }
}
