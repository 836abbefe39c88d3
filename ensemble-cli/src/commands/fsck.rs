//! `ensemble admin fsck`: is every file where its name says?

use ensemble_app::exit_code::VerbExit;
use ensemble_app::failure::{Failure, Outcome};
use ensemble_app::queue::ProjectQueue;
use ensemble_app::text::{one_line, plural};
use ensemble_core::broker::Broker;
use ensemble_core::event_log::read_all;
use ensemble_core::spool::{QueueFinding, RepairAction};
use ensemble_project::Project;
use ensemble_project::attention::StrandedFile;
use ensemble_project::stranded::find_stranded;
use ensemble_team::worktree::WorktreeFinding;
use serde::Serialize;
use serde_json::json;

use crate::context::Context;
use crate::output::{BAD, FAINT, GOOD};

mod board;
mod steps;

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
        let spool = context.spool()?;
        let project = context.project()?;
        let findings = spool.fsck(self.repair)?;
        let mut notes: Vec<FsckNote> =
            log_notes(project)?.into_iter().chain(box_notes(context)?).collect();
        let worktrees = self.worktrees(context, &mut notes)?;
        let board = board::check_board(context, self.repair, &mut notes)?;
        let steps = steps::find_faults(project, &mut notes);
        let out = &context.out;
        for finding in &findings {
            if out.is_json() { out.object(finding)? } else { print(context, finding)? }
        }
        for finding in &worktrees {
            if out.is_json() { out.object(finding)? } else { print_worktree(context, finding)? }
        }
        board.iter().try_for_each(|finding| board::print(context, finding))?;
        steps.iter().try_for_each(|fault| steps::print(context, fault))?;
        for note in &notes {
            if out.is_json() {
                out.object(&json!({ "path": note.path, "note": note.text }))?;
            } else {
                let line = format!("note  {}: {}", one_line(&note.path), one_line(&note.text));
                out.line(out.paint(FAINT, line))?;
            }
        }
        let left = findings.iter().filter(|finding| !finding.repaired).count()
            + worktrees.iter().filter(|finding| !finding.repaired).count()
            + board.iter().filter(|finding| !finding.repaired).count()
            + steps.len();
        if left == 0 {
            return if out.is_json() { Ok(()) } else { out.line(out.paint(GOOD, "clean")) };
        }
        out.flush()?;
        let text = format!("{} left", plural(left as u64, "problem"));
        let failure = Failure::new(VerbExit::Corrupt, text);
        let can_be_repaired =
            findings.iter().any(|f| !f.repaired && f.repair != RepairAction::None)
                || worktrees.iter().any(|finding| !finding.repaired)
                || board.iter().any(|finding| !finding.repaired && finding.is_repairable);
        Err(match can_be_repaired && !self.repair {
            true => failure.with_hint("`ensemble admin fsck --repair` mends what can be mended"),
            false => failure.with_hint("look at each file; nothing was removed"),
        })
    }
}

impl Arguments {
    /// Leftovers of crashes in worktrees and merges. Without a blackboard or a repository there are none.
    fn worktrees(
        &self,
        context: &Context,
        notes: &mut Vec<FsckNote>,
    ) -> Outcome<Vec<WorktreeFinding>> {
        let project = context.project()?;
        let board = match board::find(context) {
            Ok(Some(board)) => board,
            Ok(None) => return Ok(Vec::new()),
            // A note says that the blackboard was not checked.
            Err(_) if project.has_shared_board() => return Ok(Vec::new()),
            Err(failure) => return Err(failure),
        };
        if !project.root().join(board.worktrees()).exists() {
            return Ok(Vec::new());
        }
        let found = context.worktrees(&board)?.recover(self.repair)?;
        let (harmless, left): (Vec<WorktreeFinding>, Vec<WorktreeFinding>) =
            found.into_iter().partition(|finding| finding.is_note);
        notes.extend(
            harmless
                .into_iter()
                .map(|WorktreeFinding { path, problem: text, .. }| FsckNote { path, text }),
        );
        Ok(left)
    }
}

/// Something that is worth knowing and harms nothing.
#[derive(Debug, Serialize)]
struct FsckNote {
    path: String,
    text: String,
}

fn print(context: &Context, finding: &QueueFinding) -> Outcome {
    let out = &context.out;
    let what = match (finding.repaired, finding.repair) {
        (true, _) => out.paint(GOOD, "repaired"),
        (false, RepairAction::None) => out.paint(BAD, "broken"),
        (false, _) => out.paint(BAD, "can be repaired"),
    };
    out.line(format!("{what}  {}: {}", one_line(&finding.path), one_line(&finding.problem)))
}

fn print_worktree(context: &Context, finding: &WorktreeFinding) -> Outcome {
    let out = &context.out;
    let what = match finding.repaired {
        true => out.paint(GOOD, "repaired"),
        false => out.paint(BAD, "left over"),
    };
    let task = finding.task.as_ref().map_or(String::new(), |task| format!("task {task}: "));
    let problem = one_line(&finding.problem);
    out.line(format!("{what}  {}: {task}{problem}", one_line(&finding.path)))
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

/// Files in the drop boxes that are not routed as they are named.
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
