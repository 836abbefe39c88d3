//! When the watcher answers a file automatically, and when it does not.
//!
//! ```text
//! the file                                        advice, rejection notice      recorded
//! is about an automatic message                   none                          loop_detected, once
//! is the 1st to ANSWERS_MAX-th in a row of its    to the author                 -
//!   author with something to say about
//! is the next one                                 rejection: to the recipients  loop_detected, once
//!                                                   of the route; advice: none
//! is a later one                                  none                          -
//! has nothing to say about                        none; the row begins anew     -
//! ```
//!
//! A worker that takes each message for a task reports on advice as well, which leads to advice
//! about that report. So nothing that is about an automatic message is answered. The row bounds
//! every other circle, such as that of an agent which writes the same mistake again and again. The
//! rows are kept in memory: a new watcher begins them again.

use std::collections::HashMap;

use ensemble_core::broker::Broker as _;
use ensemble_core::message::{MessageId, MessagePurpose, Name};
use ensemble_core::spool::Spool;
use serde_json::Value;

use ensemble_core::Result;
use ensemble_core::dropbox::{CompleteFile, UnfitFile};

use crate::work_file::loose_fields;

pub(crate) const ANSWERS_MAX: u32 = 5;
/// The fields of a file that may name the message it is about.
const SUBJECT_FIELDS: [&str; 5] = ["message_id", "messageId", "task_id", "taskId", "causation_id"];
/// How the ids of automatic messages begin, for those that have been swept.
const NOTICE_PREFIXES: [&str; 4] = ["l-", "x-", "alarm-", "returned-"];
/// How many digits of a digest follow such a beginning.
pub(crate) const NOTICE_DIGITS: usize = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerPermit {
    Author,
    /// The author was notified often enough; the recipients of the file's route are notified.
    Recipients,
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AnswerLoop {
    pub(crate) answers: u32,
    /// `notice`: the file is about an automatic message; `row`: the row is too long.
    pub(crate) why: &'static str,
}

#[derive(Debug, Default)]
struct AnswerStreak {
    answers: u32,
    is_recorded: bool,
}

#[derive(Debug, Default)]
pub(crate) struct AnswerCounts(HashMap<Name, AnswerStreak>);

impl AnswerCounts {
    /// The author has written something about which there is nothing to say.
    pub(crate) fn is_fine(&mut self, author: &Name) {
        self.0.remove(author);
    }

    /// Whether a file is answered, and the loop to record, if one has just been found.
    pub(crate) fn permit(
        &mut self,
        author: &Name,
        is_about_notice: bool,
    ) -> (AnswerPermit, Option<AnswerLoop>) {
        let row = self.0.entry(author.clone()).or_default();
        let why = if is_about_notice {
            "notice"
        } else if row.answers >= ANSWERS_MAX {
            "row"
        } else {
            row.answers += 1;
            return (AnswerPermit::Author, None);
        };
        let is_new = !std::mem::replace(&mut row.is_recorded, true);
        let found = is_new.then_some(AnswerLoop { answers: row.answers, why });
        let permit =
            if is_new && !is_about_notice { AnswerPermit::Recipients } else { AnswerPermit::None };
        (permit, found)
    }

    /// Passes on how an answer was sent. One that failed does not count, because it is tried again.
    pub(crate) fn note_sent<T>(
        &mut self,
        author: Option<&Name>,
        permit: AnswerPermit,
        sent: Result<T>,
    ) -> Result<T> {
        if sent.is_err()
            && let Some(author) = author
            && let Some(row) = self.0.get_mut(author)
        {
            match permit {
                AnswerPermit::Author => row.answers -= 1,
                AnswerPermit::Recipients => row.is_recorded = false,
                AnswerPermit::None => {}
            }
        }
        sent
    }
}

/// Whether a delivered file is about an automatic message in its author's mailbox.
pub(crate) fn is_about_notice(file: &CompleteFile, author: &Name, spool: &Spool) -> bool {
    let fields = SUBJECT_FIELDS.iter().filter_map(|field| file.fields.get(field));
    let named = fields.filter_map(Value::as_str).chain(stem(&file.file));
    named.into_iter().any(|id| is_notice(id, author, spool))
}

/// As [`is_about_notice`], for a file that is set aside and may not be YAML.
pub(crate) fn is_unfit_about_notice(unfit: &UnfitFile, author: &Name, spool: &Spool) -> bool {
    let fields = loose_fields(&unfit.content);
    let named = (fields.iter())
        .filter(|(field, _)| SUBJECT_FIELDS.contains(&field.as_str()))
        .map(|(_, value)| value.trim().trim_end_matches(',').trim_matches(['"', '\'']));
    named.chain(stem(&unfit.file)).any(|id| is_notice(id, author, spool))
}

/// The task that a report's file name names.
fn stem(file: &str) -> Option<&str> {
    file.strip_suffix("-completed.yaml").or_else(|| file.strip_suffix("-review.yaml"))
}

fn is_notice(id: &str, author: &Name, spool: &Spool) -> bool {
    let Ok(id) = MessageId::new(id) else { return false };
    match spool.peek(&spool.mailbox_of(author), &id) {
        Ok(envelope) => envelope.purpose() == MessagePurpose::Notice,
        // It is not there any more, or on servers.
        Err(_) => NOTICE_PREFIXES.iter().any(|prefix| {
            let digits = id.as_str().strip_prefix(prefix);
            digits.is_some_and(|digits| {
                digits.len() == NOTICE_DIGITS && digits.bytes().all(|b| b.is_ascii_hexdigit())
            })
        }),
    }
}

#[cfg(test)]
mod tests {
    use ensemble_core::Error;

    use super::*;

    #[test]
    fn a_row_ends_with_one_record_and_begins_anew_after_something_fine() {
        let (mut answers, author) = (AnswerCounts::default(), Name::new("worker-1").unwrap());
        for _ in 0..=ANSWERS_MAX {
            let (permit, _) = answers.permit(&author, false);
            assert_eq!(permit, AnswerPermit::Author, "one that was not stored does not count");
            let failed: Result<()> = Err(Error::NoQueue { path: "queue".into() });
            assert!(answers.note_sent(Some(&author), permit, failed).is_err());
        }
        for _ in 0..2 {
            for _ in 0..ANSWERS_MAX {
                assert_eq!(answers.permit(&author, false), (AnswerPermit::Author, None));
            }
            let found = AnswerLoop { answers: ANSWERS_MAX, why: "row" };
            assert_eq!(answers.permit(&author, false), (AnswerPermit::Recipients, Some(found)));
            assert_eq!(answers.permit(&author, false), (AnswerPermit::None, None));
            answers.is_fine(&author);
        }
    }

    #[test]
    fn what_is_about_a_notice_is_never_answered_and_recorded_once() {
        let (mut answers, author) = (AnswerCounts::default(), Name::new("worker-1").unwrap());
        let found = AnswerLoop { answers: 0, why: "notice" };
        assert_eq!(answers.permit(&author, true), (AnswerPermit::None, Some(found)));
        assert_eq!(answers.permit(&author, true), (AnswerPermit::None, None));
        assert_eq!(answers.permit(&author, false), (AnswerPermit::Author, None));
    }
}
