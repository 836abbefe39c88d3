//! The blackboard: `state.yaml`, which people, Ensemble and the seed's scripts share (seed 001).
//!
//! ```text
//! flock state.yaml.lock     wait at most LOCK_PATIENCE; the error names the holder
//!   read, validate          all rules, all violations; a newer version is rejected
//!   change a value          methods of LockedBoard, each a step of a machine in `proto`
//!   validate                on a violation nothing is written
//!   splice                  change only those values in the text (`text`); comments and unknown fields stay
//!   write state.yaml.last   the new revision and its log record, before the board itself
//!   replace state.yaml      one rename
//!   record board.written    and mark it in state.yaml.last
//! unlock
//! ```
//!
//! Reading needs no lock: a reader sees the old or the new board, whole. A crash leaves one of the
//! two. If the crash fell between the rename and the record, the next lock holder finds that in
//! `state.yaml.last` and records the write. A board whose content is not announced in
//! `state.yaml.last` was edited by hand or by another program. That is recorded as `board.edited`.
//!
//! A team on servers has the board there: [`Board::find_shared`], with compare-and-set in place of the file and its lock.
//!
//! Two numbers only grow. `revision` counts writes. Every registration, claim and review draws its
//! fencing epoch from `epoch`. A call under a lease states its epoch, and an outdated epoch is
//! [`BoardError::Fenced`].

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;

use ensemble_core::document::{DocumentOptions, LockedDocument, SharedFiles};
use ensemble_core::durable::{Dir, Durability};
use ensemble_core::env::{Clock, SystemClock};
use ensemble_core::event_log::{NullRecorder, Recorder};
use ensemble_core::message::fields::strip_quotes;
use ensemble_core::message::{Timestamp, yaml};
use ensemble_core::{Error, Result, allow_missing};

mod agents;
mod alarms;
mod analyze;
mod breaker;
mod claims;
mod control;
mod copy;
mod draft;
mod duties;
mod error;
mod fsck;
mod graph;
mod journal;
mod leases;
mod locked;
mod notes;
mod obstacle;
mod plans;
pub mod prompt;
mod rules;
mod schema;
mod shape;
mod shared;
mod shared_lock;
mod signs;
pub mod stamps;
mod state;
mod steps;
mod tasks;
pub(crate) mod text;
mod wake;

pub use agents::NewAgent;
pub use alarms::{
    Alarm, AlarmCondition, AlarmGraces, AlarmKey, DRAFT_GRACE, INVALID_GRACE, ORPHAN_GRACE,
    STALLED_GRACE, UNTAKEN_GRACE, conditions, stale,
};
pub use analyze::{AnalysisVerdict, AnomalyAnalysis, AnomalyPattern, PatternTrigger, analyze};
pub use breaker::{REPORT, is_triggered};
pub use claims::{ClaimPlan, DIRECTORY_DEFAULT, GrantedClaim, released_claim};
pub use control::{ActiveControl, CONTROLS, ControlFile, Staleness, sprint_step};
pub use copy::SharedCopy;
pub use draft::BoardDraft;
pub use duties::disagrees;
pub use error::{BoardError, is_fenced, is_missing};
pub use fsck::BoardFinding;
pub use graph::{active_task, can_be_taken, claimable, cycle, is_left_behind, reviewable, unmet};
pub use leases::{
    BEATS, BoardLease, LEASE_RAN_OUT, beaten_until, leases, scan, sweep_beats, write_beat,
};
pub use locked::LockedBoard;
pub use notes::{NewAnomaly, NewDiscovery, NewHandoff};
pub use obstacle::{BoardObstacle, LostLease};
pub use plans::{NewGoal, NewSprint, metrics};
pub use rules::{BLOCKED_QUESTIONS_MAX, is_branch, missing_files, missing_specification};
pub use shape::Violation;
pub use shared_lock::{TAKE_OVER, put_shared};
pub use signs::{AgentSign, AnnouncedExit, SignContent};
pub use state::{
    BoardAgent, BoardAnomaly, BoardConfig, BoardSprint, BoardTask, CircuitBreaker, Discovery, Goal,
    HistoryEvent, HumanNote, SprintScope, State, TaskStatus, Timeline,
};
pub use steps::last_coder;
pub use tasks::NewTask;
pub use wake::{PlannerCall, PlannerWake, WakeOccurrence, occurrences, wake};

use shape::ShapeFindings;
use text::YamlText;

/// The format version that is written. Older versions are read, newer ones rejected.
pub const VERSION: u64 = 1;
pub const LOCK_PATIENCE: Duration = Duration::from_secs(5);
pub const FILE_NAME: &str = "state.yaml";
/// Directories below a project where a board is searched, in order.
pub const PLACES: [&str; 2] = [".ensemble", ".liza"];
pub const BOARD_BYTES_MAX: usize = 4 * 1024 * 1024;

#[derive(Clone)]
pub struct BoardOptions {
    pub actor: String,
    pub patience: Duration,
    pub durability: Durability,
    pub recorder: Arc<dyn Recorder>,
    /// Clock for timestamps that people read.
    pub clock: Arc<dyn Clock + Send + Sync>,
    /// Directory of tasks' worktrees, relative to the project; [`DIRECTORY_DEFAULT`] if `None`.
    pub worktrees: Option<String>,
    /// This host's copy of the files that the hosts of a team share; `None` for a team of one host.
    pub copy: Option<PathBuf>,
    /// Where the hosts of a team share files. Without it, the copy is read.
    pub shared: Option<Arc<dyn SharedFiles>>,
    pub host: Option<String>,
}

impl BoardOptions {
    pub fn new(actor: impl Into<String>) -> Self {
        Self {
            actor: actor.into(),
            patience: LOCK_PATIENCE,
            durability: Durability::default(),
            recorder: Arc::new(NullRecorder),
            clock: Arc::new(SystemClock),
            worktrees: None,
            copy: None,
            shared: None,
            host: None,
        }
    }
}

ensemble_core::shared_setters!(BoardOptions: durability, recorder, clock);

impl fmt::Debug for BoardOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoardOptions").field("actor", &self.actor).finish_non_exhaustive()
    }
}

/// A blackboard. Reading needs no lock; changes go through [`Board::lock`].
#[derive(Clone, Debug)]
pub struct Board {
    path: PathBuf,
    /// The project of a board on servers, whose `path` is this host's copy.
    home: Option<PathBuf>,
    options: BoardOptions,
    /// The text that was parsed last, and what it says.
    parsed: Arc<Mutex<Option<(String, State)>>>,
}

impl Board {
    /// The board of a project: `.ensemble/state.yaml` if it exists, otherwise `.liza/state.yaml`.
    pub fn find(project: &Path, options: BoardOptions) -> Result<Self> {
        let mut paths = PLACES.map(|place| project.join(place).join(FILE_NAME)).into_iter();
        match paths.find(|path| path.symlink_metadata().is_ok()) {
            Some(path) => Ok(Self::at(path, options)),
            None => {
                Err(BoardError::Missing { path: project.join(PLACES[0]).join(FILE_NAME) }.into())
            }
        }
    }

    pub fn at(path: impl Into<PathBuf>, options: BoardOptions) -> Self {
        Self { path: path.into(), home: None, options, parsed: Arc::default() }
    }

    /// Creates an empty board in a project, and `.ensemble/` if needed.
    pub fn create(project: &Path, options: BoardOptions) -> Result<Self> {
        if let Ok(Self { path, .. }) = Self::find(project, options.clone()) {
            let why = BoardObstacle::BoardExists { path };
            return Err(BoardError::not_allowed("create a blackboard", why));
        }
        let modes = ensemble_core::durable::FileModes::default();
        let state = project.join(PLACES[0]);
        // It may be a link.
        if !state.is_dir() {
            Dir::open(project)?.ensure_child_safe(PLACES[0], modes, options.durability)?;
        }
        let board = Self::at(state.join(FILE_NAME), options);
        let document = board.lock_document()?;
        if document.read()?.is_none() {
            document.replace(NEW_BOARD.as_bytes())?;
        }
        Ok(board)
    }

    /// Path of the board's file; for a board on servers, of this host's copy.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory that holds `.ensemble/` or `.liza/`; for a board on servers, the project of this host.
    pub fn project(&self) -> &Path {
        let around = self.path.parent().and_then(Path::parent);
        self.home.as_deref().or(around).unwrap_or_else(|| Path::new("."))
    }

    /// The project's own place in a worktree of its repository, of which it may be a subdirectory.
    pub fn project_in(&self, worktree: &Path) -> PathBuf {
        project_in(self.project(), worktree)
    }

    pub fn worktrees(&self) -> &str {
        self.options.worktrees.as_deref().unwrap_or(DIRECTORY_DEFAULT)
    }

    /// A task's worktree, relative to the project. Its directory is moved and removed with all that is in it, so one
    /// that does not have the task's name, as after an edit by hand, is not it.
    pub fn worktree_of(&self, task: &BoardTask) -> String {
        let named = task.worktree.as_ref().filter(|it| Path::new(it).ends_with(task.id.as_str()));
        named.cloned().unwrap_or_else(|| format!("{}/{}", self.worktrees(), task.id))
    }

    /// The control files, the strongest last: those beside the board, and those of all hosts.
    pub fn controls(&self) -> Result<Vec<ActiveControl>> {
        let mut found = ActiveControl::read_all(self.beside())?;
        let BoardOptions { copy, shared, .. } = &self.options;
        let others = match (shared, copy) {
            (Some(files), _) => ActiveControl::read_shared(&**files)?,
            (None, Some(copy)) => ActiveControl::read_all(copy)?,
            (None, None) => Vec::new(),
        };
        ActiveControl::merge(&mut found, others);
        Ok(found)
    }

    fn put_control(&self, file: ControlFile, now: Timestamp, reason: &str) -> Result<bool> {
        match &self.options.shared {
            Some(files) => ActiveControl::put_shared(&**files, file, now, reason),
            None => ActiveControl::put(self.beside(), file, now, reason),
        }
    }

    /// Reads the board. A text that is the same as at the last reading is not parsed again.
    pub fn read(&self) -> Result<State> {
        let text = self.read_text()?;
        let mut parsed = self.parsed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((before, state)) = &*parsed
            && *before == text
        {
            return Ok(state.clone());
        }
        let (_, _, state) = load(&text, &self.path)?;
        *parsed = Some((text, state.clone()));
        Ok(state)
    }

    pub fn read_text(&self) -> Result<String> {
        if let Some(copy) = self.copy() {
            return self.read_shared(&copy);
        }
        let no_board = || self.missing();
        let Some(dir) = allow_missing(Dir::open(self.beside()))? else {
            return Err(no_board().into());
        };
        let bytes = dir.read(file_name(&self.path), BOARD_BYTES_MAX)?.ok_or_else(no_board)?;
        utf8(&bytes, &self.path)
    }

    /// Waits for the board's lock and reads the board. Start no program and wait for nothing while
    /// the lock is held.
    pub fn lock(&self) -> Result<LockedBoard<'_>> {
        LockedBoard::new(self)
    }

    /// Changes the board under its lock, and writes it. After an error nothing was written.
    pub fn change<T>(&self, change: impl FnOnce(&mut LockedBoard<'_>) -> Result<T>) -> Result<T> {
        let mut locked = self.lock()?;
        let made = change(&mut locked)?;
        locked.commit()?;
        Ok(made)
    }

    fn lock_document(&self) -> Result<LockedDocument> {
        let mut options = DocumentOptions::default();
        options.bytes_max = BOARD_BYTES_MAX;
        options.durability = self.options.durability;
        LockedDocument::lock_with(&self.path, self.options.patience, options)
    }
}

const NEW_BOARD: &str = "\
# The blackboard: see PROTOCOL.md of Ensemble. Edit it with `ensemble board edit`, or under
# `flock state.yaml.lock`; your own comments and fields are kept.
version: 1
tasks: []
agents: {}
discovered: []
handoff: {}
anomalies: []
config:
  max_coder_iterations: 10
  max_review_cycles: 5
  lease_duration: 300  # seconds
  integration_branch: integration
";

/// The project's own place in a worktree of its repository; the worktree itself if it has no such directory.
fn project_in(project: &Path, worktree: &Path) -> PathBuf {
    let project = project.canonicalize().unwrap_or_else(|_| project.to_owned());
    let repository = project.ancestors().find(|above| above.join(".git").exists());
    let inside = repository.and_then(|repository| project.strip_prefix(repository).ok());
    let place = inside.filter(|it| !it.as_os_str().is_empty()).map(|it| worktree.join(it));
    place.filter(|place| place.is_dir()).unwrap_or_else(|| worktree.to_owned())
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or(FILE_NAME)
}

fn utf8(bytes: &[u8], path: &Path) -> Result<String> {
    yaml::decode_text(bytes, path).map(str::to_owned)
}

fn load(source: &str, path: &Path) -> Result<(YamlText, Value, State)> {
    let text = YamlText::parse(source, path)?;
    let value = text.value();
    // As the check reads it: a number may be written as a text.
    let number = |it: &Value| it.as_f64().or_else(|| strip_quotes(it.as_str()?).parse().ok());
    let version = value.get("version").and_then(number);
    if let Some(version) = version.filter(|it| *it > VERSION as f64) {
        let problem =
            format!("is {version}, but this program reads at most {VERSION}: update the program");
        return Err(Error::malformed(path, "version", problem));
    }
    let state = validated(&value, path)?;
    Ok((text, value, state))
}

fn validated(value: &Value, path: &Path) -> Result<State> {
    let (decoded, ShapeFindings { mut violations, mut warnings }) = decode(value);
    // Rules would miss removed values, and would judge their placeholders.
    let bad: Vec<(String, String)> = violations
        .iter()
        .map(|Violation { path, .. }| match path.rsplit_once('.') {
            Some((entry, _)) => (path.clone(), format!("{entry}.")),
            None => (path.clone(), format!("{path}.")),
        })
        .collect();
    let read: Vec<String> = warnings.iter().map(|warning| warning.path.clone()).collect();
    match decoded {
        Ok(state) => {
            let is_new = |violation: &Violation| {
                !bad.iter().any(|(path, entry)| {
                    violation.path == *path || violation.path.starts_with(entry.as_str())
                })
            };
            let found = rules::check_rules(&state);
            violations.extend(found.violations.into_iter().filter(is_new));
            let is_unread = |warning: &Violation| is_new(warning) && !read.contains(&warning.path);
            warnings.extend(found.warnings.into_iter().filter(is_unread));
            if violations.is_empty() {
                return Ok(State { warnings, ..state });
            }
        }
        Err(error) if violations.is_empty() => {
            violations.push(Violation::new("file", error.to_string()));
        }
        // A value that could not be decoded is among the violations.
        Err(_) => {}
    }
    Err(BoardError::Invalid { path: path.to_owned(), violations }.into())
}

/// Decodes the board's value. Fields of the wrong kind are findings.
fn decode(value: &Value) -> (serde_json::Result<State>, ShapeFindings) {
    let mut checked = value.clone();
    let found = shape::check(&mut checked);
    (serde_json::from_value(checked), found)
}

/// Checks a text as a board. The error lists all violations.
pub fn check(source: &str, path: &Path) -> Result<State> {
    load(source, path).map(|(_, _, state)| state)
}
