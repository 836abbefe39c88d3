//! The actors' actions, allowed and forbidden.

use ensemble_team::board::{
    NewAgent, NewHandoff, NewTask, TaskStatus, claimable, released_claim, reviewable,
};
use ensemble_team::proto::agent;

use super::name;

use super::*;

const REVIEWERS_FROM: usize = 3;

impl Sim {
    pub(crate) fn any_task(&mut self) -> Name {
        let at = self.dice.below(self.before.tasks.len() as u64) as usize;
        self.before.tasks[at].id.clone()
    }

    pub(crate) fn plan_work(&mut self) {
        let (id, other) = (self.any_task(), self.any_task());
        let new = name(&format!("task-{}", self.before.tasks.len()));
        match self.dice.below(10) {
            0..=2 if self.before.tasks.len() < 12 => {
                let task = NewTask::new(new, "more", "specs/x.md", "tests pass").after([other]);
                self.change("add".into(), |board| board.add_task(&task));
            }
            3 => {
                let mut task = NewTask::draft(new);
                if self.dice.below(2) == 0 {
                    // Otherwise it can be finalized only after a planner has completed it.
                    task = NewTask::new(task.id, "d", "specs/x.md", "w");
                    task.is_draft = true;
                }
                self.change("draft".into(), |board| board.add_task(&task));
            }
            4 => {
                let is_draft =
                    |task: &&ensemble_team::board::BoardTask| task.status == TaskStatus::Draft;
                let draft = self.before.tasks.iter().find(is_draft).map(|task| task.id.clone());
                let id = draft.unwrap_or(id);
                self.change(format!("finalize {id}"), |board| board.finalize(&id));
            }
            5 => {
                let questions = ["why?".to_owned()];
                self.change(format!("block {id}"), |b| b.block(&id, None, "stuck", &questions));
            }
            6 => drop(self.change(format!("unblock {id}"), |board| board.unblock(&id))),
            7 | 8 => {
                self.change(format!("supersede {id} by {other}"), |board| {
                    board.supersede(&id, &[other], "cut anew")
                });
            }
            _ => drop(self.change(format!("abandon {id}"), |board| board.abandon(&id, "no need"))),
        }
    }

    /// A wrong verdict of an observer about a living holder: the holder must be fenced.
    pub(crate) fn expire_wrongly(&mut self) {
        let leases = leases(&self.before);
        if leases.is_empty() {
            return;
        }
        let lease: BoardLease = leases[self.dice.below(leases.len() as u64) as usize].clone();
        let sequence = self.sequence_of(&lease);
        self.change(format!("expire {lease:?}"), |board| board.expire(&lease, sequence));
    }

    pub(crate) fn merge(&mut self) {
        let any = self.any_task();
        let mut approved =
            self.before.tasks.iter().filter(|task| task.status == TaskStatus::Approved);
        let id = approved.next().map_or(any, |task| task.id.clone());
        if self.dice.below(3) == 0 {
            self.change(format!("fail {id}"), |board| board.integration_failed(&id, "conflict"));
        } else {
            self.change(format!("merge {id}"), |board| board.merged(&id, "m"));
        }
    }

    pub(crate) fn act(&mut self) {
        let at = self.dice.below(self.actors.len() as u64) as usize;
        let id = self.actors[at].0.clone();
        let Some(registration) = self.actors[at].1.registration.clone() else {
            let new = NewAgent::new(id.clone(), "coder");
            let registered = self.change(format!("register {id}"), |board| {
                let holder = board.register(&new)?;
                board.agent_event(&holder, agent::Event::Ready)?;
                Ok(holder)
            });
            self.actors[at].1.registration = registered;
            return;
        };
        match self.dice.below(50) {
            // It dies, and its supervisor cleans up or not.
            0 => {
                self.actors[at].1.registration = None;
                if self.dice.below(2) == 0 {
                    self.change(format!("unregister {id}"), |b| {
                        b.unregister(&registration, "died")
                    });
                }
            }
            1 => {
                self.change(format!("beat of {id}"), |board| board.fold_beats());
            }
            2 => {
                let silence = Duration::from_secs(self.dice.below(900));
                self.actors[at].1.silent_until = self.now + silence;
            }
            // It dies between the two phases of its claim.
            3 if self.actors[at].1.plan.take().is_some() => {
                self.actors[at].1.registration = None;
            }
            3..=20 if at < REVIEWERS_FROM => self.claim(at, &registration),
            3..=22 => self.review(at, &registration),
            _ => self.write(at),
        }
        if !self.before.agents.contains_key(&id) {
            // It notices that it is not registered any more, sooner or later.
            if self.dice.below(3) == 0 {
                self.actors[at].1.registration = None;
            }
        }
    }

    /// Both phases, with anything in between.
    fn claim(&mut self, at: usize, registration: &TaskHolder) {
        let id = registration.by.clone();
        let Some(plan) = self.actors[at].1.plan.take() else {
            let any = self.any_task();
            let tasks = claimable(&self.before, Some(&id));
            let task = tasks.first().map_or(any, |task| task.id.clone());
            let plan = self.board.lock().unwrap().plan_claim(&task, registration);
            self.told.push(format!("{id} plans {task}: {}", plan.is_ok()));
            self.actors[at].1.plan = plan.ok();
            return;
        };
        let base = (self.dice.below(5) > 0).then_some("base");
        let what = format!("{id} claims {}", plan.task);
        if let Some(granted) = self.change(what, |board| board.commit_claim(&plan, base)) {
            assert!(self.actors.iter().all(|(_, other)| {
                other.held.iter().all(|(_, holder, _)| holder.epoch < granted.holder.epoch)
            }));
            self.actors[at].1.held.push((plan.task, granted.holder, false));
        }
    }

    fn review(&mut self, at: usize, registration: &TaskHolder) {
        let id = registration.by.clone();
        let any = self.any_task();
        let tasks = reviewable(&self.before, Some(&id));
        let task = tasks.first().map_or(any, |task| task.id.clone());
        let what = format!("{id} reviews {task}");
        if let Some(granted) = self.change(what, |board| board.claim_review(&task, registration)) {
            self.actors[at].1.held.push((task, granted.holder, true));
        }
    }

    /// A write in the name of a lease, old or new: only the one that runs may succeed.
    fn write(&mut self, at: usize) {
        let held = &self.actors[at].1.held;
        let back = self.dice.below(8).saturating_sub(5) as usize;
        let Some((task, holder, is_review)) = held.iter().rev().nth(back).cloned() else { return };
        let before = self.before.task(&task).unwrap().clone();
        let commit = format!("c{}", self.told.len());
        let submitted = self.commits.get(&task).cloned().unwrap_or_default();
        let kind = self.dice.below(9);
        let questions = ["why?".to_owned()];
        let done = match (is_review, kind) {
            (true, 0..=5) => self.change(format!("{} approves {task}", holder.by), |board| {
                board.approve(&task, &holder, &submitted)
            }),
            (true, _) => self.change(format!("{} rejects {task}", holder.by), |board| {
                board.reject(&task, &holder, &submitted, "no")
            }),
            (false, 0..=4) => {
                let done = self.change(format!("{} submits {task}", holder.by), |board| {
                    board.submit(&task, &holder, &commit)
                });
                if done.is_some() {
                    self.commits.insert(task.clone(), commit);
                }
                done
            }
            (false, 5) => self.change(format!("{} iterates {task}", holder.by), |board| {
                board.iterate(&task, &holder)
            }),
            (false, 6) => self.change(format!("{} blocks {task}", holder.by), |board| {
                board.block(&task, Some(&holder), "stuck", &questions)
            }),
            (false, _) => {
                let more = serde_json::Map::new();
                let notes = NewHandoff { summary: "s".into(), next_action: "n".into(), more };
                self.change(format!("{} hands over {task}", holder.by), |board| {
                    board.hand_off(&task, &holder, &notes)
                })
            }
        };
        // The last holder may submit, too.
        let submits = !is_review && kind <= 4;
        let is_last = submits && released_claim(&before).as_ref() == Some(&holder);
        if done.is_some() && !is_last {
            let (by, epoch, status) = match is_review {
                true => (before.reviewing_by, before.review_epoch, TaskStatus::ReadyForReview),
                false => (before.assigned_to, before.lease_epoch, TaskStatus::Claimed),
            };
            assert_eq!((by, epoch, before.status), (Some(holder.by), Some(holder.epoch), status));
        }
    }
}
