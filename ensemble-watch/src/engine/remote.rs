//! What the loop knows of mailboxes on servers: what the thread that follows them has told.

use ensemble_core::Result;
use ensemble_core::message::{MessageId, Name};
use ensemble_core::spool::Spool;
use serde_json::{Value, json};

use super::Engine;
use crate::mail::{Mail, RemoteMail};
use crate::project::Project;

/// News of the servers.
#[derive(Debug)]
#[cfg_attr(not(feature = "nats"), allow(dead_code, reason = "nobody follows servers"))]
pub(crate) enum Told {
    /// What waits in a mailbox now.
    Mail {
        /// Which one.
        mailbox: Name,
        /// The ids, up to a limit.
        ids: Vec<MessageId>,
    },
    /// How the connection is, for `status`.
    Condition(Value),
}

/// Where the mailboxes are.
pub(super) enum Remote {
    /// In the queue's directory.
    Directory,
    /// On servers.
    Servers { mail: RemoteMail, condition: Value },
}

impl Remote {
    pub(super) fn new(project: &Project) -> Result<Self> {
        Ok(match project.servers()? {
            None => Self::Directory,
            Some(_) => Self::Servers {
                mail: RemoteMail::default(),
                condition: json!({ "connected": false }),
            },
        })
    }

    /// Where couriers learn what waits.
    pub(super) fn mail<'a>(&'a self, spool: &'a Spool) -> &'a dyn Mail {
        match self {
            Self::Directory => spool,
            Self::Servers { mail, .. } => mail,
        }
    }

    /// For `status`.
    pub(super) fn summary(&self) -> Value {
        match self {
            Self::Directory => Value::Null,
            Self::Servers { condition, .. } => condition.clone(),
        }
    }
}

impl Engine {
    /// The thread that follows the servers has something to say.
    pub(super) fn told(&mut self, told: Told) {
        let Remote::Servers { mail, condition } = &mut self.remote else { return };
        match told {
            Told::Mail { mailbox, ids } => {
                for id in mail.take(mailbox.clone(), ids) {
                    self.couriers.notice(&mailbox, id);
                }
                self.rung.insert(mailbox);
            }
            Told::Condition(now) => *condition = now,
        }
    }
}
