//! `ensemble`: a message broker for teams of coding agents whose queue is a directory.
//!
//! | file | what it is |
//! |---|---|
//! | `api` | all commands as calls, for other programs |
//! | `args` | the command line: global flags, and how values are read |
//! | `asking` | what the verbs of requests share |
//! | `commands/<verb>` | one verb: its arguments and what it does |
//! | `content`, `waiting` | the flags for what a message says, and how long a command waits |
//! | `context` | what a verb works with: project, queue, event log, identity |
//! | `demo` | the team that `ensemble demo` runs |
//! | `ids` | ids that are shortened or completed |
//! | `hooks` | what agents' own hooks are told |
//! | `mail` | what messages say to agents and people, and how they are answered and settled |
//! | `mcp` | the tools for agents |
//! | `output` | human lines or JSON |
//! | `printed` | what each command prints under `--json`, as schemas |
//! | `queue` | mailboxes in a directory or on servers |
//! | `shell_job` | whether a person has typed the command at a shell |
//! | `worker` | an agent that is asked, nudged or assigned something, and its pane |
//! | `unasked` | what agents may run without a person being asked |
//! | `exit`, `error_line` | exit codes, and what a failure says to people and to programs |
//!
//! It is a library only so that tests and fuzzers reach what reads hostile input. Nothing here is
//! meant for other programs, and nothing is promised to them.
#![forbid(unsafe_code)]
// Some parts serve the tools for agents alone.
#![cfg_attr(not(feature = "mcp"), allow(dead_code, unused_imports))]

mod acting;
mod api;
mod args;
mod asking;
mod authority;
mod commands;
mod completion;
mod config_edit;
mod conformance;
mod content;
mod context;
mod demo;
mod departing;
mod drop;
mod error_line;
mod exit;
mod export;
mod failed;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod held;
mod hooks;
mod ids;
mod interrupt;
mod live;
mod mail;
#[cfg(feature = "mcp")]
mod mcp;
mod output;
mod overview;
mod own_program;
mod printed;
mod queue;
mod receipt;
mod session;
mod shell_job;
mod starting;
mod team_log;
mod text;
mod transports;
mod unasked;
mod wait_line;
mod waiting;
mod watcher_start;
mod worker;
mod wrap;

use std::process::ExitCode;

use exit::Exit;

/// The whole program: reads the command line, does what it says, and gives the exit code.
#[must_use]
pub fn program() -> ExitCode {
    std::panic::set_hook(Box::new(exit::report_bug));
    std::panic::catch_unwind(run).unwrap_or(Exit::Corrupt).into()
}

fn run() -> Exit {
    match completion::answer() {
        Ok(true) => return Exit::Done,
        Ok(false) => {}
        Err(failure) => return failure.report(),
    }
    exit::answer_in_json(args::is_json());
    let cli = match args::parse() {
        Ok(cli) => cli,
        Err(error) if args::is_hook() && error.use_stderr() => return Exit::Done,
        Err(error) => return exit::usage(&error),
    };
    // What a hook prints is read by the agent that runs it.
    let is_quiet = matches!(cli.verb, commands::Verb::Hook(_));
    let context = context::Context::new(cli.globals, cli.place);
    let result = context
        .admit(&cli.files)
        .and_then(|()| cli.verb.run(&context))
        .and_then(|()| context.out.flush());
    if !is_quiet {
        context.warn_about_log();
    }
    result.map_or_else(exit::Failure::report, |()| Exit::Done)
}
