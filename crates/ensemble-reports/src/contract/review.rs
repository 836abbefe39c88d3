//! A review of a task's work: `reports/<task>-review.yaml`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::document::{Contract, ContractKind, stem};
use super::node::DocumentNode;
use super::reader::{FieldReader, line_of};
use super::words::{Severity, Verdict};
use ensemble_core::message::fields::{REVIEWER_FIELDS, WORKER_FIELDS};

/// A reviewer's report on a task's work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Review {
    /// The task.
    pub task_id: String,
    /// The reviewer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reviewer: Option<String>,
    /// The verdict.
    pub status: Verdict,
    /// Summary of the review.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Findings: required changes and observations.
    #[serde(default)]
    pub findings: Vec<ReviewFinding>,
    /// Time of the review.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reviewed_at: Option<String>,
    /// Fields that the contract does not know.
    #[serde(flatten)]
    pub extra: Map<String, Json>,
}

/// One finding of a review.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReviewFinding {
    /// Severity of the finding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<Severity>,
    /// Category: security, correctness, style …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// The file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line, starting at 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Description of the problem.
    pub description: String,
    /// Recommended action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recommendation: Option<String>,
    /// Fields that the contract does not know.
    #[serde(flatten)]
    pub extra: Map<String, Json>,
}

impl Review {
    pub fn new(task_id: impl Into<String>, status: Verdict) -> Self {
        Self { task_id: task_id.into(), status, ..Self::default() }
    }
}

impl ReviewFinding {
    /// Parses `[SEVERITY] [PATH[:LINE]:] PROBLEM [=> RECOMMENDATION]`, as people type it.
    pub fn parse(text: &str) -> Self {
        let mut finding = Self::default();
        let mut rest = text.trim();
        if let Some((first, more)) = rest.split_once(char::is_whitespace)
            && let Some(severity) = Severity::read(first.trim_matches(['[', ']', ':']))
            && first.chars().any(char::is_uppercase)
        {
            finding.severity = Some(severity);
            rest = more.trim_start();
        }
        let wide = rest.split_once('：').filter(|(place, _)| !place.contains(": "));
        if let Some((place, more)) = wide.or_else(|| rest.split_once(": "))
            && !place.contains(char::is_whitespace)
            && place.contains(['/', '.', ':'])
        {
            let FindingPlace { file, line, column } = place_of(place);
            (finding.file, finding.line) = (Some(file), line);
            finding.note_column(column);
            rest = more.trim_start();
        }
        let (what, remedy) = match rest.split_once("=>") {
            Some((what, remedy)) => (what.trim(), Some(remedy.trim())),
            None => (rest, None),
        };
        finding.description = what.to_owned();
        finding.recommendation = remedy.filter(|text| !text.is_empty()).map(str::to_owned);
        finding
    }

    fn read(name: String, node: &DocumentNode, fields: &mut FieldReader<'_>) -> Self {
        let Some(below) = node.fields() else {
            let finding = Self::parse(&line_of(node));
            if finding.description.is_empty() {
                let field = format!("{name}.description");
                fields.problem(node.line, &field, "is missing", "say what is wrong there");
            }
            return finding;
        };
        let mut fields = FieldReader::below(format!("{name}."), below, fields.problems());
        let place = fields.text(&["file", "path", "location", "where"]);
        let line = fields.text(&["line", "lines", "line_number"]).and_then(|text| lines_of(&text));
        let (file, line, column) = match (place.as_deref().map(place_of), line) {
            // The two lines differ: keep both.
            (Some(inside), Some(line)) if inside.line.is_some_and(|other| other != line) => {
                (place, Some(line), None)
            }
            (Some(inside), line) => (Some(inside.file), inside.line.or(line), inside.column),
            (None, line) => (None, line, None),
        };
        let description = &["description", "message", "issue", "detail", "title", "problem"];
        let mut finding = Self {
            severity: fields.choice(&["severity", "level", "priority"], Severity::SPELLINGS),
            category: fields.text(&["category", "kind", "type"]),
            file,
            line,
            description: fields.required_text(description, "say what is wrong there"),
            recommendation: fields.text(&["recommendation", "suggestion", "fix", "remedy"]),
            extra: fields.rest(),
        };
        finding.note_column(column);
        finding
    }

    fn note_column(&mut self, column: Option<u64>) {
        if let Some(column) = column {
            self.extra.entry("column").or_insert_with(|| column.into());
        }
    }
}

struct FindingPlace {
    file: String,
    line: Option<u64>,
    column: Option<u64>,
}

/// Parses `src/a.rs:45`, `src/a.rs:45-52` and `src/a.rs:45:7`; any other text is a file.
fn place_of(place: &str) -> FindingPlace {
    let bare = |text: &str| text.trim_end_matches(|c: char| c == ':' || c.is_whitespace()).len();
    let (mut file, mut numbers) = (&place[..bare(place)], Vec::new());
    while let Some((before, last)) = file.rsplit_once(':')
        && let Some(number) = lines_of(last)
        && last.chars().all(|c| c.is_ascii_digit() || matches!(c, 'L' | 'l' | '-' | ' '))
    {
        file = &before[..bare(before)];
        numbers.push(number);
    }
    let (file, line, column) = match numbers[..] {
        [line] if !file.is_empty() => (file, Some(line), None),
        [column, line] if !file.is_empty() => (file, Some(line), Some(column)),
        // Not a place, or one in an unknown format.
        _ => (place, None, None),
    };
    FindingPlace { file: file.to_owned(), line, column }
}

/// The first line of `45`, `45-52` or `L45`.
fn lines_of(text: &str) -> Option<u64> {
    let first = text.trim().trim_start_matches(['L', 'l']);
    let digits = first.find(|c: char| !c.is_ascii_digit()).unwrap_or(first.len());
    first[..digits].parse().ok()
}

impl Contract for Review {
    const KIND: ContractKind = ContractKind::Review;
    const SIGNATURE: &'static [&'static str] =
        &["status", "verdict", "result", "task_id", "reviewer", "findings", "reviewed_at"];

    fn read(file: &str, fields: &mut FieldReader<'_>) -> Self {
        let task_id = fields.task_id(stem(file, "-review"));
        let status = fields.required_choice(&["status", "verdict", "result"], Verdict::SPELLINGS);
        let findings = fields.items(&["findings", "issues", "comments"]);
        let findings = findings
            .into_iter()
            .map(|(name, node)| ReviewFinding::read(name, node, fields))
            .collect();
        Self {
            task_id,
            reviewer: fields.text(&[&REVIEWER_FIELDS[..], &WORKER_FIELDS].concat()),
            status: status.unwrap_or_default(),
            summary: fields.prose(&["summary", "comment", "message"]),
            findings,
            reviewed_at: fields.text(&["reviewed_at", "completed_at", "at", "timestamp"]),
            extra: fields.rest(),
        }
    }
}
