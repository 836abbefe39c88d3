//! A call of the API as a run of a verb: its parameters become words of a command line, by the parser's own description of
//! the command.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};
use ensemble_app::door_hints::HintCall;
use ensemble_core::message::fields::{read_flag, with_known_names};
use ensemble_core::message::{Name, nearest};
use serde_json::{Map, Value};

use super::{CommandLine, place_among, program, with_one_verb};
use crate::context::{Context, Failure, Outcome};
use crate::mistake::in_words;
use crate::printed;
use crate::spellings::meant_by;

/// Commands that take over the terminal, run until they are ended, or read stdin.
const NOT_CALLED: [&str; 17] = [
    "claude",
    "codex",
    "opencode",
    "gemini",
    "top",
    "agent attach",
    "agent supervise",
    "task dispatch",
    "board edit",
    "demo",
    "admin watch",
    "admin hook",
    "admin mcp",
    "admin api",
    "admin conformance",
    "admin completions",
    "admin man",
];
const ENDLESS: [&str; 2] = ["follow", "watch"];
const LISTS_ALL: &str = "`ensemble admin schema commands` lists the places of all commands";
/// The argument of a verb's text, and the flag that takes it literally.
const TEXT: &str = "text";
const MESSAGE: &str = "message";

/// Runs a verb as the command line would, in the queue and as the agent of the session unless the call names others.
/// Returns what it has printed, too.
pub(crate) fn call(
    method: &str,
    params: &Map<String, Value>,
    (queue, agent): (Option<PathBuf>, Option<Name>),
) -> (Vec<u8>, Outcome) {
    let CommandLine { mut globals, verb, place, files } = match read(method, params) {
        Ok(read) => read,
        Err(failure) => return (Vec::new(), Err(failure)),
    };
    globals.queue = globals.queue.or(queue);
    globals.agent = globals.agent.or(agent);
    let context = Context::called(globals, place);
    let outcome = context.admit(&files).and_then(|()| verb.run(&context));
    context.warn_about_log();
    (context.out.take_output(), outcome)
}

fn read(method: &str, params: &Map<String, Value>) -> Outcome<CommandLine> {
    let words: Vec<OsString> =
        std::iter::once("ensemble").chain(method.split(' ')).map(OsString::from).collect();
    let unknown = || unknown_method(method);
    let place = place_among(&words).ok_or_else(unknown)?;
    if NOT_CALLED.contains(&method) {
        return Err(Failure::refused(format!("`{method}` cannot be called")).with_hint(
            "it takes over the terminal or has no end; `subscribe` follows what happens",
        ));
    }
    let mut program = with_one_verb(place);
    program.build();
    let command = printed::find(&program, method).ok_or_else(unknown)?;
    if command.is_subcommand_required_set() {
        return Err(Failure::usage(format!("`{method}` lacks its command")).with_hint(LISTS_ALL));
    }
    let words = [words, spelled(command, params)?].concat();
    let mistake = |error| mistake(command, &error);
    let matches = program.clone().try_get_matches_from(&words).map_err(mistake)?;
    CommandLine::of(&matches).map_err(mistake)
}

fn unknown_method(method: &str) -> Failure {
    let program = program();
    let places = program.get_subcommands().flat_map(|command| {
        let below = command.get_subcommands().map(Command::get_name);
        let below = below.map(|name| format!("{} {name}", command.get_name()));
        std::iter::once(command.get_name().to_owned()).chain(below)
    });
    let places: Vec<String> = places.collect();
    let near = || nearest(method, places.iter().map(String::as_str)).first().copied();
    let meant = meant_by(&program, method).or_else(|| near().map(str::to_owned));
    let method = ensemble_app::text::one_line(method);
    Failure::usage(format!("there is no method `{method}`")).with_hint(match meant {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => LISTS_ALL.to_owned(),
    })
}

/// Reads a command of a hint as the call that does the same: `ensemble settle m1` as `settle` with `id`.
pub(crate) fn read_hint(line: &str) -> Option<HintCall> {
    if line.contains(['|', '…', '&', '<', '>']) {
        return None;
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    if words.first() != Some(&"ensemble") {
        return None;
    }
    let place = place_among(&words.iter().map(OsString::from).collect::<Vec<_>>())?;
    let mut program = with_one_verb(place);
    program.build();
    let (mut command, mut method) = (&program, Vec::new());
    let mut words = words.into_iter().skip(1).peekable();
    while let Some(below) = words.peek().and_then(|word| command.find_subcommand(word)) {
        (command, method) = (below, [method, vec![below.get_name()]].concat());
        words.next();
    }
    let method = method.join(" ");
    if NOT_CALLED.contains(&&*method) || command.is_subcommand_required_set() {
        return None;
    }
    let (mut params, mut position) = (Map::new(), 0);
    while let Some(word) = words.next() {
        let (flag, given) = word.split_once('=').map_or((word, None), |(f, v)| (f, Some(v)));
        let is_it = |arg: &&Arg| match (flag.strip_prefix("--"), flag.strip_prefix('-')) {
            (Some(long), _) => arg.get_long() == Some(long),
            (None, Some(short)) if !short.is_empty() => {
                arg.get_short().is_some_and(|letter| short == letter.to_string())
            }
            _ => arg.get_index() == Some(position + 1),
        };
        let arg = command.get_arguments().find(is_it)?;
        let value = match (arg.is_positional(), arg.get_action().takes_values()) {
            (true, _) => {
                position += 1;
                word
            }
            (false, true) => given.or_else(|| words.next())?,
            (false, false) => {
                params.insert(name(arg), true.into());
                continue;
            }
        };
        params.insert(name(arg), value.trim_matches(['"', '\'']).into());
    }
    Some(HintCall { method, params })
}

fn mistake(command: &Command, error: &clap::Error) -> Failure {
    let parameter = |shown: &String| {
        let arg = command.get_arguments().find(|arg| arg.to_string() == *shown);
        format!("`{}`", arg.map_or_else(|| shown.clone(), name))
    };
    let mut text = in_words(&error.to_string());
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(all)) if error.kind() == ErrorKind::MissingRequiredArgument => {
            let all: Vec<String> = all.iter().map(parameter).collect();
            return Failure::usage(format!("required and missing: {}", all.join(", ")));
        }
        Some(ContextValue::String(one)) => {
            text = text.replace(&format!("'{one}'"), &parameter(one));
        }
        _ => {}
    }
    let first = text.split("\n\n").next().unwrap_or_default();
    Failure::usage(ensemble_app::text::one_line(first.trim_start_matches("error: ")))
}

/// Flags before `--`, positional arguments after it, in their order.
fn spelled(command: &Command, params: &Map<String, Value>) -> Outcome<Vec<OsString>> {
    let (mut flags, mut positional) = (Vec::new(), Vec::new());
    for (key, value) in &with_known_names(params, &|name| argument(command, name).is_ok()) {
        let arg = argument(command, key)?;
        if ENDLESS.contains(&&**key) {
            return Err(Failure::usage(format!("`{key}` has no end: `subscribe` does that")));
        }
        if value == "" && !arg.is_positional() && !arg.is_required_set() {
            // Some clients fill in every parameter.
            continue;
        }
        if value.is_boolean() && arg.get_action().takes_values() {
            return Err(Failure::usage(format!("`{key}`: {value} is not a value of it")));
        }
        let mut values = values(key, value)?;
        if !arg.is_positional() && !arg.get_action().takes_values() {
            values.retain(|value| !value.is_empty());
            if let Some(other) = values.iter().find(|value| read_flag(value).is_none()) {
                let other = ensemble_app::text::one_line(other);
                let text = format!("`{key}`: `{other}` is not true or false");
                return Err(Failure::usage(text));
            }
        }
        if arg.get_id() == TEXT && command.get_arguments().any(|it| it.get_long() == Some(MESSAGE))
        {
            // A person's word may be a mistyped option, or a file's name. A program means the text.
            flags.extend(values.into_iter().map(|value| format!("--{MESSAGE}={value}").into()));
        } else if let Some(index) = arg.get_index() {
            positional.push((index, values));
        } else if let Some(long) = arg.get_long() {
            let takes = arg.get_action().takes_values();
            flags.extend(values.into_iter().filter_map(|value| match (takes, read_flag(&value)) {
                (true, _) => Some(format!("--{long}={value}").into()),
                (false, Some(true)) => Some(format!("--{long}").into()),
                (false, _) => None,
            }));
        }
    }
    positional.sort_by_key(|(index, _)| *index);
    if !positional.is_empty() {
        flags.push("--".into());
    }
    flags.extend(positional.into_iter().flat_map(|(_, values)| values).map(OsString::from));
    Ok(flags)
}

/// The argument of a name: a flag's long name, or a position's as the help shows it, in small letters.
fn argument<'c>(command: &'c Command, key: &str) -> Outcome<&'c Arg> {
    let dashed = key.replace('_', "-");
    let is_named = |arg: &&Arg| {
        let id = arg.get_id().as_str();
        let shown = arg.get_value_names().and_then(|names| names.first());
        let is_shown = shown.is_some_and(|name| name.to_lowercase() == key);
        arg.get_long() == Some(&dashed) || (arg.is_positional() && (id == key || is_shown))
    };
    let unknown = || {
        let known: Vec<String> =
            command.get_arguments().filter(|arg| !arg.is_hide_set()).map(name).collect();
        let near = nearest(key, known.iter().map(String::as_str));
        Failure::usage(format!("there is no parameter `{}`", ensemble_app::text::one_line(key)))
            .with_hint(match near.first() {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("there are {}", known.join(", ")),
            })
    };
    command.get_arguments().find(is_named).ok_or_else(unknown)
}

fn name(arg: &Arg) -> String {
    arg.get_long().map_or_else(|| arg.get_id().to_string(), |long| long.replace('-', "_"))
}

fn values(key: &str, value: &Value) -> Outcome<Vec<String>> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::String(text) => Ok(vec![text.clone()]),
        Value::Number(number) => {
            // A whole number may come as `5.0`.
            let whole = number.as_f64().filter(|it| number.is_f64() && it.fract() == 0.0);
            Ok(vec![whole.map_or_else(|| number.to_string(), |it| format!("{it:.0}"))])
        }
        Value::Bool(_) => Ok(vec![value.to_string()]),
        Value::Array(items) => {
            let all: Outcome<Vec<Vec<String>>> =
                items.iter().map(|item| values(key, item)).collect();
            Ok(all?.concat())
        }
        Value::Object(_) => Err(Failure::usage(format!("`{key}`: an object is not a value"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_call_is_understood_by_other_names_and_otherwise_names_the_nearest() {
        for (method, params, wanted) in [
            ("send", json!({ "recipient": "w", "message": "x", "taskId": "T" }), ""),
            ("inbox", json!({ "mailbox": "w", "limit": "5" }), ""),
            ("assign", json!({ "to": "w", "body": "x", "task_id": "T" }), ""),
            ("task submit", json!({ "task_id": "T" }), ""),
            ("request answer", json!({ "request_id": "r", "approve": true, "note": "x" }), ""),
            ("send", json!({ "to": "w", "agent": "v", "text": "x" }), "no parameter `agent`"),
            ("snd", json!({}), "did you mean `send`?"),
            ("send", json!({ "to": "w", "text": "x", "priorty": 5 }), "did you mean `priority`?"),
        ] {
            let said = read(method, params.as_object().unwrap()).err();
            let said = said.map(|failure| format!("{failure:?}")).unwrap_or_default();
            assert!(said.contains(wanted) && said.is_empty() == wanted.is_empty(), "{said}");
        }
    }

    #[test]
    fn a_command_of_a_hint_is_read_as_a_call() {
        let read = |line: &str| read_hint(line).map(|call| (call.method, json!(call.params)));
        for (line, method, params) in [
            ("ensemble recv", "recv", json!({})),
            (
                "ensemble reply m1 \"TEXT\" --mailbox w",
                "reply",
                json!({ "id": "m1", "text": "TEXT", "mailbox": "w" }),
            ),
            (
                "ensemble mailbox extend m1 30m",
                "mailbox extend",
                json!({ "id": "m1", "duration": "30m" }),
            ),
            (
                "ensemble request plan -f FILE --task T --to R",
                "request plan",
                json!({ "file": "FILE", "task": "T", "to": "R" }),
            ),
            ("ensemble task claim T --review", "task claim", json!({ "id": "T", "review": true })),
        ] {
            assert_eq!(read(line), Some((method.to_owned(), params)), "{line}");
        }
        for line in [
            "ensemble log | less",
            "ensemble admin watch &",
            "ensemble top",
            "ensemble nonsense",
            "git log",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
