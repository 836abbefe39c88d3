use std::time::Duration;

use ensemble_app::departing::DepartureAsk;
use ensemble_app::queue::ProjectQueue;
use ensemble_app::starting::{StartedSession, open, plans_of, require_programs_again};
use ensemble_core::broker::UnreadMail;
use ensemble_core::message::Name;
use ensemble_core::proto::request::AtExpiry;
use ensemble_project::Project;
use ensemble_project::rows::RosterRow;
use ensemble_team::roster::{Member, MemberOrigin};

use crate::completion;
use crate::context::{Context, Failure, Outcome};
use crate::printing::print_fates as report_end;
use crate::printing::starting::print_brought as report_start;
use crate::stand_in::start_watcher;

const REASON: &str = "You are being restarted. Please shut down gracefully.";

/// How long a restarted agent has for its answer, unless ensemble.yaml gives it a time.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);

/// Shut down an agent, and start it again
///
/// Asks the agent to shut down, as `ensemble down` does, and waits until it has ended. What it held goes back to its
/// mailbox, and its unread mail stays. Then it starts as `ensemble up NAME` starts it, with the command,
/// directory and environment that ensemble.yaml has now. An agent that refuses to shut down is left running. An agent that
/// does not answer within 30 seconds, or `shutdown.deadline` of ensemble.yaml, is ended; `--force` does not ask.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble agent restart worker-1
  ensemble agent restart worker-1 --force")]
pub(crate) struct Arguments {
    /// The agent
    #[arg(value_name = "NAME", add = completion::agents())]
    name: Name,
    /// End it at once without asking
    #[arg(long)]
    force: bool,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let (project, spool) = (context.project()?, context.spool()?);
        let from = context.actor()?;
        if from == self.name {
            return Err(Failure::refused("an agent cannot restart itself")
                .with_hint("ask a person or another agent to do it"));
        }
        let member = project.roster().get(&self.name)?;
        if let Some(member) = &member {
            require_restartable(project, member)?;
        }
        let team = open(context, &spool)?;
        let plans = plans_of(project, std::slice::from_ref(&self.name))?;
        // Nothing ends that could not be started again.
        require_programs_again(&plans)?;
        if let Some(member) = member.filter(Member::is_present) {
            let farewell = DepartureAsk {
                app: context,
                from,
                reason: REASON.to_owned(),
                deadline: self.deadline(project),
                on_silence: Some(AtExpiry::Force),
                unread: Some(UnreadMail::Keep),
                ends_unrecorded: false,
                id: None,
            };
            let fates = farewell.drain(
                &ProjectQueue::open(context)?,
                std::slice::from_ref(&member),
                start_watcher,
            )?;
            report_end(context, &fates)?;
        }
        let lock = team.lock()?;
        let session = StartedSession::start(context, &team)?;
        let brought =
            plans.iter().map(|plan| team.bring_up(plan)).collect::<Result<Vec<_>, _>>()?;
        session.await_watcher(context)?;
        drop(lock);
        report_start(context, &brought)
    }

    /// How long the agent has for its answer; `None` for what ensemble.yaml says of it.
    fn deadline(&self, project: &Project) -> Option<Duration> {
        let agent = project.config.agents.get(&self.name);
        let has_time = agent.is_some_and(|agent| agent.shutdown.deadline.is_some());
        match self.force {
            true => Some(Duration::ZERO),
            false => (!has_time).then_some(ANSWER_PATIENCE),
        }
    }
}

fn require_restartable(project: &Project, member: &Member) -> Outcome {
    let name = &member.name;
    let again = RosterRow::of(member.clone()).again(project);
    let (text, hint) = match member.came() {
        MemberOrigin::Started => return Ok(()),
        MemberOrigin::Recorded if project.config.agents.contains_key(name) => return Ok(()),
        MemberOrigin::Wrapped => (
            format!("{name} runs in its own terminal"),
            format!("end it there, then run {again} in that terminal"),
        ),
        MemberOrigin::Joined => (
            format!("{name} joined in a pane that `up` has not opened"),
            "end its program in that pane, and start it there again".to_owned(),
        ),
        _ => (
            format!("{name} was not started by `ensemble up`"),
            format!("start it where it was started: {again}"),
        ),
    };
    Err(Failure::refused(text).with_hint(hint))
}
