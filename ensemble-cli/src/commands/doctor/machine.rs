use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};

use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::message::Timestamp;

use super::{CheckLevel, DoctorCheck};

const TMUX_VERSION_MIN: (u32, u32) = (3, 2);
/// No clock that is right shows an earlier time than this one: 2025-01-01.
const WALL_MIN: Timestamp = Timestamp::from_unix_millis(1_735_689_600_000);
/// The limits of inotify: name, the least that is comfortable, and what it limits.
const INOTIFY_LIMITS: [(&str, u64, &str); 3] = [
    ("max_user_instances", 128, "programs that watch"),
    ("max_user_watches", 8192, "watched directories"),
    ("max_queued_events", 16_384, "events in a burst"),
];

pub(super) fn tmux() -> DoctorCheck {
    let asked = Command::new("tmux").arg("-V").stdin(Stdio::null()).output();
    let output = match asked {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let remedy = "install it (apt install tmux, brew install tmux); queues work without, \
                nudging agents does not";
            let absent = DoctorCheck::fail("tmux", "is not installed", remedy);
            return DoctorCheck { level: CheckLevel::Missing, ..absent };
        }
        Err(error) => {
            let text = format!("cannot be started: {error}");
            return DoctorCheck::fail("tmux", text, "see whether `tmux -V` works");
        }
    };
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match version(&said) {
        Some(version) if version >= TMUX_VERSION_MIN => DoctorCheck::ok("tmux", said),
        Some(_) => {
            let remedy = "update to 3.2 or later; older ones lack what the watcher needs";
            DoctorCheck::fail("tmux", format!("{said} is too old"), remedy)
        }
        // Built from a development branch: `tmux master`, `tmux next-3.6`.
        None => DoctorCheck::ok("tmux", said),
    }
}

/// The other multiplexers whose panes agents may join from. One that is not installed is not missed.
pub(super) fn multiplexers() -> impl Iterator<Item = DoctorCheck> {
    ["zellij", "herdr"].into_iter().filter_map(|name| {
        let asked = Command::new(name).arg("--version").stdin(Stdio::null()).output().ok()?;
        let said = String::from_utf8_lossy(&asked.stdout).trim().to_owned();
        Some(DoctorCheck::ok(name, format!("{said}: `ensemble agent join` works in its panes")))
    })
}

fn version(said: &str) -> Option<(u32, u32)> {
    let (major, minor) = said.strip_prefix("tmux ")?.split_once('.')?;
    let digits = minor.find(|c: char| !c.is_ascii_digit()).unwrap_or(minor.len());
    Some((major.parse().ok()?, minor[..digits].parse().ok()?))
}

pub(super) fn clock() -> DoctorCheck {
    let wall = SystemClock.wall();
    if wall < WALL_MIN {
        let remedy = "set the clock; ids and stamps are in the wrong order until then";
        return DoctorCheck::fail("clock", format!("says {wall}"), remedy);
    }
    DoctorCheck::ok("clock", wall.to_string())
}

pub(super) fn inotify_limits() -> Vec<DoctorCheck> {
    limits_in(Path::new("/proc/sys/fs/inotify"))
}

/// The limits that are in the files of a directory; one without a file is not checked.
fn limits_in(directory: &Path) -> Vec<DoctorCheck> {
    let check = |(name, least, what): (&str, u64, &str)| {
        let path = directory.join(name);
        let limit: u64 = std::fs::read_to_string(path).ok()?.trim().parse().ok()?;
        let text = format!("{name} = {limit} ({what})");
        Some(if limit >= least {
            DoctorCheck::ok("inotify", text)
        } else {
            let remedy =
                format!("`sudo sysctl fs.inotify.{name}={least}`; until then polling steps in");
            DoctorCheck::warn("inotify", text, remedy)
        })
    };
    INOTIFY_LIMITS.into_iter().filter_map(check).collect()
}

#[cfg(test)]
mod tests {
    use super::super::CheckLevel;
    use super::{INOTIFY_LIMITS, limits_in, version};

    #[test]
    fn a_low_limit_of_inotify_is_a_warning_with_its_command() {
        let directory = tempfile::tempdir().unwrap();
        for (index, (name, least, _)) in INOTIFY_LIMITS.into_iter().enumerate() {
            let limit = if index == 1 { least - 1 } else { least };
            std::fs::write(directory.path().join(name), format!("{limit}\n")).unwrap();
        }
        let checks = limits_in(directory.path());
        let levels: Vec<CheckLevel> = checks.iter().map(|check| check.level).collect();
        assert_eq!(levels, [CheckLevel::Ok, CheckLevel::Warn, CheckLevel::Ok]);
        let remedy = checks[1].remedy.as_deref().unwrap();
        assert!(remedy.starts_with("`sudo sysctl fs.inotify.max_user_watches=8192`"), "{remedy}");
    }

    #[test]
    fn versions_of_tmux() {
        assert_eq!(version("tmux 3.3a"), Some((3, 3)));
        assert_eq!(version("tmux 3.10"), Some((3, 10)));
        assert_eq!(version("tmux 2.9"), Some((2, 9)));
        assert_eq!(version("tmux master"), None);
        assert_eq!(version("tmux next-3.6"), None);
    }
}
