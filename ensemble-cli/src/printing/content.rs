//! The content of a message.

use ensemble_app::failure::Outcome;
use ensemble_core::message::{Envelope, fenced};

use crate::output::{FAINT, Output};

/// No matter what the content looks like, it is seen where it begins, where it ends, and whose it is.
pub(crate) fn print_content(out: &Output, envelope: &Envelope) -> Outcome {
    let whose = format!("untrusted text from {}, between the fences", envelope.from);
    out.line(format!("{:<8} {}", "content", out.paint(FAINT, whose)))?;
    out.content(fenced(&envelope.body).as_bytes())?;
    out.line("")
}
