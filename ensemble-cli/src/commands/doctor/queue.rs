//! What is checked of a queue, by doing it once in its `tmp/`.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use ensemble_app::failure::Failure;
use ensemble_app::transport::uses_servers;
use ensemble_core::durable::{Dir, FileLock};
use ensemble_core::watch::{FsEvent, FsWatcher};
use ensemble_project::Project;
use ensemble_project::attention::WatcherState;
use rustix::fs::{Access, CWD, RenameFlags};

use super::{Check, Level};
use crate::context::Context;

/// Below this many free bytes something is about to go wrong.
const FREE_BYTES_MIN: u64 = 16 * 1024 * 1024;
/// Below this many free bytes doctor warns.
const FREE_BYTES_COMFORTABLE: u64 = 256 * 1024 * 1024;
/// How long an event may take to arrive.
const EVENT_PATIENCE: Duration = Duration::from_secs(2);
/// How far the clock of the file system may be off.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(5);

/// Whether the queue can be opened at all.
pub(super) fn opens(context: &Context) -> Check {
    match context.spool().and_then(|spool| Ok(spool.mailboxes()?)) {
        Ok(_) if uses_servers(context) => Check::ok(
            "queue",
            "the directory of this host, with its drop boxes; mail is on servers",
        ),
        Ok(mailboxes) => {
            Check::ok("queue", ensemble_app::text::plural(mailboxes.len() as u64, "mailbox"))
        }
        Err(Failure::Told { text, hint, .. }) => {
            let remedy = hint.unwrap_or_else(|| "see what the message says".to_owned());
            Check::bad("queue", Level::Fail, text, remedy)
        }
        Err(Failure::ClosedPipe | Failure::Block { .. }) => Check::ok("queue", "not looked at"),
    }
}

/// Everything that needs a queue.
pub(super) fn checks(project: &Project) -> Vec<Check> {
    let mut checks =
        vec![permissions(&project.queue), one_file_system(&project.queue), free_space(project)];
    match tempfile::Builder::new().prefix("doctor.").tempdir_in(project.queue.join("tmp")) {
        Ok(probe) => checks.extend([
            locks(probe.path()),
            renames(probe.path()),
            events(probe.path()),
            file_clock(probe.path()),
        ]),
        Err(error) => checks.push(Check::bad(
            "writing",
            Level::Fail,
            format!("cannot write to {}: {error}", project.queue.join("tmp").display()),
            "check who owns the queue, and whether the disk is full or read-only",
        )),
    }
    checks.extend([log(project), watcher(project)]);
    checks
}

fn permissions(queue: &Path) -> Check {
    match queue.metadata().map(|metadata| metadata.permissions().mode()) {
        Ok(mode) if mode & 0o077 == 0 => Check::ok("permissions", "private to its owner"),
        Ok(mode) => {
            let text = format!("others may look into the queue (mode {:o})", mode & 0o777);
            let remedy = "`chmod go= queue` unless they are meant to";
            Check::bad("permissions", Level::Warn, text, remedy)
        }
        Err(error) => Check::bad("permissions", Level::Fail, error.to_string(), "see who owns it"),
    }
}

/// A rename cannot cross file systems, and everything is a rename.
fn one_file_system(queue: &Path) -> Check {
    let device = |path: &Path| path.metadata().map(|metadata| metadata.dev()).ok();
    let home = device(&queue.join("tmp"));
    let mailboxes = std::fs::read_dir(queue.join("mailbox")).into_iter().flatten().flatten();
    let states = mailboxes.flat_map(|mailbox| {
        ["new", "front", "cur", "done", "dead"].map(|state| mailbox.path().join(state))
    });
    let elsewhere = states.into_iter().find(|path| path.exists() && device(path) != home);
    match elsewhere {
        None => {
            let is_one = Dir::open(queue).is_ok_and(|queue| queue.names_go_with_files());
            let syncs = if is_one { "one sync" } else { "two syncs" };
            let text = format!("one for everything; a message takes {syncs} at `power`");
            Check::ok("file system", text)
        }
        Some(path) => Check::bad(
            "file system",
            Level::Fail,
            format!("{} is mounted from elsewhere", path.display()),
            "put the whole queue into one file system",
        ),
    }
}

fn free_space(project: &Project) -> Check {
    let free = match fs2::available_space(&project.queue) {
        Ok(free) => free,
        Err(error) => {
            return Check::bad("disk", Level::Warn, error.to_string(), "see what `df` says");
        }
    };
    let text = format!("{} MiB free", free / (1024 * 1024));
    match free {
        FREE_BYTES_COMFORTABLE.. => Check::ok("disk", text),
        FREE_BYTES_MIN.. => Check::bad("disk", Level::Warn, text, "make room soon"),
        _ => Check::bad("disk", Level::Fail, text, "make room: messages are about to be refused"),
    }
}

fn locks(probe: &Path) -> Check {
    let path = probe.join("lock");
    let held = FileLock::acquire(&path, Duration::ZERO);
    let refused = FileLock::acquire(&path, Duration::ZERO);
    match (held, refused) {
        (Ok(_), Err(_)) => Check::ok("locks", "flock excludes"),
        (Ok(_), Ok(_)) => Check::bad(
            "locks",
            Level::Fail,
            "two have the same lock",
            "the file system does not support flock: use a local one",
        ),
        (Err(error), _) => {
            Check::bad("locks", Level::Fail, error.to_string(), "use a local file system")
        }
    }
}

fn renames(probe: &Path) -> Check {
    let (from, to) = (probe.join("from"), probe.join("to"));
    let written = std::fs::write(&from, "").and_then(|()| std::fs::write(&to, ""));
    if let Err(error) = written {
        return Check::bad(
            "renames",
            Level::Fail,
            error.to_string(),
            "see why it cannot be written",
        );
    }
    match rustix::fs::renameat_with(CWD, &from, CWD, &to, RenameFlags::NOREPLACE) {
        Err(rustix::io::Errno::EXIST) => Check::ok("renames", "never over an existing file"),
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => Check::bad(
            "renames",
            Level::Warn,
            "no RENAME_NOREPLACE here: links are used instead",
            "slower but as exclusive; a local file system such as ext4 has it",
        ),
        Ok(()) => Check::bad(
            "renames",
            Level::Fail,
            "a rename replaced a file although it must not",
            "use another file system: messages could be lost on this one",
        ),
        Err(error) => Check::bad("renames", Level::Fail, error.to_string(), "use a local one"),
    }
}

fn events(probe: &Path) -> Check {
    let watched =
        FsWatcher::new().and_then(|mut fs_watcher| fs_watcher.watch(probe).map(|()| fs_watcher));
    let bad = |text: String| {
        // What is wrong, then what helps.
        let (text, remedy) = text.split_once(": ").unwrap_or((&text, "files are found by polling"));
        Check::bad("events", Level::Warn, text.to_owned(), remedy)
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
            return Check::ok("events", format!("one arrived after {:?}", start.elapsed()));
        }
        if events.is_empty() {
            return bad("none arrived".to_owned());
        }
    }
}

/// Ages of files are compared with the wall clock.
fn file_clock(probe: &Path) -> Check {
    let path = probe.join("stamp");
    let stamped = std::fs::write(&path, "").and_then(|()| path.metadata()?.modified());
    let now = SystemTime::now();
    let off = stamped.map(|stamp| {
        now.duration_since(stamp).or_else(|_| stamp.duration_since(now)).unwrap_or_default()
    });
    match off {
        Ok(off) if off <= CLOCK_TOLERANCE => Check::ok("file clock", "agrees with the wall clock"),
        Ok(off) => Check::bad(
            "file clock",
            Level::Warn,
            format!("the file system's clock is off by {}", ensemble_app::text::age(off)),
            "let both machines keep time (NTP)",
        ),
        Err(error) => Check::bad("file clock", Level::Warn, error.to_string(), "see why"),
    }
}

fn log(project: &Project) -> Check {
    let logs = project.logs();
    match rustix::fs::access(&logs, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => Check::ok("event log", logs.display().to_string()),
        Err(rustix::io::Errno::NOENT) => Check::bad(
            "event log",
            Level::Warn,
            format!("{} is not there yet", logs.display()),
            "`ensemble init` makes it, or the first record",
        ),
        Err(error) => Check::bad(
            "event log",
            Level::Fail,
            format!("cannot write to {}: {error}", logs.display()),
            "check who owns it",
        ),
    }
}

fn watcher(project: &Project) -> Check {
    let view = ensemble_project::overview::WatcherView::of(project);
    let holder = view.holder.clone().unwrap_or_default();
    match view.state() {
        WatcherState::Runs => Check::ok("watcher", format!("running: {holder}")),
        WatcherState::Hangs(silent) => Check::bad(
            "watcher",
            Level::Fail,
            format!("{holder} hangs: no sign of life for {} s", silent.as_secs()),
            "`ensemble status` says what helps",
        ),
        WatcherState::Missing => Check::bad(
            "watcher",
            Level::Warn,
            "not running: drop boxes are not routed, agents are not nudged",
            ensemble_project::overview::watcher_remedy(project),
        ),
    }
}
