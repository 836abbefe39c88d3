//! The processes of agents: the loop wakes when one of them ends.
//!
//! ```text
//! first process of a pane, supervisor     its end is the agent's end
//! program in the foreground of a pane     its exit causes an inspection of the pane
//! ```
//!
//! A process is held by a pidfd, which the kernel makes readable when the process ends. The start time is
//! compared after the pidfd was opened, so a pid that is used again is not a mistake. Where the system has no
//! pidfd, the regular look finds the end.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use ensemble_core::message::Name;
use ensemble_tmux::provider::process;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WatchedProcess {
    pub(crate) agent: Name,
    pub(crate) pid: u32,
    /// Its start, in clock ticks since boot, where that is known.
    pub(crate) started: Option<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct WatchedProcesses {
    /// Missing for one that had ended before it could be watched, and was reported.
    watched: BTreeMap<WatchedProcess, Option<OwnedFd>>,
}

impl WatchedProcesses {
    pub(crate) fn watch(&mut self, wanted: impl IntoIterator<Item = WatchedProcess>) {
        let mut before = std::mem::take(&mut self.watched);
        for process in wanted {
            let fd = match before.remove(&process) {
                Some(fd) => fd,
                None => open(&process),
            };
            self.watched.insert(process, fd);
        }
    }

    pub(crate) fn sources(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.watched.values().flatten().map(|fd| fd.as_fd())
    }

    pub(crate) fn take_ended(&mut self) -> Vec<WatchedProcess> {
        let mut open: Vec<(&WatchedProcess, PollFd<'_>)> = self
            .watched
            .iter()
            .filter_map(|(process, fd)| Some((process, fd.as_ref()?)))
            .map(|(process, fd)| (process, PollFd::new(fd, PollFlags::IN)))
            .collect();
        if open.is_empty() {
            return Vec::new();
        }
        let mut polled: Vec<PollFd<'_>> = open.iter().map(|(_, fd)| fd.clone()).collect();
        if poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_err() {
            return Vec::new();
        }
        let ended: Vec<WatchedProcess> = open
            .drain(..)
            .zip(&polled)
            .filter(|(_, polled)| !polled.revents().is_empty())
            .map(|((process, _), _)| process.clone())
            .collect();
        for process in &ended {
            self.watched.insert(process.clone(), None);
        }
        ended
    }
}

/// `None` for a process that has ended, or that is another one by now: the look finds that.
fn open(process: &WatchedProcess) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(process.pid).ok()?)?;
    let fd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    let is_it = process.started.is_none_or(|at| process::start_time(process.pid) == Some(at));
    is_it.then_some(fd)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use ensemble_core::watch::sleep_until_any;

    use super::*;

    #[test]
    fn the_end_of_a_process_wakes_and_is_reported_once() {
        let mut child =
            Command::new("sh").args(["-c", "read x"]).stdin(Stdio::piped()).spawn().unwrap();
        let (pid, agent) = (child.id(), Name::new("w1").unwrap());
        let process = WatchedProcess { agent, pid, started: process::start_time(pid) };
        let mut processes = WatchedProcesses::default();
        processes.watch([process.clone()]);
        assert!(processes.take_ended().is_empty());
        drop(child.stdin.take());
        let sources: Vec<_> = processes.sources().collect();
        sleep_until_any(&sources, Some(Duration::from_secs(60))).unwrap();
        drop(sources);
        assert_eq!(processes.take_ended(), std::slice::from_ref(&process));
        processes.watch([process]);
        assert!(processes.take_ended().is_empty() && processes.sources().next().is_none());
        child.wait().unwrap();
    }

    #[test]
    fn a_pid_that_is_used_again_is_not_watched() {
        let (pid, agent) = (std::process::id(), Name::new("w1").unwrap());
        let mut processes = WatchedProcesses::default();
        processes.watch([WatchedProcess { agent, pid, started: Some(1) }]);
        assert!(processes.sources().next().is_none());
    }
}
