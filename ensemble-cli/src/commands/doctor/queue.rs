//! Checks the operations of a queue by doing each of them once in its `tmp/`.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use ensemble_app::transport::uses_servers;
use ensemble_core::durable::{Dir, Durability, FileLock};
use ensemble_core::message::shell_word;
use ensemble_core::watch::{FsEvent, FsWatcher};
use ensemble_project::Project;
use ensemble_project::attention::WatcherState;
use rustix::fs::{Access, CWD, RenameFlags};

use super::DoctorCheck;
use crate::context::{Context, Failure};

const FREE_BYTES_MIN: u64 = 16 * 1024 * 1024;
const FREE_BYTES_COMFORTABLE: u64 = 256 * 1024 * 1024;
const EVENT_PATIENCE: Duration = Duration::from_secs(2);
const CLOCK_TOLERANCE: Duration = Duration::from_secs(5);

pub(super) fn opens(context: &Context) -> DoctorCheck {
    match context.spool().and_then(|spool| Ok(spool.mailboxes()?)) {
        Ok(_) if uses_servers(context) => DoctorCheck::ok(
            "queue",
            "the directory of this host, with its drop boxes; mail is on servers",
        ),
        Ok(mailboxes) => {
            DoctorCheck::ok("queue", ensemble_app::text::plural(mailboxes.len() as u64, "mailbox"))
        }
        Err(Failure::Told { text, hint, .. }) => {
            let remedy = hint.unwrap_or_else(|| "see what the message says".to_owned());
            DoctorCheck::fail("queue", text, remedy)
        }
        Err(Failure::ClosedPipe | Failure::Block { .. }) => DoctorCheck::ok("queue", "not checked"),
    }
}

pub(super) fn checks(project: &Project) -> Vec<DoctorCheck> {
    let mut checks =
        vec![permissions(&project.queue), one_file_system(project), free_space(project)];
    match tempfile::Builder::new().prefix("doctor.").tempdir_in(project.queue.join("tmp")) {
        Ok(probe) => checks.extend([
            locks(probe.path()),
            renames(probe.path()),
            events(probe.path()),
            file_clock(probe.path()),
        ]),
        Err(error) => checks.push(DoctorCheck::fail(
            "writing",
            format!("cannot write to {}: {error}", project.queue.join("tmp").display()),
            "check who owns the queue, and whether the disk is full or read-only",
        )),
    }
    checks.extend([log(project), watcher(project)]);
    checks
}

fn permissions(queue: &Path) -> DoctorCheck {
    match queue.metadata().map(|metadata| metadata.permissions().mode()) {
        Ok(mode) if mode & 0o077 == 0 => DoctorCheck::ok("permissions", "private to its owner"),
        Ok(mode) => {
            let text = format!("others may look into the queue (mode {:o})", mode & 0o777);
            let queue = shell_word(&queue.to_string_lossy());
            let remedy = format!("`chmod go= {queue}`, unless they are meant to");
            DoctorCheck::warn("permissions", text, remedy)
        }
        Err(error) => DoctorCheck::fail("permissions", error.to_string(), "see who owns it"),
    }
}

/// A rename cannot cross file systems, and everything is a rename.
fn one_file_system(project: &Project) -> DoctorCheck {
    let queue = &*project.queue;
    let device = |path: &Path| path.metadata().map(|metadata| metadata.dev()).ok();
    let home = device(&queue.join("tmp"));
    let mailboxes = std::fs::read_dir(queue.join("mailbox")).into_iter().flatten().flatten();
    let states = mailboxes.flat_map(|mailbox| {
        ["new", "front", "cur", "done", "dead"].map(|state| mailbox.path().join(state))
    });
    let elsewhere = states.into_iter().find(|path| path.exists() && device(path) != home);
    match elsewhere {
        None => {
            let directory = Dir::open(queue).ok();
            let is_one = directory.as_ref().is_some_and(Dir::names_go_with_files);
            let syncs = if is_one { "one sync" } else { "two syncs" };
            let text = format!("one for everything; a message takes {syncs} at `power`");
            let is_meant = project.config.durability.unwrap_or_default() == Durability::Power;
            let risk = directory.filter(|_| is_meant).and_then(|it| it.find_power_cut_risk());
            let Some(risk) = risk else { return DoctorCheck::ok("file system", text) };
            let remedy = "put the queue on another file system if power cuts matter";
            DoctorCheck::warn("file system", risk, remedy)
        }
        Some(path) => DoctorCheck::fail(
            "file system",
            format!("{} is mounted from elsewhere", path.display()),
            "put the whole queue into one file system",
        ),
    }
}

fn free_space(project: &Project) -> DoctorCheck {
    let free = match rustix::fs::statvfs(&project.queue) {
        Ok(room) => room.f_bavail * room.f_frsize,
        Err(error) => {
            return DoctorCheck::warn("disk", error.to_string(), "see what `df` says");
        }
    };
    let text = format!("{} MiB free", free / (1024 * 1024));
    match free {
        FREE_BYTES_COMFORTABLE.. => DoctorCheck::ok("disk", text),
        FREE_BYTES_MIN.. => DoctorCheck::warn("disk", text, "make room soon"),
        _ => DoctorCheck::fail("disk", text, "make room: messages are about to be refused"),
    }
}

fn locks(probe: &Path) -> DoctorCheck {
    let path = probe.join("lock");
    let held = FileLock::acquire(&path, Duration::ZERO);
    let refused = FileLock::acquire(&path, Duration::ZERO);
    match (held, refused) {
        (Ok(_), Err(_)) => DoctorCheck::ok("locks", "flock excludes"),
        (Ok(_), Ok(_)) => DoctorCheck::fail(
            "locks",
            "two have the same lock",
            "the file system does not support flock: use a local one",
        ),
        (Err(error), _) => DoctorCheck::fail("locks", error.to_string(), "use a local file system"),
    }
}

fn renames(probe: &Path) -> DoctorCheck {
    let (from, to) = (probe.join("from"), probe.join("to"));
    let written = std::fs::write(&from, "").and_then(|()| std::fs::write(&to, ""));
    if let Err(error) = written {
        return DoctorCheck::fail("renames", error.to_string(), "see why it cannot be written");
    }
    match rustix::fs::renameat_with(CWD, &from, CWD, &to, RenameFlags::NOREPLACE) {
        Err(rustix::io::Errno::EXIST) => DoctorCheck::ok("renames", "never over an existing file"),
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => DoctorCheck::warn(
            "renames",
            "no RENAME_NOREPLACE here: links are used instead",
            "slower but as exclusive; a local file system such as ext4 has it",
        ),
        Ok(()) => DoctorCheck::fail(
            "renames",
            "a rename replaced a file although it must not",
            "use another file system: messages could be lost on this one",
        ),
        Err(error) => DoctorCheck::fail("renames", error.to_string(), "use a local one"),
    }
}

fn events(probe: &Path) -> DoctorCheck {
    let watched =
        FsWatcher::new().and_then(|mut fs_watcher| fs_watcher.watch(probe).map(|()| fs_watcher));
    let bad = |text: String| {
        // The problem, then the remedy.
        let (text, remedy) = text.split_once(": ").unwrap_or((&text, "files are found by polling"));
        DoctorCheck::warn("events", text.to_owned(), remedy)
    };
    let mut fs_watcher = match watched {
        Ok(fs_watcher) => fs_watcher,
        Err(error) => return bad(error.to_string()),
    };
    let start = std::time::Instant::now();
    if let Err(error) = std::fs::write(probe.join("event"), "") {
        return bad(error.to_string());
    }
    let is_it = |event: &FsEvent| matches!(event, FsEvent::Landed { name, .. } if name == "event");
    loop {
        let events = fs_watcher.wait(EVENT_PATIENCE.saturating_sub(start.elapsed()));
        if events.iter().any(is_it) {
            return DoctorCheck::ok("events", format!("one arrived after {:?}", start.elapsed()));
        }
        if events.is_empty() {
            return bad("none arrived".to_owned());
        }
    }
}

/// Ages of files are compared with the wall clock.
fn file_clock(probe: &Path) -> DoctorCheck {
    let path = probe.join("stamp");
    let stamped = std::fs::write(&path, "").and_then(|()| path.metadata()?.modified());
    let now = SystemTime::now();
    let off = stamped.map(|stamp| {
        now.duration_since(stamp).or_else(|_| stamp.duration_since(now)).unwrap_or_default()
    });
    match off {
        Ok(off) if off <= CLOCK_TOLERANCE => {
            DoctorCheck::ok("file clock", "agrees with the wall clock")
        }
        Ok(off) => DoctorCheck::warn(
            "file clock",
            format!("the file system's clock is off by {}", ensemble_app::text::age(off)),
            "let both machines keep time (NTP)",
        ),
        Err(error) => DoctorCheck::warn("file clock", error.to_string(), "see why"),
    }
}

fn log(project: &Project) -> DoctorCheck {
    let logs = project.logs();
    match rustix::fs::access(&logs, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => DoctorCheck::ok("event log", logs.display().to_string()),
        Err(rustix::io::Errno::NOENT) => DoctorCheck::warn(
            "event log",
            format!("{} is not there yet", logs.display()),
            "the first record makes it",
        ),
        Err(error) => DoctorCheck::fail(
            "event log",
            format!("cannot write to {}: {error}", logs.display()),
            "check who owns it",
        ),
    }
}

fn watcher(project: &Project) -> DoctorCheck {
    let view = ensemble_project::overview::WatcherView::of(project);
    let holder = view.holder.clone().unwrap_or_default();
    match view.state() {
        WatcherState::Runs => DoctorCheck::ok("watcher", format!("running: {holder}")),
        WatcherState::Hangs(silent) => DoctorCheck::fail(
            "watcher",
            format!("{holder} hangs: no sign of life for {} s", silent.as_secs()),
            "`ensemble status` says what to do",
        ),
        WatcherState::Missing => DoctorCheck::warn(
            "watcher",
            "not running: drop boxes are not routed, agents are not nudged",
            ensemble_project::overview::watcher_remedy(project),
        ),
    }
}
