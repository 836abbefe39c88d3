//! The clients of `clients/` keep the protocol, and `ensemble admin conformance` finds what breaks it.
//!
//! A client whose language is not installed says so in one line. Node comes from npm where the system's is too old to
//! strip types; with `ENSEMBLE_TEST_CLIENTS=required` that must work.

mod faults;
mod installed;
mod workers;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::setting;

/// The most lines of a client's file, without blank ones, comments and documentation.
const LINES_MAX: usize = 280;
/// The widest line: a client does not become short by long lines.
const COLUMNS_MAX: usize = 100;
const MESSAGES: u64 = 200;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Runs the kit, with the vectors whose names contain `case`. A short load of five processes is enough for each
/// change; `make torture-clients` has more.
fn kit(stages: &str, case: &str, clients: &[String]) -> (Output, Vec<Value>) {
    let mut kit = Command::new(env!("CARGO_BIN_EXE_ensemble"));
    kit.args([
        "--json",
        "admin",
        "conformance",
        "--only",
        stages,
        "--case",
        case,
        "--trouble-ms",
        "400",
    ]);
    let numbers = [
        ("--messages", setting("CLIENTS_MESSAGES", MESSAGES)),
        ("--processes", setting("CLIENTS_PROCESSES", 5)),
        ("--seconds", setting("TORTURE_SECONDS", 120)),
        ("--seed", setting("TORTURE_SEED", 1)),
    ];
    for (flag, number) in numbers {
        kit.args([flag, &number.to_string()]);
    }
    let output = kit.args(clients).current_dir(root()).output().unwrap();
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (output, lines)
}

/// A client passes everything. Returns how many checks were passed and skipped.
fn passes(client: &str) -> (usize, usize) {
    let (output, lines) = kit("vectors,traces,locks,disk", "", &[client.to_owned()]);
    let failed: Vec<_> = lines.iter().filter(|line| line["verdict"] == "failed").collect();
    assert!(output.status.success() && failed.is_empty(), "{failed:#?}\n{output:?}");
    let count = |verdict: &str| lines.iter().filter(|line| line["verdict"] == verdict).count();
    (count("passed"), count("skipped"))
}

#[test]
fn our_own_adapter_passes() {
    let client = format!("'{}' admin conformance --serve", env!("CARGO_BIN_EXE_ensemble"));
    let (passed, _) = passes(&client);
    assert!(passed >= 220, "{passed}");
}

#[test]
#[ignore = "long"]
fn the_clients_of_each_language_pass() {
    let clients = [
        (Some(installed::python()), 205, usize::MAX),
        (Some(installed::shell()), 205, 2),
        (installed::typescript(), 190, 23),
        (installed::go(), 205, usize::MAX),
    ];
    for (client, passed_min, skipped_max) in clients {
        let Some(client) = client else { continue };
        let (passed, skipped) = passes(&client);
        assert!(passed >= passed_min && skipped <= skipped_max, "{client}: {passed} {skipped}");
    }
}

#[test]
#[ignore = "long"]
fn all_clients_share_a_mailbox_under_kills_and_stops() {
    let mut clients = vec![installed::python(), installed::shell()];
    clients.extend(installed::typescript());
    clients.extend(installed::go());
    let (output, lines) = kit("load", "", &clients);
    assert!(output.status.success(), "{lines:#?}\n{output:?}");
    let load = &lines.iter().find(|line| line["load"].is_object()).unwrap()["load"];
    println!("{load}");
    let count = |key: &str| load[key].as_u64().unwrap();
    let begun = count("sent") + count("sends_unknown");
    // A run that is given little time ends earlier.
    let is_timed = std::env::var_os("TORTURE_SECONDS").is_some();
    assert!(begun == setting("CLIENTS_MESSAGES", MESSAGES) || is_timed && begun > 0, "{load}");
    assert!(count("done") >= count("sent"), "{load}");
}

fn lines_of_code(text: &str) -> usize {
    let mut is_in_text = false;
    let is_code = |line: &&str| {
        let line = line.trim();
        let quotes = line.matches("\"\"\"").count();
        let was_in_text = is_in_text;
        if quotes == 1 {
            is_in_text = !is_in_text;
        }
        let is_comment = ["#", "//", "/*", "*"].iter().any(|start| line.starts_with(start));
        !line.is_empty() && !is_comment && quotes == 0 && !was_in_text
    };
    text.lines().filter(is_code).count()
}

#[test]
fn each_client_is_short_and_narrow() {
    let files = [
        "python/ensemble_client.py",
        "python/ensemble_api.py",
        "typescript/ensemble.mts",
        "typescript/ensemble_api.mts",
        "sh/ensemble.sh",
        "go/ensemble.go",
        "go/envelope.go",
        "go/api/api.go",
    ];
    for file in files {
        let text = std::fs::read_to_string(root().join("clients").join(file)).unwrap();
        let lines = lines_of_code(&text);
        assert!((30..=LINES_MAX).contains(&lines), "{file} has {lines} lines of code");
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= COLUMNS_MAX, "{file} has a line of {widest} columns");
    }
}
