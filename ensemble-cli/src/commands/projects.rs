use ensemble_app::new_queue::list_project;
use ensemble_project::registry::known_projects;

use crate::context::{Context, Outcome};

/// List your projects on this machine, for addresses such as worker-1@website
///
/// A project is listed once `ensemble init` has made its queue, an agent of it was started, or this command was run in
/// it. Its name is that of its team, or of its directory.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble admin projects
  ensemble send --to worker-1@website 'the API has changed'")]
pub(crate) struct Arguments {}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        // A project that was moved is found again at its new place.
        if let Ok(project) = context.project()
            && project.queue.is_dir()
        {
            list_project(project);
        }
        context.out.print_list(&known_projects(), &["project", "queue"], |it| {
            vec![it.name.to_string(), it.queue.display().to_string()]
        })
    }
}
