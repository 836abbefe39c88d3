//! What is to be done: `tasks/<worker>-task.yaml`, and Conductor's instruction with several tasks.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::document::{Contract, Kind};
use super::node::Node;
use super::reader::{Reader, line_of};
use super::words::{InstructionType, Pattern, Workflow};

/// The most workers that an instruction may ask for.
pub const WORKERS_MAX: u64 = 4;

/// A piece of work for one worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Task {
    /// Its name.
    pub id: String,
    /// What is to be done.
    pub instruction: String,
    /// The files that it is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// How much process it gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<Workflow>,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    /// The tasks that have to be done before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked_by: Vec<String>,
    /// Fields that the contract does not know.
    #[serde(flatten)]
    pub extra: Map<String, Json>,
}

impl Task {
    /// A task with what it cannot do without.
    #[must_use]
    pub fn new(id: impl Into<String>, instruction: impl Into<String>) -> Self {
        Self { id: id.into(), instruction: instruction.into(), ..Self::default() }
    }

    fn read_fields(fields: &mut Reader<'_>) -> Self {
        let instruction = &["instruction", "instructions", "description", "prompt", "task", "goal"];
        Self {
            id: fields.required_text(&["id", "task_id"], "name the task, as in `id: task-001`"),
            instruction: fields.required_text(instruction, "say what is to be done"),
            files: fields.texts(&["files", "file"]),
            workflow: fields.choice(&["workflow"], Workflow::SPELLINGS),
            created_at: fields.text(&["created_at", "at", "timestamp"]),
            blocked_by: fields.texts(&["blocked_by", "blockedby", "depends_on", "dependencies"]),
            extra: Map::new(),
        }
    }

    fn read_item(name: String, node: &Node, fields: &mut Reader<'_>) -> Self {
        let Some(below) = node.fields() else {
            let detail = format!("is {}, not a task", node.kind());
            let hint = format!("write `- id: …` and `instruction: {}`", line_of(node));
            fields.problem(node.line, &name, detail, hint);
            return Self::default();
        };
        let mut fields = Reader::below(format!("{name}."), below, fields.problems());
        let mut task = Self::read_fields(&mut fields);
        task.extra = fields.rest();
        task
    }
}

impl Contract for Task {
    const KIND: Kind = Kind::Task;
    const SIGNATURE: &'static [&'static str] = &["instruction", "blocked_by", "blockedby"];

    fn read(_file: &str, fields: &mut Reader<'_>) -> Self {
        Self::read_fields(fields)
    }

    fn keep(&mut self, rest: Map<String, Json>) {
        self.extra = rest;
    }
}

/// What Conductor wants done: `queue/conductor/dispatch-instruction.yaml`, or a message of the type
/// `dispatch.instruction`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Instruction {
    /// What is to be started.
    #[serde(rename = "type")]
    pub kind: InstructionType,
    /// By how many workers, 1 to 4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_count: Option<u64>,
    /// Which agent they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_agent: Option<String>,
    /// How they are kept apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_isolation: Option<String>,
    /// What they are to know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub worker_skills: Vec<String>,
    /// The work.
    pub tasks: Vec<Task>,
    /// When it was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    /// How much process it gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<Workflow>,
    /// How it is spread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<Pattern>,
    /// Fields that the contract does not know.
    #[serde(flatten)]
    pub extra: Map<String, Json>,
}

impl Instruction {
    /// An instruction to start workers for these tasks.
    #[must_use]
    pub fn new(tasks: Vec<Task>) -> Self {
        Self {
            kind: InstructionType::StartWorkers,
            worker_count: None,
            worker_agent: None,
            worker_isolation: None,
            worker_skills: Vec::new(),
            tasks,
            created_at: None,
            workflow: None,
            pattern: None,
            extra: Map::new(),
        }
    }
}

impl Contract for Instruction {
    const KIND: Kind = Kind::Instruction;
    const SIGNATURE: &'static [&'static str] = &["tasks", "worker_count"];

    fn read(_file: &str, fields: &mut Reader<'_>) -> Self {
        let kind = fields.required_choice(&["type", "kind"], InstructionType::SPELLINGS);
        let worker_count = fields.count(&["worker_count", "workers", "count"]);
        if let Some(count) = worker_count.filter(|count| !(1..=WORKERS_MAX).contains(count)) {
            let hint = format!("ask for 1 to {WORKERS_MAX} workers");
            fields.problem(0, "worker_count", format!("is {count}"), hint);
        }
        let items = fields.items(&["tasks"]);
        let tasks: Vec<Task> =
            items.into_iter().map(|(name, node)| Task::read_item(name, node, fields)).collect();
        if tasks.is_empty() {
            fields.problem(0, "tasks", "is missing", "list the tasks: `- id: …`, `instruction: …`");
        }
        for (task, why) in order_problems(&tasks) {
            fields.problem(0, &format!("tasks: {task}"), why, "name tasks of this list, in order");
        }
        Self {
            kind: kind.unwrap_or(InstructionType::StartWorkers),
            worker_count,
            worker_agent: fields.text(&["worker_agent", "agent"]),
            worker_isolation: fields.text(&["worker_isolation", "isolation"]),
            worker_skills: fields.texts(&["worker_skills", "skills"]),
            tasks,
            created_at: fields.text(&["created_at", "at", "timestamp"]),
            workflow: fields.choice(&["workflow"], Workflow::SPELLINGS),
            pattern: fields.choice(&["pattern"], Pattern::SPELLINGS),
            extra: Map::new(),
        }
    }

    fn keep(&mut self, rest: Map<String, Json>) {
        self.extra = rest;
    }
}

/// Tasks of one name, tasks that wait for unknown ones, and tasks that wait for each other.
fn order_problems(tasks: &[Task]) -> Vec<(String, String)> {
    let mut problems = Vec::new();
    let mut place = HashMap::new();
    for (index, task) in tasks.iter().enumerate() {
        if !task.id.is_empty() && place.insert(task.id.as_str(), index).is_some() {
            problems.push((task.id.clone(), "is there twice".to_owned()));
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
                    .push((task.id.clone(), format!("waits for `{before}`, which is not there"))),
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
