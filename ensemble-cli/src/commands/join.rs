use std::path::PathBuf;

use ensemble_app::agent_panes::{bind_named_pane, is_bound_alive, warn_of_absent_agent};
use ensemble_app::starting::open;
use ensemble_core::event_log::types;
use ensemble_core::message::Name;
use ensemble_project::panes::PaneEntry;
use ensemble_project::team::{AgentPlan, HowBrought};
use ensemble_team::roster::{Member, refuse_agent};
use ensemble_tmux::tmux::Binding;
use serde_json::json;

use crate::context::{Context, Failure, Outcome};
use crate::printing::starting::print_brought;

/// Add an existing pane to the team
///
/// Inside tmux, zellij or herdr, the default is the pane this runs in. Nothing is started in it. From now on
/// commands in that pane act as this agent, and it is notified there. A pane belongs to one agent
/// at most, and an agent that is up elsewhere is not taken over.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble agent join lead                              # the pane you are in
  ensemble agent join reviewer --pane %7 --provider codex")]
pub(crate) struct Arguments {
    /// The agent
    name: Name,
    /// The tmux pane, by its id (%3) or its exact name (=session:window.0), or zellij:SESSION/PANE or herdr:PANE
    /// [default: the pane around this command]
    #[arg(long, value_name = "PANE")]
    pane: Option<String>,
    /// The tmux server's socket [default: the one of $TMUX]
    #[arg(long, value_name = "SOCKET", value_hint = clap::ValueHint::FilePath)]
    tmux_socket: Option<PathBuf>,
    /// Program of the agent: shell, claude, codex, opencode, gemini, qwen, copilot, kimi, acp or generic [default: shell]
    #[arg(long, value_name = "PROVIDER")]
    provider: Option<String>,
    /// Role of the agent [default: its own name if that is a role, otherwise worker]
    #[arg(long, value_name = "ROLE")]
    role: Option<Name>,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        refuse_agent(&self.name, &context.project()?.config.people)?;
        let spool = context.spool()?;
        let team = open(context, &spool)?;
        let binding = bind_named_pane(self.pane.as_deref(), self.tmux_socket.as_deref())?;
        let lock = team.lock()?;
        self.may_join(context, &binding)?;
        let brought = team.join(&self.plan(context)?, &binding)?;
        drop(lock);
        let Member { name, mailbox, provider, .. } = &brought.member;
        let entry =
            PaneEntry::new(name.clone(), mailbox.clone(), provider.clone(), binding.clone());
        warn_of_absent_agent(context.project()?, &entry);
        if brought.how == HowBrought::Running && !context.out.is_json() {
            let name = &brought.member.name;
            return context.out.line(format!("{name} has pane {} already", binding.id));
        }
        print_brought(context, &[brought])
    }

    /// A known agent may not take another name, and no name is taken that is up in another pane.
    fn may_join(&self, context: &Context, binding: &Binding) -> Outcome {
        let identity = context.identity()?;
        if let Some(actual) = identity.name.as_ref().filter(|_| identity.is_member())
            && *actual != self.name
        {
            let data = json!({
                "claimed": self.name, "actual": actual, "why": "join", "verb": "join",
            });
            context.recorder()?.record(types::IDENTITY_REFUSED, actual.as_str(), data);
            let text = format!("this is {actual}, who may not give a pane to `{}`", self.name);
            return Err(Failure::refused(text).with_hint(
                "run it outside of the team's panes; `ensemble agent start` starts an agent",
            ));
        }
        let member = context.project()?.roster().get(&self.name)?.filter(Member::is_present);
        match member.and_then(|member| member.binding).filter(|bound| bound != binding) {
            Some(bound) if is_bound_alive(&bound)? => {
                let text = format!("{} is up in pane {}", self.name, bound.id);
                Err(Failure::refused(text)
                    .with_hint("`ensemble request shutdown` asks it to go; then its name is free"))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn plan(self, context: &Context) -> Outcome<AgentPlan> {
        let project = context.project()?;
        let recorded = project.roster().get(&self.name)?;
        let mut agent = project.config.agents.get(&self.name).cloned().unwrap_or_default();
        if let Some(member) = recorded.filter(|_| !project.config.agents.contains_key(&self.name)) {
            agent.role = Some(member.role);
            agent.provider = Some(member.provider);
            agent.mailbox = Some(member.mailbox);
        }
        agent.role = self.role.or(agent.role);
        agent.provider = self.provider.or(agent.provider);
        Ok(AgentPlan::configured(project, &project.profiles()?, &self.name, &agent)?)
    }
}
