//! Hints in the words of the door that shows them. What the application says names commands, as a person types them; a
//! model has tools for most of them, and a program of the API makes calls.

use std::path::Path;

use ensemble_core::message::shell_word;
use serde_json::{Map, Value};

/// A command of a hint as a call: its place, and its arguments by their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HintCall {
    /// The words of the command, such as `mailbox release`.
    pub method: String,
    pub params: Map<String, Value>,
}

/// Reads a command line; `None` if it is none that could be called.
pub type HintReader = fn(&str) -> Option<HintCall>;

/// How a door says a command; `None` if it has nothing for it.
pub type HintRenderer<'r> = &'r dyn Fn(&str) -> Option<String>;

/// Members of results that name commands to their reader. Those with words of others are not among them.
const MEMBERS: [&str; 6] = ["head", "hint", "message", "plan", "remark", "warning"];
/// The member with commands alone, by what they do. Only a message that is delivered has it; its `plan` is a hint, and
/// that of a request is the plan.
const COMMANDS: &str = "commands";
const BODY: &str = "body";

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
            let is_delivered = members.contains_key(COMMANDS);
            for (name, value) in members.iter_mut().filter(|(name, _)| *name != BODY) {
                let is_hint = MEMBERS.contains(&&**name) && (is_delivered || name != "plan");
                match value {
                    Value::String(text) if is_hint => {
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

/// A text whose commands name the queue, if the caller has named one: they are pasted in any directory.
pub fn name_queue(text: &str, queue: Option<&Path>) -> String {
    let flag = queue_flag(queue);
    let named = text.replace("`ensemble ", &format!("`ensemble{flag} "));
    // A command that names another queue keeps it.
    named.replace(&format!("{flag} --queue "), " --queue ")
}

/// The option that names this queue; nothing for that of the project around the caller.
pub fn queue_flag(queue: Option<&Path>) -> String {
    let Some(queue) = queue else { return String::new() };
    let queue = std::path::absolute(queue).unwrap_or_else(|_| queue.to_owned());
    format!(" --queue {}", shell_word(&queue.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_ensemble_says_is_in_the_words_of_the_door() {
        let render = |_: &str| Some("CALL".to_owned());
        let said = "say `ensemble settle m1`";
        let mut message = json!({
            "head": [], "plan": said, "commands": {"settle": "ensemble settle m1"},
            "body": {"message": said, "commands": {"x": "ensemble recv"}},
        });
        render_members(&mut message, &render);
        assert_eq!(message["plan"], "say `CALL`");
        assert_eq!(message["commands"]["settle"], "CALL");
        assert_eq!(message["body"], json!({"message": said, "commands": {"x": "ensemble recv"}}));
        let mut request = json!({ "request_id": "ab", "plan": said });
        render_members(&mut request, &render);
        assert_eq!(request["plan"], said, "the plan itself");
    }
}
