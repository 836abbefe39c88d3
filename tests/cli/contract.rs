//! What the command promises of each run: its exit code is in the table, each line of `--json` fits its schema, and
//! the commands in an error help.
//!
//! The table is what `admin schema commands` and `admin schema output` print. Readers accept members that later
//! versions add, so the schemas allow them; here they are closed, so that no member is printed unnamed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::process::Command;
use std::sync::OnceLock;

use jsonschema::Validator;
use serde_json::Value;

use crate::bed::{Ran, program};

struct Row {
    /// `None` where the command passes on the code of another program.
    exits: Option<Vec<i64>>,
    prints: usize,
    line: Validator,
}

struct Contract {
    rows: BTreeMap<String, Row>,
}

fn printed(words: &[&str]) -> String {
    let output = Command::new(program()).args(["admin", "schema"]).args(words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The schemas as they are printed, without room for members that they do not name.
fn closed(mut schema: Value) -> Value {
    for shape in schema["$defs"].as_object_mut().unwrap().values_mut() {
        if shape["properties"].is_object() && shape.get("x-open").is_none() {
            shape["additionalProperties"] = false.into();
        }
    }
    schema
}

fn contract() -> &'static Contract {
    static CONTRACT: OnceLock<Contract> = OnceLock::new();
    CONTRACT.get_or_init(|| {
        let schema = closed(serde_json::from_str(&printed(&["output"])).unwrap());
        let mut rows = BTreeMap::new();
        for line in printed(&["commands"]).lines() {
            let row: Value = serde_json::from_str(line).unwrap();
            let place = row["place"].as_str().unwrap().to_owned();
            let mut own = schema.clone();
            own["$ref"] = format!("#/$defs/{}", place.replace(' ', "%20")).into();
            let codes = |codes: &Value| {
                codes.as_array().map(|all| all.iter().filter_map(Value::as_i64).collect())
            };
            let row = Row {
                exits: codes(&row["exits"]),
                prints: row["prints"].as_array().unwrap().len(),
                line: jsonschema::validator_for(&own).unwrap(),
            };
            rows.insert(place, row);
        }
        Contract { rows }
    })
}

/// The command that these words name, global options aside.
fn place_of(contract: &Contract, words: &[&str]) -> Option<String> {
    let mut named: Vec<&str> = Vec::new();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        match *word {
            "--queue" | "--as" => drop(rest.next()),
            "--json" => {}
            word if word.starts_with('-') => break,
            word => named.push(word),
        }
    }
    if let Some("hook" | "mcp" | "projects" | "watch" | "tmux-status") = named.first().copied() {
        named.insert(0, "admin");
    }
    let of_length = |length| named.get(..length).map(|words: &[&str]| words.join(" "));
    [3, 2, 1].into_iter().filter_map(of_length).find(|place| contract.rows.contains_key(place))
}

#[track_caller]
pub(crate) fn check(command: &Command, ran: &Ran) {
    if command.get_program() != program().as_os_str() {
        return;
    }
    let words: Vec<&str> = command.get_args().filter_map(OsStr::to_str).collect();
    check_words(&words, ran);
}

#[track_caller]
pub(crate) fn check_words(words: &[&str], ran: &Ran) {
    let contract = contract();
    let own = words.split(|word| *word == "--").next().unwrap_or_default();
    let Some(place) = place_of(contract, own) else { return };
    let row = &contract.rows[&place];
    // Help and version are printed by the parser; a signal ends without a code.
    if own.iter().any(|word| ["--help", "-h", "--version"].contains(word)) || ran.code < 0 {
        return;
    }
    let unhelpful = unhelpful(own, &ran.stderr);
    assert!(ran.code == 0 || unhelpful.is_none(), "{place}: {unhelpful:?}: {ran:?}");
    let Some(exits) = &row.exits else { return };
    assert!(
        exits.contains(&ran.code.into()),
        "{place}: exit code {} is not in the table: {ran:?}",
        ran.code
    );
    if !own.contains(&"--json") || row.prints == 0 {
        return;
    }
    for line in ran.stdout.lines() {
        let object: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{place}: {error}: {line}"));
        let errors: Vec<String> = broken(row, &object);
        assert!(errors.is_empty(), "{place}: {errors:?}\n{line}");
    }
}

/// Commands that keep the terminal until they are interrupted.
const BLOCKING: [&str; 4] = ["admin watch", "admin api", "admin mcp", "log report --follow"];

fn unhelpful(words: &[&str], stderr: &str) -> Option<&'static str> {
    let ran = words.iter().filter(|word| **word != "--json").copied().collect::<Vec<_>>().join(" ");
    let named = |text: &str| stderr.contains(&format!("`ensemble {text}`"));
    // One side of a decision would be taken for advice.
    let sides = ["--approve", "--reject"].map(|side| stderr.contains(side));
    match () {
        () if named(&ran) => Some("it names the command that was just run"),
        () if BLOCKING.iter().any(|command| named(command)) => {
            Some("it names a command that blocks")
        }
        () if sides[0] != sides[1] => Some("it names one side of a decision"),
        () => None,
    }
}

fn broken(row: &Row, object: &Value) -> Vec<String> {
    let error =
        |error: jsonschema::ValidationError<'_>| format!("{}: {error}", error.instance_path());
    row.line.iter_errors(object).map(error).collect()
}

#[test]
fn a_member_that_is_not_named_one_that_is_missing_and_another_exit_code_are_found() {
    let words = ["--as", "w1", "dead", "list", "--json"];
    let line =
        r#"{"id":"a","mailbox":"w1","reason":"r","at":null,"holder":null,"epoch":1,"place":"p"}"#;
    let good = Ran { code: 0, stdout: line.to_owned(), stderr: String::new() };
    check_words(&words, &good);
    let wrong = |code, stdout: String| {
        let ran = Ran { code, stdout, stderr: String::new() };
        std::panic::catch_unwind(|| check_words(&words, &ran)).is_err()
    };
    assert!(wrong(0, line.replace("\"place\"", "\"spot\"")), "renamed");
    assert!(wrong(0, line.replace("\"epoch\":1", "\"epoch\":\"1\"")), "of another type");
    assert!(wrong(0, line.replace("{\"id\"", "{\"more\":1,\"id\"")), "added");
    assert!(wrong(0, "no JSON".to_owned()));
    assert!(wrong(42, String::new()));
    for hint in
        ["ensemble dead list", "ensemble admin watch", "ensemble request answer x --approve"]
    {
        assert!(unhelpful(&["dead", "list", "--json"], &format!("hint: `{hint}`")).is_some());
    }
    assert_eq!(unhelpful(&["up"], "hint: `ensemble admin watch &`, or `ensemble up w1`"), None);
    assert_eq!(place_of(contract(), &["--json", "mcp", "install"]).unwrap(), "admin mcp install");
    assert_eq!(place_of(contract(), &["agent", "usage", "allow"]).unwrap(), "agent usage allow");
}
