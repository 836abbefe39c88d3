//! What the system tells about a process, where it tells anything (`/proc`).

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The fields of `/proc/PID/stat` behind the program's name, counted as in proc(5).
const FIRST_AFTER_NAME: usize = 3;
const PARENT: usize = 4;
const START_TIME: usize = 22;

/// More than 52 numbers and a name of 16 bytes can take.
const STAT_BYTES_MAX: usize = 2048;

/// How many processes below one are looked at.
const DESCENDANTS_MAX: usize = 64;
/// How much of a command line is read.
const COMMAND_LINE_BYTES_MAX: u64 = 16 * 1024;

/// How far up the tree to look for an ancestor.
const GENERATIONS_MAX: usize = 16;
/// How far up the whole line is followed: deeper than tools are nested, and an end in any case.
const LINE_MAX: usize = 128;

/// When process `pid` started, in clock ticks since boot.
pub(crate) fn start_time(pid: u32) -> Option<u64> {
    field(&stat(pid)?, START_TIME)
}

/// How many generations `pid` is below `ancestor`; 0 if it is the same.
pub(super) fn generations_below(pid: u32, ancestor: u32) -> Option<usize> {
    let parent = |pid: &u32| field(&stat(*pid)?, PARENT).and_then(|pid| u32::try_from(pid).ok());
    std::iter::successors(Some(pid), parent).take(GENERATIONS_MAX).position(|pid| pid == ancestor)
}

/// Process `pid` and what descends from it, nearest first, as far as the system tells.
pub(super) fn below(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while next < found.len() && found.len() < DESCENDANTS_MAX {
        // Each thread has its own children.
        let threads = std::fs::read_dir(format!("/proc/{}/task", found[next]));
        for thread in threads.into_iter().flatten().flatten().take(DESCENDANTS_MAX) {
            let children = head(&thread.path().join("children")).unwrap_or_default();
            found.extend(children.split(' ').filter_map(|child| child.parse::<u32>().ok()));
        }
        next += 1;
    }
    found
}

/// The words that process `pid` was started with.
pub(super) fn command_line(pid: u32) -> Option<Vec<String>> {
    let text = head(Path::new(&format!("/proc/{pid}/cmdline")))?;
    let words: Vec<String> = text.split_terminator('\0').map(str::to_owned).collect();
    (!words.is_empty()).then_some(words)
}

/// The beginning of a file of the system.
fn head(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(COMMAND_LINE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// `pid` and its ancestors, the nearest first, each with its start time: together they name a
/// process beyond doubt. Whoever has ended, or is another user's behind closed doors, ends the line.
pub(crate) fn line_of(pid: u32) -> Vec<(u32, u64)> {
    let mut line = Vec::new();
    let mut next = Some(pid);
    while let Some(pid) = next.filter(|pid| *pid > 0 && line.len() < LINE_MAX) {
        let Some(stat) = stat(pid) else { break };
        let Some(started) = field(&stat, START_TIME) else { break };
        line.push((pid, started));
        next = field(&stat, PARENT).and_then(|pid| u32::try_from(pid).ok());
    }
    line
}

/// One read, since the system makes the whole text anew for each.
fn stat(pid: u32) -> Option<String> {
    let mut buffer = [0; STAT_BYTES_MAX];
    let bytes = File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut buffer).ok()?;
    Some(String::from_utf8_lossy(&buffer[..bytes]).into_owned())
}

/// The name, the second field, stands in parentheses and may hold both spaces and parentheses.
fn field(stat: &str, number: usize) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(") ")?;
    after_name.split(' ').nth(number - FIRST_AFTER_NAME)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_a_wicked_name() {
        let stat = "7 (a) b) S 41 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20";
        assert_eq!(field(stat, START_TIME), Some(4242));
        assert_eq!(field(stat, PARENT), Some(41));
        assert_eq!(field("7 (a", PARENT), None);
    }

    #[test]
    fn we_descend_from_our_parent() {
        let parent = std::os::unix::process::parent_id();
        assert!(start_time(std::process::id()).is_some());
        assert_eq!(generations_below(std::process::id(), parent), Some(1));
        assert_eq!(generations_below(parent, std::process::id()), None);
        assert!(below(parent).contains(&std::process::id()), "we are below our parent");
        let words = command_line(std::process::id()).expect("we were started with something");
        assert_eq!(words[0], std::env::args().next().expect("a name"));
        let line = line_of(std::process::id());
        assert_eq!(line[0], (std::process::id(), start_time(std::process::id()).unwrap()));
        assert_eq!(line[1].0, parent);
        assert_eq!(line.last().map(|(pid, _)| *pid), Some(1));
    }
}
