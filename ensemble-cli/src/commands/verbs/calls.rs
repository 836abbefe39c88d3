//! A call of the API as a run of a verb: its parameters become words of a command line, by the parser's own description of
//! the command.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, Command};
use ensemble_app::failure::{Failure, Outcome};
use ensemble_core::message::Name;
use serde_json::{Map, Value};

use super::{CommandLine, place_among, with_one_verb};
use crate::context::Context;
use crate::printed;

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
/// Flags that print until they are ended.
const ENDLESS: [&str; 2] = ["follow", "watch"];

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

/// Reads a call as the command line reads its words.
fn read(method: &str, params: &Map<String, Value>) -> Outcome<CommandLine> {
    let words: Vec<OsString> =
        std::iter::once("ensemble").chain(method.split(' ')).map(OsString::from).collect();
    let unknown = || {
        Failure::usage(format!("there is no method `{}`", ensemble_app::text::one_line(method)))
            .with_hint("`ensemble admin schema commands` lists the places of all commands")
    };
    let place = place_among(&words).ok_or_else(unknown)?;
    if NOT_CALLED.contains(&method) {
        return Err(Failure::refused(format!("`{method}` cannot be called")).with_hint(
            "it takes over the terminal or has no end; `subscribe` follows what happens",
        ));
    }
    let mut program = with_one_verb(place);
    program.build();
    let command = printed::find(&program, method).ok_or_else(unknown)?;
    let words = [words, spelled(command, params)?].concat();
    let matches = program.clone().try_get_matches_from(&words).map_err(|error| mistake(&error))?;
    CommandLine::of(&matches).map_err(|error| mistake(&error))
}

fn mistake(error: &clap::Error) -> Failure {
    let text = error.to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    Failure::usage(ensemble_app::text::one_line(first.trim_start_matches("error: ")))
}

/// Flags before `--`, positional arguments after it, in their order.
fn spelled(command: &Command, params: &Map<String, Value>) -> Outcome<Vec<OsString>> {
    let (mut flags, mut positional) = (Vec::new(), Vec::new());
    for (key, value) in params {
        let arg = argument(command, key)?;
        if ENDLESS.contains(&&**key) {
            return Err(Failure::usage(format!("`{key}` has no end: `subscribe` does that")));
        }
        if value == "" && !arg.is_positional() && !arg.is_required_set() {
            // Some clients fill in every parameter.
            continue;
        }
        let values = values(key, value)?;
        if let Some(index) = arg.get_index() {
            positional.push((index, values));
        } else if let Some(long) = arg.get_long() {
            let takes = arg.get_action().takes_values();
            flags.extend(values.into_iter().filter_map(|value| match (takes, &*value) {
                (true, value) => Some(format!("--{long}={value}").into()),
                (false, "false") => None,
                (false, _) => Some(format!("--{long}").into()),
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
        Failure::usage(format!("there is no parameter `{}`", ensemble_app::text::one_line(key)))
            .with_hint(format!("there are {}", known.join(", ")))
    };
    command.get_arguments().find(is_named).ok_or_else(unknown)
}

fn name(arg: &Arg) -> String {
    arg.get_long().map_or_else(|| arg.get_id().to_string(), |long| long.replace('-', "_"))
}

/// The values of a parameter as words.
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
