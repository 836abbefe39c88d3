//! Requests: sent, answered by right and wrong agents, late and twice, and decided by the file that
//! exists first.

use ensemble_core::proto::request::{
    AtExpiry, Decision, Effect, Event, Outcome, Request, RequestKind,
};

use super::*;

/// Delay that the loop itself may add.
const SLACK: Duration = Duration::from_secs(15);
/// Most requests that are kept; the oldest are dropped.
const REQUESTS_MAX: usize = 12;

pub(super) struct Asked {
    id: String,
    kind: RequestKind,
    from: Name,
    to: Name,
    created_at: ensemble_core::message::Timestamp,
    file: Option<Decision>,
    machine: Request,
    /// When the watcher must have closed the request.
    close_by: Monotonic,
    closed: u32,
}

impl Asked {
    pub(super) fn next_due(&self) -> Option<Monotonic> {
        self.machine.poll_timeout()
    }

    fn fresh(&self) -> Request {
        let (kind, from, to) = (self.kind.clone(), self.from.clone(), self.to.clone());
        Request::new(self.id.clone(), kind, from, to, self.created_at)
    }

    /// The first process to create the file decides; the result is the decision in the file.
    fn decide(
        &mut self,
        decision: Decision,
        now: Monotonic,
        opened: Monotonic,
    ) -> Result<Decision, String> {
        if let Some(standing) = &self.file {
            return Ok(standing.clone());
        }
        let Decision { outcome, by, .. } = &decision;
        let is_fine = match outcome {
            Outcome::Approved | Outcome::Rejected => *by == self.to && *by != self.from,
            Outcome::Cancelled => *by == self.from,
            Outcome::Expired => {
                *by == self.to && (now >= opened || self.kind.at_expiry == AtExpiry::Force)
            }
        };
        if !is_fine {
            return Err(format!("request {}: {decision:?} was let through", self.id));
        }
        self.file = Some(decision.clone());
        Ok(decision)
    }
}

impl World {
    pub(super) fn ask(&mut self, worker: usize) {
        let (now, created_at) = (self.now(), self.clock.wall());
        let to = self.workers[worker].name.clone();
        // An agent sometimes sends a request to itself.
        let from = match self.rng.percent(10) {
            true => to.clone(),
            false => Name::new("lead").expect("a name"),
        };
        let kind = match self.rng.percent(50) {
            true => RequestKind::shutdown(),
            false => {
                RequestKind { deadline: Duration::from_secs(700), ..RequestKind::plan_approval() }
            }
        };
        let id = format!("r{}", self.draw_epoch());
        let machine = Request::new(id.clone(), kind.clone(), from.clone(), to.clone(), created_at);
        let close_by = now + kind.deadline;
        let asked =
            Asked { id, kind, from, to, created_at, file: None, machine, close_by, closed: 0 };
        if self.requests.len() >= REQUESTS_MAX {
            self.requests.remove(0);
        }
        self.requests.push(asked);
    }

    /// The next watcher reads the requests from disk.
    pub(super) fn requests_restart(&mut self) {
        let now = self.now();
        for asked in &mut self.requests {
            asked.machine = asked.fresh();
            (asked.close_by, asked.closed) = (now + asked.kind.deadline, 0);
        }
    }

    /// A worker acts on a request: through the watcher, or in its own process.
    pub(super) fn say(&mut self, worker: usize) -> Result<(), String> {
        if self.requests.is_empty() {
            return Ok(());
        }
        let at = usize::try_from(self.rng.below(self.requests.len() as u64)).unwrap_or(0);
        let (wall, asked) = (self.clock.wall(), &self.requests[at]);
        let (to, from) = (asked.to.clone(), asked.from.clone());
        let by = match self.rng.below(10) {
            0..6 => to,
            6..8 => from,
            _ => self.workers[worker].name.clone(),
        };
        let decision = |outcome| Decision::new(outcome, by.clone(), wall);
        let event = match self.rng.below(12) {
            0..4 => Event::Decide(decision(Outcome::Approved)),
            4..6 => Event::Decide(decision(Outcome::Rejected)),
            6..9 => Event::Cancel(decision(Outcome::Cancelled)),
            9 => Event::Opened { age: Duration::ZERO },
            10 => Event::Absent(decision(Outcome::Expired)),
            _ => Event::Decide(decision(Outcome::Expired)),
        };
        // A message may arrive twice.
        let copies = if self.rng.percent(20) { 2 } else { 1 };
        let elsewhere = self.rng.percent(40);
        for _ in 0..copies {
            match elsewhere {
                true => self.say_elsewhere(at, event.clone())?,
                false => self.request_event(at, event.clone())?,
            }
        }
        Ok(())
    }

    /// Acts in a separate process that starts from the disk and ends.
    fn say_elsewhere(&mut self, at: usize, event: Event) -> Result<(), String> {
        let mut machine = self.requests[at].fresh();
        std::mem::swap(&mut machine, &mut self.requests[at].machine);
        let (closed, close_by) = (self.requests[at].closed, self.requests[at].close_by);
        self.requests[at].closed = 0;
        // The process usually knows the request; otherwise the event must be refused as unknown.
        if self.rng.percent(80) {
            self.request_event(at, Event::Opened { age: Duration::ZERO })?;
        }
        if let Some(standing) = self.requests[at].file.clone() {
            self.request_event(at, Event::Standing(standing))?;
        }
        self.request_event(at, event)?;
        (self.requests[at].closed, self.requests[at].close_by) = (closed, close_by);
        self.requests[at].machine = machine;
        Ok(())
    }

    fn request_event(&mut self, at: usize, event: Event) -> Result<(), String> {
        let now = self.now();
        let asked = &mut self.requests[at];
        let (before, said) = (state_of(&asked.machine), format!("{event:?}"));
        asked.machine.handle(now, event);
        self.request_effects(at, &before, &said)
    }

    fn request_effects(&mut self, at: usize, before: &str, said: &str) -> Result<(), String> {
        let now = self.now();
        let asked = &mut self.requests[at];
        let effects = drain(&mut asked.machine);
        let after = state_of(&asked.machine);
        self.rows.note("request", (before, said, &after), &printed(&effects))?;
        for effect in effects {
            let asked = &mut self.requests[at];
            match effect {
                Effect::Close(decision) => {
                    // Killed before the file exists: nothing was decided.
                    if self.rng.percent(10) {
                        continue;
                    }
                    let opened = asked.close_by;
                    let standing = asked.decide(decision, now, opened)?;
                    self.request_event(at, Event::Standing(standing))?;
                }
                Effect::Closed(decision) => {
                    asked.closed += 1;
                    if asked.closed > 1 || asked.file.as_ref() != Some(&decision) {
                        return Err(format!(
                            "request {}: closed as {decision:?}, again or not",
                            asked.id
                        ));
                    }
                }
                Effect::Announce | Effect::Remind { .. } | Effect::Refused(_) => {}
            }
        }
        Ok(())
    }

    pub(super) fn wake_requests(&mut self) -> Result<(), String> {
        let now = self.now();
        for at in 0..self.requests.len() {
            let asked = &self.requests[at];
            // The watcher scans for requests that it does not know: a pending request must have a
            // deadline.
            if asked.machine.decision().is_none() && asked.machine.poll_timeout().is_none() {
                match asked.file.clone() {
                    Some(standing) => self.request_event(at, Event::Standing(standing))?,
                    None => self.request_event(at, Event::Opened { age: Duration::ZERO })?,
                }
            }
            let asked = &mut self.requests[at];
            // The next scan finds the decisions of other processes.
            if asked.machine.decision().is_none()
                && let Some(standing) = asked.file.clone()
            {
                self.request_event(at, Event::Standing(standing))?;
            }
            let asked = &mut self.requests[at];
            if asked.machine.poll_timeout().is_some_and(|due| now >= due) {
                let before = state_of(&asked.machine);
                asked.machine.handle_timeout(now);
                self.request_effects(at, &before, "Time")?;
            }
        }
        Ok(())
    }

    pub(super) fn check_requests(&self) -> Result<(), String> {
        let now = self.now();
        for asked in &self.requests {
            // A lost expiry is proposed again every ten seconds.
            if asked.file.is_none() && now > asked.close_by + SLACK * 12 {
                return Err(format!("request {} is pending after its deadline", asked.id));
            }
        }
        Ok(())
    }
}
