//! The mailboxes, wherever they are: in the queue's directory, or on the servers that `transport` in
//! `ensemble.yaml` names.

#[cfg(feature = "nats")]
use std::cell::Cell;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
#[cfg(feature = "nats")]
use std::time::Instant;

use ensemble_core::Error;
use ensemble_core::broker::Broker;
use ensemble_core::document::SharedFiles;
use ensemble_core::driver::Readied;
use ensemble_core::event_log::NullRecorder;
use ensemble_core::message::{Attachment, Name};
use ensemble_core::requests::{REQUESTS, RequestStore};
use ensemble_core::spool::Spool;
use ensemble_core::watch::Waiter;
#[cfg(feature = "nats")]
use ensemble_nats::NatsTransport;
#[cfg(feature = "nats")]
use ensemble_project::hosts::PingAnswer;
use ensemble_project::hosts::PingCall;
use ensemble_project::project::Project;
#[cfg(feature = "nats")]
use ensemble_team::roster::Outsiders;
use ensemble_watch::ForegroundHost;

use crate::App;
#[cfg(feature = "nats")]
use crate::failure::Failure;
use crate::failure::Outcome;

/// How often a command that waits for the servers looks without being woken.
#[cfg(feature = "nats")]
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Why a queue is opened.
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

/// An open queue of either kind.
pub enum Queue {
    /// In the directory of this host.
    Directory(Spool),
    /// On servers.
    #[cfg(feature = "nats")]
    Servers(Box<NatsTransport>),
}

impl Deref for Queue {
    type Target = dyn Broker;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Directory(spool) => spool,
            #[cfg(feature = "nats")]
            Self::Servers(servers) => &**servers,
        }
    }
}

/// Wakes a command that waits for a change of requests.
pub enum Listener<'q> {
    /// Woken by the file system.
    Directory(Waiter),
    /// Woken by news of the servers.
    #[cfg(feature = "nats")]
    Servers(&'q NatsTransport, Cell<u64>),
    #[cfg(not(feature = "nats"))]
    #[expect(dead_code, reason = "it carries the lifetime only")]
    Nowhere(std::marker::PhantomData<&'q Queue>),
}

impl Listener<'_> {
    /// Until something has happened, or so long.
    pub fn wait(&self, longest: Duration) {
        match self {
            Self::Directory(waiter) => waiter.wait(longest),
            #[cfg(feature = "nats")]
            Self::Servers(servers, seen) => {
                seen.set(servers.wait_for_news(seen.get(), longest.min(LOOK_INTERVAL)));
            }
            #[cfg(not(feature = "nats"))]
            Self::Nowhere(_) => {}
        }
    }
}

/// One connection of a program that runs for long: its calls do not share one patience.
pub struct Lasting {
    /// Requests and mailboxes.
    pub store: Arc<dyn RequestStore + Send + Sync>,
    /// The files that the hosts share.
    pub files: Arc<dyn SharedFiles>,
}

impl Queue {
    /// A connection to the servers for a program that runs for long, which follows what the hosts share; `None` for a
    /// directory.
    #[cfg(feature = "nats")]
    pub fn lasting(app: &App) -> Outcome<Option<Lasting>> {
        let Some(mut options) = app.nats_options()? else { return Ok(None) };
        options.shares_patience = false;
        let servers = Arc::new(NatsTransport::connect(&options)?);
        servers.follow_requests()?;
        Ok(Some(Lasting { store: Arc::<NatsTransport>::clone(&servers), files: servers }))
    }

    #[cfg(not(feature = "nats"))]
    pub fn lasting(_app: &App) -> Outcome<Option<Lasting>> {
        Ok(None)
    }

    /// The queue of this project, in which the caller acts.
    pub fn open(app: &App) -> Outcome<Self> {
        Self::open_for(app, OpeningPurpose::Act)
    }

    /// The queue of this project.
    pub fn open_for(app: &App, purpose: OpeningPurpose) -> Outcome<Self> {
        // A directory is opened in one way.
        let _ = purpose;
        #[cfg(feature = "nats")]
        if let Some(mut options) = app.nats_options()? {
            /// How long a view waits that is drawn again and again, and that reads no key in that time.
            const WATCH_PATIENCE: Duration = Duration::from_secs(2);
            options.creates = purpose == OpeningPurpose::Begin;
            if purpose == OpeningPurpose::Watch {
                options = options.with_patience(WATCH_PATIENCE);
                options.shares_patience = false;
            }
            let servers = NatsTransport::connect(&options)?;
            if matches!(purpose, OpeningPurpose::Act | OpeningPurpose::Begin) {
                check_name(app, &servers)?;
            }
            return Ok(Self::Servers(Box::new(servers)));
        }
        Ok(Self::Directory(app.spool()?))
    }

    /// The queue of the project around this directory, for one look that is not recorded. Servers have this long for
    /// all that is asked.
    #[cfg_attr(
        not(feature = "nats"),
        allow(unused_variables, clippy::allow_attributes, reason = "a directory answers at once")
    )]
    pub fn glimpse(queue: Option<&Path>, patience: Duration) -> ensemble_core::Result<Self> {
        let project = Project::discover(queue)?;
        #[cfg(feature = "nats")]
        if let Some(options) = project.nats_options()? {
            let options = options.without_creating().with_patience(patience).with_shared_patience();
            return Ok(Self::Servers(Box::new(NatsTransport::connect(&options)?)));
        }
        Ok(Self::Directory(project.open_spool(Arc::new(NullRecorder))?))
    }

    /// A mailbox that this host has, on the servers, too: its watcher adds it there within seconds.
    pub fn ensure(&self, spool: &Spool, mailbox: &Name) -> Outcome {
        match self.settings(mailbox) {
            Err(Error::NoMailbox { .. }) if self.directory().is_none() => {
                match self.add_mailbox(mailbox, &spool.settings(mailbox)?) {
                    Ok(()) | Err(Error::MailboxExists { .. }) => Ok(()),
                    Err(error) => Err(error.into()),
                }
            }
            known => Ok(known.map(drop)?),
        }
    }

    /// The requests and mailboxes, for a driver that keeps them.
    pub fn into_store(self) -> Arc<dyn RequestStore + Send + Sync> {
        match self {
            Self::Directory(spool) => Arc::new(spool),
            #[cfg(feature = "nats")]
            Self::Servers(servers) => Arc::new(*servers),
        }
    }

    /// The files that the hosts share; `None` for a directory.
    pub fn into_shared(self) -> Option<Arc<dyn SharedFiles>> {
        match self {
            Self::Directory(_) => None,
            #[cfg(feature = "nats")]
            Self::Servers(servers) => Some(Arc::new(*servers)),
        }
    }

    /// The directory, if it is one.
    pub const fn directory(&self) -> Option<&Spool> {
        match self {
            Self::Directory(spool) => Some(spool),
            #[cfg(feature = "nats")]
            Self::Servers(_) => None,
        }
    }

    /// The other host of the team that has an agent.
    #[cfg_attr(
        not(feature = "nats"),
        allow(unused_variables, clippy::allow_attributes, reason = "a directory is of one host")
    )]
    pub fn host_of(&self, project: &Project, agent: &Name) -> Outcome<Option<Name>> {
        match self {
            Self::Directory(_) => Ok(None),
            #[cfg(feature = "nats")]
            Self::Servers(servers) => other_host(project, servers, agent),
        }
    }

    /// Has a worker asked by its own host whether it is ready.
    pub fn ping_at(&self, host: &Name, ping: &PingCall) -> ensemble_core::Result<Readied> {
        match self {
            Self::Directory(_) => {
                Ok(Readied::NotReady(ping.unknown(format!("there is no host {host}"))))
            }
            #[cfg(feature = "nats")]
            Self::Servers(servers) => ping_at(servers, host, ping),
        }
    }

    /// To be called before a look at all mailboxes: on servers, one subscription follows all of
    /// them.
    pub fn overlook(&self) -> ensemble_core::Result<()> {
        match self {
            Self::Directory(_) => Ok(()),
            #[cfg(feature = "nats")]
            Self::Servers(servers) => servers.follow_team(),
        }
    }

    /// Runs the ladders of this queue's tasks where no watcher does.
    pub fn ladder_host(&self, project: &Project) -> Outcome<ForegroundHost<'_>> {
        Ok(match self {
            Self::Directory(_) => ForegroundHost::new(project)?,
            #[cfg(feature = "nats")]
            Self::Servers(servers) => ForegroundHost::over_servers(project, servers)?,
        })
    }

    /// The store of requests.
    pub fn request_store(&self) -> &dyn RequestStore {
        match self {
            Self::Directory(spool) => spool,
            #[cfg(feature = "nats")]
            Self::Servers(servers) => &**servers,
        }
    }

    /// Starts listening for changes of these requests. Call it before the first look at them.
    pub fn listen<'n>(&self, ids: impl IntoIterator<Item = &'n Name>) -> Outcome<Listener<'_>> {
        match self {
            Self::Directory(spool) => {
                let requests = spool.root().join(REQUESTS);
                let dirs: Vec<PathBuf> =
                    ids.into_iter().map(|id| requests.join(id.as_str())).collect();
                Ok(Listener::Directory(Waiter::new(&dirs)))
            }
            #[cfg(feature = "nats")]
            Self::Servers(servers) => {
                servers.follow_requests()?;
                Ok(Listener::Servers(servers, Cell::new(0)))
            }
        }
    }

    /// How many messages wait; in a directory counted up to `limit`.
    pub fn waiting(&self, mailbox: &Name, limit: u64) -> ensemble_core::Result<u64> {
        match self.directory() {
            Some(spool) => spool.waiting(mailbox, limit),
            None => Ok(self.scan(mailbox)?.queued),
        }
    }

    /// Where attached content lies on this host. What is on servers is copied into the queue's directory of this host.
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

/// Refuses the name of another host's agent to a caller that merely claims it, as the roster does on its own host.
#[cfg(feature = "nats")]
pub fn check_name(app: &App, servers: &NatsTransport) -> Outcome {
    let project = app.project()?;
    // A name that this host refuses is refused by the verb that acts in it; others only read.
    let Ok(identity) = app.identity() else { return Ok(()) };
    let Some(name) = identity.name.as_ref().filter(|_| !identity.is_member()) else {
        return Ok(());
    };
    if project.config.identity.outsiders.unwrap_or_default() == Outsiders::Allow {
        return Ok(());
    }
    match other_host(project, servers, name)? {
        None => Ok(()),
        Some(host) => {
            let text =
                format!("`{name}` is an agent of the team on host {host}, and acts there alone");
            Err(Failure::refused(text).with_hint("use a name of your own, such as `--as operator`"))
        }
    }
}

/// The other host that has an agent.
#[cfg(feature = "nats")]
fn other_host(project: &Project, servers: &NatsTransport, agent: &Name) -> Outcome<Option<Name>> {
    let here = project.host()?;
    Ok(servers.host_of_member(agent)?.filter(|host| *host != here))
}

#[cfg(feature = "nats")]
fn ping_at(
    servers: &NatsTransport,
    host: &Name,
    ping: &PingCall,
) -> ensemble_core::Result<Readied> {
    servers.follow_requests()?;
    let call = servers.call_host(host, &serde_json::to_string(ping).unwrap_or_default())?;
    let (end, mut seen) = (Instant::now() + ping.patience(), 0);
    let answer = loop {
        if let Some(text) = servers.answer(host, &call)? {
            break serde_json::from_str::<PingAnswer>(&text).ok();
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break None;
        }
        seen = servers.wait_for_news(seen, left.min(LOOK_INTERVAL));
    };
    servers.forget_call(host, &call)?;
    let silent = || PingAnswer::NotReady(ping.unknown(format!("host {host} did not answer")));
    Ok(answer.unwrap_or_else(silent).readied())
}
