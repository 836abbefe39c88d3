//! The ladders of all tasks, on their own thread: looking at a pane may take seconds.
//!
//! ```text
//! the loop   -- a mailbox changed, look at all -->  this thread   runs ensemble_core::driver::Ladders
//! the loop   <-- type a line, the pace of a mailbox --            looks at panes, presses keys
//! ```
//!
//! The notifier types the lines of ladders, so that a pane has one typist and one pace. *A crash* loses
//! nothing: the next watcher continues with the files. *Silence* of tmux holds up the other ladders of this
//! project, for the seconds that an exchange is given; it holds up no nudge.
//!
//! For mailboxes on servers the thread is started by the one that follows the servers (`remote`). It claims a mailbox
//! ([`LadderClaim`]) before it runs its ladders, since several hosts see it. While the servers are away, ladders pause.
//!
//! # Limits
//!
//! One watcher has one such thread.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use ensemble_core::Result;
use ensemble_core::broker::Broker;
use ensemble_core::driver::{LadderHost, LadderPrompt, LadderStore, Ladders, MailboxReader};
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::message::{MessageId, Name};
use ensemble_core::spool::Spool;
use ensemble_project::ladder_host::{reader_of, readers_of};
use ensemble_project::panes::{self, PaneEntry};
use ensemble_project::status::ACTOR;
use ensemble_project::{LadderClaim, Project};
use ensemble_team::roster::Member;
use ensemble_tmux::provider::Profiles;

use crate::context::WatchContext;
use crate::wakes::{LoopWake, LoopWaker};

/// The least time between two looks at one mailbox, however much happens there.
const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(20);
/// A look may take this part of the time, at most: 1 of this many.
const LOOK_SHARE: u32 = 10;
/// For how long what was read of the team counts.
const TEAM_AGE_MAX: Duration = Duration::from_secs(2);
const WAITING_DIRECTORIES: [&str; 2] = ["new", "front"];

/// The mailboxes of a team, of which a host claims one before it runs its ladders.
pub(crate) type TeamMailboxes = (Arc<dyn Broker>, Arc<dyn LadderClaim>);

enum LookReason {
    /// Something landed in a mailbox, or left it. With messages that are not tasks.
    Changed(Name, Vec<MessageId>),
    All,
}

pub(crate) struct LadderThread {
    reasons: Option<Sender<LookReason>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for LadderThread {
    fn drop(&mut self) {
        self.reasons = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl LadderThread {
    /// Starts it. It looks at all mailboxes at once.
    pub(crate) fn start(
        context: &WatchContext,
        team: Option<TeamMailboxes>,
        waker: LoopWaker,
    ) -> Result<Self> {
        let WatchContext { project, spool, .. } = context;
        let (queue, claims) = team.unzip();
        let host = ProjectLadderHost {
            claims: claims.clone(),
            project: project.clone(),
            profiles: project.profiles()?,
            known: Mutex::new(None),
            waker,
        };
        let store = LadderStore::new(&project.state);
        let actor = Name::new(ACTOR)?;
        let mut ladders = Ladders::new(Arc::clone(spool), store, Arc::new(host), actor);
        if let Some(queue) = queue {
            ladders = ladders.with_queue(queue);
        }
        let (sender, receiver) = unbounded();
        let mut runner = LadderWorker {
            ladders,
            spool: Arc::clone(spool),
            claims,
            state: project.state.clone(),
            seen: BTreeMap::new(),
            not_before: BTreeMap::new(),
        };
        let thread = thread::spawn(move || runner.run(&receiver));
        let this = Self { reasons: Some(sender), thread: Some(thread) };
        this.all_changed();
        Ok(this)
    }

    /// Something landed in a mailbox, or left it. `others` are messages that are not tasks.
    pub(crate) fn changed(&self, mailbox: Name, others: Vec<MessageId>) {
        self.send(LookReason::Changed(mailbox, others));
    }

    pub(crate) fn all_changed(&self) {
        self.send(LookReason::All);
    }

    fn send(&self, reason: LookReason) {
        if let Some(reasons) = &self.reasons {
            // The thread ends only when this sender is dropped.
            let _ = reasons.send(reason);
        }
    }
}

struct LadderWorker {
    ladders: Ladders<'static>,
    spool: Arc<Spool>,
    claims: Option<Arc<dyn LadderClaim>>,
    state: PathBuf,
    /// When the waiting directories of a mailbox had changed last, at the last look.
    seen: BTreeMap<Name, [Option<SystemTime>; 2]>,
    not_before: BTreeMap<Name, Instant>,
}

impl LadderWorker {
    fn run(&mut self, reasons: &Receiver<LookReason>) {
        let mut pending = BTreeSet::new();
        loop {
            let wait = self.wait(&pending);
            let first = match wait {
                Some(wait) => reasons.recv_timeout(wait),
                None => reasons.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match first {
                Ok(reason) => {
                    self.add_reason(reason, &mut pending);
                    // A burst is one look.
                    while let Ok(reason) = reasons.try_recv() {
                        self.add_reason(reason, &mut pending);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let looked = self.observe_mailboxes(&mut pending);
            let ran = self.ladders.handle_timeout();
            if let Err(error) = looked.and(ran) {
                tracing::warn!(%error, "cannot run a ladder");
            }
        }
    }

    fn wait(&self, pending: &BTreeSet<Name>) -> Option<Duration> {
        let now = SystemClock.monotonic();
        let timeout = self.ladders.poll_timeout().map(|at| at.since(now));
        let look = pending.iter().map(|mailbox| {
            self.not_before
                .get(mailbox)
                .map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()))
        });
        timeout.into_iter().chain(look).min()
    }

    fn add_reason(&mut self, reason: LookReason, pending: &mut BTreeSet<Name>) {
        match reason {
            LookReason::Changed(mailbox, others) => {
                self.ladders.note_others(mailbox.clone(), others);
                pending.insert(mailbox);
            }
            LookReason::All => match self.mailboxes() {
                Ok(mailboxes) => {
                    let is_other = |name: &Name| self.seen.get(name) != Some(&self.stamps(name));
                    pending.extend(mailboxes.into_iter().filter(is_other));
                }
                Err(error) => tracing::warn!(%error, "cannot list the mailboxes for their ladders"),
            },
        }
    }

    fn mailboxes(&self) -> Result<Vec<Name>> {
        if self.claims.is_none() {
            return self.spool.mailboxes();
        }
        // The servers say which have changed, at first all.
        let files = LadderStore::new(&self.state).all()?;
        Ok(files.into_iter().map(|(_, file)| file.mailbox).collect())
    }

    fn observe_mailboxes(&mut self, pending: &mut BTreeSet<Name>) -> Result<()> {
        let mut failed = None;
        let began = Instant::now();
        self.not_before.retain(|_, at| *at > began);
        let due: Vec<Name> =
            pending.iter().filter(|name| !self.not_before.contains_key(*name)).cloned().collect();
        for mailbox in due {
            pending.remove(&mailbox);
            let is_idle = |claims: &Arc<dyn LadderClaim>| !claims.may_have_task(&mailbox);
            if self.claims.as_ref().is_some_and(is_idle) && !self.ladders.knows(&mailbox) {
                continue;
            }
            let (stamps, began) = (self.stamps(&mailbox), Instant::now());
            match self.ladders.observe_mailbox(&mailbox) {
                Ok(()) => {
                    self.seen.insert(mailbox.clone(), stamps);
                }
                Err(error) => failed = failed.or(Some(error)),
            }
            let pause = (began.elapsed() * LOOK_SHARE).max(LOOK_INTERVAL_MIN);
            self.not_before.insert(mailbox, Instant::now() + pause);
        }
        failed.map_or(Ok(()), Err)
    }

    fn stamps(&self, mailbox: &Name) -> [Option<SystemTime>; 2] {
        if self.claims.is_some() {
            return [None; 2];
        }
        let home = self.spool.root().join("mailbox").join(mailbox.as_str());
        WAITING_DIRECTORIES.map(|dir| home.join(dir).metadata().and_then(|dir| dir.modified()).ok())
    }
}

type LadderTeam = (Instant, Vec<PaneEntry>, Vec<Member>);

struct ProjectLadderHost {
    project: Project,
    claims: Option<Arc<dyn LadderClaim>>,
    profiles: Profiles,
    known: Mutex<Option<LadderTeam>>,
    waker: LoopWaker,
}

impl ProjectLadderHost {
    fn with_team<T>(&self, look: impl FnOnce(&[PaneEntry], &[Member]) -> Result<T>) -> Result<T> {
        let mut team = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if team.as_ref().is_none_or(|(at, ..)| at.elapsed() > TEAM_AGE_MAX) {
            let (entries, _) = panes::read_all(&self.project.panes())?;
            let (members, _) = self.project.roster().entries()?;
            *team = Some((Instant::now(), entries, members));
        }
        match &*team {
            Some((_, entries, members)) => look(entries, members),
            None => look(&[], &[]),
        }
    }
}

impl LadderHost for ProjectLadderHost {
    fn reader(&self, mailbox: &Name) -> Result<MailboxReader> {
        self.with_team(|entries, members| {
            reader_of(&self.project, &self.profiles, mailbox, entries, members)
        })
    }

    fn may_run(&self, mailbox: &Name, is_handing_out: bool) -> Result<bool> {
        let Some(claims) = &self.claims else { return Ok(true) };
        let has_reader = self
            .with_team(|entries, members| Ok(!readers_of(mailbox, entries, members).is_empty()))?;
        claims.hold(mailbox, has_reader, is_handing_out)
    }

    fn prompt(&self, prompt: LadderPrompt) -> bool {
        self.waker.wake(LoopWake::Prompt(prompt));
        true
    }

    fn set_pace(&self, mailbox: &Name, is_laddered: bool) {
        let mailbox = mailbox.clone();
        self.waker.wake(LoopWake::Pace { mailbox, is_laddered });
    }
}
