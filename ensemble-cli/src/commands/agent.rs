mod unregister;
mod verify;

use ensemble_app::acting;
use ensemble_app::board_agents::{HandoffNotes, LifeSign, directory_of, give_sign, hand_over};
use ensemble_app::exit_code::VerbExit;
use ensemble_app::failure::{Failure, Outcome};
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_team::board::{NewAgent, SignContent};
use ensemble_team::driver::supervise::seated;
use ensemble_team::proto::agent;
use ensemble_team::proto::beat::extended;
use serde_json::json;

use crate::args::share;
use crate::context::Context;

/// Start, adopt and inspect agents
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Register(RegisterAgent),
    Verify(verify::VerifyAgent),
    Heartbeat(AgentHeartbeat),
    Handoff(HandOff),
    Exit(AnnounceExit),
    Unregister(unregister::UnregisterAgent),
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        match self.verb {
            Verb::Register(register) => register.run(context),
            Verb::Verify(verify) => verify.run(context),
            Verb::Heartbeat(heartbeat) => heartbeat.run(context),
            Verb::Handoff(handoff) => handoff.run(context),
            Verb::Exit(exit) => exit.run(context),
            Verb::Unregister(unregister) => unregister.run(context),
        }
    }
}

/// Register yourself on the blackboard
///
/// For agents and people without a supervisor, which does this itself. Prints the number of the
/// registration.
#[derive(Debug, clap::Args)]
struct RegisterAgent {
    /// planner, coder or code-reviewer
    #[arg(long, value_name = "ROLE", value_parser = ["planner", "coder", "code-reviewer"])]
    role: String,
}

impl RegisterAgent {
    fn run(self, context: &Context) -> Outcome {
        let name = context.agent_required()?;
        let board = context.board()?;
        let mut locked = board.lock()?;
        let holder = locked.register(&NewAgent::new(name.clone(), &*self.role))?;
        locked.agent_event(&holder, agent::Event::Ready)?;
        locked.commit()?;
        let object = json!({ "agent": name, "role": self.role, "epoch": holder.epoch });
        context.out.print_answer(&object, format!("{name} registered, number {}", holder.epoch))
    }
}

/// Extend your leases
///
/// Takes no lock of the blackboard. A supervised agent needs it only where its supervisor cannot
/// see that it works: before it waits for long without using the processor.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: ensemble agent heartbeat --long \"make test\"")]
struct AgentHeartbeat {
    /// Operation that takes up to 15 minutes; it is logged
    #[arg(long, value_name = "WHY")]
    long: Option<String>,
    /// Used share of your context; shown on the blackboard as `context_percent`
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true)]
    context_used: Option<String>,
}

impl AgentHeartbeat {
    fn run(self, context: &Context) -> Outcome {
        let context_percent = self.context_used.as_deref().and_then(share);
        let says = LifeSign { long: self.long.as_deref(), context_percent };
        let (agent, sign) = give_sign(context, says)?;
        let seconds = sign.lease_seconds;
        let object = json!({
            "agent": agent.by, "epoch": agent.epoch, "sequence": sign.sequence,
            "lease_seconds": seconds, "context_percent": sign.context_percent,
        });
        let said = match self.long {
            Some(why) => extended(&ensemble_app::text::one_line(&why)),
            None => format!("alive, for {seconds} s"),
        };
        context.out.print_answer(&object, said)
    }
}

/// Leave notes for the agent that continues your task, and announce exit status 42
///
/// For when your context is used up. Then exit: with status 42 if you can choose it, otherwise with 0.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: ensemble agent handoff --summary \"parser done\" --next-action \"write its tests\""
)]
struct HandOff {
    /// Work done so far
    #[arg(long, value_name = "TEXT")]
    summary: String,
    /// Next action
    #[arg(long, value_name = "TEXT")]
    next_action: String,
    /// Approach taken so far
    #[arg(long, value_name = "TEXT")]
    approach: Option<String>,
    /// Obstacles
    #[arg(long, value_name = "TEXT")]
    blockers: Option<String>,
    /// A file that was changed; may be repeated
    #[arg(long = "changed", alias = "file", value_name = "PATH")]
    files: Vec<String>,
    /// A further step; may be repeated
    #[arg(long = "step", value_name = "TEXT")]
    steps: Vec<String>,
    /// Used share of the context
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true)]
    context_used: Option<String>,
}

impl HandOff {
    fn run(self, context: &Context) -> Outcome {
        let used = self.context_used.as_deref().and_then(share);
        let notes = HandoffNotes {
            summary: self.summary,
            next_action: self.next_action,
            approach: self.approach,
            blockers: self.blockers,
            files_modified: self.files,
            next_steps: self.steps,
            context_used: used.and_then(|used| u8::try_from(used).ok()),
        };
        let task = hand_over(context, |_| None, &notes)?;
        let object = json!({ "task_id": task, "exit": 42 });
        let said = match task {
            Some(task) => format!("notes for `{task}` are left; end with 42 now"),
            None => "there is no task to leave notes for; end with 42 now".to_owned(),
        };
        context.out.print_answer(&object, said)
    }
}

/// Announce your exit status, and exit with it
///
/// For programs that cannot choose their own exit status: the supervisor replaces the program's 0
/// or 42 with the announced status. An agent without a supervisor is unregistered at once, and its
/// work is released.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: exec ensemble agent exit 42")]
struct AnnounceExit {
    /// 0: done; 42: a fresh agent should continue; 1: something is wrong
    #[arg(value_name = "CODE", default_value = "0", value_parser = ["0", "1", "42"])]
    code: String,
    /// Why
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
}

impl AnnounceExit {
    fn run(self, context: &Context) -> Outcome {
        let board = context.board()?;
        let state = board.read()?;
        let agent = acting::check_registered(context, &state)?;
        let code: i32 = self.code.parse().unwrap_or(1);
        let directory = directory_of(&board);
        let is_supervised = seated(directory, &agent.by)?
            .is_some_and(|(seated, lives)| lives && seated.epoch == Some(agent.epoch));
        match is_supervised {
            true => {
                let say = SignContent::Leaving { code, reason: &self.reason };
                board.give_sign(&agent, &say, state.config.lease_duration())?;
            }
            false => {
                let reason = Some(self.reason.as_str()).filter(|reason| !reason.is_empty());
                let mut locked = board.lock()?;
                locked.unregister(&agent, reason.unwrap_or("it has ended"))?;
                locked.commit()?;
            }
        }
        let how = if is_supervised { "said so to its supervisor" } else { "unregistered" };
        let at = SystemClock.wall();
        let object =
            json!({ "agent": agent.by, "code": code, "at": at, "supervised": is_supervised });
        context.out.print_answer(&object, format!("{} ends with {code}: {how}", agent.by))?;
        let text = if self.reason.is_empty() { format!("exit {code}") } else { self.reason };
        match code {
            0 => Ok(()),
            42 => Err(Failure::new(VerbExit::Aborted, text)),
            _ => Err(Failure::refused(text)),
        }
    }
}
