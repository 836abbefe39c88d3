//! Step queues on a server: the same work as on a file, in its own thread. A server that does not answer
//! therefore never blocks the watcher.
//!
//! | when | action |
//! |---|---|
//! | another process has changed a queue, a lease may end, and every 30 s | expired steps return, pending notices are sent |
//! | the loop has seen agents working | the leases of their steps are renewed |
//! | the loop has seen an agent gone | its steps return |
//!
//! Every host's watcher does this. A step is taken back once, and a notice is stored once by its id. *A crash* leaves
//! what was not done yet to the next look of any host.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, unbounded};
use ensemble_core::Result;
use ensemble_core::env::{Clock as _, Monotonic, SystemClock};
use ensemble_core::message::Name;
use ensemble_core::proto::lease::LOOK_INTERVAL;
use ensemble_team::steps::StepStore;
use serde_json::{Value, json};

use crate::context::WatchContext;
use crate::held_work::{KeptLeases, WorkingAgents, keep_steps};

/// How long the thread listens to the server before it looks for orders of the loop.
const ROUND: Duration = Duration::from_millis(250);
/// How long to wait after a change before looking, because busy queues change many times a second.
const QUIET: Duration = Duration::from_millis(100);
const RETRY: Duration = Duration::from_secs(2);

enum LoopObservation {
    Keep(WorkingAgents),
    TakeBack(Name),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SeenQueues {
    held: usize,
    trouble: Option<String>,
}

/// The loop's end of the thread, which ends with it.
pub(crate) struct StepServer {
    orders: Sender<LoopObservation>,
    seen: Arc<Mutex<SeenQueues>>,
    place: String,
    said: Option<SeenQueues>,
}

impl StepServer {
    /// Starts the thread; `None` for queues in a file.
    pub(crate) fn start(context: &Arc<WatchContext>) -> Option<Self> {
        let WatchContext { project, recorder, .. } = &**context;
        if !project.has_shared_steps() {
            return None;
        }
        let store = project.open_steps(project.step_options(Arc::clone(recorder)));
        let store = store.inspect_err(|error| tracing::warn!(%error, "cannot use the step queues"));
        let store = store.ok()?;
        let place = store.path().display().to_string();
        let (orders, received) = unbounded();
        let seen = Arc::<Mutex<SeenQueues>>::default();
        let now = SystemClock.monotonic();
        let file = project.state.join("servers/leases/kept-steps.json");
        let mut thread = StepThread {
            kept: KeptLeases::open(now, &file, project.config.leases.extend_max()),
            context: Arc::clone(context),
            store,
            orders: received,
            seen: Arc::clone(&seen),
            next_look: now,
        };
        std::thread::spawn(move || thread.run());
        Some(Self { orders, seen, place, said: None })
    }

    pub(crate) fn extend_leases(&self, working: WorkingAgents) {
        let _ = self.orders.send(LoopObservation::Keep(working));
    }

    pub(crate) fn take_back(&self, agent: &Name) {
        let _ = self.orders.send(LoopObservation::TakeBack(agent.clone()));
    }

    pub(crate) fn is_news(&mut self) -> bool {
        let seen = self.seen();
        self.said.replace(seen.clone()) != Some(seen)
    }

    pub(crate) fn summary(&self) -> Value {
        let SeenQueues { held, trouble } = self.seen();
        json!({ "held": held, "server": self.place, "trouble": trouble })
    }

    fn seen(&self) -> SeenQueues {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct StepThread {
    context: Arc<WatchContext>,
    store: StepStore,
    kept: KeptLeases,
    orders: Receiver<LoopObservation>,
    seen: Arc<Mutex<SeenQueues>>,
    next_look: Monotonic,
}

impl StepThread {
    fn run(&mut self) {
        loop {
            match self.orders.try_recv() {
                Ok(order) => {
                    let done = self.carry_out(order);
                    self.record_failure(done);
                    continue;
                }
                Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => {}
            }
            let done = self.do_due_work();
            if done.is_err() {
                self.record_failure(done);
                // Orders that come in the meantime are carried out afterwards.
                if self.has_ended_within(RETRY) {
                    return;
                }
            }
        }
    }

    fn has_ended_within(&mut self, time: Duration) -> bool {
        match self.orders.recv_timeout(time) {
            Ok(order) => {
                let done = self.carry_out(order);
                self.record_failure(done);
                false
            }
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => true,
        }
    }

    fn do_due_work(&mut self) -> Result<()> {
        let now = SystemClock.monotonic();
        if now >= self.next_look {
            let observed = self.store.observe()?;
            if self.store.owes_notices()? {
                self.post()?;
            }
            let next = observed.next_in.unwrap_or(LOOK_INTERVAL).clamp(QUIET, LOOK_INTERVAL);
            self.next_look = now + next;
            let seen = SeenQueues { held: observed.held, trouble: None };
            *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = seen;
        }
        let left = self.next_look.since(SystemClock.monotonic());
        if self.store.wait_for_news(ROUND.min(left))? == Some(true) {
            self.next_look = self.next_look.min(SystemClock.monotonic() + QUIET);
        }
        Ok(())
    }

    fn post(&self) -> Result<()> {
        let queue = self.context.project.open_unrecorded()?;
        self.store.post_notices(&*queue).map(drop)
    }

    fn carry_out(&mut self, order: LoopObservation) -> Result<()> {
        match order {
            LoopObservation::Keep(working) => {
                let now = SystemClock.monotonic();
                keep_steps(&self.store, now, &working, &mut self.kept, &*self.context.recorder);
                self.kept.remember(now);
                Ok(())
            }
            LoopObservation::TakeBack(agent) => self.store.take_back(&agent).map(drop),
        }
    }

    /// Says once that the server cannot be used.
    fn record_failure(&self, done: Result<()>) {
        let Err(error) = done else { return };
        let why = error.to_string();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.trouble.as_ref() != Some(&why) {
            tracing::warn!(%error, "cannot check the step queues");
            seen.trouble = Some(why);
        }
    }
}
