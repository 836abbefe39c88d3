//! Checks a file: its format, the prose in it, and the positions of findings.

use std::path::Path;

use super::allow::{self, DIRECTIVE, LintSuppression};
use super::facts::{self, RequiredFact};
use super::finding::{LintFinding, LintRule};
use super::places::CheckedFiles;
use super::scan::Linter;
use crate::contract::{self, ContractKind, DocumentNode, NodeValue};

pub const FILE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How far behind its position a value's text may begin, beyond its own length, in bytes.
const WINDOW_BYTES: usize = 256;
/// Fields whose text is not the writer's prose: names, places, and output of programs.
const NOT_PROSE: [&str; 38] = [
    "id",
    "task_id",
    "taskid",
    "task",
    "worker_id",
    "worker",
    "reviewer",
    "executed_by",
    "delegated_from",
    "from",
    "to",
    "agent",
    "session_id",
    "workflow_id",
    "batch_id",
    "message_id",
    "status",
    "severity",
    "category",
    "type",
    "kind",
    "workflow",
    "pattern",
    "files",
    "file",
    "path",
    "location",
    "files_modified",
    "files_created",
    "output",
    "stdout",
    "stderr",
    "log",
    "diff",
    "code",
    "snippet",
    "command",
    "test_results",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextShape {
    /// Prose: Markdown, a message, or any other text.
    Text,
    /// Prose that must state the facts of a report.
    ReportText,
    /// YAML or JSON, whose texts are prose. With a contract the document must obey it.
    Fields(Option<ContractKind>),
}

impl TextShape {
    pub fn of(path: &Path) -> Self {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        match [".yaml", ".yml", ".json"].iter().any(|end| name.ends_with(end)) {
            true => Self::Fields(ContractKind::of(&name)),
            false => Self::Text,
        }
    }
}

/// Result of checking a file.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct LintedFile {
    pub file: String,
    pub findings: Vec<LintFinding>,
}

impl Linter {
    pub fn file(&self, path: &Path, content: &[u8], shape: TextShape) -> LintedFile {
        let file = path.display().to_string();
        let findings = self.content(path, content, shape);
        LintedFile { file, findings: findings.unwrap_or_else(|finding| vec![*finding]) }
    }

    fn content(
        &self,
        path: &Path,
        content: &[u8],
        shape: TextShape,
    ) -> Result<Vec<LintFinding>, Box<LintFinding>> {
        let of_file = |message: String, instead: &str| {
            Box::new(LintFinding::of_file(LintRule::Contract, message, instead))
        };
        if content.len() > FILE_BYTES_MAX {
            let message = format!("the file has {} bytes", content.len());
            let instead = format!("check files of at most {FILE_BYTES_MAX} bytes");
            return Err(of_file(message, &instead));
        }
        let text = std::str::from_utf8(content).map_err(|error| {
            let message = format!("the file is not UTF-8 at byte {}", error.valid_up_to());
            of_file(message, "write it in UTF-8")
        })?;
        Ok(match shape {
            TextShape::Text => self.prose(text, &[]),
            TextShape::ReportText => self.prose(text, &self.options.require),
            TextShape::Fields(kind) => self.fields(path, text, kind),
        })
    }

    fn prose(&self, text: &str, require: &[RequiredFact]) -> Vec<LintFinding> {
        let (mut findings, allowed) = self.scan(text, true);
        let is_missing = |fact: &&RequiredFact| !facts::says(**fact, text, &self.options.names);
        findings.extend(require.iter().filter(is_missing).map(|fact| fact.missing()));
        if !require.is_empty() {
            findings.extend(self.wrong_places(text, &mut CheckedFiles::default()));
        }
        findings.sort_by_key(|finding| (finding.line, finding.column));
        allow::apply(&mut findings, &allowed);
        findings
    }

    fn wrong_places(&self, text: &str, known: &mut CheckedFiles) -> Vec<LintFinding> {
        let Some(root) = &self.options.root else { return Vec::new() };
        let (mut line, mut counted) = (1, 0);
        let mut findings = Vec::new();
        for place in facts::places(text) {
            line += text[counted..place.at].matches('\n').count() as u64;
            counted = place.at;
            let Some(wrong) = known.wrong(root, place.path, place.lines.1) else { continue };
            let line_start = text[..place.at].rfind('\n').map_or(0, |at| at + 1);
            let column = text[line_start..place.at].chars().count() as u64 + 1;
            findings.push(LintFinding {
                rule: LintRule::BadWhere,
                line,
                column,
                end_column: column + place.text.chars().count() as u64,
                text: place.text.to_owned(),
                message: wrong,
                instead: "name a file below the project and a line that it has".to_owned(),
                at: place.at,
            });
        }
        findings
    }

    fn fields(&self, path: &Path, text: &str, kind: Option<ContractKind>) -> Vec<LintFinding> {
        let node = match DocumentNode::parse(text, path) {
            Ok(node) => node,
            Err(error) => {
                let message = format!("it is not YAML: {error}");
                let hint = "write `field: value`, with quotes around what has `: ` or `#` in it";
                return vec![LintFinding::of_file(LintRule::Contract, message, hint)];
            }
        };
        let mut findings = Vec::new();
        let is_meant = kind.is_some_and(|kind| contract::is_meant(kind, &node.to_json()));
        let kind = kind.filter(|_| is_meant);
        if let Some(Err(broken)) = kind.map(|kind| contract::check(kind, &node, path)) {
            findings.extend(broken.problems.into_iter().map(|problem| {
                let message = format!("{} {}", problem.field, problem.detail);
                let mut finding = LintFinding::of_file(LintRule::Contract, message, problem.hint);
                finding.line = problem.line.max(1);
                finding
            }));
        }
        let mut said = StatedFacts::default();
        let lines = LineIndex::new(text);
        self.walk(&node, None, &lines, &mut said);
        findings.append(&mut said.findings);
        let required = self.required_of(kind).into_iter();
        let missing = required.filter(|fact| !said.says(*fact, &self.options.names));
        findings.extend(missing.map(RequiredFact::missing));
        findings.sort_by_key(|finding| (finding.line, finding.column));
        let allowed = directives(text);
        allow::apply(&mut findings, &allowed);
        findings
    }

    /// Facts that a document under this contract must state.
    fn required_of(&self, kind: Option<ContractKind>) -> Vec<RequiredFact> {
        let wanted: &[RequiredFact] = match kind {
            Some(ContractKind::Report) => &RequiredFact::ALL,
            Some(ContractKind::Review) => &[RequiredFact::Who],
            Some(ContractKind::Summary) => &[RequiredFact::Count],
            Some(ContractKind::Task | ContractKind::Escalation | ContractKind::Instruction)
            | None => &[],
        };
        let required = &self.options.require;
        wanted.iter().copied().filter(|fact| required.contains(fact)).collect()
    }

    fn walk(
        &self,
        node: &DocumentNode,
        field: Option<&str>,
        lines: &LineIndex<'_>,
        said: &mut StatedFacts,
    ) {
        match &node.value {
            NodeValue::Map(fields) => {
                for field in fields {
                    said.field(&field.name, &field.node);
                    self.walk(&field.node, Some(&field.name), lines, said);
                }
                self.finding_place(node, said);
            }
            NodeValue::List(items) => {
                for item in items {
                    self.walk(item, field, lines, said);
                }
            }
            NodeValue::Text(text) => {
                let is_prose = field.is_none_or(|name| !NOT_PROSE.contains(&plain(name).as_str()));
                if is_prose {
                    let (mut findings, _) = self.scan(text, false);
                    findings.extend(self.wrong_places(text, &mut said.places));
                    findings.sort_by_key(|finding| finding.at);
                    lines.place(node, &mut findings);
                    said.findings.append(&mut findings);
                    said.prose.push_str(text);
                    said.prose.push('\n');
                }
            }
            NodeValue::Null | NodeValue::Bool(_) | NodeValue::Number(_) => {}
        }
    }

    /// `file: src/a.rs` and `line: 45`, as findings of a review have them.
    fn finding_place(&self, node: &DocumentNode, said: &mut StatedFacts) {
        let find = |wanted: &str| node.fields()?.iter().find(|f| plain(&f.name) == wanted);
        let (Some(file), Some(line)) = (find("file"), find("line")) else { return };
        let (NodeValue::Text(path), NodeValue::Number(number)) =
            (&file.node.value, &line.node.value)
        else {
            return;
        };
        said.has_place = true;
        let (Some(root), Some(number)) = (&self.options.root, number.as_u64()) else { return };
        if let Some(wrong) = said.places.wrong(root, path, number) {
            let hint = "name a file below the project and a line that it has";
            let mut finding = LintFinding::of_file(LintRule::BadWhere, wrong, hint);
            finding.line = line.line.max(1);
            said.findings.push(finding);
        }
    }
}

fn plain(name: &str) -> String {
    name.trim().to_lowercase().replace('-', "_")
}

#[derive(Default)]
struct StatedFacts {
    findings: Vec<LintFinding>,
    prose: String,
    has_who: bool,
    has_count: bool,
    has_place: bool,
    places: CheckedFiles,
}

impl StatedFacts {
    fn field(&mut self, name: &str, node: &DocumentNode) {
        let name = plain(name);
        let is_said = match &node.value {
            NodeValue::Text(text) => !text.trim().is_empty(),
            NodeValue::Number(_) => true,
            NodeValue::Null | NodeValue::Bool(_) | NodeValue::List(_) | NodeValue::Map(_) => false,
        };
        let who = ["worker_id", "workerid", "worker", "executed_by", "reviewer", "agent"];
        self.has_who |= is_said && who.contains(&name.as_str());
        let counts = ["total_tasks", "completed_tasks", "failed_tasks"];
        self.has_count |= counts.contains(&name.as_str());
    }

    fn says(&self, fact: RequiredFact, names: &[String]) -> bool {
        match fact {
            RequiredFact::Who if self.has_who => true,
            RequiredFact::Count if self.has_count => true,
            RequiredFact::Where if self.has_place => true,
            RequiredFact::Who | RequiredFact::Count | RequiredFact::Share | RequiredFact::Where => {
                facts::says(fact, &self.prose, names)
            }
        }
    }
}

fn directives(text: &str) -> Vec<LintSuppression> {
    if !text.contains(DIRECTIVE) {
        return Vec::new();
    }
    let lines = text.lines().enumerate();
    let found = lines.filter_map(|(index, line)| {
        let (before, rest) = line.split_once(DIRECTIVE)?;
        let is_alone = before.chars().all(|c| !c.is_alphanumeric());
        Some(LintSuppression::parse(rest, index as u64 + 1, is_alone))
    });
    found.collect()
}

struct LineIndex<'t> {
    text: &'t str,
    starts: Vec<usize>,
}

impl<'t> LineIndex<'t> {
    fn new(text: &'t str) -> Self {
        let after = text.match_indices('\n').map(|(at, _)| at + 1);
        Self { text, starts: std::iter::once(0).chain(after).collect() }
    }

    /// Moves findings within a value to their positions in the document. Each finding is searched
    /// from the previous one on, because the value may be escaped, folded or indented there.
    fn place(&self, node: &DocumentNode, findings: &mut [LintFinding]) {
        let index = usize::try_from(node.line.max(1) - 1).unwrap_or(usize::MAX);
        let Some(&start) = self.starts.get(index) else { return };
        let NodeValue::Text(value) = &node.value else { return };
        // Escapes lengthen a value at most sixfold, so the text cannot be further away.
        let end = start + value.len() * 6 + WINDOW_BYTES;
        let end = (end..self.text.len()).find(|at| self.text.is_char_boundary(*at));
        let (mut from, end, mut is_lost) = (start, end.unwrap_or(self.text.len()), false);
        for finding in findings {
            let near = if is_lost { "" } else { &self.text[from..end] };
            match near.find(&finding.text) {
                Some(at) if !finding.text.is_empty() => {
                    let at = from + at;
                    let line = self.starts.partition_point(|start| *start <= at);
                    let line_start = self.starts[line - 1];
                    finding.line = line as u64;
                    finding.column = self.text[line_start..at].chars().count() as u64 + 1;
                    from = at + finding.text.len();
                }
                // The text is escaped there: use the value's beginning.
                _ => {
                    is_lost = true;
                    (finding.line, finding.column) = (node.line.max(1), node.column.max(1));
                }
            }
            finding.end_column = finding.column + finding.text.chars().count() as u64;
        }
    }
}
