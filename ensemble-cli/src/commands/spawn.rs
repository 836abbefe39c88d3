use std::path::PathBuf;

use ensemble_app::starting::{StartedSession, open, require_programs};
use ensemble_core::message::Name;
use ensemble_project::AgentConfig;
use ensemble_project::team::{AgentPlan, HowBrought};

use crate::context::{Context, Failure, Outcome};
use crate::printing::starting::print_brought;

/// Start an agent in a window of the team's session
///
/// Starts an agent of `ensemble.yaml`, whose settings these options override, or a new one. The
/// agent gets a mailbox of its name. In its pane no verb needs `--as`. An agent that is up already
/// is refused. `ensemble up` starts it again if it ends.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble agent start worker-3 --provider claude --directory ../wt/worker-3
  ensemble agent start tester --command 'sh run-tests.sh' --env SUITE=fast")]
pub(crate) struct Arguments {
    /// The agent
    name: Name,
    /// Role of the agent: conductor, dispatch, worker, planner, coder, code-reviewer or any word
    #[arg(long, value_name = "ROLE")]
    role: Option<Name>,
    /// Program of the agent: shell, claude, codex, opencode, gemini, qwen, copilot, kimi, acp or generic
    #[arg(long, value_name = "PROVIDER")]
    provider: Option<String>,
    /// Command to start, run by `sh -c` [default: that of the provider's profile]
    #[arg(long, value_name = "COMMAND")]
    command: Option<String>,
    /// Directory to start in [default: the project's directory]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    directory: Option<PathBuf>,
    /// Something for its environment; may be repeated
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let spool = context.spool()?;
        let team = open(context, &spool)?;
        let plan = self.plan(context)?;
        require_programs(&team, std::slice::from_ref(&plan))?;
        // Before a session is made for it.
        team.claim_name(&plan.name)?;
        let lock = team.lock()?;
        let session = StartedSession::start(context, &team)?;
        let brought = team.bring_up(&plan)?;
        session.await_watcher(context)?;
        drop(lock);
        if brought.how == HowBrought::Running {
            let text = format!("{} is up already, and was left as it is", plan.name);
            return Err(Failure::refused(text).with_hint("`ensemble team` shows it"));
        }
        print_brought(context, &[brought])
    }

    fn plan(self, context: &Context) -> Outcome<AgentPlan> {
        let project = context.project()?;
        let mut agent = project.config.agents.get(&self.name).cloned().unwrap_or_default();
        if let Some(recorded) = project.roster().get(&self.name)?
            && !project.config.agents.contains_key(&self.name)
        {
            agent = AgentConfig {
                role: Some(recorded.role),
                provider: Some(recorded.provider),
                command: recorded.command,
                directory: recorded.directory,
                mailbox: Some(recorded.mailbox),
                env: recorded.env,
                ..AgentConfig::default()
            };
        }
        // Another program is not started by the old one's command.
        if self.provider.is_some() && self.provider != agent.provider {
            agent.command = None;
        }
        let directory = self.directory.map(|directory| std::path::absolute(&directory));
        let directory = directory.transpose().map_err(|error| {
            Failure::refused(format!("cannot tell where the directory is: {error}"))
        })?;
        agent.pane = None;
        agent.role = self.role.or(agent.role);
        agent.provider = self.provider.or(agent.provider);
        agent.command = self.command.or(agent.command);
        agent.directory = directory.or(agent.directory);
        agent.env.extend(self.env);
        Ok(AgentPlan::configured(project, &project.profiles()?, &self.name, &agent)?)
    }
}

fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}
