//! The mailboxes, wherever they are: in the queue's directory, or on the servers that `transport` in
//! `ensemble.yaml` names. `ensemble_project` opens them; this is what a use case adds.

use std::cell::Cell;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ensemble_core::Error;
use ensemble_core::broker::Broker;
use ensemble_core::document::SharedFiles;
use ensemble_core::driver::ReadyOutcome;
use ensemble_core::event_log::NullRecorder;
use ensemble_core::message::{Attachment, Name};
use ensemble_core::requests::{REQUESTS, RequestStore};
use ensemble_core::spool::Spool;
use ensemble_core::watch::Waiter;
use ensemble_project::hosts::PingCall;
use ensemble_project::ladder_host::ForegroundHost;
use ensemble_project::{OpenQueue, Project, QueueAccess, TeamLink};
use ensemble_team::roster::OutsiderPolicy;

use crate::App;
use crate::diagnostics::say;
use crate::failure::{Failure, Outcome};

/// How often a command that waits for the servers looks without being woken.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a view waits that is drawn again and again, and that reads no key in that time.
const WATCH_PATIENCE: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpeningPurpose {
    /// To act under a name in a team that exists: a mistyped team is an error, and not created.
    Act,
    /// As `Act`; a team that the servers do not know begins.
    Begin,
    /// To look once, under any name.
    Look,
    /// To look again and again: each call has its own, short patience.
    Watch,
}

pub struct ProjectQueue(OpenQueue);

impl Deref for ProjectQueue {
    type Target = dyn Broker;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

pub enum RequestListener<'q> {
    Files(Waiter),
    /// Woken by news of the team, of which it keeps the last number.
    Team(&'q dyn TeamLink, Cell<u64>),
}

impl RequestListener<'_> {
    pub fn wait(&self, longest: Duration) {
        match self {
            Self::Files(waiter) => waiter.wait(longest),
            Self::Team(team, seen) => {
                seen.set(team.wait_for_news(seen.get(), longest.min(LOOK_INTERVAL)));
            }
        }
    }
}

/// One connection of a program that runs for long: its calls do not share one patience.
pub struct LastingConnection {
    pub store: Arc<dyn RequestStore + Send + Sync>,
    pub files: Arc<dyn SharedFiles>,
}

impl ProjectQueue {
    pub fn in_directory(spool: Spool) -> Self {
        Self(OpenQueue::in_directory(spool))
    }

    /// A connection to the servers for a program that runs for long, which follows what the hosts share; `None` for a
    /// directory.
    pub fn lasting(app: &App) -> Outcome<Option<LastingConnection>> {
        let project = app.project()?;
        if !project.is_shared()? {
            return Ok(None);
        }
        let queue = project.open(QueueAccess::new(app.spool_options(project)))?;
        let Some(team) = queue.team_link().map(Arc::clone) else { return Ok(None) };
        team.follow_requests()?;
        Ok(Some(LastingConnection { store: queue.into_store(), files: team }))
    }

    pub fn open(app: &App) -> Outcome<Self> {
        Self::open_for(app, OpeningPurpose::Act)
    }

    pub fn open_for(app: &App, purpose: OpeningPurpose) -> Outcome<Self> {
        let project = app.project()?;
        let queue = project.open(access_for(app, project, purpose))?;
        if let Some(team) = queue.team_link()
            && matches!(purpose, OpeningPurpose::Act | OpeningPurpose::Begin)
        {
            check_name(app, &**team)?;
        }
        Ok(Self(queue))
    }

    /// As `open_for`, to send mail, which can wait on this host: `None` if no server answers, which it says.
    pub fn reach(app: &App, purpose: OpeningPurpose) -> Outcome<Option<Self>> {
        match Self::open_for(app, purpose) {
            Err(failure) if failure.is_server_away() => {
                let why = failure.text();
                say(&format!("{why}: kept in the outbox of this host until it is back"));
                Ok(None)
            }
            opened => opened.map(Some),
        }
    }

    /// The queue of the project around this directory, for one look that is not recorded. Servers have this long for
    /// all that is asked.
    pub fn glimpse(queue: Option<&Path>, patience: Duration) -> ensemble_core::Result<Self> {
        let project = Project::discover(queue)?;
        let mut access = QueueAccess::new(project.spool_options(Arc::new(NullRecorder)));
        (access.patience_max, access.shares_patience) = (Some(patience), true);
        Ok(Self(project.open(access)?))
    }

    /// A mailbox that this host has, on the servers, too: its watcher adds it there within seconds.
    pub fn ensure(&self, spool: &Spool, mailbox: &Name) -> Outcome {
        match self.settings(mailbox) {
            Err(Error::NoMailbox { .. }) if self.directory().is_none() => {
                Ok(self.ensure_mailbox(mailbox, &spool.settings(mailbox)?)?)
            }
            known => Ok(known.map(drop)?),
        }
    }

    pub fn into_store(self) -> Arc<dyn RequestStore + Send + Sync> {
        self.0.into_store()
    }

    /// The files that the hosts share; `None` for a directory.
    pub fn into_shared(self) -> Option<Arc<dyn SharedFiles>> {
        let team: Arc<dyn SharedFiles> = Arc::<dyn TeamLink>::clone(self.0.team_link()?);
        Some(team)
    }

    pub fn directory(&self) -> Option<&Spool> {
        self.0.directory()
    }

    /// What the hosts of a team share; `None` for a queue of one host.
    pub fn team_link(&self) -> Option<&dyn TeamLink> {
        self.0.team_link().map(|team| &**team)
    }

    /// The other host of the team that has an agent.
    pub fn host_of(&self, project: &Project, agent: &Name) -> Outcome<Option<Name>> {
        self.team_link().map_or(Ok(None), |team| other_host(project, team, agent))
    }

    /// Has a worker asked by its own host whether it is ready.
    pub fn ping_at(&self, host: &Name, ping: &PingCall) -> ensemble_core::Result<ReadyOutcome> {
        let not_ready = |why: String| ReadyOutcome::NotReady(ping.unknown(why));
        let Some(team) = self.team_link() else {
            return Ok(not_ready(format!("there is no host {host}")));
        };
        team.follow_requests()?;
        let call = team.call_host(host, &serde_json::to_string(ping).unwrap_or_default())?;
        let (end, mut seen) = (Instant::now() + ping.patience(), 0);
        let answer = loop {
            if let Some(text) = team.answer_to(host, &call)? {
                break serde_json::from_str::<ReadyOutcome>(&text).ok();
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break None;
            }
            seen = team.wait_for_news(seen, left.min(LOOK_INTERVAL));
        };
        team.forget_call(host, &call)?;
        Ok(answer.unwrap_or_else(|| not_ready(format!("host {host} did not answer"))))
    }

    /// To be called before all mailboxes are read: on servers, one subscription follows all of
    /// them.
    pub fn overlook(&self) -> ensemble_core::Result<()> {
        self.team_link().map_or(Ok(()), TeamLink::follow_team)
    }

    /// Runs the ladders of this queue's tasks where no watcher does.
    pub fn ladder_host(&self, project: &Project) -> Outcome<ForegroundHost> {
        Ok(ForegroundHost::new(project, self.0.team_link())?)
    }

    pub fn request_store(&self) -> &dyn RequestStore {
        self.0.request_store()
    }

    /// Starts listening for changes of these requests. Call it before the first look at them.
    pub fn listen<'n>(
        &self,
        ids: impl IntoIterator<Item = &'n Name>,
    ) -> Outcome<RequestListener<'_>> {
        if let Some(team) = self.team_link() {
            team.follow_requests()?;
            return Ok(RequestListener::Team(team, Cell::new(0)));
        }
        let requests = self.directory().map(|spool| spool.root().join(REQUESTS));
        let dirs: Vec<PathBuf> = ids
            .into_iter()
            .flat_map(|id| requests.as_ref().map(|requests| requests.join(id.as_str())))
            .collect();
        Ok(RequestListener::Files(Waiter::new(&dirs)))
    }

    /// How many messages wait; in a directory counted up to `limit`.
    pub fn waiting(&self, mailbox: &Name, limit: u64) -> ensemble_core::Result<u64> {
        match self.directory() {
            Some(spool) => spool.waiting(mailbox, limit),
            None => Ok(self.scan(mailbox)?.queued),
        }
    }

    /// Where attached content is on this host. Content on servers is copied into the queue's directory of this host.
    pub fn attachment_path(&self, app: &App, attachment: &Attachment) -> Outcome<PathBuf> {
        if let Some(spool) = self.directory() {
            return Ok(spool.attachment_path(attachment));
        }
        let spool = app.spool()?;
        let here = spool.attached(attachment);
        // Also an older copy is kept from now on, for this reader.
        let kept = spool.attach(&here.or_else(|_| self.attached(attachment))?)?;
        Ok(spool.attachment_path(&kept))
    }
}

pub fn access_for(app: &App, project: &Project, purpose: OpeningPurpose) -> QueueAccess {
    let mut access = QueueAccess::new(app.spool_options(project));
    access.creates = purpose == OpeningPurpose::Begin;
    // The caller of a verb waits for the verb, not for its calls.
    access.shares_patience = !app.is_lasting && purpose != OpeningPurpose::Watch;
    access.patience_max = (purpose == OpeningPurpose::Watch).then_some(WATCH_PATIENCE);
    access
}

/// Refuses the name of another host's agent to a caller that merely claims it, as the roster does on its own host.
pub fn check_name(app: &App, team: &dyn TeamLink) -> Outcome {
    let project = app.project()?;
    // A name that this host refuses is refused by the verb that acts in it; others only read.
    let Ok(identity) = app.identity() else { return Ok(()) };
    let Some(name) = identity.name.as_ref().filter(|_| !identity.is_member()) else {
        return Ok(());
    };
    if project.config.identity.outsiders.unwrap_or_default() == OutsiderPolicy::Allow {
        return Ok(());
    }
    match other_host(project, team, name)? {
        None => Ok(()),
        Some(host) => {
            let text =
                format!("`{name}` is an agent of the team on host {host}, and acts there alone");
            Err(Failure::refused(text).with_hint("use your own name, such as `--as operator`"))
        }
    }
}

fn other_host(project: &Project, team: &dyn TeamLink, agent: &Name) -> Outcome<Option<Name>> {
    let here = project.host()?;
    Ok(team.host_of_member(agent)?.filter(|host| *host != here))
}
