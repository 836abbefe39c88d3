//! A task on the blackboard, from its first draft to the merge (seed 001 and its siblings).
//!
//! ```text
//! state              event                                    -> state               effects
//! DRAFT              Finalize                                 -> UNCLAIMED
//! UNCLAIMED          Claim                                    -> CLAIMED             FreshWorktree
//! REJECTED           Claim, by its coder                      -> CLAIMED             KeepWorktree
//! REJECTED           Claim, by another coder                  -> CLAIMED             FreshWorktree
//! INTEGRATION_FAILED Claim                                    -> CLAIMED             KeepWorktree
//! CLAIMED            Iterate, by its holder                   -> CLAIMED             Near
//! CLAIMED            Iterate, by its holder, past the limit   -> where it came from  GivenUp
//! CLAIMED            Submit, by its holder                    -> READY_FOR_REVIEW
//! CLAIMED            Expire, of its epoch                     -> where it came from
//! CLAIMED            Block, by its holder or without one      -> BLOCKED
//! READY_FOR_REVIEW   Review, it has no reviewer               -> READY_FOR_REVIEW
//! READY_FOR_REVIEW   Expire, of its review's epoch            -> READY_FOR_REVIEW
//! READY_FOR_REVIEW   Approve, by its reviewer, this commit    -> APPROVED
//! READY_FOR_REVIEW   Reject, by its reviewer, this commit     -> REJECTED            Near; at the limit GivenUp
//! APPROVED           Merge                                    -> MERGED
//! APPROVED           FailIntegration                          -> INTEGRATION_FAILED
//! UNCLAIMED, REJECTED, INTEGRATION_FAILED   Block, no holder  -> BLOCKED
//! BLOCKED            Unblock                                  -> UNCLAIMED
//! BLOCKED            Supersede                                -> SUPERSEDED
//! BLOCKED            Abandon                                  -> ABANDONED
//! any                anything else                            -> Refused
//! ```
//!
//! Every claim draws an *epoch* that is higher than any before. A holder states its epoch in each
//! call, and an older one is refused. So a coder that was suspended past its lease and lost its
//! task can neither submit nor block it. A reviewer has its own epoch, gives its verdict on the
//! submitted commit, and is never the author.
//!
//! *Limits.* A coder has [`TaskLimits::iterations_max`] iterations and [`TaskLimits::review_cycles_max`]
//! rejections; with the last one it has failed. After two failed coders the task is exhausted: no
//! coder can claim it, and its planner must block and rescope it.
//!
//! *Silence and crashes* are detected by [`ensemble_core::proto::lease`], which sends Expire. *Out of
//! order*: an event that does not fit is Refused with the reason, and changes nothing.

use ensemble_core::message::Name;

mod limits;
mod refusal;
#[cfg(test)]
mod tests;
mod vocabulary;

pub use limits::{EXHAUSTED_BY, LimitKind, TaskCounts, TaskLimits};
pub use refusal::TaskRefusal;
pub use vocabulary::{Effect, Event, State, TaskHolder, TaskOrigin};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskMachine {
    state: State,
    counts: TaskCounts,
    limits: TaskLimits,
}

/// A step of a task under way: its counters change, and effects come up.
struct TaskChange {
    counts: TaskCounts,
    limits: TaskLimits,
    effects: Vec<Effect>,
}

/// The next state, or the reason why there is none.
type TaskTransition = Result<State, TaskRefusal>;

impl TaskMachine {
    pub const fn new(state: State, counts: TaskCounts, limits: TaskLimits) -> Self {
        Self { state, counts, limits }
    }

    pub const fn state(&self) -> &State {
        &self.state
    }

    pub const fn counts(&self) -> &TaskCounts {
        &self.counts
    }

    /// The task after an event, and the effects of the event in their order. After an error nothing
    /// has changed.
    pub fn next(self, event: Event) -> Result<(Self, Vec<Effect>), TaskRefusal> {
        let Self { state, counts, limits } = self;
        let mut moving = TaskChange { counts, limits, effects: Vec::new() };
        let state = moving.next(state, event)?;
        Ok((Self { state, counts: moving.counts, limits }, moving.effects))
    }
}

const fn out_of_turn(state: &State) -> TaskRefusal {
    TaskRefusal::NotNow { status: state.name() }
}

impl TaskChange {
    fn claim(&mut self, holder: TaskHolder, from: TaskOrigin, keeps: bool) -> TaskTransition {
        if self.counts.is_exhausted() {
            let failed_by = self.counts.failed_by.iter().cloned().collect();
            return Err(TaskRefusal::Exhausted { failed_by });
        }
        if self.counts.failed_by.contains(&holder.by) {
            return Err(TaskRefusal::HasFailed { agent: holder.by });
        }
        if keeps {
            self.effects.push(Effect::KeepWorktree);
        } else {
            self.counts.review_cycles_current = 0;
            self.effects.push(Effect::FreshWorktree);
        }
        // A kept worktree may be another coder's work; that coder's iterations do not count for
        // this one.
        let coder = self.counts.coder.replace(holder.by.clone());
        let goes_on = keeps && coder.is_none_or(|coder| coder == holder.by);
        self.counts.iteration = if goes_on { self.counts.iteration + 1 } else { 1 };
        Ok(State::Claimed { holder, from })
    }

    fn give_up(&mut self, by: Name, limit: LimitKind) {
        self.counts.failed_by.insert(by.clone());
        let is_exhausted = self.counts.is_exhausted();
        self.effects.push(Effect::GivenUp { by, limit, is_exhausted });
    }

    fn iterate(&mut self, holder: TaskHolder, from: TaskOrigin) -> State {
        self.counts.iteration += 1;
        if self.counts.iteration > self.limits.iterations_max {
            self.give_up(holder.by, LimitKind::Iterations);
            return from.into();
        }
        if self.counts.iteration == self.limits.iterations_warn {
            self.effects.push(Effect::Near(LimitKind::Iterations));
        }
        State::Claimed { holder, from }
    }

    fn reject(&mut self, author: Name) -> State {
        self.counts.review_cycles_current += 1;
        self.counts.review_cycles_total += 1;
        if self.counts.review_cycles_current >= self.limits.review_cycles_max {
            // The task has no coder any more: the coder is free for other work.
            self.give_up(author, LimitKind::ReviewCycles);
            return State::Rejected { author: None };
        }
        if self.counts.review_cycles_current == self.limits.review_cycles_warn {
            self.effects.push(Effect::Near(LimitKind::ReviewCycles));
        }
        State::Rejected { author: Some(author) }
    }

    fn claimed(&mut self, holder: TaskHolder, from: TaskOrigin, event: Event) -> TaskTransition {
        match event {
            Event::Iterate(by) | Event::Block(Some(by)) | Event::Submit { holder: by, .. }
                if by != holder =>
            {
                Err(TaskRefusal::NotHolder { presented: by, holder: Some(holder) })
            }
            Event::Expire { epoch } if epoch != holder.epoch => {
                Err(TaskRefusal::OldEpoch { presented: epoch, now: holder.epoch })
            }
            Event::Iterate(_) => Ok(self.iterate(holder, from)),
            Event::Submit { commit, .. } => {
                Ok(State::ReadyForReview { author: holder.by, commit, review: None })
            }
            Event::Expire { .. } => Ok(from.into()),
            Event::Block(_) => Ok(State::Blocked),
            Event::Finalize
            | Event::Claim(_)
            | Event::Review(_)
            | Event::Approve { .. }
            | Event::Reject { .. }
            | Event::Merge
            | Event::FailIntegration
            | Event::Unblock
            | Event::Supersede
            | Event::Abandon => Err(out_of_turn(&State::Claimed { holder, from })),
        }
    }

    fn in_review(
        &mut self,
        (author, commit, review): (Name, String, Option<TaskHolder>),
        event: Event,
    ) -> TaskTransition {
        match event {
            Event::Review(holder) => match review {
                None if holder.by == author => Err(TaskRefusal::OwnWork),
                None => Ok(State::ReadyForReview { author, commit, review: Some(holder) }),
                Some(holder) => Err(TaskRefusal::Taken { holder }),
            },
            Event::Approve { holder, .. } | Event::Reject { holder, .. }
                if review.as_ref() != Some(&holder) =>
            {
                Err(TaskRefusal::NotHolder { presented: holder, holder: review })
            }
            Event::Approve { commit: presented, .. } | Event::Reject { commit: presented, .. }
                if presented != commit =>
            {
                Err(TaskRefusal::OtherCommit { submitted: commit, presented })
            }
            Event::Approve { .. } => Ok(State::Approved),
            Event::Reject { .. } => Ok(self.reject(author)),
            Event::Expire { epoch } => {
                let now = review.as_ref().map_or(0, |holder| holder.epoch);
                if epoch != now {
                    return Err(TaskRefusal::OldEpoch { presented: epoch, now });
                }
                Ok(State::ReadyForReview { author, commit, review: None })
            }
            Event::Finalize
            | Event::Claim(_)
            | Event::Iterate(_)
            | Event::Submit { .. }
            | Event::Merge
            | Event::FailIntegration
            | Event::Block(_)
            | Event::Unblock
            | Event::Supersede
            | Event::Abandon => Err(out_of_turn(&State::ReadyForReview { author, commit, review })),
        }
    }

    fn next(&mut self, state: State, event: Event) -> TaskTransition {
        match (state, event) {
            (State::Draft, Event::Finalize) => Ok(State::Unclaimed),
            (State::Unclaimed, Event::Claim(holder)) => {
                self.claim(holder, TaskOrigin::Unclaimed, false)
            }
            (State::Rejected { author }, Event::Claim(holder)) => {
                let keeps = author.as_ref() == Some(&holder.by);
                self.claim(holder, TaskOrigin::Rejected, keeps)
            }
            (State::IntegrationFailed, Event::Claim(holder)) => {
                self.claim(holder, TaskOrigin::IntegrationFailed, true)
            }
            (State::Claimed { holder, from }, event) => self.claimed(holder, from, event),
            (State::ReadyForReview { author, commit, review }, event) => {
                self.in_review((author, commit, review), event)
            }
            (State::Approved, Event::Merge) => Ok(State::Merged),
            (State::Approved, Event::FailIntegration) => Ok(State::IntegrationFailed),
            (
                State::Unclaimed
                | State::Rejected { .. }
                | State::IntegrationFailed
                | State::Blocked,
                Event::Block(None),
            ) => Ok(State::Blocked),
            (State::Blocked, Event::Unblock) => Ok(State::Unclaimed),
            (State::Blocked, Event::Supersede) => Ok(State::Superseded),
            (State::Blocked, Event::Abandon) => Ok(State::Abandoned),
            (
                state,
                Event::Finalize
                | Event::Claim(_)
                | Event::Iterate(_)
                | Event::Submit { .. }
                | Event::Expire { .. }
                | Event::Review(_)
                | Event::Approve { .. }
                | Event::Reject { .. }
                | Event::Merge
                | Event::FailIntegration
                | Event::Block(_)
                | Event::Unblock
                | Event::Supersede
                | Event::Abandon,
            ) => Err(out_of_turn(&state)),
        }
    }
}
