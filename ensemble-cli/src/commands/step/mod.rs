use std::path::PathBuf;
use std::time::{Duration, Instant};

use ensemble_core::Result;
use ensemble_core::watch::POLL_WITH_EVENTS;
use ensemble_team::steps::{StepKey, StepStore};

use crate::args;
use crate::context::{Context, Outcome};
use crate::flags::FileContent;

mod add;
mod look;
mod next;
mod nudges;
mod orders;
mod run;

/// Hand out the steps of a task in order, and report them
///
/// All steps of a task are stored before the first is worked on. Each is handed to its agent with a
/// focused prompt; the agent reports with the tool `submit_step_completion` (`ensemble mcp`) or
/// with `ensemble step submit`. A failed step comes again with its error; with `fix_by`, that agent
/// gets a step to fix it first. A blocked step stops the queue until a person intervenes.
/// The tables are in `.ensemble/steps.db`, for `sqlite3`, or on the PostgreSQL server that `steps` in ensemble.yaml
/// names.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Store all steps of a task
    ///
    /// The same plan again changes nothing; another plan of the same task is refused.
    #[command(after_help = "Example: ensemble step add -f plan.yaml
with in plan.yaml:
  task_id: 0-4-1
  orchestrator: conductor            # its mailbox is notified when a person must intervene
  policy: tdd                        # red, green, refactor, review in each cycle
  resources: [{path: docs/api.md}]   # shown with each step
  steps:
    - {agent: Tara, phase: red, goal: Write a failing test for login, files: [tests/login.rs]}
    - {agent: Devon, phase: green, goal: Make it pass, files: [src/login.rs],
       context: [tests/login.rs]}
    - {agent: Tara, phase: review, goal: Review the login, context: [src/login.rs],
       fix_by: Devon}               # if it fails: a fix step for Devon, then the review again
    - {agent: Devon, phase: red, cycle: logout, goal: Write a failing test for logout,
       plan: true}                  # only with an approved plan")]
    Add {
        /// The plan, in YAML or JSON; `-` for stdin
        #[arg(short, long, value_name = "FILE|-", value_hint = clap::ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Take your next step and print its prompt; exit code 3 if there is none now
    ///
    /// An agent that holds a step already gets the same one again. It is yours until its lease expires;
    /// `ensemble step heartbeat` extends the lease.
    #[command(after_help = "Examples:
  ensemble step next --as Devon
  ensemble step next --as Devon --task 0-4-1 --wait 10m --json | jq -r .prompt")]
    Next {
        /// Only of this task
        #[arg(long, value_name = "ID")]
        task: Option<String>,
        /// Wait up to DURATION for a step; with `--task`, only while that task has some left
        #[arg(long, value_name = "DURATION", value_parser = args::duration)]
        wait: Option<Duration>,
    },
    /// Report a step, with the JSON of the tool submit_step_completion
    ///
    /// Refused if the step is not yours, was handed out again since, or is done. Also refused if
    /// `failure` comes without a reason, or if there is a member that the tool does not have. The same
    /// report again changes nothing.
    #[command(after_help = "Example:
  echo '{\"task_id\": \"0-4-1\", \"step_index\": 1, \"agent\": \"Tara\", \"status\": \"success\",
         \"summary\": \"one test, and it fails\"}' | ensemble step submit -f -")]
    Submit {
        #[command(flatten)]
        report: FileContent,
        /// Refuse unless this is still the hand-out that the prompt was about
        #[arg(long, value_name = "N")]
        epoch: Option<u64>,
    },
    /// Show that you are still working on a step, which renews its lease
    Heartbeat {
        #[command(flatten)]
        which: StepChoice,
        /// Refuse unless this is still the hand-out that the prompt was about
        #[arg(long, value_name = "N")]
        epoch: Option<u64>,
    },
    /// Show the queues, or the steps of one
    #[command(after_help = "Examples:
  ensemble step list
  ensemble step list 0-4-1 --json | jq -r 'select(.status == \"BLOCKED\") | .blockers[]'")]
    List {
        /// The task; without one, a line for each queue
        #[arg(value_name = "TASK")]
        task: Option<String>,
    },
    /// Show a step: its goal, its status, and each attempt
    Show(StepChoice),
    /// Start a failed step again, or take a running one away from its worker
    ///
    /// Attempts count from 1 again. A report of the earlier worker is refused from now on.
    #[command(after_help = "Example: ensemble step retry 0-4-1 2 --note 'the fixture is repaired'")]
    Retry(orders::StepOrder),
    /// Replace a step with smaller ones, at the head of the queue
    #[command(after_help = "Example: ensemble step split 0-4-1 2 -f parts.yaml
with in parts.yaml:
  steps:
    - {agent: Devon, goal: Parse the header, files: [src/header.rs]}
    - {agent: Devon, goal: Parse the body, files: [src/body.rs]}")]
    Split {
        #[command(flatten)]
        which: StepChoice,
        /// The parts, as steps in a plan; `-` for stdin
        #[arg(short, long, value_name = "FILE|-", value_hint = clap::ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Skip a step, and continue without it
    Skip(orders::StepOrder),
    /// Let a blocked step continue
    #[command(
        after_help = "Example: ensemble step unblock 0-4-1 2 --note 'docs/api.md exists now'"
    )]
    Unblock(orders::StepOrder),
    Run(run::RunSteps),
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        match self.verb {
            Verb::Add { file } => add::add(context, &file),
            Verb::Next { task, wait } => next::next(context, task, wait),
            Verb::Submit { report, epoch } => next::submit(context, &report, epoch),
            Verb::Heartbeat { which, epoch } => orders::beat(context, &which, epoch),
            Verb::List { task } => look::list(context, task.as_deref()),
            Verb::Show(which) => look::show(context, &which),
            Verb::Retry(order) => order.run(context, StepStore::retry),
            Verb::Split { which, file } => orders::split(context, &which, &file),
            Verb::Skip(order) => order.run(context, StepStore::skip),
            Verb::Unblock(order) => order.run(context, StepStore::unblock),
            Verb::Run(run) => run.run(context),
        }
    }
}

// The step that a command names.
#[derive(Debug, clap::Args)]
struct StepChoice {
    /// The task, like 0-4-1
    #[arg(value_name = "TASK")]
    task: String,
    /// The step's number in it
    #[arg(value_name = "STEP")]
    step: u32,
}

impl StepChoice {
    fn key(&self) -> StepKey {
        StepKey::new(self.task.clone(), self.step)
    }
}

/// How soon to check again after an event.
const PAUSE: Duration = Duration::from_millis(2);

/// Waits for a change: on a server for its notification, otherwise as `wait` does. An error ends the wait early; the
/// caller's next query will report it.
fn wait_on(store: &StepStore, longest: Duration, wait: impl Fn(Duration)) {
    if let Ok(None) = store.wait_for_news(longest) {
        wait(longest);
    }
}

/// Waits until another process has changed the database since `version`, or until `until`. `wait` sleeps for at most
/// the given time and returns early on an event in the state directory, which contains the database's log. The event
/// comes when a change is written, but the change is visible only when it is committed, which at `power` takes a sync
/// of the log.
fn wait_for_change(
    store: &StepStore,
    version: i64,
    until: Instant,
    wait: impl Fn(Duration) -> Result<()>,
) -> Outcome {
    let mut pause = Duration::MAX;
    while store.data_version()? == version {
        let began = Instant::now();
        let patience = until.saturating_duration_since(began).min(pause).min(POLL_WITH_EVENTS);
        if patience.is_zero() {
            break;
        }
        wait(patience)?;
        // A wait may also return early without an event, which only costs a few extra checks.
        let has_rung = began.elapsed() < patience;
        pause = if has_rung { PAUSE } else { pause.saturating_mul(2) };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use ensemble_team::steps::{STEPS_FILE, StepOptions, StepPlan};

    use super::*;

    #[test]
    fn what_has_rung_and_cannot_be_seen_yet_is_looked_for_soon_and_ever_later() {
        let home = tempfile::tempdir().unwrap();
        let open = || {
            let options = StepOptions::new(home.path());
            StepStore::open(&home.path().join(STEPS_FILE), options).unwrap()
        };
        let (ours, theirs) = (open(), open());
        let plan = "{task_id: 0-4-1, orchestrator: orion, steps: [{agent: Tara, goal: one}]}";
        let plan = StepPlan::parse(plan, "plan.yaml".as_ref()).unwrap();
        // It rings once, and is committed when it has been looked for twice.
        let (bell, rings) = std::sync::mpsc::channel();
        bell.send(()).unwrap();
        let waits = RefCell::new(Vec::new());
        let wait = |patience| {
            waits.borrow_mut().push(patience);
            if waits.borrow().len() == 3 {
                theirs.add(&plan).unwrap();
            }
            let _ = rings.recv_timeout(patience);
            Ok(())
        };
        let until = Instant::now() + Duration::from_secs(3600);
        assert!(wait_for_change(&ours, ours.data_version().unwrap(), until, wait).is_ok());
        assert_eq!(waits.into_inner(), [POLL_WITH_EVENTS, PAUSE, 2 * PAUSE]);
    }
}
