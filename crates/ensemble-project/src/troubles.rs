//! What is stuck on the blackboard, and the command to run: for alarms and for `status`.
//!
//! | trouble | until |
//! |---|---|
//! | the conditions of `board::alarms` that need an action | the condition ends |
//! | an agent whose lease has ended, and that still holds work | an observer takes the work away |
//! | a tripped circuit breaker whose CHECKPOINT was removed by hand | `ensemble resume` |
//! | the disk of the queue is full or read-only | there is room |
//! | `ensemble task dispatch` finds no worker | it finds one, or has not looked for ten minutes |
//! | `ensemble step run` was killed or has failed, and steps of its task wait | it runs again, or an agent takes one |
//! | the git remote of the team does not answer | it answers, or no verb of this host has asked it for ten minutes |
//!
//! It is read from this host's files alone, so `status` says it without a watcher, and at once. The
//! grace of an alarm delays its message only.

use std::path::Path;

use ensemble_core::Result;
use ensemble_core::durable::Dir;
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::message::{Name, Timestamp, shell_word};
use ensemble_team::admission::NotAdmitted;
use ensemble_team::board::{
    ActiveControl, Alarm, AlarmCondition, AlarmGraces, AlarmKey, Board, ControlFile, REPORT, State,
    conditions, is_left_behind, is_triggered, leases, stale,
};
use ensemble_team::driver::list_lost_runs;
use ensemble_team::silence::{Silence, SilentPeer};
use rustix::fs::{StatVfsMountFlags, statvfs};
use serde::Serialize;
use serde_json::json;

use crate::alarm_list::list_raised;
use crate::project::Project;
use crate::workload::TaskBooks;

const ROOM_BYTES_MIN: u64 = 64 * 1024;
// Names of troubles.
const CONTROL: &str = "control";
const REMOTE: &str = "remote";
const WORKERS: &str = "workers";
/// That tasks wait for a worker, and what makes one.
pub const NO_WORKER: [&str; 2] = [
    "there is no worker for the tasks of `ensemble task dispatch`: they wait",
    "`ensemble up` starts the agents of `ensemble.yaml`; without agents, each mailbox whose name begins with \
     `worker` is one",
];

/// Something that is stuck.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BoardTrouble {
    /// Name of the alarm, or `lease_over`.
    pub alarm: String,
    /// A task, an agent, a discovery or a control file.
    pub about: String,
    pub text: String,
    pub help: String,
}

impl BoardTrouble {
    pub(crate) fn new(alarm: &str, about: &str, text: impl Into<String>, help: String) -> Self {
        Self { alarm: alarm.to_owned(), about: about.to_owned(), text: text.into(), help }
    }

    /// Whether the team was stopped on purpose.
    pub fn is_pause(&self) -> bool {
        let stale = [Alarm::PauseStale, Alarm::CheckpointStale].map(word);
        self.alarm == CONTROL || stale.contains(&self.alarm)
    }

    /// Whether nothing but an agent is missing.
    pub fn lacks_agents(&self) -> bool {
        self.alarm == WORKERS || self.alarm == word(Alarm::Untaken)
    }
}

/// All that is stuck in a project now, by the queue's calendar. Without a blackboard, that is a paused team.
pub fn of_project(
    project: &Project,
    books: &TaskBooks,
    now: Timestamp,
) -> Result<Vec<BoardTrouble>> {
    let control = project.admissions().control(None)?;
    let without_board = find_full_disk(project).into_iter().chain(missing_worker(project));
    let without_board = without_board.chain(find_lost_runs(project, books));
    let Some(board) = books.place() else {
        return Ok(control.iter().map(in_force).chain(without_board).collect());
    };
    let mut found = match (books.board(), books.unreadable()) {
        (Some(state), _) => {
            let controls = board.controls()?;
            of_board(
                board,
                state,
                (&controls, now),
                project.config.alarms.graces(),
                &list_raised(project),
            )
        }
        (None, why) => vec![unreadable(board, why.unwrap_or("it changes"))],
    };
    // One that has waited for long is among them already.
    if let Some(control) = control
        && !found.iter().any(|trouble| trouble.about == control.file.name())
    {
        found.push(in_force(&control));
    }
    found.extend(silent_remote(project));
    found.extend(without_board);
    Ok(found)
}

/// All that is stuck on a board now. `raised` are the alarms of the watcher.
pub(crate) fn of_board(
    board: &Board,
    state: &State,
    (controls, now): (&[ActiveControl], Timestamp),
    graces: AlarmGraces,
    raised: &[AlarmKey],
) -> Vec<BoardTrouble> {
    let mut found: Vec<BoardTrouble> = conditions(state, graces)
        .into_iter()
        .chain(stale(controls, now))
        .filter(|condition| needs_action(state, condition, raised))
        .map(|AlarmCondition { key: AlarmKey { alarm, about, .. }, text, .. }| {
            BoardTrouble::new(&word(alarm), &about, text, help(alarm, &about))
        })
        .collect();
    found.extend(silent_holders(board, state, now));
    found.extend(is_triggered(state).then(|| open_breaker(controls)).flatten());
    found
}

/// A circuit breaker that was not acknowledged before CHECKPOINT was removed: agents work on, and it does not trip again.
fn open_breaker(controls: &[ActiveControl]) -> Option<BoardTrouble> {
    let text = "the circuit breaker has tripped, and CHECKPOINT was removed without a decision";
    let help = format!("read {REPORT}, then `ensemble resume`");
    controls.is_empty().then(|| BoardTrouble::new("breaker", "circuit breaker", text, help))
}

fn find_full_disk(project: &Project) -> Option<BoardTrouble> {
    let disk = statvfs(&project.queue).ok()?;
    let path = project.queue.display();
    let (text, help) = if disk.f_flag.contains(StatVfsMountFlags::RDONLY) {
        ("is read-only", format!("mount it writable: `findmnt -T {path}` names it"))
    } else if disk.f_bavail.saturating_mul(disk.f_frsize) < ROOM_BYTES_MIN {
        ("is full", format!("make room: `df -h {path}` names it"))
    } else if disk.f_files > 0 && disk.f_favail == 0 {
        ("can have no more files", format!("remove some: `df -i {path}` names it"))
    } else {
        let directory = Dir::open(&project.queue).ok()?;
        if !directory.is_stopped_by_error() {
            return None;
        }
        let help =
            format!("`dmesg` has the error; check it with `fsck`: `findmnt -T {path}` names it");
        ("has stopped writing after an error", help)
    };
    let text = format!("the disk of the queue {text}, so nothing can be stored");
    Some(BoardTrouble::new("disk", "disk", text, help))
}

/// The git remote, if it does not answer. A note that cannot be read is written again after the next question.
fn silent_remote(project: &Project) -> Option<BoardTrouble> {
    project.config.worktrees.remote.as_ref()?;
    let Silence { remote, since, detail, .. } =
        SilentPeer::Remote.read_silence(&project.state, SystemClock.wall()).ok().flatten()?;
    let text = format!(
        "the git remote `{remote}` gives no answer since {since}, so no task can be claimed, \
         submitted or merged: {}",
        detail.lines().next().unwrap_or_default()
    );
    let help = format!("`git ls-remote {remote}` asks it, `ensemble doctor` says more");
    Some(BoardTrouble::new(REMOTE, &remote, text, help))
}

/// That tasks wait for a worker: there is none, or the one that was asked last is not ready.
fn missing_worker(project: &Project) -> Option<BoardTrouble> {
    let read = SilentPeer::Workers.read_silence(&project.state, SystemClock.wall());
    let Silence { remote: about, detail, .. } = read.ok().flatten()?;
    let [text, help] = match detail == NO_WORKER[0] {
        true => NO_WORKER.map(str::to_owned),
        false => [
            format!(
                "tasks of `ensemble task dispatch` wait for {about}, which is not ready: {detail}"
            ),
            format!("`ensemble agent inspect {about}` shows what it does"),
        ],
    };
    Some(BoardTrouble { alarm: WORKERS.to_owned(), about, text, help })
}

/// Tasks whose steps wait, while the `ensemble step run` that would hand them out was killed or has failed.
fn find_lost_runs(project: &Project, books: &TaskBooks) -> Vec<BoardTrouble> {
    let mut tasks = list_lost_runs(&project.state).unwrap_or_default();
    tasks.retain(|task| books.has_waiting_steps(task));
    let lost = tasks.iter().map(|task| {
        let text = format!("steps of task {task} wait, and its `ensemble step run` has ended");
        let help = format!("`ensemble step run {}` continues with them", shell_word(task));
        BoardTrouble::new("step_run", task, text, help)
    });
    lost.collect()
}

/// A control file: while it exists, waiting work does not begin.
fn in_force(control: &ActiveControl) -> BoardTrouble {
    let help = match control.file {
        ControlFile::Abort => "`ensemble resume --lift-abort` continues the team's work",
        _ => "`ensemble resume` continues the team's work",
    };
    let text = NotAdmitted::Control(control.clone()).to_string();
    BoardTrouble::new(CONTROL, control.file.name(), text, help.to_owned())
}

fn unreadable(board: &Board, error: &str) -> BoardTrouble {
    let text = format!("the blackboard cannot be read: {error}");
    BoardTrouble::new(&word(Alarm::InvalidState), "board", text, board_help(board.path()))
}

pub fn board_help(board: &Path) -> String {
    match board.symlink_metadata().is_ok_and(|it| !it.is_file()) {
        true => format!("move {} away, then `ensemble board init`", board.display()),
        false => help(Alarm::InvalidState, "board"),
    }
}

fn word(alarm: Alarm) -> String {
    json!(alarm).as_str().unwrap_or_default().to_owned()
}

/// Whether something has to be done now: a warning, or an event that is settled, needs nothing.
fn needs_action(state: &State, condition: &AlarmCondition, raised: &[AlarmKey]) -> bool {
    let task = Name::new(&condition.key.about).ok();
    let task = task.and_then(|id| state.task(&id));
    match condition.key.alarm {
        Alarm::Blocked
        | Alarm::MergeImpossible
        | Alarm::ClaimImpossible
        | Alarm::GoalLeftOpen
        | Alarm::Untaken
        | Alarm::IntegrationFailed
        | Alarm::OrphanedRejected
        | Alarm::ImmediateDiscovery
        | Alarm::CheckpointStale
        | Alarm::PauseStale
        | Alarm::InvalidState => true,
        Alarm::HypothesisExhaustion => task.is_some_and(|task| task.status.is_claimable()),
        Alarm::LeaseExpired | Alarm::ReviewLeaseExpired => task.is_some_and(is_left_behind),
        // `team` shows the agent itself.
        // They have lasted for their grace once the watcher has raised them.
        Alarm::Stalled | Alarm::StaleDraft => raised.contains(&condition.key),
        Alarm::AgentGone
        | Alarm::OverBudget
        | Alarm::Reassigned
        | Alarm::ReviewLoop
        | Alarm::ApproachingLimit => false,
    }
}

/// Agents with work in their hands whose lease has ended by what is written: no observer runs, or it
/// will take the work away soon.
fn silent_holders(board: &Board, state: &State, now: Timestamp) -> Vec<BoardTrouble> {
    let mut found: Vec<BoardTrouble> = Vec::new();
    for lease in leases(state) {
        let Some(task) = lease.task() else { continue };
        let about = lease.by().to_string();
        let until = board.lease_until(state, lease.by());
        let is_over = until.is_none_or(|until| until <= now);
        if !is_over || found.iter().any(|known| known.about == about) {
            continue;
        }
        let since = until.map_or_else(String::new, |until| format!(" since {until}"));
        let text = format!("{about} has no lease{since}, and still holds task {task}");
        let help = format!(
            "a watcher or a supervisor gives it back; so does `ensemble agent unregister {about}`"
        );
        found.push(BoardTrouble::new("lease_over", &about, text, help));
    }
    found
}

/// How a person decides about a budget that is used up: what allows more, and what ends its work instead. `arguments`
/// are those of [`BudgetScope`](ensemble_team::budget::BudgetScope).
pub fn budget_help(arguments: &str) -> String {
    let end = match arguments.split_once(' ') {
        Some(("agent", name)) => format!("`ensemble request shutdown {name}` ends it"),
        Some(_) => "without that, it stays parked".to_owned(),
        None => "`ensemble down` ends the team".to_owned(),
    };
    let words: Vec<String> = arguments.splitn(2, ' ').map(shell_word).collect();
    let arguments = words.join(" ");
    format!("`ensemble agent usage allow {arguments} --usd N|--tokens N` allows more; {end}")
}

pub fn help(alarm: Alarm, about: &str) -> String {
    match alarm {
        Alarm::Blocked => format!(
            "`ensemble task show {about}` has its questions; then `ensemble task unblock {about}`, \
             or `supersede` or `abandon`"
        ),
        Alarm::MergeImpossible => format!(
            "once that is changed, a reviewer's supervisor merges it, or `ensemble task merge {about}`"
        ),
        Alarm::ClaimImpossible => format!(
            "once that is changed, a supervisor claims it by itself, or `ensemble task claim {about} --as NAME`"
        ),
        Alarm::GoalLeftOpen => {
            "`ensemble board goal complete` ends it, after `ensemble board sprint complete` if there \
             is a sprint; `ensemble task add` continues it"
                .to_owned()
        }
        Alarm::Untaken => {
            "`ensemble up` starts the supervisors of ensemble.yaml; \
             `ensemble agent supervise --role ROLE --name NAME -- CMD` starts another one"
                .to_owned()
        }
        Alarm::IntegrationFailed => format!(
            "`ensemble task show {about}` says why; a coder may claim the repair, a planner may \
             `ensemble task block {about} --reason TEXT --question TEXT`"
        ),
        Alarm::OrphanedRejected | Alarm::LeaseExpired | Alarm::Reassigned => {
            format!("`ensemble task claim {about} --as NAME`, or a coder's supervisor takes it")
        }
        Alarm::ReviewLeaseExpired => {
            format!("`ensemble task claim {about} --review --as NAME`, or a supervisor takes it")
        }
        Alarm::HypothesisExhaustion => format!(
            "divide it again: `ensemble task block {about} --reason TEXT --question TEXT`, then `supersede`; \
             or `block` and `unblock` let every coder try again"
        ),
        Alarm::ReviewLoop | Alarm::ApproachingLimit | Alarm::Stalled | Alarm::StaleDraft => {
            format!("`ensemble task show {about}` has its history")
        }
        Alarm::ImmediateDiscovery => format!(
            "`ensemble board discover convert {about} --task ID`, or `ensemble board discover defer {about}`"
        ),
        Alarm::CheckpointStale | Alarm::PauseStale => {
            "`ensemble resume` continues the team's work".into()
        }
        Alarm::OverBudget => {
            format!("`ensemble agent usage` says what for; {}", budget_help(about))
        }
        Alarm::AgentGone => format!(
            "`ensemble up {about}` starts it again; `ensemble inbox --as {about}` lists what waits for it"
        ),
        Alarm::InvalidState => {
            "`ensemble board validate` lists what is wrong, `ensemble board edit` mends it".to_owned()
        }
    }
}
