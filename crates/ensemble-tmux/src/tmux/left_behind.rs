//! Cleans up control clients whose owners have been killed.
//!
//! tmux detaches such a client by itself, in several steps between its server and the client's process. Until that is
//! done, no process may attach (see [`AttachLock`](super::attach_lock::AttachLock)), but the owner no longer holds
//! the lock. Each client therefore stores its owner's pid in its environment. Before attaching, a process waits until
//! orphaned clients have exited.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::control::ATTACH;
use super::failure::TmuxFailure;
use super::spawned;
use crate::provider::process::{line_of, variable};
use crate::sys::{self, ProcessHandle};

pub(super) const OWNER: &str = "ENSEMBLE_CLIENT_OF";

/// How long clients may take to exit by themselves. If the owner was killed while an answer was being sent, tmux 3.3a
/// keeps the answer and the client forever.
pub(super) const PATIENCE: Duration = Duration::from_millis(500);

pub(super) fn end_all(socket: &Path) {
    ours(socket).for_each(end);
}

/// Waits until the server at `socket` has detached all orphaned clients; kills those that have not exited after
/// [`PATIENCE`]. The caller holds the lock.
pub(super) fn end_session(socket: &Path) -> Result<(), TmuxFailure> {
    let orphaned: Vec<Pid> = ours(socket).filter(|client| is_orphaned(*client)).collect();
    let mut stuck = not_gone(orphaned);
    if stuck.is_empty() {
        return Ok(());
    }
    // One that is still being attached, at a server that hangs, would crash it if it were ended.
    let attached = spawned::ask(socket, "list-clients -F '#{client_pid}'")?.into_lines()?;
    stuck.retain(|client| attached.contains(&client.to_string()));
    stuck.iter().copied().for_each(end);
    not_gone(stuck);
    Ok(())
}

fn not_gone(mut processes: Vec<Pid>) -> Vec<Pid> {
    let until = Instant::now() + PATIENCE;
    processes.retain(|process| !is_gone_by(*process, until));
    processes
}

/// The clients at `socket` that processes of this program and this user have attached.
fn ours(socket: &Path) -> impl Iterator<Item = Pid> {
    let command = spawned::command(socket);
    let line: Vec<Vec<u8>> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.as_encoded_bytes().to_vec())
        .chain(ATTACH.map(|word| word.as_bytes().to_vec()))
        .collect();
    let processes = sys::all().unwrap_or_default();
    processes.into_iter().filter_map(move |process| {
        let pid = i32::try_from(process).ok().and_then(Pid::from_raw)?;
        let words = sys::command_line(process)?;
        words.strip_suffix(b"\0")?.split(|byte| *byte == 0).eq(&line).then_some(pid)
    })
}

/// Whether the owner has exited, in which case the client has another parent.
fn is_orphaned(client: Pid) -> bool {
    let pid = client.as_raw_pid().unsigned_abs();
    let owner = variable(pid, OWNER).and_then(|owner| String::from_utf8(owner).ok()?.parse().ok());
    let parent = line_of(pid).get(1).map(|(parent, _)| *parent);
    owner.is_some_and(|owner: u32| parent != Some(owner))
}

/// Waits for a process to exit. Its connection is closed before the exit is visible, so a server sees that before it
/// sees the next client.
fn is_gone_by(client: Pid, until: Instant) -> bool {
    let Some(process) = ProcessHandle::open(client) else { return true };
    sys::wait_all(&mut vec![process], until.saturating_duration_since(Instant::now()))
}

fn end(client: Pid) {
    let _ = kill_process(client, Signal::KILL);
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::tmux::TmuxServer;

    #[test]
    fn a_client_with_an_unread_answer_is_ended() {
        let home = tempfile::tempdir().expect("a directory");
        let socket = home.path().join("socket");
        let server = TmuxServer::brief(&socket);
        server.new_session("main", "exec cat", 80, 24).expect("a session");
        let pid = server.pid().expect("a server");
        let signal = |signal| {
            let server = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a pid");
            kill_process(server, signal).expect("signalled");
        };
        let (mut ours, theirs) = UnixStream::pair().expect("a pair");
        let mut client = spawned::command(&socket)
            .args(ATTACH)
            .env(OWNER, "1")
            .stdin(OwnedFd::from(theirs.try_clone().expect("another")))
            .stdout(OwnedFd::from(theirs))
            .spawn()
            .expect("a client");
        let mut said = BufReader::new(ours.try_clone().expect("another")).lines();
        assert!(said.any(|line| line.expect("a line").starts_with("%session-changed")));
        // The question and the end of who asked arrive at once.
        signal(Signal::STOP);
        ours.write_all(b"display-message -p anything\n").expect("asked");
        drop((ours, said));
        signal(Signal::CONT);
        end_session(&socket).expect("an answer");
        assert!(client.try_wait().expect("a child").is_some(), "it is still there");
        assert_eq!(server.pid().expect("a server"), pid);
        server.kill_server().expect("ended");
    }
}
