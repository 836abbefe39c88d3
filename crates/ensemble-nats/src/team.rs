//! All mailboxes of a team over one consumer, for a watcher that observes all of them. It receives
//! only headers, which name the holders; a consumer reads a message's content when it receives it.
//!
//! With one consumer for each mailbox, the server would serve as many consumers as mailboxes times
//! hosts; see docs/evidence/measurements.md.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::denials::is_denial;
use super::subject::TeamSubjects;
use super::watch::{MailboxWatch, SILENCE, TeamNews, VersionListener};
use super::{NatsTransport, lock};
use ensemble_core::Result;
use ensemble_core::message::Name;

/// How old the state of all mailboxes may be for an observer of one.
const LOOK_AGE_MAX: Duration = Duration::from_secs(1);

pub(super) type MailboxWatches = Arc<Mutex<HashMap<Name, Arc<MailboxWatch>>>>;

/// What is known of the mailboxes of a team that can only be followed in part.
#[derive(Default)]
pub(super) struct OpenMailboxes {
    /// Those that are followed, and how much was heard of each at the last look.
    heard: HashMap<Name, Option<u64>>,
    denied: HashSet<Name>,
}

pub(super) struct TeamFollower {
    watches: MailboxWatches,
    news: Arc<TeamNews>,
    anew: Arc<Notify>,
    /// The last sequence in the stream that was received.
    seen_seq: Mutex<u64>,
    /// Mailboxes with versions that were heard since this was last taken.
    changed: Mutex<BTreeSet<Name>>,
    /// When the indexes were last complete.
    current_at: Mutex<Option<Instant>>,
}

impl TeamFollower {
    /// The index of a mailbox, which is kept up to date from now on.
    pub(super) fn watch(&self, mailbox: &Name) -> Arc<MailboxWatch> {
        let fresh = || Arc::new(MailboxWatch::new(Arc::clone(&self.news), Arc::clone(&self.anew)));
        Arc::clone(lock(&self.watches).entry(mailbox.clone()).or_insert_with(fresh))
    }
}

impl VersionListener for TeamFollower {
    fn hear(&self, message: &async_nats::Message, seq: u64, at_millis: u64) -> bool {
        let mailbox = TeamSubjects::mailbox_in(&message.subject);
        let is_news = mailbox.is_some_and(|mailbox| {
            let is_news = self.watch(&mailbox).hear(message, seq, at_millis);
            lock(&self.changed).insert(mailbox);
            is_news
        });
        *lock(&self.seen_seq) = seq;
        self.news.ring();
        is_news
    }

    fn signals(&self) -> (Arc<Notify>, Arc<TeamNews>) {
        (Arc::clone(&self.anew), Arc::clone(&self.news))
    }
}

impl NatsTransport {
    /// Follows all mailboxes of the team over one consumer, including those that are added later.
    /// For observers of the whole team; a consumer of a few mailboxes follows them by receiving.
    ///
    /// With credentials that may not follow the whole team, each mailbox is followed that they may follow. Then
    /// another call follows those that were added since. From then on [`NatsTransport::mailboxes`] has these alone.
    pub fn follow_team(&self) -> Result<()> {
        if lock(&self.open).is_some() {
            return self.follow_open();
        }
        match self.follow_all() {
            Err(error) if is_denial(&error) => {
                *lock(&self.team) = None;
                lock(&self.watches).clear();
                *lock(&self.open) = Some(OpenMailboxes::default());
                self.follow_open()
            }
            followed => followed,
        }
    }

    fn follow_all(&self) -> Result<()> {
        let mut team = lock(&self.team);
        if team.is_some() {
            return Ok(());
        }
        let made = Arc::new(TeamFollower {
            watches: Arc::clone(&self.watches),
            news: Arc::clone(&self.news),
            anew: Arc::default(),
            seen_seq: Mutex::default(),
            changed: Mutex::default(),
            current_at: Mutex::default(),
        });
        self.follow(&made, Arc::clone(&self.wire), self.subjects.all_messages(), true);
        *team = Some(made);
        drop(team);
        self.catch_up_team().map(drop)
    }

    /// Whether the credentials were found to be limited to some mailboxes.
    pub fn is_limited(&self) -> bool {
        lock(&self.open).is_some()
    }

    /// Follows the mailboxes that these credentials may follow.
    fn follow_open(&self) -> Result<()> {
        for mailbox in self.all_mailboxes()? {
            let is_known = |open: &OpenMailboxes| {
                open.heard.contains_key(&mailbox) || open.denied.contains(&mailbox)
            };
            if lock(&self.open).as_ref().is_none_or(is_known) {
                continue;
            }
            let followed = self.watch(&mailbox);
            if let Some(open) = lock(&self.open).as_mut() {
                match followed {
                    Ok(_) => drop(open.heard.insert(mailbox, None)),
                    Err(error) if is_denial(&error) => {
                        lock(&self.watches).remove(&mailbox);
                        open.denied.insert(mailbox);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// These mailboxes, without those that the credentials are known not to follow.
    pub(super) fn only_open(&self, mailboxes: Vec<Name>) -> Vec<Name> {
        match lock(&self.open).as_ref() {
            None => mailboxes,
            Some(open) => {
                mailboxes.into_iter().filter(|name| open.heard.contains_key(name)).collect()
            }
        }
    }

    /// Mailboxes in which something has changed since the last call, if the team is followed; at first, all.
    pub fn changed_mailboxes(&self) -> Vec<Name> {
        if let Some(open) = lock(&self.open).as_mut() {
            let watches = lock(&self.watches);
            let changed = open.heard.iter_mut().filter_map(|(mailbox, before)| {
                let now = watches.get(mailbox).map(|watch| watch.index().heard);
                (*before != now).then(|| {
                    *before = now;
                    mailbox.clone()
                })
            });
            return changed.collect();
        }
        let team = lock(&self.team).clone();
        team.map_or_else(Vec::new, |team| {
            std::mem::take(&mut *lock(&team.changed)).into_iter().collect()
        })
    }

    /// Whether a message that waits in a mailbox may be a task, to this process's knowledge.
    pub fn may_have_task(&self, mailbox: &Name) -> Result<bool> {
        Ok(self.watch(mailbox)?.index().may_have_task())
    }

    /// The index of a mailbox, at most a moment old.
    pub(super) fn recent(&self, mailbox: &Name) -> Result<Arc<MailboxWatch>> {
        let known = lock(&self.watches).get(mailbox).cloned();
        match known {
            Some(watch) if self.catch_up_team()? => Ok(watch),
            Some(_) | None => self.current(mailbox),
        }
    }

    /// Waits until the indexes contain everything that was stored a moment ago; `false` if the team
    /// is not followed.
    fn catch_up_team(&self) -> Result<bool> {
        let Some(team) = lock(&self.team).clone() else { return Ok(false) };
        if lock(&team.current_at).is_some_and(|at| at.elapsed() < LOOK_AGE_MAX) {
            return Ok(true);
        }
        let _haste = self.news.haste();
        let (pattern, asked_at) = (self.subjects.all_messages(), Instant::now());
        let head = self.head("read the mailboxes' state", pattern.clone())?;
        let _waiting = self.runtime.waiting();
        let deadline = Instant::now() + self.wire.patience.left();
        let mut heard = 0;
        while *lock(&team.seen_seq) < head {
            let left = deadline.saturating_duration_since(Instant::now());
            if let Some(denied) = self.wire.denial_of_consumers(&pattern) {
                return Err(self.wire.refused("follow the mailboxes", denied));
            }
            if left.is_zero() {
                return Err(self
                    .wire
                    .unreachable("follow the mailboxes", "their updates did not come in time"));
            }
            let before = heard;
            heard = team.news.wait(before, left.min(SILENCE));
            if heard == before {
                team.anew.notify_one();
            }
        }
        *lock(&team.current_at) = Some(asked_at);
        Ok(true)
    }
}
