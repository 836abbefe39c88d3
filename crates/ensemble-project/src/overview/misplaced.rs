//! Own files and directories in whose place something else is, or that their owner may not use.
//!
//! To most readers a file or a pipe in place of `reports/` looks like an empty directory. Such a part is also the cause of
//! what fails below it, and a need instead of that.

use std::fs::{self, FileType, Metadata};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use ensemble_core::message::{Name, is_temporary_file, shell_word};
use rustix::process::{Resource, getrlimit};

use super::parts::{mailboxes_dir, requests_dir};
use crate::attention::{UnreadCause, UnreadablePart};
use crate::project::Project;

const STATE_DIRECTORIES: &str = "logs panes roster sessions leases locks ladders \
    launch hooks batches reviews ends supervise canary ready";
const STATE_FILES: &str = "routed.ndjson watch.json watch.lock alarms.json budget.yaml \
    leases/observed.json leases/kept.json logs/log.lock";
const QUEUE_DIRECTORIES: &str = "mailbox tmp reports tasks ack requests gates attachments rejected";
const QUEUE_FILES: &str = "calendar.json";
/// Those of a mailbox that `status` does not open.
const MAILBOX_DIRECTORIES: [&str; 2] = ["done", "lease"];
const MAILBOX_FILES: [&str; 2] = ["mailbox.yaml", "gate.lock"];
/// What its owner must be allowed in a directory, and with a file.
const OWNER: u32 = 0o700;
const OWNER_OF_FILE: u32 = 0o600;

#[derive(Clone, Copy, Debug)]
enum PlaceFault {
    /// Its owner has only these permissions.
    Closed(u32),
    /// It is the first, and should be the second.
    Occupied(&'static str, &'static str),
}

#[derive(Clone, Debug)]
pub struct MisplacedPart {
    path: PathBuf,
    part: UnreadablePart,
}

pub fn find_misplaced(project: &Project) -> Vec<MisplacedPart> {
    let Project { queue, state, .. } = project;
    // The two themselves may be links.
    let mut found: Vec<MisplacedPart> = [queue, state]
        .into_iter()
        .filter_map(|path| {
            let it = fs::metadata(path).or_else(|_| path.symlink_metadata()).ok()?;
            let fault = fault_of_directory(&it)?;
            Some(MisplacedPart::of_project(project, path.clone(), fault))
        })
        .collect();
    let mut inspect = |place: &Path, names: &str, find: FaultFinder| {
        let below = names.split(' ').filter_map(|name| inspect_place(place.join(name), find));
        found.extend(below.map(|(path, fault)| MisplacedPart::of_project(project, path, fault)));
    };
    inspect(queue, QUEUE_DIRECTORIES, fault_of_directory);
    inspect(state, STATE_DIRECTORIES, fault_of_directory);
    inspect(queue, QUEUE_FILES, fault_of_file);
    inspect(state, STATE_FILES, fault_of_file);
    found.extend(misplaced_mailboxes(project));
    found.extend(misplaced_requests(project));
    found
}

/// Puts them in place of the failures that they cause.
pub(super) fn name_causes(misplaced: &[MisplacedPart], unreadable: &mut Vec<UnreadablePart>) {
    unreadable.retain(|part| !misplaced.iter().any(|it| it.explains(&part.why)));
    unreadable.extend(misplaced.iter().map(|it| it.part.clone()));
    join_exhausted(unreadable);
}

/// Without descriptors nothing can be read, which is one trouble, and says nothing of the parts.
fn join_exhausted(unreadable: &mut Vec<UnreadablePart>) {
    if unreadable.iter().any(|part| part.cause == UnreadCause::NoDescriptor) {
        unreadable.retain(|part| part.cause == UnreadCause::Part);
        let limit = getrlimit(Resource::Nofile).current;
        let limit = limit.map_or_else(|| "too few".to_owned(), |limit| limit.to_string());
        unreadable.push(UnreadablePart {
            about: "much of the project".to_owned(),
            why: format!("a process may open {limit} files here, and needs more"),
            help: "`ulimit -n 1024`".to_owned(),
            cause: UnreadCause::NoDescriptor,
        });
    }
}

/// Whether a text names this path, or one below it; `mailbox/ab` does not name `mailbox/a`.
fn is_named(path: &str, text: &str) -> bool {
    let continues = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    text.match_indices(path).any(|(at, _)| !text[at + path.len()..].starts_with(continues))
}

impl MisplacedPart {
    #[must_use]
    pub const fn part(&self) -> &UnreadablePart {
        &self.part
    }

    #[must_use]
    pub fn explains(&self, error: &str) -> bool {
        is_named(&self.path.to_string_lossy(), error)
    }

    /// `then` is what is to be done once it is out of the way.
    fn new(about: String, path: PathBuf, fault: PlaceFault, then: &str) -> Self {
        let place = path.display();
        let (why, help) = match fault {
            PlaceFault::Closed(mode) => (
                format!("{place} is closed to its owner (mode {mode:o})"),
                format!("`chmod u+rwX {}`", shell_word(&path.to_string_lossy())),
            ),
            PlaceFault::Occupied(kind, wanted) => (
                format!("{place} is a {kind}, and should be a {wanted}"),
                format!("move {place} away{then}"),
            ),
        };
        let cause = UnreadCause::Part;
        Self { part: UnreadablePart { about, why, help, cause }, path }
    }

    fn of_project(project: &Project, path: PathBuf, fault: PlaceFault) -> Self {
        let about = path.strip_prefix(project.root()).unwrap_or(&path).display().to_string();
        Self::new(about, path, fault, "; `ensemble init` makes what is missing")
    }
}

/// The entries of a directory in which each is itself a directory, with their names and types.
fn list_named(place: &Path) -> impl Iterator<Item = (Name, PathBuf, FileType)> + use<> {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let name = Name::new(entry.file_name().to_str()?).ok()?;
        let kind = entry.file_type().ok()?;
        (kind.is_dir() || !is_temporary_file(name.as_str())).then(|| (name, entry.path(), kind))
    })
}

/// The mailboxes that are not directories, which no list has, and the parts of others that only their use opens.
fn misplaced_mailboxes(project: &Project) -> Vec<MisplacedPart> {
    let misplaced = list_named(&mailboxes_dir(project)).filter_map(|(name, path, kind)| {
        let about = format!("mailbox {name}");
        if kind.is_dir() {
            let (path, fault) = fault_in_mailbox(&path)?;
            return Some(MisplacedPart::new(about, path, fault, ": it is made again"));
        }
        let then = format!(", then `ensemble mailbox add {name}`");
        Some(MisplacedPart::new(about, path, in_place_of(kind, "directory"), &then))
    });
    misplaced.collect()
}

fn misplaced_requests(project: &Project) -> Vec<MisplacedPart> {
    let misplaced = list_named(&requests_dir(project)).filter(|(.., kind)| !kind.is_dir());
    let part = |(name, path, kind)| {
        let then = ", or make it a directory with a file request.yaml";
        MisplacedPart::new(format!("request {name}"), path, in_place_of(kind, "directory"), then)
    };
    misplaced.map(part).collect()
}

fn fault_in_mailbox(mailbox: &Path) -> Option<(PathBuf, PlaceFault)> {
    let inspect = |name: &str, find: FaultFinder| inspect_place(mailbox.join(name), find);
    let mut directories = MAILBOX_DIRECTORIES.iter();
    let found = directories.find_map(|name| inspect(name, fault_of_directory));
    found.or_else(|| MAILBOX_FILES.iter().find_map(|name| inspect(name, fault_of_file)))
}

type FaultFinder = fn(&Metadata) -> Option<PlaceFault>;

fn inspect_place(path: PathBuf, find: FaultFinder) -> Option<(PathBuf, PlaceFault)> {
    let fault = find(&path.symlink_metadata().ok()?)?;
    Some((path, fault))
}

fn fault_of_directory(found: &Metadata) -> Option<PlaceFault> {
    match found.is_dir() {
        false => Some(in_place_of(found.file_type(), "directory")),
        true => closed_to_owner(found, OWNER),
    }
}

fn fault_of_file(found: &Metadata) -> Option<PlaceFault> {
    match found.is_file() {
        false => Some(in_place_of(found.file_type(), "file")),
        true => closed_to_owner(found, OWNER_OF_FILE),
    }
}

fn closed_to_owner(found: &Metadata, needed: u32) -> Option<PlaceFault> {
    let mode = found.permissions().mode() & 0o777;
    (mode & needed != needed).then_some(PlaceFault::Closed(mode))
}

fn in_place_of(kind: FileType, wanted: &'static str) -> PlaceFault {
    let kind = match kind {
        kind if kind.is_dir() => "directory",
        kind if kind.is_file() => "file",
        kind if kind.is_symlink() => "link",
        kind if kind.is_fifo() => "pipe",
        kind if kind.is_socket() => "socket",
        _ => "device",
    };
    PlaceFault::Occupied(kind, wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_no_cause_of_what_fails_beside_it() {
        let path = "/p/queue/mailbox/a";
        assert!(is_named(path, "cannot list /p/queue/mailbox/a/new: Not a directory"));
        assert!(is_named(path, "/p/queue/mailbox/a: Permission denied"));
        assert!(!is_named(path, "cannot list /p/queue/mailbox/ab/new: Not a directory"));
        assert!(!is_named(path, "cannot open /p/queue/mailbox/a-2"));
    }

    #[test]
    fn a_path_with_a_blank_is_one_word_of_the_command() {
        let (about, path) = ("logs".to_owned(), PathBuf::from("/my p/logs"));
        let closed = MisplacedPart::new(about, path, PlaceFault::Closed(0o500), "");
        assert_eq!(closed.part().help, "`chmod u+rwX '/my p/logs'`");
    }
}
