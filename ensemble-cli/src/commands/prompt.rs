use ensemble_app::queue::ProjectQueue;
use ensemble_core::Error;
use ensemble_core::durable::{Durability, write_document};
use ensemble_core::message::Name;
use ensemble_team::board::prompt::{BoardRole, PlanStanding, PromptBuilder};
use ensemble_team::board::{State, TaskStatus, wake};
use ensemble_team::driver::supervise::plan_standing;
use serde_json::json;

use crate::context::{Context, Failure, Outcome};

/// Print the prompt with which an agent on the blackboard starts
///
/// A coder's or a reviewer's prompt is about a task that was claimed; a planner's about what needs it.
/// A project has its own forms in prompts/ROLE.md beside the blackboard.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("whose").required(true).multiple(true).args(["role", "task"]))]
pub(crate) struct Arguments {
    /// planner, coder or code-reviewer [default: by the task's status]
    #[arg(long)]
    role: Option<BoardRole>,
    /// The task that was claimed
    #[arg(long, value_name = "ID")]
    task: Option<Name>,
    /// Print the form instead, to be changed
    #[arg(long, requires = "role", conflicts_with = "task")]
    template: bool,
    /// Write the form to prompts/ROLE.md beside the blackboard, to be changed there
    #[arg(long, requires = "role", conflicts_with_all = ["task", "template"])]
    write: bool,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let board = context.board()?;
        let mut prompts = PromptBuilder::of(&board);
        if let (true, Some(role)) = (self.template || self.write, self.role) {
            return self.show_form(context, &prompts, role);
        }
        let state = board.read()?;
        let calls = wake(&state);
        let (role, agent, brief) = match self.task {
            Some(id) => {
                let task = state.require_task(&id)?;
                let usual = match task.status {
                    TaskStatus::ReadyForReview => BoardRole::CodeReviewer,
                    _ => BoardRole::Coder,
                };
                match self.role.unwrap_or(usual) {
                    BoardRole::CodeReviewer => {
                        let brief = prompts.reviewer(&state, &id)?;
                        (BoardRole::CodeReviewer, task.reviewing_by.clone(), brief)
                    }
                    BoardRole::Coder => {
                        let coder = task.assigned_to.clone();
                        if let Some(coder) = &coder {
                            prompts = prompts.with_plan(plan(context, &id, coder)?);
                        }
                        (BoardRole::Coder, coder, prompts.coder(&state, &id)?)
                    }
                    BoardRole::Planner => {
                        return Err(Failure::usage("a planner's prompt is about no single task"));
                    }
                }
            }
            None if self.role != Some(BoardRole::Planner) => {
                return Err(Failure::usage("say which task it is about, with `--task ID`"));
            }
            None => {
                let agent = planner(context, &state)?;
                let brief = prompts.planner(&state, &agent, &calls)?;
                (BoardRole::Planner, Some(agent), brief)
            }
        };
        let calls = if role == BoardRole::Planner { calls } else { Vec::new() };
        let object = json!({
            "agent": agent, "role": role, "wake": calls, "documents": brief.documents,
            "prompt": brief.text,
        });
        context.out.print_answer(&object, brief.text.trim_end_matches('\n'))
    }

    fn show_form(&self, context: &Context, prompts: &PromptBuilder, role: BoardRole) -> Outcome {
        let (path, own) = (prompts.template_path(role), prompts.template(role)?);
        if self.write && own.is_some() {
            return Err(Failure::refused(format!("{} already exists", path.display())));
        }
        let text = own.as_deref().unwrap_or_else(|| role.template());
        if self.write {
            let directory = path.parent().unwrap_or(&path);
            std::fs::create_dir_all(directory)
                .map_err(|error| Error::io("create directory", directory, error))?;
            write_document(&path, text.as_bytes(), Durability::Process)?;
        }
        let is_own = self.write || own.is_some();
        let form = json!({ "role": role, "path": path, "is_own": is_own, "template": text });
        match self.write {
            true => context.out.print_answer(&form, format!("wrote {}: change it", path.display())),
            false => context.out.print_answer(&form, text.trim_end_matches('\n')),
        }
    }
}

/// How far the plan of a coder's task has come. Without a queue there are no plans.
fn plan(context: &Context, task: &Name, coder: &Name) -> Outcome<Option<PlanStanding>> {
    if !context.project()?.queue.is_dir() && !context.project()?.is_shared()? {
        return Ok(None);
    }
    Ok(plan_standing(ProjectQueue::open(context)?.request_store(), task, coder)?)
}

/// The agent that runs this command, or otherwise the registered planner.
fn planner(context: &Context, state: &State) -> Outcome<Name> {
    if let Some(agent) = context.agent()? {
        return Ok(agent);
    }
    let is_planner = |agent: &ensemble_team::board::BoardAgent| {
        agent.role.as_deref() == Some(BoardRole::Planner.as_str())
    };
    let registered = state.agents.iter().find(|(_, agent)| is_planner(agent));
    registered.map(|(name, _)| name.clone()).ok_or_else(|| {
        Failure::usage("no planner is registered").with_hint("say who it is for with `--as NAME`")
    })
}
