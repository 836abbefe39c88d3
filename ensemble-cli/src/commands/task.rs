use ensemble_app::acting::{check_current, check_planner, find_blocker, given_number};
use ensemble_app::queue::ProjectQueue;
use ensemble_app::tasks::{ChangedTask, change_task, describe_task, missing_file};
use ensemble_app::text::{one_line, printable};
use ensemble_core::message::Name;
use ensemble_team::board::{BoardTask, LockedBoard, NewTask, TaskStatus, claimable};
use serde_json::{Value, json};

use crate::context::{Context, Outcome};
use crate::flags::EpochFlag;
use crate::output::STRONG;
use crate::printing::print_tasks;

mod merge;
mod new;
mod work;

/// Hand out tasks, and follow them: by mail, in steps or on the blackboard
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Begin with `ensemble task new`: what you ask for decides where the task goes. The
commands from `add` to `abandon` are about tasks on the blackboard; agents run `claim`, `submit` and
`verdict` there.

Example: ensemble task new login --to worker-1 'write a test for the login'"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    New(new::CreateTask),
    Add(AddTask),
    /// List the tasks on the blackboard, in its order
    List {
        /// Only those that a coder could claim now, most urgent first
        #[arg(long)]
        claimable: bool,
        /// Only those in this state: UNCLAIMED, CLAIMED, READY_FOR_REVIEW …
        #[arg(long, value_name = "STATUS", value_parser = status, conflicts_with = "claimable")]
        status: Option<TaskStatus>,
    },
    /// Show a task
    Show(OneTask),
    /// Allow a draft to be claimed
    Finalize(OneTask),
    /// Block a task, as its holder or its planner
    ///
    /// The task's own agent blocks it under the epoch of its claim ($ENSEMBLE_TASK_EPOCH), and is refused
    /// if that claim has ended. A planner or a person blocks any task: the agent that worked on it is
    /// fenced off, and its later writes are refused.
    Block {
        /// Id of the task
        id: Name,
        /// Why
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Question that blocks the task; one to three times
        #[arg(long = "question", value_name = "TEXT", required = true)]
        questions: Vec<String>,
    },
    /// Let any agent claim a blocked task again
    Unblock(OneTask),
    /// Replace a blocked task with other tasks
    ///
    /// Tasks that depended on it depend on the new ones from then on.
    Supersede {
        /// Id of the task
        id: Name,
        /// A task that takes its place; may be repeated
        #[arg(long, value_name = "ID", required = true)]
        by: Vec<Name>,
        /// Why it was divided again
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Claim a task, with a worktree to do it in
    ///
    /// The agent must be registered (`ensemble agent register`; a supervisor does that itself). A new
    /// task gets a fresh worktree at the integration branch. After a rejection the same coder continues
    /// in the existing worktree, another coder starts in a fresh one. A failed merge is repaired in its
    /// worktree. Work that an earlier agent left is kept under refs/ensemble/salvage/, and its name is
    /// printed.
    ///
    /// Exit code 3 if there is nothing to claim, 1 if it is refused, 75 if other agents were quicker
    /// three times.
    #[command(after_help = "Examples:
  ensemble task claim --as coder-1
  cd \"$(ensemble task claim task-3 --as coder-1 --json | jq -r .path)\"")]
    Claim {
        /// Id of the task [default: the most urgent that can be claimed]
        id: Option<Name>,
        /// Take it for a review
        #[arg(long)]
        review: bool,
    },
    /// Submit a task: the commits in its worktree
    ///
    /// HEAD must be on the task's branch, with nothing left uncommitted (files that git ignores do not
    /// count). The branch must have at least one commit more than it began with. Exit code 1 says what
    /// is missing. If another agent has the task now, your work is kept under refs/ensemble/salvage/.
    Submit {
        /// Id of the task
        id: Name,
        /// Nothing had to be changed
        #[arg(long)]
        unchanged: bool,
        #[command(flatten)]
        epoch: EpochFlag,
    },
    Verdict(work::JudgeTask),
    /// Merge approved tasks into the integration branch
    ///
    /// In a separate worktree, where the tests of ensemble.yaml (`worktrees: {tests: …}`) must pass.
    /// Then the branch moves, and the task's worktree and branch go. A conflict or a failing test moves
    /// nothing. The task is then INTEGRATION_FAILED with the reason, for a coder to repair, and the
    /// exit code is 1. A branch that is checked out somewhere is not moved. Exit code 75 if another
    /// merge runs, 3 if there is nothing to merge.
    ///
    /// With `worktrees: {remote: …}` in ensemble.yaml, the branch is that of the git remote. Exit code
    /// 75 if the remote is away.
    Merge {
        /// Task to merge [default: all that are APPROVED]
        id: Option<Name>,
    },
    /// Give up a blocked task that is no longer needed
    Abandon {
        /// Id of the task
        id: Name,
        /// Why
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        match self.verb {
            Verb::New(new) => new.run(context),
            Verb::Add(add) => add.run(context),
            Verb::List { claimable, status } => list(context, claimable, status),
            Verb::Show(OneTask { id }) => show(context, &id),
            Verb::Finalize(OneTask { id }) => change(context, &id, |board| board.finalize(&id)),
            Verb::Block { id, reason, questions } => block(context, &id, &reason, &questions),
            Verb::Unblock(OneTask { id }) => change(context, &id, |board| board.unblock(&id)),
            Verb::Supersede { id, by, reason } => {
                change(context, &id, |board| board.supersede(&id, &by, &reason))
            }
            Verb::Claim { id, review } => work::claim(context, id, review),
            Verb::Submit { id, unchanged, epoch } => work::submit(context, &id, unchanged, &epoch),
            Verb::Verdict(verdict) => verdict.run(context),
            Verb::Merge { id } => merge::merge(context, id),
            Verb::Abandon { id, reason } => {
                change(context, &id, |board| board.abandon(&id, &reason))
            }
        }
    }
}

#[derive(Debug, clap::Args)]
struct OneTask {
    /// Id of the task
    id: Name,
}

/// Add a task to the blackboard
///
/// It can be claimed as soon as all tasks of `--after` are merged.
#[derive(Debug, clap::Args)]
struct AddTask {
    /// Its name: 1 to 64 of A-Z a-z 0-9 . _ -
    id: Name,
    /// Description of the task
    #[arg(long, short, value_name = "TEXT")]
    description: String,
    /// Specification: a path below the project, perhaps with #section
    #[arg(long = "spec", value_name = "PATH", required_unless_present = "draft")]
    spec_ref: Option<String>,
    /// How a reviewer can see that it is done
    #[arg(long, value_name = "TEXT", required_unless_present = "draft")]
    done_when: Option<String>,
    /// Scope: what belongs to the task and what does not
    #[arg(long, value_name = "TEXT")]
    scope: Option<String>,
    /// 1 is the most urgent
    #[arg(long, value_name = "N")]
    priority: Option<u64>,
    /// A task that must be merged before; may be repeated
    #[arg(long, value_name = "ID")]
    after: Vec<Name>,
    /// A draft: it cannot be claimed yet
    #[arg(long)]
    draft: bool,
    /// The agent that claims it submits a plan first: the work is taken only after the plan is approved
    #[arg(long)]
    needs_plan: bool,
}

impl AddTask {
    fn run(self, context: &Context) -> Outcome {
        check_current(context, &context.board()?.read()?)?;
        let mut task = NewTask::draft(self.id.clone()).after(self.after);
        task.description = self.description;
        task.spec_ref = self.spec_ref;
        task.done_when = self.done_when;
        task.scope = self.scope;
        task.priority = self.priority;
        task.is_draft = self.draft;
        if self.needs_plan {
            // Before the task is added, so that no agent can claim it without a plan.
            let queue = ProjectQueue::open(context)?;
            let requests = ensemble_app::asking::requests(context, &queue)?;
            requests.demand_plan(self.id.as_str(), &context.actor()?)?;
        }
        let changed = change_task(context, &self.id, |board| board.add_task(&task))?;
        let status = changed.task().status.as_str();
        let missing = missing_file(&context.board()?, task.spec_ref.as_deref());
        context.out.print_answer(&changed.to_json(), format!("{} {status}{missing}", self.id))
    }
}

fn list(context: &Context, is_claimable: bool, status: Option<TaskStatus>) -> Outcome {
    let state = context.board()?.read()?;
    let tasks: Vec<&BoardTask> = match is_claimable {
        true => claimable(&state, context.agent()?.as_ref()),
        false => state.tasks.iter().collect(),
    };
    let is_wanted = |task: &&BoardTask| status.is_none_or(|status| task.status == status);
    let tasks: Vec<&BoardTask> = tasks.into_iter().filter(is_wanted).collect();
    if context.out.is_json() {
        return tasks.iter().try_for_each(|task| context.out.object(&describe_task(&state, task)));
    }
    print_tasks(context, &state, tasks)
}

fn show(context: &Context, id: &Name) -> Outcome {
    let board = context.board()?;
    let state = board.read()?;
    let task = state.require_task(id)?;
    if context.out.is_json() {
        return context.out.object(&describe_task(&state, task));
    }
    let title = format!("{} {}", task.id, task.status.as_str());
    context.out.line(context.out.paint(STRONG, title))?;
    let Value::Object(fields) = json!(task) else { return Ok(()) };
    for (name, value) in fields {
        let shown = match &value {
            Value::Null => continue,
            Value::Array(items) if items.is_empty() => continue,
            Value::String(text) if text.contains('\n') => {
                let lines = printable(text).replace('\n', "\n    ");
                format!("\n    {}", lines.trim_end())
            }
            Value::String(text) => format!(" {}", one_line(text)),
            Value::Array(items) if name == "history" => items.iter().map(happened).collect(),
            other => format!(" {}", one_line(&other.to_string())),
        };
        if !["id", "status"].contains(&name.as_str()) {
            context.out.line(format!("  {name}:{shown}"))?;
        }
    }
    Ok(())
}

fn happened(line: &Value) -> String {
    let text = |name: &str| line.get(name).and_then(Value::as_str).unwrap_or_default();
    let rest = [text("agent"), text("commit"), text("reason")].join(" ");
    let told = format!("{} {} {}", text("time"), text("event"), rest.trim());
    format!("\n    {}", one_line(told.trim_end()))
}

fn block(context: &Context, id: &Name, reason: &str, questions: &[String]) -> Outcome {
    let state = context.board()?.read()?;
    let holder = find_blocker(context, &state, id, given_number()?)?;
    let changed =
        change_task(context, id, |board| board.block(id, holder.as_ref(), reason, questions))?;
    print_changed(context, &changed)
}

fn change(
    context: &Context,
    id: &Name,
    change: impl FnOnce(&mut LockedBoard<'_>) -> ensemble_core::Result<()>,
) -> Outcome {
    check_planner(context, &context.board()?.read()?)?;
    print_changed(context, &change_task(context, id, change)?)
}

fn print_changed(context: &Context, changed: &ChangedTask) -> Outcome {
    let (id, status) = (&changed.task().id, changed.task().status.as_str());
    context.out.print_answer(&changed.to_json(), format!("{id} {status}"))
}

fn status(text: &str) -> Result<TaskStatus, String> {
    let word = text.to_ascii_uppercase().replace('-', "_");
    serde_json::from_value(Value::String(word)).map_err(|_| "is not a status of a task".to_owned())
}
