//! The lock of a tmux server for attaching and detaching clients and for opening and closing windows.
//!
//! Before tmux 3.7 a server can crash when it tells its control clients of a new or closed window.
//! It ends with a segmentation fault if one of them is just being attached (tmux#4980: the client
//! counts already and has no state yet). It also tells them of a client that goes. No user may lose
//! sessions for our convenience. So one process at a time may attach a control client, detach one,
//! or open or close windows. Before attaching, a process waits for orphaned clients
//! (`left_behind`). Only long-lived processes attach a control client (see
//! [`Server::brief`](super::Server::brief)). It says as little as possible while it is
//! attached, so that the moment is short.
//!
//! The lock is a name in the abstract namespace of Unix sockets: it is gone with its process, and
//! no file remains. A process that waits is connected to it and sees its end.

use std::io::Read as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::EXCHANGE_LIMIT;
use ensemble_core::message::Digest;

/// Held by one process for each server.
#[derive(Debug)]
pub(super) struct AttachLock {
    _held: Option<UnixListener>,
}

impl AttachLock {
    /// Waits for the lock. After [`EXCHANGE_LIMIT`], or where there is no such namespace, the process goes on
    /// without it: the moment to be avoided is short.
    pub(super) fn take(socket: &Path) -> Self {
        let without = Self { _held: None };
        let path = real(socket);
        let name = format!("ensemble-tmux-{}", Digest::of(path.as_os_str().as_bytes()));
        let Ok(address) = SocketAddr::from_abstract_name(name) else { return without };
        let until = Instant::now() + EXCHANGE_LIMIT;
        loop {
            match UnixListener::bind_addr(&address) {
                Ok(held) => return Self { _held: Some(held) },
                Err(error) if error.kind() != std::io::ErrorKind::AddrInUse => return without,
                Err(_) => {}
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return without;
            }
            if let Ok(mut waiting) = UnixStream::connect_addr(&address)
                && waiting.set_read_timeout(Some(left)).is_ok()
            {
                // Each way in which this ends is a reason to try again.
                let _ = waiting.read(&mut [0]);
            }
        }
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
                        let lock = AttachLock::take(&socket);
                        if lock._held.is_none() {
                            // All of us stood still for so long; then it goes on without.
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
        let _one = AttachLock::take(&socket);
        assert!(AttachLock::take(&home.path().join("other"))._held.is_some());
    }
}
