use ensemble_app::overview::{FRESH, describe_agent, gather, unknown_agent};
use ensemble_core::message::Name;
use ensemble_project::Project;
use ensemble_project::attention::{Kind, Need, WatcherState};
use ensemble_project::overview::{AgentOverview, Overview};
use serde_json::{Value, json};

use crate::completion;
use crate::context::{Context, Failure, Outcome, VerbExit};
use crate::printing::overview::{note_look, print_needs, print_rows, watch, worst_first};

/// Show the team: the state of each agent, with its evidence
///
/// States: idle, working, starting, waiting (for a decision), blocked (by a dialog), limited.
/// Further: unknown (its profile does not know its screen), shutdown, gone (it should be up
/// and is not). They come from what can be seen now: the roster, the pane, the leases, pending
/// requests; never from what an agent has said of itself. `since` comes from the running
/// watcher. `doing` shows what it holds, its unread mail, and the evidence.
///
/// Every agent is a row, however it came. What needs a person comes first, with the command to run.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble team --watch
  ensemble team worker-1 --json | jq -r .state")]
pub(crate) struct Arguments {
    /// Only this agent
    #[arg(value_name = "NAME", add = completion::agents())]
    name: Option<Name>,
    /// Show it again whenever something has changed, until Ctrl-C
    #[arg(long)]
    watch: bool,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        note_look(context);
        if !self.watch {
            return print(context, &self.gather_overview(context)?);
        }
        let look = || {
            let overview = self.gather_overview(context)?;
            let project = context.project()?;
            let lasting = |agent| describe_agent(project, agent);
            let mut lasting: Vec<Value> = overview.agents.iter().map(lasting).collect();
            lasting.push(overview.watcher.runs().into());
            lasting.push(json!(overview.needs));
            Ok((overview, lasting.into()))
        };
        watch(context, look, |overview| print(context, overview))
    }

    fn gather_overview(&self, context: &Context) -> Outcome<Overview> {
        let mut overview = gather(context, FRESH)?;
        if let Some(name) = &self.name {
            let mut known = overview.agents.iter().map(|agent| &agent.row.member.name);
            if overview.away.is_none() && !overview.agents.is_empty() && !known.any(|it| it == name)
            {
                let known = overview.agents.iter().map(|agent| &agent.row.member.name);
                return Err(unknown_agent(name, known).with_hint("`ensemble team` lists all"));
            }
            overview.agents.retain(|agent| agent.row.member.name == *name);
            let is_about =
                |need: &Need| need.need == Kind::Away || need.agent.as_ref() == Some(name);
            overview.needs.retain(is_about);
        }
        if let (true, Some(away)) = (overview.agents.is_empty(), &overview.away) {
            let text = format!("no agent runs here, and the servers are away: {}", away.why);
            return Err(Failure::new(VerbExit::Busy, text).with_hint(&away.help));
        }
        if overview.agents.is_empty() {
            return Err(Failure::nothing("the team has no agents").with_hint(
                "`ensemble up` brings it up; `ensemble agent start` and `ensemble agent join` add one",
            ));
        }
        Ok(overview)
    }
}

fn object(project: &Project, agent: &AgentOverview, overview: &Overview) -> Value {
    let mut object = describe_agent(project, agent);
    object["servers_away"] = json!(overview.away);
    if overview.away.is_some() {
        // The mailboxes on the servers are not known.
        object["unread"] = Value::Null;
    }
    object["watcher_hangs"] = json!(matches!(overview.watcher.state(), WatcherState::Hangs(_)));
    object["waited_seconds"] = json!(agent.waited.map(|waited| waited.as_secs()));
    object["watcher_running"] = overview.watcher.runs().into();
    object["last_sign_of_life"] = json!(agent.sign_of_life);
    object
}

fn print(context: &Context, overview: &Overview) -> Outcome {
    if context.out.is_json() {
        let (project, mut agents) = (context.project()?, overview.agents.iter());
        return agents.try_for_each(|agent| context.out.object(&object(project, agent, overview)));
    }
    print_needs(context, overview)?;
    print_rows(context, overview, &worst_first(overview), true)
}
