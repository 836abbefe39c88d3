//! The supervisor of one agent. It registers the agent, finds work, starts agent processes and
//! reacts to their exits (seed 001, "Invocation" and "Graceful Exit").
//!
//! ```text
//! state           event / time                         -> state          effects
//! New             Start                                -> Registering    Register
//! Registering     Registered                           -> Looking        Look
//! Looking         Nothing                              -> Idle           (30 s, a planner 60 s)
//! Looking         Contended, at most 3 times           -> Idle           (1 to 5 s; then as Nothing)
//! Looking         Claimed (new work: counters 0)       -> Checking       Check
//! Looking         Gated(Closed)                        -> Gated          (5 s)
//! Idle            its time; Woken                      -> Looking        Look
//! Gated           its time; Woken                      -> Looking        Look, holding nothing
//! Gated           its time; Woken                      -> Checking       Check, holding something
//! Checking        Open                                 -> Spawning       Spawn
//! Checking        Gated(Closed)                        -> Gated
//! Spawning        Spawned                              -> Running
//! Spawning        SpawnFailed                          -> Delayed 5 s    Note
//! Running         Exited 0, holding nothing            -> Looking        Look (after 30 s, if it left DRAFTs)
//! Running         Exited 0, its work unfinished        -> Delayed 5 s    Note
//! Running         Exited 42                            -> Delayed 2 s    (Note, without notes)
//! Running         Exited otherwise                     -> Delayed 5 s    Note
//! Running         the 5th crash, the 10th agent
//!                 in a row without progress            -> Delayed 5 s    Block (a coder)
//!                                                      -> Leaving        Unregister (others: GaveUp)
//! Running         Fenced(Lease): a hang is a crash     -> Stopping       Note, Terminate; the 5th: Block, too
//! Delayed         its time                             -> Looking | Checking
//! Running         Stop, Gated(Abort), Fenced           -> Stopping       Terminate
//! Stopping        Terminated                           -> Leaving        Unregister (Stop, Abort)
//!                                                      -> Looking        Look       (its work is lost)
//!                                                      -> Registering    Register   (all is lost)
//! Spawning        Stop, Gated(Abort), Fenced           -> Stopping       Terminate
//! any but New     Stop, Gated(Abort)                   -> Leaving        Unregister
//! any other       Fenced(Registration)                 -> Registering    Register
//! any other       Fenced(Work)                         -> Looking        Look
//! Looking         Nothing, its patience is over        -> Leaving        Unregister
//! any, once Asked, that would look for work            -> Agreeing       Agree
//! any with work   Pressed, once Asked                  -> HandingOver    HandOver  (Running: Terminate first)
//! HandingOver     HandedOver                           -> Agreeing       Agree
//! Agreeing        Agreed                               -> Leaving        Unregister
//! Agreeing        Withdrawn                            -> Looking        Look
//! Leaving         Left, Fenced(Registration)           -> Ended          Ended
//! Leaving         Failed, for the 5th time             -> Ended          Ended
//! Registering, Looking, Checking, Leaving,
//! HandingOver, Agreeing                     Failed     -> Retrying 5 s   (then the same again)
//! Spawning        Failed                               -> Retrying 5 s   (then Check)
//! any             anything else                        -> the same
//! ```
//!
//! While PAUSE, CHECKPOINT or ABORT exists, the supervisor claims and starts nothing. It checks
//! these files before each claim and before each start, even of a fresh agent for work that it
//! already holds. An agent that runs when PAUSE appears continues; ABORT ends it.
//!
//! An agent's exit status is compared with the board. Finished work counts as finished with any
//! exit status; an exit 0 with unfinished work is an anomaly. Two counters keep a supervisor from
//! wasting agents: [`CRASHES_MAX`] crashes, or [`SPINS_MAX`] agents of any outcome, in a row and
//! without progress. Then a coder's task is blocked with a question to its planner, and the
//! supervisor takes another one. If its work cannot be blocked, the supervisor ends, which a person
//! will see. Progress sets both counters to zero.
//!
//! *A shutdown request.* The supervisor answers for its agent, and claims nothing from [`Event::Asked`] on. With work
//! it agrees when the work is finished; the agent may be started again for that.
//!
//! *A crash* of the supervisor leaves a running agent and a registration without beats. The next
//! supervisor of the same id ends the agent and removes the registration before
//! [`Event::Registered`]. Without such a supervisor, the observer of leases releases them.
//! *Silence* of the agent is not an event here: its supervisor stops beating for it, and gets
//! [`Event::Fenced`]. *Out of order*: no-ops.

mod pace;
mod steps;
#[cfg(test)]
mod tests;
mod vocabulary;

use std::collections::VecDeque;

use ensemble_core::env::Monotonic;
use ensemble_core::proto::Machine;

pub use pace::{
    CLAIM_TRIES_MAX, CONTENDED_WAIT, CRASHES_MAX, DRAFT_POLL, FAREWELLS_MAX, FailureCounts,
    GATE_POLL, HAND_OVER_DELAY, PLANNER_POLL, RESTART_DELAY, SPINS_MAX, SupervisePace, WORK_POLL,
    WorkTrouble,
};
pub use vocabulary::{
    AgentExit, ControlGate, Effect, EndReason, Event, ProgramEnding, SuperviseAnomaly,
    SupervisorLoss,
};

/// The next action: after the agent has been ended, or again after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextAction {
    Register,
    Look,
    Check,
    HandOver,
    Agree,
    Leave(EndReason),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    New,
    Registering,
    Looking { tries: u32 },
    Idle { until: Monotonic, tries: u32 },
    Checking,
    Gated { until: Monotonic, holds: bool },
    Spawning,
    Running,
    Delayed { until: Monotonic, holds: bool },
    Retrying { until: Monotonic, again: NextAction },
    Stopping { after: NextAction },
    HandingOver,
    Agreeing,
    Leaving { reason: EndReason },
    Ended,
}

#[derive(Clone, Debug)]
pub struct Supervise {
    pace: SupervisePace,
    state: State,
    /// Counters of unsuccessful agents; the driver stores them for its successor.
    pub loops: FailureCounts,
    /// Whether a shutdown request waits for an answer.
    is_asked: bool,
    /// Since when there has been no work.
    idle_since: Option<Monotonic>,
    farewells: u32,
    effects: VecDeque<Effect>,
}

impl Supervise {
    pub const fn new(pace: SupervisePace) -> Self {
        Self {
            pace,
            state: State::New,
            loops: FailureCounts { crashes: 0, hangs: 0, spins: 0 },
            is_asked: false,
            idle_since: None,
            farewells: 0,
            effects: VecDeque::new(),
        }
    }

    /// Continues with an earlier supervisor's counters at the same work.
    pub const fn resume(&mut self, loops: FailureCounts) {
        self.loops = loops;
    }

    pub const fn is_gated(&self) -> bool {
        matches!(self.state, State::Gated { .. })
    }
}

impl Machine for Supervise {
    type Event = Event;
    type Effect = Effect;

    fn handle(&mut self, now: Monotonic, event: Event) {
        self.state = match (self.state, event) {
            (State::New, Event::Start) => self.register(),
            (State::Registering, Event::Registered) => self.look_for_work(0),
            (State::Looking { .. }, Event::Nothing) => self.idle(now),
            (State::Looking { tries }, Event::Contended { wait }) => match tries + 1 {
                tries if tries < CLAIM_TRIES_MAX => State::Idle { until: now + wait, tries },
                _ => self.idle(now),
            },
            (State::Looking { .. }, Event::Claimed { is_new }) => self.claimed(is_new),
            (State::Looking { .. }, Event::Gated(ControlGate::Closed)) => self.closed(now, false),
            (State::Checking, Event::Gated(ControlGate::Closed)) => self.closed(now, true),
            (State::Checking, Event::Open) => self.spawn(),
            (State::Idle { tries: 0, .. }, Event::Woken) => self.look_for_work(0),
            (State::Gated { holds, .. }, Event::Woken) => self.look_or_check(holds),
            (State::Spawning, Event::Spawned) => State::Running,
            (State::Spawning, Event::SpawnFailed) => self.not_spawned(now),
            (State::Running, Event::Exited(exit)) => self.exited(now, exit),
            (State::HandingOver, Event::HandedOver) => self.look_for_work(0),
            (State::Agreeing, Event::Agreed) => self.leave(EndReason::Agreed),
            (State::Stopping { after }, Event::Terminated) => self.go_on(after),
            (State::Leaving { reason }, Event::Left) => self.end(reason),
            (_, Event::Failed) => self.failed(now),
            (_, Event::Fenced(lost)) => self.fenced(lost),
            (_, Event::Gated(ControlGate::Abort)) => self.halt(EndReason::Aborted),
            (_, Event::Stop) => self.halt(EndReason::Stopped),
            (_, Event::Asked) => self.asked(),
            (_, Event::Pressed) => self.pressed(),
            (_, Event::Withdrawn) => self.withdrawn(),
            (
                late,
                Event::Start
                | Event::Registered
                | Event::Nothing
                | Event::Contended { .. }
                | Event::Claimed { .. }
                | Event::Open
                | Event::Gated(ControlGate::Closed)
                | Event::Woken
                | Event::Spawned
                | Event::SpawnFailed
                | Event::Exited(_)
                | Event::HandedOver
                | Event::Agreed
                | Event::Terminated
                | Event::Left,
            ) => late,
        };
    }

    fn handle_timeout(&mut self, now: Monotonic) {
        if self.poll_timeout().is_none_or(|due| now < due) {
            return;
        }
        self.state = match self.state {
            State::Idle { tries, .. } => self.look_for_work(tries),
            State::Gated { holds, .. } | State::Delayed { holds, .. } => self.look_or_check(holds),
            State::Retrying { again, .. } => self.go_on(again),
            late => late,
        };
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn poll_timeout(&self) -> Option<Monotonic> {
        match self.state {
            State::Idle { until, .. }
            | State::Gated { until, .. }
            | State::Delayed { until, .. }
            | State::Retrying { until, .. } => Some(until),
            State::New
            | State::Registering
            | State::Looking { .. }
            | State::Checking
            | State::Spawning
            | State::Running
            | State::Stopping { .. }
            | State::HandingOver
            | State::Agreeing
            | State::Leaving { .. }
            | State::Ended => None,
        }
    }
}
