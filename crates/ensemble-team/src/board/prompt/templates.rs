//! The prompt templates: what a project may replace, and which fields each may use.

use crate::template::TemplateForm;

const WHAT_TO_DO: (&str, &str) =
    ("instructions", "an agent must learn what to do and how to report");
const WHICH_TASK: (&str, &str) = ("task_id", "an agent must learn which task it has");
const WHERE: (&str, &str) = ("worktree", "an agent must learn where to work");

pub const CODER: &str = "\
{{mode}}{{resume}}

=== IDENTITY ===
{{identity}}

=== DOCUMENTS ===
{{documents}}

=== STATE ===
{{state}}

=== ASSIGNED TASK ===
TASK ID: {{task_id}}
WORKTREE: {{worktree}}
DESCRIPTION: {{description}}
DONE WHEN: {{done_when}}
SCOPE: {{scope}}
INSTRUCTIONS:
{{instructions}}
";

pub(super) const CODER_FORM: TemplateForm = TemplateForm {
    names: &[
        "mode",
        "resume",
        "role",
        "agent",
        "identity",
        "documents",
        "state",
        "task_id",
        "worktree",
        "description",
        "done_when",
        "scope",
        "instructions",
    ],
    required: &[WHICH_TASK, WHERE, WHAT_TO_DO],
};

pub const REVIEWER: &str = "\
{{mode}}

=== IDENTITY ===
{{identity}}

=== DOCUMENTS ===
{{documents}}

=== STATE ===
{{state}}

=== REVIEW TASK ===
TASK ID: {{task_id}}
WORKTREE: {{worktree}}
COMMIT TO REVIEW: {{commit}}
AUTHOR: {{author}}
DESCRIPTION: {{description}}
DONE WHEN: {{done_when}}
INSTRUCTIONS:
{{instructions}}
";

pub(super) const REVIEWER_FORM: TemplateForm = TemplateForm {
    names: &[
        "mode",
        "role",
        "agent",
        "identity",
        "documents",
        "state",
        "task_id",
        "worktree",
        "commit",
        "author",
        "description",
        "done_when",
        "scope",
        "instructions",
    ],
    required: &[
        WHICH_TASK,
        WHERE,
        ("commit", "a verdict is about one commit, which the reviewer must know"),
        WHAT_TO_DO,
    ],
};

pub const PLANNER: &str = "\
{{mode}}

=== IDENTITY ===
{{identity}}

=== DOCUMENTS ===
{{documents}}

=== STATE ===
{{state}}

=== PLANNING CONTEXT ===
WAKE TRIGGER: {{wake_trigger}}
SPRINT STATE:
{{sprint_state}}
INSTRUCTIONS:
{{instructions}}
";

pub(super) const PLANNER_FORM: TemplateForm = TemplateForm {
    names: &[
        "mode",
        "role",
        "agent",
        "identity",
        "documents",
        "state",
        "wake_trigger",
        "sprint_state",
        "instructions",
    ],
    required: &[("wake_trigger", "a planner must learn why it was called"), WHAT_TO_DO],
};
