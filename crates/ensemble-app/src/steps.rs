//! The step queues of the project, and what a worker gets to read of a step.

use std::time::Duration;

use ensemble_core::Error;
use ensemble_core::event_log::Recorder;
use ensemble_core::message::Name;
use ensemble_team::driver::StepDriver;
use ensemble_team::steps::{ClaimedStep, StepOptions, StepStore, SubmittedStep};
use serde_json::{Value, json};

use crate::App;
use crate::failure::{Failure, Outcome};
use crate::queue::ProjectQueue;

/// The sender of prompts if the command has no agent name.
const ACTOR: &str = "steps";
/// How long a call that does not act on steps waits for them.
const SHORT_PATIENCE: Duration = Duration::from_secs(1);

pub fn open_steps(app: &App) -> Outcome<StepStore> {
    let project = app.project()?;
    project.ensure_state()?;
    let options = project.step_options(app.recorder()?);
    Ok(project.open_steps(options)?)
}

/// The mailboxes of those who work on steps: the team's mailboxes if all hosts share the queues, otherwise those in
/// the directory.
pub fn open_step_mail(app: &App) -> Outcome<ProjectQueue> {
    match app.project()?.has_shared_steps() {
        true => ProjectQueue::open(app),
        false => Ok(ProjectQueue::in_directory(app.spool()?)),
    }
}

/// As [`open_steps`], if a step was ever added.
pub fn open_existing_steps(app: &App) -> Outcome<StepStore> {
    match app.project()?.has_steps() {
        true => open_steps(app),
        // Outside of a project, this says so.
        false => app.spool().and(Err(Failure::nothing("there are no steps")
            .with_hint("`ensemble step add -f plan.yaml` adds some"))),
    }
}

/// Refuses to end by hand what only the submission of a step ends (seed 003): the message with its prompt, or a report
/// of its task. Steps that cannot be read soon refuse nothing: reports do not depend on their server.
pub fn refuse_open_step(
    app: &App,
    task: &str,
    is_it: impl Fn(&ClaimedStep, Option<&str>) -> bool,
) -> Outcome {
    let project = app.project()?;
    if !project.has_steps() {
        return Ok(());
    }
    let options = StepOptions { patience: SHORT_PATIENCE, ..project.step_options(app.recorder()?) };
    let held = project.open_steps(options).and_then(|store| store.handed(task)).unwrap_or_default();
    match held.iter().find(|(step, message)| is_it(step, message.as_deref())) {
        None => Ok(()),
        Some((step, _)) => Err(Failure::refused(format!("{} is not submitted", step.key))
            .with_hint(format!(
                "`ensemble step submit --epoch {} -` ends it, as its prompt says",
                step.epoch
            ))),
    }
}

pub fn step_driver<'a>(
    app: &App,
    store: &'a StepStore,
    mail: &'a ProjectQueue,
    recorder: &'a dyn Recorder,
) -> Outcome<StepDriver<'a>> {
    let actor = match app.agent()? {
        Some(_) => app.sender()?,
        None => app.sender_named(Name::new(ACTOR).map_err(Error::from)?)?,
    };
    Ok(StepDriver { store, mail: &**mail, recorder, actor })
}

pub fn hand_out_prompt(store: &StepStore, step: &ClaimedStep) -> ensemble_core::Result<Value> {
    let prompt = store.prompt(step)?;
    store.note_prompt(step, None, &prompt)?;
    let mut object = serde_json::to_value(step).unwrap_or_default();
    object["prompt"] = json!(prompt.text);
    object["prompt_sha256"] = json!(prompt.sha256);
    object["files"] = json!(prompt.shown);
    Ok(object)
}

pub fn describe_submitted(submitted: &SubmittedStep) -> String {
    let SubmittedStep { key, status, .. } = submitted;
    let follows = match submitted {
        SubmittedStep { already_submitted: true, .. } => {
            "it had been submitted before, nothing changed".to_owned()
        }
        SubmittedStep { queue_done: true, .. } => "that was the last step".to_owned(),
        SubmittedStep {
            next_attempt: Some(attempt),
            fix_step: Some(fix),
            fix_by: Some(by),
            ..
        } => {
            format!("{by} fixes it in step {fix}, then it comes again, as attempt {attempt}")
        }
        SubmittedStep { next_attempt: Some(attempt), .. } => {
            format!("it will be handed out again, as attempt {attempt}, with your error")
        }
        SubmittedStep { paused: true, .. } => {
            "a person has to intervene; wait for your next step".to_owned()
        }
        _ => "the queue continues".to_owned(),
    };
    format!("{key} is {status}: {follows}")
}
