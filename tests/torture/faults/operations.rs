//! One operation of each kind, in its own process: it succeeds, or says what its error is and has
//! done nothing.

use std::io::Write as _;

use ensemble_core::document::with_file_lock;
use ensemble_core::event_log::{EventLog, LogOptions, read_all};
use ensemble_core::requests::PlanGates;
use ensemble_core::spool::SpoolOptions;
use ensemble_core::{Error, Result};
use ensemble_team::board::{Board, BoardOptions, NewTask};
use ensemble_team::steps::{Completion, CompletionStatus, StepKey};
use serde_json::json;

use crate::support::traced::between_marks;

use super::*;

/// How a process says that its operation was refused with an error.
pub const EXIT_REFUSED: i32 = 3;
/// Before the text of the error.
pub const SAID: &str = "/said/";

pub const OPERATIONS: [&str; 11] = [
    "publish",
    "receive",
    "settle",
    "dead-letter",
    "attach",
    "ask",
    "respond",
    "board",
    "document",
    "log",
    "submit",
];

const WAIT: Duration = Duration::from_secs(5);

fn spool(home: &Path, durability: Durability) -> Result<Spool> {
    let mut options = SpoolOptions::default().with_admission(Arc::new(PlanGates));
    options.durability = durability;
    Spool::open(&home.join("queue"), options)
}

fn steps(home: &Path) -> Result<StepStore> {
    StepStore::open(&home.join("steps.db"), StepOptions::new(home))
}

fn board(home: &Path) -> Result<Board> {
    Board::find(home, BoardOptions::new("writer").with_recorder(Arc::new(NullRecorder)))
}

fn id() -> MessageId {
    MessageId::new("the-message").expect("an id")
}

fn envelope() -> Envelope {
    Envelope::new(name("dispatch"), "the body\n".repeat(300)).with_id(id())
}

fn ask() -> NewRequest {
    NewRequest::new("plan_approval", name("conductor"), name("dispatch"), "1. think\n")
        .with_id("q-1")
}

pub fn prepare(home: &Path, operation: &str) -> Result<()> {
    Bed::at(home);
    let spool = spool(home, Durability::Process)?;
    match operation {
        "receive" => drop(spool.publish(&envelope())?),
        "settle" | "dead-letter" => {
            spool.publish(&envelope())?;
            spool.receive(&name("dispatch"), &name("holder"))?;
        }
        "respond" => drop(Requests::new(&spool).ask(ask())?),
        "board" => {
            let board = Board::create(home, BoardOptions::new("earlier"))?;
            // The files beside it are known then.
            drop(board.lock()?);
        }
        "document" => fs::write(home.join("counter"), "1\n").expect("a document"),
        "log" => drop(EventLog::open(&home.join(".ensemble/logs"))?),
        "submit" => {
            steps(home)?
                .add(&StepPlan::new("0-4-1", vec![PlannedStep::new(name("Tara"), "one")]))?;
            let _ = steps(home)?.claim_step(&ClaimRequest::of(name("Tara")))?;
        }
        _ => {}
    }
    spool.add_mailbox(&name("later"), &Settings::default())
}

/// A project that is prepared for an operation.
pub fn prepared(operation: &str) -> tempfile::TempDir {
    let home = tempfile::tempdir().expect("a temporary directory");
    prepare(home.path(), operation).expect("prepared");
    home
}

/// The error names the place and says what to do.
#[track_caller]
pub fn assert_clear(home: &Path, label: &str, text: &str, words: &[&str]) {
    let place = home.to_str().expect("a path in UTF-8");
    assert!(text.contains(place), "{label} does not say where: {text}");
    assert!(words.iter().any(|words| text.contains(words)), "{label} does not say what: {text}");
}

/// In a process: opens everything before the fault begins.
pub fn play(operation: &str) {
    let home = PathBuf::from(given("QUEUE")).parent().expect("a project").to_owned();
    let result = run(&home, operation, true);
    if let Err(error) = &result {
        // On this disk nothing can be written any more: looked for, it is in the trace.
        let _ = Path::new(&format!("{SAID}{error}")).exists();
        let _ = write!(std::io::stderr(), "{SAID}{error}");
    }
    std::process::exit(if result.is_ok() { 0 } else { EXIT_REFUSED });
}

fn marked<T>(is_marked: bool, action: impl FnOnce() -> T) -> T {
    if is_marked { between_marks(action) } else { action() }
}

pub fn run(home: &Path, operation: &str, is_marked: bool) -> Result<()> {
    let spool = spool(home, Durability::Power)?;
    let held = spool.find(&id()).and_then(|found| found.lease());
    match operation {
        "publish" => marked(is_marked, || spool.publish(&envelope())).map(drop),
        "receive" => {
            marked(is_marked, || spool.receive(&name("dispatch"), &name("holder"))).map(drop)
        }
        "settle" => {
            let held = held?;
            marked(is_marked, || spool.settle(&held))
        }
        "dead-letter" => {
            let held = held?;
            marked(is_marked, || spool.dead_letter(&held, "a reason"))
        }
        "attach" => marked(is_marked, || spool.attach(&[b'x'; 100_000])).map(drop),
        "ask" => marked(is_marked, || Requests::new(&spool).ask(ask())).map(drop),
        "respond" => {
            let respond = || Requests::new(&spool).respond("q-1", &name("dispatch"), true, "go");
            let entry = marked(is_marked, respond)?;
            match entry.untold {
                // The decision was made, but a recipient was not notified.
                Some(untold) => Err(Error::malformed("q-1", "recipient", untold)),
                None => Ok(()),
            }
        }
        "board" => {
            let board = board(home)?;
            marked(is_marked, || {
                let mut locked = board.lock()?;
                locked.add_task(&NewTask::draft(name("t-1")))?;
                locked.commit().map(drop)
            })
        }
        "document" => marked(is_marked, || {
            with_file_lock(home.join("counter"), WAIT, |_| Ok(Some(b"2\n".repeat(1500))))
        }),
        "log" => {
            let log = EventLog::open_with(&home.join(".ensemble/logs"), LogOptions::default())?;
            marked(is_marked, || log.try_record("test.told", "test", json!({ "n": 1 }))).map(drop)
        }
        "submit" => {
            let store = steps(home)?;
            let report =
                Completion::new(StepKey::new("0-4-1", 1), name("Tara"), CompletionStatus::Success);
            marked(is_marked, || store.submit(&report, &name("Tara"), None)).map(drop)
        }
        other => panic!("there is no operation `{other}`"),
    }
}

/// Whether it was done: whole, and once. Panics if it was done in half.
pub fn is_done(home: &Path, operation: &str) -> Result<bool> {
    let bed = Bed::found(home);
    let spool = bed.spool();
    let state = || spool.state(&name("dispatch"), &id()).map(|state| state.map(|s| s.word()));
    Ok(match operation {
        "publish" => state()?.is_some(),
        "receive" => state()? == Some("acked"),
        "settle" => state()? == Some("settled"),
        "dead-letter" => state()? == Some("dead"),
        "attach" => crate::support::files(&bed.in_queue("attachments")).len() == 1,
        "ask" => Requests::new(&spool).find("q-1")?.is_some(),
        "respond" => Requests::new(&spool).get("q-1")?.decision.is_some(),
        "board" => board(home)?.read()?.task(&name("t-1")).is_some(),
        "document" => match fs::read(home.join("counter")).expect("a document").as_slice() {
            b"1\n" => false,
            content => {
                assert_eq!(content, b"2\n".repeat(1500), "a document in half");
                true
            }
        },
        "log" => read_all(&home.join(".ensemble/logs"))?.any(|r| r.kind.matches("test.told")),
        "submit" => steps(home)?.steps("0-4-1")?[0].status.as_str() == "COMPLETED",
        other => panic!("there is no operation `{other}`"),
    })
}

/// Nothing is lost, half-written or stuck: the fault has ended, and it is done now unless it was.
pub fn judge(home: &Path, operation: &str, what: &str) {
    let bed = Bed::found(home);
    // A torn message would end this.
    crate::support::messages(&bed.queue(), "dispatch");
    let was_done = is_done(home, operation).unwrap_or_else(|error| panic!("{what}: {error}"));
    let is_repeatable = matches!(operation, "publish" | "attach" | "ask" | "document" | "submit");
    if !was_done || is_repeatable {
        run(home, operation, false).unwrap_or_else(|error| panic!("{what}, then: {error}"));
    }
    assert!(is_done(home, operation).expect("a look"), "{what}: it cannot be done afterwards");
    let spool = bed.spool();
    if operation == "respond" {
        Requests::new(&spool).resume("q-1").expect("every recipient is notified later");
    }
    spool.sweep().expect("swept");
    let findings = spool.fsck(true).expect("checked");
    assert!(findings.iter().all(|finding| finding.repaired), "{what}: {findings:#?}");
    bed.assert_clean();
}
