//! Threats of docs/evidence/reliability.md without another test, and a check that each test it names exists.

use crate::tmux_support;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::tmux_support::{TestServer, eventually};
use ensemble_core::dropbox::{BoxSpec, DropBox};
use ensemble_core::env::Pane;
use ensemble_core::message::{Envelope, Name, yaml};
use ensemble_core::pane::{NudgeOutcome, NudgeText};
use ensemble_core::spool::{Settings, Spool, SpoolOptions};
use ensemble_reports::contract::DocumentNode;
use ensemble_team::board;

/// Texts that have run, submitted, split or swallowed something in one multiplexer, shell or terminal.
const HOSTILE: [&str; 37] = [
    "",
    " ",
    "-",
    "-l",
    "--",
    "-t %1 Enter",
    ";",
    "touch PWNED;",
    "touch PWNED ; ",
    "msg;' run-shell 'touch PWNED",
    "\\;",
    "$(touch PWNED)",
    "`touch PWNED`",
    "${IFS}touch${IFS}PWNED",
    "| touch PWNED",
    "&& touch PWNED",
    "> PWNED",
    "< /dev/null > PWNED",
    "'",
    "\"",
    "\\",
    "!!",
    "# touch PWNED\ntouch PWNED",
    "a\nb",
    "a\rb",
    "\u{3}",
    "\u{4}",
    "\u{1b}",
    "\u{1b}[201~\rtouch PWNED\r",
    "\u{9b}201~",
    "\u{0}",
    "\u{7f}\u{8}",
    "C-c",
    "Enter",
    "日本語 ❯",
    "\u{202e}DENWP hcuot",
    "#{pane_id} #(touch PWNED)",
];

#[test]
fn none_of_37_hostile_texts_does_anything_in_a_pane() {
    let tmux = TestServer::reader();
    let server = tmux.pid();
    let mut pane = tmux.pane("%0", "shell");
    let mut typed = Vec::new();
    for text in HOSTILE {
        let Ok(text) = NudgeText::new(text) else { continue };
        assert_eq!(pane.nudge(&text).expect("an outcome"), NudgeOutcome::Sent, "{text}");
        typed.push(text.to_string());
        eventually(text.as_str(), || tmux.received().len() == typed.len());
    }
    // An accepted text has no character with a meaning to a shell, and arrives unchanged.
    assert_eq!(typed, [" ", "C-c", "Enter"]);
    assert_eq!(tmux.received(), typed);
    assert_eq!(tmux.server.pid().expect("the server lives"), server);
    let panes = tmux.server.panes().expect("panes");
    assert_eq!(panes.len(), 1, "nothing was opened");
    assert!(!tmux.dir.path().join("PWNED").exists());
}

#[test]
fn what_may_be_typed_runs_nothing_in_any_shell() {
    let here = tempfile::tempdir().unwrap();
    let texts: Vec<NudgeText> = HOSTILE
        .iter()
        .filter_map(|text| NudgeText::new(*text).ok())
        .chain([tmux_support::text_for("shell"), tmux_support::text_for("claude")])
        .collect();
    let mut tried = 0;
    for shell in ["/bin/sh", "/bin/bash", "/bin/dash", "/bin/zsh", "/usr/bin/fish"] {
        for text in &texts {
            // Runs in a directory without programs, with an empty PATH.
            let mut command = Command::new(shell);
            command.args(["-c", text.as_str()]).current_dir(here.path()).env("PATH", here.path());
            match command.stdin(Stdio::null()).output() {
                Ok(output) => {
                    tried += 1;
                    assert!(output.stdout.is_empty(), "{shell}: {text}");
                }
                Err(error) => println!("skipped: {shell}: {error}"),
            }
        }
    }
    assert!(tried >= texts.len(), "there is no shell");
    assert_eq!(fs::read_dir(here.path()).unwrap().count(), 0);
}

#[test]
fn no_directory_of_a_queue_may_be_writable_by_other_users() {
    let home = tempfile::tempdir().unwrap();
    let queue = home.path().join("queue");
    let worker = Name::new("w").unwrap();
    Spool::create(&queue, SpoolOptions::default())
        .unwrap()
        .add_mailbox(&worker, &Settings::default())
        .unwrap();
    let publish = || {
        let spool = Spool::open(&queue, SpoolOptions::default())?;
        spool.publish(&Envelope::new(worker.clone(), "x")).map(drop)
    };
    publish().unwrap();
    let of_mailbox = ["", "/new", "/front", "/cur", "/done", "/dead", "/lease"];
    let inside = of_mailbox.map(|below| format!("mailbox/w{below}"));
    for below in inside.iter().map(String::as_str).chain(["", "tmp"]) {
        let path = queue.join(below);
        let mode = fs::metadata(&path).unwrap().permissions();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        let error = publish().unwrap_err().to_string();
        assert!(error.contains("chmod o-w"), "{below}: {error}");
        fs::set_permissions(&path, mode).unwrap();
        publish().unwrap();
    }
    let reports = queue.join("reports");
    fs::set_permissions(&reports, fs::Permissions::from_mode(0o777)).unwrap();
    let error = DropBox::open(&queue, &BoxSpec::named("reports")).unwrap_err().to_string();
    assert!(error.contains("chmod o-w"), "{error}");
}

/// Texts of at most 64 KiB that cost other readers of YAML seconds or gigabytes.
fn bombs() -> Vec<(&'static str, String)> {
    let laughs: String = (1..10)
        .map(|n| format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 9].join(",")))
        .collect();
    let quadratic = format!("a: &a {}\nb: [{}]\n", "x".repeat(30_000), "*a,".repeat(10_000));
    vec![
        ("laughs", format!("a0: &a0 lol\n{laughs}")),
        ("quadratic aliases", quadratic),
        ("backticks in a flow", format!("{{a: {}", "`".repeat(64_000))),
        ("flow mappings", "{a: ".repeat(16_000)),
        ("flow sequences", "[".repeat(64_000)),
        ("closed deep", format!("a: {}{}\n", "[".repeat(32_000), "]".repeat(32_000))),
        ("block depth", (0..350).map(|n| format!("{}a:\n", " ".repeat(n))).collect()),
        ("a quote that does not end", format!("a: \"{}", "\\".repeat(60_000))),
        ("one key after the other", (0..9_000).map(|n| format!("k{n}:\n")).collect()),
        ("the same key", "k: 1\n".repeat(12_000)),
        ("documents", "---\n".repeat(16_000)),
        ("comments", "#\n".repeat(32_000)),
        ("merge keys", "<<: {<<: {a: 1}}\n".repeat(3_000)),
        ("a long plain scalar", "a ".repeat(32_000)),
        ("question marks", "? ".repeat(32_000)),
        ("dashes", "- ".repeat(32_000)),
        ("tags", "!!a ".repeat(16_000)),
        ("tabs", "\t".repeat(64_000)),
    ]
}

/// An honest text of the same size.
fn honest() -> String {
    (0..4_000).map(|n| format!("- {{a: {n}}}\n")).collect()
}

fn read(text: &str) {
    let path = Path::new("bomb.yaml");
    let _ = yaml::parse::<serde_json::Value>(text, path);
    let _ = DocumentNode::parse(text, path);
    let _ = board::check(text, path);
    let _ = Envelope::decode(text.as_bytes(), path);
}

fn used() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap(), u32::try_from(time.tv_nsec).unwrap())
}

/// The most memory this process has had since its last reset, in KiB.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// 64 MiB, for a file of 64 KiB.
const MEMORY_KIB_MAX: u64 = 64 * 1024;
/// The honest text takes about 20 ms in a release build, all four readers together.
const TIMES_MAX: u32 = 4;

#[test]
fn a_bomb_costs_no_more_time_than_an_honest_file_and_little_memory() {
    // No other test takes memory in this process.
    let test = "a_bomb_costs_no_more_time_than_an_honest_file_and_little_memory";
    if !crate::children::is_alone(&format!("security::{test}")) {
        return;
    }
    let honest = honest();
    read(&honest);
    let cost = |text: &str| {
        let began = used();
        read(text);
        used() - began
    };
    // The processor's own time, by an honest text in the same run: no load and no build changes it.
    // A virtual machine counts what its host has taken from it, so the least of three is what it costs.
    let least = |text: &str| (0..3).map(|_| cost(text)).min().unwrap();
    let usual = least(&honest);
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = peak();
    for (what, bomb) in bombs() {
        assert!(bomb.len() <= 64 * 1024, "{what}: {} bytes", bomb.len());
        let took = least(&bomb);
        println!("{what}: {took:?}, an honest file {usual:?}");
        assert!(took <= usual * TIMES_MAX, "{what}: {took:?}, an honest file {usual:?}");
    }
    let more = peak() - before;
    println!("{more} KiB more");
    assert!(more <= MEMORY_KIB_MAX, "{more} KiB");
}

#[test]
fn every_test_that_is_named_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/evidence/reliability.md")).unwrap();
    let (_, threats) = page.split_once("\n## Threats\n").unwrap();
    let text = threats.split("\n## ").next().unwrap();
    let mut count = 0;
    for named in text.split('`').skip(1).step_by(2).filter(|text| text.contains("::")) {
        let (file, test) = named.split_once("::").unwrap();
        let code = fs::read_to_string(root.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        // A macro makes the tests of the guides from lines such as `name: run("page")`.
        let is_there = [format!("fn {test}("), format!(" {test}: run")];
        assert!(is_there.iter().any(|text| code.contains(text)), "{named} is not there");
        count += 1;
    }
    assert!(count > 30, "{count}");
}
