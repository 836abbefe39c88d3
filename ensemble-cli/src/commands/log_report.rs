//! `ensemble log report`: a session as a page for people.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ensemble_core::durable::{Durability, write_document};
use ensemble_core::event_log::read_all;
use ensemble_team::holdings::tasks;
use ensemble_watch::workload::Books;
use serde_json::json;

use crate::context::Context;
use crate::exit::{Exit, Failure, Outcome, say};
use crate::queue::Queue;
use crate::session::{Story, page};
use crate::text::plural;

/// Make a page of a session: what went wrong, who did what when, and how long it took
///
/// One HTML file that needs neither a network nor a script; it looks right on a phone, in dark mode and
/// on paper.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: ensemble log report -o session.html")]
pub(crate) struct Arguments {
    /// File to write the page to; `-` for stdout
    #[arg(short, long, value_name = "FILE|-", default_value = "session.html")]
    #[arg(value_hint = clap::ValueHint::FilePath)]
    output: PathBuf,
    /// Session to report on, such as session-20261121-225001 [default: the newest]
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let logs = context.project()?.logs();
        if !logs.is_dir() {
            let text = format!("there is no event log at {}", logs.display());
            return Err(Failure::nothing(text).with_hint("`ensemble init` creates a queue"));
        }
        let mut story = Story::of(self.session.clone());
        let mut records = read_all(&logs)?;
        records.by_ref().for_each(|record| story.take(&record));
        let bad = records.bad_lines().count();
        if bad > 0 {
            say(&format!("warning: {} passed over: not records", plural(bad, "line")));
        }
        if let Some(failure) = records.failure() {
            return Err(Failure::new(Exit::Failed, failure.to_string()));
        }
        if story.is_empty() {
            let which = self.session.map_or_else(String::new, |session| format!(" {session}"));
            return Err(Failure::nothing(format!("there are no records of a session{which}"))
                .with_hint("`ensemble log` shows what there is"));
        }
        story.finish_all();
        if story.goes_on() {
            story.hold(holds(context));
        }
        let html = page(&story);
        if self.output == Path::new("-") {
            return context.out.content(html.as_bytes());
        }
        write_document(&self.output, html.as_bytes(), Durability::Process)?;
        let file = self.output.display();
        match context.out.is_json() {
            true => context.out.object(&json!({ "file": self.output, "bytes": html.len() })),
            false => context.out.line(format!("{file}: open it in a browser")),
        }
    }
}

/// What each agent holds. A page can be made of a log alone, too.
fn holds(context: &Context) -> BTreeMap<String, Vec<String>> {
    let look = || -> Outcome<_> {
        let queue = Queue::open(context)?;
        queue.overlook()?;
        Ok(Books::open(context.project()?).holds(&*queue, |_| true)?)
    };
    let held = look().unwrap_or_default();
    held.into_iter().map(|(agent, held)| (agent.to_string(), tasks(&held))).collect()
}
