//! `ensemble supervise`: one agent after another, for as long as there is work.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ensemble_core::Error;
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::message::Name;
use ensemble_core::watch::Waiter;
use ensemble_team::board::Board;
use ensemble_team::board::prompt::Role;
use ensemble_team::driver::supervise::{Order, Surroundings, supervise};
use ensemble_team::proto::supervise::Reason;
use ensemble_team::roster::{MemberState, Roster};
use ensemble_team::worktree::{CheckedOut, Worktrees};
use ensemble_watch::project::QUEUE_VARIABLE;
use serde_json::json;

use crate::args;
use crate::context::Context;
use crate::exit::{Exit, Failure, Outcome, say};

/// How often the roster is asked whether the agent is to leave.
const ROSTER_EVERY: Duration = Duration::from_secs(1);

/// Supervise one agent: find work on the blackboard, start the agent for it, react to its end
///
/// A coder's supervisor claims a task and its worktree before it starts the agent, a reviewer's claims a
/// review and merges what was approved, a planner's waits until planning is needed. CMD gets the prompt
/// on its standard input, or where a word of it says {prompt} or {prompt_file}. Exit 0 of the agent:
/// the next; 42: a fresh agent after 2 s; anything else: noted, a fresh one after 5 s; after 5 crashes or
/// 10 agents without progress the task is blocked. While PAUSE, CHECKPOINT or ABORT lies beside the
/// blackboard nothing is claimed and nothing started. SIGTERM ends the agent, gives back what it held,
/// and leaves. A second supervisor of the same id is refused with exit code 75.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: ensemble supervise --role coder --id coder-1 -- claude -p {prompt}"
)]
pub(crate) struct Arguments {
    /// planner, coder or code-reviewer
    #[arg(long, value_name = "ROLE", value_parser = role)]
    role: Role,
    /// The agent's name [default: who is asking]
    #[arg(long, value_name = "NAME")]
    id: Option<Name>,
    /// How often to look at the blackboard without an event [default: its config, else 30s; planners 60s]
    #[arg(long, value_name = "DURATION", value_parser = args::duration)]
    poll: Option<Duration>,
    /// End after DURATION without work [default: config.coder_max_wait, else never]
    #[arg(long, value_name = "DURATION", value_parser = args::duration)]
    max_wait: Option<Duration>,
    /// How long to wait after an agent that failed
    #[arg(long, value_name = "DURATION", value_parser = args::duration, default_value = "5s")]
    restart_delay: Duration,
    /// How long to wait after exit 42
    #[arg(long, value_name = "DURATION", value_parser = args::duration, default_value = "2s")]
    hand_over_delay: Duration,
    /// After so many crashes in a row without progress the task is blocked
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    crashes: u32,
    /// After so many agents in a row without progress the task is blocked
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    spins: u32,
    /// Take over an entry of the blackboard that another program has left, once its lease is over
    #[arg(long)]
    take_over: bool,
    /// The agent's program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let id = match &self.id {
            Some(id) => id.clone(),
            None => context.agent_required()?,
        };
        context.check_name(&id)?;
        let project = context.project()?;
        let board = Board::find(project.root(), context.board_options_for(project, id.as_str()))?;
        let worktrees = match self.role {
            Role::Planner => None,
            Role::Coder | Role::CodeReviewer => {
                let options = project.worktree_options(id.as_str(), context.recorder()?);
                Some(Worktrees::open(&board, options)?)
            }
        };
        let order = self.order(context, &board, id)?;
        let mut here = Here::new(context, &board, &order.id)?;
        if order.role == Role::CodeReviewer
            && let Some(CheckedOut { branch, path, .. }) =
                worktrees.as_ref().map(Worktrees::checked_out).transpose()?.flatten()
        {
            here.tell(&format!(
                "warning: nothing can be merged into `{branch}` while it is checked out at {}: \
                 `git switch --detach` there, or name another `integration_branch`",
                path.display()
            ));
        }
        let ended = supervise(&board, worktrees.as_ref(), &order, &mut here);
        match ended.map_err(|error| refused(error, &board, &order.id))? {
            Reason::Stopped | Reason::Aborted | Reason::NoWork => Ok(()),
            Reason::Refused => Err(Failure::new(Exit::Busy, "another one supervises this agent")),
            Reason::GaveUp => {
                let text = "agents failed again and again, and nothing came of it";
                let hint = "`ensemble board show` has the anomalies; see what the agent printed";
                Err(Failure::refused(text).with_hint(hint))
            }
        }
    }

    fn order(self, context: &Context, board: &Board, id: Name) -> Outcome<Order> {
        let project = context.project()?;
        let queue = std::path::absolute(&project.queue).unwrap_or_else(|_| project.queue.clone());
        let env: BTreeMap<String, OsString> = [(QUEUE_VARIABLE.to_owned(), queue.into())].into();
        let mut order = Order::new(id, self.role, self.command).with_config(&board.read()?.config);
        order.env = env;
        order.terminal = terminal();
        order.takes_over = self.take_over;
        order.recorder = context.recorder()?;
        order.pace.restart = self.restart_delay;
        order.pace.hand_over = self.hand_over_delay;
        order.pace.crashes_max = self.crashes;
        order.pace.spins_max = self.spins;
        if let Some(poll) = self.poll {
            order.pace.poll = poll;
        }
        if self.max_wait.is_some() {
            order.pace.patience = self.max_wait;
        }
        Ok(order)
    }
}

/// Why it could not begin. An entry that another program left needs a decision.
fn refused(error: Error, board: &Board, id: &Name) -> Failure {
    let is_refused = ensemble_team::worktree::is_not_allowed(&error);
    let state = board.read().ok().filter(|state| is_refused && state.agents.contains_key(id));
    let Some(state) = state else { return error.into() };
    let hint = match board.check_over(&state, id, SystemClock.wall()) {
        Ok(()) => {
            "its lease is over: `ensemble supervise --take-over` with the same words takes it over"
                .to_owned()
        }
        Err(_) => format!(
            "wait for the end of its lease, then `--take-over` works; \
             `ensemble agent unregister {id} --force` does not wait"
        ),
    };
    Failure::from(error).with_hint(hint)
}

fn role(text: &str) -> Result<Role, String> {
    text.parse()
}

/// The terminal that this runs in, for people.
fn terminal() -> String {
    let path = std::fs::read_link("/proc/self/fd/0").unwrap_or_default();
    match path.starts_with("/dev/pts") || path.starts_with("/dev/tty") {
        true => path.display().to_string(),
        false => "unknown".to_owned(),
    }
}

/// Signals, the roster, the board's directory, and who reads what is told.
struct Here<'a> {
    context: &'a Context,
    id: Name,
    stopped: Arc<AtomicBool>,
    waiter: Waiter,
    roster: Roster,
    /// Its generation, if it was a member that is up.
    generation: Option<u64>,
    asked: Instant,
}

impl<'a> Here<'a> {
    fn new(context: &'a Context, board: &Board, id: &Name) -> Outcome<Self> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let stopped = Arc::new(AtomicBool::new(false));
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stopped))
                .map_err(|error| Failure::refused(format!("cannot handle signals: {error}")))?;
        }
        let directory = board.path().parent().map_or_else(PathBuf::new, PathBuf::from);
        let roster = context.project()?.roster();
        let member = roster.get(id)?.filter(|member| member.state == MemberState::Up);
        Ok(Self {
            context,
            id: id.clone(),
            stopped,
            waiter: Waiter::new(&[directory]),
            roster,
            generation: member.map(|member| member.generation),
            asked: Instant::now(),
        })
    }

    /// Whether its agent is to leave the team, or has been brought up anew elsewhere.
    fn leaves_team(&self) -> bool {
        let Some(generation) = self.generation else { return false };
        // What cannot be read says nothing.
        let Ok(member) = self.roster.get(&self.id) else { return false };
        member.is_none_or(|m| m.generation != generation || m.state != MemberState::Up)
    }
}

impl Surroundings for Here<'_> {
    fn rest(&mut self, limit: Duration) {
        if !self.stopped.load(Ordering::SeqCst) {
            self.waiter.wait(limit.min(ROSTER_EVERY));
        }
    }

    fn is_over(&mut self) -> bool {
        if self.asked.elapsed() >= ROSTER_EVERY {
            self.asked = Instant::now();
            if self.leaves_team() {
                self.stopped.store(true, Ordering::SeqCst);
            }
        }
        self.stopped.load(Ordering::SeqCst)
    }

    fn tell(&mut self, line: &str) {
        match self.context.out.is_json() {
            true => {
                let told = json!({ "agent": self.id, "told": line });
                // The supervisor goes on without a reader.
                let _ = self.context.out.object(&told).and_then(|()| self.context.out.flush());
            }
            false => say(&format!("{}: {line}", self.id)),
        }
    }
}
