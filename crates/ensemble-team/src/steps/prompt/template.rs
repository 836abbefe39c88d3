//! The prompt's template, which a queue may replace.

use crate::template::TemplateForm;

pub const TEMPLATE: &str = "\
ROLE: {{role}}
GOAL: {{goal}}
CONTEXT FILES:
{{context_files}}

INSTRUCTIONS:
{{instructions}}

CONSTRAINTS:
{{constraints}}

OUTPUT REQUIREMENT:
{{output_requirement}}
";

pub(super) const FORM: TemplateForm = TemplateForm {
    names: &[
        "role",
        "goal",
        "context_files",
        "instructions",
        "constraints",
        "output_requirement",
        "task_id",
        "step_index",
        "attempt",
        "attempts_max",
    ],
    required: &[("output_requirement", "a worker must learn how to report")],
};
