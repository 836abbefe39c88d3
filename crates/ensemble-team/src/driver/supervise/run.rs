//! The loop of a supervisor: collect events, pass them to the machine, carry out its effects.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

use super::agent::AgentProcess;
use super::heartbeat::BoardHeartbeat;
use super::office::RepresentedAgent;
use super::refusals::FailedClaims;
use super::supervisor_lock::SupervisorLock;
use super::work::{Footprint, SupervisedWork, WorkFate};
use super::{LOOK_EVERY, SuperviseOrder, SupervisorServices};
use crate::board::{ActiveControl, Board, ControlFile, State, WakeOccurrence};
use crate::driver::board_leases::{BoardLeases, directory};
use crate::driver::board_upkeep::BoardUpkeep;
use crate::proto::supervise::{ControlGate, Effect, EndReason, Event, Supervise, SupervisorLoss};
use crate::proto::task::TaskHolder;
use crate::worktree::Worktrees;
use ensemble_core::durable::{Dir, FileId};
use ensemble_core::env::Monotonic;
use ensemble_core::event_log::types;
use ensemble_core::message::Name;
use ensemble_core::proto::Machine as _;
use ensemble_core::proto::lease::LOOK_INTERVAL;
use ensemble_core::{Error, Result};

const LEASES_EVERY_MIN: Duration = Duration::from_millis(200);
const SLEEP_MAX: Duration = Duration::from_secs(5);

pub(super) struct SupervisorRun<'a> {
    pub(super) board: &'a Board,
    pub(super) worktrees: Option<&'a Worktrees>,
    pub(super) order: &'a SuperviseOrder,
    pub(super) directory: PathBuf,
    pub(super) lock: SupervisorLock,
    pub(super) machine: Supervise,
    pub(super) registered: Option<TaskHolder>,
    pub(super) heartbeat: Option<BoardHeartbeat>,
    pub(super) work: Option<SupervisedWork>,
    pub(super) agent: Option<AgentProcess>,
    pub(super) before: (Footprint, Option<String>),
    /// Epoch of the claim or review for which an agent was already started.
    pub(super) counted: Option<u64>,
    pub(super) unwritten: super::steps::UnwrittenChanges,
    /// Why the agent is ended, if something else has changed the board.
    pub(super) ended_because: Option<&'static str>,
    /// Reason that the last agent has announced for its exit.
    pub(super) exit_reason: Option<String>,
    pub(super) finished: Option<Monotonic>,
    /// The reasons on which a planner has ended, and that still hold.
    pub(super) answered: BTreeSet<WakeOccurrence>,
    pub(super) called: BTreeSet<WakeOccurrence>,
    pub(super) refusals: FailedClaims,
    leases: BoardLeases,
    upkeep: BoardUpkeep,
    controls: Vec<ControlFile>,
    leases_seen: Option<Monotonic>,
    pub(super) repaired: Option<Monotonic>,
    pub(super) unrepaired: BTreeSet<String>,
    /// Identity, size and time of the board's file at the last look. Time alone does not
    /// distinguish two writes within milliseconds, nor does size.
    pub(super) seen: Option<(FileId, u64, i128)>,
    pub(super) is_over: bool,
    pub(super) desk: RepresentedAgent,
    /// Whether the copy of a board on servers is older than the board.
    pub(super) is_stale: bool,
    last_failure: String,
    pub(super) start_failure: Option<String>,
    pub(super) lines: Vec<String>,
}

impl<'a> SupervisorRun<'a> {
    pub(super) fn begin(
        board: &'a Board,
        worktrees: Option<&'a Worktrees>,
        order: &'a SuperviseOrder,
    ) -> Result<Self> {
        board.read()?;
        let directory = directory(board).to_owned();
        let (lock, ended) =
            SupervisorLock::acquire_lock(&directory, &order.id, order.role.as_str())?;
        let clock = &*order.clock;
        let mut machine = Supervise::new(order.pace);
        machine.resume(lock.record.loops);
        let mut run = Self {
            board,
            worktrees,
            order,
            directory,
            machine,
            registered: None,
            heartbeat: None,
            work: None,
            agent: None,
            before: (Footprint::default(), None),
            counted: None,
            unwritten: super::steps::UnwrittenChanges::default(),
            ended_because: None,
            exit_reason: None,
            finished: None,
            answered: BTreeSet::new(),
            called: BTreeSet::new(),
            refusals: FailedClaims::default(),
            leases: BoardLeases::new(board.clone(), order.id.as_str(), clock),
            upkeep: BoardUpkeep::new(board.clone()),
            controls: Vec::new(),
            leases_seen: None,
            repaired: None,
            unrepaired: BTreeSet::new(),
            seen: None,
            is_over: false,
            desk: RepresentedAgent::default(),
            is_stale: false,
            last_failure: String::new(),
            start_failure: None,
            lines: Vec::new(),
            lock,
        };
        if ended > 0 {
            let before = run.lock.before.as_ref();
            let pid = before.and_then(|before| before.agent).map(|(pid, _)| pid);
            run.record(types::SUPERVISE_RECOVERED, json!({ "pid": pid, "processes": ended }));
        }
        run.enrol()?;
        Ok(run)
    }

    pub(super) fn run(mut self, surroundings: &mut dyn SupervisorServices) -> Result<EndReason> {
        self.handle(Event::Start);
        loop {
            while let Some(effect) = self.machine.poll_effect() {
                let event = match effect {
                    Effect::Ended(reason) => return self.end(reason, surroundings),
                    Effect::Register => match self.register() {
                        Ok(event) => Some(event),
                        Err(refused) => return self.refuse(refused),
                    },
                    Effect::Terminate => Some(self.terminate(surroundings)),
                    Effect::Look => Some(self.claim_work()),
                    Effect::Check => Some(self.check()),
                    Effect::Spawn => Some(self.spawn()),
                    Effect::Unregister => Some(self.unregister()),
                    Effect::HandOver => Some(self.hand_over()),
                    Effect::Agree => Some(self.agree()),
                    Effect::Note(anomaly) => self.record_anomaly(anomaly),
                    Effect::Block(trouble) => self.block(trouble),
                };
                if let Some(event) = event {
                    self.handle(event);
                }
                self.say(surroundings);
            }
            self.notice(surroundings);
            self.say(surroundings);
            let limit = self.sleep();
            match &self.agent {
                _ if limit.is_zero() => {}
                Some(agent) => agent.wait(limit),
                None => surroundings.rest(limit),
            }
            let now = self.now();
            self.machine.handle_timeout(now);
        }
    }

    pub(super) fn now(&self) -> Monotonic {
        self.order.clock.boottime()
    }

    pub(super) fn handle(&mut self, event: Event) {
        let now = self.now();
        self.machine.handle(now, event);
    }

    fn notice(&mut self, surroundings: &mut dyn SupervisorServices) {
        if (surroundings.is_over() || self.leaves_team()) && !self.is_over {
            self.is_over = true;
            self.handle(Event::Stop);
        }
        self.refresh();
        match self.board.controls() {
            Ok(found) => self.notice_controls(&found),
            Err(error) => self.failed("read the control files", &error),
        }
        self.notice_board();
        self.keep_alive();
        self.notice_exit();
        // After the exit: work that has just been finished is handed over to no other agent.
        self.notice_requests();
    }

    /// Makes this host's copy of a board on servers new, if something has changed there. It is tried again until that
    /// succeeds.
    fn refresh(&mut self) {
        self.is_stale |= self.board.may_have_changed();
        if self.is_stale {
            match self.board.pull() {
                Ok(()) => self.is_stale = false,
                Err(error) => self.failed("reach the servers", &error),
            }
        }
    }

    fn notice_gate(&mut self) {
        if self.board.controls().is_ok_and(|found| found.is_empty()) && !self.waits_for_review() {
            self.handle(Event::Woken);
        }
    }

    /// Lets the sprint follow control files, however they came, before ABORT ends this supervisor.
    fn notice_controls(&mut self, found: &[ActiveControl]) {
        let files: Vec<ControlFile> = found.iter().map(|control| control.file).collect();
        if files != self.controls {
            match self.board.read() {
                Ok(state) if self.look_after(&state) => self.controls.clone_from(&files),
                Ok(_) => {}
                Err(error) => self.failed("read the board", &error),
            }
        }
        if files.contains(&ControlFile::Abort) {
            self.handle(Event::Gated(ControlGate::Abort));
        }
    }

    /// Does what is due on the board. Returns whether all of it is done.
    fn look_after(&mut self, state: &State) -> bool {
        match self.upkeep.do_due_work(state) {
            Ok(_) => true,
            // Another process writes, and sees the same; this one looks again.
            Err(Error::Locked { .. }) => false,
            Err(error) => {
                self.failed("check the board", &error);
                false
            }
        }
    }

    fn notice_board(&mut self) {
        let stat = Dir::open(&self.directory).and_then(|dir| dir.stat(crate::board::FILE_NAME));
        let seen = match stat {
            Ok(stat) => stat.map(|stat| (stat.id, stat.bytes, stat.modified_ns)),
            Err(error) => return self.failed("check the board", &error),
        };
        if seen == self.seen && !self.machine.is_gated() {
            return;
        }
        if self.machine.is_gated() {
            self.notice_gate();
        }
        if std::mem::replace(&mut self.seen, seen) == seen {
            return;
        }
        match self.board.read() {
            Ok(state) => {
                let now = self.now();
                if let Some(heartbeat) = &mut self.heartbeat {
                    heartbeat.read_stamps(now, &state);
                }
                if !self.look_after(&state) {
                    self.seen = None;
                }
                if let Some(lost) = self.lost(&state) {
                    self.handle(Event::Fenced(lost));
                }
                self.handle(Event::Woken);
            }
            Err(error) => self.failed("read the board", &error),
        }
    }

    fn lost(&mut self, state: &State) -> Option<SupervisorLoss> {
        let registered = self.registered.as_ref()?;
        if !is_registered(state, registered) {
            let has_hung = self.work.as_ref().is_some_and(|work| work.has_run_out(state));
            self.registered = None;
            (self.work, self.heartbeat) = (None, None);
            let (loss, why) = match has_hung {
                true => (SupervisorLoss::Lease, "it did nothing until its lease ran out"),
                false => (SupervisorLoss::Registration, "it is no longer registered"),
            };
            self.ended_because = Some(why);
            return Some(loss);
        }
        match self.work.as_ref().map(|work| work.fate(state)) {
            None | Some(WorkFate::Held) => None,
            Some(WorkFate::Finished | WorkFate::ByHand) => {
                let now = self.now();
                self.finished.get_or_insert(now);
                None
            }
            Some(WorkFate::Lost) => {
                let has_hung = self.work.take().is_some_and(|work| work.has_run_out(state));
                let (loss, why) = match has_hung {
                    true => (
                        SupervisorLoss::Claim,
                        "it did nothing until the lease of its work ran out",
                    ),
                    false => (SupervisorLoss::Work, "its work was taken from it"),
                };
                self.ended_because = Some(why);
                Some(loss)
            }
        }
    }

    pub(super) fn expect_long(&mut self, description: &str) {
        let now = self.now();
        if let Some(heartbeat) = &mut self.heartbeat {
            heartbeat.expect_long(now, description);
            self.keep_alive();
        }
    }

    pub(super) fn expect_no_more(&mut self) {
        let now = self.now();
        if let Some(heartbeat) = &mut self.heartbeat {
            heartbeat.expect_no_more(now);
            self.keep_alive();
        }
    }

    pub(super) fn keep_alive(&mut self) {
        let (now, order) = (self.now(), self.order);
        self.record_process();
        let waits = self.beat_is_due(now) && self.waits_for_review();
        if let Some(heartbeat) = &mut self.heartbeat {
            if waits {
                heartbeat.sign();
            }
            heartbeat.listen(now, &self.directory);
            let running = self.agent.as_mut();
            match heartbeat.beat(now, self.board, running, &*order.recorder) {
                Ok(false) => {}
                // The board shows whether another agent has taken over.
                Ok(true) => self.seen = None,
                Err(error) => self.failed("beat", &error),
            }
        }
        if now >= self.leases_due() {
            self.leases_seen = Some(now);
            if let Err(error) = self.leases.expire_leases(&*order.clock, &*order.recorder) {
                self.failed("watch leases", &error);
            }
        }
    }

    fn leases_due(&self) -> Monotonic {
        let Some(seen) = self.leases_seen else { return Monotonic::ZERO };
        let latest = seen + LOOK_INTERVAL;
        let due = self.leases.next_timeout().unwrap_or(latest);
        due.min(latest).max(seen + LEASES_EVERY_MIN)
    }

    fn sleep(&self) -> Duration {
        let now = self.now();
        let longest = if self.agent.is_some() { LOOK_EVERY } else { SLEEP_MAX };
        let dues = [
            self.machine.poll_timeout(),
            self.heartbeat.as_ref().and_then(BoardHeartbeat::next_timeout),
            Some(self.leases_due()),
            Some(now + longest),
        ];
        dues.into_iter().flatten().min().map_or(longest, |due| due.since(now))
    }

    /// Ends because another supervisor has the name; removes this supervisor's files.
    fn refuse(mut self, refused: Error) -> Result<EndReason> {
        self.dismiss();
        self.lock.leave()?;
        Err(refused)
    }

    fn end(
        mut self,
        reason: EndReason,
        surroundings: &mut dyn SupervisorServices,
    ) -> Result<EndReason> {
        self.record(types::SUPERVISE_ENDED, json!({ "reason": format!("{reason:?}") }));
        self.queue_line(format!("ended: {reason}"));
        self.dismiss();
        self.say(surroundings);
        // A successor has to know a registration that could not be taken back.
        if reason != EndReason::Refused && self.registered.is_none() {
            self.lock.leave()?;
        }
        Ok(reason)
    }

    /// The task that is claimed or reviewed.
    pub(super) fn held_task(&self) -> Option<&Name> {
        self.work.as_ref().and_then(SupervisedWork::task)
    }

    pub(super) fn held_epoch(&self) -> Option<u64> {
        Some(self.work.as_ref()?.claim()?.holder.epoch)
    }

    pub(super) fn footprint(&self, state: &State) -> Footprint {
        let Some(work) = &self.work else { return Footprint::default() };
        let head = work.task().and_then(|id| self.worktrees?.head(id).ok().flatten());
        Footprint::of(work, state, head)
    }

    pub(super) fn record(&self, kind: &str, mut data: serde_json::Value) {
        data["agent"] = json!(self.order.id);
        if let Some(registered) = &self.registered {
            data["registration"] = json!(registered.epoch);
        }
        self.order.recorder.record(kind, self.order.id.as_str(), data);
    }

    /// Reports a failure that will be retried. The same failure is reported once.
    pub(super) fn failed(&mut self, what: &str, error: &Error) {
        let line = format!("cannot {what}: {error}");
        if line != self.last_failure {
            let data = json!({ "what": what, "error": error.to_string() });
            self.record(types::SUPERVISE_FAILED, data);
            self.queue_line(line.clone());
            self.last_failure = line;
        }
    }

    pub(super) fn report_block(&mut self, task: &Name, reason: &str) {
        self.record(types::SUPERVISE_BLOCKED, json!({ "task": task, "reason": reason }));
        self.queue_line(format!("`{task}` is blocked: {reason}"));
    }

    pub(super) fn queue_line(&mut self, line: String) {
        self.lines.push(line);
    }

    fn say(&mut self, surroundings: &mut dyn SupervisorServices) {
        for line in self.lines.drain(..) {
            surroundings.print_line(&line);
        }
    }
}

pub(super) fn is_registered(state: &State, holder: &TaskHolder) -> bool {
    let entry = state.agents.get(&holder.by);
    entry.is_some_and(|entry| entry.epoch.unwrap_or_default() == holder.epoch)
}
