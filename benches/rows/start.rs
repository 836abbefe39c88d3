//! Measures the cold start of each verb that agents call repeatedly, against an empty Rust program.
//! Also measures program sizes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ensemble_core::message::{Envelope, Name};
use ensemble_core::spool::{Spool, SpoolOptions};

use crate::support::table::{self, Goal};
use crate::support::{Outcome, Pairs, go_on, micros, now_ns, place, size};

/// Verbs with arguments for a small, successful call.
const VERBS: [(&str, &[&str]); 10] = [
    ("--version", &["--version"]),
    ("send", &["send", "--to", "worker-1", "-m", "done"]),
    ("recv", &["recv", "--as", "worker-1"]),
    ("recv, nothing there", &["recv", "--as", "worker-2"]),
    ("inbox", &["inbox", "--as", "worker-1"]),
    ("status", &["status"]),
    ("mailbox list", &["mailbox", "list"]),
    ("dead list", &["dead", "list"]),
    ("log", &["log"]),
    ("fsck", &["admin", "fsck"]),
];
/// Enough waiting messages for every verb.
const BACKLOG: usize = 200;

pub fn run() -> Outcome<()> {
    let programs = place::beside_this_program()?;
    let (form, ensemble) = built_program(&programs)?;
    let home = place::on_disk()?;
    let empty = empty_program(home.path())?;
    table::heading(&format!("cold start of a verb, {form}, against an empty Rust program"));
    let rounds = size("ENSEMBLE_BENCH_STARTS", 25);
    for (what, arguments) in VERBS {
        let queue = prepared(home.path(), what)?;
        let mut pairs = Pairs::default();
        for _ in 0..rounds {
            go_on()?;
            let limit = start(Command::new(&empty).current_dir(&queue))?;
            let ours = start(Command::new(&ensemble).args(arguments).current_dir(&queue))?;
            pairs.push(vec![ours], vec![limit]);
        }
        table::pairs(what, "us", &pairs, Goal::AtMost(3.0));
    }
    for (name, program) in
        [("ensemble", ensemble), ("ensemble-watch", programs.join("ensemble-watch"))]
    {
        if let Ok(program) = std::fs::read(program) {
            let mebibytes = |bytes: u64| bytes as f64 / (1024.0 * 1024.0);
            let whole = mebibytes(program.len() as u64);
            table::value(&format!("size of {name}, with symbols"), whole, "MiB", Goal::None);
            let loaded = mebibytes(loaded_bytes(&program).ok_or("not a 64-bit ELF file")?);
            table::value(&format!("size of {name}, what is loaded"), loaded, "MiB", Goal::None);
        }
    }
    Ok(())
}

/// The program that `make packages` has built, or else the released form, and which it is.
fn built_program(programs: &Path) -> Outcome<(&'static str, PathBuf)> {
    let static_target =
        format!("../{}-unknown-linux-musl/release/ensemble", std::env::consts::ARCH);
    let forms = [
        ("as it is packaged", programs.join(static_target)),
        ("released", programs.join("ensemble")),
    ];
    forms.into_iter().find(|(_, program)| program.is_file()).ok_or_else(|| {
        "build it first: make packages, or cargo build --release --package ensemble-broker".into()
    })
}

/// Bytes that an ELF file's program headers load into memory, which is its size without symbols.
fn loaded_bytes(program: &[u8]) -> Option<u64> {
    const LOAD: u64 = 1;
    let number = |at: usize, bytes: usize| {
        let digits = program.get(at..at + bytes)?.iter().rev();
        Some(digits.fold(0_u64, |number, byte| number << 8 | u64::from(*byte)))
    };
    if !program.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let first = usize::try_from(number(32, 8)?).ok()?;
    let (bytes, count) = (usize::try_from(number(54, 2)?).ok()?, number(56, 2)?);
    let headers = (0..count).zip((first..).step_by(bytes.max(1)));
    let sizes = headers.map(|(_, at)| match number(at, 4)? {
        LOAD => number(at + 32, 8),
        _ => Some(0),
    });
    sizes.sum()
}

/// A project for each verb.
fn prepared(home: &Path, what: &str) -> Outcome<PathBuf> {
    let project = place::child(home, &what.replace([' ', ','], "-"))?;
    let spool = Spool::create(&project.join("queue"), SpoolOptions::default())?;
    for mailbox in ["worker-1", "worker-2"] {
        spool.add_mailbox(&Name::new(mailbox)?, &Default::default())?;
    }
    let messages: Vec<Envelope> = (0..BACKLOG)
        .map(|_| Ok(Envelope::new(Name::new("worker-1")?, "wait")))
        .collect::<Outcome<_>>()?;
    spool.publish_batch(&messages)?;
    Ok(project)
}

/// Removes variables that could name another queue.
pub fn clean(command: &mut Command) {
    for variable in ["ENSEMBLE_QUEUE", "ENSEMBLE_AGENT_ID", "LIZA_AGENT_ID"] {
        command.env_remove(variable);
    }
}

/// Microseconds from before the start to after the end.
pub fn start(command: &mut Command) -> Outcome<f64> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    clean(command);
    let began = now_ns();
    let status = command.status()?;
    let ended = now_ns();
    // Exit code 3: no message.
    match status.code() {
        Some(0 | 3) => Ok(micros(began, ended)),
        _ => Err(format!("{command:?} failed: {status}").into()),
    }
}

fn empty_program(home: &Path) -> Outcome<PathBuf> {
    let (source, program) = (home.join("empty.rs"), home.join("empty"));
    std::fs::write(&source, "fn main() {}\n")?;
    let compiled = Command::new("rustc").args(["-O", "-o"]).arg(&program).arg(&source).status()?;
    if compiled.success() { Ok(program) } else { Err("rustc failed".into()) }
}
