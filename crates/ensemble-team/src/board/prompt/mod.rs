//! The prompts that agents get when they start (seed 001, "Agent Startup Procedure").
//!
//! ```text
//! Mode: Liza coder                        the invocation, and
//! Resume task: task-3                     if an agent has worked on it before
//! === IDENTITY ===                        phase 1: identity, and how to verify it
//! === DOCUMENTS ===                       phase 2: documents to read, looked up
//! === STATE ===                           phase 3: goal, signals, tasks, agents, notes
//! === ASSIGNED TASK ===                   phase 4: the first action, with the seed's fields
//! ```
//!
//! A reviewer has `=== REVIEW TASK ===` instead, a planner `=== PLANNING CONTEXT ===`. Hand-over
//! notes of a task go to the next agent that works on it. Immediate discoveries go to planners.
//!
//! The task must be claimed before its prompt is built. A task that is not CLAIMED (or has no
//! reviewer) has no prompt. A project replaces a template by `prompts/coder.md`,
//! `prompts/code-reviewer.md` or `prompts/planner.md` beside the board. [`CODER`] and its siblings
//! list the fields of a template. Text by agents and people is shown with its continuation lines
//! indented, so that it cannot start a section.

use super::{BoardError, BoardObstacle};
use std::path::{Path, PathBuf};

use super::state::{BoardTask, State, TaskHold};
use super::steps::claimed_from;
use super::wake::PlannerCall;
use super::{ActiveControl, Board, project_in};
use crate::template::TemplateForm;
use ensemble_core::durable::Dir;
use ensemble_core::message::Name;
use ensemble_core::{Error, Result, allow_missing};

mod documents;
mod history;
mod instructions;
mod plan;
mod situation;
mod templates;

pub use crate::template::TemplateError;
pub use documents::{DocumentMatch, RequiredDocument};
pub use plan::{PlanStanding, SubmittedPlan};
pub use templates::{CODER, PLANNER, REVIEWER};

/// Directory of a project's own templates, beside the board.
pub const TEMPLATES: &str = "prompts";
const TEMPLATE_BYTES_MAX: usize = 64 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BoardRole {
    Planner,
    Coder,
    CodeReviewer,
}

impl BoardRole {
    pub const ALL: [Self; 3] = [Self::Planner, Self::Coder, Self::CodeReviewer];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Planner => "planner",
            Self::Coder => "coder",
            Self::CodeReviewer => "code-reviewer",
        }
    }

    pub const fn template(self) -> &'static str {
        match self {
            Self::Planner => PLANNER,
            Self::Coder => CODER,
            Self::CodeReviewer => REVIEWER,
        }
    }

    const fn form(self) -> &'static TemplateForm {
        match self {
            Self::Planner => &templates::PLANNER_FORM,
            Self::Coder => &templates::CODER_FORM,
            Self::CodeReviewer => &templates::REVIEWER_FORM,
        }
    }

    const fn protocols(self) -> [&'static str; 2] {
        match self {
            Self::Planner => ["task-lifecycle.md", "circuit-breaker.md"],
            Self::Coder | Self::CodeReviewer => ["task-lifecycle.md", "worktree-management.md"],
        }
    }
}

impl std::str::FromStr for BoardRole {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|role| role.as_str() == text);
        found.ok_or_else(|| format!("must be one of {}", Self::ALL.map(Self::as_str).join(", ")))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentBrief {
    pub text: String,
    pub documents: Vec<RequiredDocument>,
}

#[derive(Clone, Debug)]
pub struct PromptBuilder {
    /// The project's path as programs in a worktree see it.
    project: PathBuf,
    board: PathBuf,
    plan: Option<PlanStanding>,
    uncommitted: Vec<String>,
}

#[derive(Clone, Copy)]
struct PromptReader<'a> {
    role: BoardRole,
    agent: &'a Name,
    /// The agent's task and the epoch of its claim or review.
    task: Option<(&'a BoardTask, u64)>,
}

impl<'a> PromptReader<'a> {
    const fn new(role: BoardRole, task: &'a BoardTask, hold: TaskHold<'a>) -> Self {
        Self { role, agent: hold.by, task: Some((task, hold.epoch)) }
    }
}

impl PromptBuilder {
    pub fn of(board: &Board) -> Self {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let (project, board) = (real(board.project()), real(board.path()));
        Self { project, board, plan: None, uncommitted: Vec::new() }
    }

    /// With the files in the task's worktree that are not committed, for an agent that continues in it.
    pub fn with_uncommitted(self, uncommitted: Vec<String>) -> Self {
        Self { uncommitted, ..self }
    }

    pub fn with_plan(self, plan: Option<PlanStanding>) -> Self {
        Self { plan, ..self }
    }

    pub fn coder(&self, state: &State, id: &Name) -> Result<AgentBrief> {
        let task = state.require_task(id)?;
        let claim = task.hold().filter(|hold| !hold.is_review);
        let claim = claim.ok_or_else(|| not_held(id, "coder", BoardObstacle::NoCoder))?;
        let reader = PromptReader::new(BoardRole::Coder, task, claim);
        let documents = self.documents(state, &reader);
        let before = match is_resumed(state, task) {
            true => history::of_former_agents(state, task, &self.uncommitted),
            false => None,
        };
        let instructions = instructions::coder(state, task, self.plan.as_ref(), before);
        let value = |name: &str| self.of_task(task, name);
        self.fill(state, reader, documents, &instructions, value)
    }

    pub fn reviewer(&self, state: &State, id: &Name) -> Result<AgentBrief> {
        let task = state.require_task(id)?;
        let review = task.hold().filter(|hold| hold.is_review);
        let review = review.ok_or_else(|| not_held(id, "reviewer", BoardObstacle::NoReviewer))?;
        let reader = PromptReader::new(BoardRole::CodeReviewer, task, review);
        let documents = self.documents(state, &reader);
        let instructions = instructions::reviewer(task);
        let value = |name: &str| match name {
            "commit" => Some(said(task.review_commit.as_deref())),
            "author" => Some(said(task.assigned_to.as_ref().map(Name::as_str))),
            _ => self.of_task(task, name),
        };
        self.fill(state, reader, documents, &instructions, value)
    }

    /// The prompt for a planner that was started for these reasons; the first is its wake trigger.
    /// Without a reason the planner follows the seed's general decision tree.
    pub fn planner(
        &self,
        state: &State,
        agent: &Name,
        calls: &[PlannerCall],
    ) -> Result<AgentBrief> {
        let reader = PromptReader { role: BoardRole::Planner, agent, task: None };
        let documents = self.documents(state, &reader);
        let instructions = instructions::planner(state, calls);
        let value = |name: &str| match name {
            "wake_trigger" => Some(instructions::trigger(calls)),
            "sprint_state" => Some(situation::sprint(state)),
            _ => None,
        };
        self.fill(state, reader, documents, &instructions, value)
    }

    fn fill(
        &self,
        state: &State,
        reader: PromptReader<'_>,
        documents: Vec<RequiredDocument>,
        instructions: &[String],
        own: impl Fn(&str) -> Option<String>,
    ) -> Result<AgentBrief> {
        let role = reader.role;
        let controls = ActiveControl::read_all(self.board.parent().unwrap_or(&self.project))?;
        let value = |name: &str| {
            Some(match name {
                "mode" => format!("Mode: Liza {}", role.as_str()),
                "role" => role.as_str().to_owned(),
                "agent" => reader.agent.to_string(),
                "resume" => match reader.task {
                    Some((task, _)) if is_resumed(state, task) => {
                        format!("\nResume task: {}", task.id)
                    }
                    _ => String::new(),
                },
                "identity" => self.identity(state, &reader),
                "documents" => documents::listed(&documents),
                "state" => situation::text(state, &controls, &reader),
                "instructions" => numbered(instructions),
                _ => return own(name).filter(|_| role.form().names.contains(&name)),
            })
        };
        let own_form = self.template(role)?;
        let place = self.template_path(role);
        let text = role
            .form()
            .fill(own_form.as_deref().unwrap_or_else(|| role.template()), value)
            .map_err(|error| Error::malformed(&place, "template", error.to_string()))?;
        Ok(AgentBrief { text, documents })
    }

    fn of_task(&self, task: &BoardTask, name: &str) -> Option<String> {
        Some(match name {
            "task_id" => task.id.to_string(),
            "worktree" => match &task.worktree {
                Some(path) => {
                    let worktree = self.project.join(path);
                    line(&project_in(&self.project, &worktree).display().to_string())
                }
                None => "-".to_owned(),
            },
            "description" => said(task.description.as_deref()),
            "done_when" => said(task.done_when.as_deref()),
            "scope" => said(task.scope.as_deref()),
            _ => return None,
        })
    }

    fn identity(&self, state: &State, reader: &PromptReader<'_>) -> String {
        let PromptReader { role, agent, task } = reader;
        let mut lines = vec![
            format!("AGENT ID: {agent} (LIZA_AGENT_ID and ENSEMBLE_AGENT_ID say the same)"),
            format!("ROLE: {}", role.as_str()),
        ];
        if let Some(entry) = state.agents.get(agent) {
            lines.push(format!("REGISTRATION: {}", entry.epoch.unwrap_or_default()));
        }
        if let Some((_, epoch)) = task {
            lines.push(format!(
                "EPOCH: {epoch} (of this task; writes with an older epoch are rejected)"
            ));
        }
        lines.push(format!("BLACKBOARD: {}", line(&self.board.display().to_string())));
        lines.push(
            "Verify it before anything else: `ensemble agent verify`. If that fails, exit with 1."
                .to_owned(),
        );
        lines.join("\n")
    }

    /// Phase 2, and the specification of the task.
    fn documents(&self, state: &State, reader: &PromptReader<'_>) -> Vec<RequiredDocument> {
        let goal = state.goal.as_ref().and_then(|goal| goal.spec_ref.as_deref());
        let role = format!("specs/architecture/roles.md#{}", reader.role.as_str());
        let mut wanted = vec![
            (goal.unwrap_or("specs/vision.md").to_owned(), "the goal"),
            (role, "your abilities and permissions"),
        ];
        let protocol = |name: &str| (format!("specs/protocols/{name}"), "how it is done here");
        wanted.extend(reader.role.protocols().map(protocol));
        if let Some(spec) = reader.task.and_then(|(task, _)| task.spec_ref.as_deref()) {
            wanted.push((spec.to_owned(), "what this task is about"));
        }
        let found = wanted.into_iter().map(|(place, why)| {
            let found = documents::find(&self.project, &place);
            RequiredDocument { place, why, found }
        });
        found.collect()
    }

    pub fn template_path(&self, role: BoardRole) -> PathBuf {
        let directory = self.board.parent().unwrap_or(&self.project);
        directory.join(TEMPLATES).join(format!("{}.md", role.as_str()))
    }

    /// A project's own template for a role, if it has one; a shell makes an empty file before it writes one.
    pub fn template(&self, role: BoardRole) -> Result<Option<String>> {
        let path = self.template_path(role);
        let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str()))
        else {
            return Ok(None);
        };
        let Some(dir) = allow_missing(Dir::open(parent))? else { return Ok(None) };
        let bytes = dir.read(name, TEMPLATE_BYTES_MAX)?;
        let text = bytes.map(|bytes| super::utf8(&bytes, &path)).transpose()?;
        Ok(text.filter(|text| !text.trim().is_empty()))
    }
}

fn not_held(id: &Name, role: &str, why: BoardObstacle) -> Error {
    BoardError::not_allowed(format!("build the {role}'s prompt for task `{id}`"), why)
}

/// Whether an agent worked on the task before, at this claim or an earlier one, or hand-over notes exist.
fn is_resumed(state: &State, task: &BoardTask) -> bool {
    let is_begun = |event: &&str| claimed_from(event).is_some() || *event == "iteration";
    let begun = task.history.iter().map(|line| line.event.as_str()).filter(is_begun);
    notes_of(state, task).is_some() || begun.count() > 1
}

/// Hand-over notes that wait for the next agent at a task.
fn notes_of<'a>(
    state: &'a State,
    task: &BoardTask,
) -> Option<&'a serde_json::Map<String, serde_json::Value>> {
    state.handoff.get(&task.id).filter(|_| task.handoff_pending != Some(false))
}

/// Text by agents and people, without control characters and with continuation lines indented.
fn said(text: Option<&str>) -> String {
    let text = text.map(str::trim).filter(|text| !text.is_empty()).unwrap_or("-");
    let kept = |c: &char| !c.is_control() || *c == '\n' || *c == '\t';
    let clean: String = text.chars().filter(kept).collect();
    let indented =
        |line: &str| if line.trim().is_empty() { String::new() } else { format!("  {line}") };
    let mut lines = clean.lines();
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |text, line| text + "\n" + &indented(line))
}

fn line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn numbered(items: &[String]) -> String {
    let line = |(number, item): (usize, &String)| format!("{}. {item}", number + 1);
    items.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
}
