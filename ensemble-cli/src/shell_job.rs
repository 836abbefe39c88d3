//! Whether a person has typed the command at a shell.
//!
//! An interactive shell makes each command line a process group and puts it into the foreground of its terminal. The
//! tools with which agents run commands, scripts and services do not: what they start shares the process group of its
//! parent, or begins a session, or has no terminal.
//!
//! | started by | session of the parent | process group of the parent | foreground of the terminal |
//! |---|---|---|---|
//! | an interactive shell | the same | another | yes |
//! | a script that was typed there | the same | the same | yes |
//! | an agent's tool, in a new terminal | another, or the same | the same | yes |
//! | an agent's tool, without a terminal; cron | any | any | there is none |

use std::io::{self, IsTerminal as _};

use ensemble_tmux::reaper::is_foreground_job;

pub(crate) fn is_typed_at_shell() -> bool {
    let is_on_terminal =
        io::stdin().is_terminal() || io::stdout().is_terminal() || io::stderr().is_terminal();
    is_on_terminal && is_foreground_job(std::process::id())
}
