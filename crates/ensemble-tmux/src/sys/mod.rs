//! Processes, and locks by name, where the operating systems differ.
//!
//! | what | Linux | macOS and FreeBSD, by the crate `sysinfo` (libproc, sysctl) |
//! |---|---|---|
//! | row of a process | `/proc/PID/stat` | the same fields, in the same form; no terminal and no exit status |
//! | identity of a process | pid and start in clock ticks since boot | pid and start in seconds |
//! | command line, environment | `/proc/PID/cmdline`, `environ` | the same, of this user's processes |
//! | children | `/proc/PID/task/*/children` | a search of all processes |
//! | hold on a process | pidfd | pid and start, compared before each signal |
//! | lock by name | abstract Unix socket | `flock` of a file beside the socket of tmux |
//!
//! # Limits
//!
//! All tests run on Linux. The others were never run. They do not reveal which processes are in the foreground of a
//! terminal, so only screens decide there. Between the comparison and a signal, a pid could be used again.

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(not(target_os = "linux"))]
pub(crate) use elsewhere::{FileNamedLock as NamedLock, StartedProcess as ProcessHandle, *};
#[cfg(target_os = "linux")]
pub(crate) use linux::*;
