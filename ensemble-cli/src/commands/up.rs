use ensemble_app::agent_panes::warn_of_absent_agent;
use ensemble_app::diagnostics::say;
use ensemble_app::starting::{
    StartedAgents, StartedSession, ended, open, plans_of, require_programs,
};
use ensemble_core::message::Name;
use ensemble_project::panes::PaneEntry;
use ensemble_project::team::{AgentPlan, HowBrought, LaunchedAgent, ProjectTeam};
use ensemble_team::roster::MemberOrigin;

use crate::completion;
use crate::context::{Context, Failure, Outcome};
use crate::printing::starting::{print_brought, print_observed, print_session};

/// Start the team: its tmux session, an agent in each window, and the watcher
///
/// Starts the agents of `ensemble.yaml`, and spawned agents that have ended. Running agents, their
/// mail and a running watcher are left alone. An agent that has ended is started again in its pane.
/// The session has its own tmux server (`.ensemble/tmux.sock`), which reads your tmux
/// configuration, so that your keys work when you attach. If this is interrupted, run it again.
///
/// Programs that cannot be found are an error before anything is started. An agent that begins with
/// a dialog (trust, login, MCP server …) is named: only a person may answer it. An agent whose
/// screen is not known yet is watched for 20 s at most, and then named as still starting.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble up && ensemble agent attach
  ensemble up worker-1 worker-2")]
pub(crate) struct Arguments {
    /// Only these agents
    #[arg(value_name = "NAME", add = completion::agents())]
    names: Vec<Name>,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let spool = context.spool()?;
        let team = open(context, &spool)?;
        let plans = plans_of(context.project()?, &self.names)?;
        if plans.is_empty() && !context.project()?.config.agents.is_empty() {
            return Err(Failure::refused("no agent was started").with_hint(
                "correct or remove what the warnings name; `ensemble status` has the paths",
            ));
        }
        if plans.is_empty() {
            return Err(Failure::nothing("there is no agent to bring up").with_hint(
                "name some under `agents:` in ensemble.yaml, or use `ensemble agent start`",
            ));
        }
        require_programs(&team, &plans)?;
        context.project()?.keep_out_of_git()?;
        let lock = team.lock()?;
        let session = StartedSession::start(context, &team)?;
        print_session(context, &session)?;
        let (mut brought, mut failed) = (Vec::new(), None);
        for plan in &plans {
            let one = match team.bring_up(plan) {
                Ok(one) => one,
                // The others start without it.
                Err(error) => {
                    if let Some(earlier) = failed.replace(error) {
                        say(&format!("warning: {earlier}"));
                    }
                    continue;
                }
            };
            let is_joined = one.member.came() == MemberOrigin::Joined;
            if let Some(entry) = PaneEntry::of(&one.member).filter(|_| is_joined) {
                warn_of_absent_agent(context.project()?, &entry);
            }
            brought.push(one);
        }
        session.await_watcher(context)?;
        drop(lock);
        let printed = print_revived(context, &team, &plans, &mut brought);
        failed.map_or(printed, |error| Err(error.into()))
    }
}

/// Says what was done. An agent that was running and has ended by now is started again before: the pane of one that was
/// killed just before ends later than its program.
fn print_revived(
    context: &Context,
    team: &ProjectTeam<'_>,
    plans: &[AgentPlan],
    brought: &mut [LaunchedAgent],
) -> Outcome {
    let starts = StartedAgents::observe(context.project()?, brought)?;
    let has_ended =
        |one: &LaunchedAgent| Ok(one.how == HowBrought::Running && ended(&one.member)?.is_some());
    let late: Vec<bool> = brought.iter().map(has_ended).collect::<Outcome<_>>()?;
    if !late.contains(&true) {
        return print_observed(context, brought, starts);
    }
    drop(starts);
    let lock = team.lock()?;
    for (one, _) in brought.iter_mut().zip(late).filter(|(_, is_late)| *is_late) {
        let plan = plans.iter().find(|plan| plan.name == one.member.name);
        match plan.map(|plan| team.bring_up(plan)) {
            Some(Ok(again)) => *one = again,
            // The table says that it has ended.
            Some(Err(error)) => say(&format!("warning: {error}")),
            None => {}
        }
    }
    drop(lock);
    print_brought(context, brought)
}
