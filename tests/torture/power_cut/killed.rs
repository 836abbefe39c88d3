//! The same stories, killed or refused by the system at each of their system calls. Nothing is lost
//! that was written, so at no durability is anything wrong.
//!
//! `POWER_CUT_KILLS` (5) is how many of the calls of a story are drawn, unless it is one of messages; 0 is all of them. `POWER_CUT_STORY` is
//! the only story to do so with.

use super::trace::MARK;
use crate::support::traced::{calls, points};

use super::*;

/// Stories that no other test kills in this way: see `requests_killed`, `steps`.
const STORIES: [&str; 13] = [
    "publish",
    "life",
    "dead",
    "batch",
    "new-queue",
    "attach",
    "route",
    "board",
    "document",
    "log",
    "steps",
    "tell",
    "migrate",
];
/// Those with every operation on a message: killed and refused at all of their calls.
const WHOLLY: [&str; 3] = ["publish", "life", "dead"];
/// The injected failure.
const ERRORS: [(&str, &str); 10] = [
    ("openat", "EMFILE"),
    ("openat", "ENOSPC"),
    ("write", "ENOSPC"),
    ("write", "EIO"),
    ("pwrite64", "EIO"),
    ("fdatasync", "EIO"),
    ("fsync", "EIO"),
    ("renameat2", "EIO"),
    ("renameat", "ENOSPC"),
    ("unlinkat", "EIO"),
];

fn stories() -> impl Iterator<Item = &'static str> {
    let only = std::env::var("POWER_CUT_STORY").ok();
    STORIES.into_iter().filter(move |name| only.as_ref().is_none_or(|only| only == name))
}

fn prepared(story: &Story) -> (tempfile::TempDir, Bed) {
    let home = tempfile::tempdir().expect("a temporary directory");
    (story.prepare)(home.path());
    let bed = Bed::found(home.path());
    (home, bed)
}

fn marks(home: &Path) -> Vec<String> {
    let trace = std::fs::read(home.join("trace")).expect("a trace");
    let trace = String::from_utf8_lossy(&trace).into_owned();
    let said = |line: &str| Some(line.split_once(MARK)?.1.split_once('"')?.0.to_owned());
    trace.lines().filter_map(said).collect()
}

/// As many as the budget allows, drawn at random.
fn drawn<T>(story: &str, mut all: Vec<T>, random: &mut SimRng) -> Vec<T> {
    let budget = if WHOLLY.contains(&story) { 0 } else { setting("POWER_CUT_KILLS", 5) };
    let budget = usize::try_from(budget).expect("a number");
    let mut drawn = Vec::new();
    while !all.is_empty() && (budget == 0 || drawn.len() < budget) {
        drawn.push(all.swap_remove(random.below(all.len() as u64) as usize));
    }
    drawn
}

fn survives(name: &str, role: &str, inject: &str, is_killed: bool) -> bool {
    let story = find(name);
    let (home, bed) = prepared(story);
    let arguments = ["-s", "4096", "-e", inject];
    let status = start_traced(&bed, role, &arguments).wait().expect("strace runs");
    // Killed, or ended with the panic of a story whose operation was refused.
    let code = status.code();
    let what = format!("{role} with {inject}");
    assert!(
        matches!(code, None | Some(0 | 101)) && (is_killed || code.is_some()),
        "{what}: {code:?}"
    );
    let told = marks(home.path());
    let mut found = Findings::default();
    if let Err(error) = (story.judge)(&bed, &told, &mut found) {
        found.note(Kind::Stuck, error);
    }
    // The log counts records that it cannot write, and no operation fails for it: see PROTOCOL.md.
    found.0.retain(|(kind, _)| is_killed || *kind != Kind::Untold);
    assert!(found.0.is_empty(), "{what}, after {told:?}: {:#?}", found.0);
    code == Some(0)
}

#[test]
#[ignore = "long"]
fn a_kill_at_any_system_call_loses_nothing_that_was_acknowledged() {
    if !has_strace() {
        return;
    }
    let mut random = SimRng::new(setting("TORTURE_SEED", 1));
    for name in stories() {
        let role = format!("power_cut::{name}@killed");
        let (_home, bed) = prepared(find(name));
        let all = points(&calls(&bed, &role));
        let (count, mut killed, mut survived) = (all.len(), 0, 0);
        for (call, number) in drawn(name, all, &mut random) {
            let inject = format!("inject={call}:signal=KILL:when={number}");
            killed += 1;
            survived += u64::from(survives(name, &role, &inject, true));
        }
        println!("{name}: {count} system calls, killed at {killed}, {survived} survived");
        assert!(survived * 2 <= killed, "{name}: {survived} of {killed} survived");
    }
}

#[test]
#[ignore = "long"]
fn an_error_at_any_system_call_loses_nothing_that_was_acknowledged() {
    if !has_strace() {
        return;
    }
    let mut random = SimRng::new(setting("TORTURE_SEED", 1));
    for name in stories() {
        let role = format!("power_cut::{name}@killed");
        let (_home, bed) = prepared(find(name));
        let counted = calls(&bed, &role);
        let of = |(call, error): (&'static str, &'static str)| {
            let (before, all) = counted.get(call).copied().unwrap_or_default();
            (before + 1..=all)
                .map(move |number| format!("inject={call}:error={error}:when={number}"))
        };
        let all: Vec<String> = ERRORS.into_iter().flat_map(of).collect();
        let (count, mut failed, mut survived) = (all.len(), 0, 0);
        for inject in drawn(name, all, &mut random) {
            failed += 1;
            survived += u64::from(survives(name, &role, &inject, false));
        }
        println!("{name}: {count} errors, {failed} injected, {survived} did no harm");
    }
}
