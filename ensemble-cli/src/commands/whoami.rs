use ensemble_app::acting::{board_tasks, duty};
use ensemble_app::diagnostics::say;
use ensemble_app::introduction;
use ensemble_app::queue::ProjectQueue;
use ensemble_app::text::one_line;
use ensemble_core::message::Name;
use ensemble_project::workload::TaskBooks;
use ensemble_team::holdings::{Holding, tasks};
use ensemble_team::roster::IdentityProof;
use serde_json::json;

use crate::context::{Context, Failure, Outcome};

/// Print this agent's name, how it was identified, and what it holds
///
/// A spawned agent is identified by the pass in its environment or by its pane, not by what it
/// types. Exit code 3 for a process outside of the team without a name.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: ensemble agent whoami --json")]
pub(crate) struct Arguments {}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let identity = context.identity()?;
        let Some(name) = &identity.name else {
            return Err(Failure::nothing("not an agent of this team, and no name given")
                .with_hint("you are a person here: `ensemble recv` reads your mail, `--as NAME` asks about an agent"));
        };
        let member = context.project()?.roster().get(name)?.filter(|_| identity.is_member());
        let holds = holds(context, name);
        if context.out.is_json() {
            return context.out.object(&json!({
                "agent": name, "known_by": identity.proof,
                "role": member.as_ref().map(|m| &m.role),
                "mailbox": member.as_ref().map(|m| &m.mailbox),
                "generation": member.as_ref().map(|m| m.generation),
                "tasks": board_tasks(&holds), "holds": holds,
            }));
        }
        let how = match identity.proof {
            IdentityProof::Pass => "known by the pass it was given",
            IdentityProof::ProcessTree => "known by the pane it runs in",
            IdentityProof::HiddenPane => "known by the pane that its sandbox was started in",
            IdentityProof::Claimed => "by its own word, from outside of the team's panes",
        };
        let role = member.map_or_else(String::new, |member| format!(", {}", member.role));
        context.out.line(format!("{name}{role}: {how}"))?;
        if !holds.is_empty() {
            context.out.line(format!("holds {}", one_line(&tasks(&holds).join(", "))))?;
        }
        holds.iter().try_for_each(|Holding { task_id, held_as, epoch, worktree, .. }| {
            let Some(duty) = duty(*held_as) else { return Ok(()) };
            let place = worktree.as_ref().map_or_else(String::new, |path| format!(", in {path}"));
            let line = format!("  {duty} on task {task_id}, number {epoch}{place}");
            context.out.line(one_line(&line))
        })
    }
}

/// What an agent holds. The name is known also while the mailboxes cannot be read.
fn holds(context: &Context, name: &Name) -> Vec<Holding> {
    let look = || -> Outcome<Vec<Holding>> {
        let queue = ProjectQueue::open(context)?;
        queue.overlook()?;
        let books = TaskBooks::open(context.project()?);
        let mut known = books.holds(&*queue, |agent| agent == name)?;
        for error in &known.unread {
            say(&format!("warning: not all that {name} holds is known: {error}"));
        }
        Ok(known.by_agent.remove(name).unwrap_or_default())
    };
    look().unwrap_or_else(|failure| {
        say(&format!("warning: what {name} holds is not known: {}", failure.text()));
        Vec::new()
    })
}

/// Print what an agent should know now
///
/// Its name and role, what it holds, what waits, and how to take part: what hooks show an agent at the start of
/// each session. For agents without hooks, and for a person who wants to see it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: ensemble agent prime --as worker-1")]
pub(crate) struct PrimeAgent {}

impl PrimeAgent {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let agent = context.agent_required()?;
        let queue = ProjectQueue::open(context)?;
        queue.overlook()?;
        let member = context.project()?.roster().get(&agent)?;
        let text = introduction::text(context, &queue, &agent, member.as_ref())?;
        context.out.print_text(&json!({ "agent": agent, "text": text }), &text)
    }
}
