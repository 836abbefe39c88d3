use anstyle::Style;
use ensemble_app::failure::Outcome;
use ensemble_app::queue::ProjectQueue;
use ensemble_app::text::{inline, one_line};
use ensemble_core::event_log::Record;
use ensemble_core::message::{Envelope, fenced};
use serde_json::Value;

use crate::output::{FAINT, Output};

/// No matter what the content looks like, it is seen where it begins, where it ends, and whose it is.
pub(crate) fn print_content(out: &Output, envelope: &Envelope) -> Outcome {
    let whose = format!("untrusted text from {}, between the fences", envelope.sender_address());
    out.line(format!("{:<8} {}", "content", out.paint(FAINT, whose)))?;
    out.content(fenced(&envelope.body).as_bytes())?;
    out.line("")
}

/// The content as it is, of the attachment if there is one.
pub(crate) fn print_body(out: &Output, queue: &ProjectQueue, envelope: &Envelope) -> Outcome {
    match &envelope.attachment {
        Some(attachment) => out.content(&queue.attached(attachment)?),
        None => out.content(envelope.body.as_bytes()),
    }
}

pub(crate) fn record_line(out: &Output, record: &Record, style: Style) -> String {
    let time = record.timestamp.to_string().replace('T', " ");
    format!(
        "{}  {}  {}  {}",
        out.paint(FAINT, time.trim_end_matches('Z')),
        out.paint(style, &record.kind),
        one_line(&record.actor),
        inline(&Value::Object(record.data.clone())),
    )
}
