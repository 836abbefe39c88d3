//! What agents tell each other in files, as types: read leniently, written strictly.
//!
//! ```text
//! contract     file                                   says
//! Task         tasks/<worker>-task.yaml               what one worker is to do
//! Instruction  dispatch-instruction.yaml              what Conductor wants done, as tasks
//! Report       reports/<task>-completed.yaml          how a task ended
//! Review       reports/<task>-review.yaml             whether the work can stay
//! Summary      reports/completion-summary.yaml        what became of a batch
//! Escalation   reports/escalation-<task>.yaml         what does not go on by itself
//! ```
//!
//! *Lenient*: a field may have any of the names and a value any of the spellings that are in use
//! (`taskId`, `task-id`; `failed`, `failure`; a number where a text is meant, one text where a list
//! is), and a field that nobody knows is kept. *Strict*: what is written has one name, one spelling
//! and one order, and ends with the YAML end mark.
//!
//! A document with none of the fields by which its contract is known is somebody's own shape: it is
//! [`Reading::Foreign`] and nobody's mistake. One that has them and cannot be read is [`Broken`], with
//! the line, the field and a hint for each problem.

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

pub use aggregate::{Rule, RuleError};
pub use document::{Contract, Kind, Reading, check, is_meant, read_as, read_node, write};
pub use escalation::EscalationReport;
pub use node::{Field, Node, Value};
pub use problem::{Broken, Problem};
pub use report::Report;
pub use review::{Finding, Review};
pub use summary::{Summary, TaskResult};
pub use task::{Instruction, Task, WORKERS_MAX};
pub use words::{InstructionType, Pattern, Severity, Status, SummaryStatus, Verdict, Workflow};

/// The JSON Schema of what is written under a contract, for editors and other programs.
#[cfg(feature = "schema")]
#[must_use]
pub fn schema(kind: Kind) -> serde_json::Value {
    let schema = match kind {
        Kind::Task => schemars::schema_for!(Task),
        Kind::Report => schemars::schema_for!(Report),
        Kind::Review => schemars::schema_for!(Review),
        Kind::Escalation => schemars::schema_for!(EscalationReport),
        Kind::Summary => schemars::schema_for!(Summary),
        Kind::Instruction => schemars::schema_for!(Instruction),
    };
    schema.into()
}
