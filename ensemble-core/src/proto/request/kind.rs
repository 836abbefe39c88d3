//! Kinds of requests, as data instead of code.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Decision, Outcome};

pub const SHUTDOWN: &str = "shutdown";
pub const PLAN_APPROVAL: &str = "plan_approval";
pub const PERMISSION: &str = "permission";
pub const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(2 * 60);
pub const SHUTDOWN_REMIND_EVERY: Duration = Duration::from_secs(30);
pub const PLAN_DEADLINE: Duration = Duration::from_secs(30 * 60);
pub const PLAN_REMIND_EVERY: Duration = Duration::from_secs(5 * 60);

const _: () = assert!(SHUTDOWN_REMIND_EVERY.as_secs() < SHUTDOWN_DEADLINE.as_secs());
const _: () = assert!(PLAN_REMIND_EVERY.as_secs() < PLAN_DEADLINE.as_secs());

/// Action when a request expires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AtExpiry {
    /// The requester is notified.
    #[default]
    Tell,
    /// The requester and the conductor are notified.
    Escalate,
    /// The requested action is carried out without consent.
    Force,
}

/// A kind of request.
///
/// ```
/// use std::time::Duration;
/// use ensemble_core::proto::request::{AtExpiry, RequestKind};
/// let hand_over = RequestKind {
///     deadline: Duration::from_secs(600),
///     at_expiry: AtExpiry::Escalate,
///     ..RequestKind::new("hand_over")
/// };
/// assert_eq!(hand_over.request_type, "hand_over_request");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestKind {
    pub name: Cow<'static, str>,
    pub request_type: Cow<'static, str>,
    pub response_type: Cow<'static, str>,
    pub content_field: Cow<'static, str>,
    /// Field of the response that carries the decider's comment.
    pub comment_field: Cow<'static, str>,
    /// How long a request stays pending.
    pub deadline: Duration,
    /// Interval at which the addressee is reminded while the request is pending.
    pub remind_every: Duration,
    pub at_expiry: AtExpiry,
}

impl RequestKind {
    /// A kind whose message types follow from its name, with the times of a plan.
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        let name = name.into();
        Self {
            request_type: format!("{name}_request").into(),
            response_type: format!("{name}_response").into(),
            content_field: Cow::Borrowed("content"),
            comment_field: Cow::Borrowed("reason"),
            deadline: PLAN_DEADLINE,
            remind_every: PLAN_REMIND_EVERY,
            at_expiry: AtExpiry::Tell,
            name,
        }
    }

    /// The kinds that are known without a configuration. docs/protocol/requests.md has a row for each.
    pub fn built_in() -> Vec<Self> {
        vec![Self::shutdown(), Self::plan_approval(), Self::permission()]
    }

    /// Whether this decision requires an action in addition to notifications: the end of a worker
    /// that approved, or that did not answer in time.
    ///
    /// ```
    /// use ensemble_core::message::{Name, Timestamp};
    /// use ensemble_core::proto::request::{Decision, RequestKind, Outcome};
    /// let (bob, now) = (Name::new("bob")?, Timestamp::from_unix_millis(0));
    /// assert!(RequestKind::shutdown().carries_out(&Decision::new(Outcome::Approved, bob.clone(), now)));
    /// assert!(!RequestKind::shutdown().carries_out(&Decision::new(Outcome::Rejected, bob, now)));
    /// # Ok::<(), ensemble_core::message::NameError>(())
    /// ```
    pub fn carries_out(&self, decision: &Decision) -> bool {
        self.name == SHUTDOWN
            && match decision.outcome {
                Outcome::Approved => true,
                Outcome::Expired => self.at_expiry == AtExpiry::Force,
                Outcome::Rejected | Outcome::Cancelled => false,
            }
    }

    /// Seed 004: finish and exit, or state why not.
    pub fn shutdown() -> Self {
        Self {
            content_field: Cow::Borrowed("reason"),
            deadline: SHUTDOWN_DEADLINE,
            remind_every: SHUTDOWN_REMIND_EVERY,
            at_expiry: AtExpiry::Force,
            ..Self::new(SHUTDOWN)
        }
    }

    /// May the agent use this tool once?
    pub fn permission() -> Self {
        let (deadline, remind_every) = (Duration::from_secs(24 * 60 * 60), Duration::ZERO);
        Self { deadline, remind_every, ..Self::new(PERMISSION) }
    }

    /// Seed 004: approve or reject this plan.
    pub fn plan_approval() -> Self {
        Self {
            content_field: Cow::Borrowed("plan"),
            comment_field: Cow::Borrowed("feedback"),
            at_expiry: AtExpiry::Escalate,
            ..Self::new(PLAN_APPROVAL)
        }
    }
}
