//! Ends what an earlier generation of an agent has left before the next one starts.
//!
//! Some agents start their own server that outlives their pane and serves the next start. Its
//! commands would run with the pass of the earlier generation and be refused.

use std::time::Duration;

use ensemble_core::Result;
use ensemble_core::event_log::types;
use ensemble_core::message::Name;
use ensemble_team::roster::Member;
use ensemble_tmux::reaper::{ProcessSet, Reaper, ReaperError, Signal};
use serde_json::json;

use super::ProjectTeam;

/// How long a process has after it was asked to end, and again after it was killed.
const END_LIMIT: Duration = Duration::from_secs(3);

impl ProjectTeam<'_> {
    /// Ends the processes that carry the pass of `member`'s generation, whose pane has ended.
    pub(super) fn end_remains(&self, name: &Name, member: Option<&Member>) -> Result<()> {
        let Some(pass) = member.and_then(|member| member.pass_sha256) else { return Ok(()) };
        let (members, _) = self.roster().entries()?;
        let others = members.into_iter().filter(|other| other.name != *name && other.is_present());
        let processes = others
            .filter_map(|other| other.binding)
            .fold(ProcessSet::new().with_pass(pass), |processes, b| {
                processes.but_not(b.pid, b.started)
            });
        let mut reaper = Reaper::new(processes);
        let found = reaper.sweep(Signal::Terminate)?;
        if found == 0 {
            return Ok(());
        }
        reaper.wait(END_LIMIT);
        if reaper.sweep(Signal::Kill)? > 0 {
            reaper.wait(END_LIMIT);
        }
        let left = reaper.find()?;
        let data = json!({ "agent": name, "found": found, "survivors": left.len() });
        self.recorder.record(types::AGENT_REMAINS, self.actor.as_str(), data);
        match left.first() {
            None => Ok(()),
            Some(process) => Err(ReaperError::Survivor { pid: process.pid }.into()),
        }
    }
}
