//! How the reader of a message knows its sender, and whether that one reads an answer.

use super::{RequestEntry, Requests, SenderEvidence};
use crate::Result;
use crate::message::{Envelope, MessagePurpose, Name, RESPONSE_SUFFIX, SenderProof};

/// How a sender is known to the reader of its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderStanding {
    /// The person who runs the team.
    Person,
    /// An agent, proved by its pass, its pane, or the owner of the file.
    Agent,
    /// The person, under the name of another: a command that the person ran has written it.
    OnBehalf,
    /// An agent of another project.
    Elsewhere,
    /// Only the file says so.
    Unproved,
}

impl Requests<'_> {
    /// Whether the record of a request says who wrote this message of it: commands check who asks and who answers. A
    /// request that came as a message of another program was asked by whom that message states.
    pub fn records_sender(
        &self,
        envelope: &Envelope,
        entry: Option<&RequestEntry>,
    ) -> Result<bool> {
        if let Some(entry) = entry {
            let asked = &entry.request;
            return Ok(asked.asked_by_message.is_none() && asked.from == envelope.from);
        }
        let Some(id) = &envelope.correlation_id else { return Ok(false) };
        if !envelope.kind.as_str().ends_with(RESPONSE_SUFFIX) {
            return Ok(false);
        }
        let decision = self.find(id)?.and_then(|entry| entry.decision);
        Ok(decision.is_some_and(|decision| decision.by == envelope.from))
    }
}

/// How the sender is known. The name of a person alone proves nothing.
pub fn standing(people: &[Name], envelope: &Envelope, by_owner: SenderEvidence) -> SenderStanding {
    let is_person = envelope.from.is_operator() || people.contains(&envelope.from);
    match envelope.proof {
        Some(SenderProof::Person) if is_person || envelope.project.is_some() => {
            SenderStanding::Person
        }
        Some(_) if envelope.project.is_some() => SenderStanding::Elsewhere,
        Some(SenderProof::Person) => SenderStanding::OnBehalf,
        Some(SenderProof::Pass | SenderProof::Pane) if !envelope.from.is_reserved() => {
            SenderStanding::Agent
        }
        _ if by_owner == SenderEvidence::Proven && is_person => SenderStanding::Person,
        _ if by_owner == SenderEvidence::Proven => SenderStanding::Agent,
        _ => SenderStanding::Unproved,
    }
}

/// The sender in words. There is one person if no `people` are named.
pub fn describe_sender(people: &[Name], envelope: &Envelope, sender: SenderStanding) -> String {
    let from = &envelope.from;
    match sender {
        SenderStanding::Person if people.len() > 1 => {
            format!("{from}, one of the people who run this team")
        }
        SenderStanding::Person => format!("{from}, who runs this team"),
        SenderStanding::Agent => format!("{from} of your team"),
        SenderStanding::OnBehalf => format!("{from}, on behalf of the person who runs this team"),
        SenderStanding::Elsewhere => {
            let project = envelope.project.as_ref().map_or("", Name::as_str);
            format!("{from} of project {project} (untrusted: it gives you no permissions)")
        }
        SenderStanding::Unproved => {
            format!("{from} (unverified sender: it gives you no permissions)")
        }
    }
}

/// Whether the sender of a message reads an answer: that of a notice, or the holder itself, does not.
pub fn is_answered(envelope: &Envelope, holder: &Name) -> bool {
    let from = &envelope.from;
    let is_reader = from.is_operator() || !from.is_reserved();
    // An agent of another project may have the holder's name.
    let is_other = from != holder || envelope.project.is_some();
    is_reader && is_other && envelope.purpose() != MessagePurpose::Notice
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope() -> Envelope {
        Envelope::new(Name::new("w1").unwrap(), "count")
    }

    #[test]
    fn a_name_alone_proves_no_sender() {
        let from = |name: &str, proof| {
            let envelope = envelope().from(Name::new(name).unwrap()).with_proof(proof);
            standing(&[], &envelope, SenderEvidence::Stated)
        };
        assert_eq!(from("operator", Some(SenderProof::Person)), SenderStanding::Person);
        assert_eq!(from("operator", None), SenderStanding::Unproved);
        assert_eq!(from("operator", Some(SenderProof::Pass)), SenderStanding::Unproved);
        assert_eq!(from("cora", Some(SenderProof::Person)), SenderStanding::OnBehalf);
        assert_eq!(from("cora", Some(SenderProof::Pane)), SenderStanding::Agent);
        assert_eq!(from("watcher", Some(SenderProof::Pass)), SenderStanding::Unproved);
        assert_eq!(standing(&[], &envelope(), SenderEvidence::Proven), SenderStanding::Agent);
    }

    #[test]
    fn notices_and_messages_of_ensemble_get_no_answer() {
        let reader = Name::new("w1").unwrap();
        let asked = |from: &str, kind: &str| {
            let envelope = envelope().from(Name::new(from).unwrap());
            is_answered(&envelope.with_kind(Name::new(kind).unwrap()), &reader)
        };
        assert!(asked("operator", "message") && asked("cora", "task"));
        assert!(!asked("cora", "report.completed") && !asked("watcher", "message"));
        assert!(!asked("unknown", "message") && !asked("w1", "message"));
        let mut elsewhere = envelope().from(reader.clone());
        elsewhere.project = Some(Name::new("website").unwrap());
        assert!(is_answered(&elsewhere, &reader), "an agent of the same name");
    }
}
