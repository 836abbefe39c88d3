//! A supervisor over the library, and the agents it starts.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ensemble_core::board::{
    Board, Leased, NewAgent, State, Status, claimable, reviewable, scan, write_beat,
};
use ensemble_core::event_log::{EventLog, LogOptions};
use ensemble_core::message::Name;
use ensemble_core::proto::agent;
use ensemble_core::proto::lease::Event;
use ensemble_core::proto::task::Holder;
use ensemble_core::worktree::{Verdict, Worktrees};
use ensemble_core::{Error, Result};

use crate::bed::{ISOLATED, board_options, name, options};
use crate::{LEASE_SECONDS, LOOK_INTERVAL, is_hopeless, is_over, number};

/// How often a supervisor beats for its agent.
const BEAT: Duration = Duration::from_millis(300);
/// How often it looks for what crashes left.
const RECOVERY: Duration = Duration::from_secs(2);

pub(crate) fn play(role: &[String]) {
    match role {
        [what, home, agent, role] if what == "supervisor" => {
            Supervisor::new(Path::new(home), name(agent), role).run();
        }
        [what, home, task, agent, epoch, path, role] if what == "agent" => {
            let holder = Holder { by: name(agent), epoch: epoch.parse().unwrap() };
            let work = Work { home: Path::new(home), task: name(task), holder, path: path.into() };
            work.run(role);
        }
        [what, home, agent, epoch] if what == "hold" => {
            crate::stopped::hold(Path::new(home), agent, epoch.parse().unwrap());
        }
        other => panic!("{other:?}"),
    }
}

pub(crate) fn open(home: &Path) -> (Board, Worktrees) {
    let log = Arc::new(EventLog::deferred(&home.join(".ensemble/logs"), LogOptions::default()));
    let mut board = board_options().with_recorder(Arc::<EventLog>::clone(&log));
    board.patience = crate::children::DEADLINE;
    let board = Board::find(home, board).unwrap();
    let worktrees = Worktrees::open(&board, options().with_recorder(log)).unwrap();
    (board, worktrees)
}

/// One line, in one write.
fn write_down(home: &Path, line: &str) {
    let path = home.join(".ensemble/journal");
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// What agents wrote down.
pub(crate) fn journal(home: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(home.join(".ensemble/journal")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

struct Supervisor {
    home: PathBuf,
    agent: Name,
    role: String,
    board: Board,
    worktrees: Worktrees,
    registered: Option<Holder>,
    beats: u64,
    beaten: Option<Instant>,
    /// Since when each lease has shown this number.
    seen: BTreeMap<Leased, (u64, Instant)>,
    recovered: Option<Instant>,
}

impl Supervisor {
    fn new(home: &Path, agent: Name, role: &str) -> Self {
        let (board, worktrees) = open(home);
        Self {
            home: home.to_owned(),
            agent,
            role: role.to_owned(),
            board,
            worktrees,
            registered: None,
            beats: 0,
            beaten: None,
            seen: BTreeMap::new(),
            recovered: None,
        }
    }

    fn run(mut self) {
        loop {
            let state = self.board.read().unwrap();
            if is_over(&state) {
                return;
            }
            // What is refused or busy is somebody else's turn; the next look tells.
            match self.turn(&state) {
                Ok(()) | Err(Error::NotAllowed { .. } | Error::Fenced { .. }) => {}
                Err(Error::Locked { .. } | Error::NotOnBoard { .. }) => {}
                Err(other) => panic!("{}: {other}", self.agent),
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    fn turn(&mut self, state: &State) -> Result<()> {
        self.expire(state)?;
        if self.recovered.is_none_or(|at| at.elapsed() > RECOVERY) {
            self.worktrees.recover(true)?;
            self.recovered = Some(Instant::now());
        }
        let me = self.register(state)?;
        self.beat(&me)?;
        if self.role == "coder" {
            let Some(task) = claimable(state, Some(&me.by)).first().map(|task| task.id.clone())
            else {
                return Ok(());
            };
            let claimed = self.worktrees.claim_task(&task, &me)?;
            return self.watch(&me, &task, &claimed.granted.holder, &claimed.path);
        }
        if let Some(task) = state.tasks.iter().find(|task| task.status == Status::Approved) {
            return self.worktrees.merge(&task.id).map(drop);
        }
        let Some(task) = reviewable(state, Some(&me.by)).first().map(|task| task.id.clone()) else {
            return Ok(());
        };
        let claimed = self.worktrees.claim_review(&task, &me)?;
        self.watch(&me, &task, &claimed.granted.holder, &claimed.path)
    }

    /// Takes away what was silent for too long.
    fn expire(&mut self, state: &State) -> Result<()> {
        let directory = self.board.path().parent().unwrap().to_owned();
        let mut seen = BTreeMap::new();
        for event in scan(state, &directory)? {
            let Event::Seen { key, sequence, duration } = event else { continue };
            let since = match self.seen.get(&key) {
                Some((before, since)) if *before == sequence => *since,
                _ => Instant::now(),
            };
            if since.elapsed() > duration {
                let mut locked = self.board.lock()?;
                match locked.expire(&key, sequence) {
                    Ok(()) => drop(locked.commit()?),
                    Err(Error::NotAllowed { .. } | Error::Fenced { .. }) => {}
                    Err(other) => return Err(other),
                }
            }
            seen.insert(key, (sequence, since));
        }
        self.seen = seen;
        Ok(())
    }

    fn register(&mut self, state: &State) -> Result<Holder> {
        if let Some(me) = &self.registered
            && state.agents.get(&me.by).is_some_and(|entry| entry.epoch == Some(me.epoch))
        {
            return Ok(me.clone());
        }
        let mut locked = self.board.lock()?;
        let me = locked.register(&NewAgent::new(self.agent.clone(), &*self.role))?;
        locked.agent_event(&me, agent::Event::Ready)?;
        locked.commit()?;
        self.registered = Some(me.clone());
        Ok(me)
    }

    fn beat(&mut self, me: &Holder) -> Result<()> {
        if self.beaten.is_some_and(|at| at.elapsed() < BEAT) {
            return Ok(());
        }
        self.beats += 1;
        self.beaten = Some(Instant::now());
        let directory = self.board.path().parent().unwrap();
        write_beat(directory, me, self.beats, Duration::from_secs(LEASE_SECONDS))
    }

    /// Starts the agent and beats for it until it ends. What a dead one held is given back.
    fn watch(&mut self, me: &Holder, task: &Name, holder: &Holder, path: &Path) -> Result<()> {
        let (home, path) = (self.home.to_str().unwrap(), path.to_str().unwrap());
        let epoch = holder.epoch.to_string();
        let role = ["agent", home, task.as_str(), self.agent.as_str(), &epoch, path, &self.role];
        let mut agent = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "play_role", "--nocapture", "--quiet", "--test-threads=1"])
            .env("ENSEMBLE_TEST_ROLE", role.join("\n"))
            .current_dir(path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let status = loop {
            if let Some(status) = agent.try_wait().unwrap() {
                break status;
            }
            self.beat(me)?;
            std::thread::sleep(LOOK_INTERVAL);
        };
        if !status.success() {
            let mut locked = self.board.lock()?;
            locked.release(task, holder.epoch, "its agent has died")?;
            locked.commit()?;
        }
        Ok(())
    }
}

/// What an agent does with a task or a review.
struct Work<'a> {
    home: &'a Path,
    task: Name,
    holder: Holder,
    path: PathBuf,
}

impl Work<'_> {
    fn run(self, role: &str) {
        let Self { home, task, holder, path } = &self;
        let epoch = holder.epoch;
        write_down(home, &format!("begin {task} {epoch} {}", std::process::id()));
        let (board, worktrees) = open(home);
        let result = match role {
            "coder" if is_hopeless(task.as_str()) => block(&board, task, holder),
            "coder" => self.work(&board).and_then(|()| worktrees.submit(task, holder)),
            _ => self.judge(&board, &worktrees),
        };
        match result {
            Ok(_) => write_down(home, &format!("done {task} {epoch}")),
            Err(error) => {
                write_down(home, &format!("refused {task} {epoch} {error}"));
                std::process::exit(3);
            }
        }
        assert!(path.is_absolute());
    }

    /// Where it was started, wherever that is by now: what was pulled away from under it is no place to
    /// work in.
    fn work(&self, board: &Board) -> Result<()> {
        let state = board.read()?;
        let is_fix = state.task(&self.task).is_some_and(|task| task.integration_fix == Some(true));
        if is_fix {
            here(&["merge", "--quiet", "--no-edit", "-X", "ours", "integration"])?;
        }
        let id = self.task.as_str();
        for part in 0..3 {
            append(id, &format!("{id} part {part}\n"));
            if number(id).is_multiple_of(4) && part == 1 && !is_fix {
                // Several write to one place: not all of them can be merged as they are.
                let text = format!("{id}\n");
                std::fs::write("shared", text).map_err(|_| lost())?;
            }
            here(&["add", "--all"])?;
            here(&["commit", "--quiet", "--allow-empty", "-m", &format!("{id} part {part}")])?;
        }
        Ok(())
    }

    fn judge(&self, board: &Board, worktrees: &Worktrees) -> Result<String> {
        let state = board.read()?;
        let cycles = state.task(&self.task).and_then(|task| task.review_cycles_total);
        let is_good =
            !number(self.task.as_str()).is_multiple_of(5) || cycles.unwrap_or_default() > 0;
        let verdict = match is_good {
            true => Verdict::Approve,
            false => Verdict::Reject("once more".to_owned()),
        };
        worktrees.verdict(&self.task, &self.holder, None, &verdict)
    }
}

fn block(board: &Board, task: &Name, holder: &Holder) -> Result<String> {
    let mut locked = board.lock()?;
    locked.block(task, Some(holder), "it cannot be done", &["what else?".to_owned()])?;
    locked.commit()?;
    Ok(String::new())
}

fn append(file: &str, text: &str) {
    let open = std::fs::OpenOptions::new().append(true).create(true).open(file);
    if let Ok(mut file) = open {
        let _ = file.write_all(text.as_bytes());
    }
}

fn lost() -> Error {
    let what = "work".to_owned();
    Error::NotAllowed { what, why: "the worktree is gone".to_owned() }
}

/// Runs git in the directory in which this process was started.
fn here(arguments: &[&str]) -> Result<()> {
    let mut git = Command::new("git");
    git.args(arguments).envs(ISOLATED).stdin(Stdio::null()).stderr(Stdio::null());
    match git.status() {
        Ok(status) if status.success() => Ok(()),
        _ => Err(lost()),
    }
}
