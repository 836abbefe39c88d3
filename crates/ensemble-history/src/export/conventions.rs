//! Every name that a trace shows, and the version of the OpenTelemetry semantic conventions from which it comes.
//!
//! A test compares the conventions' names with those of the OpenTelemetry crate. A name that they lack begins with
//! `ensemble.`; such a name is never removed.

pub(super) const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.42.0";

pub(super) const ERROR_TYPE: &str = "error.type";
pub(super) const MESSAGING_CLIENT_ID: &str = "messaging.client.id";
pub(super) const MESSAGING_DESTINATION_NAME: &str = "messaging.destination.name";
pub(super) const MESSAGING_MESSAGE_BODY_SIZE: &str = "messaging.message.body.size";
pub(super) const MESSAGING_MESSAGE_CONVERSATION_ID: &str = "messaging.message.conversation_id";
pub(super) const MESSAGING_MESSAGE_ID: &str = "messaging.message.id";
pub(super) const MESSAGING_OPERATION_NAME: &str = "messaging.operation.name";
pub(super) const MESSAGING_OPERATION_TYPE: &str = "messaging.operation.type";
pub(super) const MESSAGING_SYSTEM: &str = "messaging.system";
pub(super) const SERVICE_NAME: &str = "service.name";
pub(super) const SERVICE_NAMESPACE: &str = "service.namespace";
pub(super) const SERVICE_VERSION: &str = "service.version";

/// The value of `messaging.system` and `service.name`, and the name of the scope.
pub(super) const SYSTEM: &str = "ensemble";

pub(super) const MESSAGE_TYPE: &str = "ensemble.message.type";
pub(super) const MESSAGE_SOURCE: &str = "ensemble.message.source";
/// How a span ended: `settled`, `released`, `dead`, …
pub(super) const OUTCOME: &str = "ensemble.outcome";
pub(super) const EPOCH: &str = "ensemble.epoch";
pub(super) const TASK_ID: &str = "ensemble.task.id";
pub(super) const ATTEMPT: &str = "ensemble.attempt";
pub(super) const WORKER_ID: &str = "ensemble.worker.id";
pub(super) const STEP_INDEX: &str = "ensemble.step.index";
pub(super) const ACTOR: &str = "ensemble.actor";
/// How a member of a record's data is named in an event, before the member's own name.
pub(super) const DATA: &str = "ensemble.data.";

/// Words of the conventions for `messaging.operation.type`.
pub(super) const SEND: &str = "send";
pub(super) const PROCESS: &str = "process";

/// Our names of operations, which with their destination are the names of spans.
pub(super) const PUBLISH: &str = "publish";
pub(super) const REDRIVE: &str = "redrive";
pub(super) const ATTEMPT_SPAN: &str = "attempt";
pub(super) const STEP_SPAN: &str = "step";

#[cfg(test)]
mod tests {
    use opentelemetry_semantic_conventions::{self as conventions, attribute, resource};

    macro_rules! assert_same {
        ($($of:ident: $($name:ident)*;)*) => { $($(assert_eq!(super::$name, $of::$name);)*)* };
    }

    #[test]
    fn names_are_those_of_the_conventions() {
        assert_same! {
            conventions: SCHEMA_URL;
            attribute: ERROR_TYPE MESSAGING_CLIENT_ID MESSAGING_DESTINATION_NAME MESSAGING_MESSAGE_BODY_SIZE
                MESSAGING_MESSAGE_CONVERSATION_ID MESSAGING_MESSAGE_ID MESSAGING_OPERATION_NAME
                MESSAGING_OPERATION_TYPE MESSAGING_SYSTEM;
            resource: SERVICE_NAME SERVICE_NAMESPACE SERVICE_VERSION;
        }
    }
}
