//! The pages of a request: what is in them, and how they are read.
//!
//! What was asked is never changed. A decision is written once; whether it counts follows from the
//! two files alone, so that all readers come to the same answer.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::store::{RequestFile, RequestFiles, RequestStore, StoredFile};
use crate::broker::UnreadMail;
use crate::message::fields::flag_of;
use crate::message::period::read_seconds;
use crate::message::written::document;
use crate::message::{Attachment, Digest, FORMAT_VERSION, Name, Timestamp, yaml};
use crate::proto::request::{AtExpiry, Decision, DecisionRefusal, Outcome, Request, RequestKind};
use crate::{Error, Result};

/// The largest of these pages, in bytes: the longest content, with every character escaped.
pub(crate) const PAGE_BYTES_MAX: usize = 512 * 1024;
pub const COMMENT_BYTES_MAX: usize = 16 * 1024;
pub(super) const UNREAD_APPROVAL: &str = "`approve` is neither true nor false";

/// The question: [`RequestFile::Request`], `requests/<request_id>/request.yaml`. It says everything that is needed to
/// remind of it, to decide it and to answer, so that no configuration is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedRequest {
    #[serde(default = "oldest_version")]
    pub version: u32,
    /// Its id, which is its directory's name.
    #[serde(alias = "requestId")]
    pub request_id: Name,
    pub kind: Name,
    pub from: Name,
    /// The addressee, which alone may decide.
    pub to: Name,
    /// The mailboxes that the two read, where they are not named after them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_mailbox: Option<Name>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_mailbox: Option<Name>,
    /// When it was asked, by the requester's wall clock.
    pub created_at: Timestamp,
    /// How long it stays pending, in seconds.
    #[serde(deserialize_with = "read_seconds")]
    pub deadline_seconds: u64,
    /// How often its addressee is reminded in that time, in seconds; 0 for never.
    #[serde(default, deserialize_with = "read_seconds")]
    pub remind_every_seconds: u64,
    /// The answer that its expiry means.
    #[serde(default)]
    pub at_expiry: AtExpiry,
    /// The type of the message that asks; `<kind>_request` if it is missing.
    pub request_type: Option<Name>,
    /// The type of the message that answers; `<kind>_response` if it is missing.
    pub response_type: Option<Name>,
    #[serde(default = "content_field")]
    pub content_field: String,
    /// The field of the response that carries the decider's words.
    #[serde(default = "comment_field")]
    pub comment_field: String,
    /// The reason, the plan, or another content of the question.
    #[serde(default)]
    pub content: String,
    /// The content, if it is too long for the request itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachment: Option<Attachment>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    /// Revision number of the plan, starting at 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round: Option<u32>,
    /// The request of the round before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Name>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_comment: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// For a shutdown: what happens to the mail that the agent has not read, if it is not what is configured for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread_mail: Option<UnreadMail>,
    /// For a shutdown: the generation of the agent that was asked, so that no clock is needed to see whether it was
    /// restarted since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// The message that has asked already, where a program has sent it by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_by_message: Option<Name>,
}

const fn oldest_version() -> u32 {
    1
}

fn content_field() -> String {
    "content".to_owned()
}

fn comment_field() -> String {
    "reason".to_owned()
}

impl AskedRequest {
    pub fn kind(&self) -> RequestKind {
        let usual = RequestKind::new(self.kind.to_string());
        let or =
            |own: &Option<Name>, usual| own.as_ref().map_or(usual, |own| own.to_string().into());
        RequestKind {
            request_type: or(&self.request_type, usual.request_type),
            response_type: or(&self.response_type, usual.response_type),
            content_field: self.content_field.clone().into(),
            comment_field: self.comment_field.clone().into(),
            deadline: Duration::from_secs(self.deadline_seconds),
            remind_every: Duration::from_secs(self.remind_every_seconds),
            at_expiry: self.at_expiry,
            name: usual.name,
        }
    }

    /// Whether the request may expire now: its deadline has passed, or silence means force and the
    /// comment says how the addressee is known to have gone, so that no answer can be expected.
    pub(super) fn may_expire(&self, expiry: &Decision) -> bool {
        let is_absent = self.at_expiry == AtExpiry::Force && !expiry.comment.is_empty();
        is_absent || expiry.at >= self.deadline_at()
    }

    pub fn deadline_at(&self) -> Timestamp {
        self.created_at.plus(Duration::from_secs(self.deadline_seconds))
    }

    /// The mailbox in which an agent reads what this request has for it.
    pub fn mailbox_of<'a>(&'a self, agent: &'a Name) -> &'a Name {
        let sides = [(&self.from, &self.from_mailbox), (&self.to, &self.to_mailbox)];
        let own = sides.into_iter().find(|(name, _)| *name == agent);
        own.and_then(|(_, mailbox)| mailbox.as_ref()).unwrap_or(agent)
    }

    pub fn question_mailbox(&self) -> &Name {
        self.mailbox_of(&self.to)
    }

    /// Its machine, which knows of nothing that has happened yet.
    pub fn machine(&self) -> Request {
        let (from, to) = (self.from.clone(), self.to.clone());
        Request::new(self.request_id.as_str(), self.kind(), from, to, self.created_at)
    }

    /// Whether both ask the same: what a retry is compared by.
    pub(super) fn asks_the_same(&self, other: &Self) -> bool {
        let of = |asked: &Self| {
            let Self { kind, from, to, content, attachment, task_id, .. } = asked.clone();
            (kind, from, to, content, attachment, task_id)
        };
        of(self) == of(other)
    }
}

/// A decision file: Ensemble's own, or one that a script has made.
#[derive(Debug, Serialize, Deserialize)]
struct DecisionFile {
    #[serde(default = "oldest_version")]
    version: u32,
    #[serde(default, alias = "requestId", skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    outcome: Option<Outcome>,
    #[serde(default, alias = "approved", deserialize_with = "read_approval")]
    #[serde(skip_serializing_if = "Option::is_none")]
    approve: Option<bool>,
    by: Name,
    #[serde(default, deserialize_with = "read_stamp", skip_serializing_if = "Option::is_none")]
    at: Option<Timestamp>,
    #[serde(default, alias = "reason", alias = "feedback")]
    comment: Option<String>,
    /// Of the request's file: what was decided upon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request_sha256: Option<Digest>,
}

fn read_approval<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    match flag_of(&value) {
        None if !value.is_null() => Err(D::Error::custom(UNREAD_APPROVAL)),
        approve => Ok(approve),
    }
}

/// The stamp is for people: one that cannot be read is as good as none, and undoes no decision.
fn read_stamp<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(value.as_str().and_then(|text| text.parse().ok()))
}

/// How far everything is done that follows from the decision.
#[derive(Debug, Serialize)]
struct MarkFile<'a> {
    version: u32,
    request_id: &'a Name,
    outcome: Outcome,
    at: Timestamp,
}

#[derive(Debug)]
pub struct StoredRequest {
    pub(super) asked: AskedRequest,
    pub(super) sha256: Digest,
    pub(super) standing: DecisionState,
    pub(super) is_told: bool,
    pub(super) is_closed: bool,
}

/// The content of a decision file.
#[derive(Debug)]
pub(super) enum DecisionState {
    Nothing,
    Valid(Decision),
    /// Something that decides nothing, and why.
    Invalid(StoredFile, String),
}

impl StoredRequest {
    /// Reads a request; `None` if there is none.
    pub(super) fn read(store: &dyn RequestStore, id: &Name) -> Result<Option<Self>> {
        let Some(files) = store.files(id)? else { return Ok(None) };
        Self::of(id, files, |page| store.place(id, page)).map(Some)
    }

    /// Parses a request's files, without looking at anything else.
    pub fn of(
        id: &Name,
        files: RequestFiles,
        place: impl Fn(RequestFile) -> PathBuf,
    ) -> Result<Self> {
        let path = place(RequestFile::Request);
        let asked: AskedRequest = parse(&files.request.content, &path)?;
        check_version(asked.version, &path)?;
        if asked.request_id != *id {
            let detail = format!("says `{}`, its place is `{id}`", asked.request_id);
            return Err(Error::malformed(path, "request_id", detail));
        }
        let mut home = Self {
            asked,
            sha256: Digest::of(&files.request.content),
            standing: DecisionState::Nothing,
            is_told: files.is_told,
            is_closed: files.is_closed,
        };
        home.standing = match files.decision {
            None => DecisionState::Nothing,
            Some(Err(why)) => {
                let unread = StoredFile::new(Vec::new(), Timestamp::from_unix_millis(0), 0);
                DecisionState::Invalid(unread, why)
            }
            Some(Ok(written)) => home.standing(written, &place(RequestFile::Decision))?,
        };
        Ok(home)
    }

    /// Judges a file that is in place of a decision.
    fn standing(&self, written: StoredFile, path: &Path) -> Result<DecisionState> {
        let text = String::from_utf8_lossy(&written.content);
        let file: DecisionFile = match yaml::parse(&document(&text), path) {
            Ok(file) => file,
            Err(error) => return Ok(DecisionState::Invalid(written, error.to_string())),
        };
        check_version(file.version, path)?;
        Ok(match self.judge(file, written.at) {
            Ok(decision) => DecisionState::Valid(decision),
            Err(why) => DecisionState::Invalid(written, why),
        })
    }

    pub(super) fn decision(&self) -> Option<Decision> {
        match &self.standing {
            DecisionState::Nothing | DecisionState::Invalid(..) => None,
            DecisionState::Valid(decision) => Some(decision.clone()),
        }
    }

    fn judge(&self, file: DecisionFile, made_at: Timestamp) -> Result<Decision, String> {
        let asked = &self.asked;
        if let Some(other) = file.request_id.filter(|id| id != asked.request_id.as_str()) {
            return Err(format!("it is about request_id '{other}'"));
        }
        if file.request_sha256.is_some_and(|sha256| sha256 != self.sha256) {
            return Err("it was made for another content of request.yaml".to_owned());
        }
        let outcome = match (file.outcome, file.approve) {
            (None, None) => return Err("it says neither `approve` nor `outcome`".to_owned()),
            (None, Some(true)) => Outcome::Approved,
            (None, Some(false)) => Outcome::Rejected,
            (Some(outcome), approve) => {
                if approve.is_some_and(|approve| approve != (outcome == Outcome::Approved)) {
                    return Err(format!("its `approve` and its outcome {} differ", outcome.word()));
                }
                outcome
            }
        };
        let comment = file.comment.unwrap_or_default();
        let at = file.at.unwrap_or(made_at);
        let decision = Decision::new(outcome, file.by, at).with_comment(comment);
        match outcome {
            // Time has no name: it must have ended, and it speaks for the silent addressee.
            Outcome::Expired if decision.by != asked.to || !asked.may_expire(&decision) => {
                Err("its deadline is not over".to_owned())
            }
            Outcome::Expired => Ok(decision),
            Outcome::Approved | Outcome::Rejected | Outcome::Cancelled => {
                asked.machine().check(&decision).map(|()| decision).map_err(|r| r.to_string())
            }
        }
    }

    /// Checks whether this decision would count if it were written.
    pub(super) fn counts(&self, decision: &Decision) -> Result<()> {
        if decision.outcome != Outcome::Expired {
            return Ok(self.asked.machine().check(decision)?);
        }
        if decision.by == self.asked.to && self.asked.may_expire(decision) {
            return Ok(());
        }
        let id = self.asked.request_id.to_string();
        Err(DecisionRefusal::NotOver { id }.into())
    }

    pub(super) fn render(&self, decision: &Decision) -> String {
        yaml::render(&DecisionFile {
            version: FORMAT_VERSION,
            request_id: Some(self.asked.request_id.to_string()),
            outcome: Some(decision.outcome),
            approve: Some(decision.outcome == Outcome::Approved),
            by: decision.by.clone(),
            at: Some(decision.at),
            comment: Some(decision.comment.clone()),
            request_sha256: Some(self.sha256),
        })
    }

    /// The content of a file that says how far everything is done.
    pub(super) fn render_mark(&self, outcome: Outcome, at: Timestamp) -> String {
        let request_id = &self.asked.request_id;
        yaml::render(&MarkFile { version: FORMAT_VERSION, request_id, outcome, at })
    }
}

fn parse<T: serde::de::DeserializeOwned>(content: &[u8], path: &Path) -> Result<T> {
    yaml::parse(yaml::decode_text(content, path)?, path)
}

/// A decider's words as they are passed on: not too long, and without what steers a terminal.
pub(super) fn clip(comment: &str) -> String {
    let mut end = comment.len().min(COMMENT_BYTES_MAX);
    while !comment.is_char_boundary(end) {
        end -= 1;
    }
    let steers = |c: char| c.is_control() && c != '\n' && c != '\t';
    comment[..end].chars().map(|c| if steers(c) { '\u{fffd}' } else { c }).collect()
}

/// A file of a newer program is neither obeyed nor set aside.
fn check_version(version: u32, path: &Path) -> Result<()> {
    if version <= FORMAT_VERSION {
        return Ok(());
    }
    let detail = format!("{version} is newer than {FORMAT_VERSION}: update ensemble");
    Err(Error::malformed(path, "version", detail))
}

/// Whether an error is that of a file which a newer program has made.
pub(super) fn is_newer(error: &Error) -> bool {
    matches!(error, Error::Malformed { field, .. } if field == "version")
}
