//! What the system tells about a process, where it tells anything (`/proc`).

use std::fs::File;
use std::io::Read as _;

/// The fields of `/proc/PID/stat` behind the program's name, counted as in proc(5).
const FIRST_AFTER_NAME: usize = 3;
const PARENT: usize = 4;
const START_TIME: usize = 22;

/// How far up the tree to look for an ancestor.
const GENERATIONS_MAX: usize = 16;

/// When process `pid` started, in clock ticks since boot.
pub(crate) fn start_time(pid: u32) -> Option<u64> {
    field(&stat(pid)?, START_TIME)
}

/// How many generations `pid` is below `ancestor`; 0 if it is the same.
pub(super) fn generations_below(pid: u32, ancestor: u32) -> Option<usize> {
    let parent = |pid: &u32| field(&stat(*pid)?, PARENT).and_then(|pid| u32::try_from(pid).ok());
    std::iter::successors(Some(pid), parent).take(GENERATIONS_MAX).position(|pid| pid == ancestor)
}

fn stat(pid: u32) -> Option<String> {
    // Fifty numbers and a short name: one read takes them all.
    let mut text = [0; 2048];
    let length = File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text[..length]).into_owned())
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
    }
}
