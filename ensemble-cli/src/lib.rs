//! `ensemble`: a message queue for coding agents, in a plain directory.
//!
//! | file | what it is |
//! |---|---|
//! | `commands/<verb>` | one verb, or a few that belong together: arguments, one use case, and what it prints |
//! | `mcp`, `api`, `hooks`, `live`, `wrap` | the other doors: tools, calls, agents' hooks, the live view, the wrappers |
//! | `args`, `flags`, `completion` | global flags, flags that several verbs share, and how a shell completes them |
//! | `context`, `output` | what a verb works with: the project, and where its output goes |
//! | `printing` | what several verbs print |
//! | `printed` | what each command prints under `--json`, as schemas |
//! | `help_texts`, `spellings`, `mistake` | texts of help, words that are understood besides, wrong command lines |
//! | `unasked` | what agents may run without a person being asked |
//! | `demo` | the demo team |
//!
//! It is a library only so that tests and fuzzers reach what reads hostile input. Nothing here is
//! meant for other programs, and nothing is promised to them.
#![forbid(unsafe_code)]
// Some parts serve the tools for agents alone.
#![cfg_attr(not(feature = "mcp"), allow(dead_code, unused_imports))]

mod api;
mod args;
mod commands;
mod completion;
mod context;
mod demo;
mod flags;
mod help_texts;
mod hooks;
mod live;
#[cfg(feature = "mcp")]
mod loopback;
#[cfg(feature = "mcp")]
mod mcp;
mod mistake;
mod output;
mod printed;
mod printing;
mod shell_job;
mod spellings;
mod stand_in;
mod transports;
mod unasked;
mod wrap;

use std::process::ExitCode;

#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use {hooks::fuzzing as hook_fuzzing, mcp::fuzzing};

use ensemble_app::diagnostics::{answer_in_json, report_bug};
use ensemble_app::exit_code::VerbExit;

/// The whole program: reads the command line, runs the command, and returns the exit code.
pub fn program() -> ExitCode {
    // Files are as after a kill, and the next run continues from them.
    std::panic::set_hook(Box::new(|panic| {
        report_bug(panic);
        std::process::exit(i32::from(VerbExit::Corrupt as u8));
    }));
    run().into()
}

fn run() -> VerbExit {
    match completion::answer(commands::program) {
        Ok(true) => return VerbExit::Done,
        Ok(false) => {}
        Err(failure) => return failure.report(),
    }
    answer_in_json(args::is_json());
    let line = match commands::parse() {
        Ok(line) => line,
        Err(error) if commands::is_hook() && error.use_stderr() => return VerbExit::Done,
        Err(error) => return mistake::report(&error, commands::program),
    };
    // The output of a hook is read by the agent that runs it.
    let is_quiet = matches!(line.verb, commands::Verb::Hook(_));
    let context = context::Context::new(line.globals, line.place);
    let result = context
        .admit(&line.files)
        .and_then(|()| line.verb.run(&context))
        .and_then(|()| context.out.flush());
    if !is_quiet {
        context.warn_about_log();
    }
    result.map_or_else(
        |failure| failure.acting_as(context.agent_flag(), context.queue_flag()).report(),
        |()| VerbExit::Done,
    )
}
