//! The rules of CONTRIBUTING.md that a reader should not have to check.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use code::{Kind, functions, parts, without_text};
use crates::{CRATES, imports, imports_by};
use measures::Measure;

mod architecture;
mod code;
mod crates;
mod dependencies;
mod doors;
mod events;
mod face;
mod language;
mod layers;
mod links;
mod measures;
mod names;
mod quoted;
mod sizes;
mod spool_page;
mod words;

const FILE_LINES_MAX: usize = 500;
const FILE_LINES_MEDIAN_MAX: usize = 200;
const FUNCTION_LINES_MAX: usize = 70;
/// Tests under load, in which a sleep is the pace of a killer, of a slow consumer, or of a scripted hour. Nothing is
/// concluded from its being over.
const PACED: [&str; 4] =
    ["tests/cli/team/hour.rs", "tests/torture/crowd/", "tests/torture/whole/", "tests/watch/"];
/// It tries out what the file system can do, before anything is trusted to it.
const DOCTOR: &str = "ensemble-cli/src/commands/doctor/";

struct Source {
    /// Below the workspace.
    path: String,
    text: String,
    /// Without comments and without what is in quotes.
    code: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All files below the workspace whose names end so; nothing hidden, nothing that was built.
fn files(ends: &[&str]) -> Vec<(String, String)> {
    let (mut found, mut left) = (Vec::new(), vec![root()]);
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_symlink() || name.starts_with('.') || name.starts_with("target") {
                continue;
            }
            if path.is_dir() {
                left.push(path);
            } else if ends.iter().any(|end| name.ends_with(end)) {
                let below = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
                found.push((below, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found.sort_unstable();
    found
}

fn sources() -> &'static [Source] {
    static SOURCES: OnceLock<Vec<Source>> = OnceLock::new();
    SOURCES.get_or_init(|| {
        let source =
            |(path, text): (String, String)| Source { code: without_text(&text), path, text };
        let sources: Vec<_> = files(&[".rs"]).into_iter().map(source).collect();
        assert!(sources.len() > 50, "this test looks in the wrong place");
        sources
    })
}

impl Source {
    fn is_test(&self) -> bool {
        self.path.starts_with("tests/") || self.path.ends_with("/tests.rs")
    }

    /// The code up to the unit tests, which are at the end.
    fn shipped(&self) -> &str {
        let test_module = self.code.match_indices("#[cfg(test)]").find(|(at, _)| {
            let module = self.code[*at..].lines().nth(1).unwrap_or_default().trim_start();
            module.starts_with("mod ") && module.ends_with('{')
        });
        test_module.map_or(&self.code, |(at, _)| &self.code[..at])
    }
}

fn assert_none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

#[test]
fn files_and_functions_are_short() {
    let sources = sources();
    let mut lengths: Vec<usize> = sources.iter().map(|s| s.text.lines().count()).collect();
    lengths.sort_unstable();
    let median = lengths[lengths.len() / 2];
    assert!(median <= FILE_LINES_MEDIAN_MAX, "half of the files have more than {median} lines");
    let mut long = Vec::new();
    for source in sources {
        let lines = source.text.lines().count();
        if lines > FILE_LINES_MAX {
            long.push(format!("{} has {lines} lines", source.path));
        }
        for function in functions(&source.code).filter(|f| f.lines > FUNCTION_LINES_MAX) {
            long.push(format!("{}:{} has {} lines", source.path, function.at, function.lines));
        }
    }
    assert_none("too long", &long);
}

#[test]
fn nothing_is_left_undone() {
    let banned = ["todo!(", "unimplemented!(", "dbg!(", "#[ignore]"];
    let mut found = Vec::new();
    for source in sources() {
        for word in banned.iter().filter(|word| source.code.contains(**word)) {
            found.push(format!("{}: {word}", source.path));
        }
    }
    assert_none("left undone, or ignored without a reason", &found);
}

/// The ignored tests, each with its place and the reason.
fn ignored() -> impl Iterator<Item = (String, &'static str)> {
    let places = |source: &'static Source| {
        source.text.match_indices("#[ignore = \"").map(|(at, mark)| {
            let (reason, rest) =
                source.text[at + mark.len()..].split_once("\"]").unwrap_or_default();
            let name = rest.trim_start().split(['(', ':']).next().unwrap_or_default();
            let line = source.text[..at].lines().count() + 1;
            (format!("{}:{line}: {}", source.path, name.trim_start_matches("fn ")), reason)
        })
    };
    sources().iter().filter(|source| source.path != "tests/tidy/main.rs").flat_map(places)
}

/// `make test-all` runs what is ignored as `long`, but what begins as tests/run.py says.
#[test]
fn what_is_ignored_is_long_or_does_not_run_by_itself() {
    let is_apart =
        |place: &str| [": subprocess_", ": measurement_"].iter().any(|part| place.contains(part));
    let is_right = |(place, reason): &(String, &str)| (*reason == "long") != is_apart(place);
    let wrong: Vec<String> = ignored().filter(|one| !is_right(one)).map(|one| one.0).collect();
    assert_none("ignored, but not `long`, and not named as tests/run.py skips them", &wrong);
}

#[test]
fn tests_wait_for_things_and_not_for_time() {
    let mut found = Vec::new();
    let is_paced = |path: &str| PACED.iter().any(|paced| path.starts_with(paced));
    for source in sources().iter().filter(|s| s.is_test() && !is_paced(&s.path)) {
        for (at, _) in source.code.match_indices("thread::sleep(") {
            // Between two looks at another program, until it is so or a deadline has passed.
            if !source.code[at..].starts_with("thread::sleep(LOOK_INTERVAL)") {
                let line = source.code[..at].lines().count();
                found.push(format!("{}:{line}", source.path));
            }
        }
    }
    assert_none("a test sleeps", &found);
}

#[test]
fn only_durable_renames_locks_and_syncs() {
    let banned = [
        "fs::rename",
        "renameat",
        "fs::hard_link",
        "linkat(",
        "fsync",
        "fdatasync",
        "sync_all(",
        "sync_data(",
        ".try_lock(",
        ".try_lock_shared(",
        ".lock_shared(",
        "flock(",
    ];
    let is_shipped = |s: &&Source| s.path.contains("/src/") && !s.path.starts_with(DOCTOR);
    let mut found = Vec::new();
    // What `durable` calls on each system.
    let is_durable =
        |path: &str| path.contains("/durable/") || path.starts_with("ensemble-core/src/sys/");
    for source in sources().iter().filter(is_shipped).filter(|s| !is_durable(&s.path)) {
        for word in banned.iter().filter(|word| source.shipped().contains(**word)) {
            found.push(format!("{}: {word}", source.path));
        }
    }
    assert_none("use ensemble_core::durable", &found);
}

#[test]
fn every_machine_begins_with_its_table() {
    let is_machine = |path: &str| {
        let machines = ["ensemble-core/src/proto/", "crates/ensemble-team/src/proto/"];
        let below = machines.iter().find_map(|machines| path.strip_prefix(machines));
        let file = below.filter(|file| !["mod.rs", "testing.rs"].contains(file));
        file.is_some_and(|file| !file.contains('/') || file.ends_with("/mod.rs"))
            || path == "crates/ensemble-team/src/collect/mod.rs"
            || path == "crates/ensemble-tmux/src/nudge/mod.rs"
    };
    let mut without = Vec::new();
    for source in sources().iter().filter(|s| is_machine(&s.path)) {
        let mut page = source.text.lines().take_while(|line| line.starts_with("//!"));
        if !page.any(|line| line == "//! ```text") {
            without.push(source.path.clone());
        }
    }
    assert_none("a machine without a transition table at its top", &without);
}

#[test]
fn the_project_runs_on_anybodys_machine() {
    // Put together here, so that this file does not find itself.
    let places = ["work", "home", "root", "Users"].map(|place| format!("/{place}/"));
    let mut found = Vec::new();
    for (path, text) in files(&[".rs", ".md", ".sh", ".yaml", ".toml", "Makefile"]) {
        for place in places.iter().filter(|place| text.contains(place.as_str())) {
            found.push(format!("{path}: {place}"));
        }
    }
    assert_none("a path of one machine", &found);
}

#[test]
fn the_broker_fits_one_page_and_each_extension_has_its_own() {
    const LINES_MAX: usize = 250;
    let protocol = std::fs::read_to_string(root().join("PROTOCOL.md")).unwrap();
    let lines = protocol.lines().count();
    assert!(lines <= LINES_MAX, "PROTOCOL.md has {lines} lines");
    let pages = std::fs::read_dir(root().join("docs/protocol")).unwrap();
    let pages: Vec<String> =
        pages.map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    let is_linked = |page: &String| protocol.contains(&format!("(docs/protocol/{page})"));
    let unlinked: Vec<String> = pages.iter().filter(|page| !is_linked(page)).cloned().collect();
    assert_none("a page that PROTOCOL.md does not link", &unlinked);
    let links = protocol.split("(docs/protocol/").skip(1);
    let named = links.filter_map(|rest| rest.split(')').next());
    let broken: Vec<String> =
        named.filter(|page| !pages.iter().any(|p| p == page)).map(str::to_owned).collect();
    assert_none("a link to a page that does not exist", &broken);
}

#[test]
fn the_shell_worker_can_be_read_at_a_glance() {
    let worker = std::fs::read_to_string(root().join("examples/worker.sh")).unwrap();
    assert!(worker.lines().count() <= 84);
    let long: Vec<_> = worker.lines().filter(|line| line.len() > 120).collect();
    assert!(long.is_empty(), "{long:?}");
}
