//! The machine around the disk: clocks, sleep, and locks that do not lock.

use ensemble_core::document::LockedDocument;
use ensemble_core::env::{Clock as _, PublishOutcome};
use ensemble_team::steps::ClaimOutcome;

use crate::support::Process;
use crate::wall_clock::WallClock;

use super::*;

pub fn play(role: &str) {
    let home = PathBuf::from(given("QUEUE"));
    match role {
        "look" => {
            let ended = steps(&home).observe().expect("a look");
            fs::write(home.join("looked"), format!("{ended:?}")).expect("told");
        }
        "count" => {
            for _ in 0..200 {
                let document =
                    LockedDocument::lock(home.join("counter"), PATIENCE).expect("the lock");
                let text = document.read().expect("read").expect("a document");
                let count: u64 = String::from_utf8_lossy(&text).trim().parse().expect("a number");
                // Without locks another one may have swept what this one was about to rename.
                let replaced = document.replace(format!("{}\n", count + 1).as_bytes());
                if replaced.is_err() && std::env::var_os("LD_PRELOAD").is_some() {
                    continue;
                }
                replaced.expect("replaced");
            }
        }
        other => panic!("there is no role `{other}`"),
    }
}

fn steps(home: &Path) -> StepStore {
    StepStore::open(&home.join("steps.db"), StepOptions::new(home)).expect("the steps")
}

/// Runs a program in its own namespaces; `None`, with the reason printed, if that is not permitted.
pub(super) fn unshared(arguments: &[&str], program: &Path) -> Option<Command> {
    let mut trial = Command::new("unshare");
    let trial = trial.args(arguments).arg("true").output();
    if !trial.as_ref().is_ok_and(|output| output.status.success()) {
        println!("skipped: unshare {arguments:?}: {trial:?}");
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(arguments).arg(program);
    Some(command)
}

/// A library that is loaded before the C library; `None`, with the reason printed, without a compiler.
fn library(home: &Path, source: &Path) -> Option<PathBuf> {
    let library = home.join("library.so");
    let compiler =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).output();
    let is_made = compiler.as_ref().is_ok_and(|output| output.status.success());
    if !is_made {
        println!("skipped: no `cc` that makes a shared library: {compiler:?}");
    }
    is_made.then_some(library)
}

#[test]
fn a_clock_that_is_set_takes_nothing_from_its_holder_and_stops_nothing() {
    const DAY: i64 = 86_400;
    let bed = Bed::with(&ensemble_core::spool::Settings::default(), "poll_interval: 1\n");
    let Some(clock) = WallClock::build(&bed.outside()) else { return };
    let spool = bed.spool();
    let id = MessageId::new("held").expect("an id");
    spool.publish(&Envelope::new(name("dispatch"), "work\n").with_id(id.clone())).expect("stored");
    let held = spool.receive(&name("dispatch"), &name("holder")).expect("a look").expect("it");
    let mut command = Command::new(WATCHER);
    command.envs(clock.variables());
    let mut watcher = Watcher::launch_by(command, &bed.queue());
    watcher.wait_for_status("it watches", |status| status["pid"].is_u64());
    // A day on, two back, and on again: something is routed after each.
    for (number, offset) in [DAY, -DAY, 0, 400 * DAY].into_iter().enumerate() {
        clock.set(offset);
        let report = format!("reports/r{number}-completed.yaml");
        bed.land(&report, format!("number: {number}\n"));
        bed.routed_times(&report, 1);
    }
    watcher.assert_running();
    watcher.stop();
    spool.settle(&held.lease).expect("it is still held under the same lease");
    assert_eq!(bed.total("dispatch"), 5, "none was routed twice or thrown away");
    bed.assert_clean();
}

/// A settled message, and a side file that a sweep removes.
fn settled(bed: &Bed, id: &str) -> PathBuf {
    let (spool, dispatch) = (bed.spool(), name("dispatch"));
    spool.publish(&work(id)).expect("stored");
    let held = spool.receive(&dispatch, &name("holder")).expect("a look").expect("it");
    spool.settle(&held.lease).expect("settled");
    let side_file = bed.in_queue(&format!("mailbox/dispatch/lease/{id}@7.yaml"));
    fs::write(&side_file, "sequence: 1\nlease_seconds: 60\n").expect("a side file");
    side_file
}

fn work(id: &str) -> Envelope {
    Envelope::new(name("dispatch"), "work\n").with_id(MessageId::new(id).expect("an id"))
}

/// Debian's place of libfaketime, by which a program sees another wall clock.
pub(super) const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

#[test]
fn a_watcher_whose_clock_is_eight_days_ahead_forgets_no_settled_message() {
    if !Path::new(FAKETIME).exists() {
        println!("skipped: no libfaketime at {FAKETIME}");
        return;
    }
    let bed = Bed::with(&ensemble_core::spool::Settings::default(), "poll_interval: 1\n");
    // A clock that is ahead when the first watcher looks, then a true one, then both again.
    for (number, offset) in ["+8d", "+0d", "+8d", "-3650d", "+400d", "+0d"].iter().enumerate() {
        let side_file = settled(&bed, &format!("m-{number}"));
        let mut command = Command::new("env");
        command.args([format!("LD_PRELOAD={FAKETIME}"), format!("FAKETIME={offset}")]);
        command.args(["FAKETIME_DONT_FAKE_MONOTONIC=1", "NO_FAKE_STAT=1", WATCHER]);
        let mut watcher = Watcher::launch_by(command, &bed.queue());
        eventually_true(PATIENCE, "it has swept", || !side_file.exists());
        let said = eventually(PATIENCE, "it has a status", || {
            watcher.status()?["written_at"].as_str().map(str::to_owned)
        });
        let truth = SystemClock.wall().plus(Duration::from_secs(86_400)).to_string();
        let is_ahead = said > truth;
        assert_eq!(
            is_ahead,
            ["+8d", "+400d"].contains(offset),
            "its clock says what was asked for"
        );
        watcher.assert_running();
        watcher.stop();
        for earlier in 0..=number {
            let again = bed.spool().publish(&work(&format!("m-{earlier}"))).expect("a look");
            assert_eq!(again, PublishOutcome::AlreadyStored, "m-{earlier} at {offset}");
        }
    }
    assert!(bed.spool().receive(&name("dispatch"), &name("holder")).expect("a look").is_none());
    bed.assert_clean();
}

/// Looks at a step's lease before and after the machine slept for days: only the clock that counts sleep has
/// advanced.
#[test]
fn a_machine_that_slept_for_a_day_takes_no_step_from_its_holder() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let store = steps(home.path());
    store
        .add(&StepPlan::new("0-4-1", vec![PlannedStep::new(name("Tara"), "one")]))
        .expect("a plan");
    let ClaimOutcome::Handed(handed) =
        store.claim_step(&ClaimRequest::of(name("Tara"))).expect("taken")
    else {
        panic!("nothing to do");
    };
    let role =
        role_command("faults::machine look", &[("QUEUE", home.path().to_str().expect("a path"))]);
    let mut looks = 0;
    for sleep in ["0", "86400", "864000"] {
        let namespaces = ["--time", "--boottime", sleep, "--fork"];
        let Some(mut command) = unshared(&namespaces, Path::new(role.get_program())) else {
            return;
        };
        command.args(role.get_args());
        for (key, value) in role.get_envs() {
            command.env(key, value.expect("a value"));
        }
        Process::start(&mut command).succeeds();
        let _ = fs::read_to_string(home.path().join("looked")).expect("it has looked");
        looks += 1;
    }
    let report = ensemble_team::steps::Completion::new(
        handed.key.clone(),
        name("Tara"),
        ensemble_team::steps::CompletionStatus::Success,
    );
    let submitted = store.submit(&report, &name("Tara"), Some(handed.epoch));
    assert!(submitted.is_ok(), "after {looks} looks: {submitted:?}");
}

/// Simulates a file system whose `flock` always succeeds.
const NO_LOCKS: &str = "int flock(int file, int how) { (void)file; (void)how; return 0; }\n";

/// Documented: locks that do not lock lose updates of documents, and nothing else. Each document is still
/// one of those written, and `ensemble doctor` finds such a place.
#[test]
fn where_locks_do_not_lock_a_document_is_whole_all_the_same() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let source = home.path().join("no_locks.c");
    fs::write(&source, NO_LOCKS).expect("a source");
    let Some(library) = library(home.path(), &source) else { return };
    fs::write(home.path().join("counter"), "0\n").expect("a document");
    let given = [("QUEUE", home.path().to_str().expect("a path"))];
    let count = |library: Option<&Path>| {
        let mut command = role_command("faults::machine count", &given);
        if let Some(library) = library {
            command.env("LD_PRELOAD", library);
        }
        Process::start(&mut command)
    };
    let both = [count(None), count(None)];
    both.into_iter().for_each(Process::succeeds);
    let read = || fs::read_to_string(home.path().join("counter")).expect("a document");
    assert_eq!(read(), "400\n", "with locks nothing is lost");
    let both = [count(Some(&library)), count(Some(&library))];
    both.into_iter().for_each(Process::succeeds);
    let count: u64 = read().trim().parse().expect("the document is whole");
    assert!((401..=800).contains(&count), "{count}");
    println!("without locks {} of 400 updates were lost", 800 - count);
}
