//! The pane and the process of a member, for its departure.

use std::sync::Arc;
use std::time::Duration;

use ensemble_core::Result;
use ensemble_core::agent::AgentState;
use ensemble_core::document::SharedFiles;
use ensemble_core::driver::nap;
use ensemble_core::env::{Pane as _, SystemClock};
use ensemble_core::event_log::{EventLog, LogOptions, Recorder};
use ensemble_core::message::Name;
use ensemble_core::pane::Deferral;
use ensemble_team::board::is_missing;
use ensemble_team::driver::{AgentHost, BoardLeases};
use ensemble_team::proto::shutdown::WorkerPresence;
use ensemble_team::roster::Member;
use ensemble_tmux::provider::{Judgement, Profile};
use ensemble_tmux::reaper::{self, ProcessFate};
use ensemble_tmux::terminal::BoundPane;

use crate::Project;
use crate::panes::{self, PaneEntry};

/// How many consecutive times an agent must appear idle before it counts as finished: between two turns it appears
/// idle for a moment, too.
const IDLE_LOOKS: u32 = 2;

/// How often to ask how a process ended that has just ended.
const STATUS_LOOKS: u32 = 20;
const STATUS_INTERVAL: Duration = Duration::from_millis(25);

/// The pane of a member. One that existed before it joined is left open.
#[derive(Debug)]
pub struct PaneHost {
    project: Project,
    member: Member,
    profile: Arc<Profile>,
    pane: Option<BoundPane>,
    idle_looks: u32,
}

impl PaneHost {
    /// The agent host of `member` as the roster has them now. Connects to nothing yet.
    pub fn of(project: &Project, member: &Member) -> Result<Self> {
        let profile = project.profiles()?.get(&member.provider)?;
        let pane = PaneEntry::of(member)
            .map(|entry| project.open_pane(&entry, Arc::clone(&profile)))
            .transpose()?;
        Ok(Self { project: project.clone(), member: member.clone(), profile, pane, idle_looks: 0 })
    }

    fn is_gone(diagnosis: &Judgement) -> bool {
        use Deferral::{PaneDead, PaneGone, PaneReused, ServerGone, TerminalGone};
        match diagnosis.deferral {
            Some(PaneGone | PaneReused | PaneDead | ServerGone | TerminalGone) => true,
            _ => diagnosis.state == AgentState::Crashed,
        }
    }
}

impl AgentHost for PaneHost {
    fn observe_agent(&mut self) -> Result<WorkerPresence> {
        let Some(pane) = &mut self.pane else {
            // A supervisor outside of the panes leaves by itself.
            let lives = self.member.supervisor.is_some_and(|supervisor| supervisor.lives());
            return Ok(if lives { WorkerPresence::Busy } else { WorkerPresence::Gone });
        };
        let diagnosis = match pane.diagnose() {
            Ok(diagnosis) => diagnosis,
            // If the server is gone, so are its panes.
            Err(error) => {
                let gone = pane.check()?.is_some();
                return if gone { Ok(WorkerPresence::Gone) } else { Err(error) };
            }
        };
        if Self::is_gone(&diagnosis) {
            return Ok(WorkerPresence::Gone);
        }
        // A script shows the same whether it has finished or not: it is to end by itself.
        let ends_by_itself = matches!(self.profile.name(), "shell" | "generic");
        if diagnosis.state != AgentState::Ready || ends_by_itself {
            self.idle_looks = 0;
            return Ok(WorkerPresence::Busy);
        }
        self.idle_looks += 1;
        Ok(if self.idle_looks < IDLE_LOOKS { WorkerPresence::Busy } else { WorkerPresence::Idle })
    }

    fn exit_code(&mut self) -> Option<i32> {
        let pane = self.pane.as_mut()?;
        let pid = self.member.binding.as_ref()?.pid;
        for _ in 0..STATUS_LOOKS {
            let seen = pane.inspect().ok()?;
            match reaper::fate(pid) {
                _ if seen.dead_status.is_some() => return seen.dead_status,
                ProcessFate::Unnoticed { exit_code } => return exit_code,
                ProcessFate::Lives if !seen.dead => return None,
                // It has closed its terminal and is about to exit, or tmux is about to report its status.
                _ => nap(STATUS_INTERVAL),
            }
        }
        None
    }

    fn close(&mut self) -> Result<()> {
        if let (Some(pane), Some(_)) = (&self.pane, &self.member.command) {
            pane.close()?;
        }
        // The file may be that of a later generation by now.
        match panes::find(&self.project.panes(), &self.member.name)? {
            Some(entry) if Some(&entry.binding) == self.member.binding.as_ref() => {
                panes::forget(&self.project.panes(), &self.member.name).map(drop)
            }
            _ => Ok(()),
        }
    }

    fn return_work(&mut self, by: &Name) {
        return_work(&self.project, &self.member.name, by);
    }
}

/// Returns the steps of an agent that has ended, and what it holds on the board, because `by` says so. What cannot be
/// returned expires.
pub(crate) fn return_work(project: &Project, agent: &Name, by: &Name) {
    let log = EventLog::deferred(&project.logs(), LogOptions::default());
    let recorder: Arc<dyn Recorder> = Arc::new(log);
    let steps = || -> Result<()> {
        let steps = project.open_steps(project.step_options(Arc::clone(&recorder)))?;
        steps.take_back(agent).map(drop)
    };
    let board = || -> Result<()> {
        let team = match project.has_shared_board() {
            true => project.open_unrecorded()?.team_link().cloned(),
            false => None,
        };
        let options = project.board_options(by.as_str(), Arc::clone(&recorder));
        match project.find_board(options, team.map(|team| team as Arc<dyn SharedFiles>)) {
            Err(error) if is_missing(&error) => Ok(()),
            board => BoardLeases::new(board?, by.as_str(), &SystemClock)
                .take_from(agent, &*recorder)
                .map(drop),
        }
    };
    let of_steps = if project.has_steps() { steps() } else { Ok(()) };
    for error in [of_steps, board()].into_iter().filter_map(Result::err) {
        tracing::warn!(%error, %agent, "what an agent that was shut down holds is not returned");
    }
}
