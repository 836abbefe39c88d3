//! The team: what its agents do and hold, and the two roles that wait.

use std::sync::Arc;
use std::time::Duration;

use ensemble_core::env::{Clock as _, Monotonic, SystemClock};
use ensemble_core::leases::MailboxLeases;
use ensemble_core::message::Name;
use ensemble_core::proto::lease::LOOK_INTERVAL;
use ensemble_project::members;
use ensemble_project::sessions::give_back_all;
use ensemble_team::roster::PaneObservation;

use super::mail::{ArrivedMessage, EngineMail};
use crate::board_leases::BoardWatch;
use crate::context::WatchContext;
use crate::held_work::{GoneAgent, GoneAgents, KeptLeases, WorkEvidence};
use crate::leases;
use crate::member_watch::MemberWatch;
use crate::processes::WatchedProcess;
use crate::rate_limit_hold::{self, ClockMoment, RateLimitHold};
use crate::requests::keep_gated;
use crate::roles::WaitingRoles;

const LEASE_INTERVAL: Duration = LOOK_INTERVAL;

pub(super) struct EngineTeam {
    pub(super) context: Arc<WatchContext>,
    pub(super) members: MemberWatch,
    pub(super) leases: MailboxLeases,
    pub(super) board: BoardWatch,
    rate_limit_hold: RateLimitHold,
    pub(super) roles: WaitingRoles,
    pub(super) evidence: WorkEvidence,
    pub(super) kept: KeptLeases,
    pub(super) gone: GoneAgents,
    /// Agents that were seen gone, and hold what they held.
    pub(super) ended: Vec<GoneAgent>,
    next_lease_look: Monotonic,
}

impl EngineTeam {
    pub(super) fn new(now: Monotonic, context: &Arc<WatchContext>) -> Self {
        let project = &context.project;
        Self {
            context: Arc::clone(context),
            members: MemberWatch::new(now, context),
            leases: leases::open(&project.state),
            board: BoardWatch::default(),
            rate_limit_hold: RateLimitHold::default(),
            roles: WaitingRoles::new(&project.config),
            evidence: WorkEvidence::default(),
            kept: KeptLeases::open(
                now,
                &project.state.join("leases/kept.json"),
                project.config.leases.extend_max(),
            ),
            gone: GoneAgents::known(members::last_gone(&project.watch_status())),
            ended: Vec::new(),
            next_lease_look: now,
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Monotonic> {
        let always = self.next_lease_look.min(self.members.next_timeout());
        let sometimes =
            [self.leases.poll_timeout(), self.roles.next_timeout(), self.kept.next_timeout()];
        sometimes.into_iter().flatten().chain([always]).min()
    }

    /// A process of an agent has ended. Returns whether the summary changed.
    pub(super) fn process_ended(
        &mut self,
        now: Monotonic,
        process: &WatchedProcess,
        mail: &mut EngineMail,
    ) -> bool {
        if !self.members.is_root(process) {
            mail.notifier.observe_agent(&process.agent);
            return false;
        }
        self.members.look_again(now, &process.agent);
        self.members.process_ended(process, mail.remote.workload())
    }

    pub(super) fn arrived(&mut self, now: Monotonic, arrivals: Vec<ArrivedMessage>) {
        for arrived in arrivals {
            let kind = || Some(arrived.envelope(&self.context.spool)?.kind.to_string());
            self.roles.landed(now, (&arrived.mailbox, &arrived.id), kind);
        }
    }

    /// A pane was observed. Returns whether the summary changed.
    pub(super) fn observed(
        &mut self,
        now: Monotonic,
        agent: &Name,
        observation: PaneObservation,
        mail: &mut EngineMail,
    ) -> bool {
        let held = self.leases.held_by(agent);
        let count = mail.remote.mail_held_by(agent).unwrap_or(held.len());
        let moment = ClockMoment { now, wall: SystemClock.wall() };
        let diagnosis = observation.diagnosis();
        let recorder = &*self.context.recorder;
        let look = self.rate_limit_hold.looked(moment, agent, diagnosis, count, recorder);
        if look.is_kept {
            rate_limit_hold::extend(&held, &*self.context.spool);
        }
        mail.remote.share_observation(|sight| match look.is_kept {
            true => drop(sight.parked.insert(agent.clone())),
            false => drop(sight.parked.remove(agent)),
        });
        if look.is_tried {
            mail.notifier.probe(agent, count);
        }
        mail.notifier.observed(now, agent, diagnosis);
        mail.notifier.note_held(now, agent, count);
        if let Some(provider) = mail.notifier.provider(agent) {
            let is_script = members::is_script(provider);
            if self.evidence.observed(now, agent, &observation, provider) {
                self.extend_leases(now, mail);
            }
            self.see_gone(agent, &observation, is_script, mail);
        }
        self.members.seen(agent, observation, mail.remote.workload())
    }

    /// Takes back the leases of silent holders and keeps those of working and limited ones, if a look is due.
    /// Returns whether it was.
    pub(super) fn look_at_leases(&mut self, now: Monotonic, mail: &mut EngineMail) -> bool {
        let keeps = self.kept.next_timeout().is_some_and(|at| now >= at);
        if now < self.next_lease_look && !keeps && !self.leases.is_due(now) {
            return false;
        }
        self.next_lease_look = now + LEASE_INTERVAL;
        self.board.expire_leases(&self.context);
        self.see_supervisors(now);
        let WatchContext { project, spool, .. } = &*self.context;
        let sessions = project.sessions();
        mail.changed(give_back_all(&sessions, spool, self.members.names()));
        self.extend_leases(now, mail);
        let WatchContext { spool, recorder, .. } = &*self.context;
        match leases::expire_leases(&mut self.leases, &**spool, &**recorder) {
            Ok(returned) => mail.changed(returned),
            Err(error) => tracing::warn!(%error, "cannot look at the leases"),
        }
        let holders = mail.remote.mail_holders().unwrap_or_else(|| self.leases.holders());
        self.rate_limit_hold.retain_holders(&holders);
        keep_gated(self.leases.held(), &**spool);
        // A holder that has met a usage limit keeps its messages: `observed` sees it.
        for holder in &holders {
            mail.notifier.observe_agent(holder);
        }
        mail.all_changed();
        true
    }

    pub(super) fn look_at_members(&mut self, now: Monotonic, mail: &mut EngineMail) -> bool {
        let EngineMail { notifier, remote, .. } = mail;
        self.members.drive(now, remote.workload(), notifier)
    }

    pub(super) fn describe(&self, now: Monotonic, status: &mut serde_json::Value) {
        status["members"] = serde_json::json!(self.members.summary());
        status["kept"] = self.kept.summary(now).into();
        status["parked"] = self.rate_limit_hold.summary(now).into();
        status["roles"] = self.roles.summary(now).into();
    }
}
