use ensemble_app::acting;
use ensemble_app::acting::{check_planner, check_registered};
use ensemble_app::board_agents::{HandoffNotes, LifeSign, directory_of, give_sign, hand_over};
use ensemble_app::overview::ask_if_meant;
use ensemble_app::text::{one_line, with_members};
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::message::Name;
use ensemble_team::board::{Board, NewAgent, SignContent, State};
use ensemble_team::driver::supervise::{end_orphan, seated};
use ensemble_team::proto::agent;
use ensemble_team::proto::beat::extended;
use ensemble_team::proto::task::TaskHolder;
use ensemble_team::worktree::{AgentDuty, UnfitReason, VerifiedAgent};
use serde_json::{Value, json};

use crate::args::share;
use crate::context::{Context, Failure, Outcome, VerbExit};
use crate::flags::EpochFlag;

/// Start, adopt and inspect agents
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Register yourself on the blackboard
    ///
    /// For agents and people without a supervisor, which does this itself. Prints the number of the
    /// registration.
    Register {
        /// planner, coder or code-reviewer
        #[arg(long, value_name = "ROLE", value_parser = ["planner", "coder", "code-reviewer"])]
        role: String,
    },
    /// Check that you may begin: entry, lease, assignment, worktree, commit
    ///
    /// Your entry on the blackboard must have a lease that has not expired. If you have a task, your claim must still be
    /// current, and the worktree must exist. For a reviewer, HEAD must be the commit to review.
    ///
    /// Exit codes: 0 begin · 3 nothing was given to you: ask for work, or end · 1 it is not yours (any more):
    /// end without writing anything · 4 it is yours, but its worktree is wrong: report that and exit · 5 git is
    /// missing · 75 busy: ask again.
    Verify {
        #[command(flatten)]
        epoch: EpochFlag,
    },
    /// Extend your leases
    ///
    /// Takes no lock of the blackboard. A supervised agent needs it only where its supervisor cannot
    /// see that it works: before it waits for long without using the processor.
    #[command(after_help = "Example: ensemble agent heartbeat --long \"make test\"")]
    Heartbeat {
        /// Operation that takes up to 15 minutes; it is logged
        #[arg(long, value_name = "WHY")]
        long: Option<String>,
        /// Used share of your context; shown on the blackboard as `context_percent`
        #[arg(long, value_name = "PERCENT", allow_hyphen_values = true)]
        context_used: Option<String>,
    },
    Handoff(HandOff),
    /// Announce your exit status, and exit with it
    ///
    /// For programs that cannot choose their own exit status: the supervisor replaces the program's 0
    /// or 42 with the announced status. An agent without a supervisor is unregistered at once, and its
    /// work is released.
    #[command(after_help = "Example: exec ensemble agent exit 42")]
    Exit {
        /// 0: done; 42: a fresh agent should continue; 1: something is wrong
        #[arg(value_name = "CODE", default_value = "0", value_parser = ["0", "1", "42"])]
        code: String,
        /// Why
        #[arg(long, value_name = "TEXT", default_value = "")]
        reason: String,
    },
    Unregister(UnregisterAgent),
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        match self.verb {
            Verb::Register { role } => register(context, &role),
            Verb::Verify { epoch } => verify(context, &epoch),
            Verb::Heartbeat { long, context_used } => {
                beat(context, long.as_deref(), context_used.as_deref())
            }
            Verb::Handoff(handoff) => handoff.run(context),
            Verb::Exit { code, reason } => exit(context, &code, &reason),
            Verb::Unregister(unregister) => unregister.run(context),
        }
    }
}

fn register(context: &Context, role: &str) -> Outcome {
    let name = context.agent_required()?;
    let board = context.board()?;
    let mut locked = board.lock()?;
    let holder = locked.register(&NewAgent::new(name.clone(), role))?;
    locked.agent_event(&holder, agent::Event::Ready)?;
    locked.commit()?;
    let object = json!({ "agent": name, "role": role, "epoch": holder.epoch });
    context.out.print_answer(&object, format!("{name} registered, number {}", holder.epoch))
}

fn beat(context: &Context, long: Option<&str>, context_used: Option<&str>) -> Outcome {
    let context_percent = context_used.and_then(share);
    let says = LifeSign { long, context_percent };
    let (agent, sign) = give_sign(context, says)?;
    let seconds = sign.lease_seconds;
    let object = json!({
        "agent": agent.by, "epoch": agent.epoch, "sequence": sign.sequence,
        "lease_seconds": seconds, "context_percent": sign.context_percent,
    });
    let said = match long {
        Some(why) => extended(&ensemble_app::text::one_line(why)),
        None => format!("alive, for {seconds} s"),
    };
    context.out.print_answer(&object, said)
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

fn exit(context: &Context, code: &str, reason: &str) -> Outcome {
    let board = context.board()?;
    let state = board.read()?;
    let agent = acting::check_registered(context, &state)?;
    let code: i32 = code.parse().unwrap_or(1);
    let directory = directory_of(&board);
    let is_supervised = seated(directory, &agent.by)?
        .is_some_and(|(seated, lives)| lives && seated.epoch == Some(agent.epoch));
    match is_supervised {
        true => {
            let say = SignContent::Leaving { code, reason };
            board.give_sign(&agent, &say, state.config.lease_duration())?;
        }
        false => {
            let reason = Some(reason).filter(|reason| !reason.is_empty());
            let mut locked = board.lock()?;
            locked.unregister(&agent, reason.unwrap_or("it has ended"))?;
            locked.commit()?;
        }
    }
    let how = if is_supervised { "said so to its supervisor" } else { "unregistered" };
    let at = SystemClock.wall();
    let object = json!({ "agent": agent.by, "code": code, "at": at, "supervised": is_supervised });
    context.out.print_answer(&object, format!("{} ends with {code}: {how}", agent.by))?;
    let text = if reason.is_empty() { format!("exit {code}") } else { reason.to_owned() };
    match code {
        0 => Ok(()),
        42 => Err(Failure::new(VerbExit::Aborted, text)),
        _ => Err(Failure::refused(text)),
    }
}

fn verify(context: &Context, epoch: &EpochFlag) -> Outcome {
    let agent = context.agent_required()?;
    let board = context.board()?;
    let worktrees = context.worktrees(&board)?;
    match worktrees.verify(&agent, epoch.given()?, SystemClock.wall())? {
        Ok(verified) => {
            check_registered(context, &board.read()?)?;
            print_verified(context, &verified)
        }
        Err(unfit) => {
            let exit = match unfit {
                UnfitReason::NothingAssigned(_) => VerbExit::Nothing,
                UnfitReason::Over(_) => VerbExit::Failed,
                UnfitReason::Broken(_) => VerbExit::Corrupt,
            };
            Err(Failure::new(exit, unfit.to_string()).with_hint(advice(&unfit)))
        }
    }
}

const fn advice(unfit: &UnfitReason) -> &'static str {
    match unfit {
        UnfitReason::NothingAssigned(_) => "there is nothing to do: end, or claim a task",
        UnfitReason::Over(_) => "write nothing any more, and end: what was done is kept",
        UnfitReason::Broken(_) => "`ensemble admin fsck` tells more: write it down, and end",
    }
}

fn print_verified(context: &Context, verified: &VerifiedAgent) -> Outcome {
    let VerifiedAgent { agent, role, registration, lease_until, duty, .. } = verified;
    let object = json!({
        "agent": agent, "role": role, "registration": registration,
        "lease_until": lease_until, "duty": "none",
    });
    let object = with_members(object, &described(duty));
    let what = match duty {
        AgentDuty::Work { task, epoch, path } => {
            let path = one_line(&path.to_string_lossy());
            format!("work on {task}, number {epoch}, in {path}")
        }
        AgentDuty::Review { task, epoch, path, commit } => {
            let path = one_line(&path.to_string_lossy());
            format!("review {task}, number {epoch}, commit {commit}, in {path}")
        }
        _ => "no task".to_owned(),
    };
    let role = role.as_deref().unwrap_or("agent");
    let said = format!("{agent} ({}), lease until {lease_until}: {what}", one_line(role));
    context.out.print_answer(&object, said)
}

fn described(duty: &AgentDuty) -> Value {
    match duty {
        AgentDuty::Work { task, epoch, path } => {
            json!({ "duty": "work", "task": task, "epoch": epoch, "path": path })
        }
        AgentDuty::Review { task, epoch, path, commit } => {
            json!({ "duty": "review", "task": task, "epoch": epoch, "path": path, "commit": commit })
        }
        _ => json!({}),
    }
}

/// Remove an agent from the blackboard, and release what it held
///
/// For an entry that a dead agent or another program has left. An agent that still runs without its
/// supervisor is ended first. Refused while a supervisor of the agent runs, while its lease runs
/// (unless `--force`), and to other agents than planners and the agent itself.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: ensemble agent unregister coder-1")]
struct UnregisterAgent {
    /// The agent's name
    name: Name,
    /// Why
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    /// Also while its lease runs
    #[arg(long)]
    force: bool,
}

impl UnregisterAgent {
    fn run(self, context: &Context) -> Outcome {
        let board = context.board()?;
        let state = board.read()?;
        let Some(entry) = state.agents.get(&self.name) else {
            let meant = ask_if_meant(self.name.as_str(), state.agents.keys().map(Name::as_str));
            let text = format!("`{}` is not registered on the blackboard{meant}", self.name);
            return Err(Failure::nothing(text).with_hint("`ensemble board show` lists the agents"));
        };
        let agent = TaskHolder { by: self.name.clone(), epoch: entry.epoch.unwrap_or_default() };
        self.check_asker(context, &state)?;
        self.check_unused(context, &board, &state)?;
        let processes = end_orphan(directory_of(&board), &agent.by, agent.epoch)?;
        let reason = Some(self.reason.trim()).filter(|reason| !reason.is_empty());
        let mut locked = board.lock()?;
        locked.unregister(&agent, reason.unwrap_or("it was unregistered"))?;
        let after = locked.commit()?;
        let released: Vec<&Name> = held(&state, &agent.by)
            .filter(|id| !held(&after, &agent.by).any(|left| left == *id))
            .collect();
        let object = json!({
            "agent": agent.by, "epoch": agent.epoch, "released": released, "processes": processes,
        });
        let tasks: Vec<&str> = released.iter().map(|id| id.as_str()).collect();
        let said = match tasks.is_empty() {
            true => format!("{} unregistered; it held nothing", agent.by),
            false => format!("{} unregistered; returned: {}", agent.by, tasks.join(", ")),
        };
        context.out.print_answer(&object, said)
    }

    /// An agent may take itself off, and a planner others.
    fn check_asker(&self, context: &Context, state: &State) -> Outcome {
        match context.agent()? {
            Some(asker) if asker == self.name => check_registered(context, state).map(drop),
            _ => check_planner(context, state),
        }
    }

    fn check_unused(&self, context: &Context, board: &Board, state: &State) -> Outcome {
        if let Some((seat, true)) = seated(directory_of(board), &self.name)? {
            let text = format!("a supervisor of `{}` runs (pid {})", self.name, seat.pid);
            let hint = format!("`kill {}` ends it, and it unregisters its agent itself", seat.pid);
            return Err(Failure::refused(text).with_hint(hint));
        }
        match board.check_over(state, &self.name, context.now()) {
            Err(error) if !self.force => {
                let failure = Failure::from(error);
                Err(failure.with_hint("wait until it ends, or use `--force`"))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

fn held<'a>(state: &'a State, agent: &'a Name) -> impl Iterator<Item = &'a Name> {
    let leases = ensemble_team::board::leases(state);
    let is_held =
        move |id: &Name| leases.iter().any(|lease| lease.by() == agent && lease.task() == Some(id));
    state.tasks.iter().map(|task| &task.id).filter(move |id| is_held(id))
}
