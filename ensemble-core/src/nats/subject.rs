//! Which subject belongs to what.
//!
//! ```text
//! ens.<team>.q.<mailbox>.<id>     a message: its last version is the message and its state
//! ens.<team>.b.<mailbox>          a mailbox and its settings; here the name is in lower case
//! ens.<team>.g.<mailbox>          who was let into a bounded mailbox last
//! ens.<team>.r.<request>.request  a question;  ….decision  its first answer
//! enslog.<team>.<session>         the event log, in a stream of its own
//! ```
//!
//! A dot separates the tokens of a subject, so a dot in a name becomes `=`, which no name has.

use crate::message::{MessageId, Name};

/// The subjects of one team.
#[derive(Clone, Debug)]
pub(super) struct Subjects {
    team: String,
}

fn token(name: &str) -> String {
    name.replace('.', "=")
}

fn name_of(token: &str) -> String {
    token.replace('=', ".")
}

impl Subjects {
    pub(super) fn new(team: &Name) -> Self {
        Self { team: token(team.as_str()) }
    }

    /// The stream of the mailboxes. A stream's name takes no dot either.
    pub(super) fn stream(&self) -> String {
        format!("ENSEMBLE_{}", self.team)
    }

    /// The stream of the event log.
    pub(super) fn log_stream(&self) -> String {
        format!("ENSEMBLE_LOG_{}", self.team)
    }

    /// Everything in the stream of the mailboxes.
    pub(super) fn all(&self) -> String {
        format!("ens.{}.>", self.team)
    }

    /// Everything in the stream of the log.
    pub(super) fn log_all(&self) -> String {
        format!("enslog.{}.>", self.team)
    }

    pub(super) fn log(&self, session: &str) -> String {
        format!("enslog.{}.{}", self.team, token(session))
    }

    pub(super) fn message(&self, mailbox: &Name, id: &MessageId) -> String {
        format!("ens.{}.q.{}.{}", self.team, token(mailbox.as_str()), token(id.as_str()))
    }

    /// All messages of a mailbox.
    pub(super) fn messages(&self, mailbox: &Name) -> String {
        format!("ens.{}.q.{}.*", self.team, token(mailbox.as_str()))
    }

    /// The id in the subject of a message.
    pub(super) fn id_in(subject: &str) -> Option<MessageId> {
        MessageId::new(name_of(subject.rsplit('.').next()?)).ok()
    }

    /// Names that differ only in case meet in one subject, so there is never a second one.
    pub(super) fn settings(&self, mailbox: &Name) -> String {
        format!("ens.{}.b.{}", self.team, token(&mailbox.as_str().to_ascii_lowercase()))
    }

    pub(super) fn all_settings(&self) -> String {
        format!("ens.{}.b.*", self.team)
    }

    pub(super) fn gate(&self, mailbox: &Name) -> String {
        format!("ens.{}.g.{}", self.team, token(mailbox.as_str()))
    }

    pub(super) fn request(&self, id: &MessageId, part: &str) -> String {
        format!("ens.{}.r.{}.{part}", self.team, token(id.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_dots_keep_to_one_token() {
        let subjects = Subjects::new(&Name::new("a.team").unwrap());
        let mailbox = Name::new("worker.1").unwrap();
        let id = MessageId::new("task.7.1").unwrap();
        let subject = subjects.message(&mailbox, &id);
        assert_eq!(subject, "ens.a=team.q.worker=1.task=7=1");
        assert_eq!(Subjects::id_in(&subject), Some(id));
        let twin = Name::new("Worker.1").unwrap();
        assert_eq!(subjects.settings(&mailbox), subjects.settings(&twin));
    }
}
