//! What a team on servers cannot do without more.

use crate::App;
use crate::failure::{Failure, Outcome};

/// Why step queues are refused.
pub const NO_SHARED_STEPS: &str = "step queues are a file of one host, and this team's mailboxes are on servers: \
                     set `steps: {postgres: ADDRESS}`";

/// Refuses the step queues of a team on servers whose hosts share no database.
pub fn admit_steps(app: &App) -> Outcome {
    if !uses_servers(app) || has_steps(app) {
        return Ok(());
    }
    Err(Failure::refused(NO_SHARED_STEPS).with_hint(
        "in ensemble.yaml of each host; or on the one host that is to have them `nats: {board_here: true}`",
    ))
}

/// Whether the project's mailboxes are on servers. Without a project, nothing is.
pub fn uses_servers(app: &App) -> bool {
    let servers = |project: &ensemble_project::Project| {
        project.servers().is_ok_and(|servers| servers.is_some())
    };
    app.project().is_ok_and(servers)
}

/// Whether the hosts share the step queues of a team on servers, or this host alone has them.
fn has_steps(app: &App) -> bool {
    let has = |project: &ensemble_project::Project| {
        project.has_shared_steps() || project.config.nats.board_here == Some(true)
    };
    app.project().is_ok_and(has)
}
