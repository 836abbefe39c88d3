//! Each field of `ensemble.yaml` with hostile values: an error names the field, or the value does no harm.
//!
//! The fields come from the schema that the command prints, so a new field is tried without a change here.

use ensemble_project::Project;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Map, Value, json};

use crate::bed::{Bed, Ran, end};
use crate::waiting::until_it_listens;

/// Stands for the hostile value in a document; written as JSON, then replaced.
const HERE: &str = "@here@";
const NUMBERS: [&str; 11] = [
    "-1",
    "0",
    "1.5",
    "1e400",
    ".nan",
    ".inf",
    "-.inf",
    "4294967296",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999999999999999999999999999",
];
const TEXTS: [&str; 12] = [
    r#""""#,
    r#"" ""#,
    r#""../../etc/passwd""#,
    r#""/etc/passwd""#,
    r#""a\0b""#,
    r#""a\e[31mb""#,
    r#""a\nb""#,
    r#""a\u202eb""#,
    r#""-rf""#,
    r#""$(touch hacked)""#,
    r#""nosuch""#,
    r#""%99:&*""#,
];
/// Values that are of another type than any field but a few.
const SHAPES: [&str; 8] =
    ["[[[]]]", "{x: {y: z}}", "[a, a]", "true", "7", "!!binary aGk=", "2026-01-01", "~"];

/// A field: the names and positions that lead to it, and a valid document that has it.
struct Field {
    key: String,
    document: Value,
}

fn sample(key: &str) -> Value {
    match key {
        "match" => json!("reports/x-*.yaml"),
        "to" => json!(["dispatch"]),
        "type" => json!("report.x"),
        _ => json!("x1"),
    }
}

fn resolved<'s>(schema: &'s Value, mut node: &'s Value) -> &'s Value {
    loop {
        let of_any = |node: &'s Value| {
            let all = node["anyOf"].as_array()?;
            all.iter().find(|one| one["type"] != "null")
        };
        node = match (node["$ref"].as_str(), of_any(node)) {
            (Some(place), _) => &schema["$defs"][place.trim_start_matches("#/$defs/")],
            (None, Some(other)) => other,
            (None, None) => return node,
        };
    }
}

/// All fields below a part of the schema; `place` makes a document with a value at that part.
fn fields(schema: &Value, node: &Value, key: &str, place: &dyn Fn(Value) -> Value) -> Vec<Field> {
    let node = resolved(schema, node);
    let mut found = vec![Field { key: key.to_owned(), document: place(json!(HERE)) }];
    if let Some(properties) = node["properties"].as_object() {
        let needed: Map<String, Value> = node["required"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|it| (it.as_str().unwrap().to_owned(), sample(it.as_str().unwrap())))
            .collect();
        // A rule that reports something has a way of telling it.
        let way = ["command", "terminal"].iter().all(|way| properties.contains_key(*way));
        for (child, node) in properties {
            let within = |value: Value| {
                let mut object = needed.clone();
                if way {
                    object.insert("command".to_owned(), json!("true"));
                }
                object.insert(child.clone(), value);
                place(Value::Object(object))
            };
            found.extend(fields(schema, node, child, &within));
        }
    }
    let patterns = node["patternProperties"].as_object().and_then(|all| all.values().next());
    let named =
        patterns.or_else(|| Some(&node["additionalProperties"]).filter(|it| it.is_object()));
    if let Some(node) = named {
        found.extend(fields(schema, node, key, &|value| place(json!({ "w1": value }))));
    }
    if node["items"].is_object() {
        found.extend(fields(schema, &node["items"], key, &|value| place(json!([value]))));
    }
    found
}

fn all_fields() -> Vec<Field> {
    let printed = Bed::empty().ok("admin schema config");
    let schema: Value = serde_json::from_str(&printed).unwrap();
    let mut all = fields(&schema, &schema, "", &|value| value);
    all.retain(|field| !field.key.is_empty());
    all
}

fn text(document: &Value, value: &str) -> String {
    document.to_string().replace(&format!("\"{HERE}\""), value)
}

/// What the library says of a configuration: when it is read, and when its parts are used.
fn read(bed: &Bed, text: &str) -> Result<(), String> {
    bed.write_file("ensemble.yaml", text);
    let queue = bed.project().join("queue");
    let checked = Project::discover(Some(&queue)).and_then(|project| {
        project.kinds()?;
        project.routes().map(drop)
    });
    checked.map_err(|error| error.to_string())
}

#[track_caller]
fn is_orderly(ran: &Ran, what: &str) {
    let is_known = [0, 1, 2, 3, 4, 5, 75].contains(&ran.code);
    assert!(is_known && !ran.stderr.contains("panicked"), "{what}: {ran:?}");
}

#[test]
fn an_error_names_the_field() {
    let bed = Bed::new();
    let (mut rejected, mut accepted, mut unnamed) = (0, 0, Vec::new());
    let fields = all_fields();
    for (number, Field { key, document }) in fields.iter().enumerate() {
        let long = format!("\"{}\"", "x".repeat(50_000));
        let values = NUMBERS.iter().chain(&TEXTS).chain(&SHAPES).copied().chain([long.as_str()]);
        let mut errors = Vec::new();
        for value in values {
            let text = text(document, value);
            match read(&bed, &text) {
                Ok(()) => accepted += 1,
                Err(error) => {
                    // In binary data the parser knows its place no closer than the mapping.
                    let is_named = error.contains(key.as_str()) || value.starts_with("!!binary");
                    if !error.contains("ensemble.yaml") || !is_named {
                        unnamed.push(format!("{key} by {value:.80}: {error:.300}"));
                    }
                    errors.push(text);
                }
            }
        }
        rejected += errors.len();
        // The command says the same, for some: a list of lists is what no field takes.
        if number % 10 != 0 {
            continue;
        }
        let text = errors.into_iter().find(|text| text.contains(SHAPES[0])).unwrap();
        bed.write_file("ensemble.yaml", &text);
        let said = bed.fails(2, "status");
        assert!(said.contains(key.as_str()), "{text}: {said}");
    }
    assert!(unnamed.is_empty(), "{}", unnamed.join("\n"));
    println!("{} fields, {rejected} rejected, {accepted} accepted", fields.len());
}

/// Puts one document into another; items of lists follow each other.
fn merge(into: &mut Value, other: Value) {
    match (into, other) {
        (Value::Object(into), Value::Object(other)) => {
            for (key, value) in other {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (Value::Array(into), Value::Array(other)) => into.extend(other),
        (into, other) => *into = other,
    }
}

/// All fields at once that take a value have it. `ENSEMBLE_HOSTILE=all` tries each value; by default, those of the
/// list.
#[test]
fn what_is_accepted_harms_neither_commands_nor_the_watcher() {
    let bed = Bed::new();
    let long = format!("\"{}\"", "x".repeat(50_000));
    let all: Vec<&str> = match std::env::var("ENSEMBLE_HOSTILE") {
        Ok(_) => NUMBERS.iter().chain(&TEXTS).copied().chain([long.as_str()]).collect(),
        Err(_) => vec!["0", "18446744073709551615", TEXTS[2], TEXTS[9], &long],
    };
    let fields = all_fields();
    for value in all {
        let mut document = json!({ "durability": "process" });
        let mut count = 0;
        for field in &fields {
            // A command is a program of the user's own, and `.` or another one is a queue of servers.
            if ["command", "tests", "transport"].contains(&field.key.as_str()) {
                continue;
            }
            let mut more = document.clone();
            merge(&mut more, field.document.clone());
            if read(&bed, &text(&more, value)).is_ok() {
                (document, count) = (more, count + 1);
            }
        }
        assert!(read(&bed, &text(&document, value)).is_ok());
        for line in ["status", "team", "send --to w1 --as lead -m x", "recv --as w1", "doctor"] {
            is_orderly(&bed.run(line), &format!("{line} with {count} fields by {value:.80}"));
        }
        let watcher = bed.start("watch");
        until_it_listens(&watcher);
        bed.write_file("queue/reports/x-completed.yaml", "{");
        is_orderly(&bed.run("status"), &format!("{value:.80}"));
        kill_process(Pid::from_child(&watcher), Signal::TERM).unwrap();
        let watcher = end(watcher);
        assert_eq!(watcher.code, 0, "{count} fields by {value:.80}: {}", watcher.stderr);
        assert!(!watcher.stderr.contains("panicked"), "{value:.80}: {}", watcher.stderr);
        println!("{count} fields by {value:.40}");
    }
    assert!(!bed.project().join("hacked").exists());
}
