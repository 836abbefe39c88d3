//! Keeping what working agents hold, and returning what ended ones held: see [`crate::held_work`].

use ensemble_core::env::Monotonic;
use ensemble_core::message::Name;
use ensemble_team::driver::SupervisorSeat;
use ensemble_team::roster::{MemberState, PaneObservation};

use super::WatchEngine;
use super::mail::EngineMail;
use super::team::EngineTeam;
use crate::held_work::{GoneAgent, GoneVerdict, held_by, keep_mail, return_all};

const SUPERVISED: &str = "its supervisor runs it";
const SUPERVISOR_DEAD: &str = "its supervisor is dead";

impl EngineTeam {
    pub(super) fn see_gone(
        &mut self,
        agent: &Name,
        observation: &PaneObservation,
        is_script: bool,
        mail: &mut EngineMail,
    ) {
        let held = || held_by(agent, &*self.context.spool);
        match self.gone.observed(agent, observation, is_script, held) {
            Ok(GoneVerdict::Nothing) => {}
            Ok(GoneVerdict::LookAgain) => mail.notifier.observe_agent(agent),
            // An agent that is being shut down is handed back by its departure.
            Ok(GoneVerdict::Ended(ended)) if self.is_leaving(agent) => drop(ended),
            Ok(GoneVerdict::Ended(ended)) => self.ended.push(ended),
            Err(error) => tracing::warn!(%error, %agent, "cannot tell what an ended agent holds"),
        }
    }

    pub(super) fn see_supervisors(&mut self, now: Monotonic) {
        let mut agents = self.leases.holders();
        agents.extend(self.board.agents());
        for agent in agents {
            match self.board.seat(&agent) {
                SupervisorSeat::None => {}
                SupervisorSeat::Lives { runs } => {
                    self.gone.has_supervisor(&agent);
                    self.evidence.supervised(now, &agent, runs.then_some(SUPERVISED));
                }
                SupervisorSeat::Dead if self.gone.lost_supervisor(&agent) => {
                    let leases = held_by(&agent, &*self.context.spool).unwrap_or_default();
                    self.ended.push(GoneAgent { agent, why: SUPERVISOR_DEAD.to_owned(), leases });
                }
                SupervisorSeat::Dead => {}
            }
        }
    }

    /// Extends the leases of messages and on the board whose holders are seen working.
    pub(super) fn extend_leases(&mut self, now: Monotonic, mail: &EngineMail) {
        let working = self.evidence.working(now);
        let (spool, recorder) = (&*self.context.spool, &*self.context.recorder);
        keep_mail(now, self.leases.held(), &working, &mut self.kept, spool, recorder);
        self.board.extend_leases(now, &working, &mut self.kept, recorder);
        mail.remote.share_observation(|sight| sight.working = working);
    }

    fn is_leaving(&self, agent: &Name) -> bool {
        let member = self.context.project.roster().get(agent);
        matches!(member, Ok(Some(member)) if member.state != MemberState::Up)
    }
}

impl WatchEngine {
    /// Renews the steps of agents that are seen working, and notes what was kept.
    pub(super) fn keep_steps(&mut self, now: Monotonic) {
        let EngineTeam { evidence, kept, .. } = &mut self.team;
        self.upkeep.steps.extend_leases(now, &evidence.working(now), kept, &*self.context.recorder);
        kept.remember(now);
    }

    pub(super) fn return_held(&mut self) {
        for ended in std::mem::take(&mut self.team.ended) {
            let (spool, recorder) = (&*self.context.spool, &*self.context.recorder);
            let GoneAgent { agent, why, leases } = &ended;
            let take_others = || {
                let mut others = self.team.board.take_back(agent, recorder);
                others.extend(self.upkeep.steps.take_back(agent));
                others
            };
            let returned = return_all(agent, why, leases, spool, take_others, recorder);
            if let Some(alarm) = returned.alarm(agent, why) {
                self.upkeep.alarms.happened(&alarm);
            }
            self.mail.changed(returned.mailboxes);
            self.mail.remote.share_observation(|sight| sight.ended.push(ended.clone()));
        }
        let gone = &self.team.gone;
        self.mail.remote.share_observation(|sight| gone.retain_gone(&mut sight.ended));
    }
}
