//! Answers to requests that travel as ordinary messages, as other programs send them.
//!
//! A sender is known by its pass or its process tree when it sends, so its answer decides then. A received message
//! only states its sender. It decides nothing, and a remark says so.

use ensemble_core::message::Envelope;
use ensemble_core::requests::{CorrelationOutcome, RequestStore, SenderEvidence};

use crate::App;
use crate::diagnostics::say;
use crate::failure::Outcome;
use crate::mail::replying::settle_answered;

/// Applies a message to the request that it asks or answers. A refusal is printed on stderr, and returned.
pub fn correlate(
    app: &App,
    store: &dyn RequestStore,
    envelope: &Envelope,
    sender: SenderEvidence,
) -> Option<String> {
    match correlated(app, store, envelope, sender) {
        Ok(remark) => remark.inspect(|remark| say(remark)),
        Err(failure) => {
            let _ = failure.report();
            None
        }
    }
}

/// As [`correlate`]; returns what the message may not do.
pub fn correlated(
    app: &App,
    store: &dyn RequestStore,
    envelope: &Envelope,
    sender: SenderEvidence,
) -> Outcome<Option<String>> {
    Ok(match app.project()?.requests(store)?.correlate(envelope, sender)? {
        CorrelationOutcome::Refused(refusal) => Some(refusal.to_string()),
        CorrelationOutcome::Unproven(entry) => {
            let (id, to) = (&entry.request.request_id, &entry.request.to);
            Some(format!(
                "request {id} is still open: only this message says that {} has answered, which any \
                 program could write; {to} decides with `ensemble request answer {id}`",
                envelope.from
            ))
        }
        _ => None,
    })
}

/// As [`correlate`], for a message that was sent by the agent that this process acts for. A plain message that it
/// answers is settled.
pub fn sent(app: &App, store: &dyn RequestStore, envelope: &Envelope) {
    if let Err(failure) = settle_answered(app, store, envelope) {
        let _ = failure.report();
    }
    let kinds = app.project().and_then(|project| Ok(project.kinds()?));
    let is_answer = kinds.is_ok_and(|kinds| kinds.answered_by(&envelope.kind).is_some());
    if is_answer {
        correlate(app, store, envelope, SenderEvidence::Proven);
    }
}
