//! The work that is due by the clock: step queues, alarms, dead letters, and removing what is no longer needed.

use std::sync::Arc;
use std::time::Duration;

use ensemble_core::env::Monotonic;
use ensemble_core::event_log::types;
use ensemble_core::requests::Requests;
use ensemble_core::spool::Swept;
use ensemble_project::Project;
use ensemble_team::driver::TaskEnds;
use serde_json::{Value, json};

use super::WatchEngine;
use crate::alarms::{self, AlarmReporter};
use crate::budget::BudgetWatch;
use crate::context::WatchContext;
use crate::dead_letters::DeadLetters;
use crate::history::HistorySweep;
use crate::mail_starts::MailStarts;
use crate::steps::StepUpkeep;
use crate::unplanned::UnplannedTasks;
use crate::watch_set::{WatchSet, WatchedPlace};

const SWEEP_INTERVAL: Duration = Duration::from_secs(10 * 60);
/// Delay of the first sweep: a process that waits for the watcher to start need not wait for it.
const FIRST_SWEEP_AFTER: Duration = Duration::from_secs(1);

pub(super) struct Upkeep {
    context: Arc<WatchContext>,
    pub(super) steps: StepUpkeep,
    pub(super) alarms: AlarmReporter,
    ends: TaskEnds,
    dead: DeadLetters,
    pub(super) starts: MailStarts,
    unplanned: UnplannedTasks,
    budget: BudgetWatch,
    next_sweep: Monotonic,
    history: HistorySweep,
}

impl Upkeep {
    pub(super) fn new(now: Monotonic, context: &Arc<WatchContext>) -> Self {
        let project = &context.project;
        Self {
            context: Arc::clone(context),
            steps: StepUpkeep::new(now, context),
            alarms: AlarmReporter::open(now, context),
            ends: project.task_ends(),
            dead: DeadLetters::new(now, project.config.poll_interval()),
            starts: MailStarts::new(now, context),
            unplanned: UnplannedTasks::new(now, project.config.poll_interval()),
            budget: BudgetWatch::new(now, context),
            next_sweep: now + FIRST_SWEEP_AFTER,
            history: HistorySweep::new(now, context),
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Monotonic> {
        let sweeps = self.next_sweep.min(self.history.next_timeout());
        let always = sweeps.min(self.alarms.next_timeout()).min(self.dead.next_timeout());
        let always = always.min(self.unplanned.next_timeout());
        let always = self.starts.next_timeout().map_or(always, |starts| always.min(starts));
        let sometimes = self.steps.next_timeout().into_iter().chain(self.budget.next_timeout());
        sometimes.chain([always]).min()
    }

    pub(super) fn watch_boards(project: &Project, watch_set: &mut WatchSet) {
        for place in project.board_places() {
            // Without events the regular look finds what has changed.
            let _ = watch_set.watch_files(&place, &alarms::WATCHED_FILES, &WatchedPlace::Board);
        }
    }

    /// Ends leases of steps, raises alarms, and reports dead tasks. Returns whether the summary changed.
    fn drive(&mut self, now: Monotonic) -> bool {
        let spool = &self.context.spool;
        let steps = self.steps.drive(now, spool);
        let alarms = self.alarms.drive(now);
        self.dead.drive(now, spool);
        self.unplanned.drive(now, spool);
        self.history.drive(now);
        let parked = self.budget.drive(now);
        parked.iter().for_each(|condition| self.alarms.happened(condition));
        steps || alarms || !parked.is_empty()
    }

    /// Removes settled messages, closed requests, ends of tasks and left-over files past their time, if
    /// that is due. Returns whether it was.
    fn sweep(&mut self, now: Monotonic) -> bool {
        if now < self.next_sweep {
            return false;
        }
        self.next_sweep = now + SWEEP_INTERVAL;
        let context = &self.context;
        let requests = Requests::new(&*context.spool).sweep().unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot sweep the requests");
            0
        });
        let mut calendar = context.spool.calendar();
        let ends = self.ends.sweep(&context.spool, &mut calendar).unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot sweep the ends of tasks");
            0
        });
        context.spool.keep_calendar(calendar);
        match context.spool.sweep() {
            Ok(swept) if requests > 0 || ends > 0 || swept != Swept::default() => {
                context.record(
                    types::QUEUE_SWEPT,
                    json!({
                        "tmp": swept.tmp_removed, "done": swept.done_removed,
                        "orphans": swept.orphans_removed, "requests": requests, "ends": ends,
                    }),
                );
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "cannot sweep the queue"),
        }
        true
    }

    pub(super) fn describe(&self, status: &mut Value) {
        status["steps"] = self.steps.summary();
        status["alarms"] = self.alarms.summary();
    }
}

impl WatchEngine {
    pub(super) fn pass_time(&mut self, now: Monotonic) {
        let due = self.team.roles.drive(now, &*self.context.recorder);
        self.status.changed_if(due.ended);
        if due.poll {
            self.scan(now);
            self.mail.all_changed();
        }
        if self.team.look_at_leases(now, &mut self.mail) {
            self.keep_steps(now);
        }
        self.return_held();
        if self.upkeep.sweep(now) {
            self.drop_boxes.sweep();
        }
        for (agent, why) in self.team.members.gone() {
            self.requests.absent(now, agent, why);
        }
        self.mail.remote.share_observation(|sight| {
            let gone = self.team.members.gone();
            sight.absent = gone.map(|(agent, why)| (agent.clone(), why.to_owned())).collect();
        });
        self.requests.drive(now, &*self.context.spool);
        let changed = self.upkeep.drive(now);
        self.status.changed_if(changed);
        let source = self.mail.remote.mail(&self.context.spool);
        self.upkeep.starts.drive(now, source);
        self.mail.notify(now);
        let changed = self.team.look_at_members(now, &mut self.mail);
        self.status.changed_if(changed);
    }
}
