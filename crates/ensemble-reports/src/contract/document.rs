//! The contract of each file, and reading and writing documents.

use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value as Json};

use super::escalation::EscalationReport;
use super::node::DocumentNode;
use super::problem::{BrokenDocument, FieldProblem};
use super::reader::FieldReader;
use super::report::TaskReport;
use super::review::Review;
use super::summary::Summary;
use super::task::{Instruction, WorkerTask};
use ensemble_core::Error;
use ensemble_core::message::fields::plain_field;
use ensemble_core::message::yaml;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ContractKind {
    Task,
    Report,
    Review,
    Escalation,
    Summary,
    Instruction,
}

impl ContractKind {
    pub const ALL: [Self; 6] = [
        Self::Task,
        Self::Report,
        Self::Review,
        Self::Escalation,
        Self::Summary,
        Self::Instruction,
    ];

    /// The contract's name, as `ensemble admin schema` takes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Report => "report",
            Self::Review => "review",
            Self::Escalation => "escalation",
            Self::Summary => "summary",
            Self::Instruction => "instruction",
        }
    }

    /// The contract of a file, from its name.
    pub fn of(path: &str) -> Option<Self> {
        let file = path.rsplit('/').next().unwrap_or(path);
        let stem = [".yaml", ".yml", ".json"].iter().find_map(|end| file.strip_suffix(end))?;
        match stem {
            "completion-summary" => Some(Self::Summary),
            "dispatch-instruction" => Some(Self::Instruction),
            _ if stem.starts_with("escalation-") => Some(Self::Escalation),
            _ if stem.ends_with("-review") => Some(Self::Review),
            _ if stem.ends_with("-completed") => Some(Self::Report),
            _ if stem.ends_with("-task") => Some(Self::Task),
            _ => None,
        }
    }
}

/// Words at the beginning or end of a name, and the form that a route knows; `*` is the rest of the name.
const MEANT_FORMS: [(&[&str], &str); 4] = [
    (&["completed", "complete", "completion", "done", "finished", "report"], "*-completed.yaml"),
    (&["review", "reviewed", "verdict"], "*-review.yaml"),
    (&["escalation", "escalate", "escalated"], "escalation-*.yaml"),
    (&["summary"], "completion-summary.yaml"),
];
/// How the names of files about work end, and what file managers and editors add to a copy.
const NAME_ENDS: [&str; 7] = [".yaml", ".yml", ".json", ".txt", ".md", " copy", ".copy"];

/// How file managers begin the names of copies.
const COPY_MARKS: [&str; 4] = ["copy of ", "kopie von ", "copie de ", "copia de "];

pub fn is_copy_of(file: &str) -> bool {
    copy_mark(file) > 0
}

fn copy_mark(file: &str) -> usize {
    let is_mark =
        |mark: &&&str| file.get(..mark.len()).is_some_and(|start| start.eq_ignore_ascii_case(mark));
    COPY_MARKS.iter().find(is_mark).map_or(0, |mark| mark.len())
}

/// A name without what programs add to it: `Copy of t_Complete (1).yml` is `t_Complete`.
pub fn bare_name(file: &str) -> &str {
    let small = file.to_ascii_lowercase();
    let (from, mut to) = (copy_mark(file), file.len());
    loop {
        let rest = small[from..to].trim_end();
        let copy = rest.strip_suffix(')').and_then(|rest| rest.rsplit_once(" ("));
        let copy = copy.filter(|(_, number)| number.bytes().all(|byte| byte.is_ascii_digit()));
        let end = NAME_ENDS.iter().find_map(|end| rest.strip_suffix(end));
        let shorter = copy.map(|(rest, _)| rest).or(end).unwrap_or(rest).len();
        if from + shorter == to {
            break;
        }
        to = from + shorter;
    }
    file[from..to].trim_matches(|c: char| !c.is_alphanumeric())
}

/// The name that a file of `reports/` was probably meant to have: `t_Complete (1).yml` is `t-completed.yaml`.
pub fn meant_name(file: &str) -> Option<String> {
    let is_mark = |c: char| !c.is_alphanumeric();
    let stem = bare_name(file);
    let small = stem.to_ascii_lowercase();
    let words: Vec<&str> = small.split(is_mark).filter(|word| !word.is_empty()).collect();
    let form_of = |word: &str| MEANT_FORMS.iter().find(|(words, _)| words.contains(&word));
    let (last, first) = (words.last()?, words.first()?);
    let (form, rest) = match (form_of(last), form_of(first)) {
        (Some((_, form)), _) => (form, &stem[..stem.len() - last.len()]),
        (None, Some((_, form))) => (form, &stem[first.len()..]),
        (None, None) => return None,
    };
    let rest = rest.trim_matches(is_mark);
    let meant = form.replace('*', rest);
    (!rest.is_empty() && meant != file).then_some(meant)
}

pub(super) fn stem(file: &str, ending: &str) -> Option<String> {
    let stem = file.rsplit('/').next()?.rsplit_once('.')?.0.strip_suffix(ending)?;
    // Trim it as every other text is trimmed.
    let stem = stem.trim();
    (!stem.is_empty()).then(|| stem.to_owned())
}

/// A kind of document that is read leniently. [`write()`] writes it.
pub trait Contract: Serialize + Sized {
    const KIND: ContractKind;
    /// Fields that identify the contract. A document without any of them has another shape and is
    /// not checked.
    const SIGNATURE: &'static [&'static str];

    #[doc(hidden)]
    fn read(file: &str, fields: &mut FieldReader<'_>) -> Self;
}

#[derive(Clone, Debug, PartialEq)]
pub enum Reading<T> {
    /// A document under its contract.
    Whole(T),
    /// A document without any identifying field: it has its own shape.
    Foreign,
}

pub fn read_as<T: Contract>(text: &str, path: &Path) -> Result<Reading<T>, BrokenDocument> {
    let node = DocumentNode::parse(text, path).map_err(|error| not_yaml(path, &error))?;
    read_node(&node, path)
}

/// The document, if it is whole and under this contract.
pub fn read_whole<T: Contract>(text: &str, path: &Path) -> Option<T> {
    match read_as(text, path) {
        Ok(Reading::Whole(document)) => Some(document),
        Ok(Reading::Foreign) | Err(_) => None,
    }
}

/// As [`read_as`], for a parsed document.
pub fn read_node<T: Contract>(
    node: &DocumentNode,
    path: &Path,
) -> Result<Reading<T>, BrokenDocument> {
    let broken = |problems| BrokenDocument { path: path.to_owned(), problems };
    let Some(fields) = node.fields() else {
        return Err(broken(vec![FieldProblem {
            line: node.line,
            field: "file".to_owned(),
            detail: format!("is {}, not a mapping of fields", node.kind()),
            hint: format!("begin with `{}: …`", T::SIGNATURE[0]),
        }]));
    };
    if !fields.iter().any(|field| T::SIGNATURE.contains(&plain_field(&field.name).as_str())) {
        return Ok(Reading::Foreign);
    }
    let mut problems = Vec::new();
    let file = path.file_name().map(|name| name.to_string_lossy().into_owned());
    let mut reader = FieldReader::new(fields, &mut problems);
    let document = T::read(&file.unwrap_or_default(), &mut reader);
    if problems.is_empty() { Ok(Reading::Whole(document)) } else { Err(broken(problems)) }
}

/// Whether a document has a field that identifies this contract.
pub fn is_meant(kind: ContractKind, fields: &Json) -> bool {
    let signature = match kind {
        ContractKind::Task => WorkerTask::SIGNATURE,
        ContractKind::Report => TaskReport::SIGNATURE,
        ContractKind::Review => Review::SIGNATURE,
        ContractKind::Escalation => EscalationReport::SIGNATURE,
        ContractKind::Summary => Summary::SIGNATURE,
        ContractKind::Instruction => Instruction::SIGNATURE,
    };
    let mut names = fields.as_object().into_iter().flat_map(Map::keys);
    names.any(|name| signature.contains(&plain_field(name).as_str()))
}

/// Checks a document against its contract without keeping the document.
pub fn check(kind: ContractKind, node: &DocumentNode, path: &Path) -> Result<(), BrokenDocument> {
    match kind {
        ContractKind::Task => read_node::<WorkerTask>(node, path).map(drop),
        ContractKind::Report => read_node::<TaskReport>(node, path).map(drop),
        ContractKind::Review => read_node::<Review>(node, path).map(drop),
        ContractKind::Escalation => read_node::<EscalationReport>(node, path).map(drop),
        ContractKind::Summary => read_node::<Summary>(node, path).map(drop),
        ContractKind::Instruction => read_node::<Instruction>(node, path).map(drop),
    }
}

/// The document's file content: its fields in the contract's order, and the YAML end mark as the
/// last line.
pub fn write<T: Contract>(document: &T) -> String {
    let mut text = yaml::render(document);
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str("...\n");
    text
}

fn not_yaml(path: &Path, error: &Error) -> BrokenDocument {
    let (field, detail) = match error {
        Error::Malformed { field, detail, .. } => (field.clone(), detail.clone()),
        other => ("file".to_owned(), other.to_string()),
    };
    let line = field.strip_prefix("line ").and_then(|rest| rest.split(',').next()?.parse().ok());
    let hint = "write YAML: `field: value`, and quotes around a value with `: ` or `#` in it";
    let problem = FieldProblem {
        line: line.unwrap_or(0),
        field: "file".to_owned(),
        detail: format!("is not YAML: {detail}"),
        hint: hint.to_owned(),
    };
    BrokenDocument { path: path.to_owned(), problems: vec![problem] }
}
