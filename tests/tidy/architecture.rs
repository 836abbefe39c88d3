//! ARCHITECTURE.md, the invariants and docs/decisions/ against the tree.

use crate::*;

const INVARIANTS: &str = "docs/internals/invariants.md";
const RECORDS: &str = "docs/decisions";
const RECORD_LINES_MAX: usize = 25;
const HEADINGS: [&str; 3] = ["## Context", "## Decision", "## Consequence"];
/// Crates whose modules must be in the map.
const CRATES: [&str; 3] = ["ensemble-core", "crates/ensemble-tmux", "crates/ensemble-team"];
/// The most files and threads between a message that lands and the keystroke for it.
const WALK_FILES_MAX: usize = 12;
const WALK_THREADS: usize = 2;
/// Each of the first rows is called by the next one, which fetches the news. Further rows are called by one before.
const WALK_FETCHED: usize = 3;
const REPORT_SHAPES: usize = 4;
/// Shipped code that reads the environment: variables that a tmux client inherits, and the doubles of tests.
const READS_ENVIRONMENT: [&str; 3] = ["/main.rs", "/tmux/control.rs", "/sim/"];
/// Shipped code that reads files by the standard library, and why it may.
const READS_PLAINLY: [(&str, &str); 16] = [
    ("examples/embedders/", "what an embedder would write"),
    ("ensemble-core/src/sys/", "files of the kernel"),
    ("ensemble-tmux/src/sys/", "files of the kernel"),
    ("ensemble-tmux/src/provider/recorded.rs", "screens for tests"),
    ("driver/supervise/agent.rs", "random bytes"),
    ("ensemble-nats/src/ladders.rs", "the name of the machine"),
    ("ensemble-core/src/dropbox/file_writers.rs", "files of the kernel"),
    ("ensemble-project/src/project/host_name.rs", "the name of the machine"),
    ("ensemble-project/src/team/launch.rs", "random bytes"),
    ("doctor/machine.rs", "limits of the kernel"),
    ("ensemble-app/src/agent_panes.rs", "command lines of processes"),
    ("commands/init/upstream.rs", "command lines of processes"),
    ("ensemble-app/src/content.rs", "`-f FILE` may be a pipe"),
    ("ensemble-cli/src/loopback.rs", "random bytes"),
    ("ensemble-cli/src/demo/", "its own files"),
    ("ensemble-conformance/src/", "files of the program that it tests"),
];

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The text of a document from one heading to the next one of its level.
fn section<'t>(text: &'t str, heading: &str) -> &'t str {
    let (_, rest) = text.split_once(heading).unwrap_or_else(|| panic!("no `{heading}`"));
    rest.split("\n## ").next().unwrap()
}

fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The modules that a `lib.rs` declares.
fn modules(lib: &str) -> impl Iterator<Item = &str> {
    lib.lines().filter_map(|line| {
        let line =
            line.strip_prefix("pub(crate) ").or_else(|| line.strip_prefix("pub ")).unwrap_or(line);
        line.strip_prefix("mod ")?.strip_suffix(';')
    })
}

#[test]
fn each_module_has_a_row_in_the_map_and_each_row_a_module() {
    let architecture = read("ARCHITECTURE.md");
    let map = section(&architecture, "## Map");
    let (map, _) = map.split_once("**Other crates**").unwrap();
    let rows = map.lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
    let rows: BTreeSet<String> = rows
        .flat_map(|row| quoted(&format!("`{row}")).map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let libs = CRATES
        .iter()
        .filter_map(|name| fs::read_to_string(root().join(name).join("src/lib.rs")).ok());
    let code: BTreeSet<String> =
        libs.flat_map(|lib| modules(&lib).map(str::to_owned).collect::<Vec<_>>()).collect();
    assert!(code.len() > 20, "this test looks in the wrong place");
    let only =
        |these: &BTreeSet<String>, those| these.difference(those).cloned().collect::<Vec<_>>();
    assert_none("a module without a row in the map of ARCHITECTURE.md", &only(&code, &rows));
    assert_none("a row of the map without a module", &only(&rows, &code));
}

/// The file and the function of each row of the walk, from a message that landed to the keystroke.
fn rows_of_walk(architecture: &str) -> Vec<(String, String)> {
    let life = section(architecture, "## The life of a message");
    let rows =
        life.lines().filter(|line| line.trim_start().starts_with('|') && line.contains(".rs`"));
    let words = rows.map(|row| quoted(row).map(str::to_owned).collect::<Vec<_>>());
    words.map(|words| (words[0].clone(), words[1].clone())).collect()
}

/// Whether shipped code of a file calls a function by this name.
fn calls(file: &str, function: &str) -> bool {
    let code = fs::read_to_string(root().join(file)).unwrap_or_default();
    let code = code.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let call = format!("{function}(");
    let is_call = |before: &str| {
        let is_other_name = before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        !is_other_name && !before.ends_with("fn ")
    };
    let mut lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.any(|line| line.match_indices(&call).any(|(at, _)| is_call(&line[..at])))
}

#[test]
fn a_message_reaches_its_pane_by_the_files_that_the_walk_names() {
    let architecture = read("ARCHITECTURE.md");
    let walk = rows_of_walk(&architecture);
    let gone = walk.iter().filter(|(file, function)| {
        let code = fs::read_to_string(root().join(file)).unwrap_or_default();
        !code.contains(&format!("fn {function}("))
    });
    let gone: Vec<String> = gone.map(|(file, function)| format!("{file}: {function}")).collect();
    assert_none("a step of the walk that is not in its file", &gone);
    let loose = (1..walk.len()).filter(|at| {
        let (above, (file, function)) = (&walk[..*at], &walk[*at]);
        match *at < WALK_FETCHED {
            true => !calls(file, &above[at - 1].1),
            false => !above.iter().any(|(caller, _)| calls(caller, function)),
        }
    });
    let loose: Vec<String> = loose.map(|at| format!("{}: {}", walk[at].0, walk[at].1)).collect();
    assert_none("a step of the walk that is not called as its page says", &loose);
    assert!((1..=WALK_FILES_MAX).contains(&walk.len()), "the walk has {} files", walk.len());
    let life = section(&architecture, "## The life of a message");
    let threads =
        life.lines().filter(|line| line.contains(".rs`") && !line.trim().starts_with("| |"));
    assert_eq!(threads.count(), WALK_THREADS, "threads of the walk");
}

#[test]
fn a_report_has_the_shapes_that_its_walk_names() {
    let architecture = read("ARCHITECTURE.md");
    let life = section(&architecture, "## The life of a report");
    let (shapes, _) = life.split_once("\n1. ").unwrap();
    let words: Vec<&str> = quoted(shapes).collect();
    let gone = words.chunks(2).filter(|shape| {
        let code = fs::read_to_string(root().join(shape[1])).unwrap_or_default();
        !code.contains(&format!("struct {} {{", shape[0]))
    });
    let gone: Vec<String> = gone.map(|shape| shape.join(": ")).collect();
    assert_none("a shape that is not in its file", &gone);
    assert_eq!(words.len() / 2, REPORT_SHAPES);
}

#[test]
fn each_invariant_names_a_test_that_exists() {
    let invariants = read(INVARIANTS);
    let (mut broken, mut count) = (Vec::new(), 0);
    for paragraph in invariants.split("\n\n").filter(|text| text.trim_start().starts_with("**")) {
        count += 1;
        let named: Vec<&str> = quoted(paragraph)
            .filter(|text| text.starts_with("tests/") && text.contains("::"))
            .collect();
        if named.is_empty() {
            broken.push(format!("no test: {}", paragraph.trim().lines().next().unwrap()));
        }
        for name in named {
            let (file, test) = name.split_once("::").unwrap();
            let code = fs::read_to_string(root().join(file)).unwrap_or_default();
            let code = code.replace("#[ignore = \"long\"]\n", "");
            if !code.contains(&format!("#[test]\nfn {test}(")) {
                broken.push(format!("not there: {name}"));
            }
        }
    }
    assert!(count > 20, "this test reads the wrong page: {count}");
    assert_none("an invariant without its test", &broken);
}

#[test]
fn libraries_read_no_environment() {
    let is_library =
        |path: &str| CRATES.iter().any(|name| path.starts_with(&format!("{name}/src/")));
    let is_allowed = |path: &str| READS_ENVIRONMENT.iter().any(|part| path.contains(part));
    let mut found = Vec::new();
    for source in sources().iter().filter(|s| is_library(&s.path) && !s.is_test()) {
        if !is_allowed(&source.path) && source.shipped().contains("env::var") {
            found.push(source.path.clone());
        }
    }
    assert_none("a library that reads the environment", &found);
}

/// A pipe or a device in place of a file must not block its reader, and a huge one must not fill the memory.
#[test]
fn files_are_read_by_the_careful_reader() {
    let is_plain = |code: &str| {
        let calls =
            ["fs::read(", "fs::read_to_string(", " File::open(", "(File::open(", "::File::open("];
        calls.iter().any(|call| code.contains(call))
    };
    let is_allowed = |path: &str| READS_PLAINLY.iter().any(|(part, _)| path.contains(part));
    let sources = sources();
    let shipped = || sources.iter().filter(|s| s.path.contains("/src/") && !s.is_test());
    let found: Vec<String> = shipped()
        .filter(|source| !is_allowed(&source.path) && is_plain(source.shipped()))
        .map(|source| source.path.clone())
        .collect();
    assert_none("use ensemble_core::durable::{read_file, read_chosen_file, open_file}", &found);
    let is_needed = |part: &str| shipped().any(|s| s.path.contains(part) && is_plain(s.shipped()));
    let stale: Vec<String> = READS_PLAINLY
        .iter()
        .filter(|(part, _)| !is_needed(part))
        .map(|(part, _)| (*part).to_owned())
        .collect();
    assert_none("an exception that is not needed", &stale);
}

#[test]
fn every_crate_forbids_unsafe_code() {
    let all = sources();
    let libs =
        all.iter().filter(|s| s.path.ends_with("/src/lib.rs") && !s.path.starts_with("tests/"));
    let without: Vec<String> = libs
        .filter(|lib| !lib.code.contains("#![forbid(unsafe_code)]"))
        .map(|lib| lib.path.clone())
        .collect();
    assert_none("a crate without #![forbid(unsafe_code)]", &without);
}

/// What is wrong with a record: its number, date, headings or length.
fn faults(file: &str, text: &str) -> Vec<String> {
    let number = file.get(..4).unwrap_or_default();
    let mut faults = Vec::new();
    if !text.starts_with(&format!("# {number}: ")) {
        faults.push(format!("{file}: the first line is not `# {number}: TITLE`"));
    }
    let date = text.lines().find_map(|line| line.strip_prefix("Date: ")).unwrap_or_default();
    let is_date = |text: &str| {
        let parts: Vec<&str> = text.split('-').collect();
        parts.iter().map(|part| part.len()).eq([4, 2, 2])
            && parts.iter().all(|part| part.bytes().all(|b| b.is_ascii_digit()))
    };
    if !is_date(date.split(';').next().unwrap_or_default()) {
        faults.push(format!("{file}: no `Date: YYYY-MM-DD`"));
    }
    let headings: Vec<&str> = text.lines().filter(|line| line.starts_with("## ")).collect();
    if headings != HEADINGS {
        faults.push(format!("{file}: the headings are not {HEADINGS:?}"));
    }
    if text.lines().count() > RECORD_LINES_MAX {
        faults.push(format!("{file}: more than {RECORD_LINES_MAX} lines"));
    }
    faults
}

#[test]
fn each_decision_has_a_date_three_headings_and_a_row_in_the_index() {
    let records = fs::read_dir(root().join(RECORDS)).unwrap();
    let mut records: Vec<String> =
        records.map(|record| record.unwrap().file_name().into_string().unwrap()).collect();
    records.retain(|file| file != "README.md");
    records.sort_unstable();
    let mut found = Vec::new();
    let mut rows = Vec::new();
    for (at, file) in records.iter().enumerate() {
        let text = read(&format!("{RECORDS}/{file}"));
        found.extend(faults(file, &text));
        let number = format!("{:04}", at + 1);
        if !file.starts_with(&format!("{number}-")) || !file.ends_with(".md") {
            found.push(format!("{file}: the name does not follow {number}"));
        }
        let title =
            text.lines().next().and_then(|line| line.split_once(": ")).unwrap_or_default().1;
        let date = text.lines().find_map(|line| line.strip_prefix("Date: ")).unwrap_or_default();
        let date = date.split(';').next().unwrap_or_default();
        rows.push(format!("| [{number}]({file}) | {date} | {title} |"));
    }
    assert_none("a record of docs/decisions", &found);
    let index = read(&format!("{RECORDS}/README.md"));
    let index: Vec<&str> = index.lines().filter(|line| line.starts_with("| [")).collect();
    assert_eq!(index, rows, "the index of docs/decisions");
}

#[test]
fn a_faulty_record_is_found() {
    let good =
        "# 0007: A title\n\nDate: 2026-11-22\n\n## Context\n\n## Decision\n\n## Consequence\n";
    assert_eq!(faults("0007-a.md", good), [""; 0]);
    for (from, to) in [
        ("0007", "0008"),
        ("11-22", "11"),
        ("## Decision\n", ""),
        ("\n\n##", "\n\n\n\n\n\n\n\n\n##"),
    ] {
        assert_eq!(faults("0007-a.md", &good.replace(from, to)).len(), 1, "{from}");
    }
}
