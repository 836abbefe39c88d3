use std::time::{Duration, Instant};

use ensemble_app::interrupt::Interrupt;
use ensemble_app::steps::{
    describe_submitted, hand_out_prompt, open_existing_steps, open_step_mail, step_driver,
};
use ensemble_app::wait_line::WaitLine;
use ensemble_core::message::{describe_json_fault, read_foreign_json};
use ensemble_core::proto::lease::LOOK_INTERVAL;
use ensemble_core::watch::Waiter;
use ensemble_team::steps::{
    ClaimOutcome, ClaimRequest, ClaimedStep, Completion, NoStep, StepStore,
};

use super::{wait_for_change, wait_on};
use crate::context::{Context, Failure, Outcome};
use crate::flags::FileContent;

pub(super) fn next(context: &Context, task: Option<String>, wait: Option<Duration>) -> Outcome {
    let agent = context.agent_required()?;
    let store = open_existing_steps(context)?;
    let mut ask = ClaimRequest::of(agent);
    let is_of_one_task = task.is_some();
    if let Some(task) = task {
        ask = ask.in_task(task);
    }
    let interrupt = Interrupt::install()?;
    let deadline = wait.and_then(|wait| Instant::now().checked_add(wait));
    let waiter = Waiter::for_logs(&[context.project()?.state.clone()]);
    let _line = wait.map(|wait| WaitLine::new("a step that is due", Some(wait)));
    loop {
        let version = store.data_version()?;
        let next_in = store.observe()?.next_in.unwrap_or(LOOK_INTERVAL);
        match store.claim_step(&ask)? {
            ClaimOutcome::Handed(step) => return print(context, &store, &step),
            ClaimOutcome::Nothing(nothing) => {
                let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
                // Another task may come.
                let is_over = is_of_one_task && nothing == NoStep::Done;
                match left.filter(|left| !left.is_zero() && !is_over) {
                    Some(left) => {
                        let until = Instant::now() + left.min(next_in).min(LOOK_INTERVAL);
                        wait_for_change(&store, version, until, |patience| {
                            interrupt.may_end_during(|| {
                                wait_on(&store, patience, |longest| waiter.wait(longest));
                            })
                        })?;
                    }
                    None => return Err(Failure::nothing(nothing.to_string())),
                }
            }
        }
    }
}

fn print(context: &Context, store: &StepStore, step: &ClaimedStep) -> Outcome {
    let object = hand_out_prompt(store, step)?;
    context.out.print_text(&object, object["prompt"].as_str().unwrap_or_default())
}

pub(super) fn submit(context: &Context, report: &FileContent, epoch: Option<u64>) -> Outcome {
    let content = report.read()?;
    let value: serde_json::Value = read_foreign_json(&content).map_err(|error| {
        Failure::usage(format!("the report is not JSON: {}", describe_json_fault(&error)))
    })?;
    let completion =
        Completion::from_json(&value).map_err(|error| Failure::usage(error.to_string()))?;
    // A caller that does not name itself reports as the worker that it names; a member is known
    // anyway.
    let by = context.agent()?.unwrap_or_else(|| completion.agent.clone());
    let (store, mail, recorder) =
        (open_existing_steps(context)?, open_step_mail(context)?, context.recorder()?);
    let driver = step_driver(context, &store, &mail, &*recorder)?;
    let submitted = driver.submit(&completion, &by, epoch)?;
    context.out.print_answer(&submitted, describe_submitted(&submitted))
}
