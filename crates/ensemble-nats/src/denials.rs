//! Permissions that the server denied to this connection.
//!
//! A denied publish or subscription gets no answer: the server says so in a message to the connection,
//! which names the subject. Each request therefore also waits for a denial of its own subject.
//!
//! ```text
//! request --- answer ---------------------------------------> its result
//!         \-- "Permissions Violation … to "<subject>"" -----> denied: trying again does not help
//! ```

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;

use ensemble_core::Error;
use tokio::sync::watch::Sender;

use super::consumer::{CREATE, NEXT};

/// Number of recent denials that are kept.
const KEPT_MAX: usize = 64;
/// Phrase of the server's message, in lower case.
const PHRASE: &str = "permissions violation";
/// Beginning of the subjects to which answers come, also with a prefix of a connection's own.
const INBOX: &str = "_INBOX";

/// The recent denials. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Denials(Arc<Sender<Recent>>);

#[derive(Debug, Default)]
struct Recent {
    count: u64,
    /// The server's messages, with their numbers.
    texts: VecDeque<(u64, String)>,
}

impl Denials {
    /// Notes an error that the server has sent, if it is a denial.
    pub(super) fn note(&self, text: &str) {
        if !text.to_lowercase().contains(PHRASE) {
            return;
        }
        self.0.send_modify(|recent| {
            recent.count += 1;
            recent.texts.push_back((recent.count, text.to_owned()));
            if recent.texts.len() > KEPT_MAX {
                recent.texts.pop_front();
            }
        });
    }

    /// The number of denials so far; later ones are new to its owner.
    pub(super) fn mark(&self) -> u64 {
        self.0.borrow().count
    }

    /// The denial after this mark of a subject that begins so.
    pub(super) fn since(&self, mark: u64, subject: &str) -> Option<String> {
        let begin = format!("\"{subject}");
        let recent = self.0.borrow();
        let of_subject = |(number, text): &&(u64, String)| *number > mark && text.contains(&begin);
        recent.texts.iter().find(of_subject).map(|(_, text)| denied(text))
    }

    /// A denial of consumers of this stream and pattern, or of the answers to any request.
    pub(super) fn of_consumers(&self, stream: &str, pattern: &str) -> Option<String> {
        let (create, next) = (format!("\"{CREATE}{stream}."), format!("\"{NEXT}{stream}."));
        let (end, inbox) = (format!(".{pattern}\""), format!("\"{INBOX}"));
        let is_it = |text: &str| {
            let is_created = text.contains(&create) && text.contains(&end);
            is_created || text.contains(&next) || text.contains(&inbox)
        };
        let recent = self.0.borrow();
        let found = recent.texts.iter().find(|(_, text)| is_it(text));
        found.map(|(_, text)| denied(text))
    }

    /// Runs a request for its result, or until its subject is denied.
    pub(super) async fn or<T>(
        &self,
        subject: &str,
        request: impl Future<Output = T>,
    ) -> Result<T, String> {
        let mark = self.mark();
        let denied = async {
            let mut changes = self.0.subscribe();
            loop {
                // An inbox is denied once, at its first use; no later request on it is answered.
                if let Some(text) = self.since(mark, subject).or_else(|| self.since(0, INBOX)) {
                    return text;
                }
                if changes.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::select! {
            biased;
            result = request => Ok(result),
            text = denied => Err(text),
        }
    }
}

/// Beginning of the detail of an error that is a denial.
const DENIED: &str = "denied: ";

fn denied(text: &str) -> String {
    format!("{DENIED}{text}")
}

/// Whether the servers denied what was tried.
pub(super) fn is_denial(error: &Error) -> bool {
    matches!(error, Error::Server { detail, unreachable: false, .. } if detail.starts_with(DENIED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_concerns_its_own_subject_and_later_marks_do_not_see_it() {
        let denials = Denials::default();
        denials.note("Permissions Violation for Publish to \"ens.t.q.w1.a\"");
        denials.note("maximum connections exceeded");
        assert!(denials.since(0, "ens.t.q.w1.a").is_some_and(|text| text.contains("ens.t.q.w1.a")));
        assert_eq!(denials.since(0, "ens.t.q.w2"), None);
        let mark = denials.mark();
        assert_eq!((mark, denials.since(mark, "ens.t.q.w1.a")), (1, None));
        for n in 0..100 {
            denials.note(&format!("permissions violation for publish to \"{n}\""));
        }
        assert_eq!((denials.since(0, "1\""), denials.since(mark, "99\"").is_some()), (None, true));
    }
}
