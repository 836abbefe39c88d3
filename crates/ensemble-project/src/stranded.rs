//! Files in the drop boxes that cannot be routed as they are named, for `status` and `fsck`.
//!
//! | a file | what helps |
//! |---|---|
//! | whose route leads to a mailbox that does not exist | the mailbox, or another name |
//! | that no route matches | another name, or a route |
//!
//! A file that was routed before its mailbox was removed is not stranded. The names alone decide; no file is read.

use ensemble_core::Result;
use ensemble_core::broker::Broker;
use ensemble_core::dropbox::{DropBox, Ledger};

use crate::attention::StrandedFile;
use crate::project::Project;

/// Most files that are named.
pub const STRANDED_MAX: usize = 20;

/// The stranded files of a project, at most [`STRANDED_MAX`].
///
/// # Errors
/// The configuration, a drop box or the mailboxes cannot be read.
pub fn find_stranded(project: &Project, queue: &dyn Broker) -> Result<Vec<StrandedFile>> {
    let mailboxes = queue.mailboxes()?;
    let (table, routes) = (project.drop_boxes()?, project.routes()?);
    let mut found = Vec::new();
    for spec in table.iter() {
        if spec.directory().is_some_and(|directory| !project.queue.join(directory).is_dir()) {
            continue;
        }
        let drop_box = DropBox::open(&project.queue, spec)?;
        let mut files = drop_box.dir().names()?;
        files.retain(|file| drop_box.takes(file));
        files.sort_unstable();
        for file in files {
            let path = drop_box.path_of(&file);
            let (why, help) = match routes.destination(&path) {
                // Acks are not routed but understood by their names.
                Ok(None) if &**spec.name() == "ack" && file.ends_with(".ack") => continue,
                Ok(None) => (
                    "no route matches its name".to_owned(),
                    "name it as docs/protocol/contracts.md says, or add a route to ensemble.yaml"
                        .to_owned(),
                ),
                Ok(Some(destination)) => {
                    let missing = destination.to.iter().find(|to| !mailboxes.contains(to));
                    let Some(missing) = missing else { continue };
                    if Ledger::last_routed(&project.state, &path)?.flatten().is_some() {
                        continue;
                    }
                    // Its error has the names that are like it.
                    let why = match queue.settings(missing) {
                        Err(error) => error.to_string(),
                        Ok(_) => continue,
                    };
                    (why, format!("`ensemble mailbox add {missing}`, or rename the file"))
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
