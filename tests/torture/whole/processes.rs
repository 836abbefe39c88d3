//! Processes of the machine, by what they have in common.

use super::*;

fn all(is_so: impl Fn(u32) -> bool) -> Vec<u32> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| is_so(*pid)).collect()
}

/// A field of `/proc/PID/stat`, counted from the state, which is 0.
fn stat(pid: u32, field: usize) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.split_whitespace().nth(field)?.to_owned())
}

/// Whether it runs; one that only waits to be reaped does not.
pub fn is_alive(pid: u32) -> bool {
    stat(pid, 0).is_some_and(|state| state != "Z" && state != "X")
}

/// The living members of a process group.
pub fn of_group(group: u32) -> Vec<u32> {
    let group = group.to_string();
    all(|pid| stat(pid, 2).as_ref() == Some(&group) && is_alive(pid))
}

pub fn of_session(session: u32) -> Vec<u32> {
    let session = session.to_string();
    all(|pid| stat(pid, 3).as_ref() == Some(&session) && is_alive(pid))
}

fn read(pid: u32, file: &str) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

/// Whether it lives and has this text in its environment or on its command line. The number of a dead process
/// may be another one's by now.
pub fn is_of(pid: u32, text: &str) -> bool {
    is_alive(pid) && (read(pid, "environ").contains(text) || read(pid, "cmdline").contains(text))
}

/// Those that have this text in their environment or on their command line, as PID and command line.
pub fn with(text: &str) -> Vec<(u32, String)> {
    let own = std::process::id();
    let found = all(|pid| pid != own && is_of(pid, text));
    found.into_iter().map(|pid| (pid, read(pid, "cmdline"))).collect()
}

pub fn signal_all(pids: &[u32], what: Signal) {
    for pid in pids {
        signal(*pid, what);
    }
}
