//! `ensemble hook`: the part of an agent's own hook.

use std::panic::{AssertUnwindSafe, catch_unwind};

use clap::ValueEnum as _;
use ensemble_app::agent_program::AgentProgram;
use ensemble_app::exit_code::Exit;
use ensemble_app::failure::{Failure, Outcome};
use ensemble_core::event_log::types;
use serde_json::json;

use crate::context::Context;
use crate::hooks::{self, Event};

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
}

impl Arguments {
    /// Never fails: an agent takes any other exit code, and any text, for something to act upon.
    pub(crate) fn run(self, context: &Context) -> Outcome {
        std::panic::set_hook(Box::new(|_| {}));
        let done = catch_unwind(AssertUnwindSafe(|| self.answer(context)));
        let done = done.unwrap_or_else(|_| Err(Failure::refused("a bug: the hook has panicked")));
        match done {
            Ok(Exit::Done) => {}
            Ok(exit) => return Err(Failure::Block { exit, text: String::new() }),
            Err(failure) => self.record(context, &failure),
        }
        Ok(())
    }

    fn answer(&self, context: &Context) -> Outcome<Exit> {
        let unknown = |what: &str, word: &str| Failure::usage(format!("unknown {what} `{word}`"));
        let event = Event::from_str(&self.event, false).map_err(|_| unknown("event", &self.event));
        let program = AgentProgram::from_str(&self.provider, false)
            .map_err(|_| unknown("provider", &self.provider));
        hooks::run(context, event?, program?)
    }

    /// A line in the event log, where there is a project to have one.
    fn record(&self, context: &Context, failure: &Failure) {
        let Ok(project) = context.project() else { return };
        if !project.queue.is_dir() {
            return;
        }
        let Ok(recorder) = context.recorder() else { return };
        let agent = context.agent().ok().flatten();
        let actor = agent.as_ref().map_or("outside", |agent| agent.as_str());
        let data = json!({
            "event": self.event, "provider": self.provider, "why": failure.text(),
        });
        recorder.record(types::HOOK_FAILED, actor, data);
    }
}
