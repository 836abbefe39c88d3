//! The event of a hook: what it is, and what the agent's JSON says of it.

use std::io::{IsTerminal as _, Read};
use std::path::PathBuf;

use ensemble_app::failure::{Failure, Outcome};
use ensemble_core::message::{describe_json_fault, read_foreign_json};
use serde::Deserialize;
use serde_json::Value;

/// The longest event that is read, in bytes. It may hold the whole answer of a tool.
const EVENT_BYTES_MAX: u64 = 64 * 1024 * 1024;
const TEXT_CHARS_MAX: usize = 120;
const PATH_BYTES_MAX: usize = 4_096;

/// What happened to the agent; the table is at the top of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Event {
    /// A session begins, continues, was cleared or compacted
    Start,
    /// A prompt was submitted
    Prompt,
    /// A tool has ended
    Tool,
    /// The turn is about to end
    Stop,
    /// A person is asked for a permission
    Permission,
    /// The agent calls for a person
    Notification,
    /// The turn has ended in an error
    Failure,
    /// The session ends
    End,
    /// Wait for mail in the background, while the session is idle
    Wait,
}

/// The fields of an agent's event that are needed. Fields of another type than expected count as missing.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct EventInput {
    #[serde(rename = "hook_event_name", deserialize_with = "text")]
    pub(crate) name: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(crate) session_id: Option<String>,
    /// The program's record of the session.
    #[serde(deserialize_with = "path")]
    pub(crate) transcript_path: Option<PathBuf>,
    /// `startup`, `resume`, `clear` or `compact`.
    #[serde(deserialize_with = "text")]
    pub(crate) source: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(crate) reason: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(crate) tool_name: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(crate) notification_type: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(crate) message: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(crate) error: Option<String>,
    /// Present in hooks of a subagent.
    #[serde(deserialize_with = "text")]
    pub(super) agent_id: Option<String>,
    /// The turn continues because a Stop hook has already blocked.
    #[serde(deserialize_with = "flag")]
    pub(crate) stop_hook_active: bool,
    /// Answers of the model since the last hook, where the program keeps no record of them.
    #[serde(deserialize_with = "objects")]
    pub(crate) usage: Vec<serde_json::Value>,
    /// The end of the program's record of the session, where that is not a file.
    #[serde(deserialize_with = "whole_text")]
    pub(crate) record: Option<String>,
}

impl Event {
    pub(crate) const fn speaks(self) -> bool {
        matches!(self, Self::Start | Self::Prompt | Self::Tool | Self::Stop)
    }

    pub(crate) const fn introduces(self) -> bool {
        matches!(self, Self::Start | Self::Prompt)
    }
}

impl EventInput {
    /// Reads the event from stdin. A person at a terminal gives none.
    pub(crate) fn read() -> Outcome<Self> {
        let stdin = std::io::stdin();
        if stdin.is_terminal() {
            return Ok(Self::default());
        }
        Self::parse(stdin.lock())
    }

    pub(crate) fn parse(mut source: impl Read) -> Outcome<Self> {
        // Otherwise, the agent would see a broken pipe.
        let mut bytes = Vec::new();
        let read = source.by_ref().take(EVENT_BYTES_MAX).read_to_end(&mut bytes);
        std::io::copy(&mut source, &mut std::io::sink())?;
        read?;
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes).trim_ascii();
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        // A list would fill the fields in their order.
        if bytes.first() != Some(&b'{') {
            return Err(Failure::refused("the event is not a JSON object"));
        }
        read_foreign_json(bytes).map_err(|error| {
            Failure::refused(format!(
                "the event is not as expected: {}",
                describe_json_fault(&error)
            ))
        })
    }

    /// Whether a subagent of the agent has raised the event: what is said there, the agent does not hear.
    pub(crate) const fn is_subagent(&self) -> bool {
        self.agent_id.is_some()
    }
}

fn text<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::String(text) => Some(shortened(&text)),
        _ => None,
    })
}

fn whole_text<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    Ok(Value::deserialize(deserializer)?.as_str().map(str::to_owned))
}

fn path<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::String(text) if text.len() <= PATH_BYTES_MAX => Some(PathBuf::from(text)),
        _ => None,
    }
    .filter(|path| path.is_absolute()))
}

fn objects<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Value>, D::Error> {
    let all = match Value::deserialize(deserializer)? {
        Value::Array(all) => all,
        _ => Vec::new(),
    };
    Ok(all.into_iter().filter(Value::is_object).collect())
}

fn flag<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Value::deserialize(deserializer)? == Value::Bool(true))
}

fn shortened(text: &str) -> String {
    let start: String = text.chars().take(TEXT_CHARS_MAX).collect();
    ensemble_app::text::one_line(&start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Outcome<EventInput> {
        EventInput::parse(text.as_bytes())
    }

    #[test]
    fn fields_of_another_type_are_missing_and_others_do_not_matter() {
        let event = parse(
            r#"{"session_id": 7, "hook_event_name": "Stop", "stop_hook_active": "yes", "source": null,
                "tool_response": {"deep": [[[1, {"x": "y"}]]]}, "message": "a\u001b[31m\nb"}"#,
        )
        .unwrap();
        assert_eq!((event.name.as_deref(), event.session_id), (Some("Stop"), None));
        assert!(!event.stop_hook_active && event.source.is_none());
        assert_eq!(event.message.as_deref(), Some("a\\u{1b}[31m b"));
        assert!(parse(r#"{"stop_hook_active": true}"#).unwrap().stop_hook_active);
        assert!(parse("").is_ok() && parse(" \n").is_ok());
    }

    #[test]
    fn a_character_that_was_cut_costs_no_event() {
        let cut = parse(r#"{"session_id": "s", "error": "cut \ud83d"}"#).unwrap();
        assert_eq!(
            (cut.session_id.as_deref(), cut.error.as_deref()),
            (Some("s"), Some("cut \u{fffd}"))
        );
        let marked = parse("\u{feff}{\"session_id\": \"s\"}").unwrap();
        assert_eq!(marked.session_id.as_deref(), Some("s"));
        let torn = EventInput::parse(&b"{\"message\": \"caf\xe9\"}"[..]).unwrap();
        assert_eq!(torn.message.as_deref(), Some("caf\u{fffd}"));
    }

    #[test]
    fn what_is_no_event_is_an_error() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        for text in ["{", "[]", "7", "\"x\"", "{\"session_id\": }", "\u{0}", deep.as_str()] {
            assert!(parse(text).is_err(), "{}", &text[..text.len().min(20)]);
        }
        assert!(EventInput::parse(&b"\xff\xfe{}"[..]).is_err());
    }

    #[test]
    fn a_huge_event_is_read_to_its_end_and_its_texts_are_cut() {
        let text = format!(
            r#"{{"tool_response": "{}", "message": "{}"}}"#,
            "x".repeat(4 << 20),
            "ü".repeat(1 << 20)
        );
        let event = parse(&text).unwrap();
        assert_eq!(event.message.unwrap().chars().count(), TEXT_CHARS_MAX);
        // Input beyond the limit is read and dropped.
        let mut endless = std::io::repeat(b' ').take(EVENT_BYTES_MAX + 5);
        assert!(EventInput::parse(&mut endless).is_ok());
        assert_eq!(endless.limit(), 0);
    }
}
