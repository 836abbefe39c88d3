//! Runs operations under strace, with a kill or an error at each of their system calls.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{Bed, role_command};

/// A path that is examined to mark where in a trace the operation begins and ends.
const BEGIN: &str = "/torture-begins-here";
const END: &str = "/torture-ends-here";

/// An ordinary run takes every third call; `KILLS=all` takes each, as `make torture` does.
const SHARE: usize = 3;

/// Where a process is killed.
pub const DEADLY: [&str; 13] = [
    "openat",
    "write",
    "fdatasync",
    "fsync",
    "syncfs",
    "pwrite64",
    "renameat2",
    "renameat",
    "rename",
    "unlinkat",
    "mkdirat",
    "flock",
    "newfstatat",
];
/// In a process with a role: runs an operation between the two marks.
pub fn between_marks<T>(action: impl FnOnce() -> T) -> T {
    outnumber_the_first_thread();
    let _ = Path::new(BEGIN).exists();
    let result = action();
    let _ = Path::new(END).exists();
    result
}

/// strace counts the calls of each thread by itself, and the test harness has its own thread.
/// With this many calls before, no call of the operation has a number that the other one reaches.
fn outnumber_the_first_thread() {
    use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, RenameFlags};
    let null = std::fs::OpenOptions::new().write(true).open("/dev/null").unwrap();
    let nothing = "/nowhere/at/all";
    for _ in 0..100 {
        let _ = rustix::fs::openat(CWD, nothing, OFlags::RDONLY, Mode::empty());
        let _ = rustix::io::write(&null, b"x");
        let _ = rustix::fs::fdatasync(&null);
        let _ = rustix::fs::fsync(&null);
        let _ = rustix::fs::renameat_with(CWD, nothing, CWD, nothing, RenameFlags::NOREPLACE);
        let _ = rustix::fs::renameat(CWD, nothing, CWD, nothing);
        let _ = rustix::fs::unlinkat(CWD, nothing, AtFlags::empty());
        let _ = rustix::fs::mkdirat(CWD, nothing, Mode::RWXU);
        let _ = rustix::fs::statat(CWD, nothing, AtFlags::empty());
        let _ = rustix::fs::flock(&null, FlockOperation::NonBlockingLockShared);
    }
}

pub struct Run {
    /// `None` if it was killed.
    pub code: Option<i32>,
    pub trace: String,
}

/// Every system call of [`DEADLY`] that an operation makes: its name, and which of that name it is.
pub fn points(calls: &BTreeMap<String, (u64, u64)>) -> Vec<(&'static str, u64)> {
    let numbers = |call| {
        let (before, all) = calls.get(call).copied().unwrap_or_default();
        (before + 1..=all).map(move |number| (call, number))
    };
    DEADLY.into_iter().flat_map(numbers).collect()
}

/// The calls of this run. Each run begins with another one of the first three.
pub fn share<P>(points: Vec<P>) -> Vec<P> {
    if std::env::var("KILLS").is_ok_and(|kills| kills == "all") {
        return points;
    }
    let first = std::process::id() as usize % SHARE;
    println!("every third call, from number {first} on");
    points.into_iter().skip(first).step_by(SHARE).collect()
}

/// Runs the operation and kills it at its `number`th such system call. Returns whether it survived,
/// because it ended before.
#[track_caller]
pub fn survives_kill(bed: &Bed, operation: &str, call: &str, number: u64) -> bool {
    let inject = format!("inject={call}:signal=KILL:when={number}");
    let code = run_traced(bed, operation, &["-e", &inject]).code;
    assert!(code.is_none() || code == Some(0), "{operation} killed at {call} {number}: {code:?}");
    code == Some(0)
}

pub fn run_traced(bed: &Bed, operation: &str, arguments: &[&str]) -> Run {
    let status = start_traced(bed, operation, arguments).wait().expect("strace runs");
    let trace = std::fs::read(bed.home.path().join("trace")).unwrap();
    let trace = String::from_utf8_lossy(&trace).into_owned();
    assert!(trace.contains(BEGIN), "{operation} {arguments:?}: nothing happens before it begins");
    Run { code: status.code(), trace }
}

/// Starts the operation under strace, which ends as the operation does.
pub fn start_traced(bed: &Bed, operation: &str, arguments: &[&str]) -> Child {
    let role = role_command(operation, &[]);
    let trace = bed.home.path().join("trace");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o"]).arg(&trace).args(arguments);
    strace.arg(role.get_program()).args(role.get_args());
    for (key, value) in role.get_envs() {
        strace.env(key, value.unwrap());
    }
    // Otherwise the first thread would search Cargo's library directories, one by one.
    strace.env_remove("LD_LIBRARY_PATH");
    strace.env("QUEUE", bed.queue()).stdin(Stdio::null()).stdout(Stdio::null());
    strace.stderr(Stdio::null()).spawn().expect("strace starts")
}

/// Runs a role and its children under strace, which shows the paths of descriptors.
pub fn run_traced_with_paths(bed: &Bed, operation: &str) -> String {
    let calls = "trace=renameat2,fsync,fdatasync,write,statx,newfstatat,stat,access,faccessat2";
    let Run { code, trace } = run_traced(bed, operation, &["-y", "-s", "120", "-e", calls]);
    assert_eq!(code, Some(0), "{operation} succeeds: {trace}");
    trace
}

/// How often each system call happens before and until the end of an operation, in the thread
/// that does it.
pub fn calls(bed: &Bed, operation: &str) -> BTreeMap<String, (u64, u64)> {
    let Run { code, trace: text } = run_traced(bed, operation, &[]);
    assert_eq!(code, Some(0), "{operation} succeeds if nothing goes wrong");
    let thread = text.lines().find(|line| line.contains(BEGIN)).expect("the operation begins");
    let thread = thread.split(' ').next().unwrap();
    let mut calls: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let mut began = false;
    for line in text.lines().filter_map(|line| line.strip_prefix(thread)) {
        if line.contains(END) {
            break;
        }
        began |= line.contains(BEGIN);
        let Some((call, _)) = line.trim_start().split_once('(') else { continue };
        let (before, all) = calls.entry(call.to_owned()).or_default();
        *all += 1;
        *before += u64::from(!began || line.contains(BEGIN));
    }
    calls
}

pub fn has_strace() -> bool {
    let strace = Command::new("strace").arg("-V").output();
    let has = strace.is_ok_and(|output| output.status.success());
    if !has {
        println!("skipped: strace is not installed (apt-get install strace)");
    }
    has
}
