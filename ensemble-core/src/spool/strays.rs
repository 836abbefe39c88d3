//! Stray files: names that are not UTF-8, and files that do not belong among requests, gates or
//! mailboxes.

use std::ffi::OsStr;
use std::time::Duration;

use super::Spool;
use super::fsck::{QueueFinding, RepairAction};
use super::mailbox::STATES;
use crate::Result;
use crate::aside::{AsideFile, put_aside};
use crate::durable::Dir;
use crate::env::{Clock as _, SystemClock};
use crate::message::{Name, is_temporary_file};

/// The directories of the queue, beside those of the mailboxes.
const PLACES: [&str; 7] =
    ["reports", "tasks", "ack", "requests", "gates", "attachments", "mailbox"];

/// How long another program may take to write the question into the directory that it has made.
const QUESTION_PATIENCE: Duration = Duration::from_secs(60);

impl Spool {
    /// Finds stray files; with `repair`, they go to `rejected/`. Directories stay where they are.
    pub(super) fn check_strays(&self, repair: bool) -> Result<Vec<QueueFinding>> {
        let queue = self.queue_dir()?;
        let strange = |dir: &Dir, path: &str| -> Result<Vec<QueueFinding>> {
            let names = dir.strange_names()?.into_iter();
            let problem = "its name is not UTF-8";
            Ok(names.map(|name| stray(&queue, (path, dir), &name, problem, repair)).collect())
        };
        let mut findings = strange(&queue, "")?;
        for child in PLACES {
            let (Ok(dir), path) = (queue.open_child(child), format!("{child}/")) else { continue };
            findings.extend(strange(&dir, &path)?);
            if child == "requests" {
                findings.extend(self.check_requests(&dir, repair)?);
            }
            if ["requests", "gates", "mailbox"].contains(&child) {
                findings.extend(self.check_files(&queue, (&path, &dir), repair)?);
            }
        }
        // One mailbox at a time: there may be more of them than files that may be open.
        for mailbox in self.mailboxes()? {
            // One that cannot be opened is another finding.
            let Ok(home) = self.mailboxes_dir()?.open_child(mailbox.as_str()) else { continue };
            for state in STATES {
                let Ok(dir) = home.open_child(state) else { continue };
                findings.extend(strange(&dir, &format!("mailbox/{mailbox}/{state}/"))?);
            }
        }
        Ok(findings)
    }

    /// Directories without a question, as a crash of another program leaves them. They keep their ids from being used.
    fn check_requests(&self, requests: &Dir, repair: bool) -> Result<Vec<QueueFinding>> {
        let mut findings = Vec::new();
        for name in requests.names()?.into_iter().filter(|name| Name::new(name.clone()).is_ok()) {
            let Some(stat) = requests.stat(&name)?.filter(|stat| stat.is_directory) else {
                continue;
            };
            let made_ms = stat.modified_at().unix_millis();
            // The clock may have been set back since.
            let age_ms = SystemClock.wall().unix_millis().abs_diff(made_ms);
            // One that cannot be opened is another finding.
            let Ok(home) = requests.open_child(&name) else { continue };
            if home.stat("request.yaml")?.is_some()
                || u128::from(age_ms) < QUESTION_PATIENCE.as_millis()
            {
                continue;
            }
            let is_empty = home.names()?.is_empty();
            findings.push(QueueFinding {
                path: format!("requests/{name}"),
                problem: "has no request.yaml, so it is not a request".to_owned(),
                repair: if is_empty { RepairAction::Remove } else { RepairAction::None },
                repaired: repair && is_empty && requests.remove_empty(&name)?,
            });
        }
        Ok(findings)
    }

    /// Requests are directories with names as ids have; mailboxes are directories, gates are files.
    fn check_files(
        &self,
        queue: &Dir,
        place: (&str, &Dir),
        repair: bool,
    ) -> Result<Vec<QueueFinding>> {
        let (of_directories, problem) = match place.0 {
            "requests/" => (true, "is not a request: those are directories named by their ids"),
            "mailbox/" => (true, "is not a mailbox: those are directories, and no links"),
            _ => (false, "is not a gate: those are files"),
        };
        let mut findings = Vec::new();
        for name in place.1.names()?.into_iter().filter(|name| !is_temporary_file(name)) {
            let Some(stat) = place.1.stat(&name)? else { continue };
            let is_right = if of_directories { stat.is_directory } else { stat.is_file };
            let is_named = place.0 != "requests/" || Name::new(name.clone()).is_ok();
            if !is_right || !is_named {
                findings.push(stray(queue, place, OsStr::new(&name), problem, repair));
            }
        }
        Ok(findings)
    }
}

fn stray(
    queue: &Dir,
    (path, dir): (&str, &Dir),
    name: &OsStr,
    problem: &str,
    repair: bool,
) -> QueueFinding {
    let is_directory = dir.path().join(name).symlink_metadata().is_ok_and(|it| it.is_dir());
    let path = format!("{path}{}", name.to_string_lossy().escape_debug());
    let move_it = || put_aside(queue, dir, name, &AsideFile::at(path.clone()), problem);
    QueueFinding {
        problem: problem.to_owned(),
        repair: if is_directory { RepairAction::None } else { RepairAction::SetAside },
        repaired: repair && !is_directory && move_it().is_ok(),
        path,
    }
}
