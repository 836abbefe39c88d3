//! Counts the instructions of the hot paths with callgrind, so that load on the machine does not
//! change the result. `cargo bench -p ensemble-broker-core --bench instructions` compares the counts with
//! `benches/instructions.txt`. It fails if a path has grown by more than its tolerance.
//! `ENSEMBLE_BLESS=1` rewrites that file.
//!
//! Callgrind counts only instructions of this process, not those that the kernel executes for it.
//! Use `strace -c` to count system calls.
#![allow(missing_docs, unreachable_pub, reason = "a program")]

use std::error::Error;
use std::fmt::Write as _;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use ensemble_core::durable::Durability;
use ensemble_core::env::Monotonic;
use ensemble_core::message::{Envelope, Name};
use ensemble_core::pane::PaneState;
use ensemble_core::proto::Machine as _;
use ensemble_core::spool::{Spool, SpoolOptions};
use ensemble_tmux::nudge::{Event, NudgeSchedule};
use ensemble_tmux::provider::{self, DiagnosisContext, Profiles, TypingPurpose};

type Outcome<T> = Result<T, Box<dyn Error>>;

const SUBJECTS: [&str; 6] = ["encode", "decode", "publish", "receive", "settle", "nudge"];
/// Each subject runs this many times, then twice as many times. The difference is the subject's own
/// cost.
const TIMES: u64 = 200;
/// Growth of a path, in percent, that fails the comparison.
const TOLERANCE_PERCENT: f64 = 5.0;
/// Role that counts nothing but the program's start.
const ROLE: &str = "in-role";
/// Many rows and few bytes. Callgrind hides the processor's SHA-256 instructions. In software, the
/// digest of a longer body would dominate the count.
const BODY: &str = "a row\nof 8\n\nand\nso\non\n  up to\nhere\n";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match &arguments[..] {
        [role, subject, times] if role == ROLE => run(subject, times.parse().unwrap_or(0)),
        _ => compare(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn compare() -> Outcome<()> {
    if let Err(error) = Command::new("valgrind").arg("--version").output() {
        println!(
            "instructions are left out: cannot start valgrind ({error}): install the package `valgrind`"
        );
        return Ok(());
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/instructions.txt");
    let known = std::fs::read_to_string(&file).unwrap_or_default();
    let mut found = String::new();
    let mut grown = Vec::new();
    println!("{:10} {:>12} {:>12} {:>9}", "path", "instructions", "allowed", "change");
    for subject in SUBJECTS {
        let each = (count(subject, 2 * TIMES)? - count(subject, TIMES)?) / TIMES as f64;
        writeln!(found, "{subject} {each:.0}")?;
        let before = known.lines().find_map(|line| {
            let (name, before) = line.split_once(' ')?;
            (name == subject).then(|| before.parse::<f64>().ok())?
        });
        let Some(before) = before else {
            println!("{subject:10} {each:12.0} {:>12} {:>9}", "-", "new");
            grown.push(subject);
            continue;
        };
        let change = 100.0 * (each / before - 1.0);
        let allowed = before * (1.0 + TOLERANCE_PERCENT / 100.0);
        println!("{subject:10} {each:12.0} {allowed:12.0} {change:+8.1}%");
        if each > allowed {
            grown.push(subject);
        }
    }
    if std::env::var_os("ENSEMBLE_BLESS").is_some() {
        std::fs::write(&file, found)?;
    } else if !grown.is_empty() {
        let grown = grown.join(", ");
        return Err(format!(
            "more instructions than benches/instructions.txt allows: {grown}. Make it shorter, or \
             say why in the commit and run this again with ENSEMBLE_BLESS=1"
        )
        .into());
    }
    Ok(())
}

/// Counts the instructions of this program in a role, by callgrind.
fn count(subject: &str, times: u64) -> Outcome<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args([ROLE, subject, &times.to_string()])
        .stdout(Stdio::null())
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let counted = said
        .lines()
        .find_map(|line| line.split_once("Collected : "))
        .and_then(|(_, number)| number.trim().parse().ok());
    match counted {
        Some(counted) if output.status.success() => Ok(counted),
        _ => Err(format!("valgrind did not count `{subject}`: {said}").into()),
    }
}

fn run(subject: &str, times: u64) -> Outcome<()> {
    let to = Name::new("dispatch")?;
    match subject {
        "encode" => {
            let envelope = Envelope::new(to, BODY);
            for _ in 0..times {
                black_box(envelope.encode()?);
            }
        }
        "decode" => {
            let file = Envelope::new(to, BODY).encode()?;
            for _ in 0..times {
                black_box(Envelope::decode(&file, Path::new("x"))?);
            }
        }
        "nudge" => nudge(times)?,
        _ => store(subject, times, &to)?,
    }
    Ok(())
}

/// Both subjects perform the same work before and after the counted part. Messages that one
/// receives are published by both.
fn store(subject: &str, times: u64, to: &Name) -> Outcome<()> {
    let home = tempfile::tempdir_in(place())?;
    let options = SpoolOptions::default().with_durability(Durability::Process);
    let spool = Spool::create(&home.path().join("queue"), options)?;
    spool.add_mailbox(to, &Default::default())?;
    let [published, received, settled] = match subject {
        "publish" => [times, 0, 0],
        "receive" => [2 * TIMES, times, 0],
        "settle" => [2 * TIMES, 2 * TIMES, times],
        other => return Err(format!("no subject {other}").into()),
    };
    for _ in 0..published {
        spool.publish(&Envelope::new(to.clone(), BODY))?;
    }
    let mut leases = Vec::new();
    for _ in 0..received {
        leases.push(spool.receive(to, to)?.ok_or("a message is missing")?.lease);
    }
    for lease in leases.iter().take(usize::try_from(settled)?) {
        spool.settle(lease)?;
    }
    Ok(())
}

/// Uses memory where possible: the guard must not depend on a disk's state.
fn place() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() { memory } else { std::env::temp_dir() }
}

/// Covers the path from an observed message to the decision to nudge its agent, on a screen of
/// usual size.
fn nudge(times: u64) -> Outcome<()> {
    let profile = Profiles::embedded()?.get("shell")?;
    let building = (0..23).map(|row| format!("building part {row} of the report"));
    let pane = PaneState {
        bound: true,
        command: "bash".into(),
        screen: building.chain(["user@host:~$".into()]).collect(),
        cursor_x: 13,
        cursor_y: 23,
        ..PaneState::default()
    };
    for _ in 0..times {
        let mut schedule = NudgeSchedule::new();
        schedule.handle(Monotonic::ZERO, Event::Bound { binding: 1 });
        schedule.handle(Monotonic::ZERO, Event::Mail { waiting: 1, taken: 0 });
        black_box(schedule.poll_effect().ok_or("no agent is to be nudged")?);
        if let Some(deferral) =
            provider::objection(&profile, &pane, &DiagnosisContext::default(), TypingPurpose::Nudge)
        {
            return Err(format!("the pane is not ready: {deferral:?}").into());
        }
    }
    Ok(())
}
