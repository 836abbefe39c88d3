//! The documents of work: `tasks/<worker>-task.yaml`, and Conductor's instruction with several
//! tasks.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::document::{Contract, ContractKind};
use super::node::DocumentNode;
use super::reader::{FieldReader, line_of};
use super::words::{InstructionType, Pattern, Workflow};
use ensemble_core::message::fields::TASK_ID_FIELDS;

pub const WORKERS_MAX: u64 = 4;

/// A task for one worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkerTask {
    /// The task's name.
    pub id: String,
    /// Description of the work.
    pub instruction: String,
    /// Files that the task is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// The task's workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<Workflow>,
    /// Time at which the task was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    /// Tasks that must be done first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked_by: Vec<String>,
    /// Fields that the contract does not know.
    #[serde(flatten)]
    pub extra: Map<String, Json>,
}

impl WorkerTask {
    pub fn new(id: impl Into<String>, instruction: impl Into<String>) -> Self {
        Self { id: id.into(), instruction: instruction.into(), ..Self::default() }
    }

    fn read_item(name: String, node: &DocumentNode, fields: &mut FieldReader<'_>) -> Self {
        let Some(below) = node.fields() else {
            let detail = format!("is {}, not a task", node.kind());
            let hint = format!("write `- id: …` and `instruction: {}`", line_of(node));
            fields.problem(node.line, &name, detail, hint);
            return Self::default();
        };
        let mut fields = FieldReader::below(format!("{name}."), below, fields.problems());
        Self::read("", &mut fields)
    }
}

impl Contract for WorkerTask {
    const KIND: ContractKind = ContractKind::Task;
    const SIGNATURE: &'static [&'static str] = &["instruction", "blocked_by", "blockedby"];

    fn read(_file: &str, fields: &mut FieldReader<'_>) -> Self {
        let instruction = &["instruction", "instructions", "description", "prompt", "task", "goal"];
        Self {
            id: fields.required_text(&TASK_ID_FIELDS, "name the task, as in `id: task-001`"),
            instruction: fields.required_text(instruction, "say what is to be done"),
            files: fields.texts(&["files", "file"]),
            workflow: fields.choice(&["workflow"], Workflow::SPELLINGS),
            created_at: fields.text(&["created_at", "at", "timestamp"]),
            blocked_by: fields.texts(&["blocked_by", "blockedby", "depends_on", "dependencies"]),
            extra: fields.rest(),
        }
    }
}

/// Conductor's orders: `queue/conductor/dispatch-instruction.yaml`, or a message of the type
/// `dispatch.instruction`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Instruction {
    /// Kind of workers to start.
    #[serde(rename = "type")]
    pub kind: InstructionType,
    /// Number of workers, 1 to 4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_count: Option<u64>,
    /// The agent program of the workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_agent: Option<String>,
    /// How the workers are isolated from each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_isolation: Option<String>,
    /// Skills of the workers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub worker_skills: Vec<String>,
    /// The tasks.
    pub tasks: Vec<WorkerTask>,
    /// Time of the instruction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    /// The workflow of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<Workflow>,
    /// How the work is distributed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<Pattern>,
    /// Fields that the contract does not know.
    #[serde(flatten)]
    pub extra: Map<String, Json>,
}

impl Instruction {
    pub fn new(tasks: Vec<WorkerTask>) -> Self {
        Self { tasks, ..Self::default() }
    }
}

impl Contract for Instruction {
    const KIND: ContractKind = ContractKind::Instruction;
    const SIGNATURE: &'static [&'static str] = &["tasks", "worker_count"];

    fn read(_file: &str, fields: &mut FieldReader<'_>) -> Self {
        let kind = fields.required_choice(&["type", "kind"], InstructionType::SPELLINGS);
        let worker_count = fields.count(&["worker_count", "workers", "count"]);
        if let Some(count) = worker_count.filter(|count| !(1..=WORKERS_MAX).contains(count)) {
            let hint = format!("ask for 1 to {WORKERS_MAX} workers");
            fields.problem(0, "worker_count", format!("is {count}"), hint);
        }
        let items = fields.items(&["tasks"]);
        let tasks: Vec<WorkerTask> = items
            .into_iter()
            .map(|(name, node)| WorkerTask::read_item(name, node, fields))
            .collect();
        if tasks.is_empty() {
            fields.problem(0, "tasks", "is missing", "list the tasks: `- id: …`, `instruction: …`");
        }
        for (task, why) in order_problems(&tasks) {
            fields.problem(0, &format!("tasks: {task}"), why, "name tasks of this list, in order");
        }
        Self {
            kind: kind.unwrap_or_default(),
            worker_count,
            worker_agent: fields.text(&["worker_agent", "agent"]),
            worker_isolation: fields.text(&["worker_isolation", "isolation"]),
            worker_skills: fields.texts(&["worker_skills", "skills"]),
            tasks,
            created_at: fields.text(&["created_at", "at", "timestamp"]),
            workflow: fields.choice(&["workflow"], Workflow::SPELLINGS),
            pattern: fields.choice(&["pattern"], Pattern::SPELLINGS),
            extra: fields.rest(),
        }
    }
}

/// Problems in the order of tasks: duplicate names, unknown dependencies and cycles.
fn order_problems(tasks: &[WorkerTask]) -> Vec<(String, String)> {
    let mut problems = Vec::new();
    let mut place = HashMap::new();
    for (index, task) in tasks.iter().enumerate() {
        if !task.id.is_empty() && place.insert(task.id.as_str(), index).is_some() {
            problems.push((task.id.clone(), "appears twice".to_owned()));
        }
    }
    let mut waits_for = vec![Vec::new(); tasks.len()];
    let mut left = vec![0_usize; tasks.len()];
    for (index, task) in tasks.iter().enumerate() {
        for before in &task.blocked_by {
            match place.get(before.as_str()) {
                Some(&other) => {
                    waits_for[other].push(index);
                    left[index] += 1;
                }
                None => problems
                    .push((task.id.clone(), format!("waits for `{before}`, which does not exist"))),
            }
        }
    }
    let mut free: Vec<usize> = (0..tasks.len()).filter(|index| left[*index] == 0).collect();
    while let Some(done) = free.pop() {
        for &next in &waits_for[done] {
            left[next] -= 1;
            if left[next] == 0 {
                free.push(next);
            }
        }
    }
    if let Some(index) = left.iter().position(|count| *count > 0) {
        problems.push((tasks[index].id.clone(), "waits for itself through others".to_owned()));
    }
    problems
}
