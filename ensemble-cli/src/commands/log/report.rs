use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ensemble_app::content::write_output;
use ensemble_app::door_hints::name_queue;
use ensemble_app::overview::gather;
use ensemble_app::usage::{TeamUsage, cost, describe_unclear};
use ensemble_core::durable::FileModes;
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::event_log::read_all;
use ensemble_history::session::{AgentUse, SessionPresent, SessionStory, page};
use ensemble_project::attention::join_by_cause;
use ensemble_project::overview::StateSource;
use ensemble_team::holdings::tasks;
use ensemble_usage::UsageTotals;
use serde_json::json;

use crate::context::{Context, Failure, Outcome};

/// Write a session as a page: who needs you, what went wrong, who did what when
///
/// One HTML file that needs no network; it looks right on a phone, in dark mode and on paper. A click on a bar opens
/// its story.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble log report -o session.html
  ensemble log report --follow")]
pub(crate) struct Arguments {
    /// File to write the page to; `-` for stdout
    #[arg(short, long, value_name = "FILE|-", default_value = "session.html")]
    #[arg(value_hint = clap::ValueHint::FilePath)]
    output: PathBuf,
    /// Session to report on, such as session-20261121-225001 [default: the newest]
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// Serve the page on this machine instead, and update it until Ctrl-C
    #[cfg(feature = "mcp")]
    #[arg(long, conflicts_with = "output")]
    follow: bool,
    /// Port of the page [default: a free one]
    #[cfg(feature = "mcp")]
    #[arg(
        long,
        value_name = "PORT",
        requires = "follow",
        default_value_t = 0,
        hide_default_value = true
    )]
    port: u16,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        #[cfg(feature = "mcp")]
        if self.follow {
            return super::follow::serve(context, self.session, self.port);
        }
        let is_to_stdout = self.output == Path::new("-");
        if is_to_stdout && context.out.is_json() {
            let hint = "`ensemble log report -o session.html --json` writes the page to a file";
            return Err(Failure::usage("`-o -` prints a page, which is not JSON").with_hint(hint));
        }
        let story = story(context, self.session)?;
        let present = present(context, &story);
        let html = page(&story, present.as_ref(), None);
        if is_to_stdout {
            return context.out.content(html.as_bytes());
        }
        write_output(&self.output, html.as_bytes(), FileModes::default().file)?;
        let file = self.output.display();
        let object = json!({ "file": self.output, "bytes": html.len() });
        context.out.print_answer(&object, format!("{file}: open it in a browser"))
    }
}

pub(super) fn story(context: &Context, session: Option<String>) -> Outcome<SessionStory> {
    super::require_log(context)?;
    let mut story = SessionStory::of(session.clone());
    let team = ensemble_app::team_log::TeamLog::open(context)?;
    let mut records = read_all(team.path())?;
    records.by_ref().for_each(|record| story.apply_record(&record));
    super::check_whole(&records)?;
    if story.is_empty() {
        let which = session.map_or_else(String::new, |session| format!(" {session}"));
        return Err(super::no_session(&which));
    }
    story.finish_all();
    Ok(story)
}

/// The present needs, and the usage of each agent. A page can be made of a log alone, too.
pub(super) fn present(context: &Context, story: &SessionStory) -> Option<SessionPresent> {
    if !story.is_newest() {
        return None;
    }
    let overview = gather(context, StateSource::Watcher).ok()?;
    let (usage, unclear) = match TeamUsage::read(context) {
        Ok(usage) => (usage.agents, usage.unclear.iter().map(describe_unclear).collect()),
        Err(_) => (BTreeMap::new(), Vec::new()),
    };
    let used = usage.iter().map(|(agent, usage)| (agent.to_string(), used(&usage.spent)));
    let usage: BTreeMap<String, AgentUse> = used.collect();
    let held = overview.holds.iter().filter(|(_, held)| !held.is_empty());
    let holds = held.map(|(agent, held)| (agent.to_string(), tasks(held))).collect();
    let mut needs = join_by_cause(&overview.needs);
    needs.iter_mut().for_each(|need| need.help = name_queue(&need.help, context.queue_flag()));
    Some(SessionPresent { at: SystemClock.wall(), needs, holds, usage, unclear })
}

fn used(spent: &UsageTotals) -> AgentUse {
    AgentUse { turns: spent.turns, tokens: spent.tokens.total(), cost: cost(spent) }
}
