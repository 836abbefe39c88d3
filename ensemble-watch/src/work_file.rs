//! What a complete file is about, by its box, its route and its content.

use ensemble_core::dropbox::CompleteFile;
use ensemble_core::message::Name;
use ensemble_team::contract::Kind;

/// How the types of messages about work begin.
const REPORT_TYPES: &str = "report.";

/// A drop-box file that may tell of work.
pub(crate) trait WorkFile {
    /// Whether it tells of work: it lies in `reports/`, or its route says so.
    fn is_report(&self) -> bool;

    /// The task whose report it is: by its name, otherwise as the report says.
    fn reported_task(&self) -> Option<&str>;

    /// The contract of its content: that of its route's type, otherwise the one that its name promises.
    fn contract(&self) -> Option<Kind>;
}

impl WorkFile for CompleteFile {
    fn is_report(&self) -> bool {
        let is_kind = |kind: &Name| kind.as_str().starts_with(REPORT_TYPES);
        &*self.box_name == "reports" || self.kind.as_ref().is_some_and(is_kind)
    }

    fn reported_task(&self) -> Option<&str> {
        let by_name = self.file.strip_suffix("-completed.yaml");
        by_name.or_else(|| {
            let is_report = self.contract() == Some(Kind::Report);
            self.fields.get("task_id").filter(|_| is_report)?.as_str()
        })
    }

    fn contract(&self) -> Option<Kind> {
        self.kind.as_ref().and_then(contract_of).or_else(|| Kind::of(&self.file))
    }
}

/// The contract that a route's type stands for.
pub(crate) fn contract_of(kind: &Name) -> Option<Kind> {
    match kind.as_str() {
        "report.completed" => Some(Kind::Report),
        "report.review" => Some(Kind::Review),
        "report.summary" => Some(Kind::Summary),
        "report.escalation" => Some(Kind::Escalation),
        "task" => Some(Kind::Task),
        _ => None,
    }
}
