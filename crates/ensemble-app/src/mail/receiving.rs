//! Receiving, as `ensemble recv`, the tool `recv` and a call of the API do it: waiting for a message, and why there is
//! none.

use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use ensemble_core::Result;
use ensemble_core::env::{Delivery, SystemClock};
use ensemble_core::event_log::NullRecorder;
use ensemble_core::leases::MailboxLeases;
use ensemble_core::message::Name;
use ensemble_core::spool::{MailWait, Spool};
use ensemble_project::Project;
use ensemble_team::admission::{NotAdmitted, TaskAct};
use ensemble_team::budget::{BudgetFile, BudgetScope};

use crate::App;
use crate::failure::{Failure, Outcome, obstacle_hint, plan_hint};
use crate::interrupt::{Interrupt, cancel_token};
use crate::queue::ProjectQueue;
use crate::wait_line::WaitLine;

/// How often servers are asked although no news came.
const SERVERS_LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// How many waiting messages are read to explain why none is delivered.
const LOOKED_AT_MAX: usize = 100;

/// What keeps an agent from what waits in a mailbox. It is empty if nothing waits.
#[derive(Debug, Default)]
pub struct ReceiveObstacles {
    /// A sentence for each, without a full stop.
    pub reasons: Vec<String>,
    /// The command that takes the first of them out of the way.
    pub hint: Option<String>,
}

impl ReceiveObstacles {
    /// What keeps `agent` from beginning any work, or from the gated tasks of this mailbox.
    pub fn find(
        project: &Project,
        queue: &ProjectQueue,
        mailbox: &Name,
        agent: &Name,
    ) -> Outcome<Self> {
        let gates = queue.request_store().gated(mailbox, agent)?;
        let shared = queue.request_store().shared_files();
        let circumstances = project.admissions().whatever_the_task(agent, shared)?;
        let obstacle = match circumstances.obstacle(TaskAct::TakeUp) {
            None => over_budget(project, queue, mailbox)?,
            obstacle => obstacle,
        };
        let gated =
            gates.iter().map(|gate| format!("task {} is gated: {}", gate.task_id, gate.advice()));
        let reasons = obstacle.iter().map(ToString::to_string).chain(gated).collect();
        let hint = obstacle.as_ref().and_then(obstacle_hint);
        Ok(Self { reasons, hint: hint.or_else(|| gates.iter().find_map(plan_hint)) })
    }
}

/// Why there is nothing: perhaps something waits, but not for this agent yet.
pub fn explain_nothing(
    app: &App,
    queue: &ProjectQueue,
    (mailbox, agent): (&Name, &Name),
) -> Outcome<Failure> {
    let ReceiveObstacles { reasons, hint } =
        ReceiveObstacles::find(app.project()?, queue, mailbox, agent)?;
    let nothing = format!("nothing waits in mailbox `{mailbox}`");
    let failure = Failure::nothing(match reasons.as_slice() {
        [] => nothing,
        reasons => format!("{nothing} that {agent} may take: {}", reasons.join("; ")),
    });
    Ok(match hint {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    })
}

fn over_budget(
    project: &Project,
    queue: &ProjectQueue,
    mailbox: &Name,
) -> Outcome<Option<NotAdmitted>> {
    let parked = BudgetFile::open(&project.state).stands_in_the_way()?;
    if parked.is_empty() {
        return Ok(None);
    }
    for found in queue.unfinished(mailbox, LOOKED_AT_MAX)? {
        let task = queue.peek(mailbox, &found.id).ok().and_then(|envelope| envelope.task_id);
        let Some(scope) = task.map(BudgetScope::Task) else { continue };
        if let Some(parked) = parked.iter().find(|parked| parked.scope == scope) {
            return Ok(Some(NotAdmitted::Budget(Box::new(parked.clone()))));
        }
    }
    Ok(None)
}

/// A wait for mail: receive, sleep, receive again. During it leases of dead holders end, wherever the mailbox is.
pub struct AwaitedMail<'q> {
    queue: &'q ProjectQueue,
    mailbox: &'q Name,
    agent: &'q Name,
    medium: WaitMedium<'q>,
}

enum WaitMedium<'q> {
    Files(MailWait<&'q Spool>),
    /// Woken by news of the team; here are the leases that this process observes.
    Team(Box<MailboxLeases>),
}

impl<'q> AwaitedMail<'q> {
    pub fn begin(
        project: &Project,
        queue: &'q ProjectQueue,
        mailbox: &'q Name,
        agent: &'q Name,
    ) -> Self {
        let medium = match queue.directory() {
            Some(spool) => WaitMedium::Files(spool.wait_for_mail(mailbox, agent)),
            None => WaitMedium::Team(Box::new(observer(&project.state, mailbox, agent))),
        };
        Self { queue, mailbox, agent, medium }
    }

    pub fn receive(&mut self) -> Result<Option<Delivery>> {
        match &mut self.medium {
            WaitMedium::Files(mail) => mail.receive(),
            WaitMedium::Team(leases) => {
                let mailboxes = std::slice::from_ref(self.mailbox);
                leases.scan_mailboxes(&SystemClock, &**self.queue, mailboxes, &NullRecorder)?;
                self.queue.receive(self.mailbox, self.agent)
            }
        }
    }

    /// Sleeps until there may be mail, at most for this time; less if the call of this thread is cancelled.
    pub fn sleep(&mut self, longest: Duration) -> Result<()> {
        match &mut self.medium {
            WaitMedium::Files(mail) => {
                let cancel = cancel_token();
                mail.sleep_beside(longest, cancel.as_ref().map(|token| token.as_fd()))
            }
            WaitMedium::Team(_) => match self.queue.team_link() {
                Some(team) => {
                    team.wait_for_mail(self.mailbox, longest.min(SERVERS_LOOK_INTERVAL)).map(drop)
                }
                None => Ok(()),
            },
        }
    }

    /// Receives and sleeps in turn, up to `patience`. A signal ends this run at once while it sleeps.
    pub fn receive_within(
        mut self,
        patience: Duration,
        interrupt: &Interrupt,
    ) -> Outcome<Option<Delivery>> {
        let deadline = Instant::now().checked_add(patience);
        let _line = WaitLine::new(format!("mail in `{}`", self.mailbox), Some(patience));
        loop {
            let delivery = self.receive()?;
            let left =
                deadline.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
            if delivery.is_some() || left.is_zero() {
                return Ok(delivery);
            }
            let mut slept = Ok(());
            interrupt.may_end_during(|| slept = self.sleep(left))?;
            slept?;
        }
    }
}

/// The observer of a mailbox on servers. The next wait for it continues with what was seen.
fn observer(state: &Path, mailbox: &Name, agent: &Name) -> MailboxLeases {
    let directory = state.join("servers/leases");
    // Without it nothing is remembered, which only lengthens leases.
    let _ = std::fs::create_dir_all(&directory);
    let file = directory.join(format!("observed-{mailbox}.json"));
    MailboxLeases::remembered(agent.as_str(), &SystemClock, &file)
}
