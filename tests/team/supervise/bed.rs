//! A repository with a board, supervisors in separate processes, and agents that are shell commands.

use std::path::PathBuf;

use ensemble_core::Result;
use ensemble_core::durable::Durability;
use ensemble_core::event_log::{EventLog, LogOptions, Record, read_all};
use ensemble_team::board::{BoardTask, LockedBoard, NewAgent, NewTask, beaten_until};
use ensemble_team::worktree::{MergeTests, ReviewDecision, WorktreeOptions, Worktrees};

use crate::children::{Child, say};
use crate::git::ISOLATED;

use super::*;

pub(crate) use crate::queue::name;

/// A reviewer whose merges are tested for as long as there is no file `pass`.
pub(crate) const TESTER: &str = "reviewer-with-tests";

fn open(home: &Path, actor: &str) -> (Board, Worktrees, Arc<EventLog>) {
    let log = Arc::new(EventLog::deferred(&home.join(".ensemble/logs"), LogOptions::default()));
    let mut options = BoardOptions::new(actor)
        .with_durability(Durability::Process)
        .with_recorder(Arc::<EventLog>::clone(&log));
    options.patience = children::DEADLINE;
    let board = Board::find(home, options).unwrap();
    let mut options = WorktreeOptions::new(actor).with_durability(Durability::Process);
    if actor == TESTER {
        let command = format!("until [ -e {}/pass ]; do sleep 0.05; done", home.display());
        options.tests = Some(MergeTests { command, limit: children::DEADLINE });
    }
    let worktrees = Worktrees::open(&board, options).unwrap();
    (board, worktrees, log)
}

/// A project; everything in it goes with it.
pub(crate) struct Bed {
    home: tempfile::TempDir,
    pub(crate) board: Board,
    pub(crate) worktrees: Worktrees,
}

impl Bed {
    /// With this many tasks, and leases of this many seconds.
    pub(crate) fn new(tasks: usize, lease_seconds: u64) -> Self {
        let home = tempfile::tempdir().unwrap();
        git(home.path(), &["init", "-q", "-b", "main"]);
        git(home.path(), &["commit", "-q", "--allow-empty", "-m", "one"]);
        let board = Board::create(home.path(), BoardOptions::new("test")).unwrap();
        let text = board.read_text().unwrap();
        let text = text.replace("lease_duration: 300", &format!("lease_duration: {lease_seconds}"));
        let text = text.replace("integration_branch: main", "integration_branch: integration");
        std::fs::write(board.path(), text).unwrap();
        let (board, worktrees, _) = open(home.path(), "test");
        let bed = Self { home, board, worktrees };
        bed.change(|board| {
            (1..=tasks).try_for_each(|n| {
                let id = name(&format!("task-{n}"));
                board.add_task(&NewTask::new(id, "work", "specs/a.md", "it is done"))
            })
        });
        bed
    }

    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut LockedBoard<'_>) -> Result<T>) -> T {
        let mut locked = self.board.lock().unwrap();
        let result = change(&mut locked).unwrap();
        locked.commit().unwrap();
        result
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    pub(crate) fn file(&self, file: &str) -> PathBuf {
        self.home.path().join(file)
    }

    /// Starts a supervisor whose agent is a line for `sh`, in which `$H` is the project.
    pub(crate) fn supervise(&self, id: &str, role: BoardRole, agent: &str) -> Supervisor {
        self.supervise_with(id, role, agent, "")
    }

    /// Another one, with a word for [`play`]: how it is different.
    pub(crate) fn supervise_with(
        &self,
        id: &str,
        role: BoardRole,
        agent: &str,
        how: &str,
    ) -> Supervisor {
        let home = format!("supervise::{}", self.home().to_str().unwrap());
        let child = Child::spawn(&[&home, id, role.as_str(), agent, how]);
        Supervisor { child, stop: self.file(&format!("stop-{id}")) }
    }

    pub(crate) fn state(&self) -> State {
        self.board.read().unwrap()
    }

    pub(crate) fn task(&self, n: usize) -> BoardTask {
        self.state().task(&name(&format!("task-{n}"))).unwrap().clone()
    }

    pub(crate) fn until(&self, n: usize, status: TaskStatus) -> BoardTask {
        wait_until(&format!("task-{n} is {status:?}"), || self.task(n).status == status);
        self.task(n)
    }

    /// Waits until a file has this many lines, and returns them.
    pub(crate) fn lines(&self, file: &str, count: usize) -> Vec<String> {
        let read = || std::fs::read_to_string(self.file(file)).unwrap_or_default();
        wait_until(&format!("{file} has {count} lines"), || read().lines().count() >= count);
        read().lines().map(str::to_owned).collect()
    }

    pub(crate) fn records(&self, kind: &str) -> Vec<Record> {
        let records = read_all(&self.home().join(".ensemble/logs")).unwrap();
        records.filter(|record| record.kind.matches(kind)).collect()
    }

    fn agent(&self, id: &str, role: &str) -> TaskHolder {
        self.change(|board| {
            let holder = board.register(&NewAgent::new(name(id), role))?;
            board.agent_event(&holder, agent::Event::Ready)?;
            Ok(holder)
        })
    }

    /// Takes a task all the way to its approval.
    pub(crate) fn approve(&self, n: usize) {
        let task = name(&format!("task-{n}"));
        let coder = self.agent("coder-9", "coder");
        self.worktrees.claim_task(&task, &coder).unwrap();
        self.submit(n);
        let reviewer = self.agent("code-reviewer-9", "code-reviewer");
        let review = self.worktrees.claim_review(&task, &reviewer).unwrap().granted.holder;
        self.worktrees.verdict(&task, &review, None, &ReviewDecision::Approve).unwrap();
    }

    /// Until when the beats of a registered agent keep its leases.
    pub(crate) fn beaten_until(&self, id: &str) -> Option<Timestamp> {
        let (by, state) = (name(id), self.state());
        let epoch = state.agents.get(&by)?.epoch?;
        beaten_until(&self.home().join(".ensemble"), &TaskHolder { by, epoch })
    }

    /// Hands a claimed task in, as its agent would.
    pub(crate) fn submit(&self, n: usize) {
        let task = self.task(n);
        let by = task.assigned_to.clone().unwrap();
        let epoch = task.lease_epoch.unwrap();
        let holder = TaskHolder { by, epoch };
        let path = self.worktrees.path_of(&task);
        git(&path, &["commit", "-q", "--allow-empty", "-m", "work"]);
        self.worktrees.submit(&task.id, &holder).unwrap();
    }
}

pub(crate) struct Supervisor {
    pub(crate) child: Child,
    stop: PathBuf,
}

impl Supervisor {
    pub(crate) fn hear(&mut self, wanted: &str) -> String {
        loop {
            let line = self.child.hear().unwrap_or_else(|| panic!("it ended without `{wanted}`"));
            if line.contains(wanted) {
                return line;
            }
        }
    }

    /// Kills it. Its children live on and keep its output open, so do not wait for the end of
    /// output.
    pub(crate) fn kill(&self) {
        self.child.signal(Signal::KILL);
        self.child.wait_until_dead();
    }

    /// Tells it to end, and returns what it ended with.
    pub(crate) fn stop(mut self) -> String {
        std::fs::write(&self.stop, "").unwrap();
        let line = self.hear("result");
        self.child.finish();
        line
    }
}

struct Here(PathBuf);

impl SupervisorServices for Here {
    fn rest(&mut self, limit: Duration) {
        driver::nap(limit);
    }
    fn is_over(&mut self) -> bool {
        self.0.exists()
    }
    fn print_line(&mut self, line: &str) {
        say(line);
    }
}

/// In a child: supervises until `stop-<id>` exists.
pub(crate) fn play(role: &[String]) {
    let home = Path::new(&role[0]);
    let (board, worktrees, log) = open(home, &role[1]);
    let mut command = vec!["sh".to_owned(), "-c".to_owned(), role[3].clone()];
    if role[4] == "prompt-argument" {
        command.extend(["sh", "told: {prompt}", "{prompt_file}"].map(str::to_owned));
    }
    let mut order = SuperviseOrder::new(name(&role[1]), role[2].parse().unwrap(), command);
    order.env.insert("H".to_owned(), home.into());
    order.env.extend(ISOLATED.map(|(name, value)| (name.to_owned(), value.into())));
    order.recorder = log;
    order.pace.restart = Duration::from_millis(50);
    order.pace.hand_over = Duration::from_millis(20);
    order.pace.poll = Duration::from_millis(100);
    order.pace.gate = Duration::from_millis(50);
    if role[4] == "two-tries" {
        order.pace.crashes_max = 2;
    }
    let mut here = Here(home.join(format!("stop-{}", role[1])));
    match supervise(&board, Some(&worktrees), &order, &mut here) {
        Ok(reason) => say(format!("result {reason:?}")),
        Err(error) => say(format!("result error: {error}")),
    }
}
