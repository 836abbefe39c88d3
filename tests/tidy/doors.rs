//! Doors of the command parse, call and print; none imports another one. One place asks where the mail is.
//!
//! A door is a verb, the MCP server, the calls of `admin api`, the agents' hooks, the live view or the wrapper. A verb
//! may start the door that it is for.

use crate::*;

/// Each door and the verbs that start it.
const DOORS: [(&str, &[&str]); 6] = [
    ("api", &["api"]),
    ("commands", &[]),
    ("hooks", &["hook", "hooks"]),
    ("live", &["top"]),
    ("mcp", &["mcp"]),
    ("wrap", &["wrapped"]),
];
const TABLE: &str = "verbs";
/// Forms of the question whether the mail is in a directory or on servers.
const WHERE_MAIL_IS: [&str; 4] = ["::Directory", "::Servers", ".servers()", "on_servers"];

/// The doors that a file of the command imports and may not, as `path: imports door`.
fn crossings(file: &str, path: &[String], code: &str) -> BTreeSet<String> {
    let verb = (path[0] == "commands").then(|| path.get(1)).flatten();
    let may = |door: &str| {
        let (_, starters) = DOORS.iter().find(|(name, _)| *name == door).unwrap();
        path[0] == door || verb.is_some_and(|verb| starters.contains(&verb.as_str()))
    };
    let is_door = |name: &String| DOORS.iter().any(|(door, _)| door == name);
    let doors = imports(code, path.len()).into_iter().filter(is_door);
    doors.filter(|door| !may(door)).map(|door| format!("{file}:1: imports {door}")).collect()
}

/// The verbs that the file of a verb imports.
fn verbs(file: &str, path: &[String], code: &str, all: &BTreeSet<String>) -> BTreeSet<String> {
    let Some(own) = path.get(1).filter(|verb| path[0] == "commands" && **verb != TABLE) else {
        return BTreeSet::new();
    };
    let above = "super::".repeat(path.len() - 1);
    let names = [imports_by(code, "crate::commands::"), imports_by(code, &above)].concat();
    let names = names.into_iter().filter(|name| name != own && all.contains(name));
    names.map(|name| format!("{file}:1: imports commands/{name}")).collect()
}

fn places(texts: &[&str], of_text: impl Fn(&super::Source) -> String) -> Vec<String> {
    let mut found = Vec::new();
    for source in CRATES.iter().flat_map(super::crates::Crate::files) {
        for (number, line) in (1..).zip(of_text(source).lines()) {
            let count: usize = texts.iter().map(|text| line.matches(text).count()).sum();
            found.extend(vec![format!("{}:{number}: {}", source.path, line.trim()); count]);
        }
    }
    found
}

pub(crate) fn measures() -> Vec<Measure> {
    let modules = CRATES[7].modules();
    let all_verbs = modules.iter().filter(|(_, path)| path[0] == "commands");
    let all_verbs: BTreeSet<String> =
        all_verbs.filter_map(|(_, path)| path.get(1).cloned()).collect();
    let crossings =
        modules.iter().flat_map(|(source, path)| crossings(&source.path, path, source.shipped()));
    let verbs = modules
        .iter()
        .flat_map(|(source, path)| verbs(&source.path, path, source.shipped(), &all_verbs));
    let with_text = |source: &super::Source| {
        let shipped = source.shipped().lines().count();
        source.text.lines().take(shipped).collect::<Vec<_>>().join("\n")
    };
    vec![
        Measure::shrinking("imports of a door elsewhere", crossings.collect(), "0"),
        Measure::shrinking("imports of a verb by another verb", verbs.collect(), "0"),
        Measure::shrinking(
            "places that ask where the mail is",
            places(&WHERE_MAIL_IS, |source| source.shipped().to_owned()),
            "10",
        ),
        Measure::shrinking("`feature = \"nats\"`", places(&["feature = \"nats\""], with_text), "8"),
    ]
}

#[test]
fn a_crossing_is_found() {
    let path = |path: &str| path.split('/').map(str::to_owned).collect::<Vec<_>>();
    let count = |at: &str, code: &str| crossings("a.rs", &path(at), code).len();
    assert_eq!(count("mcp/tools", "use crate::commands::fill;\nuse crate::mcp::Desk;\n"), 1);
    assert_eq!(count("commands/mcp", "use crate::mcp::Desk;\nuse crate::hooks::Program;\n"), 1);
    assert_eq!(count("args", "crate::commands::run()"), 1);
    let all = BTreeSet::from(["send".to_owned(), "recv".to_owned()]);
    let code = "use super::recv::Given;\nuse super::{fill, send};\n";
    assert_eq!(verbs("a.rs", &path("commands/send"), code, &all).len(), 1);
    assert_eq!(verbs("a.rs", &path("commands/send/servers"), "use super::recv;", &all).len(), 0);
}
