//! Errors of the system, injected by strace into every operation.

use std::os::unix::process::ExitStatusExt as _;

use crate::support::messages;
use crate::support::traced::{calls, has_strace, start_traced};

use super::*;

/// A disk that fails permanently: which calls fail, with which error, and the words in which that is reported.
struct Fault {
    error: &'static str,
    calls: &'static [&'static str],
    words: &'static [&'static str],
}

const CHANGING: &[&str] = &["write", "pwrite64", "renameat2", "renameat", "mkdirat"];
const FAULTS: [Fault; 4] = [
    Fault { error: "ENOSPC", calls: CHANGING, words: &["free some room"] },
    Fault { error: "EDQUOT", calls: CHANGING, words: &["free some room"] },
    Fault {
        error: "EIO",
        calls: &["write", "pwrite64", "fsync", "fdatasync", "renameat2", "renameat"],
        words: &["see the kernel's log"],
    },
    Fault { error: "EMFILE", calls: &["openat"], words: &["ulimit -n"] },
];

/// The expressions that let each of these calls fail from its first one in the operation.
fn injections(
    counted: &BTreeMap<String, (u64, u64)>,
    names: &[&str],
    what: &str,
    is_lasting: bool,
) -> Vec<String> {
    let mut injections = Vec::new();
    for name in names {
        let (before, all) = counted.get(*name).copied().unwrap_or_default();
        if all > before {
            let lasts = if is_lasting { "+" } else { "" };
            injections.push(format!("inject={name}:{what}:when={}{lasts}", before + 1));
        }
    }
    injections
}

fn run(home: &Path, operation: &str, injections: &[String]) -> (Option<i32>, String) {
    let mut arguments = vec!["-s", "4096"];
    arguments.extend(injections.iter().flat_map(|one| ["-e", one.as_str()]));
    let status =
        start_traced(&Bed::found(home), &format!("faults::{operation}"), &arguments).wait();
    let status = status.expect("strace runs");
    assert_eq!(status.signal(), None, "{operation} {injections:?}");
    let trace = fs::read(home.join("trace")).expect("a trace");
    (status.code(), said(&String::from_utf8_lossy(&trace)))
}

fn counted(operation: &str) -> BTreeMap<String, (u64, u64)> {
    let home = prepared(operation);
    calls(&Bed::found(home.path()), &format!("faults::{operation}"))
}

fn said(trace: &str) -> String {
    let said = trace.split(&format!("\"{SAID}")).nth(1).and_then(|rest| rest.split("\", ").next());
    said.unwrap_or_default().replace("\\\"", "\"")
}

#[test]
fn whatever_the_disk_refuses_the_error_says_where_and_what_to_do() {
    if !has_strace() {
        return;
    }
    let (mut runs, mut refused) = (0, 0);
    for operation in OPERATIONS {
        let counted = counted(operation);
        for fault in &FAULTS {
            let what = format!("error={}", fault.error);
            for injection in injections(&counted, fault.calls, &what, true) {
                let home = prepared(operation);
                let label = format!("{operation} with {injection}");
                let (code, text) = run(home.path(), operation, &[injection]);
                assert!(matches!(code, Some(0 | EXIT_REFUSED)), "{label}: {code:?}");
                runs += 1;
                if code == Some(EXIT_REFUSED) {
                    refused += 1;
                    assert_clear(home.path(), &label, &text, fault.words);
                }
                judge(home.path(), operation, &label);
            }
        }
    }
    println!("{runs} lasting faults in {} operations, {refused} refused", OPERATIONS.len());
    assert!(refused * 2 > runs, "most of them are refused: {refused} of {runs}");
}

#[test]
fn an_interrupted_call_is_made_again() {
    if !has_strace() {
        return;
    }
    let names = ["openat", "write", "fsync", "fdatasync"];
    let mut runs = 0;
    for operation in OPERATIONS {
        // SQLite takes an interrupted sync for a failed one.
        let names = if operation == "submit" { &names[..2] } else { &names };
        let all = injections(&counted(operation), names, "error=EINTR", false);
        let home = prepared(operation);
        let (code, text) = run(home.path(), operation, &all);
        assert_eq!(code, Some(0), "{operation} with {all:?}: {text}");
        judge(home.path(), operation, operation);
        runs += all.len();
    }
    println!("{runs} interrupted calls in {} operations", OPERATIONS.len());
}

#[test]
fn a_slow_disk_makes_everything_slow_and_nothing_wrong() {
    if !has_strace() {
        return;
    }
    // Two tenths of a second each.
    let slow = ["fsync", "fdatasync", "renameat2", "renameat"];
    for operation in OPERATIONS {
        let all = injections(&counted(operation), &slow, "delay_enter=200000", true);
        let home = prepared(operation);
        let (code, _) = run(home.path(), operation, &all);
        assert_eq!(code, Some(0), "{operation} on a slow disk");
        judge(home.path(), operation, operation);
    }
}

/// A disk that takes some bytes, says so, and has stored none of them: the file is torn, which its length and digest
/// show.
#[test]
fn a_write_that_stored_nothing_is_found_by_the_reader() {
    if !has_strace() {
        return;
    }
    let home = prepared("publish");
    let lies = injections(&counted("publish"), &["write"], "retval=1500", false);
    let (code, _) = run(home.path(), "publish", &lies);
    assert_eq!(code, Some(0), "the writer cannot detect it at once");
    let bed = Bed::found(home.path());
    let spool = bed.spool();
    let reader = crate::support::name("reader");
    let received = spool.receive(&crate::support::name("dispatch"), &reader).expect("a look");
    assert!(received.is_none(), "a torn message was received");
    let dead = spool.dead_letters(&crate::support::name("dispatch")).expect("dead letters");
    assert_eq!(dead.len(), 1);
    assert!(!dead[0].reason.is_empty(), "{dead:?}");
    assert!(std::panic::catch_unwind(|| messages(&bed.queue(), "dispatch")).is_err(), "it is torn");
    println!("found by its reader: {}", dead[0].reason);
}
