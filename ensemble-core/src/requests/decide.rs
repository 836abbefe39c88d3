//! Deciding: one file, written once. A later decision is refused with the first one.

use std::time::Duration;

use serde_json::{Value, json};

use super::file::{COMMENT_BYTES_MAX, DecisionState, StoredRequest, clip};
use super::store::{RequestFile, RequestFiles, WriteOutcome};
use super::{AskedRequest, RequestEntry, Requests};
use crate::dropbox::DropBox;
use crate::event_log::types;
use crate::message::fields::field_text;
use crate::message::written::document;
use crate::message::{Digest, Name, yaml};
use crate::proto::request::{Decision, DecisionRefusal, Outcome};
use crate::{Error, Result};

/// How many files that decide nothing are set aside before a proposal gives up.
const ASIDE_MAX: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposedDecision {
    pub standing: Decision,
    pub is_ours: bool,
}

impl Requests<'_> {
    /// Approves or rejects a request in the name of `by`, who must be its addressee, and notifies the requester.
    ///
    /// # Errors
    /// [`DecisionRefusal`]: there is no such request, or it was decided before (the error says by whom,
    /// what and when), or `by` may not decide it. The refusal is recorded. Or the disk failed.
    pub fn respond(
        &self,
        id: &str,
        by: &Name,
        approve: bool,
        comment: &str,
    ) -> Result<RequestEntry> {
        let outcome = if approve { Outcome::Approved } else { Outcome::Rejected };
        self.decide(id, Decision::new(outcome, by.clone(), self.store.now()).with_comment(comment))
    }

    /// Takes a request back in the name of `by`, who must have made it.
    pub fn cancel(&self, id: &str, by: &Name, comment: &str) -> Result<RequestEntry> {
        let decision = Decision::new(Outcome::Cancelled, by.clone(), self.store.now());
        self.decide(id, decision.with_comment(comment))
    }

    fn decide(&self, id: &str, mut decision: Decision) -> Result<RequestEntry> {
        if decision.comment.len() > COMMENT_BYTES_MAX {
            let bytes = decision.comment.len();
            return Err(Error::too_large("the comment", bytes, COMMENT_BYTES_MAX));
        }
        decision.comment = clip(&decision.comment);
        let Some((home, standing)) = self.find_request(id)? else {
            return Err(self.refuse(
                DecisionRefusal::Unknown { id: super::printable(id) },
                None,
                &decision,
            ));
        };
        let allowed = match standing {
            Some(standing) => {
                // The first process may have been killed before its sync, and the caller is about
                // to learn of the decision.
                self.store.make_safe(Some(&home.asked.request_id))?;
                Err(decided(&home, standing))
            }
            None => home.asked.machine().check(&decision),
        };
        if let Err(refusal) = allowed {
            return Err(self.refuse(refusal, Some(&home), &decision));
        }
        let ProposedDecision { standing, is_ours } = self.propose_in(&home, &decision)?;
        if !is_ours {
            return Err(self.refuse(decided(&home, standing), Some(&home), &decision));
        }
        let entry = RequestEntry::new(home.asked, Some(standing));
        // The decision is final, even if notifying the others fails.
        Ok(match self.carry_on(entry.clone()) {
            Ok(entry) => entry,
            Err(error) => RequestEntry { untold: Some(error.to_string()), ..entry },
        })
    }

    /// Cancels a request in its requester's name because it no longer matters, for instance because
    /// its addressee has left. Returns the request as it is then, or `None` if there is no such
    /// request.
    pub fn moot(&self, id: &str, why: &str) -> Result<Option<RequestEntry>> {
        let Some(entry) = self.find(id)? else { return Ok(None) };
        if entry.decision.is_none() {
            let by = entry.request.from;
            let decision = Decision::new(Outcome::Cancelled, by, self.store.now());
            self.propose(id, &decision.with_comment(clip(why)))?;
        }
        self.resume(id)
    }

    /// Proposes a decision that was checked before, and returns the decision that counts. This is
    /// [`Effect::Close`](crate::proto::request::Effect::Close).
    ///
    /// # Errors
    /// [`DecisionRefusal::Unknown`]. A refusal if the rules allow no process to make this decision.
    /// [`Error::Malformed`] if it is an expiry before its time. Or the disk failed.
    pub fn propose(&self, id: &str, decision: &Decision) -> Result<ProposedDecision> {
        match self.find_request(id)? {
            None => Err(DecisionRefusal::Unknown { id: super::printable(id) }.into()),
            Some((_, Some(standing))) => {
                Ok(ProposedDecision { is_ours: standing == *decision, standing })
            }
            Some((home, None)) => self.propose_in(&home, decision),
        }
    }

    fn propose_in(&self, home: &StoredRequest, decision: &Decision) -> Result<ProposedDecision> {
        // A decision that every reader would set aside is not written.
        home.counts(decision)?;
        let (id, content) = (&home.asked.request_id, home.render(decision));
        let unknown = || DecisionRefusal::Unknown { id: id.to_string() };
        for _ in 0..ASIDE_MAX {
            match self.store.write_once(id, RequestFile::Decision, &content)? {
                WriteOutcome::Done => {
                    return Ok(ProposedDecision { standing: decision.clone(), is_ours: true });
                }
                WriteOutcome::Exists => {}
                WriteOutcome::Gone => return Err(unknown().into()),
            }
            // A proposal waits for no writer.
            if let Some(standing) = self.put_aside(id, Duration::ZERO)? {
                self.store.make_safe(Some(id))?;
                return Ok(ProposedDecision { standing, is_ours: false });
            }
        }
        let path = self.store.place(id, RequestFile::Decision);
        Err(Error::io("decide", path, std::io::ErrorKind::WouldBlock))
    }

    /// Puts a decision aside that counts for nothing, once it is as old as this: as a report, it may be written in
    /// steps, unless it has the end mark. Where there are locks, only one process does so at a time, after another
    /// look. A decision that was made in the meantime stays, and is returned.
    pub(super) fn put_aside(&self, id: &Name, patience: Duration) -> Result<Option<Decision>> {
        let lock = self.store.lock()?;
        let Some(home) = StoredRequest::read(self.store, id)? else { return Ok(None) };
        let (file, why) = match &home.standing {
            DecisionState::Nothing => return Ok(None),
            DecisionState::Valid(decision) => return Ok(Some(decision.clone())),
            DecisionState::Invalid(file, why) => (file, why),
        };
        // On servers it is written whole.
        let may_grow = lock.is_alone() && !DropBox::has_end_mark(&file.content);
        if may_grow && self.store.age(file.at) < patience {
            return Ok(None);
        }
        let fields: Value =
            yaml::read(&document(&String::from_utf8_lossy(&file.content))).unwrap_or_default();
        let by = field_text(&fields, &["by"]).and_then(|by| Name::new(by).ok());
        let mark = Digest::of_parts(&[&file.content, file.at.to_string().as_bytes()]).short(8);
        let shown = format!("{why:.4000}\nIts file is in rejected/.");
        // A crash in between repeats the notice, which stores nothing new.
        self.notify_decider(&home.asked, by.as_ref(), &mark, &shown)?;
        let kept_as = self.store.put_aside(id, file.revision, why)?;
        let more = json!({ "kept_as": kept_as, "error": why });
        self.record(types::REQUEST_REJECTED_FILE, super::ACTOR, &home.asked, more);
        Ok(None)
    }

    /// Notifies the agent whose decision does not count: the one that it names, otherwise the addressee.
    pub(super) fn notify_decider(
        &self,
        asked: &AskedRequest,
        by: Option<&Name>,
        mark: &str,
        why: &str,
    ) -> Result<()> {
        for to in by.into_iter().chain([&asked.to]) {
            match self.publish(self.rejection(asked, asked.mailbox_of(to), mark, why)) {
                Err(error) if error.is_undeliverable() => {}
                other => return other.map(drop),
            }
        }
        Ok(())
    }

    /// Puts a request aside that cannot be read: all of it. `None` if it can be.
    pub fn reject(&self, id: &Name) -> Result<Option<String>> {
        let _lock = self.store.lock()?;
        let place = |page| self.store.place(id, page);
        let read = self.store.files(id).and_then(|files| {
            let asked = files.map(|files| RequestFiles { decision: None, ..files });
            asked.map(|asked| StoredRequest::of(id, asked, place)).transpose()
        });
        let error = match read {
            Err(error @ (Error::Malformed { .. } | Error::TooLarge { .. })) => error,
            other => return other.map(|_| None),
        };
        if super::file::is_newer(&error) {
            return Err(error);
        }
        let why = error.to_string();
        let kept_as = self.store.reject(id, &why)?;
        let data = json!({ "request_id": id, "kept_as": kept_as, "error": why });
        self.store.recorder().record(types::REQUEST_REJECTED_FILE, super::ACTOR, data);
        Ok(Some(kept_as))
    }

    /// Records a refusal, and is its error.
    pub(super) fn refuse(
        &self,
        refusal: DecisionRefusal,
        home: Option<&StoredRequest>,
        tried: &Decision,
    ) -> Error {
        let mut data = json!({ "request_id": refusal.id() });
        if let Some(home) = home {
            let asked = &home.asked;
            data["kind"] = json!(asked.kind);
            (data["from"], data["to"]) = (json!(asked.from), json!(asked.to));
        }
        (data["by"], data["outcome"]) = (json!(tried.by), json!(tried.outcome));
        data["why"] = refusal.word().into();
        self.store.recorder().record(types::REQUEST_REFUSED, tried.by.as_str(), data);
        refusal.into()
    }
}

fn decided(home: &StoredRequest, decision: Decision) -> DecisionRefusal {
    DecisionRefusal::Decided { id: home.asked.request_id.to_string(), decision }
}
