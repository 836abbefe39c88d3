//! `ensemble task new`: one word in front of mail, steps and the blackboard.
//!
//! | asked for | how it is handed out | ends by |
//! |---|---|---|
//! | `--to NAME` | a task message in a mailbox, with its ladder | `report` |
//! | `--to NAME --files PATH` | a queue of one step, which alone works on these files | `step submit` |
//! | `--review`, `--after ID` | a task on the blackboard, with claim, review and merge | `task merge` |

use ensemble_app::acting::check_current;
use ensemble_app::diagnostics::say;
use ensemble_app::mail::outgoing::OutgoingMail;
use ensemble_app::mail::readers::absent_reader;
use ensemble_app::mail::sending::MessageHeaders;
use ensemble_app::queue::{OpeningPurpose, ProjectQueue};
use ensemble_app::steps::{open_step_mail, open_steps};
use ensemble_app::tasks::{change_task, missing_file};
use ensemble_core::message::{Name, TASK_TYPE};
use ensemble_team::board::NewTask;
use ensemble_team::steps::StepPlan;
use serde_json::{Value, json};

use crate::completion;
use crate::context::{Context, Failure, Outcome};
use crate::flags::ContentFlags;

/// Hand out a task; what you ask for decides how
///
/// With `--to` alone it is a message that its worker reports on. With `--files` no other step works on these files at the
/// same time. With `--review` or `--after` it is on the blackboard: agents claim it, its work is reviewed and merged.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble task new login --to worker-1 'write a test for the login'
  ensemble task new login-fix --to worker-1 --files src/login.rs 'make the test green'
  ensemble task new logout --review --files spec.md 'build it as the page says'")]
pub(crate) struct CreateTask {
    /// Its name: 1 to 64 of A-Z a-z 0-9 . _ -
    id: Name,
    #[command(flatten)]
    content: ContentFlags,
    /// The agent that does it
    #[arg(long, value_name = "NAME", add = completion::mailboxes())]
    #[arg(required_unless_present_any = ["review", "after"], conflicts_with_all = ["review", "after"])]
    to: Option<Name>,
    /// Have it claimed, reviewed and merged; `--files` then names its specification
    #[arg(long, requires = "files")]
    review: bool,
    /// A task that must be merged before; may be repeated
    #[arg(long, value_name = "ID", requires = "files")]
    after: Vec<Name>,
    /// A file that it works on; may be repeated
    #[arg(long, value_name = "PATH")]
    files: Vec<String>,
}

impl CreateTask {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let text = String::from_utf8(self.content.read()?)
            .map_err(|_| Failure::usage("the text is not UTF-8"))?;
        let (said, object) = match &self.to {
            None => self.add_to_board(context, text)?,
            Some(to) if self.files.is_empty() => self.send(context, to, text)?,
            Some(to) => self.add_step(context, to, &text)?,
        };
        context.out.print_answer(&object, said)
    }

    fn send(&self, context: &Context, to: &Name, text: String) -> Outcome<(String, Value)> {
        let (project, queue) =
            (context.project()?, ProjectQueue::reach(context, OpeningPurpose::Act)?);
        let mut outgoing = OutgoingMail::new(project, queue.as_ref())?;
        let to = outgoing.recipients(std::slice::from_ref(to), false)?.remove(0);
        let task = Some(self.id.to_string());
        let kind = Some(Name::new(TASK_TYPE).map_err(ensemble_core::Error::from)?);
        let headers = MessageHeaders { kind, task, ..MessageHeaders::default() };
        let envelope = outgoing.envelope(context, headers, (&to, None), text.into_bytes())?;
        outgoing.post(&envelope)?;
        if let Some(warning) = absent_reader(project, &envelope) {
            say(&warning);
        }
        let said = format!("{} is in the mailbox of {to}, and ends with its report", self.id);
        Ok((said, json!({ "task": self.id, "kind": "mail", "id": envelope.id, "mailbox": to })))
    }

    fn add_step(&self, context: &Context, to: &Name, text: &str) -> Outcome<(String, Value)> {
        let step = json!({ "agent": to, "goal": text.trim_end(), "files": self.files });
        let plan = json!({ "task_id": self.id, "title": self.id, "steps": [step] });
        let plan = StepPlan::parse(&plan.to_string(), "task".as_ref()).map_err(Failure::input)?;
        open_step_mail(context)?.settings(to)?;
        open_steps(context)?.add(&plan)?;
        let said = format!("{} is a step of {to}, and ends when it is submitted", self.id);
        Ok((said, json!({ "task": self.id, "kind": "step", "mailbox": to })))
    }

    fn add_to_board(&self, context: &Context, text: String) -> Outcome<(String, Value)> {
        let [spec, ..] = &self.files[..] else {
            return Err(Failure::usage("`--files` names the specification of a reviewed task"));
        };
        let done_when = format!("a reviewer sees that it is done: {}", text.trim_end());
        let task = NewTask::new(self.id.clone(), text.trim_end(), spec.as_str(), done_when)
            .after(self.after.clone());
        check_current(context, &context.board()?.read()?)?;
        let changed = change_task(context, &self.id, |board| board.add_task(&task))?;
        let status = changed.task().status.as_str();
        let missing = missing_file(&context.board()?, Some(spec.as_str()));
        let said =
            format!("{} is on the blackboard, {status}: an agent claims it{missing}", self.id);
        Ok((said, json!({ "task": self.id, "kind": "board", "status": status })))
    }
}
