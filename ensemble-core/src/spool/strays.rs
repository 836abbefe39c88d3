//! Files that have no business where they lie: names that are not UTF-8, and files among requests and gates.

use std::ffi::OsStr;

use super::Spool;
use super::fsck::{Finding, Repair};
use super::mailbox::STATES;
use crate::Result;
use crate::durable::{self, Dir};
use crate::message::Name;

/// The directories of the queue, beside those of the mailboxes.
const PLACES: [&str; 7] =
    ["reports", "tasks", "ack", "requests", "gates", "attachments", "mailbox"];

impl Spool {
    /// Finds stray files; with `repair`, they go to `rejected/`. Directories stay where they are.
    pub(super) fn check_strays(&self, repair: bool) -> Result<Vec<Finding>> {
        let queue = self.queue_dir()?;
        let mut findings = strange_names((&queue, ""), &queue, repair)?;
        for child in PLACES {
            let Ok(dir) = queue.open_child(child) else { continue };
            let path = format!("{child}/");
            findings.extend(strange_names((&dir, &path), &queue, repair)?);
            if child == "requests" || child == "gates" {
                findings.extend(self.check_files(&queue, (&path, &dir), repair)?);
            }
        }
        // One mailbox at a time: there may be more of them than files that may be open.
        for mailbox in self.mailboxes()? {
            let home = self.mailboxes_dir()?.open_child(mailbox.as_str())?;
            for state in STATES {
                let Ok(dir) = home.open_child(state) else { continue };
                let path = format!("mailbox/{mailbox}/{state}/");
                findings.extend(strange_names((&dir, &path), &queue, repair)?);
            }
        }
        Ok(findings)
    }

    /// Requests are directories with names as ids have; gates are files.
    fn check_files(&self, queue: &Dir, place: (&str, &Dir), repair: bool) -> Result<Vec<Finding>> {
        let (of_directories, problem) = match place.0 {
            "requests/" => (true, "is no request: those are directories named by their ids"),
            _ => (false, "is no gate: those are files"),
        };
        let mut findings = Vec::new();
        for name in place.1.names()?.into_iter().filter(|name| !name.starts_with('.')) {
            let Some(stat) = place.1.stat(&name)? else { continue };
            let is_right = if of_directories { stat.is_directory } else { stat.is_file };
            if !is_right || (of_directories && Name::new(name.clone()).is_err()) {
                let shown = name.escape_debug().to_string();
                findings.push(stray(queue, place, (OsStr::new(&name), shown), problem, repair));
            }
        }
        Ok(findings)
    }
}

/// The files of a directory whose names are not UTF-8.
fn strange_names((dir, path): (&Dir, &str), queue: &Dir, repair: bool) -> Result<Vec<Finding>> {
    let names = dir.strange_names()?.into_iter();
    Ok(names
        .map(|name| {
            let shown = name.to_string_lossy().escape_debug().to_string();
            stray(queue, (path, dir), (&name, shown), "its name is not UTF-8", repair)
        })
        .collect())
}

fn stray(
    queue: &Dir,
    (path, dir): (&str, &Dir),
    (name, shown): (&OsStr, String),
    problem: &str,
    repair: bool,
) -> Finding {
    let is_directory = dir.path().join(name).symlink_metadata().is_ok_and(|it| it.is_dir());
    let move_it = || {
        let rejected = queue.ensure_child("rejected", durable::Modes::default())?;
        dir.move_named(name, &rejected, &durable::temporary_name("stray"))
    };
    Finding {
        path: format!("{path}{shown}"),
        problem: problem.to_owned(),
        repair: if is_directory { Repair::None } else { Repair::SetAside },
        repaired: repair && !is_directory && move_it().is_ok(),
    }
}
