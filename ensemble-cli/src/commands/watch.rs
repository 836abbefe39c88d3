use ensemble_app::diagnostics::say;
use ensemble_core::Error;
use ensemble_project::Project;
use ensemble_team::roster::Member;
use ensemble_watch::{run_process, run_process_while};

use crate::context::{Context, Failure, Outcome};

/// Run the watcher: route dropped files and wake agents, until Ctrl-C or SIGTERM
///
/// One watcher runs for each queue; a second one is refused with exit code 75. Files that landed
/// while no watcher ran are routed first.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: ensemble admin watch & # then: ensemble status")]
pub(crate) struct Arguments {
    /// End once no agent of the team runs any more
    #[arg(long, hide = true)]
    while_used: bool,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let project = context.project()?;
        if self.while_used {
            // The terminal in which the first agent was started may be closed before the last one ends.
            let _ = rustix::process::setsid();
            return Ok(run_process_while(project, is_used, || {})?);
        }
        let watched =
            run_process(project, || say(&format!("watching {}", project.queue.display())));
        watched.map_err(|error| match error {
            Error::Locked { .. } => Failure::from(error)
                .with_hint("a watcher of this project is already running: nothing else is needed"),
            error => error.into(),
        })
    }
}

fn is_used(project: &Project) -> bool {
    let runs = |member: &Member| {
        let has_process = member.binding.as_ref().is_some_and(|it| it.lives());
        let is_supervised = member.supervisor.is_some_and(|supervisor| supervisor.lives());
        member.is_present() && (has_process || is_supervised)
    };
    // An unreadable roster may have an agent that runs.
    project.roster().entries().map_or(true, |(members, _)| members.iter().any(runs))
}
