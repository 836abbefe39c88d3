use ensemble_app::queue::ProjectQueue;
use ensemble_app::text::{one_line, plural};
use ensemble_core::Error;
use ensemble_core::broker::Broker;
use ensemble_core::driver::LadderStore;
use ensemble_core::event_log::read_all;
use ensemble_core::requests::{REQUESTS, Requests};
use ensemble_core::spool::{QueueFinding, RepairAction, Spool};
use ensemble_project::Project;
use ensemble_project::attention::{StrandedFile, UnreadablePart};
use ensemble_project::overview::{MisplacedPart, find_misplaced};
use ensemble_project::panes::read_all as read_all_panes;
use ensemble_project::stranded::find_stranded;
use ensemble_team::board::{BoardFinding, BoardTask};
use ensemble_team::steps::{STEPS_FILE, StepOptions};
use ensemble_team::worktree::WorktreeFinding;
use serde_json::{Value, json};

use crate::context::{Context, Failure, Outcome, VerbExit};
use crate::output::{BAD, FAINT, GOOD};

/// Check the whole queue, opening every message, the blackboard, the steps and the worktrees of tasks
///
/// Exit code 0 if it is clean, 4 if something is wrong that was not repaired. Notes (torn lines of
/// the log, files in the drop boxes that no route matches) harm nothing.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Repair what can be repaired without losing anything
    #[arg(long)]
    repair: bool,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let (spool, project, out) = (context.spool()?, context.project()?, &context.out);
        let misplaced = find_misplaced(project);
        let is_caused = |error: &str| misplaced.iter().any(|part| part.explains(error));
        let mut found: Vec<_> = match spool.fsck(self.repair) {
            Ok(found) => found.iter().map(in_queue).collect(),
            Err(error) if is_caused(&error.to_string()) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        found.retain(|problem| !is_caused(&problem.problem));
        let is_found = |part: &&MisplacedPart| {
            found.iter().any(|problem| problem.path.replacen('/', " ", 1) == part.part().about)
        };
        let more: Vec<_> =
            misplaced.iter().filter(|part| !is_found(part)).map(in_project).collect();
        found.extend(more);
        let (mut unchecked, mut notes) = (Vec::new(), Vec::new());
        notes.extend(unless_broken("event log", log_notes(project), &mut unchecked));
        notes.extend(unless_broken("drop boxes", box_notes(context), &mut unchecked));
        let asked = unless_broken("requests", request_faults(&spool), &mut unchecked);
        let is_new = |fault: &FoundProblem| {
            let is_known = |it: &FoundProblem| fault.problem.contains(&it.path);
            !is_caused(&fault.problem) && !found.iter().any(is_known)
        };
        let asked: Vec<_> = asked.into_iter().filter(is_new).collect();
        found.extend(asked);
        found.extend(state_faults(project).into_iter().filter(|it| !is_caused(&it.problem)));
        let worktrees = self.worktrees(context, &mut notes);
        found.extend(unless_broken("worktrees", worktrees, &mut unchecked));
        let board = check_board(context, self.repair, &mut notes);
        found.extend(unless_broken("blackboard", board, &mut unchecked));
        found.extend(find_step_faults(project, &mut notes));
        found.extend(unchecked.into_iter().filter(|part| !is_caused(&part.problem)));
        found.iter().try_for_each(|problem| problem.print(context))?;
        for note in &notes {
            let line = format!("note  {}: {}", one_line(&note.path), one_line(&note.text));
            let object = json!({ "path": note.path, "note": note.text });
            out.print_answer(&object, out.paint(FAINT, line))?;
        }
        let left: Vec<&FoundProblem> = found.iter().filter(|it| !it.is_repaired).collect();
        if left.is_empty() {
            return if out.is_json() { Ok(()) } else { out.line(out.paint(GOOD, "clean")) };
        }
        out.flush()?;
        let text = format!("{} left", plural(left.len() as u64, "problem"));
        let failure = Failure::new(VerbExit::Corrupt, text);
        let can_be_repaired = left.iter().any(|problem| problem.state != BROKEN);
        Err(match can_be_repaired && !self.repair {
            true => failure.with_hint("`ensemble admin fsck --repair` repairs what it can"),
            false => failure.with_hint("look at each file; nothing was removed"),
        })
    }

    /// Leftovers of crashes in worktrees and merges. Without a blackboard or a repository there are none.
    fn worktrees(
        &self,
        context: &Context,
        notes: &mut Vec<FsckNote>,
    ) -> Outcome<Vec<FoundProblem>> {
        let project = context.project()?;
        let board = match context.board_if_any() {
            Ok(Some(board)) => board,
            Ok(None) => return Ok(Vec::new()),
            // A note says that the blackboard was not checked.
            Err(_) if project.has_shared_board() => return Ok(Vec::new()),
            Err(failure) => return Err(failure),
        };
        // The directory may be gone with worktrees that tasks need.
        let lacks = |task: &BoardTask| {
            let is_needed = task.worktree.is_some() && task.status.needs_worktree();
            is_needed && board.other_host(task).is_none()
        };
        if !project.root().join(board.worktrees()).exists()
            && !board.read().is_ok_and(|state| state.tasks.iter().any(lacks))
        {
            return Ok(Vec::new());
        }
        let found = context.worktrees(&board)?.recover(self.repair)?;
        let (harmless, left): (Vec<_>, Vec<_>) = found.into_iter().partition(|it| it.is_note);
        let note = |WorktreeFinding { path, problem: text, .. }| FsckNote { path, text };
        notes.extend(harmless.into_iter().map(note));
        Ok(left.iter().map(in_worktree).collect())
    }
}

/// Something that is worth knowing and harms nothing.
#[derive(Debug)]
struct FsckNote {
    path: String,
    text: String,
}

const REPAIRABLE: &str = "can be repaired";
const BROKEN: &str = "broken";
const LEFT_OVER: &str = "left over";

struct FoundProblem {
    object: Value,
    path: String,
    problem: String,
    is_repaired: bool,
    state: &'static str,
}

impl FoundProblem {
    fn broken(path: &str, problem: String) -> Self {
        let object = json!({ "path": path, "problem": problem });
        Self { object, path: path.to_owned(), problem, is_repaired: false, state: BROKEN }
    }

    fn print(&self, context: &Context) -> Outcome {
        let out = &context.out;
        let what = match self.is_repaired {
            true => out.paint(GOOD, "repaired"),
            false => out.paint(BAD, self.state),
        };
        let line = format!("{what}  {}: {}", one_line(&self.path), one_line(&self.problem));
        out.print_answer(&self.object, line)
    }
}

fn in_queue(finding: &QueueFinding) -> FoundProblem {
    FoundProblem {
        object: json!(finding),
        path: finding.path.clone(),
        problem: finding.problem.clone(),
        is_repaired: finding.repaired,
        state: if finding.repair == RepairAction::None { BROKEN } else { REPAIRABLE },
    }
}

fn in_project(misplaced: &MisplacedPart) -> FoundProblem {
    let UnreadablePart { about, why, help, .. } = misplaced.part();
    let object = json!({ "path": about, "problem": why, "help": help });
    FoundProblem { object, ..FoundProblem::broken(about, format!("{why}: {help}")) }
}

/// What a check has found. A part that cannot be checked is a problem itself, and keeps no other from being checked.
fn unless_broken<T>(
    part: &str,
    found: Outcome<Vec<T>>,
    unchecked: &mut Vec<FoundProblem>,
) -> Vec<T> {
    found.unwrap_or_else(|failure| {
        unchecked.push(FoundProblem::broken(part, failure.text()));
        Vec::new()
    })
}

fn in_worktree(finding: &WorktreeFinding) -> FoundProblem {
    let task = finding.task.as_ref().map_or(String::new(), |task| format!("task {task}: "));
    FoundProblem {
        object: json!(finding),
        path: finding.path.clone(),
        problem: format!("{task}{}", finding.problem),
        is_repaired: finding.repaired,
        state: LEFT_OVER,
    }
}

fn request_faults(spool: &Spool) -> Outcome<Vec<FoundProblem>> {
    let (_, errors) = Requests::new(spool).list()?;
    let described = |error: &Error| FoundProblem::broken(REQUESTS, error.to_string());
    Ok(errors.iter().map(described).collect())
}

/// Files of the state directory that their own readers cannot read.
fn state_faults(project: &Project) -> Vec<FoundProblem> {
    let (ladders, sessions) =
        (LadderStore::new(&project.state).entries(), project.sessions().entries());
    let parts = [
        ("roster", project.roster().entries().map(|(_, errors)| errors)),
        ("panes", read_all_panes(&project.panes()).map(|(_, errors)| errors)),
        ("ladders", ladders.map(|all| all.into_iter().filter_map(Result::err).collect())),
        ("sessions", sessions.map(|all| all.into_iter().filter_map(Result::err).collect())),
    ];
    let faults = parts.into_iter().flat_map(|(part, read)| {
        let errors = read.unwrap_or_else(|error| vec![error]).into_iter();
        errors.map(move |error| FoundProblem::broken(part, error.to_string()))
    });
    faults.collect()
}

/// Lines of the log that are not records: a writer was killed inside a write.
fn log_notes(project: &Project) -> Outcome<Vec<FsckNote>> {
    let mut records = read_all(&project.logs())?;
    records.by_ref().for_each(drop);
    let bad = records.bad_lines();
    let latest = bad.iter().last().map(ToString::to_string).unwrap_or_default();
    let text = format!("{} not records; the latest is {latest}", plural(bad.count(), "line"));
    let note = FsckNote { path: project.logs().display().to_string(), text };
    Ok((bad.count() > 0).then_some(note).into_iter().collect())
}

fn box_notes(context: &Context) -> Outcome<Vec<FsckNote>> {
    let queue = ProjectQueue::open(context);
    let mailboxes: &dyn Broker = match &queue {
        Ok(queue) => &**queue,
        // The files of this host are checked without the servers.
        Err(_) => return Ok(Vec::new()),
    };
    let found = find_stranded(context.project()?, mailboxes)?.into_iter();
    Ok(found
        .map(|StrandedFile { path, why, help }| FsckNote { path, text: format!("{why}; {help}") })
        .collect())
}

/// The problems; what harms nothing is added to the notes. Without a blackboard there are none.
fn check_board(
    context: &Context,
    repair: bool,
    notes: &mut Vec<FsckNote>,
) -> Outcome<Vec<FoundProblem>> {
    let found = match context.board_if_any() {
        Ok(None) => return Ok(Vec::new()),
        Ok(Some(board)) => board.fsck(repair)?,
        // The files of this host are checked without the servers.
        Err(failure) if context.project()?.has_shared_board() => {
            let (path, text) = ("the blackboard".to_owned(), failure.text());
            notes.push(FsckNote { path, text: format!("was not checked: {text}") });
            return Ok(Vec::new());
        }
        Err(failure) => return Err(failure),
    };
    let (harmless, problems): (Vec<_>, Vec<_>) = found.into_iter().partition(|it| it.is_note);
    let note = |BoardFinding { path, problem: text, .. }| FsckNote { path, text };
    notes.extend(harmless.into_iter().map(note));
    Ok(problems.iter().map(on_board).collect())
}

fn on_board(finding: &BoardFinding) -> FoundProblem {
    FoundProblem {
        object: json!(finding),
        path: finding.path.clone(),
        problem: finding.problem.clone(),
        is_repaired: finding.repaired,
        state: if finding.is_repairable { REPAIRABLE } else { BROKEN },
    }
}

/// All that is wrong with the file. Nothing here repairs it: the words of SQLite say what is lost. A server checks its
/// own, which is said in a note.
fn find_step_faults(project: &Project, notes: &mut Vec<FsckNote>) -> Vec<FoundProblem> {
    if !project.has_steps() {
        return Vec::new();
    }
    if project.has_shared_steps() {
        let text = "are on a server, and were not checked".to_owned();
        notes.push(FsckNote { path: "the steps".to_owned(), text });
        return Vec::new();
    }
    let opened = project.open_steps(StepOptions::new(project.root()));
    let faults = opened.and_then(|steps| steps.check_database());
    let path = project.state.join(STEPS_FILE).display().to_string();
    let fault = |problem: String| FoundProblem {
        object: json!({ "path": path, "problem": problem, "repaired": false }),
        ..FoundProblem::broken(&path, problem)
    };
    match faults {
        Ok(problems) => problems.into_iter().map(fault).collect(),
        Err(error) => vec![fault(error.to_string())],
    }
}
