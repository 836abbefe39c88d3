//! `ensemble why`: the whole story of one thing.

use std::path::Path;

use clap_complete::engine::ArgValueCandidates;
use ensemble_app::diagnostics::say;
use ensemble_app::exit_code::Exit;
use ensemble_app::failure::{Failure, Outcome};
use ensemble_app::overview::gather;
use ensemble_app::story::{complete_id, look_up_story, reason_of, spent_on};
use ensemble_app::team_log::TeamLog;
use ensemble_app::text::{age, inline, one_line, plural};
use ensemble_app::usage::describe_spent;
use ensemble_core::event_log::{Record, Story};
use ensemble_core::message::Timestamp;
use serde_json::{Value, json};

use ensemble_project::attention::Need;
use ensemble_project::overview::Evidence;

use crate::completion;
use crate::context::Context;
use crate::output::{FAINT, STRONG};

/// Tell the whole story of a message, a task, a step's task, a request or an agent
///
/// Everything that the event log has of it and of the messages about it, from the first record to
/// the last. Then where it is now. The last line of a failed task says why.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble why T-17
  ensemble why 019b3c5e-7b1a-7c44-9d0e-2f6a5b8c1d3e --json | jq -r .records[].type")]
pub(crate) struct Arguments {
    /// Its id, as `inbox`, `task list`, `request list` or `log` show it, or a unique beginning of it
    #[arg(add = ArgValueCandidates::new(completion::stories))]
    id: String,
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
            return Err(Failure::nothing(format!("no event mentions `{}`", one_line(&self.id)))
                .with_hint("`ensemble log`, `inbox`, `request list` and `task list` show ids"));
        }
        let took = spent_on(context, &self.id);
        if context.out.is_json() {
            let records = told.iter().flat_map(|story| &story.records).collect::<Vec<_>>();
            let names = told.iter().flat_map(|story| &story.names).collect::<Vec<_>>();
            let whole = json!({ "id": self.id, "names": names, "records": records, "now": now, "took": took });
            context.out.object(&whole)?;
        } else {
            tell(context, told.as_ref(), &now)?;
            if let Some((reason, of)) = told.as_ref().and_then(|story| reason_of(&story.records)) {
                context
                    .out
                    .line(format!("{}  {reason} ({of})", context.out.paint(STRONG, "why")))?;
            }
            for line in wanted(context, &self.id) {
                context.out.line(line)?;
            }
            if let Some(took) = took {
                let took = describe_spent(&took);
                context.out.line(format!("{}  {took}", context.out.paint(STRONG, "took")))?;
            }
        }
        told.map_or(Ok(()), |story| complete(story, &logs))
    }
}

/// What needs a person because of it, and the command that helps.
fn wanted(context: &Context, id: &str) -> Vec<String> {
    // The story stands without it.
    let Ok(overview) = gather(context, Evidence::Watcher) else { return Vec::new() };
    let is_it = |need: &&Need| {
        need.about.as_deref() == Some(id) || need.agent.as_ref().is_some_and(|it| it.as_str() == id)
    };
    let lines = overview.needs.iter().filter(is_it);
    lines
        .flat_map(|need| {
            let text = format!("needs you  {}", one_line(&need.text));
            std::iter::once(text)
                .chain(others_of(&need.help, id).map(|help| format!("    -> {help}")))
        })
        .collect()
}

/// The help of a need, without the command that has just printed the story.
fn others_of(help: &str, id: &str) -> Option<String> {
    let own = format!("`ensemble why {id}`");
    let others: Vec<&str> = help.split("; ").filter(|part| *part != own).collect();
    (!others.is_empty()).then(|| one_line(&others.join("; ")))
}

fn is_nothing(told: Option<&Story>, now: &[Value]) -> bool {
    now.is_empty() && told.is_none_or(|story| story.records.is_empty())
}

fn tell(context: &Context, story: Option<&Story>, now: &[Value]) -> Outcome {
    let mut first: Option<Timestamp> = None;
    for record in story.iter().flat_map(|story| &story.records) {
        let start = *first.get_or_insert(record.timestamp);
        context.out.line(line(context, record, start))?;
    }
    for place in now {
        context.out.line(format!("{}  {}", context.out.paint(STRONG, "now"), inline(place)))?;
    }
    Ok(())
}

fn line(context: &Context, record: &Record, start: Timestamp) -> String {
    let time = record.timestamp.to_string().replace('T', " ");
    let since = format!("+{}", age(record.timestamp.since(start)));
    format!(
        "{} {}  {}  {}  {}",
        context.out.paint(FAINT, time.trim_end_matches('Z')),
        context.out.paint(FAINT, format!("{since:>6}")),
        context.out.paint(STRONG, &record.kind),
        one_line(&record.actor),
        inline(&Value::Object(record.data.clone())),
    )
}

/// What the log could not tell is said, since a story with a gap is no proof.
fn complete(story: Story, logs: &Path) -> Outcome {
    if story.bad_lines > 0 {
        say(&format!("warning: {} passed over: not records", plural(story.bad_lines, "line")));
    }
    match story.failure {
        Some(failure) => {
            let text = format!("the story is not whole: {failure}");
            let hint = format!("`ensemble admin fsck` looks at {}", logs.display());
            Err(Failure::new(Exit::Failed, text).with_hint(hint))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::others_of;

    #[test]
    fn a_story_does_not_end_with_the_command_that_has_told_it() {
        let help = "`ensemble why t1`; `ensemble agent attach w1`";
        assert_eq!(others_of(help, "t1").as_deref(), Some("`ensemble agent attach w1`"));
        assert_eq!(others_of(help, "w1").as_deref(), Some(help));
        assert_eq!(others_of("`ensemble why t1`", "t1"), None);
    }
}
