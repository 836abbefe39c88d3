//! The lines of the protocol, as types: their schema is `ensemble admin schema api`.

use ensemble_app::error_line::ErrorBody;
use serde::Serialize;
use serde_json::{Map, Value};

/// The first line: version and limits.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct ApiHello {
    /// Version of the protocol. A reader refuses one that it does not know
    pub(crate) protocol: u32,
    /// Version of the program
    pub(crate) version: &'static str,
    /// The longest line that is read, in bytes
    pub(crate) line_bytes_max: usize,
    /// How many calls run at once; one more is refused as `busy`
    pub(crate) calls_max: usize,
    /// How many subscriptions there are at once; one more is refused as `busy`
    pub(crate) subscriptions_max: usize,
}

#[derive(Debug, schemars::JsonSchema)]
pub(crate) struct ApiCall {
    /// Text or number of the caller's choice; the answer repeats it
    pub(crate) id: Value,
    /// Words of a command, such as `dead list`, or `wait`, `subscribe`, `unsubscribe`
    pub(crate) method: String,
    /// Flags and arguments by their names
    #[serde(default)]
    pub(crate) params: Map<String, Value>,
}

/// The answer to a call.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct ApiAnswer {
    /// The id of the call; null if the line could not be read
    pub(crate) id: Value,
    /// What the command prints under `--json`, in order; a text for a command that prints no JSON
    pub(crate) result: Value,
    /// Why it failed; as the command's line on stderr
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<ErrorBody>,
}

/// News of a subscription.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct ApiNews {
    /// The id of the call that subscribed
    pub(crate) subscription: Value,
    /// A message, an agent, a request or a record, as the command that lists them prints it
    pub(crate) news: Value,
}

/// The end of a subscription that cannot continue.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct SubscriptionEnd {
    /// The id of the call that subscribed
    pub(crate) subscription: Value,
    /// Why it ended
    pub(crate) error: ErrorBody,
}

/// Any line that the process writes.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "a description of all lines; it is never constructed")]
pub(crate) enum ApiLine {
    /// The first line
    Hello {
        /// Version and limits
        hello: ApiHello,
    },
    /// The answer to a call
    Answer(ApiAnswer),
    /// News of a subscription
    News(ApiNews),
    /// The end of a subscription
    Ended(SubscriptionEnd),
}
