//! Plans: all steps of a subtask, as a person or an orchestrator wrote them.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::FilePath;
use crate::proto::step::{ATTEMPTS_DEFAULT, ATTEMPTS_LIMIT, TddPhase, check_cycles};
use ensemble_core::message::period::read_seconds;
use ensemble_core::message::written::document;
use ensemble_core::message::{Digest, Name, ReservedName, yaml};
use ensemble_core::{Error, Result};

pub const PLAN_BYTES_MAX: usize = 4 * 1024 * 1024;
pub const STEPS_MAX: usize = 10_000;
/// How long a worker may give no sign of life, unless the plan sets it.
pub const LEASE_SECONDS_DEFAULT: u64 = 1_800;
const LEASE_SECONDS_MAX: u64 = 86_400;
const ID_BYTES_MAX: usize = 128;
const TEXT_BYTES_MAX: usize = 16 * 1024;
/// Most instructions, constraints or files of a step.
pub(super) const LIST_MAX: usize = 256;

const _: () = assert!(LEASE_SECONDS_DEFAULT <= LEASE_SECONDS_MAX);

/// All steps of a subtask (seed 003: "Orion generates all steps for a subtask upfront").
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StepPlan {
    /// The subtask, like `0-4-1`.
    pub task_id: String,
    /// Title of the subtask.
    #[serde(default)]
    pub title: String,
    /// The mailbox that gets notices when intervention is needed, and when all steps are done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orchestrator: Option<Name>,
    /// How many steps workers may hold at once (default 1: one after the other).
    #[serde(default = "one")]
    pub parallel: u32,
    /// Scope of a stuck step's pause: the `queue` (default) or only that `step`.
    #[serde(default)]
    pub blocked_pauses: PauseScope,
    /// The enforced order: `none` (default) or `tdd`.
    #[serde(default)]
    pub policy: Policy,
    /// How often a step is handed out before a person or the orchestrator must intervene (default
    /// 3).
    #[serde(default = "attempts")]
    pub attempts_max: u32,
    /// How long a worker may give no sign of life, in seconds (default 1800).
    #[serde(default = "lease", deserialize_with = "read_seconds")]
    #[cfg_attr(feature = "schema", schemars(with = "ensemble_core::message::ConfigDuration"))]
    pub lease_seconds: u64,
    /// Constraints that hold in each step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<String>,
    /// The prompt's template, if it is not the default; see [`super::prompt`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Files of the whole subtask, shown with each step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<LinkedFile>,
    /// The steps in order, numbered from 1.
    pub steps: Vec<PlannedStep>,
}

/// A file that is linked to a task or a step (the seed's CDP resource).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LinkedFile {
    /// Path, relative to the project's directory.
    pub path: FilePath,
    /// How the file is used.
    #[serde(default)]
    pub access: Access,
}

/// How a file is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// The file is shown.
    #[default]
    Read,
    /// The file is shown and worked on. No other step works on it at the same time.
    Write,
}

/// Scope of a stuck step's pause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum PauseScope {
    /// The whole queue, until a person or the orchestrator intervenes.
    #[default]
    Queue,
    /// Only the step itself.
    Step,
}

/// The enforced order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// The order of the plan.
    #[default]
    None,
    /// Red, Green, Refactor, Review in each cycle.
    Tdd,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PlannedStep {
    /// The agent that does the step.
    pub agent: Name,
    /// Goal of the step.
    pub goal: String,
    /// Instructions, one action each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instructions: Vec<String>,
    /// Constraints in addition to the plan's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<String>,
    /// Files that the step works on. No other step works on them at the same time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FilePath>,
    /// Files that are only shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<FilePath>,
    /// The agent that fixes what makes the step fail. It gets its own step for that, and then
    /// the failed step is handed out again, to its own agent. Without it, the step itself comes
    /// again at once, with the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix_by: Option<Name>,
    /// Files that such a fix may change, and no others. Without any, the fix locks the files of its
    /// agent's steps in the same cycle and those that the error names, and may change others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fix_files: Vec<FilePath>,
    /// Whether the step's agent needs an approved plan before it gets the step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plan: bool,
    /// Phase of the step, under the policy `tdd`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<TddPhase>,
    /// Cycle of the step, under the policy `tdd`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cycle: String,
}

impl PlannedStep {
    pub fn new(agent: Name, goal: impl Into<String>) -> Self {
        Self {
            agent,
            goal: goal.into(),
            instructions: Vec::new(),
            constraints: Vec::new(),
            files: Vec::new(),
            context: Vec::new(),
            fix_by: None,
            fix_files: Vec::new(),
            plan: false,
            phase: None,
            cycle: String::new(),
        }
    }

    pub fn with_files(mut self, files: impl IntoIterator<Item = FilePath>) -> Self {
        self.files.extend(files);
        self
    }

    fn check(&self, place: &str) -> Result<(), (String, String)> {
        for (field, name) in [("agent", Some(&self.agent)), ("fix_by", self.fix_by.as_ref())] {
            name.map_or(Ok(()), ReservedName::refuse_agent)
                .map_err(|reserved| (format!("{place}.{field}"), reserved.to_string()))?;
        }
        text(&format!("{place}.goal"), &self.goal, TEXT_BYTES_MAX)?;
        texts(&format!("{place}.instructions"), &self.instructions)?;
        texts(&format!("{place}.constraints"), &self.constraints)?;
        for (field, files) in
            [("files", &self.files), ("context", &self.context), ("fix_files", &self.fix_files)]
        {
            if files.len() > LIST_MAX {
                return Err((format!("{place}.{field}"), too_many(files.len(), LIST_MAX)));
            }
        }
        if self.fix_by.is_none() && !self.fix_files.is_empty() {
            let detail = "needs `fix_by`, the agent that may change them".to_owned();
            return Err((format!("{place}.fix_files"), detail));
        }
        Ok(())
    }
}

impl StepPlan {
    pub fn new(task_id: impl Into<String>, steps: Vec<PlannedStep>) -> Self {
        Self {
            task_id: task_id.into(),
            title: String::new(),
            orchestrator: None,
            parallel: one(),
            blocked_pauses: PauseScope::default(),
            policy: Policy::default(),
            attempts_max: attempts(),
            lease_seconds: lease(),
            constraints: Vec::new(),
            template: None,
            resources: Vec::new(),
            steps,
        }
    }

    /// Parses and checks a plan in YAML or JSON, perhaps in a fenced block.
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        if text.len() > PLAN_BYTES_MAX {
            return Err(Error::TooLarge {
                what: path.display().to_string(),
                bytes: text.len() as u64,
                limit: PLAN_BYTES_MAX as u64,
            });
        }
        let plan: Self = yaml::parse(&document(text), path)?;
        plan.check().map_err(|(field, detail)| Error::malformed(path, field, detail))?;
        Ok(plan)
    }

    /// The first invalid field and its problem.
    pub(super) fn check(&self) -> Result<(), (String, String)> {
        text("task_id", &self.task_id, ID_BYTES_MAX)?;
        if self.task_id.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(("task_id".to_owned(), "has blanks or control characters".to_owned()));
        }
        if !(1..=STEPS_MAX).contains(&self.steps.len()) {
            let detail = format!("has {}, must have 1 to {STEPS_MAX}", self.steps.len());
            return Err(("steps".to_owned(), detail));
        }
        within("attempts_max", u64::from(self.attempts_max), u64::from(ATTEMPTS_LIMIT))?;
        within("lease_seconds", self.lease_seconds, LEASE_SECONDS_MAX)?;
        within("parallel", u64::from(self.parallel), STEPS_MAX as u64)?;
        texts("constraints", &self.constraints)?;
        if self.resources.len() > LIST_MAX {
            return Err(("resources".to_owned(), too_many(self.resources.len(), LIST_MAX)));
        }
        for (number, step) in self.steps.iter().enumerate() {
            step.check(&format!("steps[{}]", number + 1))?;
        }
        if self.policy == Policy::Tdd {
            check_cycles(self.steps.iter().map(|step| (step.phase, step.cycle.as_str()))).map_err(
                |error| (format!("steps[{}].phase", error.step() + 1), error.to_string()),
            )?;
        }
        Ok(())
    }

    /// Digest by which the same plan is recognized.
    pub(super) fn digest(&self) -> Digest {
        Digest::of(&serde_json::to_vec(self).unwrap_or_default())
    }
}

fn text(field: &str, value: &str, bytes_max: usize) -> Result<(), (String, String)> {
    match value.len() {
        _ if value.trim().is_empty() => Err((field.to_owned(), "is empty".to_owned())),
        bytes if bytes > bytes_max => {
            Err((field.to_owned(), format!("has {bytes} bytes, the limit is {bytes_max}")))
        }
        _ => Ok(()),
    }
}

fn texts(field: &str, values: &[String]) -> Result<(), (String, String)> {
    if values.len() > LIST_MAX {
        return Err((field.to_owned(), too_many(values.len(), LIST_MAX)));
    }
    let mut numbered = values.iter().enumerate();
    numbered.try_for_each(|(n, value)| text(&format!("{field}[{}]", n + 1), value, TEXT_BYTES_MAX))
}

fn within(field: &str, value: u64, most: u64) -> Result<(), (String, String)> {
    match value {
        1.. if value <= most => Ok(()),
        _ => Err((field.to_owned(), format!("is {value}, must be 1 to {most}"))),
    }
}

fn too_many(found: usize, most: usize) -> String {
    format!("has {found} entries, the limit is {most}")
}

const fn one() -> u32 {
    1
}

const fn attempts() -> u32 {
    ATTEMPTS_DEFAULT
}

const fn lease() -> u64 {
    LEASE_SECONDS_DEFAULT
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        StepPlan::parse(text, Path::new("plan.yaml")).unwrap_err().to_string()
    }

    #[test]
    fn errors_name_file_and_field() {
        for (text, field) in [
            ("steps: []", "steps: has 0"),
            ("steps: [{agent: T, goal: ' '}]", "steps[1].goal: is empty"),
            ("steps: [{agent: ../T, goal: g}]", "line 2"),
            ("steps: [{agent: T, goal: g, files: [/etc/x]}]", "leaves the project"),
            ("steps: [{agent: T, gaol: g}]", "gaol"),
            ("steps: [{agent: T, goal: g, fix_files: [a]}]", "needs `fix_by`"),
            ("steps: [{agent: Watcher, goal: g}]", "steps[1].agent: `Watcher` is a"),
            ("steps: [{agent: T, goal: g, fix_by: operator}]", "[1].fix_by: `operator`"),
            ("lease_seconds: 0\nsteps: [{agent: T, goal: g}]", "lease_seconds: is 0"),
            ("policy: tdd\nsteps: [{agent: T, goal: g}]", "steps[1].phase: has no"),
            ("policy: tdd\nsteps: [{agent: T, goal: g, phase: green}]", "begin with `red`"),
        ] {
            let error = error(&format!("task_id: a\n{text}"));
            assert!(error.contains(field) && error.contains("plan.yaml"), "{text}: {error}");
        }
        let blanks = error("task_id: 'a b'\nsteps: [{agent: T, goal: g}]");
        assert!(blanks.contains("task_id: has blanks"), "{blanks}");
    }

    #[test]
    fn a_lease_is_read_as_people_write_a_duration() {
        for lease in ["90", "90s", "'1m 30s'", "\"90\""] {
            let text =
                format!("task_id: a\nlease_seconds: {lease}\nsteps: [{{agent: T, goal: g}}]");
            let plan = StepPlan::parse(&text, Path::new("plan.yaml")).unwrap();
            assert_eq!(plan.lease_seconds, 90, "{lease}");
        }
        let wrong = error("task_id: a\nlease_seconds: soon\nsteps: [{agent: T, goal: g}]");
        assert!(wrong.contains("`soon` is not a duration"), "{wrong}");
    }
}
