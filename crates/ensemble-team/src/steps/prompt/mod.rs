//! The focused prompt: everything that a worker with a small context needs for one step, and
//! nothing else (seed 003, "Focused Prompt Structure").
//!
//! Only resources that are linked to the task or the step are shown. A small text is shown whole.
//! Of a large text, the lines that declare something are shown with their numbers. Binary, missing
//! and unreadable files are only named, with the reason. Each file has its size and a prefix of its
//! SHA-256. What was shown is stored with the run ([`ShownFile`]), as a record of what the worker knew.
//! Content is fenced with more backticks than it contains, so it cannot end its fence.
//!
//! A queue may have its own template. It may use `{{role}}`, `{{goal}}`, `{{context_files}}`,
//! `{{instructions}}`, `{{constraints}}`, `{{output_requirement}}`, `{{task_id}}`,
//! `{{step_index}}`, `{{attempt}}` and `{{attempts_max}}`.

use super::StepError;
use super::db::{row_type, values};

use super::rows::{self, StepView};
use super::{ClaimedStep, StepStore};
use crate::proto::step::TddPhase;
use crate::template::TemplateForm;
use ensemble_core::message::{Digest, Name};
use ensemble_core::{Error, Result};
use history::HandoutHistory;

mod context;
mod history;
mod leftovers;
mod skeleton;
#[cfg(test)]
mod tests;

pub use crate::template::TemplateError;
pub use context::{FileDisplay, ShownFile};
pub use leftovers::{FindLeftovers, Leftovers};

const TEMPLATE: &str = "\
ROLE: {{role}}
GOAL: {{goal}}
CONTEXT FILES:
{{context_files}}

INSTRUCTIONS:
{{instructions}}

CONSTRAINTS:
{{constraints}}

OUTPUT REQUIREMENT:
{{output_requirement}}
";

const FORM: TemplateForm = TemplateForm {
    names: &[
        "role",
        "goal",
        "context_files",
        "instructions",
        "constraints",
        "output_requirement",
        "task_id",
        "step_index",
        "attempt",
        "attempts_max",
    ],
    required: &[("output_requirement", "a worker must learn how to report")],
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepPrompt {
    pub text: String,
    pub sha256: Digest,
    pub shown: Vec<ShownFile>,
}

struct LeftContext {
    step_index: u32,
    agent: Name,
    text: String,
}

row_type! { LeftContext: step_index, agent, text }

struct PromptMaterial {
    step: StepView,
    constraints: Vec<String>,
    template: Option<String>,
    resources: Vec<(String, bool)>,
    left: Option<LeftContext>,
    history: HandoutHistory,
}

impl StepStore {
    /// The prompt for a step that was handed out, with the files as they are now.
    pub fn prompt(&self, handed: &ClaimedStep) -> Result<StepPrompt> {
        let material = self.material(handed)?;
        // No transaction is open: finding them may take a while.
        let lost = material.history.lost_by().zip(self.options.leftovers.as_ref());
        let leftovers = lost.and_then(|(agent, find)| find(agent));
        let (files, shown) = context::render(&self.options.root, &material.resources);
        let template = material.template.as_deref().unwrap_or(TEMPLATE);
        let value = |name: &str| {
            Some(match name {
                "role" => handed.agent.to_string(),
                "goal" => handed.goal.trim().to_owned(),
                "context_files" => context_files(material.left.as_ref(), &files),
                "instructions" => numbered(&instructions(handed, &material, leftovers.as_ref())),
                "constraints" => dashed(&constraints(&material)),
                "output_requirement" => output_requirement(handed),
                "task_id" => handed.key.task_id.clone(),
                "step_index" => handed.key.step_index.to_string(),
                "attempt" => handed.attempt.to_string(),
                "attempts_max" => handed.attempts_max.to_string(),
                _ => return None,
            })
        };
        let text = FORM
            .fill(template, value)
            .map_err(|error| Error::malformed(&self.path, "template", error.to_string()))?;
        Ok(StepPrompt { sha256: Digest::of(text.as_bytes()), text, shown })
    }

    /// Stores which message carried the prompt of a run, and what the prompt showed.
    pub fn note_prompt(
        &self,
        handed: &ClaimedStep,
        message: Option<&str>,
        prompt: &StepPrompt,
    ) -> Result<()> {
        let shown = serde_json::to_string(&prompt.shown).unwrap_or_default();
        self.write("remember a prompt in", |tx| {
            Ok(tx.execute(
                "UPDATE step_runs SET prompt_message = coalesce(?4, prompt_message), \
                   prompt_sha256 = ?5, shown = ?6 \
                 WHERE task_id = ?1 AND step_index = ?2 AND epoch = ?3",
                values![
                    handed.key.task_id,
                    handed.key.step_index,
                    handed.epoch,
                    message,
                    prompt.sha256.to_string(),
                    shown,
                ],
            )?)
        })
    }

    fn material(&self, handed: &ClaimedStep) -> Result<PromptMaterial> {
        let key = &handed.key;
        let found = self.read(|tx| {
            let Some(queue) = rows::find_queue(tx, &key.task_id, false)? else { return Ok(None) };
            let Some(step) = rows::find_step(tx, key)? else { return Ok(None) };
            let resources = tx.all("SELECT path, max(CASE WHEN access = 'write' THEN 1 ELSE 0 END) FROM task_resources \
                     WHERE task_id = ?1 AND step_index IN (-1, ?2) \
                     GROUP BY path ORDER BY max(step_index) DESC, min(number)", values![key.task_id, key.step_index])?;
            let left = tx.first("SELECT r.step_index, r.agent, r.context_for_next_step FROM task_queues q \
                     JOIN step_runs r ON r.task_id = q.task_id AND r.step_index = q.context_step \
                       AND r.epoch = q.context_epoch WHERE q.task_id = ?1", values![key.task_id])?;
            let history = HandoutHistory::read(tx, &step, handed.epoch)?;
            let (constraints, template) = (queue.constraints, queue.template);
            Ok(Some(PromptMaterial { step, constraints, template, resources, left, history }))
        })?;
        Ok(found.ok_or_else(|| StepError::NoStep { key: key.clone() })?)
    }
}

fn context_files(left: Option<&LeftContext>, files: &str) -> String {
    let mut text = String::new();
    if let Some(left) = left {
        let from = format!("from step {}, by {}", left.step_index, left.agent);
        text.push_str(&context::entry(&from, "its message to the next agent", &left.text));
    }
    text.push_str(files);
    if text.is_empty() {
        text.push_str("- none\n");
    }
    text.pop();
    text
}

fn instructions(
    handed: &ClaimedStep,
    material: &PromptMaterial,
    leftovers: Option<&Leftovers>,
) -> Vec<String> {
    let mut all = material.history.instructions(handed, material.step.phase, leftovers);
    if let Some(note) = &material.step.note {
        let blockers = material.step.blockers.join("; ");
        let was = if blockers.is_empty() { String::new() } else { format!(" (was: {blockers})") };
        all.push(format!("Note what has changed since: {note}{was}"));
    }
    all.extend(material.step.instructions.iter().cloned());
    if all.is_empty() {
        all.push("Reach the goal.".to_owned());
    }
    all
}

fn constraints(material: &PromptMaterial) -> Vec<String> {
    let mut all: Vec<String> =
        material.constraints.iter().chain(&material.step.constraints).cloned().collect();
    let is_fix = material.step.fixes.is_some();
    let rule = material.step.phase.map(|phase| match phase {
        TddPhase::Red if is_fix => {
            "Strict TDD, red: fix the test with the smallest change; change no implementation."
        }
        TddPhase::Green if is_fix => {
            "Strict TDD, green: make the smallest change that removes the error; all tests pass, \
             and none is weakened."
        }
        TddPhase::Red => {
            "Strict TDD, red: write a test that fails for the right reason; change no implementation."
        }
        TddPhase::Green => {
            "Strict TDD, green: write the least that makes the tests pass; change no test."
        }
        TddPhase::Refactor => {
            "Strict TDD, refactor: improve the structure only; all tests pass before and after."
        }
        TddPhase::Review => {
            "Strict TDD, review: change nothing; report `failure` with what is wrong, or `success`."
        }
    });
    all.extend(rule.map(str::to_owned));
    let files: Vec<&str> =
        material.resources.iter().filter(|(_, write)| *write).map(|(path, _)| &**path).collect();
    // The files to fix are a guess, unless the plan lists them.
    let is_guess = is_fix && material.step.fix_files.is_empty();
    match files.join(", ") {
        files if files.is_empty() => {}
        files if is_guess => all.push(format!(
            "Change only what the fix needs. No other step works on {files} until then."
        )),
        files => all.push(format!("Change only these files: {files}.")),
    }
    if material.step.needs_plan {
        let plan = material.step.key.plan_name();
        all.push(format!(
            "First submit a plan for the task `{plan}` (tool plan_approval, or `ensemble request plan FILE --task \
             {plan}`), and change nothing before it is approved; an approved one stays approved."
        ));
    }
    all.push("No placeholders: write complete code and text.".to_owned());
    all
}

/// The seed's sentence, and the values for the tool's arguments.
fn output_requirement(handed: &ClaimedStep) -> String {
    let (task_id, index, agent) = (&handed.key.task_id, handed.key.step_index, &handed.agent);
    format!(
        "You must Call the Tool `submit_step_completion` with your JSON result. Do NOT output the \
         JSON in text.\n\
         It is about task_id \"{task_id}\", step_index {index}, agent \"{agent}\". `status` is \
         success, failure (state the error in `summary`) or blocked (state why in `blockers`).\n\
         Without that tool, pipe the same JSON into `ensemble step submit --epoch {} -`.",
        handed.epoch
    )
}

fn numbered(items: &[String]) -> String {
    let line = |(number, item): (usize, &String)| format!("{}. {}", number + 1, item.trim());
    items.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
}

fn dashed(items: &[String]) -> String {
    items.iter().map(|item| format!("- {}", item.trim())).collect::<Vec<_>>().join("\n")
}
