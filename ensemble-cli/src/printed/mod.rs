//! What each command prints under `--json`, and how it ends: one table, from which docs and schemas are made.
//!
//! ```text
//! table   command, exit codes, names of shapes      (flags come from the parser)
//! shapes  members of each object                    notation  shapes as JSON Schema 2020-12
//! ```
//!
//! The tests of the command line validate every line that they see. A member that is not in the shape fails them, and
//! so does one that is missing. The same holds for exit codes.

pub(crate) mod lines;
mod notation;
mod shapes;
mod table;

use clap::{ArgAction, Command};
use ensemble_app::text::with_members;
use serde_json::{Map, Value, json};

use shapes::OutputShape;
use table::{NO_JSON, ROWS};

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
/// The exit codes of every command.
const COMMON: [u8; 4] = [0, 1, 2, 4];

fn all_shapes() -> Vec<OutputShape> {
    [shapes::MAIL, shapes::AGENTS, shapes::BOARD, shapes::PROJECT].concat()
}

pub(crate) fn schema() -> Value {
    let shapes = all_shapes();
    let mut definitions: Map<String, Value> =
        shapes.iter().map(|shape| (shape.0.to_owned(), notation::schema(shape, &shapes))).collect();
    for (place, _, prints) in ROWS {
        let line = line_schema(prints);
        let key = if definitions.contains_key(*place) {
            format!("{place} line")
        } else {
            (*place).to_owned()
        };
        definitions.insert(key, line);
    }
    json!({
        "$schema": DIALECT,
        "title": "lines of --json",
        "description": "Each command has a definition under its words, such as `dead list`",
        "$defs": definitions,
    })
}

pub(crate) fn object_schema(members: &'static str) -> Value {
    let mut schema = notation::schema(&("", "", members), &all_shapes());
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("description");
    }
    schema
}

pub(crate) fn schema_of(place: &str) -> Option<Value> {
    let (_, _, prints) = ROWS.iter().find(|(known, ..)| *known == place)?;
    let mut whole = schema();
    let (title, line) = (format!("a line of `ensemble {place} --json`"), line_schema(prints));
    let definitions = whole.get_mut("$defs")?.as_object_mut()?;
    definitions.retain(|name, _| name.starts_with(char::is_uppercase));
    let mut schema = with_members(json!({ "$schema": DIALECT, "title": title }), &line);
    schema["$defs"] = whole["$defs"].take();
    Some(schema)
}

fn line_schema(prints: &str) -> Value {
    let names: Vec<&str> = prints.split(' ').collect();
    match &names[..] {
        [no_json] if NO_JSON.contains(no_json) => json!({ "not": {}, "description": "No JSON" }),
        [one] => json!({ "$ref": format!("#/$defs/{one}") }),
        several => {
            let all: Vec<Value> =
                several.iter().map(|name| json!({ "$ref": format!("#/$defs/{name}") })).collect();
            json!({ "anyOf": all })
        }
    }
}

/// The exit codes of a command; `None` where it passes on those of another program.
fn exits(row: &str) -> Option<Vec<u8>> {
    let own = row.split(' ').filter_map(|code| code.parse().ok());
    (row != "*").then(|| COMMON.into_iter().chain(own).collect())
}

pub(crate) fn commands(mut program: Command) -> Vec<Value> {
    // The parser knows only then how many values an argument takes.
    program.build();
    let described = |(place, codes, prints): &(&str, &str, &str)| {
        let command = find(&program, place);
        let names = |is_flag: bool| -> Vec<String> {
            let shown = command.into_iter().flat_map(Command::get_arguments);
            let shown = shown.filter(|arg| !arg.is_hide_set() && !is_help(arg));
            shown.filter(|arg| arg.is_positional() != is_flag).map(spelled).collect()
        };
        let is_json = !NO_JSON.contains(prints);
        let shapes: Vec<&str> = prints.split(' ').filter(|_| is_json).collect();
        json!({
            "place": place, "arguments": names(false), "flags": names(true), "exits": exits(codes),
            "prints": shapes,
        })
    };
    ROWS.iter().map(described).collect()
}

fn is_help(arg: &clap::Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Help | ArgAction::HelpLong | ArgAction::HelpShort)
}

/// An argument as the help has it: `--wait <DURATION>`, `[TEXT]`.
fn spelled(arg: &clap::Arg) -> String {
    let text = arg.to_string();
    match arg.is_positional() && !arg.is_required_set() {
        true => text.replacen('<', "[", 1).replacen('>', "]", 1),
        false => text,
    }
}

pub(crate) fn find<'p>(program: &'p Command, place: &str) -> Option<&'p Command> {
    place.split(' ').try_fold(program, |command, word| command.find_subcommand(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(command: &Command, place: &str, found: &mut Vec<String>) {
        if !place.is_empty() && !command.is_subcommand_required_set() {
            found.push(place.to_owned());
        }
        for below in command.get_subcommands() {
            places(below, format!("{place} {}", below.get_name()).trim_start(), found);
        }
    }

    #[test]
    fn every_command_has_a_row_and_every_row_a_command() {
        let mut found = Vec::new();
        places(&crate::commands::program(), "", &mut found);
        let mut rows: Vec<&str> = ROWS.iter().map(|(place, ..)| *place).collect();
        if cfg!(not(feature = "mcp")) {
            rows.retain(|row| !row.starts_with("admin mcp"));
        }
        rows.sort_unstable();
        found.sort_unstable();
        assert_eq!(rows, found);
    }

    #[test]
    fn every_shape_is_printed_and_every_printed_shape_is_there() {
        let shapes = all_shapes();
        let is_known = |name: &str| shapes.iter().any(|(known, ..)| *known == name);
        let printed: Vec<&str> = ROWS.iter().flat_map(|(_, _, prints)| prints.split(' ')).collect();
        for name in printed.iter().filter(|name| !NO_JSON.contains(name)) {
            assert!(is_known(name), "{name}");
        }
        for (name, _, fields) in &shapes {
            let is_used = printed.contains(name)
                || shapes.iter().any(|(_, _, other)| {
                    other.contains(&format!("@{name}")) || other.contains(&format!("..{name}"))
                });
            assert!(is_used, "{name} is printed by no command");
            let schema = notation::schema(
                &shapes[shapes.iter().position(|it| it.0 == *name).unwrap()],
                &shapes,
            );
            assert!(!schema.to_string().contains("no type"), "{name}: {fields}: {schema}");
        }
    }
}
