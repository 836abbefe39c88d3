use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use clap::ValueEnum as _;
use ensemble_app::agent_program::AgentProgram;

use crate::context::{Context, Failure, Outcome, VerbExit};
use crate::hooks::{self, Event};

/// Is in the environment of a run that only records that the run before has panicked.
const PANICKED: &str = "ENSEMBLE_HOOK_PANICKED";

/// Answer a hook of an agent's own program
///
/// Agents run it; `up`, `spawn` and `hooks install` set it up. It reads the event on stdin as the program writes it
/// and answers in the program's own JSON: who the agent is, and its mail. An agent whose mail was printed has received
/// it, under the usual lease. Trouble is written to the event log as `hook.failed`: the exit code is 0 and nothing
/// is printed. Only `wait` ends with 2, when mail has come to an idle session.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: ensemble hook tool --provider claude < event.json")]
pub(crate) struct Arguments {
    /// What happened: start, prompt, tool, stop, permission, notification, failure, end, wait
    #[arg(value_name = "EVENT")]
    event: String,
    /// The agent's program: claude, codex, gemini, opencode
    #[arg(long, value_name = "PROVIDER", default_value = "")]
    provider: String,
    /// A program that `serve` starts at a private server
    #[arg(last = true, hide = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

impl Arguments {
    /// Never fails: an agent takes any other exit code, and any text, for something to act upon.
    pub(crate) fn run(self, context: &Context) -> Outcome {
        // A hook that a person starts prints why it fails.
        if self.event == "host" {
            return Err(hooks::host(&self.program));
        }
        if self.event == "serve" {
            return Err(hooks::serve(context, &self.program));
        }
        if self.event == "converse" {
            return hooks::converse(context, &self.program);
        }
        let has_panicked = std::env::var_os(PANICKED).is_some();
        std::panic::set_hook(Box::new(move |_| record_panic(has_panicked)));
        let done = match has_panicked {
            true => Err(Failure::refused("a bug: the hook has panicked")),
            false => self.answer(context),
        };
        match done {
            Ok(VerbExit::Done) => {}
            Ok(exit) => return Err(Failure::Block { exit, text: String::new() }),
            Err(failure) => hooks::record_failure(context, &self.event, &self.provider, &failure),
        }
        Ok(())
    }

    fn answer(&self, context: &Context) -> Outcome<VerbExit> {
        let unknown = |what: &str, word: &str| Failure::usage(format!("unknown {what} `{word}`"));
        let program = AgentProgram::from_str(&self.provider, false)
            .map_err(|_| unknown("provider", &self.provider));
        match self.event.as_str() {
            "accompany" => {
                hooks::accompany(context, program?, &self.program).map(|()| VerbExit::Done)
            }
            "relieve" => hooks::relieve(context, program?, &self.program).map(|()| VerbExit::Done),
            event => {
                let event = Event::from_str(event, false).map_err(|_| unknown("event", event));
                hooks::run(context, event?, program?)
            }
        }
    }
}

/// Ends a hook that has panicked, without a word to its agent. The same program records it first, as another run: this
/// one may hold the log's lock.
fn record_panic(has_panicked: bool) {
    if let (false, Ok(program)) = (has_panicked, std::env::current_exe()) {
        let _ = Command::new(program).args(std::env::args_os().skip(1)).env(PANICKED, "1").exec();
    }
    std::process::exit(0);
}
