use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ensemble_app::agent_program::find_on_path;
use ensemble_app::board_agents::directory_of;
use ensemble_app::diagnostics::say;
use ensemble_app::queue::{LastingConnection, ProjectQueue};
use ensemble_core::Error;
use ensemble_core::driver::nap;
use ensemble_core::message::Name;
use ensemble_core::requests::REQUESTS;
use ensemble_core::watch::Waiter;
use ensemble_project::team::hooked_words;
use ensemble_project::{Project, QUEUE_VARIABLE};
use ensemble_team::board::Board;
use ensemble_team::board::prompt::BoardRole;
use ensemble_team::driver::supervise::{
    RosterAccess, SuperviseOrder, SupervisorServices, seated, supervise,
};
use ensemble_team::proto::supervise::EndReason;
use ensemble_team::worktree::{CheckedOut, Worktrees};
use serde_json::json;

use crate::args;
use crate::context::{Context, Failure, Outcome, VerbExit};

/// How often an idle supervisor looks at the roster and the requests without an event.
const OFFICE_EVERY: Duration = Duration::from_secs(1);
const RETRY_EVERY: Duration = Duration::from_millis(100);

/// Supervise one agent: find work on the blackboard, start the agent for it, and act when it exits
///
/// A coder's supervisor claims a task and its worktree before it starts the agent. A reviewer's
/// supervisor claims a review and merges what was approved. A planner's supervisor waits until
/// planning is needed. CMD gets the prompt on its standard input, or where a word of it says
/// {prompt} or {prompt_file}. After exit 0 of the agent comes the next one, after exit 42 a fresh
/// agent after 2 s. Any other exit is logged, and a new agent starts after 5 s. After 5 crashes or
/// 10 agents without progress the task is blocked. While PAUSE, CHECKPOINT or ABORT is beside the
/// blackboard nothing is claimed and nothing started. SIGTERM ends the agent, releases what it
/// held, and leaves. A second supervisor of the same id is refused with exit code 75.
///
/// The agent is a member of the team: `ensemble team` shows it, and its mail is in its next prompt. An agent program
/// with hooks gets ours, and the tools of `ensemble mcp`, as with `ensemble up`. The supervisor answers requests for
/// its shutdown: at once if it has no work, otherwise after the task.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: ensemble agent supervise --role coder --name coder-1 -- claude -p {prompt}"
)]
pub(crate) struct Arguments {
    /// planner, coder or code-reviewer
    #[arg(long, value_name = "ROLE")]
    role: BoardRole,
    /// The agent's name [default: who is asking]
    #[arg(long, alias = "id", value_name = "NAME")]
    name: Option<Name>,
    /// How often to look at the blackboard without an event [default: its config, or 30s; planners 60s]
    #[arg(long, value_name = "DURATION", value_parser = args::duration)]
    poll: Option<Duration>,
    /// End after DURATION without work [default: config.coder_max_wait, or never]
    #[arg(long, value_name = "DURATION", value_parser = args::duration)]
    max_wait: Option<Duration>,
    /// How long to wait after an agent that failed
    #[arg(long, value_name = "DURATION", value_parser = args::duration, default_value = "5s")]
    restart_delay: Duration,
    /// How long to wait after exit 42
    #[arg(long, value_name = "DURATION", value_parser = args::duration, default_value = "2s")]
    hand_over_delay: Duration,
    /// Crashes in a row without progress after which the task is blocked
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    crashes: u32,
    /// Agents in a row without progress after which the task is blocked
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    spins: u32,
    /// Take over an entry of the blackboard that another program has left, once its lease has expired
    #[arg(long)]
    take_over: bool,
    /// The agent's program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let id = match &self.name {
            Some(id) => id.clone(),
            None => context.agent_required()?,
        };
        let project = context.project()?;
        let lasting = ProjectQueue::lasting(context)?;
        let files = lasting.as_ref().map(|lasting| Arc::clone(&lasting.files));
        let board = project.find_board(context.board_options_for(project, id.as_str()), files)?;
        check_name(context, &board, &id)?;
        check_program(&self.command)?;
        let worktrees = match self.role {
            BoardRole::Planner => None,
            BoardRole::Coder | BoardRole::CodeReviewer => {
                let options = project.worktree_options(id.as_str(), context.recorder()?);
                Some(Worktrees::open(&board, options)?)
            }
        };
        let order = self.order(context, &board, (id, lasting))?;
        let mut here = CommandServices::new(context, project, &board, &order.id)?;
        if order.role == BoardRole::CodeReviewer
            && let Some(CheckedOut { branch, path, .. }) =
                worktrees.as_ref().map(Worktrees::checked_out).transpose()?.flatten()
        {
            here.print_line(&format!(
                "warning: nothing can be merged into `{branch}` while it is checked out at {}: \
                 `git switch --detach` there, or name another `integration_branch`",
                path.display()
            ));
        }
        let ended = supervise(&board, worktrees.as_ref(), &order, &mut here);
        match ended.map_err(|error| refused(context, error, &board, &order.id))? {
            EndReason::Stopped | EndReason::Agreed | EndReason::Aborted | EndReason::NoWork => {
                Ok(())
            }
            EndReason::Refused => {
                Err(Failure::new(VerbExit::Busy, "another one supervises this agent"))
            }
            EndReason::GaveUp => {
                let text = "agents failed again and again, and nothing came of it";
                let hint = "`ensemble board show` has the anomalies; see what the agent printed";
                Err(Failure::refused(text).with_hint(hint))
            }
        }
    }

    fn order(
        self,
        context: &Context,
        board: &Board,
        (id, lasting): (Name, Option<LastingConnection>),
    ) -> Outcome<SuperviseOrder> {
        let project = context.project()?;
        let queue = std::path::absolute(&project.queue).unwrap_or_else(|_| project.queue.clone());
        let program = std::env::current_exe().map_err(|error| {
            Failure::refused(format!("cannot find this program for the agent's hooks: {error}"))
        })?;
        let hooked = hooked_words(project, &program, &self.command)?;
        let mut env: BTreeMap<String, OsString> =
            hooked.env.into_iter().map(|(name, value)| (name, value.into())).collect();
        env.insert(QUEUE_VARIABLE.to_owned(), queue.into());
        let mut order =
            SuperviseOrder::new(id, self.role, hooked.words).with_config(&board.read()?.config);
        order.env = env;
        order.terminal = terminal();
        order.takes_over = self.take_over;
        order.recorder = context.recorder()?;
        order.office = office(context, &order.command, lasting);
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
fn refused(context: &Context, error: Error, board: &Board, id: &Name) -> Failure {
    let is_refused = ensemble_team::worktree::is_not_allowed(&error);
    let state = board.read().ok().filter(|state| is_refused && state.agents.contains_key(id));
    let Some(state) = state else { return error.into() };
    let hint = match board.check_over(&state, id, context.now()) {
        Ok(()) => {
            "its lease has ended: `ensemble agent supervise --take-over` with the same words takes it over"
                .to_owned()
        }
        Err(_) => format!(
            "wait for the end of its lease, then `--take-over` works; \
             `ensemble agent unregister {id} --force` does not wait"
        ),
    };
    Failure::from(error).with_hint(hint)
}

fn terminal() -> String {
    let path = std::fs::read_link("/proc/self/fd/0").unwrap_or_default();
    match path.starts_with("/dev/pts") || path.starts_with("/dev/tty") {
        true => path.display().to_string(),
        false => "unknown".to_owned(),
    }
}

/// Refuses a name that another agent has. The name of an agent whose supervisor was killed is free for
/// the next supervisor.
fn check_name(context: &Context, board: &Board, id: &Name) -> Outcome {
    let refused = match context.check_name(id) {
        Ok(()) => return Ok(()),
        Err(refused) => refused,
    };
    let directory = directory_of(board);
    match seated(directory, id) {
        Ok(Some((record, true))) => {
            let path = directory.join(format!("locks/supervise-{id}.lock"));
            Err(Error::Locked {
                path,
                holder: format!("process {}", record.pid),
                waited: Duration::ZERO,
            }
            .into())
        }
        _ => Err(refused),
    }
}

/// Refuses a program that does not exist: one task after the other would be claimed, and blocked.
fn check_program(command: &[String]) -> Outcome {
    let is_missing = |word: &&String| !word.contains('/') && find_on_path(word).is_none();
    let Some(program) = command.first().filter(is_missing) else { return Ok(()) };
    let hint = format!("install {program}, or give its path; nothing was claimed");
    let text = format!("{program}: command not found");
    Err(Failure::new(VerbExit::MissingProgram, text).with_hint(hint))
}

/// Where the supervisor speaks for its agent. It can supervise without a queue.
fn office(
    context: &Context,
    command: &[String],
    lasting: Option<LastingConnection>,
) -> Option<RosterAccess> {
    let open = move || -> Outcome<RosterAccess> {
        let project = context.project()?;
        project.ensure_state()?;
        let store = match lasting {
            Some(lasting) => lasting.store,
            None => ProjectQueue::open(context)?.into_store(),
        };
        let program = command.first().map_or("", String::as_str);
        let program = Path::new(program).file_name().and_then(|name| name.to_str());
        let known = program.filter(|name| project.profiles().is_ok_and(|it| it.get(name).is_ok()));
        let mut office = RosterAccess::new(store, project.roster(), known.unwrap_or("generic"));
        office.authority = project.config.authority.clone();
        Ok(office)
    };
    match open() {
        Ok(office) => Some(office),
        Err(failure) => {
            say(&format!("warning: the agent has neither mail nor a row: {}", failure.text()));
            None
        }
    }
}

struct CommandServices<'a> {
    context: &'a Context,
    id: Name,
    stopped: Arc<AtomicBool>,
    waiter: Waiter,
}

impl<'a> CommandServices<'a> {
    fn new(context: &'a Context, project: &Project, board: &Board, id: &Name) -> Outcome<Self> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let stopped = Arc::new(AtomicBool::new(false));
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stopped))
                .map_err(|error| Failure::refused(format!("cannot handle signals: {error}")))?;
        }
        let (board, requests) = (directory_of(board).to_owned(), project.queue.join(REQUESTS));
        let waiter = Waiter::new(&[board, requests]);
        Ok(Self { context, id: id.clone(), stopped, waiter })
    }
}

impl SupervisorServices for CommandServices<'_> {
    fn rest(&mut self, limit: Duration) {
        match self.is_over() {
            false => self.waiter.wait(limit.min(OFFICE_EVERY)),
            // Remaining work is retried soon, but not constantly.
            true => nap(limit.min(RETRY_EVERY)),
        }
    }

    fn is_over(&mut self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    fn print_line(&mut self, line: &str) {
        match self.context.out.is_json() {
            true => {
                let told = json!({ "agent": self.id, "told": line });
                // The supervisor continues without a reader.
                let _ = self.context.out.object(&told).and_then(|()| self.context.out.flush());
            }
            false => say(&format!("{}: {line}", self.id)),
        }
    }
}
