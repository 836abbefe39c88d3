//! Permissions that the server denied to this connection.
//!
//! A denied publish or subscription gets no answer: the server says so in a message to the connection, which names
//! the subject. Each request therefore also waits for a denial of its subject. Where a server has said what may be
//! published, the rest is not asked, so that it logs no violations.
//!
//! ```text
//! request --- answer ---------------------------------------> its result
//!         \-- "Permissions Violation … to "<subject>"" -----> denied: trying again does not help
//! ```
//!
//! A leaf node names the subject into which it has mapped the request's, with the JetStream domain of the servers.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ensemble_core::Error;
use tokio::sync::watch::Sender;

use super::api::{CREATE_CONSUMER, NEXT_MESSAGE};
use super::publish_rules::{PublishRules, without_domain};

const KEPT_MAX: usize = 64;
/// How long what was denied is not asked again.
const REMEMBERED: Duration = Duration::from_secs(600);
/// Phrase of the server's message, in lower case.
const PHRASE: &str = "permissions violation";
/// Beginning of the subjects to which answers come, also with a prefix of a connection's own.
const INBOX: &str = "_INBOX";

/// The recent denials. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct UserDenials(Arc<Sender<RecentDenials>>);

#[derive(Debug, Default)]
struct RecentDenials {
    count: u64,
    texts: VecDeque<PermissionDenial>,
    rules: Option<PublishRules>,
}

#[derive(Debug)]
struct PermissionDenial {
    number: u64,
    at: Instant,
    text: String,
    /// The same with the subject that was asked for.
    as_asked: String,
}

impl UserDenials {
    /// Notes an error that the server has sent, if it is a denial.
    pub(super) fn record_error(&self, text: &str) {
        if !text.to_lowercase().contains(PHRASE) {
            return;
        }
        self.0.send_modify(|recent| {
            recent.count += 1;
            let (number, as_asked) = (recent.count, as_asked(text));
            let (text, at) = (text.to_owned(), Instant::now());
            recent.texts.push_back(PermissionDenial { number, at, text, as_asked });
            if recent.texts.len() > KEPT_MAX {
                recent.texts.pop_front();
            }
        });
    }

    /// Notes what may be published, as the server has said when this program connected.
    pub(super) fn foresee(&self, rules: Option<PublishRules>) {
        self.0.send_modify(|recent| recent.rules = rules);
    }

    pub(super) fn permit(&self, subject: &str) -> bool {
        self.0.borrow().rules.as_ref().is_none_or(|rules| rules.permit(subject))
    }

    /// Forgets all denials: a new connection may have other permissions.
    pub(super) fn forget(&self) {
        self.0.send_modify(|recent| recent.texts.clear());
    }

    /// The denial of a consumer of this pattern on this connection.
    pub(super) fn of_creation(&self, stream: &str, pattern: &str) -> Option<String> {
        self.recall(&format!("\"{CREATE_CONSUMER}{stream}."), &format!(".{pattern}\""))
    }

    fn recall(&self, begin: &str, end: &str) -> Option<String> {
        let recent = self.0.borrow();
        let is_it = |it: &&PermissionDenial| {
            it.at.elapsed() < REMEMBERED && it.as_asked.contains(begin) && it.as_asked.contains(end)
        };
        recent.texts.iter().find(is_it).map(|it| denied(&it.text))
    }

    /// The number of denials so far; later ones are new to its owner.
    pub(super) fn mark(&self) -> u64 {
        self.0.borrow().count
    }

    /// The denial after this mark of a subject that begins so.
    pub(super) fn since(&self, mark: u64, subject: &str) -> Option<String> {
        let begin = format!("\"{subject}");
        let recent = self.0.borrow();
        let of_subject = |it: &&PermissionDenial| it.number > mark && it.as_asked.contains(&begin);
        recent.texts.iter().find(of_subject).map(|it| denied(&it.text))
    }

    /// A denial of consumers of this stream and pattern, or of the answers to any request.
    pub(super) fn of_consumers(&self, stream: &str, pattern: &str) -> Option<String> {
        let create = format!("\"{CREATE_CONSUMER}{stream}.");
        let next = format!("\"{NEXT_MESSAGE}{stream}.");
        let (end, inbox) = (format!(".{pattern}\""), format!("\"{INBOX}"));
        let is_it = |text: &str| {
            let is_created = text.contains(&create) && text.contains(&end);
            is_created || text.contains(&next) || text.contains(&inbox)
        };
        let recent = self.0.borrow();
        let found = recent.texts.iter().find(|it| is_it(&it.as_asked));
        found.map(|it| denied(&it.text))
    }

    /// Runs a request for its result, or until its subject is denied. A whole subject, up to its closing quotation mark,
    /// is not asked again soon after its denial.
    pub(super) async fn or<T>(
        &self,
        subject: &str,
        request: impl Future<Output = T>,
    ) -> Result<T, String> {
        if let Some(whole) = subject.strip_suffix('"').filter(|whole| !self.permit(whole)) {
            self.record_error(&format!("Permissions Violation for Publish to \"{whole}\""));
        }
        // The server would only log another violation.
        let before = self.recall(&format!("\"{subject}"), "");
        if let Some(text) = before.filter(|_| subject.ends_with('"')) {
            return Err(text);
        }
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

/// A denial's text with the subject that was asked for, where a leaf node has mapped it.
fn as_asked(text: &str) -> String {
    let asked = text.split_once('"').and_then(|(before, subject)| {
        without_domain(subject).map(|subject| format!("{before}\"{subject}"))
    });
    asked.unwrap_or_else(|| text.to_owned())
}

/// Beginning of the detail of an error that is a denial.
const DENIED: &str = "denied: ";

fn denied(text: &str) -> String {
    format!("{DENIED}{text}")
}

pub(super) fn is_denial(error: &Error) -> bool {
    matches!(error, Error::Server { detail, unreachable: false, .. } if detail.starts_with(DENIED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_concerns_its_own_subject_and_later_marks_do_not_see_it() {
        let denials = UserDenials::default();
        denials.record_error("Permissions Violation for Publish to \"ens.t.q.w1.a\"");
        denials.record_error("maximum connections exceeded");
        assert!(denials.since(0, "ens.t.q.w1.a").is_some_and(|text| text.contains("ens.t.q.w1.a")));
        assert_eq!(denials.since(0, "ens.t.q.w2"), None);
        let mark = denials.mark();
        assert_eq!((mark, denials.since(mark, "ens.t.q.w1.a")), (1, None));
        for n in 0..100 {
            denials.record_error(&format!("permissions violation for publish to \"{n}\""));
        }
        assert_eq!((denials.since(0, "1\""), denials.since(mark, "99\"").is_some()), (None, true));
    }

    #[tokio::test]
    async fn what_was_denied_is_not_asked_again_on_the_same_connection() {
        let denials = UserDenials::default();
        denials.record_error("Permissions Violation for Publish to \"$JS.API.STREAM.MSG.GET.L\"");
        denials.record_error(
            "permissions violation for publish to \"$JS.API.CONSUMER.CREATE.S.n.in.>\"",
        );
        let asked = |subject: &'static str| denials.or(subject, std::future::ready(()));
        assert!(asked("$JS.API.STREAM.MSG.GET.L\"").await.is_err());
        assert!(asked("$JS.API.STREAM.MSG.GET.LL\"").await.is_ok(), "another stream");
        assert!(asked("$JS.API.STREAM.MSG.GET.").await.is_ok(), "no whole subject");
        assert!(denials.of_creation("S", "in.>").is_some());
        assert_eq!(denials.of_creation("S", "q.>"), None);
        denials.forget();
        assert!(asked("$JS.API.STREAM.MSG.GET.L\"").await.is_ok(), "another connection");
    }

    #[test]
    fn a_leaf_node_s_denial_concerns_what_was_asked_of_it() {
        let denials = UserDenials::default();
        for mapped in ["$JS.hub.API.STREAM.MSG.GET.S", "$JS.hub.API.$KV.S.k", "ens.t.$JS.a.API.b"] {
            denials.record_error(&format!("Permissions Violation for Publish to \"{mapped}\""));
        }
        for asked in ["$JS.API.STREAM.MSG.GET.S\"", "$KV.S.k\"", "ens.t.$JS.a.API.b\""] {
            assert!(denials.since(0, asked).is_some(), "{asked}");
        }
        assert!(denials.since(0, "$KV").is_some_and(|text| text.contains("$JS.hub.API.$KV.S.k")));
    }
}
