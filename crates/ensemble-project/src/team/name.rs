//! The name of an agent of a team on servers: one host at a time has it.

use std::sync::Arc;
use std::time::Duration;

use ensemble_core::Result;
use ensemble_core::event_log::NullRecorder;
use ensemble_core::message::Name;
use ensemble_team::roster::RosterError;

use crate::open_queue::QueueAccess;
use crate::project::Project;

/// How long a start waits for the servers.
const PATIENCE: Duration = Duration::from_secs(2);

/// Takes the name of an agent for this host before it is started. Servers that do not answer do not keep an agent from
/// its start. The watcher takes the name as soon as they do, and says so if another host has it.
pub(super) fn claim(project: &Project, agent: &Name) -> Result<()> {
    if !project.is_shared()? {
        return Ok(());
    }
    let mut access = QueueAccess::new(project.spool_options(Arc::new(NullRecorder)));
    access.patience_max = Some(PATIENCE);
    // A team may begin with its first agent.
    access.creates = true;
    let claimed = project.open(access).and_then(|queue| match queue.team_link() {
        Some(team) => team.claim_member(agent, &project.host()?),
        None => Ok(None),
    });
    match claimed {
        Ok(None) => Ok(()),
        Ok(Some(host)) => Err(RosterError::Elsewhere { agent: agent.clone(), host }.into()),
        Err(error) => {
            tracing::warn!(%error, %agent, "the name is not taken on the servers yet");
            Ok(())
        }
    }
}
