//! Reads arguments as models and clients write them, and names all mistakes of a call at once.
//!
//! | written | read as |
//! |---|---|
//! | `taskId`, `task-id`; `body` for `message`; `agent` for `to`; `timeout` for `timeout_seconds` | the argument of that name |
//! | `task`, `request_id` or another id where there is one id | that id |
//! | `""` or `null` in an optional field | absent: some clients fill in every field |
//! | a number, `true`, a list or an object as text | the value |
//! | all arguments in `arguments`, `input` or the like | those arguments |
//! | `5.0` where an integer is meant | `5` |
//! | a number, or a list with one text, where a text is meant | its text |
//! | a text where a list is meant | its lines, or its words with commas between them |
//! | `Yes`, `FALSE` where true or false is meant | `true`, `false` |
//! | `5m` where seconds are meant | `300` |
//! | `63.4 %` of the context, which only people read | `63`; anything else is absent |
//! | a word in another case; `failure` or another word for the end of a task | the one of the schema |

use ensemble_app::mail::elsewhere::Address;
use ensemble_core::message::fields::{flag_of, is_absent, with_known_names};
use ensemble_core::message::period::whole_seconds;
use ensemble_core::message::{DeliveryClass, Name, TraceParent, nearest};
use ensemble_reports::contract::{Status, count_of, listed_in};
use serde_json::{Map, Value};

use super::ToolError;
use crate::args;

const NO_REASON: &str = "reason: say what is in the way, where, since when";

/// Arguments with each value in the type that the tool's schema names, or all that is wrong with them.
pub(in crate::mcp) fn read_arguments(schema: &Value, arguments: Value) -> Result<Value, ToolError> {
    let Value::Object(given) = arguments else {
        return Err(ToolError::new("nothing was done: pass the arguments as an object"));
    };
    let properties = schema["properties"].as_object();
    let is_known = |field: &str| properties.is_some_and(|all| all.contains_key(field));
    let is_closed = schema["additionalProperties"] == false;
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let (mut read, mut faults) = (Map::new(), Vec::new());
    for (field, value) in with_known_names(&given, &is_known) {
        // Of a required one, that is said below.
        if value.is_null() || (!required.contains(&&*field) && value == "") {
            continue;
        }
        if is_closed && !is_known(&field) {
            let names = properties.into_iter().flatten().map(|(name, _)| name.as_str());
            faults.push(format!("{field}: is not an argument{}", suggestion(&field, names)));
            continue;
        }
        if field == "context_used" {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            read.extend(args::share(&text).map(|share| (field, share.into())));
            continue;
        }
        if is_closed && value.as_str().is_some_and(|text| text.trim().is_empty()) {
            faults.push(format!("{field}: is empty"));
            continue;
        }
        let value = if field.ends_with("_seconds") { in_seconds(value) } else { value };
        let (property, given) = (&schema["properties"][&field], value.clone());
        let meant = match read_value(property, is_closed, value) {
            // The reader of an open schema names all that is wrong.
            Err(_) if !is_closed => Ok(given),
            value => value.and_then(|value| read_text(&field, property, value)),
        };
        match meant {
            Ok(value) => {
                read.insert(field, value);
            }
            Err(fault) => faults.push(format!("{field}: {fault}")),
        }
    }
    let is_named = |field: &str| {
        read.contains_key(field)
            || faults.iter().any(|fault| fault.starts_with(&format!("{field}: ")))
    };
    let is_undone = read.get("status").is_some_and(|status| status != "success");
    let says_none = read.get("reason").and_then(Value::as_str).is_some_and(is_absent);
    let has_reason = is_named("reason") && !says_none;
    let lacks_reason = is_closed && is_undone && is_known("reason") && !has_reason;
    let missing: Vec<String> = required
        .iter()
        .filter(|field| is_closed && !is_named(field))
        .map(|field| format!("{field}: is missing"))
        .chain(lacks_reason.then(|| NO_REASON.to_owned()))
        .collect();
    match [missing, faults].concat().as_slice() {
        [] => Ok(Value::Object(read)),
        faults => Err(ToolError::new(format!("nothing was done: {}", faults.join("; ")))),
    }
}

/// The arguments that some clients put into one more object, or into its text.
pub(in crate::mcp) fn without_wrapper(given: Map<String, Value>) -> Map<String, Value> {
    let wrapper = ["arguments", "args", "input", "parameters", "params"];
    let only = wrapper.iter().find_map(|name| given.get(*name)).filter(|_| given.len() == 1);
    match only.map(|only| converted("object", only.clone())) {
        Some(Ok(Value::Object(inner))) => inner,
        _ => given,
    }
}

fn suggestion<'n>(field: &str, names: impl Iterator<Item = &'n str> + Clone) -> String {
    match nearest(field, names.clone()).first() {
        Some(near) => format!(" (did you mean {near}?)"),
        None if names.clone().next().is_none() => " (there are none)".to_owned(),
        None => format!(" (there are {})", names.collect::<Vec<_>>().join(", ")),
    }
}

pub(in crate::mcp) fn unknown_tool(given: &str, offered: &[&str]) -> String {
    let small = given.to_ascii_lowercase();
    let has_word = |tool: &&&str| small.split(['_', '-', '.']).any(|word| word == **tool);
    let meant = nearest(given, offered.iter().copied()).first().copied();
    match meant.or_else(|| offered.iter().find(has_word).copied()) {
        Some(meant) => format!("no tool `{given}`: did you mean {meant}?"),
        None => format!("no tool `{given}`: there are {}", offered.join(", ")),
    }
}

/// A text of an argument that means the same in every tool, as it is meant. The command line asks the same readers.
fn read_text(field: &str, property: &Value, value: Value) -> Result<Value, String> {
    let Some(text) = value.as_str() else { return Ok(value) };
    // Of all texts, only names have a pattern.
    let is_name = property["pattern"].is_string() || ["agent", "id", "replaces"].contains(&field);
    let fault = match field {
        _ if is_name => {
            let name = text.parse::<Name>().map_err(|error| error.to_string())?;
            return Ok(name.as_str().into());
        }
        "task_id" | "request_id" => return args::header(text).map(Value::from),
        "to" => text.parse::<Address>().err(),
        "when" => text.parse::<DeliveryClass>().err(),
        "traceparent" => text.parse::<TraceParent>().err().map(|error| error.to_string()),
        "wait_for_reply" => args::duration(text).err(),
        _ => None,
    };
    fault.map_or(Ok(value), Err)
}

fn in_seconds(value: Value) -> Value {
    let text = value.as_str().filter(|text| text.parse::<f64>().is_err());
    match text.and_then(|text| args::duration(text).ok()) {
        Some(duration) => whole_seconds(duration).into(),
        None => value,
    }
}

/// A value as a property's schema describes it, or what is wrong with it. Words are compared where the schema is closed;
/// the reader of an open one knows more of them.
fn read_value(property: &Value, is_closed: bool, value: Value) -> Result<Value, String> {
    let value = if is_closed { read_word(property, value)? } else { value };
    let Some(kind) = property["type"].as_str() else { return Ok(value) };
    let value = converted(kind, value).map_err(|value| match (&value, kind) {
        (Value::Array(_), "string") => format!("{value} is not a text: call once for each"),
        _ => format!("{value} is not {}", in_words(kind)),
    })?;
    let value = match (value, property["items"]["type"].as_str()) {
        (Value::Array(items), Some(kind)) => read_items(kind, items)?,
        (value, _) => value,
    };
    let Some(number) = value.as_f64() else { return Ok(value) };
    let (least, most) = (property["minimum"].as_f64(), property["maximum"].as_f64());
    let is_fit =
        least.is_none_or(|least| number >= least) && most.is_none_or(|most| number <= most);
    match (is_fit, least.unwrap_or_default(), most) {
        (true, ..) => Ok(value),
        (false, least, Some(most)) => Err(format!("{value} is not from {least} to {most}")),
        (false, least, None) => Err(format!("{value} is less than {least}")),
    }
}

/// The items of a list; one in an object, such as `{"path": "a.rs"}`, is what the object has.
fn read_items(kind: &str, items: Vec<Value>) -> Result<Value, String> {
    let read = items.into_iter().map(|item| {
        let only = item.as_object().filter(|fields| fields.len() == 1 && kind == "string");
        let inner = only.and_then(|fields| fields.values().next()).filter(|it| it.is_string());
        let item = inner.unwrap_or(&item).clone();
        converted(kind, item)
            .map_err(|item| format!("{item} in the list is not {}", in_words(kind)))
    });
    read.collect::<Result<Vec<_>, _>>().map(Value::Array)
}

/// A value of a property that has one of a few words, in the spelling of the schema: `failure` is `failed`.
fn read_word(property: &Value, value: Value) -> Result<Value, String> {
    let listed = property["enum"].as_array().or_else(|| property["oneOf"].as_array());
    let Some(listed) = listed else { return Ok(value) };
    let words = listed.iter().filter_map(|word| word.as_str().or_else(|| word["const"].as_str()));
    let text = value.as_str().unwrap_or_default().trim();
    let status = Status::read(text);
    let is_it = |word: &&str| {
        word.eq_ignore_ascii_case(text) || (status.is_some() && Status::read(word) == status)
    };
    match words.clone().find(is_it) {
        Some(word) => Ok(word.into()),
        None => Err(format!("{value} is not one of {}", words.collect::<Vec<_>>().join(", "))),
    }
}

fn in_words(kind: &str) -> &str {
    match kind {
        "string" => "a text",
        "integer" => "a whole number",
        "number" => "a number",
        "boolean" => "true or false",
        "array" => "a list",
        _ => "an object",
    }
}

/// A value of a type of JSON Schema; the same value if it is of another one.
fn converted(kind: &str, value: Value) -> Result<Value, Value> {
    let is_fit = |value: &Value| match kind {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    };
    let other = match (&value, kind) {
        (value, _) if is_fit(value) => None,
        (Value::Number(number), "string") => Some(Value::String(number.to_string())),
        (Value::Array(items), _) => match &items[..] {
            [only] => converted(kind, only.clone()).ok(),
            _ => None,
        },
        (value, "integer") => count_of(value).map(Value::from),
        (value, "boolean") => flag_of(value).map(Value::from),
        (Value::String(text), "array") => {
            let list = serde_json::from_str(text).ok().filter(Value::is_array);
            list.or_else(|| Some(listed_in(text).into()))
        }
        (Value::String(text), _) => serde_json::from_str(text).ok(),
        _ => None,
    };
    match other.filter(is_fit) {
        Some(other) => Ok(other),
        None if is_fit(&value) => Ok(value),
        None => Err(value),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(arguments: Value) -> Result<Value, String> {
        let properties = json!({
            "to": { "type": "string" }, "message": { "type": "string" }, "task_id": { "type": "string" },
            "priority": { "type": "integer", "minimum": 0, "maximum": 9 },
            "status": { "oneOf": [{ "const": "success" }, { "const": "failed" }] },
            "when": { "type": "string" }, "delay_seconds": { "type": "integer" }, "needs_plan": { "type": "boolean" }, "files": { "type": "array", "items": { "type": "string" } },
        });
        let required = ["to", "message"];
        let schema = json!({
            "required": required, "additionalProperties": false, "properties": properties,
        });
        read_arguments(&schema, arguments).map_err(|trouble| trouble.to_string())
    }

    #[test]
    fn values_are_read_in_the_type_of_the_schema() {
        for priority in [json!(5), json!(5.0), json!("5"), json!("5.0"), json!(" 5 ")] {
            let given = json!({ "to": "a", "message": "x", "priority": priority });
            assert_eq!(read(given), Ok(json!({ "to": "a", "message": "x", "priority": 5 })));
        }
        let given = json!({
            "to": ["a"], "body": "x", "taskId": 7, "status": "failure", "needs_plan": "Yes", "files": "[\"a\"]", "other": "",
        });
        let wanted = json!({
            "to": "a", "message": "x", "task_id": "7", "status": "failed", "needs_plan": true, "files": ["a"],
        });
        assert_eq!(read(given), Ok(wanted));
        let given = json!({ "agent": "a", "content": "x", "id": 7, "files": [{"path": "a"}], "result": " Success", "delay": "5m" });
        let wanted = json!({ "to": "a", "message": "x", "task_id": "7", "files": ["a"], "status": "success", "delay_seconds": 300 });
        assert_eq!(read(given), Ok(wanted));
        let listed = json!({ "to": "a", "message": "x", "files": "a.rs, b.rs\n\nc d.rs, e.rs" });
        assert_eq!(read(listed).unwrap()["files"], json!(["a.rs", "b.rs", "c d.rs, e.rs"]));
    }

    #[test]
    fn a_tool_that_there_is_not_names_the_one_that_was_meant() {
        let offered = ["send", "inbox", "recv", "recv_wait", "list_agents"];
        for (given, meant) in [("send_message", "send"), ("Send", "send"), ("fetch-inbox", "inbox")]
        {
            let text = unknown_tool(given, &offered);
            assert!(text.ends_with(&format!("did you mean {meant}?")), "{text}");
        }
        assert!(unknown_tool("claim_task", &offered).ends_with(&offered.join(", ")));
    }

    #[test]
    fn all_mistakes_of_a_call_are_named_at_once_and_in_words() {
        let error = read(json!({
            "to": "x y", "priority": 77, "needs_plan": 7, "when": "soon", "task_id": "a\nb", "priorty": 3,
        }));
        let error = error.unwrap_err();
        for fault in [
            "message: is missing",
            "to: `x y` has ' '",
            "priority: 77 is not from 0 to 9",
            "needs_plan: 7 is not true or false",
            "when: `soon` is not interrupt, tool or turn",
            "task_id: has control characters",
            "priorty: is not an argument (did you mean priority?)",
        ] {
            assert!(error.contains(fault), "{fault}: {error}");
        }
        let twice = read(json!({ "to": "a", "message": "x", "text": "y" })).unwrap_err();
        assert!(twice.contains("text: is not an argument"), "{twice}");
        let error = read(json!({ "to": ["a", "b"], "message": " ", "priority": -1 })).unwrap_err();
        let faults = "to: [\"a\",\"b\"] is not a text: call once for each; message: is empty; priority: -1 is not from 0 to 9";
        assert_eq!(error, format!("nothing was done: {faults}"));
        let listed =
            read(json!({ "to": "a", "message": "x", "files": ["a", {"b": 1}] })).unwrap_err();
        assert_eq!(listed, "nothing was done: files: {\"b\":1} in the list is not a text");
        assert!(!error.contains("u8") && !error.contains("schema"), "{error}");
    }
}
