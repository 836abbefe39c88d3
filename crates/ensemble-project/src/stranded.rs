//! Files in the drop boxes and of requests that cannot be read as they are named, for `status` and `fsck`.
//!
//! | a file | what helps |
//! |---|---|
//! | whose route leads to a mailbox that does not exist | the mailbox, or another name |
//! | that no route matches | another name, or a route |
//! | below a directory of the box | that it is moved into the box |
//! | beside a request, whose name is near to `decision.yaml` | that name |
//! | that a process has had open for writing for WRITER_PATIENCE | that the process closes it |
//!
//! A file that was routed before is not stranded. Its name, its time and its writer decide; no file is read.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use ensemble_core::broker::Broker;
use ensemble_core::dropbox::{DropBox, Ledger, Routes};
use ensemble_core::durable::FileStat;
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::message::{Name, Timestamp, is_temporary_file};
use ensemble_core::requests::REQUESTS;
use ensemble_core::spool::DONE_DAYS_DEFAULT;
use ensemble_core::{Error, Result};
use ensemble_reports::contract::{bare_name, meant_name};

use crate::attention::StrandedFile;
use crate::project::Project;
use ensemble_core::dropbox::file_writers::{FileWriter, WRITER_PATIENCE, files_being_written};

pub const STRANDED_MAX: usize = 20;
const DECISION: &str = "decision.yaml";
/// How long the ledger remembers a file that is gone.
const REMEMBERED: Duration = Duration::from_secs(DONE_DAYS_DEFAULT * 24 * 60 * 60);

pub fn find_stranded(project: &Project, queue: &dyn Broker) -> Result<Vec<StrandedFile>> {
    let mailboxes = queue.mailboxes()?;
    let (table, routes) = (project.drop_boxes()?, project.routes()?);
    let (mut found, mut read_by) = (Vec::new(), BTreeMap::new());
    for spec in table.iter() {
        if spec.directory().is_some_and(|directory| !project.queue.join(directory).is_dir()) {
            continue;
        }
        let drop_box = DropBox::open(&project.queue, spec)?;
        let (mut writers, mut files) = (None, drop_box.dir().names()?);
        files.retain(|file| drop_box.takes(file));
        files.sort_unstable();
        for file in files {
            let path = drop_box.path_of(&file);
            let Some(stat) = drop_box.dir().stat(&file)? else { continue };
            if stat.is_directory {
                found.extend(in_directory(project, &routes, &drop_box, &file));
                continue;
            }
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
                    let mut to = destination.to.iter().map(|to| {
                        read_by.entry(to.clone()).or_insert_with(|| project.mailbox_of(to)).clone()
                    });
                    let missing = to.find(|to| !mailboxes.contains(to));
                    let is_old = age(&stat) >= WRITER_PATIENCE;
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
                    match queue.settings(&missing) {
                        Err(error @ Error::NoMailbox { .. }) => {
                            let help = missing_help(&missing, &mailboxes);
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
    found.extend(misnamed_decisions(&project.queue));
    found.truncate(STRANDED_MAX);
    Ok(found)
}

/// The files that were meant as decisions of requests without one.
fn misnamed_decisions(queue: &Path) -> impl Iterator<Item = StrandedFile> {
    let homes = fs::read_dir(queue.join(REQUESTS)).into_iter().flatten().flatten();
    homes.filter_map(|home| {
        let is_meant = |file: &String| {
            bare_name(file).eq_ignore_ascii_case("decision") && !is_temporary_file(file)
        };
        // Most requests have a decision, and are not listed.
        let home_path = Some(home.path()).filter(|path| !path.join(DECISION).exists())?;
        let names = fs::read_dir(home_path).ok()?.flatten();
        let file = names.filter_map(|file| file.file_name().into_string().ok()).find(is_meant)?;
        let place = format!("{REQUESTS}/{}", home.file_name().to_str()?);
        let why = format!("a decision is named {DECISION}");
        let help = format!("rename it to {place}/{DECISION}");
        Some(StrandedFile { path: format!("{place}/{file}"), why, help })
    })
}

/// The remedy for a file whose mailbox is missing. No second one is made whose name differs only in case.
fn missing_help(missing: &Name, mailboxes: &[Name]) -> String {
    let is_twin = |it: &&Name| it.as_str().eq_ignore_ascii_case(missing.as_str());
    match mailboxes.iter().find(is_twin) {
        Some(twin) => format!("name the file for {twin}"),
        None => format!("`ensemble mailbox add {missing}`, or rename the file"),
    }
}

/// The remedy for a file that leads to no mailbox: another name, the one that was probably meant if that is known.
pub fn rename_help(box_name: &str, file: &str) -> String {
    let (stem, end) = file.rsplit_once('.').unwrap_or((file, ""));
    let stem = if end.chars().all(char::is_alphabetic) { stem } else { file };
    match (box_name, meant_name(file)) {
        ("reports", Some(meant)) => format!("rename it to reports/{meant}"),
        ("ack", _) => format!("rename it to ack/{stem}.ack"),
        ("tasks", _) if stem.ends_with("-task") && end != "yaml" => {
            format!("rename it to tasks/{stem}.yaml")
        }
        ("tasks", _) => "rename it for a mailbox, as in worker-1-task.yaml".to_owned(),
        _ => {
            "name it as docs/protocol/contracts.md says, or add a route to ensemble.yaml".to_owned()
        }
    }
}

fn age(stat: &FileStat) -> Duration {
    let modified = Timestamp::from_unix_millis((stat.modified_ns / 1_000_000) as i64);
    SystemClock.wall().since(modified)
}

/// A directory in the place of a file, or with a file that would be delivered if it were not below it.
fn in_directory(
    project: &Project,
    routes: &Routes,
    drop_box: &DropBox,
    directory: &str,
) -> Option<StrandedFile> {
    let is_ack = |path: &str| path.starts_with("ack/") && path.ends_with(".ack");
    let is_awaited = |path: &str| matches!(routes.destination(path), Ok(Some(_))) || is_ack(path);
    let place = drop_box.path_of(directory);
    if is_awaited(&place) {
        let (why, help) = ("it is a directory", "put a file in its place");
        return Some(StrandedFile { path: place, why: why.to_owned(), help: help.to_owned() });
    }
    let below = drop_box.dir().open_child(directory).ok()?;
    let is_waiting = |file: &String| {
        let path = drop_box.path_of(file);
        // The ledger forgets: an older file may have been delivered before it was moved here.
        let is_new = || matches!(below.stat(file), Ok(Some(it)) if !it.is_directory && age(&it) < REMEMBERED);
        drop_box.takes(file)
            && is_awaited(&path)
            && is_new()
            && !matches!(Ledger::last_routed(&project.state, &path), Ok(Some(Some(_))))
    };
    let file = below.names().ok()?.into_iter().filter(is_waiting).min()?;
    let why = "files in directories of a drop box are not delivered".to_owned();
    let help = format!("move it to {}", drop_box.path_of(&file));
    Some(StrandedFile { path: format!("{place}/{file}"), why, help })
}

fn held_open(path: String, writer: &FileWriter) -> StrandedFile {
    let FileWriter { pid, program } = writer;
    let why = format!("{program} (process {pid}) has it open, and may still write to it");
    let help = format!("close it there, or end process {pid}; then it is delivered");
    StrandedFile { path, why, help }
}
