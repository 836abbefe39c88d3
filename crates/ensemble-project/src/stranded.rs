//! Files in the drop boxes that cannot be routed as they are named, for `status` and `fsck`.
//!
//! | a file | what helps |
//! |---|---|
//! | whose route leads to a mailbox that does not exist | the mailbox, or another name |
//! | that no route matches | another name, or a route |
//! | that a process has had open for writing for WRITER_PATIENCE | that the process closes it |
//!
//! A file that was routed before is not stranded. Its name, its time and its writer decide; no file is read.

use ensemble_core::broker::Broker;
use ensemble_core::dropbox::{DropBox, Ledger};
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::message::Timestamp;
use ensemble_core::{Error, Result};
use ensemble_reports::contract::meant_name;

use crate::attention::StrandedFile;
use crate::project::Project;
use ensemble_core::dropbox::file_writers::{FileWriter, WRITER_PATIENCE, files_being_written};

pub const STRANDED_MAX: usize = 20;

/// The stranded files of a project, at most [`STRANDED_MAX`].
pub fn find_stranded(project: &Project, queue: &dyn Broker) -> Result<Vec<StrandedFile>> {
    let mailboxes = queue.mailboxes()?;
    let (table, routes) = (project.drop_boxes()?, project.routes()?);
    let mut found = Vec::new();
    for spec in table.iter() {
        if spec.directory().is_some_and(|directory| !project.queue.join(directory).is_dir()) {
            continue;
        }
        let drop_box = DropBox::open(&project.queue, spec)?;
        let mut writers = None;
        let mut files = drop_box.dir().names()?;
        files.retain(|file| drop_box.takes(file));
        files.sort_unstable();
        for file in files {
            let path = drop_box.path_of(&file);
            let (why, help) = match routes.destination(&path) {
                // Acks are not routed but understood by their names.
                Ok(None) if &**spec.name() == "ack" && file.ends_with(".ack") => continue,
                // It was routed by its meaning.
                Ok(None) if Ledger::last_routed(&project.state, &path)?.flatten().is_some() => {
                    continue;
                }
                Ok(None) => {
                    ("no route matches its name".to_owned(), rename_help(spec.name(), &file))
                }
                Ok(Some(destination)) => {
                    let missing = destination.to.iter().find(|to| !mailboxes.contains(to));
                    let is_old = is_overdue(&drop_box, &file);
                    if (missing.is_none() && !is_old)
                        || Ledger::last_routed(&project.state, &path)?.flatten().is_some()
                    {
                        continue;
                    }
                    let Some(missing) = missing else {
                        let directory = drop_box.dir().path();
                        let writers = writers.get_or_insert_with(|| files_being_written(directory));
                        let writer = writers.as_ref().and_then(|writers| writers.get(&file));
                        found.extend(writer.map(|writer| held_open(path, writer)));
                        continue;
                    };
                    // Its error has the names that are like it.
                    match queue.settings(missing) {
                        Err(error @ Error::NoMailbox { .. }) => {
                            let help =
                                format!("`ensemble mailbox add {missing}`, or rename the file");
                            (error.to_string(), help)
                        }
                        Err(error) => (error.to_string(), format!("mend the mailbox {missing}")),
                        Ok(_) => continue,
                    }
                }
                Err(error) => (error.to_string(), "give the file another name".to_owned()),
            };
            found.push(StrandedFile { path, why, help });
            if found.len() == STRANDED_MAX {
                return Ok(found);
            }
        }
    }
    Ok(found)
}

/// The remedy for a file that leads to no mailbox: another name, the one that was probably meant if that is known.
pub fn rename_help(box_name: &str, file: &str) -> String {
    match meant_name(file).filter(|_| box_name == "reports") {
        Some(meant) => format!("rename it to reports/{meant}"),
        None if box_name == "tasks" => {
            "rename it for a mailbox, as in worker-1-task.yaml".to_owned()
        }
        None => {
            "name it as docs/protocol/contracts.md says, or add a route to ensemble.yaml".to_owned()
        }
    }
}

/// Whether a file has been unchanged for longer than its writer may have it open.
fn is_overdue(drop_box: &DropBox, file: &str) -> bool {
    let Ok(Some(stat)) = drop_box.dir().stat(file) else { return false };
    let modified = Timestamp::from_unix_millis((stat.modified_ns / 1_000_000) as i64);
    SystemClock.wall().since(modified) >= WRITER_PATIENCE
}

fn held_open(path: String, writer: &FileWriter) -> StrandedFile {
    let FileWriter { pid, program } = writer;
    let why = format!("{program} (process {pid}) has it open, and may still write to it");
    let help = format!("close it there, or end process {pid}; then it is delivered");
    StrandedFile { path, why, help }
}
