//! The order of a client's system calls, as strace sees them.
//!
//! ```text
//! send         [write, sync file] in tmp/ -> rename into new/ -> [sync new/] -> answer
//! receive      rename into cur/ -> read
//! settle       rename into done/ -> [sync done/] -> answer
//! release      lock -> rename into front/ -> answer       without flock: only the rename
//! dead letter  lock -> reason -> rename into dead/        without flock: link the reason, and rename
//! ```
//!
//! Steps in brackets are asked of clients with `durability: power`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;

use super::cases::TestedClient as _;
use super::program::ClientProgram;
use super::{
    BACKWARDS, ClientCheck, EmptyQueue, LETTER, PUBLISH, ProtocolRule, SETTLE, StageChecks,
    accepted, under_lease,
};

const RECEIVE: ProtocolRule = (
    "States and moves",
    "Choose the first due message, rename it, then read it under its new name.",
);
const POWER: ProtocolRule = (
    "What survives",
    "With `durability: power`, the default, publish, redrive and settle also survive a power cut: \
     the client syncs the file and its name before it returns.",
);
const UNLOCKED: ProtocolRule = (
    "States and moves",
    "It dead-letters with a reason that it links, and never replaces one: then it lets the lease run out.",
);

const CALLS: &str = "trace=openat,open,creat,rename,renameat,renameat2,link,linkat,fsync,fdatasync,\
                     sync,syncfs,write,writev,flock";

#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    Open { path: PathBuf, writes: bool },
    Move { from: PathBuf, to: PathBuf, is_link: bool },
    Sync(PathBuf),
    SyncAll,
    Lock { exclusive: bool },
    Answer,
}

pub(super) fn check(client: &str) -> Vec<ClientCheck> {
    let mut checks = StageChecks::new(client, "traces");
    match traced(client) {
        Ok(Some(traced)) => judge(&traced, &mut checks),
        Ok(None) => checks.skip(
            "order_of_system_calls",
            PUBLISH,
            "strace is not installed, or may not trace",
        ),
        Err(error) => checks.add_check("order_of_system_calls", PUBLISH, Err(error)),
    }
    checks.done
}

struct TracedCalls {
    calls: Vec<Vec<Event>>,
    is_power: bool,
    locks: bool,
}

/// Runs the calls; `None` if there is no strace.
fn traced(client: &str) -> Result<Option<TracedCalls>, String> {
    let bed = EmptyQueue::new()?;
    let log = bed.home.path().join("trace");
    let probe = Command::new("strace").args(["-qq", "true"]).stderr(Stdio::null()).status();
    if !probe.is_ok_and(|status| status.success()) {
        return Ok(None);
    }
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-y", "-s", "300", "-e", CALLS, "-o"]).arg(&log).arg("sh");
    let mut program = ClientProgram::start_by(strace, client, &bed.queue())?;
    // The first message makes the directories.
    accepted(program.call(&bed.send("first\n")?))?;
    accepted(program.call(&bed.send("x\n")?))?;
    let received = accepted(program.call(&bed.receive()))?;
    accepted(program.call(&under_lease("settle", &received)))?;
    let received = accepted(program.call(&bed.receive()))?;
    let mut release = under_lease("release", &received);
    release["delay_ms"] = 0.into();
    accepted(program.call(&release))?;
    accepted(program.call(&bed.send("y\n")?))?;
    let mut received = json!(null);
    while received["id"].is_null() {
        received = accepted(program.call(&bed.receive()))?;
    }
    let mut bury = under_lease("dead_letter", &received);
    bury["reason"] = "no".into();
    accepted(program.call(&bury))?;
    let (is_power, locks) = (program.is_power(), program.locks());
    program.end();
    let text = std::fs::read_to_string(&log).map_err(|error| error.to_string())?;
    let mut calls = vec![Vec::new()];
    for event in events(&text) {
        let is_answer = event == Event::Answer;
        calls.last_mut().into_iter().for_each(|call| call.push(event.clone()));
        if is_answer {
            calls.push(Vec::new());
        }
    }
    Ok(Some(TracedCalls { calls, is_power, locks }))
}

fn judge(traced: &TracedCalls, checks: &mut StageChecks<'_>) {
    // The first answer is the greeting, the second that of the first message.
    let call = |number: usize| traced.calls.get(number).map_or(&[][..], Vec::as_slice);
    let (send, receive, settle, release) = (call(2), call(3), call(4), call(6));
    let bury = traced.calls.iter().find(|call| call.iter().any(is_letter));
    let bury = bury.map_or(&[][..], Vec::as_slice);
    checks.add_check("publish_is_a_rename_out_of_tmp", PUBLISH, publish(send));
    checks.add_check("receive_renames_before_it_reads", RECEIVE, received(receive));
    checks.add_check("settle_is_a_rename", SETTLE, moved(settle, "done").map(drop));
    match traced.is_power {
        true => {
            checks.add_check("publish_syncs_the_file_before_its_rename", POWER, synced_file(send));
            checks.add_check("publish_syncs_the_directory", POWER, synced_directory(send, "new"));
            checks.add_check("settle_syncs_the_directory", POWER, synced_directory(settle, "done"));
        }
        false => checks.skip("syncs", POWER, "the client has `durability: process`"),
    }
    if traced.locks {
        checks.add_check("release_holds_the_lock", BACKWARDS, locked(release, "front", false));
        checks.add_check("dead_letter_holds_the_lock", LETTER, locked(bury, "dead", true));
    } else {
        checks.add_check("an_unlocked_letter_links_its_reason", UNLOCKED, linked_reason(bury));
    }
    checks.add_check("a_reason_comes_before_its_letter", LETTER, reason_first(bury));
}

fn publish(call: &[Event]) -> Result<(), String> {
    let at = moved(call, "new")?;
    let Event::Move { from, .. } = &call[at] else { unreachable!("moved says so") };
    if !is_in(from, "tmp") {
        return Err(format!("the message was renamed from {}", from.display()));
    }
    let written = call.iter().find_map(|event| match event {
        Event::Open { path, writes: true } if is_in(path, "new") => Some(path),
        _ => None,
    });
    written.map_or(Ok(()), |path| Err(format!("{} was written in place", path.display())))
}

fn received(call: &[Event]) -> Result<(), String> {
    let at = moved(call, "cur")?;
    let read = call[..at].iter().find_map(|event| match event {
        Event::Open { path, .. } if ["new", "front"].iter().any(|state| is_in(path, state)) => {
            Some(path)
        }
        _ => None,
    });
    read.map_or(Ok(()), |path| Err(format!("{} was read before the rename", path.display())))
}

fn synced_file(call: &[Event]) -> Result<(), String> {
    let at = moved(call, "new")?;
    let is_sync = |event: &Event| match event {
        Event::Sync(path) => is_in(path, "tmp"),
        event => *event == Event::SyncAll,
    };
    let is_synced = is_synced_there(&call[at..], "new") || call[..at].iter().any(is_sync);
    ensure(is_synced, || "the file was not synced before its rename".to_owned())
}

fn synced_directory(call: &[Event], state: &str) -> Result<(), String> {
    let at = moved(call, state)?;
    let is_sync = |event: &Event| match event {
        Event::Sync(path) => path.file_name().is_some_and(|name| name == state),
        event => *event == Event::SyncAll,
    };
    let is_synced = is_synced_there(&call[at..], state) || call[at..].iter().any(is_sync);
    ensure(is_synced, || format!("{state}/ was not synced between the rename and the answer"))
}

/// Whether the file is synced under its new name, which makes both safe where names go with files.
fn is_synced_there(call: &[Event], state: &str) -> bool {
    call.iter().any(|event| matches!(event, Event::Sync(path) if is_in(path, state)))
}

fn locked(call: &[Event], state: &str, exclusively: bool) -> Result<(), String> {
    let at = moved(call, state)?;
    let is_lock =
        |event: &Event| matches!(event, Event::Lock { exclusive } if *exclusive || !exclusively);
    let is_locked = call[..at].iter().any(is_lock);
    ensure(is_locked, || format!("gate.lock was not held at the rename into {state}/"))
}

fn linked_reason(call: &[Event]) -> Result<(), String> {
    let is_linked =
        |event: &Event| matches!(event, Event::Move { is_link: true, .. }) && is_reason(event);
    ensure(call.iter().any(is_linked), || "the reason was not linked".to_owned())
}

fn reason_first(call: &[Event]) -> Result<(), String> {
    let letter = call.iter().position(is_letter);
    let reason = call.iter().position(is_reason);
    let is_first = reason.zip(letter).is_some_and(|(reason, letter)| reason < letter);
    ensure(is_first, || "the letter moved before its reason was in dead/".to_owned())
}

fn is_letter(event: &Event) -> bool {
    matches!(event, Event::Move { to, .. } if is_in(to, "dead")) && !is_reason(event)
}

fn is_reason(event: &Event) -> bool {
    matches!(event, Event::Move { to, .. } if to.to_string_lossy().ends_with("@reason.yaml"))
}

fn ensure(is_so: bool, failure: impl FnOnce() -> String) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(failure()) }
}

/// The first rename into a state, whose position is returned.
fn moved(call: &[Event], state: &str) -> Result<usize, String> {
    call.iter()
        .position(|event| matches!(event, Event::Move { to, .. } if is_in(to, state)))
        .filter(|at| call[*at..].contains(&Event::Answer))
        .ok_or_else(|| format!("no rename into {state}/ before the answer"))
}

fn is_in(path: &Path, state: &str) -> bool {
    path.parent().and_then(Path::file_name).is_some_and(|name| name == state)
}

/// Reads a trace. A call that strace has divided is put together where it ends.
fn events(text: &str) -> Vec<Event> {
    let mut begun: Vec<(&str, &str)> = Vec::new();
    let (mut events, mut stdout) = (Vec::new(), None);
    for line in text.lines() {
        let Some((pid, call)) = line.split_once(' ') else { continue };
        let call = call.trim_start();
        if let Some(start) = call.strip_suffix("<unfinished ...>") {
            begun.push((pid, start));
            continue;
        }
        let whole = match call.strip_prefix("<... ").and_then(|rest| rest.split_once(" resumed>")) {
            Some((_, end)) => {
                let Some(at) = begun.iter().position(|(owner, _)| *owner == pid) else { continue };
                format!("{}{end}", begun.remove(at).1)
            }
            None => call.to_owned(),
        };
        let found = event(&whole);
        if found == Some(Event::Answer) {
            // A shell writes lines to its own pipes, too; the greeting shows the one of the kit.
            let pipe = whole.split_once(',').map_or("", |(pipe, _)| pipe).to_owned();
            if *stdout.get_or_insert_with(|| pipe.clone()) != pipe {
                continue;
            }
        }
        events.extend(found);
    }
    events
}

fn event(call: &str) -> Option<Event> {
    let (name, rest) = call.split_once('(')?;
    let (arguments, result) = rest
        .rsplit_once(") = ")
        .or_else(|| rest.rsplit_once(')').map(|(a, r)| (a, r.trim_start_matches([' ', '=']))))?;
    if result.trim_start().starts_with('-') {
        return None;
    }
    let arguments = split(arguments);
    let text = |at: usize| arguments.get(at).map_or("", String::as_str);
    match name {
        "openat" => {
            Some(Event::Open { path: joined(text(0), text(1)), writes: is_writing(text(2)) })
        }
        "open" => Some(Event::Open { path: unquoted(text(0)), writes: is_writing(text(1)) }),
        "creat" => Some(Event::Open { path: unquoted(text(0)), writes: true }),
        "rename" | "link" => Some(Event::Move {
            from: unquoted(text(0)),
            to: unquoted(text(1)),
            is_link: name == "link",
        }),
        "renameat" | "renameat2" | "linkat" => Some(Event::Move {
            from: joined(text(0), text(1)),
            to: joined(text(2), text(3)),
            is_link: name == "linkat",
        }),
        "fsync" | "fdatasync" => Some(Event::Sync(described(text(0)))),
        "sync" | "syncfs" => Some(Event::SyncAll),
        "flock" if text(0).contains("/gate.lock>") && !text(1).contains("LOCK_UN") => {
            Some(Event::Lock { exclusive: text(1).contains("LOCK_EX") })
        }
        "write" | "writev" => {
            let is_answer = text(0).starts_with("1<pipe:")
                && arguments.iter().any(|part| part.contains("{\\\""));
            is_answer.then_some(Event::Answer)
        }
        _ => None,
    }
}

fn is_writing(flags: &str) -> bool {
    flags.contains("O_WRONLY") || flags.contains("O_RDWR")
}

fn split(arguments: &str) -> Vec<String> {
    let (mut parts, mut is_quoted, mut is_escaped) = (vec![String::new()], false, false);
    for c in arguments.chars() {
        match c {
            ',' if !is_quoted => {
                parts.push(String::new());
                continue;
            }
            '"' if !is_escaped => is_quoted = !is_quoted,
            _ => {}
        }
        is_escaped = c == '\\' && !is_escaped;
        parts.last_mut().into_iter().for_each(|part| part.push(c));
    }
    parts.iter().map(|part| part.trim().to_owned()).collect()
}

fn unquoted(text: &str) -> PathBuf {
    PathBuf::from(text.trim_matches('"'))
}

/// The path of a descriptor, as in `5</queue/tmp>`.
fn described(descriptor: &str) -> PathBuf {
    let path = descriptor.split_once('<').map_or("", |(_, rest)| rest.trim_end_matches('>'));
    PathBuf::from(path)
}

fn joined(descriptor: &str, path: &str) -> PathBuf {
    described(descriptor).join(unquoted(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_reads_as_events() {
        let text = "\
7  openat(AT_FDCWD</x>, \"/q/tmp/a, b\", O_WRONLY|O_CREAT|O_EXCL, 0600) = 3</q/tmp/a, b>
7  fsync(3</q/tmp/a> <unfinished ...>
8  write(1<pipe:[1]>, \"{\\\"ok\\\":true}\\n\", 12) = 12
7  <... fsync resumed>)       = 0
7  renameat2(4</q/tmp>, \"a\", 5</q/new>, \"a.yaml\", RENAME_NOREPLACE) = 0
7  rename(\"/q/new/b.yaml\", \"/q/cur/b\") = -1 ENOENT (No such file or directory)
7  flock(6</q/gate.lock>, LOCK_SH|LOCK_NB) = 0
";
        let expected = [
            Event::Open { path: "/q/tmp/a, b".into(), writes: true },
            Event::Answer,
            Event::Sync("/q/tmp/a".into()),
            Event::Move { from: "/q/tmp/a".into(), to: "/q/new/a.yaml".into(), is_link: false },
            Event::Lock { exclusive: false },
        ];
        assert_eq!(events(text), expected);
    }
}
