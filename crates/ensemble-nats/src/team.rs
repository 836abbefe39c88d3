//! All mailboxes of a team over one consumer, for a watcher that observes all of them. It receives
//! only headers, which name the holders; a consumer reads a message's content when it receives it.
//!
//! With one consumer for each mailbox, the server would serve as many consumers as mailboxes times
//! hosts; see docs/evidence/scale.md.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::subject::Subjects;
use super::watch::{self, Following, Hearer, News, SILENCE, Watch};
use super::{NatsTransport, lock};
use ensemble_core::Result;
use ensemble_core::message::Name;

/// How old the state of all mailboxes may be for an observer of one.
const LOOK_AGE_MAX: Duration = Duration::from_secs(1);

/// The indexes of all followed mailboxes.
pub(super) type Watches = Arc<Mutex<HashMap<Name, Arc<Watch>>>>;

/// The follower of all mailboxes.
pub(super) struct Team {
    watches: Watches,
    news: Arc<News>,
    anew: Arc<Notify>,
    /// The last sequence in the stream that was received.
    seen_seq: Mutex<u64>,
    /// Mailboxes with versions that were heard since this was last taken.
    changed: Mutex<BTreeSet<Name>>,
    /// When the indexes were last complete.
    current_at: Mutex<Option<Instant>>,
}

impl Team {
    /// The index of a mailbox, which is kept up to date from now on.
    pub(super) fn watch(&self, mailbox: &Name) -> Arc<Watch> {
        let fresh = || Arc::new(Watch::new(Arc::clone(&self.news), Arc::clone(&self.anew)));
        Arc::clone(lock(&self.watches).entry(mailbox.clone()).or_insert_with(fresh))
    }
}

impl Hearer for Team {
    fn hear(&self, message: &async_nats::Message, seq: u64, at_millis: u64) -> bool {
        let mailbox = Subjects::mailbox_in(&message.subject);
        let is_news = mailbox.is_some_and(|mailbox| {
            let is_news = self.watch(&mailbox).hear(message, seq, at_millis);
            lock(&self.changed).insert(mailbox);
            is_news
        });
        *lock(&self.seen_seq) = seq;
        self.news.ring();
        is_news
    }

    fn anew(&self) -> Arc<Notify> {
        Arc::clone(&self.anew)
    }

    fn news(&self) -> Arc<News> {
        Arc::clone(&self.news)
    }
}

impl NatsTransport {
    /// Follows all mailboxes of the team over one consumer, including those that are added later.
    /// For observers of the whole team; a consumer of a few mailboxes follows them by receiving.
    ///
    /// # Errors
    /// [`ensemble_core::Error::Server`].
    pub fn follow_team(&self) -> Result<()> {
        let mut team = lock(&self.team);
        if team.is_some() {
            return Ok(());
        }
        let following = Following {
            wire: self.wire.clone(),
            pattern: self.subjects.all_messages(),
            connections: self.connections.clone(),
            is_headers_only: true,
        };
        let made = Arc::new(Team {
            watches: Arc::clone(&self.watches),
            news: Arc::clone(&self.news),
            anew: Arc::default(),
            seen_seq: Mutex::default(),
            changed: Mutex::default(),
            current_at: Mutex::default(),
        });
        self.runtime.spawn(watch::follow(following, Arc::downgrade(&made)));
        *team = Some(made);
        drop(team);
        self.catch_up_team().map(drop)
    }

    /// Mailboxes in which something has changed since the last call, if the team is followed; at first, all.
    #[must_use]
    pub fn changed_mailboxes(&self) -> Vec<Name> {
        let team = lock(&self.team).clone();
        team.map_or_else(Vec::new, |team| {
            std::mem::take(&mut *lock(&team.changed)).into_iter().collect()
        })
    }

    /// Whether a message that waits in a mailbox may be a task, as far as known here.
    ///
    /// # Errors
    /// [`ensemble_core::Error::NoMailbox`] or [`ensemble_core::Error::Server`].
    pub fn may_have_task(&self, mailbox: &Name) -> Result<bool> {
        Ok(self.watch(mailbox)?.index().may_have_task())
    }

    /// The index of a mailbox, at most a moment old.
    pub(super) fn recent(&self, mailbox: &Name) -> Result<Arc<Watch>> {
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
        let (wire, pattern, asked_at) =
            (self.wire.clone(), self.subjects.all_messages(), Instant::now());
        let head = self.call("read the mailboxes' state", async move {
            Ok(wire.last(&pattern).await?.map_or(0, |message| message.sequence))
        })?;
        let _waiting = self.runtime.waiting();
        let deadline = Instant::now() + self.wire.patience.left();
        let mut heard = 0;
        while *lock(&team.seen_seq) < head {
            let left = deadline.saturating_duration_since(Instant::now());
            if let Some(denied) = self.wire.denial_of_consumers() {
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
