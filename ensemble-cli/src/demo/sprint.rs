//! `ensemble demo --scenario sprint`: a planner, a coder and a reviewer, each under its supervisor in its own pane,
//! over a real repository.
//!
//! ```text
//! planner ── task ──> coder: crashes; hands over (42); submits ──> reviewer: rejects
//!                     coder: goes on, submits again            ──> reviewer: approves ──> merge
//! ```
//!
//! The agents are shell scripts that use the `ensemble` command as any agent would. The narration is made from the
//! event log; at the end the board, the log and the repository are compared with the story.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ensemble_app::sentences::SentenceMaker;
use ensemble_core::Error;
use ensemble_core::event_log::{Follower, Record, types};
use ensemble_core::message::{Name, shell_quoted};
use ensemble_core::spool::{Spool, SpoolOptions};
use ensemble_project::Project;
use ensemble_team::board::{Board, State, TaskStatus};
use ensemble_team::worktree::without_git;
use serde_json::json;

use super::stage::{DemoPanes, io_failure, own_program, write};
use super::{Arguments, interruption, tell};
use crate::context::{Context, Failure, Outcome, VerbExit};
use crate::output::{FAINT, GOOD, STRONG};

const AGENTS: [(&str, &str, &str); 3] = [
    ("planner-1", "planner", include_str!("sprint_planner.sh")),
    ("coder-1", "coder", include_str!("sprint_coder.sh")),
    ("reviewer-1", "code-reviewer", include_str!("sprint_reviewer.sh")),
];
const TASK: &str = "greet";
const INTEGRATION: &str = "integration";
/// The events that the task's history must have, in this order.
const STORY: [&str; 9] = [
    "created",
    "claimed",
    "iteration",
    "iteration",
    "ready_for_review",
    "rejected",
    "reclaimed_after_rejection",
    "approved",
    "merged",
];
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
const LEAVE_PATIENCE: Duration = Duration::from_secs(60);
struct SprintStage {
    dir: PathBuf,
    project: Project,
    board: Board,
    panes: DemoPanes,
}

pub(super) fn run(context: &Context, settings: &Arguments, dir: &Path) -> Outcome {
    let interrupted = interruption()?;
    let mut sprint = SprintStage::set(context, dir.to_owned())?;
    let tell = |line: String| tell(context, line);
    tell(context.out.paint(STRONG, format!("a sprint of three in {}", sprint.dir.display())))?;
    sprint.begin()?;
    let start = Instant::now();
    let mut follower = Follower::from_start(&sprint.project.logs());
    let mut told = Vec::new();
    loop {
        for record in follower.poll()? {
            if let Some(line) = lines(&record) {
                let at = format!("{:>7.3} s", start.elapsed().as_secs_f64());
                tell(format!("{}  {line}", context.out.paint(FAINT, at)))?;
                told.push(line);
            }
        }
        if sprint.is_over()? {
            break;
        }
        if start.elapsed() > settings.timeout || interrupted.load(Ordering::Relaxed) {
            let text = format!("the sprint did not finish within {:?}", settings.timeout);
            let screens: Vec<String> = sprint.panes.screens().map(|(_, shown)| shown).collect();
            let hint = format!("the panes show:\n{}", screens.join("\n---\n"));
            return Err(Failure::new(VerbExit::Nothing, text).with_hint(hint));
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    let seconds = start.elapsed().as_secs_f64();
    // Supervisors take the end of their terminals as the request to leave.
    sprint.panes.strike();
    let state = wait_for_departures(&sprint.board)?;
    let counts = sprint.check(&state, follower.poll()?.iter().flat_map(lines).chain(told))?;
    if context.out.is_json() {
        return context.out.object(&json!({
            "dir": sprint.dir, "task_id": TASK, "status": "MERGED", "agents": counts.agents,
            "crashes": counts.crashes, "hand_overs": counts.hand_overs, "seconds": seconds,
        }));
    }
    tell(format!(
        "{} `{TASK}` is merged after {} agents, one crash, one hand-over, one rejection; every \
         supervisor has left",
        context.out.paint(GOOD, "done:"),
        counts.agents
    ))
}

struct SprintCounts {
    agents: usize,
    crashes: usize,
    hand_overs: usize,
}

impl SprintStage {
    fn set(context: &Context, dir: PathBuf) -> Outcome<Self> {
        begin_repository(&dir)?;
        let (queue, agents) = (dir.join("queue"), dir.join("agents"));
        std::fs::create_dir(&agents).map_err(|e| io_failure("create directory", &agents, e))?;
        Spool::create(&queue, SpoolOptions::default())?;
        write(&dir.join("ensemble.yaml"), "durability: process\n")?;
        let project = Project::discover(Some(&queue))?;
        project.ensure_state()?;
        let options = context.board_options_for(&project, "ensemble");
        let board = Board::create(&dir, options)?;
        let text = board.read_text()?;
        let from = "integration_branch: main";
        write(board.path(), &text.replace(from, &format!("integration_branch: {INTEGRATION}")))?;
        Ok(Self { project, board, panes: DemoPanes::new(&dir), dir })
    }

    /// Starts the supervisors; they find out themselves that there is something to do.
    fn begin(&mut self) -> Outcome {
        let agents = self.dir.join("agents");
        for supervised in AGENTS {
            let command = supervisor(&agents, &self.project.queue, supervised)?;
            self.panes.open(supervised.0, &command)?;
        }
        Ok(())
    }

    fn is_over(&self) -> Outcome<bool> {
        let state = self.board.read()?;
        let task = Name::new(TASK).map_err(Error::from)?;
        Ok(state.task(&task).is_some_and(|task| task.status.is_terminal()))
    }

    fn check(&self, state: &State, told: impl Iterator<Item = String>) -> Outcome<SprintCounts> {
        let wrong = |text: String| Err(Failure::new(VerbExit::Corrupt, text));
        let told: Vec<String> = told.collect();
        let count = |words: &str| told.iter().filter(|line| line.contains(words)).count();
        check_task(state, &self.dir)?;
        let crashes = count("killed by signal 9");
        let hand_overs = count("handed over");
        if (crashes, hand_overs, state.anomalies.len()) != (1, 1, 1) {
            return wrong(format!(
                "{crashes} crashes, {hand_overs} hand-overs and {} anomalies are in the log, instead of one each",
                state.anomalies.len()
            ));
        }
        Ok(SprintCounts { agents: count(" started working"), crashes, hand_overs })
    }
}

fn wait_for_departures(board: &Board) -> Outcome<State> {
    let start = Instant::now();
    loop {
        let state = board.read()?;
        if state.agents.is_empty() {
            return Ok(state);
        }
        if start.elapsed() > LEAVE_PATIENCE {
            let who: Vec<&str> = state.agents.keys().map(Name::as_str).collect();
            let text = format!("still registered: {}", who.join(", "));
            return Err(Failure::new(VerbExit::Corrupt, text));
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

fn check_task(state: &State, repository: &Path) -> Outcome {
    let wrong = |text: String| Err(Failure::new(VerbExit::Corrupt, text));
    let task = Name::new(TASK).map_err(Error::from)?;
    let Some(task) = state.task(&task).filter(|task| task.status == TaskStatus::Merged) else {
        return wrong(format!("`{TASK}` is not merged"));
    };
    let mut story = task.history.iter().map(|line| line.event.as_str());
    if let Some(missing) = STORY.iter().find(|event| !story.any(|told| told == **event)) {
        return wrong(format!("the history of `{TASK}` has no `{missing}` where it belongs"));
    }
    let said = git(repository, &["show", &format!("{INTEGRATION}:greet.sh")])?;
    if !said.contains("hello, $1") {
        return wrong(format!("the integration branch has another greet.sh:\n{said}"));
    }
    Ok(())
}

fn lines(record: &Record) -> Option<String> {
    let told = [types::SUPERVISE_SPAWNED, types::SUPERVISE_EXITED, types::BOARD_WRITTEN];
    let is_told = told.iter().any(|kind| record.kind.matches(kind));
    let sentence = is_told.then(|| SentenceMaker::default().describe(record, None));
    sentence.flatten().map(|sentence| sentence.text)
}

/// The person who runs the demo may have set no name in git.
const ENVIRONMENT: [(&str, &str); 6] = [
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_AUTHOR_NAME", "Ensemble demo"),
    ("GIT_AUTHOR_EMAIL", "demo@example.org"),
    ("GIT_COMMITTER_NAME", "Ensemble demo"),
    ("GIT_COMMITTER_EMAIL", "demo@example.org"),
];
const IGNORED: &str =
    "/.ensemble/\n/.worktrees/\n/agents/\n/ensemble.yaml\n/queue/\n/tmux.sock\n/*.sh\n!/greet.sh\n";

fn begin_repository(dir: &Path) -> Outcome {
    git(dir, &["init", "-q", "-b", "main"])?;
    let specs = dir.join("specs");
    std::fs::create_dir(&specs).map_err(|e| io_failure("create directory", &specs, e))?;
    write(&specs.join("greet.md"), "# Greet\n\n`greet.sh` says hello to the name it gets.\n")?;
    write(&dir.join(".gitignore"), IGNORED)?;
    git(dir, &["add", "specs", ".gitignore"])?;
    git(dir, &["commit", "-q", "-m", "Say what is wanted"]).map(drop)
}

fn git(at: &Path, arguments: &[&str]) -> Outcome<String> {
    let mut command = without_git(Command::new("git"));
    command.arg("-C").arg(at).args(arguments).envs(ENVIRONMENT);
    let output = command.output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Failure::from(Error::MissingProgram {
            program: "git",
            remedy: "for instance `apt-get install git`",
        }),
        _ => io_failure("start", Path::new("git"), error),
    })?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => {
            let complaint = String::from_utf8_lossy(&output.stderr);
            Err(Failure::refused(format!("git {}: {}", arguments.join(" "), complaint.trim())))
        }
    }
}

fn supervisor(
    agents: &Path,
    queue: &Path,
    (agent, role, script): (&str, &str, &str),
) -> Outcome<String> {
    let ensemble = own_program()?;
    let file = agents.join(format!("{agent}.sh"));
    write(&file, script)?;
    let (program, queue) = (shell_quoted(&ensemble), shell_quoted(queue));
    let git: Vec<String> = ENVIRONMENT.iter().map(|(k, v)| format!("{k}='{v}'")).collect();
    Ok(format!(
        "env -u TMUX {} ENSEMBLE={program} DEMO={} {program} --queue {queue} agent supervise --role {role} \
         --name {agent} --restart-delay 200ms --hand-over-delay 200ms -- sh {}",
        git.join(" "),
        shell_quoted(agents),
        shell_quoted(&file),
    ))
}
