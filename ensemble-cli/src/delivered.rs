//! What a holder is told with a message: how long it is held, how many more wait, and how to go on.

use std::time::Duration;

use ensemble_core::broker::Broker;
use ensemble_core::env::Delivery;
use ensemble_core::message::{Envelope, Purpose, yaml};
use serde_json::{Map, Value, json};

use crate::text::age;

/// Waiting messages are counted up to here.
const COUNT_MAX: usize = 100;
/// For how long the shown command extends a lease.
const EXTENSION: &str = "30m";

/// The instructions for one delivery.
pub(crate) struct Delivered {
    /// How long the message is held.
    pub(crate) held: String,
    /// How many more messages could be received now, up to a limit.
    pub(crate) waiting: usize,
    /// Commands by what they do, in the order of their use.
    pub(crate) commands: Vec<(&'static str, String)>,
}

impl Delivered {
    /// Counts what waits, and writes the commands with the ids of this delivery.
    pub(crate) fn new(queue: &dyn Broker, delivery: &Delivery) -> Self {
        let Delivery { envelope, lease, lease_duration, .. } = delivery;
        let waiting = queue.count_due(&lease.mailbox, COUNT_MAX).unwrap_or(0);
        let (id, who) = (&lease.id, format!("--as {}", lease.holder));
        let mailbox = match lease.mailbox == lease.holder {
            true => String::new(),
            false => format!(" --mailbox {}", lease.mailbox),
        };
        let mut commands = Vec::new();
        let is_work = envelope.purpose() == Purpose::Work;
        if let (true, Some(task)) = (is_work, shell_word(envelope)) {
            let report = format!("ensemble report {task} --status success --summary TEXT {who}");
            commands.push(("report", report));
        }
        commands.push(("settle", format!("ensemble settle {id}{mailbox} {who}")));
        commands
            .push(("extend", format!("ensemble mailbox extend {id} {EXTENSION}{mailbox} {who}")));
        commands.push(("release", format!("ensemble release {id}{mailbox} {who}")));
        Self { held: held(*lease_duration, is_work), waiting, commands }
    }

    /// How many more wait, in words.
    pub(crate) fn more(&self) -> String {
        match self.waiting {
            0 => "none".to_owned(),
            COUNT_MAX.. => format!("{COUNT_MAX} or more"),
            count => format!("{count} more"),
        }
    }

    /// The commands by name.
    pub(crate) fn commands(&self) -> Value {
        let commands = self.commands.iter();
        commands.map(|(what, line)| ((*what).to_owned(), json!(line))).collect::<Map<_, _>>().into()
    }
}

fn held(lease: Duration, is_work: bool) -> String {
    let until = if is_work { "you report or settle" } else { "you settle" };
    format!("for {}, until {until}; extended while you are seen working", age(lease))
}

/// The task of a message, if it needs no quoting in a shell.
fn shell_word(envelope: &Envelope) -> Option<&str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    envelope.task_id.as_deref().filter(|task| task.chars().all(is_plain) && !task.starts_with('-'))
}

/// An envelope as JSON whose `body` is a mapping where its text is one; `body_text` is the text.
pub(crate) fn envelope_json(envelope: &Envelope) -> Value {
    let mut object = json!(envelope);
    object["body_text"] = json!(envelope.body);
    object["body"] = body_json(&envelope.body);
    object
}

/// A body as a mapping where its text is one, else as text.
pub(crate) fn body_json(text: &str) -> Value {
    let fields = yaml::parse::<Map<String, Value>>(text, "body".as_ref());
    fields.ok().filter(|fields| !fields.is_empty()).map_or_else(|| text.into(), Value::Object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ensemble_core::message::Name;

    #[test]
    fn a_body_is_a_mapping_where_its_text_is_one() {
        let body = |text: &str| {
            let object = envelope_json(&Envelope::new(Name::new("w1").unwrap(), text));
            assert_eq!(object["body_text"], text);
            object["body"].clone()
        };
        assert_eq!(body("# Answer it\nrequest_id: ab12\nround: 2\n")["request_id"], "ab12");
        for text in ["plain words\n", "", "- a list\n- of items\n", "a: b\na: c\n", "7", "{broken"]
        {
            assert_eq!(body(text), text);
        }
    }
}
