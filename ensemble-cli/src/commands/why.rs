use std::path::Path;

use ensemble_app::diagnostics::say;
use ensemble_app::overview::ask_if_meant;
use ensemble_app::queue::ProjectQueue;
use ensemble_app::story::{complete_id, look_up_story, spent_on, tell_story};
use ensemble_app::team_log::TeamLog;
use ensemble_app::text::{one_line, plural};
use ensemble_app::usage::describe_spent;
use ensemble_core::event_log::ObjectStory;
use ensemble_core::message::Name;
use serde_json::{Value, json};

use crate::completion;
use crate::context::{Context, Failure, Outcome, VerbExit};
use crate::output::{FAINT, STRONG};
use crate::printing::overview::columns;
use crate::printing::record_line;

const LINES_MAX: usize = 20;

/// Show what happened to a message, a task or a request, or what an agent does
///
/// First where it is now, then what happened, causes before effects; of an agent, the newest part
/// first. `operator` is you: what you asked and what was answered.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble why coda                     what does coda do?
  ensemble why operator                 what did I ask, and what was answered?")]
pub(crate) struct Arguments {
    /// Its id, as `inbox`, `task list`, `request list` or `log` show it, or a unique beginning of it
    #[arg(add = completion::stories())]
    id: String,
    /// Show the records of the event log instead of sentences
    #[arg(long)]
    raw: bool,
}

impl Arguments {
    pub(crate) fn run(mut self, context: &Context) -> Outcome {
        let team = TeamLog::open(context)?;
        let logs = team.path().to_owned();
        let (mut told, mut now) = look_up_story(context, &logs, &self.id)?;
        if is_nothing(told.as_ref(), &now)
            && let Some(whole) = complete_id(context, &logs, &self.id)?
        {
            (told, now) = look_up_story(context, &logs, &whole)?;
            self.id = whole;
        }
        if is_nothing(told.as_ref(), &now) {
            let text = format!("no event mentions `{}`{}", one_line(&self.id), self.meant(context));
            return Err(Failure::nothing(text)
                .with_hint("`ensemble log`, `inbox`, `request list` and `task list` show ids"));
        }
        let took = spent_on(context, &self.id);
        let records = told.iter().flat_map(|story| &story.records);
        if context.out.is_json() {
            let names = told.iter().flat_map(|story| &story.names).collect::<Vec<_>>();
            let records = records.collect::<Vec<_>>();
            let whole = json!({ "id": self.id, "names": names, "records": records, "now": now, "took": took });
            context.out.object(&whole)?;
        } else if self.raw {
            records.into_iter().try_for_each(|record| {
                context.out.line(record_line(&context.out, record, STRONG))
            })?;
        } else {
            print(context, &self.id, told.as_ref())?;
            if let Some(took) = took.filter(|took| took.requests > 0) {
                context.out.line(format!("\nused {}", describe_spent(&took)))?;
            }
        }
        told.map_or(Ok(()), |story| complete(story, &logs))
    }

    fn meant(&self, context: &Context) -> String {
        let queue = ProjectQueue::open(context).ok();
        let mailboxes = queue.and_then(|queue| queue.mailboxes().ok()).unwrap_or_default();
        let board = context.board().and_then(|board| Ok(board.read()?)).ok();
        let tasks = board.iter().flat_map(|state| &state.tasks).map(|task| task.id.as_str());
        ask_if_meant(&self.id, mailboxes.iter().map(Name::as_str).chain(tasks))
    }
}

fn is_nothing(told: Option<&ObjectStory>, now: &[Value]) -> bool {
    now.is_empty() && told.is_none_or(|story| story.records.is_empty())
}

fn print(context: &Context, id: &str, story: Option<&ObjectStory>) -> Outcome {
    let out = &context.out;
    let width = columns(out).unwrap_or(usize::MAX);
    let lines_max = if out.is_terminal() { LINES_MAX } else { usize::MAX };
    let (lines, left_out) = tell_story(context, id, story).lines(width, lines_max);
    for (number, line) in lines.iter().enumerate() {
        out.line(if number == 0 { out.paint(STRONG, line) } else { line.clone() })?;
    }
    match left_out {
        0 => Ok(()),
        more => {
            let note = format!(
                "… {} before that: `ensemble why {id} | less`",
                plural(more as u64, "line")
            );
            out.line(out.paint(FAINT, note))
        }
    }
}

/// Warns of gaps in the log, because a story with a gap proves nothing.
fn complete(story: ObjectStory, logs: &Path) -> Outcome {
    if story.bad_lines > 0 {
        say(&format!("warning: {} passed over: not records", plural(story.bad_lines, "line")));
    }
    match story.failure {
        Some(failure) => {
            let text = format!("the story is not whole: {failure}");
            let hint = format!("`ensemble admin fsck` looks at {}", logs.display());
            Err(Failure::new(VerbExit::Failed, text).with_hint(hint))
        }
        None => Ok(()),
    }
}
