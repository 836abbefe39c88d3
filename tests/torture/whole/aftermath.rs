//! The end: what is open comes to the end, the team goes down, and everything on disk is read.

use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::message::{Envelope, yaml};
use ensemble_core::requests::Requests;
use ensemble_core::spool::Spool;
use ensemble_team::replay;
use ensemble_team::replay::{DifferenceKind, Replay};

use super::work::{board_state, step_states};
use crate::support::{files, options};

use super::*;

/// How long the last work may take once nothing is disturbed any more.
const DRAIN_MAX: Duration = Duration::from_secs(150);
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// How long processes may take to end after the team went down.
const END_MAX: Duration = Duration::from_secs(30);

/// Whose mailboxes a person reads.
const PERSONS: [&str; 2] = ["conductor", "operator"];

pub fn finish(stage: &Stage, cast: &mut Cast, works: &Works) -> Facts {
    let start = Instant::now();
    let mut open = works.still_open(stage);
    while !open.is_empty() && start.elapsed() < DRAIN_MAX {
        cast.tend(stage);
        std::thread::sleep(LOOK_INTERVAL);
        open = works.still_open(stage);
    }
    println!("drained in {:.0} s, open: {open:?}", start.elapsed().as_secs_f64());
    let mut left = Vec::new();
    let down = stage.run("down --deadline 30s");
    if !down.status.success() {
        left.push(format!("`ensemble down` has failed: {down:?}"));
    }
    fs::write(stage.own.join("stop"), "").unwrap();
    cast.end();
    let socket = stage.own.join("tmux.sock");
    let _ = std::process::Command::new("tmux").arg("-S").arg(socket).arg("kill-server").output();
    left.extend(what_is_left(stage));
    let mut facts = read(stage, works);
    facts.left.extend(left);
    facts
}

/// Processes, worktrees, branches, locks, terminals that should be gone.
fn what_is_left(stage: &Stage) -> Vec<String> {
    let own = stage.mark();
    let start = Instant::now();
    let mut running = processes::with(&own);
    while !running.is_empty() && start.elapsed() < END_MAX {
        std::thread::sleep(LOOK_INTERVAL);
        running = processes::with(&own);
    }
    let mut left: Vec<String> =
        running.iter().map(|(pid, line)| format!("process {pid} is left: {line}")).collect();
    for (pid, _) in running {
        signal(pid, rustix::process::Signal::KILL);
    }
    if stage.home.join(".ensemble/tmux.sock").exists() {
        left.push("the socket of the team's tmux server is left".to_owned());
    }
    let held = locks(&stage.home).into_iter().filter(|path| {
        let file = fs::File::open(path).unwrap();
        file.try_lock().is_err()
    });
    left.extend(held.map(|path| format!("the lock {} is held", path.display())));
    left
}

fn locks(below: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![below.to_owned()];
    while let Some(directory) = directories.pop() {
        for path in files(&directory) {
            if path.is_dir() && !path.is_symlink() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "lock") {
                found.push(path);
            }
        }
    }
    found
}

fn read(stage: &Stage, works: &Works) -> Facts {
    let (lines, troubles) = super::journal::read(&stage.journals());
    let mut facts = Facts { lines, troubles, works: works.all.clone(), ..Facts::default() };
    read_messages(stage, &mut facts);
    read_reports(stage, &mut facts);
    let state = board_state(stage);
    for task in &state.tasks {
        let reason = task.blocked_reason.clone().unwrap_or_default();
        let before = task.depends_on.iter().map(ToString::to_string).collect();
        let status = task.status.as_str().to_owned();
        facts.board.insert(task.id.to_string(), (status, reason, before));
    }
    for agent in state.agents.keys() {
        facts.left.push(format!("{agent} is still registered on the blackboard"));
    }
    for work in works.all.iter().filter(|work| work.kind == Kind::Steps) {
        facts.steps.insert(work.id.clone(), step_states(stage, &work.id));
    }
    read_requests(stage, &mut facts);
    read_worktrees(stage, &mut facts);
    replay(stage, &mut facts);
    facts
}

fn messages(stage: &Stage) -> Vec<(String, &'static str, Envelope, String)> {
    let mut all = Vec::new();
    for mailbox in files(&stage.in_queue("mailbox")) {
        let name = mailbox.file_name().unwrap().to_string_lossy().into_owned();
        for place in ["new", "front", "cur", "done", "dead"] {
            for path in files(&mailbox.join(place)) {
                if path.to_string_lossy().ends_with("@reason.yaml") {
                    continue;
                }
                let content = fs::read(&path).unwrap();
                let envelope = Envelope::decode(&content, &path).unwrap();
                let reason = path.with_file_name(format!("{}@reason.yaml", envelope.id));
                let reason = fs::read_to_string(reason).unwrap_or_default();
                all.push((name.clone(), place, envelope, reason));
            }
        }
    }
    all
}

fn read_messages(stage: &Stage, facts: &mut Facts) {
    for (mailbox, place, envelope, reason) in messages(stage) {
        let task = envelope.task_id.as_ref().map(ToString::to_string).unwrap_or_default();
        if PERSONS.contains(&mailbox.as_str()) {
            facts.told.push(format!("{} {task} {}", envelope.kind, envelope.body));
        }
        if envelope.kind.to_string() == "report.summary" {
            read_summary(&envelope.body, facts);
        }
        if envelope.kind.to_string() == "task" {
            let message = Message { place: place.to_owned(), reason };
            facts.messages.entry(envelope.id.to_string()).or_default().push(message);
        }
    }
}

fn read_summary(body: &str, facts: &mut Facts) {
    let summary: serde_json::Value = yaml::parse(body, "summary".as_ref()).unwrap();
    let word = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    for result in summary["task_results"].as_array().into_iter().flatten() {
        let status = facts.summaries.entry(word(&result["task_id"])).or_default();
        status.push(word(&result["status"]));
    }
}

fn read_reports(stage: &Stage, facts: &mut Facts) {
    for path in files(&stage.in_queue("reports")) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let Some(task) = name.strip_suffix("-completed.yaml") else { continue };
        let text = fs::read_to_string(&path).unwrap();
        let report: serde_json::Value = yaml::parse(&text, &path).unwrap_or_default();
        let word = |field: &str| report[field].as_str().unwrap_or_default().to_owned();
        facts.reports.insert(task.to_owned(), (word("status"), word("failure_reason")));
    }
}

fn read_requests(stage: &Stage, facts: &mut Facts) {
    let spool = Spool::open(&stage.home.join("queue"), options()).unwrap();
    for entry in Requests::new(&spool).list().unwrap().0 {
        let id = entry.request.request_id.to_string();
        let is_closed = stage.in_queue(format!("requests/{id}/closed.yaml")).exists();
        let state = if is_closed { "closed" } else { entry.state() };
        facts.requests.insert(id, state.to_owned());
    }
}

/// Worktrees and branches of tasks that have ended.
fn read_worktrees(stage: &Stage, facts: &mut Facts) {
    let entries = git(&stage.home, &["worktree", "list", "--porcelain"]);
    let names = entries.lines().filter_map(|line| line.strip_prefix("worktree "));
    facts.worktrees = names.skip(1).map(str::to_owned).collect();
    let format = "--format=%(refname:short)";
    let branches = git(&stage.home, &["for-each-ref", format, "refs/heads/task"]);
    facts.branches = branches.lines().map(str::to_owned).collect();
}

/// The log alone leads to what is on disk, but for what a killed process, or a full disk, could not record.
fn replay(stage: &Stage, facts: &mut Facts) {
    let spool = Spool::open(&stage.home.join("queue"), options()).unwrap();
    let mut disk = replay::DiskState::default();
    disk.add_mailboxes(&spool, &stage.home).unwrap();
    disk.add_requests(&Requests::new(&spool)).unwrap();
    let board = Board::find(&stage.home, BoardOptions::new("reader")).unwrap();
    disk.add_board(&board, &stage.home).unwrap();
    let steps = stage.home.join(".ensemble/steps.db");
    disk.add_steps(&StepStore::open(&steps, StepOptions::new(&stage.home)).unwrap()).unwrap();
    let replay = Replay::read(&stage.home.join(".ensemble/logs")).unwrap();
    let differences = replay.compare(&disk, SystemClock.wall());
    facts.records = replay.records();
    let wrong = differences.iter().filter(|d| d.kind == DifferenceKind::Contradiction);
    facts.left.extend(wrong.map(|difference| format!("the log is contradicted: {difference:?}")));
    for finding in spool.fsck(false).unwrap() {
        facts.left.push(format!("fsck finds {finding:?}"));
    }
    facts.ends = ends(stage);
}

fn ends(stage: &Stage) -> BTreeMap<String, usize> {
    let mut ends = BTreeMap::new();
    let records = ensemble_core::event_log::read_all(&stage.home.join(".ensemble/logs")).unwrap();
    for record in records.filter(|record| record.kind.matches("task_complete")) {
        if let Some(task) = record.data["task_id"].as_str() {
            *ends.entry(task.to_owned()).or_default() += 1;
        }
    }
    ends
}
