//! Refusals of what a team on servers cannot do without further set-up.

use crate::App;
use crate::failure::{Failure, Outcome};

pub const NO_SHARED_STEPS: &str = "step queues are a file of one host, and this team's mailboxes are on servers: \
                     set `steps: {postgres: ADDRESS}`";

pub fn admit_steps(app: &App) -> Outcome {
    let has_steps = |project: &ensemble_project::Project| project.has_shared_steps();
    if !uses_servers(app) || app.project().is_ok_and(has_steps) {
        return Ok(());
    }
    Err(Failure::refused(NO_SHARED_STEPS).with_hint("in ensemble.yaml of each host"))
}

/// Whether the project's mailboxes are on servers. Without a project, nothing is.
pub fn uses_servers(app: &App) -> bool {
    app.project().is_ok_and(|project| project.is_shared().is_ok_and(|is_shared| is_shared))
}
