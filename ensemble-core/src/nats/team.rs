//! The whole team's mailboxes over one consumer, for a watcher that has an eye on all of them. It is told
//! of headers only: who holds what is in them, and whoever receives a message reads its content then.
//!
//! With a consumer for each mailbox the server would serve as many consumers as there are mailboxes
//! times hosts; see docs/scale.md.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::subject::Subjects;
use super::watch::{self, Following, Hearer, News, SILENCE, Watch};
use super::{NatsTransport, lock};
use crate::Result;
use crate::message::Name;

/// How old a look at all mailboxes may be for whoever observes one.
const LOOK_AGE_MAX: Duration = Duration::from_secs(1);

/// The indexes of all mailboxes that are followed.
pub(super) type Watches = Arc<Mutex<HashMap<Name, Arc<Watch>>>>;

/// Hears of all mailboxes.
pub(super) struct Team {
    watches: Watches,
    news: Arc<News>,
    anew: Arc<Notify>,
    /// The last number in the stream that was heard.
    seen_seq: Mutex<u64>,
    /// When everything was known last.
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
        let is_news =
            mailbox.is_some_and(|mailbox| self.watch(&mailbox).hear(message, seq, at_millis));
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
    /// Follows all mailboxes of the team from now on over one consumer, those that are added later among
    /// them. For whoever looks at all of them; who receives from a few follows these by receiving.
    ///
    /// # Errors
    /// [`crate::Error::Server`].
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
            current_at: Mutex::default(),
        });
        self.runtime.spawn(watch::follow(following, Arc::downgrade(&made)));
        *team = Some(made);
        drop(team);
        self.catch_up_team().map(drop)
    }

    /// The index of a mailbox as it was a moment ago at most.
    pub(super) fn recent(&self, mailbox: &Name) -> Result<Arc<Watch>> {
        let known = lock(&self.watches).get(mailbox).cloned();
        match known {
            Some(watch) if self.catch_up_team()? => Ok(watch),
            Some(_) | None => self.current(mailbox),
        }
    }

    /// Returns once everything is known that was stored a moment ago; `false` if the team is not
    /// followed.
    fn catch_up_team(&self) -> Result<bool> {
        let Some(team) = lock(&self.team).clone() else { return Ok(false) };
        if lock(&team.current_at).is_some_and(|at| at.elapsed() < LOOK_AGE_MAX) {
            return Ok(true);
        }
        let _haste = self.news.haste();
        let (wire, pattern, asked_at) =
            (self.wire.clone(), self.subjects.all_messages(), Instant::now());
        let head = self.call("look into the mailboxes", async move {
            Ok(wire.last(&pattern).await?.map_or(0, |message| message.sequence))
        })?;
        let _waiting = self.runtime.waiting();
        let deadline = Instant::now() + self.wire.patience;
        let mut heard = 0;
        while *lock(&team.seen_seq) < head {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self
                    .wire
                    .unreachable("follow the mailboxes", "their news did not come in time"));
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
