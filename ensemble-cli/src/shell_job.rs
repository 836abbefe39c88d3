//! Whether a person has typed the command at a shell.
//!
//! An interactive shell makes each command line a process group and puts it into the foreground of its terminal. The tools with which agents run commands, scripts and services do not: what they start shares the process
//! group of its parent, or begins a session, or has no terminal.
//!
//! | started by | session of the parent | process group of the parent | foreground of the terminal |
//! |---|---|---|---|
//! | an interactive shell | the same | another | yes |
//! | a script that was typed there | the same | the same | yes |
//! | an agent's tool, in a new terminal | another, or the same | the same | yes |
//! | an agent's tool, without a terminal; cron | any | any | there is none |

use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::process::{getpgid, getpgrp, getppid, getsid};
use rustix::termios::tcgetpgrp;

/// Whether this process is a command line of an interactive shell, in the foreground of its terminal.
pub(crate) fn is_typed_at_shell() -> bool {
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    let streams: [BorrowedFd<'_>; 3] = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
    let is_foreground = |stream: &BorrowedFd<'_>| {
        stream.is_terminal() && tcgetpgrp(stream).is_ok_and(|group| group == getpgrp())
    };
    is_job() && streams.iter().any(is_foreground)
}

/// Whether the parent is of the same session and of another process group, as an interactive shell is.
fn is_job() -> bool {
    let Some(parent) = getppid() else { return false };
    let is_same_session = matches!((getsid(Some(parent)), getsid(None)), (Ok(a), Ok(b)) if a == b);
    is_same_session && getpgid(Some(parent)).is_ok_and(|group| group != getpgrp())
}
