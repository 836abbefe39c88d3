//! Types of the documents that agents exchange in files: read leniently, written strictly.
//!
//! ```text
//! contract     file                                   content
//! Task         tasks/<worker>-task.yaml               the work of one worker
//! Instruction  dispatch-instruction.yaml              Conductor's orders, as tasks
//! Report       reports/<task>-completed.yaml          the outcome of a task
//! Review       reports/<task>-review.yaml             the verdict on the work
//! Summary      reports/completion-summary.yaml        the outcome of a batch
//! Escalation   reports/escalation-<task>.yaml         a task that needs intervention
//! ```
//!
//! *Lenient*: a field may have any of its known names, and a value any of its known spellings.
//! Examples are `taskId` and `task-id`, `failed` and `failure`, a number for a text, and one text
//! for a list. Unknown fields are kept. *Strict*: a written document has one name, one spelling and
//! one order, and ends with the YAML end mark.
//!
//! A document without any identifying field of its contract has its own shape: it is
//! [`Reading::Foreign`], not an error. A document that has such fields but cannot be read is
//! [`BrokenDocument`], with the line, the field and a hint for each problem.

mod aggregate;
mod document;
mod escalation;
mod node;
mod problem;
mod reader;
mod report;
mod review;
mod summary;
mod task;
#[cfg(test)]
mod tests;
mod words;

pub use aggregate::{RuleError, VerdictRule};
pub use document::{
    Contract, ContractKind, Reading, bare_name, check, is_copy_of, is_meant, meant_name, read_as,
    read_node, read_whole, write,
};
pub use escalation::EscalationReport;
pub use node::{DocumentNode, MappingField, NodeValue};
pub use problem::{BrokenDocument, FieldProblem};
pub use reader::{count_of, listed_in, read_count};
pub use report::TaskReport;
pub use review::{Review, ReviewFinding};
pub use summary::{Summary, TaskResult};
pub use task::{Instruction, WORKERS_MAX, WorkerTask};
pub use words::{InstructionType, Pattern, Severity, Status, SummaryStatus, Verdict, Workflow};

/// The JSON Schema of documents as they are written, for editors and other programs.
#[cfg(feature = "schema")]
pub fn schema(kind: ContractKind) -> serde_json::Value {
    let schema = match kind {
        ContractKind::Task => schemars::schema_for!(WorkerTask),
        ContractKind::Report => schemars::schema_for!(TaskReport),
        ContractKind::Review => schemars::schema_for!(Review),
        ContractKind::Escalation => schemars::schema_for!(EscalationReport),
        ContractKind::Summary => schemars::schema_for!(Summary),
        ContractKind::Instruction => schemars::schema_for!(Instruction),
    };
    schema.into()
}
