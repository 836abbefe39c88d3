//! Hints in the words of the door that shows them. What the application says names commands, as a person types them; a
//! model has tools for most of them, and a program of the API makes calls.

use serde_json::{Map, Value};

/// A command of a hint as a call: its place, and its arguments by their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HintCall {
    /// The words of the command, such as `mailbox release`.
    pub method: String,
    /// Flags and arguments.
    pub params: Map<String, Value>,
}

/// Reads a command line; `None` if it is none that could be called.
pub type HintReader = fn(&str) -> Option<HintCall>;

/// How a door says a command; `None` if it has nothing for it.
pub type HintRenderer<'r> = &'r dyn Fn(&str) -> Option<String>;

/// Members of results that name commands to their reader. Those with words of others are not among them.
const MEMBERS: [&str; 6] = ["head", "hint", "message", "plan", "remark", "warning"];
/// The member with commands alone, by what they do.
const COMMANDS: &str = "commands";

/// A text with its commands in the words of a door. What the door has nothing for stays a command.
pub fn render_hints(text: &str, render: HintRenderer<'_>) -> String {
    let parts = text.split('`').enumerate().map(|(at, part)| {
        let is_command = at % 2 == 1 && part.starts_with("ensemble ");
        is_command.then(|| render(part)).flatten().unwrap_or_else(|| part.to_owned())
    });
    parts.collect::<Vec<_>>().join("`")
}

/// The same for what a result says to its reader.
pub fn render_members(value: &mut Value, render: HintRenderer<'_>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                match value {
                    Value::String(text) if MEMBERS.contains(&&**name) => {
                        *text = render_hints(text, render);
                    }
                    Value::Object(lines) if name == COMMANDS => {
                        for line in lines.values_mut() {
                            if let Some(said) = line.as_str().and_then(render) {
                                *line = said.into();
                            }
                        }
                    }
                    other => render_members(other, render),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| render_members(item, render)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
