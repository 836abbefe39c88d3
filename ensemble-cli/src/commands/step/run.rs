use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ensemble_app::diagnostics::say;
use ensemble_app::interrupt::Interrupt;
use ensemble_app::steps::{open_existing_steps, open_step_mail, step_driver};
use ensemble_app::text;
use ensemble_app::wait_line::WaitLine;
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::message::{Name, shell_word};
use ensemble_core::proto::Machine as _;
use ensemble_core::watch::Waiter;
use ensemble_team::driver::{RunNote, SentPrompt, StepRound};
use ensemble_team::proto::step::{ATTEMPTS_LIMIT, Effect, State, StepMachine};
use ensemble_team::steps::{NoStep, StepStore};
use serde_json::json;

use super::nudges::OwedNudges;
use super::{wait_for_change, wait_on};
use crate::args;
use crate::context::{Context, Failure, Outcome};
use crate::output::{FAINT, WARNING};

/// Hand out a task's steps until all are done
///
/// Each step is sent to its agent's mailbox as a focused prompt, and the agent is nudged (by the running watcher, or
/// by this command if there is none). A failed step is sent again with its error; when a person must intervene, this
/// says so and waits. Ended at any point, it continues where it stopped. Exit code 0 when all is done, 3 if `--wait`
/// passes before that, 1 with `--stop-if-stuck` if it is stuck.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble step run 0-4-1
  ensemble step run 0-4-1 --wait 2h --stop-if-stuck --json")]
pub(super) struct RunSteps {
    /// The task
    #[arg(value_name = "TASK")]
    task: String,
    /// Stop after DURATION
    #[arg(long, alias = "timeout", value_name = "DURATION", value_parser = args::duration)]
    wait: Option<Duration>,
    /// End instead of waiting when a person must intervene
    #[arg(long)]
    stop_if_stuck: bool,
}

struct StuckReminder {
    index: u32,
    reminder: StepMachine,
}

impl RunSteps {
    pub(super) fn run(self, context: &Context) -> Outcome {
        let (store, mail, recorder) =
            (open_existing_steps(context)?, open_step_mail(context)?, context.recorder()?);
        let agents = agents(&store, &self.task)?;
        for agent in &agents {
            // Before anything is handed out: a mistake in a name is found at once.
            mail.settings(&mail.mailbox_of(agent))?;
        }
        let driver = step_driver(context, &store, &mail, &*recorder)?;
        let note = RunNote::begin_run(&context.project()?.state, &self.task)?;
        let interrupt = Interrupt::install()?;
        let waiter = Waiter::for_logs(&[context.project()?.state.clone()]);
        let deadline = self.wait.and_then(|timeout| Instant::now().checked_add(timeout));
        let (mut stuck, mut said): (Option<StuckReminder>, Option<String>) = (None, None);
        let _line = WaitLine::new(format!("task {} to be done", self.task), self.wait);
        let mut nudges = OwedNudges::default();
        nudges.resume(&store, &*mail, &self.task)?;
        loop {
            // Before the round: what others change in the meantime is another reason for one.
            let version = store.data_version()?;
            let StepRound { prompted, returned, nothing, next_in, unsent } =
                driver.round(&self.task)?;
            if let Some(why) = unsent.as_ref().filter(|_| unsent != said) {
                say(&format!("a prompt or a notice is not sent yet: {why}"));
            }
            said = unsent;
            for key in returned {
                say(&format!("{key}: its worker fell silent, it is handed out again"));
            }
            for prompted in &prompted {
                print_prompted(context, prompted)?;
                nudges.prompted(prompted);
            }
            if store.queue(&self.task)?.is_done() {
                note.end_run()?;
                return done(context, &store, &self.task);
            }
            stuck = self.look_at_stuck(context, &store, &nothing, stuck)?;
            context.out.flush()?;
            let retry = nudges.drive(context, &*mail)?;
            let left =
                deadline.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                note.end_run()?;
                let patience = text::age(self.wait.unwrap_or_default());
                let text = format!("after {patience} task {} is not done: {nothing}", self.task);
                return Err(Failure::nothing(text).with_hint("run it again to continue"));
            }
            let until = Instant::now() + left.min(next_in);
            let until = retry.map_or(until, |at| at.min(until));
            wait_for_change(&store, version, until, |patience| {
                interrupt
                    .may_end_during(|| wait_on(&store, patience, |longest| waiter.wait(longest)))
            })?;
        }
    }

    fn look_at_stuck(
        &self,
        context: &Context,
        store: &StepStore,
        nothing: &NoStep,
        before: Option<StuckReminder>,
    ) -> Outcome<Option<StuckReminder>> {
        let NoStep::Paused { step_index, .. } = nothing else { return Ok(None) };
        let now = SystemClock.monotonic();
        let mut stuck = match before {
            Some(mut stuck) if stuck.index == *step_index => {
                stuck.reminder.handle_timeout(now);
                if stuck.reminder.poll_effect() != Some(Effect::Remind) {
                    return Ok(Some(stuck));
                }
                stuck
            }
            Some(_) | None => {
                // Only for the time: what it is stuck in is in the database.
                let state = State::Blocked { reasons: vec![nothing.to_string()] };
                let reminder = StepMachine::restore(state, 0, 0, ATTEMPTS_LIMIT, now);
                StuckReminder { index: *step_index, reminder }
            }
        };
        stuck.index = *step_index;
        let key = ensemble_team::steps::StepKey::new(self.task.clone(), *step_index);
        let step = store.step(&key)?;
        let (why, order) = match step.status.as_str() {
            "BLOCKED" => (step.blockers.join("; "), "unblock"),
            _ => (step.last_error.clone().unwrap_or_default(), "retry"),
        };
        let line = format!("{key} is {}: {}", step.status, text::one_line(&why));
        if self.stop_if_stuck {
            let task = shell_word(&self.task);
            return Err(Failure::refused(line).with_hint(format!(
                "`ensemble step {order} {task} {step_index}`, or `step skip`; then run it again"
            )));
        }
        let object = text::with_members(json!({ "event": "stuck" }), &step);
        context.out.print_answer(&object, context.out.paint(WARNING, line))?;
        Ok(Some(stuck))
    }
}

pub(super) fn agents(store: &StepStore, task: &str) -> Outcome<BTreeSet<Name>> {
    store.queue(task)?;
    let steps = store.steps(task)?;
    Ok(steps.into_iter().flat_map(|step| std::iter::once(step.agent).chain(step.fix_by)).collect())
}

fn print_prompted(context: &Context, prompted: &SentPrompt) -> Outcome {
    let object = text::with_members(json!(prompted), &json!({ "event": "prompted" }));
    let step = &prompted.step;
    let attempt = match step.attempt {
        1 => String::new(),
        attempt => format!(", attempt {attempt} of {}", step.attempts_max),
    };
    let goal = context.out.paint(FAINT, text::one_line(&step.goal));
    let index = step.key.step_index;
    context.out.print_answer(&object, format!("step {index} -> {}{attempt}: {goal}", step.agent))
}

fn done(context: &Context, store: &StepStore, task: &str) -> Outcome {
    let queue = store.queue(task)?;
    let object = text::with_members(json!(queue), &json!({ "event": "done" }));
    let said = format!("task {task}: all {} are done", text::plural(queue.done, "step"));
    context.out.print_answer(&object, said)
}
