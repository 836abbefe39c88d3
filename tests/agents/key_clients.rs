//! The keys of a phase arrive as keys in what reads terminals: Node's readline, Python's prompt_toolkit,
//! Rust's crossterm. Bytes that arrive together are one key to them: Escape and anything at once is Alt.
//!
//! prompt_toolkit is installed once, below cargo's directory for tests. Where that cannot be done, or
//! there is no Node, the test says so in one line and ends, or fails with
//! `ENSEMBLE_TEST_CLIENTS=required`.

use std::io::Write as _;

use crate::queue::AheadClock;

use crate::*;

/// The version that was tried.
const TOOLKIT: &str = "prompt_toolkit==3.0.52";
/// Where the program in the pane writes, if this program is the one in the pane.
const DIRECTORY: &str = "KEY_CLIENT_DIRECTORY";

/// What was pressed, once a phase is done.
#[derive(Default)]
struct Pressed(Mutex<Option<Value>>);

impl Recorder for Pressed {
    fn record(&self, kind: &str, _: &str, data: Value) {
        if kind == "ladder.pressed" {
            *self.0.lock().expect("a record") = Some(data);
        }
    }
}

/// The keys that a program reports to whom phase 2 of the ladder is pressed, by their names.
fn keys_of_phase_2(command: impl Fn(&Path) -> String) -> Vec<String> {
    let dir = tempfile::tempdir().expect("a directory");
    let command = format!("exec {}", command(dir.path()));
    let tmux = TestServer::start_in(dir, &command);
    let dir = tmux.dir.path();
    eventually("the program reads keys", || dir.join("ready").exists());

    let spool = Spool::create(&dir.join("queue"), SpoolOptions::default()).expect("a queue");
    let worker = Name::new("dispatch").expect("a name");
    spool.add_mailbox(&worker, &Default::default()).expect("a mailbox");
    let (clock, pressed) = (AheadClock::default(), Pressed::default());
    let mut manager = AckDriver::borrowing(&spool, &clock, &pressed, worker.clone());
    let order = DeliveryOrder::new("task-1", worker.clone(), Envelope::new(worker, "count\n"));
    let pane = tmux.pane("%0", "generic");
    let id = manager.deliver(order, Some(Box::new(pane))).expect("a delivery");
    // Up to the first key time is left out; from there on it is real.
    while manager.phase(id) != Some(Phase::LeaveInputMode) {
        let left = manager.poll_timeout().expect("a deadline").since(clock.monotonic());
        clock.advance(left);
        manager.handle_timeout().expect("a step");
    }
    eventually("the keys are pressed", || {
        manager.handle_timeout().expect("a step");
        pressed.0.lock().expect("a record").is_some()
    });
    let said = pressed.0.lock().expect("a record").take().expect("a record");
    assert_eq!(said["pressed"], serde_json::json!(["escape", "escape", "ctrl-c"]), "{said}");
    let keys = || {
        let text = fs::read_to_string(dir.join("keys")).unwrap_or_default();
        let names = text.lines().filter_map(|line| line.split(':').next());
        let keys = names.filter(|name| name.contains("escape") || name.contains("ctrl"));
        keys.map(str::to_owned).collect::<Vec<_>>()
    };
    eventually("the last key is reported", || {
        keys().last().is_some_and(|key| key.ends_with("ctrl-c"))
    });
    keys()
}

const AS_KEYS: [&str; 3] = ["escape", "escape", "ctrl-c"];

/// Says why something was not tried, or fails.
fn skip(why: &str) {
    let line = format!("SKIPPED: {why}");
    let is_required = std::env::var("ENSEMBLE_TEST_CLIENTS").is_ok_and(|v| v == "required");
    assert!(!is_required, "{line}");
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/agents/key_clients").join(name)
}

#[test]
fn in_nodes_readline() {
    if !Command::new("node").arg("--version").output().is_ok_and(|ran| ran.status.success()) {
        return skip("there is no node, so its readline was not tried");
    }
    let script = script("readline.js");
    let keys = keys_of_phase_2(|dir| format!("node '{}' '{}'", script.display(), dir.display()));
    assert_eq!(keys, AS_KEYS);
}

/// Python with prompt_toolkit.
fn python() -> Result<PathBuf, String> {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(TOOLKIT.replace("==", "-"));
    let (python, done) = (dir.join("venv/bin/python"), dir.join("installed"));
    if done.exists() {
        return Ok(python);
    }
    let mut make = Command::new("python3");
    make.args(["-m", "venv", "--clear"]).arg(dir.join("venv"));
    let mut install = Command::new(dir.join("venv/bin/pip"));
    install.args(["-q", "install", TOOLKIT]);
    for command in [&mut make, &mut install] {
        let ran = command.output().map_err(|error| error.to_string())?;
        if !ran.status.success() {
            return Err(String::from_utf8_lossy(&ran.stderr).replace('\n', " "));
        }
    }
    fs::write(done, "").map_err(|error| error.to_string())?;
    Ok(python)
}

#[test]
#[ignore = "long"]
fn in_pythons_prompt_toolkit() {
    let python = match python() {
        Ok(python) => python,
        Err(why) => {
            return skip(&format!("{TOOLKIT} cannot be installed, so it was not tried: {why}"));
        }
    };
    let script = script("toolkit.py");
    let keys = keys_of_phase_2(|dir| {
        format!("'{}' '{}' '{}'", python.display(), script.display(), dir.display())
    });
    assert_eq!(keys, AS_KEYS);
}

#[test]
fn in_crossterm() {
    let this = std::env::current_exe().expect("a program");
    let keys = keys_of_phase_2(|dir| {
        format!(
            "env {DIRECTORY}='{}' '{}' --ignored --exact key_clients::subprocess_with_crossterm --nocapture",
            dir.display(),
            this.display()
        )
    });
    assert_eq!(keys, AS_KEYS);
}

/// Not a test: what runs in the pane of the test above.
#[test]
#[ignore = "runs in the pane of another test"]
fn subprocess_with_crossterm() {
    use crossterm::event::{Event, KeyCode, KeyModifiers, read};
    let Some(dir) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    crossterm::terminal::enable_raw_mode().expect("a terminal");
    let mut keys = fs::File::create(dir.join("keys")).expect("a file");
    fs::write(dir.join("ready"), "").expect("a file");
    loop {
        let Event::Key(key) = read().expect("an event") else { continue };
        let alt = if key.modifiers.contains(KeyModifiers::ALT) { "alt-" } else { "" };
        let name = match key.code {
            KeyCode::Esc => "escape".to_owned(),
            KeyCode::Char(c) if key.modifiers.contains(KeyModifiers::CONTROL) => {
                format!("ctrl-{c}")
            }
            other => format!("{other:?}").to_lowercase(),
        };
        writeln!(keys, "{alt}{name}:").expect("a line");
    }
}
