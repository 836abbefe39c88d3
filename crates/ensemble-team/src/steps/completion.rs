//! The completion tool: a worker's report in the seed's exact form (seed 003, "Tool Definition:
//! `submit_step_completion`").

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::StepKey;
use crate::proto::step::{StepRefusal, StepReport};
use ensemble_core::message::fields::{is_absent, unwrap_value, with_known_names};
use ensemble_core::message::{Digest, Name, nearest};
use ensemble_reports::contract::{self, count_of, listed_in};

pub const COMPLETION_TOOL: &str = "submit_step_completion";
pub const ARTIFACTS_MAX: usize = 512;
pub const BLOCKERS_MAX: usize = 64;
pub const SUMMARY_BYTES_MAX: usize = 16 * 1024;
pub const CONTEXT_BYTES_MAX: usize = 32 * 1024;
const ID_BYTES_MAX: usize = 128;
const MEMBERS: [&str; 8] = [
    "task_id",
    "step_index",
    "agent",
    "status",
    "artifacts",
    "summary",
    "context_for_next_step",
    "blockers",
];
const UNKNOWN_MAX: usize = 8;
/// Longest part of an unknown member's name that an error shows, in characters.
const UNKNOWN_CHARS_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CompletionStatus {
    Success,
    Failure,
    Blocked,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Completion {
    pub task_id: String,
    pub step_index: u32,
    pub agent: Name,
    pub status: CompletionStatus,
    pub artifacts: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_for_next_step: Option<String>,
    pub blockers: Vec<String>,
}

/// All mistakes of a report at once, so that a worker can correct them in one try.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing was submitted: {}", .0.join("; "))]
pub struct ReportMistakes(Vec<String>);

impl ReportMistakes {
    /// One sentence for each mistake, beginning with the field.
    pub fn sentences(&self) -> &[String] {
        &self.0
    }
}

impl Completion {
    pub fn new(key: StepKey, agent: Name, status: CompletionStatus) -> Self {
        Self {
            task_id: key.task_id,
            step_index: key.step_index,
            agent,
            status,
            artifacts: Vec::new(),
            summary: None,
            context_for_next_step: None,
            blockers: Vec::new(),
        }
    }

    /// Reads the tool's arguments as models write them: `1.0` and `"1"` are 1, `taskId` is `task_id`, and a text is a list
    /// of its lines, or of words with commas. A fraction is a mistake. `null`, `None` and `n/a` count as absent. An unknown
    /// member is a mistake: a report counts once, so what it says must not be lost.
    pub fn from_json(value: &Value) -> Result<Self, ReportMistakes> {
        let Some(given) = value.as_object() else {
            let what = kind(value);
            return Err(ReportMistakes(vec![format!(
                "the arguments are {what}: pass one JSON object"
            )]));
        };
        let object = &with_known_names(given, &|name| MEMBERS.contains(&name));
        let mut fields = ArgumentFields { object, mistakes: unknown(object) };
        let task_id = fields.note(fields.required("task_id"));
        let step_index = fields.note(fields.index());
        let agent = fields.note(fields.agent());
        let status = fields.note(fields.status());
        let artifacts = fields.list("artifacts", ARTIFACTS_MAX);
        let summary = fields.note(fields.text("summary", SUMMARY_BYTES_MAX)).flatten();
        let context = fields.text("context_for_next_step", CONTEXT_BYTES_MAX);
        let context_for_next_step = fields.note(context).flatten();
        let blockers = fields.list("blockers", BLOCKERS_MAX);
        match status {
            Some(CompletionStatus::Blocked) if blockers.is_empty() => {
                fields.mistakes.push(format!("blockers: {}", StepRefusal::NoReasons));
            }
            Some(CompletionStatus::Failure) if summary.is_none() && blockers.is_empty() => {
                fields.mistakes.push(format!("summary: {}", StepRefusal::NoError));
            }
            Some(_) | None => {}
        }
        match (task_id, step_index, agent, status) {
            (Some(task_id), Some(step_index), Some(agent), Some(status))
                if fields.mistakes.is_empty() =>
            {
                let report = Self::new(StepKey::new(task_id, step_index), agent, status);
                Ok(Self { artifacts, summary, context_for_next_step, blockers, ..report })
            }
            _ => Err(ReportMistakes(fields.mistakes)),
        }
    }

    pub fn key(&self) -> StepKey {
        StepKey::new(self.task_id.clone(), self.step_index)
    }

    /// Digest by which repeated reports are recognized.
    pub(super) fn digest(&self) -> Digest {
        Digest::of(&serde_json::to_vec(self).unwrap_or_default())
    }

    pub(super) fn report(&self) -> StepReport {
        match self.status {
            CompletionStatus::Success => StepReport::Success,
            CompletionStatus::Failure => StepReport::Failure { error: self.error() },
            CompletionStatus::Blocked => StepReport::Blocked { reasons: self.blockers.clone() },
        }
    }

    fn error(&self) -> String {
        let parts: Vec<&str> =
            self.summary.iter().chain(&self.blockers).map(String::as_str).collect();
        parts.join("\n")
    }
}

struct ArgumentFields<'a> {
    object: &'a Map<String, Value>,
    mistakes: Vec<String>,
}

impl ArgumentFields<'_> {
    fn get(&self, field: &str) -> Option<&Value> {
        self.object.get(field).filter(|value| !value.is_null())
    }

    /// What was read; an error is a mistake.
    fn note<T>(&mut self, read: Result<T, String>) -> Option<T> {
        read.map_err(|mistake| self.mistakes.push(mistake)).ok()
    }

    fn text(&self, field: &str, bytes_max: usize) -> Result<Option<String>, String> {
        let text = match self.get(field) {
            None => return Ok(None),
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            Some(other) => return Err(format!("{field}: is {}: pass a string", kind(other))),
        };
        if text.len() > bytes_max {
            let bytes = text.len();
            return Err(format!(
                "{field}: has {bytes} bytes, the limit is {bytes_max}: shorten it, or put it \
                 into a file and name that in `artifacts`"
            ));
        }
        Ok((!is_absent(&text)).then_some(text))
    }

    fn required(&self, field: &str) -> Result<String, String> {
        let text = self.text(field, ID_BYTES_MAX)?;
        let text = text.ok_or_else(|| format!("{field}: is missing: copy it from the prompt"))?;
        Ok(unwrap_value(&text).to_owned())
    }

    fn agent(&self) -> Result<Name, String> {
        self.required("agent")?.parse().map_err(|error| format!("agent: {error}"))
    }

    fn index(&self) -> Result<u32, String> {
        let value = self.get("step_index");
        let value = value.ok_or("step_index: is missing: copy it from the prompt")?;
        let index = count_of(value).and_then(|index| u32::try_from(index).ok());
        index
            .ok_or_else(|| format!("step_index: {value} is not a step: pass a whole number like 1"))
    }

    fn status(&self) -> Result<CompletionStatus, String> {
        let wrong = match self.get("status") {
            Some(Value::String(word)) => match contract::Status::read(word) {
                Some(contract::Status::Success) => return Ok(CompletionStatus::Success),
                Some(contract::Status::Failed) => return Ok(CompletionStatus::Failure),
                Some(contract::Status::Blocked) => return Ok(CompletionStatus::Blocked),
                None => format!("`{}` is unknown", word.chars().take(64).collect::<String>()),
            },
            Some(other) => format!("is {}", kind(other)),
            None => "is missing".to_owned(),
        };
        Err(format!("status: {wrong}: pass success, failure or blocked"))
    }

    fn list(&mut self, field: &str, most: usize) -> Vec<String> {
        let texts: Option<Vec<String>> = match self.get(field) {
            None => return Vec::new(),
            Some(Value::Array(items)) => {
                items.iter().map(|item| item.as_str().map(str::to_owned)).collect()
            }
            Some(Value::String(text)) => {
                Some(listed_in(text).into_iter().map(str::to_owned).collect())
            }
            Some(other) => {
                let what = kind(other);
                self.mistakes.push(format!("{field}: is {what}: pass a list of strings"));
                return Vec::new();
            }
        };
        let Some(texts) = texts else {
            self.mistakes.push(format!("{field}: has an entry that is not a string"));
            return Vec::new();
        };
        let found = texts.len();
        if found > most || texts.iter().any(|text| text.len() > SUMMARY_BYTES_MAX) {
            self.mistakes.push(format!(
                "{field}: has {found} entries; allowed are {most} of {SUMMARY_BYTES_MAX} bytes each"
            ));
        }
        texts.into_iter().filter(|text| !is_absent(text)).collect()
    }
}

fn unknown(object: &Map<String, Value>) -> Vec<String> {
    let mut names = object.keys().filter(|name| !MEMBERS.contains(&name.as_str()));
    let mut mistakes: Vec<String> =
        names.by_ref().take(UNKNOWN_MAX).map(|name| alien(name)).collect();
    let more = names.count();
    mistakes.extend((more > 0).then(|| format!("{more} more unknown members")));
    mistakes
}

fn alien(name: &str) -> String {
    let shown: String = name.chars().take(UNKNOWN_CHARS_MAX).collect();
    let advice = match nearest(&shown, MEMBERS).first() {
        Some(member) => format!("write `{member}`"),
        None => format!("leave it out; the members are {}", MEMBERS.join(", ")),
    };
    format!("{}: is not a member of {COMPLETION_TOOL}: {advice}", shown.escape_debug())
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The JSON Schema of the tool's arguments, word for word the seed's. `agents` are the names that
/// `agent` may have.
pub fn completion_schema(agents: &[Name]) -> Value {
    let mut agent = json!({ "type": "string" });
    if !agents.is_empty() {
        agent["enum"] = json!(agents);
    }
    json!({
        "type": "object",
        "properties": {
            "task_id": { "type": "string", "description": "e.g., '0-4-1'" },
            "step_index": { "type": "number", "description": "e.g., 1" },
            "agent": agent,
            "status": { "type": "string", "enum": ["success", "failure", "blocked"] },
            "artifacts": {
                "type": "array",
                "items": { "type": "string" },
                "description": "List of files created or modified"
            },
            "summary": { "type": "string", "description": "Brief description of what was done" },
            "context_for_next_step": {
                "type": "string", "description": "Info for the next agent"
            },
            "blockers": {
                "type": "array",
                "items": { "type": "string" },
                "description": "Reasons for being blocked"
            }
        },
        "required": ["task_id", "step_index", "agent", "status"]
    })
}
