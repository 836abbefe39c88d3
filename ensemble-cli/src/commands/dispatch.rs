mod hold;
mod others;
mod workers;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use ensemble_app::batches::read_instruction;
use ensemble_app::diagnostics::say;
use ensemble_app::queue::ProjectQueue;
use ensemble_core::broker::{Broker, RETURNED_TYPE};
use ensemble_core::env::{Lease, SystemClock};
use ensemble_core::message::{Envelope, Name};
use ensemble_core::spool::State;
use ensemble_core::watch::Waiter;
use ensemble_core::{Error, Result};
use ensemble_project::Project;
use ensemble_reports::contract::{self, Instruction, Reading};
use ensemble_team::admission::NotAdmitted;
use ensemble_team::driver::{
    BatchProgress, Batches, DispatchRun, INSTRUCTION_TYPE, SummaryOutcome, TaskBatch, plan_of,
};

use self::hold::InstructionHold;
use self::others::OtherMail;
use self::workers::DispatchTeam;
use crate::context::{Context, Failure, Outcome};
use crate::printing::print_summary;

const DISPATCH: &str = "dispatch";
const MESSAGES_MAX: usize = 1_000;
const STEP_INTERVAL: Duration = Duration::from_secs(1);
/// How often a mailbox in the directory is polled while there is no instruction.
const IDLE_INTERVAL: Duration = Duration::from_secs(30);

/// Hand the tasks of instructions to ready workers, and report the outcome to the conductor
///
/// Takes instructions (`ensemble agent instruct`) from the mailbox `dispatch`. Each task goes to a worker
/// that is idle and answers a ping, or to the one that it names (`worker: NAME`). It waits for the
/// tasks in its `blocked_by`. At most `worker_count` tasks run at a time. Each gets reminders
/// (the ladder). A failed task is retried as its `retry: {attempts: 3, delay: 30}` says (seconds;
/// one attempt by default). Tasks that wait for one that was not done are not begun. At the end
/// `queue/reports/completion-summary.yaml` has the outcome, once. May be killed and started again at
/// any time: its state is in `.ensemble/dispatch/`.
///
/// Without `--once`, `--batch` and `--file` it reads its other mail, too. A report of a task that
/// failed, and that is of no batch, is passed on to the conductor.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble task dispatch                       # for as long as the team works
  ensemble task dispatch --once                # until no instruction waits
  ensemble task dispatch -f instruction.yaml   # this one, without a message")]
pub(crate) struct Arguments {
    /// End when no instruction waits any more
    #[arg(long)]
    once: bool,
    /// Work on this batch only, and end with it
    #[arg(long, value_name = "ID", conflicts_with = "file")]
    batch: Option<Name>,
    /// Work on the instruction in this file; `-` for stdin
    #[arg(short, long, value_name = "FILE|-", value_hint = clap::ValueHint::FilePath)]
    file: Option<PathBuf>,
}

struct DispatchJob {
    batch: TaskBatch,
    instruction: Instruction,
    hold: InstructionHold,
}

enum BatchTurn {
    /// Some tasks may wait, for these reasons.
    GoesOn(Vec<String>),
    /// The conductor was notified.
    Told(Box<SummaryOutcome>),
    /// Another process has its message.
    Left,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let project = context.project()?;
        let (spool, queue) = (context.spool()?, ProjectQueue::open(context)?);
        let recorder = context.recorder()?;
        let actor = Name::new(DISPATCH).map_err(Error::from)?;
        let durability = project.config.durability.unwrap_or_default();
        let team = DispatchTeam {
            context,
            project,
            spool: &spool,
            queue: &queue,
            recorder: &*recorder,
            ladders: queue.ladder_host(project)?,
            not_ready: Default::default(),
            noted: Default::default(),
        };
        let run = DispatchRun {
            spool: &spool,
            queue: &*queue,
            state_dir: project.state.clone(),
            batches: Batches::new(&project.queue, &project.state, durability),
            ends: project.task_ends(),
            clock: &SystemClock,
            recorder: &*recorder,
            actor: context.sender_named(actor.clone())?,
            hands: &team,
        };
        let home = project.queue.join("mailbox").join(DISPATCH);
        let waiter =
            Waiter::new(&[home.join("new"), home.join("front"), project.queue.join("reports")]);
        let idle = idle_interval(&queue);
        let mut others = OtherMail::new(&*queue, &run.actor);
        if let Some(file) = &self.file {
            let instruction = read_instruction(file)?;
            plan_of(&instruction).map_err(|error| Failure::usage(error.to_string()))?;
            let batch = TaskBatch::of(&instruction)?;
            let job = DispatchJob { batch, instruction, hold: InstructionHold::default() };
            return work_off(context, &run, job, &waiter, None)?;
        }
        let stands = !self.once && self.batch.is_none();
        queue.ensure(&spool, &actor)?;
        announce(project, stands);
        loop {
            if stands {
                others.read();
            }
            match self.next_job(&run, queue.directory().is_none()) {
                Ok(Some(job)) => {
                    let others = stands.then_some(&mut others);
                    let printed = work_off(context, &run, job, &waiter, others)?;
                    if self.batch.is_some() {
                        return printed;
                    }
                    // Tasks that were not done are in the summary; the next batch does not suffer from it.
                    if let Err(failure) = printed {
                        say(&failure.text());
                    }
                }
                Ok(None) if self.once => return Ok(()),
                Ok(None) if self.batch.is_some() => {
                    return Err(Failure::nothing("no such instruction waits for dispatch"));
                }
                Ok(None) => waiter.wait(idle),
                // A pause ends without an event here, and a full disk without any.
                Err(error) if stands && is_passing(&error) => waiter.wait(STEP_INTERVAL),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The next instruction of the mailbox: one that an earlier process of this command held goes first.
    fn next_job(&self, run: &DispatchRun<'_>, is_shared: bool) -> Result<Option<DispatchJob>> {
        let (queue, actor) = (run.queue, &run.actor.name);
        for found in queue.unfinished(actor, MESSAGES_MAX)? {
            if self.batch.as_ref().is_some_and(|batch| batch.as_str() != found.id.as_str()) {
                continue;
            }
            let envelope = match queue.peek(actor, &found.id) {
                Ok(envelope) if envelope.kind.as_str() == INSTRUCTION_TYPE => envelope,
                Ok(_) | Err(_) => continue,
            };
            let is_held = matches!(found.state, State::Acked { .. });
            let lease = match &found.state {
                State::Acked { holder, .. } if holder == actor => found.lease()?,
                State::Queued { .. } => match queue.receive_id(actor, &found.id, actor)? {
                    Some(delivery) => delivery.lease,
                    None => continue,
                },
                // Another agent works on it.
                State::Acked { .. } | State::Settled | State::Dead => continue,
            };
            match read(&envelope) {
                // A process on another host works on it.
                Ok((batch, _)) if is_held && is_shared && !run.is_begun(&batch.id) => {}
                Ok((batch, instruction)) => {
                    return Ok(Some(DispatchJob {
                        batch,
                        instruction,
                        hold: InstructionHold::under(lease),
                    }));
                }
                Err(why) => refuse(run, &envelope, &lease, &why)?,
            }
        }
        Ok(None)
    }
}

fn announce(project: &Project, stands: bool) {
    if stands {
        say(&format!("handing out tasks in {}; Ctrl-C ends it", project.queue.display()));
    }
}

fn idle_interval(queue: &ProjectQueue) -> Duration {
    match queue.directory() {
        Some(_) => IDLE_INTERVAL,
        // Nothing lands here for an instruction on servers.
        None => STEP_INTERVAL,
    }
}

fn read(envelope: &Envelope) -> std::result::Result<(TaskBatch, Instruction), String> {
    match contract::read_as::<Instruction>(&envelope.body, "instruction.yaml".as_ref()) {
        Ok(Reading::Whole(instruction)) => {
            plan_of(&instruction).map_err(|error| error.to_string())?;
            let batch = TaskBatch::of(&instruction).map_err(|error| error.to_string())?;
            Ok((batch, instruction))
        }
        Ok(Reading::Foreign) => Err("it is not an instruction".to_owned()),
        Err(broken) => Err(broken.to_string()),
    }
}

/// Nothing of it was begun: its sender gets it back, and the message is a dead letter with the reason.
fn refuse(run: &DispatchRun<'_>, envelope: &Envelope, lease: &Lease, why: &str) -> Result<()> {
    say(&format!("{}: refused: {why}", envelope.id));
    let notice = Envelope::new(
        run.queue.mailbox_of(&envelope.from),
        format!(
            "dispatch has refused the instruction {}; no task was begun:\n{why}\n",
            envelope.id
        ),
    );
    let kind = Name::new(RETURNED_TYPE).map_err(Error::from)?;
    let id = ensemble_core::message::MessageId::new(format!("{}.refused", envelope.id));
    let notice = notice.with_kind(kind).with_id(id.map_err(Error::from)?);
    match run.queue.publish(&run.actor.sign(notice)) {
        // A sender without a mailbox finds the reason beside the dead letter.
        Ok(_) | Err(Error::NoMailbox { .. }) => {}
        Err(error) => return Err(error),
    }
    run.queue.dead_letter(lease, &format!("refused: {}", ensemble_app::text::one_line(why)))?;
    Ok(())
}

/// Whether it has ended without the program: the team is paused, the disk is full, another process has a lock.
fn is_passing(error: &Error) -> bool {
    error.is_transient() || error.area::<NotAdmitted>().is_some()
}

/// Works on an instruction to the end. The inner result says whether all of it was done.
fn work_off(
    context: &Context,
    run: &DispatchRun<'_>,
    mut job: DispatchJob,
    waiter: &Waiter,
    others: Option<&mut OtherMail<'_>>,
) -> Outcome<Outcome> {
    let Some(told) = work(run, &mut job, waiter, others)? else {
        let text =
            format!("{}: another process has its message, and continues with it", job.batch.id);
        return Ok(Err(Failure::refused(text)));
    };
    if let Some(lease) = job.hold.lease() {
        settle_later(run.queue, lease, waiter)?;
    }
    Ok(print(context, &job, &told))
}

/// Works on a batch until the conductor was notified, and reads the other mail in the meantime. `None` if another
/// process has the batch.
fn work(
    run: &DispatchRun<'_>,
    job: &mut DispatchJob,
    waiter: &Waiter,
    mut others: Option<&mut OtherMail<'_>>,
) -> Outcome<Option<SummaryOutcome>> {
    let _lock = run.lock(&job.batch.id)?;
    if let Some(others) = &mut others {
        others.expect(&job.batch);
    }
    let mut remarks = LastRemarks::default();
    loop {
        let told = match turn(run, job) {
            Ok(BatchTurn::Told(told)) => Some(Some(*told)),
            Ok(BatchTurn::Left) => Some(None),
            Ok(BatchTurn::GoesOn(stuck)) => {
                remarks.say_new(stuck);
                None
            }
            Err(error) if is_passing(&error) => {
                remarks.say_new([error.to_string()]);
                None
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(told) = told {
            if let Some(others) = others {
                others.finish();
            }
            return Ok(told);
        }
        if let Some(others) = &mut others {
            others.read();
        }
        waiter.wait(STEP_INTERVAL);
    }
}

fn turn(run: &DispatchRun<'_>, job: &mut DispatchJob) -> Result<BatchTurn> {
    let progress = run.step(&job.batch, &job.instruction)?;
    settle_reports(run, job)?;
    let stuck = match progress {
        BatchProgress::Told(told) => return Ok(BatchTurn::Told(told)),
        BatchProgress::Open { stuck, .. } => stuck,
    };
    match job.hold.extend_lease(run.queue, &run.actor.name)? {
        true => Ok(BatchTurn::GoesOn(stuck)),
        false => Ok(BatchTurn::Left),
    }
}

/// The reports of the batch that were routed to this mailbox are read: those of this host as files, the others here.
fn settle_reports(run: &DispatchRun<'_>, job: &DispatchJob) -> Result<()> {
    let (batch, actor) = (&job.batch, &run.actor.name);
    for found in run.queue.unfinished(actor, MESSAGES_MAX)? {
        let Ok(envelope) = run.queue.peek(actor, &found.id) else { continue };
        let is_report = envelope.kind.as_str().starts_with("report.");
        let is_ours = envelope.task_id.as_ref().is_some_and(|task| batch.tasks.contains(task));
        if !is_report || !is_ours || !matches!(found.state, State::Queued { .. }) {
            continue;
        }
        run.take_mailed(batch, &job.instruction, &envelope)?;
        if let Some(delivery) = run.queue.receive_id(actor, &found.id, actor)? {
            settle(run.queue, &delivery.lease)?;
        }
    }
    Ok(())
}

fn settle(queue: &dyn Broker, lease: &Lease) -> Result<()> {
    match queue.settle(lease) {
        // An earlier process has settled it, or it was handed out again and that Dispatch will find the batch
        // reported.
        Err(Error::LeaseLost { .. }) => Ok(()),
        settled => settled,
    }
}

fn settle_later(queue: &dyn Broker, lease: &Lease, waiter: &Waiter) -> Outcome {
    loop {
        match settle(queue, lease) {
            Err(error) if error.is_transient() => waiter.wait(STEP_INTERVAL),
            settled => return Ok(settled?),
        }
    }
}

fn print(context: &Context, job: &DispatchJob, told: &SummaryOutcome) -> Outcome {
    let is_new = matches!(told, SummaryOutcome::Now(_));
    print_summary(context, &job.batch, told.summary(), is_new)?;
    context.out.flush()?;
    match told.summary().failed_tasks {
        0 => Ok(()),
        failed => Err(Failure::refused(format!("{failed} of the tasks were not done"))),
    }
}

#[derive(Debug, Default)]
struct LastRemarks(BTreeSet<String>);

impl LastRemarks {
    /// Says those of the failures of an attempt that are new. All others have ended.
    fn say_new(&mut self, failures: impl IntoIterator<Item = String>) {
        let failures: BTreeSet<String> = failures.into_iter().collect();
        failures.difference(&self.0).for_each(|text| say(text));
        self.0 = failures;
    }
}
