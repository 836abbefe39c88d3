//! Pages of the reference that are generated from what the program says of itself.
//!
//! The configuration comes from its schema, exit codes from `help exit-codes`, error codes from the schema of
//! failures. `ENSEMBLE_UPDATE_SNAPSHOTS=1 cargo test -p ensemble-broker` rewrites the pages.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::bed::{Bed, SaidText as _};
use crate::help::compare;

const CONFIGURATION: &str = "# Configuration

`ensemble.yaml` is beside the queue. All keys are optional, and unknown ones are errors. `~/.config/ensemble/config.yaml` has
them for all projects; a project's own come first. `ensemble init` writes an example and a schema. `ensemble up` applies changes; an agent that runs keeps its old settings until `ensemble agent restart`.

In a key, `NAME` is a name of your choice and `[]` is each item of a list. A duration has units (`500ms`, `90s`, `10m`,
`1h 30m`, `30d`), or is a number of seconds. This page is generated from the schema, `ensemble admin schema config`.
";

const HEADER: &str = "| key | value | meaning |\n|---|---|---|\n";

const CODES: &str = "# Exit codes and error codes

Every command has the same exit codes. `ensemble help exit-codes` prints them:

| exit code | means |
|---|---|
{codes}
With `--json` a failure is one line on stderr. Its `code` is one of these; codes are only ever added:

| code | means |
|---|---|
";

const COMMANDS: &str = "# Commands as a table

Each command with its flags, its exit codes and the shape of its lines under `--json`. The global options `--queue`,
`--as` and `--json` are left out. Every command can end with 0, 1, 2 or 4; the table has the other codes. `*` passes on
the code of the program that it runs. [Exit codes](exit-codes.md) says what each means.

`ensemble admin schema output` prints all shapes as one JSON Schema 2020-12, `ensemble admin schema output COMMAND` that
of one command's lines, and `ensemble admin schema commands` this table.
Members are only ever added to a shape, so a reader ignores those that it does not know. A failure is one line on
stderr, by the schema that `ensemble admin schema error` prints.

| command | arguments and flags | exit codes | lines of `--json` |
|---|---|---|---|
";

/// Follows a reference, also of a value that may be absent.
fn resolved<'s>(root: &'s Value, schema: &'s Value) -> &'s Value {
    if let Some(any) = schema["anyOf"].as_array() {
        let value = any.iter().find(|one| one["type"] != "null").unwrap();
        return resolved(root, value);
    }
    let Some(path) = schema["$ref"].as_str() else { return schema };
    root.pointer(path.trim_start_matches('#')).unwrap_or_else(|| panic!("no {path}"))
}

fn choices(schema: &Value) -> Vec<String> {
    let words = |of: &Value| of.as_array().into_iter().flatten().cloned().collect::<Vec<_>>();
    let mut all = words(&schema["enum"]);
    for one in words(&schema["oneOf"]) {
        all.extend(words(&one["enum"]));
        all.extend(one.get("const").cloned());
    }
    all.iter().filter_map(Value::as_str).map(|word| format!("`{word}`")).collect()
}

fn kind(root: &Value, schema: &Value) -> String {
    let schema = resolved(root, schema);
    let choices = choices(schema);
    if !choices.is_empty() {
        return choices.join(", ");
    }
    let of = |types: &Value| types.as_str().filter(|word| *word != "null").map(str::to_owned);
    let types = &schema["type"];
    let is_duration = types.as_array().is_some_and(|types| types.contains(&"string".into()));
    let word = of(types).or_else(|| types.as_array().and_then(|types| types.iter().find_map(of)));
    match word.as_deref() {
        Some("array") => format!("list of {}", kind(root, &schema["items"])),
        Some("string") => "text".to_owned(),
        Some("object") => "mapping".to_owned(),
        Some("integer") if is_duration => "duration".to_owned(),
        Some("integer") => "whole number".to_owned(),
        Some("boolean") => "`true`, `false`".to_owned(),
        word => word.unwrap_or("any").to_owned(),
    }
}

fn described(schema: &Value) -> Option<String> {
    Some(schema["description"].as_str()?.replace('\n', " ").replace('|', "\\|"))
}

fn rows(root: &Value, path: &str, schema: &Value, out: &mut String) {
    let schema = resolved(root, schema);
    for (key, value) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let text = described(value).or_else(|| described(resolved(root, value)));
        let kind = kind(root, value);
        let _ = writeln!(out, "| `{path}` | {kind} | {} |", text.unwrap_or_default());
        rows(root, &path, value, out);
    }
    let named = schema["patternProperties"].as_object().and_then(|all| all.values().next());
    let any = Some(&schema["additionalProperties"]);
    if let Some(named) = named.or(any).filter(|it| it.is_object()) {
        rows(root, &format!("{path}.NAME"), named, out);
    }
    if schema["items"].is_object() {
        rows(root, &format!("{path}[]"), &schema["items"], out);
    }
}

#[test]
fn the_page_of_the_configuration_is_that_of_its_schema() {
    let root: Value = serde_json::from_str(&Bed::empty().ok("admin schema config")).unwrap();
    let mut page = CONFIGURATION.to_owned();
    let all = root["properties"].as_object().unwrap();
    let below = |key: &str, value: &Value| {
        let mut table = String::new();
        rows(&root, "", &json!({ "properties": { key: value } }), &mut table);
        table
    };
    let tables = all.iter().map(|(key, value)| (key, below(key, value)));
    let (single, sections): (Vec<_>, Vec<_>) =
        tables.partition(|(_, table)| table.lines().count() == 1);
    let single: String = single.into_iter().map(|(_, row)| row).collect();
    let _ = write!(page, "\n## Single values\n\n{HEADER}{single}");
    for (key, table) in sections {
        let _ = write!(page, "\n## {key}\n\n{HEADER}{table}");
    }
    page.has(["| `agents.NAME.provider` | text |", "| `routes[].match` | text |"]);
    compare("docs/reference/configuration.md", &page);
}

#[test]
fn the_page_of_the_codes_is_what_the_program_says() {
    let bed = Bed::empty();
    let topic = bed.ok("help exit-codes");
    let rows = topic.lines().filter_map(|line| line.trim().split_once("  "));
    let rows: Vec<String> =
        rows.map(|(code, means)| format!("| {code} | {} |\n", means.trim())).collect();
    assert!(rows.len() >= 8, "{topic}");
    let mut page = CODES.replace("{codes}", &rows.concat());
    let root: Value = serde_json::from_str(&bed.ok("admin schema error")).unwrap();
    let body = resolved(&root, &root["properties"]["error"]);
    let code = resolved(&root, &body["properties"]["code"]);
    let all = code["oneOf"].as_array().unwrap();
    assert!(all.len() > 20, "{code}");
    for one in all {
        let word = one["const"].as_str().unwrap();
        let _ = writeln!(page, "| `{word}` | {} |", described(one).unwrap());
    }
    compare("docs/reference/exit-codes.md", &page);
}

#[test]
fn the_page_of_the_commands_is_what_the_program_says() {
    let rows = crate::bed::objects(&Bed::empty().ok("admin schema commands"));
    assert!(rows.len() > 100, "{}", rows.len());
    let words = |row: &Value, key: &str| -> Vec<String> {
        let all = row[key].as_array().into_iter().flatten();
        all.map(|one| one.as_str().map_or_else(|| one.to_string(), str::to_owned)).collect()
    };
    let mut page = COMMANDS.to_owned();
    for row in &rows {
        let taken = [words(row, "arguments"), words(row, "flags")].concat();
        let taken: Vec<String> =
            taken.iter().map(|word| format!("`{}`", word.replace('|', "\\|"))).collect();
        let codes = match row["exits"].is_null() {
            true => "*".to_owned(),
            false => words(row, "exits")[4..].join(" "),
        };
        let prints = match &words(row, "prints")[..] {
            [] => "no JSON".to_owned(),
            shapes => shapes.join(", "),
        };
        let place = row["place"].as_str().unwrap();
        let _ = writeln!(page, "| `{place}` | {} | {codes} | {prints} |", taken.join(" "));
    }
    page.has(["| `dead list` | `[MAILBOX]` | 3 75 | DeadLetter |"]);
    compare("docs/reference/commands.md", &page);
}
