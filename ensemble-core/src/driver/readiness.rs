//! Asking a worker whether it is ready, before anything is assigned to it (seed 000).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{LOOK_INTERVAL, PongBox};
use crate::agent::AgentPane;
use crate::agent::{self, AgentState};
use crate::env::{Clock, Monotonic};
use crate::event_log::{Recorder, types};
use crate::message::Name;
use crate::pane::{Deferral, NudgeOutcome, NudgeText};
use crate::proto::Machine as _;
use crate::proto::ready::{
    Effect, Event, Handshake, HandshakeRecord, Ping, PingTimes, PongToken, ReadinessFailure,
    ReadyObstacle, WindowDiagnosis, Workspace,
};
use crate::{Error, Result};

/// How often a ping is tried again that could not be typed, while its attempt lasts.
const TYPE_RETRY: Duration = Duration::from_millis(250);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[must_use]
pub enum ReadyOutcome {
    /// The worker may be given work.
    Ready {
        /// The ping that it has answered; 0 if it was seen to be idle, and not asked.
        attempt: u8,
    },
    /// It has not: nothing may be assigned. Displayed as the seed's block.
    NotReady(ReadinessFailure),
}

/// One handshake with one worker.
///
/// A worker whose hooks prove that it is idle ([`ReadinessCheck::with_hook`]) is ready, unless
/// [`PingTimes::needs_pong`] is set. Every other worker is pinged. The ping is stored in the
/// [`PongBox`] and typed into the worker's pane, if it has one; the first ping is not typed if one
/// of the worker's hooks delivers it ([`ReadinessCheck::with_hook`]). The pong arrives through the
/// box or, where the profile allows it, on the screen or from the hooks. The caller holds the
/// worker's lock ([`super::TaskAssigner`] does).
pub struct ReadinessCheck<'a> {
    worker: Name,
    config: PingTimes,
    pongs: PongBox,
    clock: &'a (dyn Clock + Send + Sync),
    recorder: &'a dyn Recorder,
    actor: Name,
    hook: Option<HookSign<'a>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HookEvidence {
    /// One would hand it mail or a ping, and wake it for that.
    pub wakes: bool,
    /// They report that no turn runs.
    pub is_idle: bool,
}

type HookSign<'a> = Box<dyn Fn(&Name) -> HookEvidence + Send + 'a>;

impl<'a> ReadinessCheck<'a> {
    /// A handshake in which `actor` asks `worker`, and the pongs arrive in this box.
    pub fn new(
        worker: Name,
        pongs: PongBox,
        clock: &'a (dyn Clock + Send + Sync),
        recorder: &'a dyn Recorder,
        actor: Name,
    ) -> Self {
        Self { worker, config: PingTimes::default(), pongs, clock, recorder, actor, hook: None }
    }

    /// With what the hooks of the worker, or its server, prove. A ping that one hands over is not typed.
    pub fn with_hook(mut self, evidence: impl Fn(&Name) -> HookEvidence + Send + 'a) -> Self {
        self.hook = Some(Box::new(evidence));
        self
    }

    pub const fn with_config(mut self, config: PingTimes) -> Self {
        self.config = config;
        self
    }
}

impl ReadinessCheck<'_> {
    /// Asks until there is an answer or the attempts are used up. With a silent worker that takes
    /// 25 s in the usual configuration, and the time that looking takes.
    pub fn run(
        &self,
        mut pane: Option<&mut dyn AgentPane>,
        rest: &mut dyn FnMut(Duration) -> Result<()>,
    ) -> Result<ReadyOutcome> {
        if !self.config.needs_pong && self.is_seen_idle(&mut pane) {
            self.record(types::READY_IDLE, json!({}));
            return Ok(ReadyOutcome::Ready { attempt: 0 });
        }
        // A pong of an earlier handshake must not answer this one.
        self.pongs.clear(&self.worker)?;
        let (about, screen, untyped, stands) = (self, PongScreen::default(), None, false);
        let machine = Handshake::new(self.worker.clone(), self.config);
        let mut round = HandshakeRound { about, screen, machine, untyped, stands, pane };
        round.look_at_screen();
        round.machine.handle(self.clock.monotonic(), Event::Started);
        let end = round.run(rest);
        round.withdraw();
        self.pongs.clear(&self.worker)?;
        end
    }

    fn hook_evidence(&self) -> HookEvidence {
        self.hook.as_ref().map_or_else(HookEvidence::default, |evidence| evidence(&self.worker))
    }

    /// Whether the worker's hooks prove that it is idle, and nothing in its pane speaks against it. A hint must be
    /// typed for one that they do not wake, so it must be at its prompt.
    fn is_seen_idle(&self, pane: &mut Option<&mut dyn AgentPane>) -> bool {
        let HookEvidence { wakes, is_idle } = self.hook_evidence();
        let Some(pane) = pane.as_mut().filter(|_| is_idle) else { return is_idle && wakes };
        let Ok(seen) = pane.diagnose() else { return wakes };
        match seen_at_the_window(&pane.program().name, &seen).obstacle {
            None => wakes || (seen.state == AgentState::Ready && seen.deferral.is_none()),
            Some(obstacle) => wakes && obstacle == ReadyObstacle::Draft,
        }
    }

    fn record(&self, kind: &str, mut data: Value) {
        data["worker_id"] = self.worker.as_str().into();
        self.recorder.record(kind, self.actor.as_str(), data);
    }
}

struct UntypedPing {
    ping: Ping,
    why: Deferral,
    retry_at: Monotonic,
}

struct HandshakeRound<'a, 'p> {
    about: &'a ReadinessCheck<'a>,
    machine: Handshake,
    pane: Option<&'p mut dyn AgentPane>,
    screen: PongScreen,
    untyped: Option<UntypedPing>,
    /// A ping was typed and not submitted.
    stands: bool,
}

impl HandshakeRound<'_, '_> {
    fn run(&mut self, rest: &mut dyn FnMut(Duration) -> Result<()>) -> Result<ReadyOutcome> {
        loop {
            self.listen()?;
            let now = self.about.clock.monotonic();
            self.type_again(now);
            self.machine.handle_timeout(now);
            let mut idle = true;
            while let Some(effect) = self.machine.poll_effect() {
                idle = false;
                if let Some(end) = self.perform(effect)? {
                    return Ok(end);
                }
            }
            if idle {
                let now = self.about.clock.monotonic();
                let left = self.machine.poll_timeout().map_or(LOOK_INTERVAL, |at| at.since(now));
                rest(if self.pane.is_some() { left.min(LOOK_INTERVAL) } else { left })?;
            }
        }
    }

    fn listen(&mut self) -> Result<()> {
        let mut pongs = self.about.pongs.take_pongs(&self.about.worker)?;
        pongs.extend(self.look_at_screen());
        for pong in pongs {
            self.machine.handle(self.about.clock.monotonic(), Event::Pong(pong));
        }
        Ok(())
    }

    /// The pongs that have appeared on the screen since the last call.
    fn look_at_screen(&mut self) -> Vec<PongToken> {
        let Some(pane) = self.pane.as_mut().filter(|p| p.program().pong_on_screen) else {
            return Vec::new();
        };
        // A failed inspection is ignored here: the next one may succeed, and the handshake's own
        // inspections report errors.
        let Ok(state) = pane.inspect() else { return Vec::new() };
        if !state.bound {
            return Vec::new();
        }
        self.screen.appeared(&self.about.worker, &state.screen)
    }

    fn perform(&mut self, effect: Effect) -> Result<Option<ReadyOutcome>> {
        match effect {
            Effect::SendPing(ping) => {
                self.untyped = None;
                self.send(ping)?;
            }
            Effect::Inspect { attempt } => {
                let diagnosis = self.inspect();
                let now = self.about.clock.monotonic();
                self.machine.handle(now, Event::Inspected { attempt, diagnosis });
            }
            Effect::SendOpen { attempt } => {
                let ok = self.open(attempt);
                self.machine.handle(self.about.clock.monotonic(), Event::OpenDone { attempt, ok });
            }
            Effect::Ready { attempt } => {
                self.about.record(types::READY_PONG, json!({ "attempt": attempt }));
                return Ok(Some(ReadyOutcome::Ready { attempt }));
            }
            Effect::Failed(failure) => {
                let data = serde_json::to_value(&failure).unwrap_or_default();
                self.about.record(types::READY_FAILED, data);
                return Ok(Some(ReadyOutcome::NotReady(failure)));
            }
            Effect::Record(HandshakeRecord::Retry {
                attempt,
                error_type,
                observation,
                open_command_sent,
            }) => {
                let data = json!({
                    "attempt": attempt, "error_type": error_type, "observation": observation,
                    "open_command_sent": open_command_sent,
                });
                self.about.record(types::READY_RETRY, data);
            }
            Effect::Record(HandshakeRecord::StrayPong { worker, attempt }) => self
                .about
                .record(types::READY_STRAY_PONG, json!({ "attempt": attempt, "from": worker })),
        }
        Ok(None)
    }

    fn send(&mut self, ping: Ping) -> Result<()> {
        // A hook may have handed it over, and be gone, a moment later.
        let is_woken = ping.attempt == 1 && self.about.hook_evidence().wakes;
        self.about.pongs.ask(&ping)?;
        if is_woken {
            let data = json!({ "attempt": ping.attempt, "typed": false, "way": "hook" });
            self.about.record(types::READY_PING, data);
        } else {
            self.type_ping(ping);
        }
        Ok(())
    }

    fn type_ping(&mut self, ping: Ping) {
        let Some(pane) = &mut self.pane else {
            let data = json!({ "attempt": ping.attempt, "typed": false });
            return self.about.record(types::READY_PING, data);
        };
        let outcome = match NudgeText::new(ping.to_string()) {
            Ok(text) => pane.nudge(&text).unwrap_or_else(failed),
            // A ping has two checked names and a number.
            Err(_) => return,
        };
        match outcome {
            NudgeOutcome::Sent => self.stands = false,
            NudgeOutcome::TextOnly { .. } => self.stands = true,
            NudgeOutcome::Refused { .. } => {}
        }
        let why = outcome.into_deferral();
        let is_news = self.untyped.as_ref().map(|untyped| &untyped.why) != why.as_ref();
        if is_news || why.is_none() {
            let reason = why.as_ref().map(Deferral::word);
            let typed = why.is_none();
            let data = json!({ "attempt": ping.attempt, "typed": typed, "reason": reason });
            self.about.record(types::READY_PING, data);
        }
        let retry_at = self.about.clock.monotonic() + TYPE_RETRY;
        self.untyped = why.map(|why| UntypedPing { ping, why, retry_at });
    }

    /// Types a deferred ping again, since a busy screen may be idle a moment later. The machine
    /// learns that a ping was not typed only when the attempt times out.
    fn type_again(&mut self, now: Monotonic) {
        let Some(UntypedPing { ping, why, retry_at }) = &self.untyped else { return };
        if self.machine.poll_timeout().is_none_or(|until| now >= until) {
            let event = Event::SendFailed { attempt: ping.attempt, deferral: why.clone() };
            self.machine.handle(now, event);
            self.untyped = None;
        } else if now >= *retry_at && !why.is_permanent() {
            let ping = ping.clone();
            self.type_ping(ping);
        }
    }

    /// A ping that was never submitted would be in the composer forever.
    fn withdraw(&mut self) {
        let Some(pane) = self.pane.as_mut().filter(|_| self.stands) else { return };
        if let Err(error) = pane.withdraw_ping() {
            self.about.record(types::READY_PING_LEFT, json!({ "reason": error.to_string() }));
        }
    }

    fn inspect(&mut self) -> Result<WindowDiagnosis, String> {
        let worker = &self.about.worker;
        let pane = self.pane.as_mut().ok_or_else(|| format!("no pane is bound to {worker}"))?;
        let seen = pane.diagnose().map_err(|error| error.to_string())?;
        Ok(seen_at_the_window(&pane.program().name, &seen))
    }

    fn open(&mut self, attempt: u8) -> bool {
        let Some(pane) = &mut self.pane else { return false };
        let command = pane.program().open.clone();
        let opened = match &command {
            Some(command) => pane.open(command).map(Some),
            None => Ok(None),
        };
        let reason = match opened {
            Ok(Some(outcome)) => outcome.into_deferral().map(|deferral| deferral.to_string()),
            Ok(None) => Some("the profile has no open command".to_owned()),
            Err(error) => Some(error.to_string()),
        };
        let ok = reason.is_none();
        self.about.record(
            types::READY_OPEN,
            json!({ "attempt": attempt, "command": command, "sent": ok, "reason": reason }),
        );
        ok
    }
}

fn failed(error: Error) -> NudgeOutcome {
    NudgeOutcome::Refused { deferral: Deferral::of(&error) }
}

/// The pongs on a screen that existed before do not count.
#[derive(Default)]
struct PongScreen {
    /// How many lines were an answer to each ping, at the last look.
    shown: BTreeMap<u8, usize>,
    /// Nothing counts as new before the first look.
    looked: bool,
}

impl PongScreen {
    fn appeared(&mut self, worker: &Name, screen: &[String]) -> Vec<PongToken> {
        let mut shown: BTreeMap<u8, usize> = BTreeMap::new();
        for pong in PongToken::on_screen(screen).filter(|pong| pong.worker == *worker) {
            *shown.entry(pong.attempt).or_default() += 1;
        }
        let is_new = |attempt: &u8, count: usize| {
            self.looked && count > self.shown.get(attempt).copied().unwrap_or_default()
        };
        let new: Vec<PongToken> = shown
            .iter()
            .filter(|(attempt, count)| is_new(attempt, **count))
            .map(|(attempt, _)| PongToken { worker: worker.clone(), attempt: *attempt })
            .collect();
        self.shown = shown;
        self.looked = true;
        new
    }
}

/// The seed's checklist, answered from what the profile sees.
pub fn seen_at_the_window(provider: &str, seen: &agent::AgentDiagnosis) -> WindowDiagnosis {
    let (alive, open) = (true, Workspace::Open);
    let (session_alive, workspace, obstacle) = match (seen.state, &seen.deferral) {
        (
            _,
            Some(
                Deferral::PaneGone
                | Deferral::PaneReused
                | Deferral::ServerGone
                | Deferral::TerminalGone,
            ),
        ) => (false, Workspace::Unknown, None),
        (_, Some(Deferral::PaneDead)) => (alive, Workspace::Closed, Some(ReadyObstacle::Crashed)),
        (_, Some(Deferral::BareShell { .. })) => (alive, Workspace::Closed, None),
        (
            _,
            Some(
                Deferral::OtherProgram { .. }
                | Deferral::Supervised
                | Deferral::CopyMode
                | Deferral::InputOff
                | Deferral::Synchronized
                | Deferral::Failed { .. },
            ),
        ) => (alive, Workspace::Unknown, None),
        (AgentState::Busy, _) => (alive, open, Some(ReadyObstacle::Busy)),
        (AgentState::Permission | AgentState::Trust | AgentState::Dialog, _) => {
            (alive, open, Some(ReadyObstacle::Permission))
        }
        (AgentState::Login, _) => (alive, open, Some(ReadyObstacle::Login)),
        (AgentState::RateLimited, _) => (alive, open, Some(ReadyObstacle::Limited)),
        (AgentState::Draft, _) => (alive, open, Some(ReadyObstacle::Draft)),
        (AgentState::Crashed, _) => (alive, Workspace::Closed, Some(ReadyObstacle::Crashed)),
        (AgentState::Ready | AgentState::Starting | AgentState::Unknown, _) => (alive, open, None),
    };
    let mut observation = format!("{provider} is {}", seen.state.word());
    match &seen.deferral {
        Some(deferral) => observation.push_str(&format!(" ({deferral})")),
        None => observation.push_str(" and sent no AGENT_TEAM_PONG"),
    }
    if let Some(reset) = &seen.resets_at {
        observation.push_str(&format!(", resets {reset}"));
    }
    if let Some(evidence) = seen.evidence.first().filter(|e| !e.text.is_empty()) {
        observation.push_str(&format!("; seen: {}", evidence.text));
    }
    WindowDiagnosis { session_alive, workspace, obstacle, observation }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_appears_on_the_screen_counts() {
        let worker = Name::new("w1").unwrap();
        let lines = |lines: &[&str]| lines.iter().map(|l| (*l).to_owned()).collect::<Vec<_>>();
        let pong = "AGENT_TEAM_PONG w1 1";
        let mut screen = PongScreen::default();
        let mut look = |shown: &[&str]| screen.appeared(&worker, &lines(shown)).len();
        assert_eq!(look(&[pong]), 0, "it is from before");
        assert_eq!(look(&[pong, "> AGENT_TEAM_PING w1 1"]), 0, "the echo of a ping");
        assert_eq!(look(&[pong, "AGENT_TEAM_PONG w2 1"]), 0, "another's");
        assert_eq!(look(&[pong, "it said AGENT_TEAM_PONG w1 1 to me"]), 0, "quoted");
        assert_eq!(look(&[pong, "● AGENT_TEAM_PONG w1 1"]), 1);
        assert_eq!(look(&["", pong]), 0, "the older one has scrolled away");
        assert_eq!(look(&["AGENT_TEAM_PONG w1 2", pong]), 1);
    }
}
