//! What a message asks of its recipient, by its type alone.
//!
//! ```text
//! purpose   types                                                       a worker
//! Work      message, task, step, dispatch.instruction                   does it, reports, settles
//! Request   *_request                                                   answers it, or leaves it
//! Notice    *_response, report.*, mail.*, request.*, board.*, step.*,   reads it and settles it,
//!           steps.*                                                     and sends nothing
//! Other     every other type                                            leaves it, unless it knows it
//! ```
//!
//! A notice is an automatic message. No program answers one automatically: see [RFC 3834], which
//! gives the reason. Two programs that answer each other's notices never stop.
//!
//! [RFC 3834]: https://www.rfc-editor.org/rfc/rfc3834

use super::{Envelope, Name, Timestamp};

pub const WORK_TYPES: [&str; 4] = ["message", "task", "step", "dispatch.instruction"];
pub const PLAIN_TYPE: &str = "message";
pub const TASK_TYPE: &str = "task";
pub const REQUEST_SUFFIX: &str = "_request";
pub const RESPONSE_SUFFIX: &str = "_response";
pub const NOTICE_NAMESPACES: [&str; 6] = ["report", "mail", "request", "board", "step", "steps"];

/// What a message asks of its recipient; see the table at the top of this page.
///
/// ```
/// use ensemble_core::message::MessagePurpose;
/// assert_eq!(MessagePurpose::of("task"), MessagePurpose::Work);
/// assert_eq!(MessagePurpose::of("shutdown_request"), MessagePurpose::Request);
/// assert_eq!(MessagePurpose::of("report.advice"), MessagePurpose::Notice);
/// assert_eq!(MessagePurpose::of("weather"), MessagePurpose::Other);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessagePurpose {
    /// Work: the recipient does it, reports and settles.
    Work,
    /// A question: the recipient answers it. Settling it is not an answer.
    Request,
    /// An automatic message: the recipient reads it. Nothing answers it automatically.
    Notice,
    /// A type that its sender and its recipient have agreed on.
    Other,
}

impl MessagePurpose {
    pub fn of(kind: &str) -> Self {
        if WORK_TYPES.contains(&kind) {
            return Self::Work;
        }
        let namespace = kind.split_once('.').map(|(namespace, _)| namespace);
        if kind.ends_with(REQUEST_SUFFIX) {
            Self::Request
        } else if kind.ends_with(RESPONSE_SUFFIX)
            || namespace.is_some_and(|namespace| NOTICE_NAMESPACES.contains(&namespace))
        {
            Self::Notice
        } else {
            Self::Other
        }
    }

    pub const fn word(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Request => "request",
            Self::Notice => "notice",
            Self::Other => "other",
        }
    }
}

#[cfg_attr(not(feature = "internals"), doc(hidden))]
impl Name {
    #[must_use]
    pub fn purpose(&self) -> MessagePurpose {
        MessagePurpose::of(self.as_str())
    }
}

#[cfg_attr(not(feature = "internals"), doc(hidden))]
impl Envelope {
    #[must_use]
    pub fn purpose(&self) -> MessagePurpose {
        self.kind.purpose()
    }

    /// Whether it was made after `at`. A stamp from the future says nothing, because the clock was set back since.
    pub fn is_later_than(&self, at: Timestamp) -> bool {
        at < self.created_at && self.created_at <= Timestamp::now()
    }

    /// The task that this message hands over, and that ends with it; `None` for a message that only
    /// speaks of a task.
    #[must_use]
    pub fn handed_over_task(&self) -> Option<&str> {
        self.task_id.as_deref().filter(|_| self.kind.as_str() == TASK_TYPE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_that_ensemble_writes_has_its_purpose() {
        let types = [
            ("message task step dispatch.instruction", MessagePurpose::Work),
            ("shutdown_request plan_approval_request hand_over_request", MessagePurpose::Request),
            (
                "shutdown_response plan_approval_response report.completed report.review \
                 report.summary report.escalation report.advice report.rejected mail.returned \
                 board.alarm request.expired step.blocked step.failed steps.done",
                MessagePurpose::Notice,
            ),
            ("news reportage stepping requests tasks Task", MessagePurpose::Other),
        ];
        for (kinds, purpose) in types {
            for kind in kinds.split_whitespace() {
                assert_eq!(MessagePurpose::of(kind), purpose, "{kind}");
            }
        }
    }
}
