//! Making a queue and its surroundings.

use std::fs::{DirEntry, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ensemble_core::Error;
use ensemble_core::dropbox::{DropBox, STATE_DIRECTORY};
use ensemble_core::durable::{self, Durability, FileLock};
use ensemble_core::message::{Name, OPERATOR, shell_word};
use ensemble_core::spool::{Settings, Spool};
use ensemble_project::registry::note_project;
use ensemble_project::{CONFIG_FILE, Project, QUEUE_VARIABLE};

use crate::App;
use crate::config_schema::{SCHEMA_FILE, config_schema};
use crate::diagnostics::say;
use crate::failure::{Failure, Outcome};

/// The mailboxes of every queue: who watches over it all, who hands the work out, and the person.
const MAILBOXES: [&str; 3] = ["conductor", "dispatch", OPERATOR];
const CONFIG: &str = include_str!("ensemble.yaml");
/// Only its owner may write it, even with a umask of 000, because it holds commands.
const CONFIG_MODE: u32 = 0o644;
/// The directory that distinguishes a queue from any other directory of its name. Created last.
pub const MAILBOX_DIRECTORY: &str = "mailbox";
const DOCUMENT_BYTES_MAX: usize = 1024 * 1024;
/// A directory with these is a queue under any name.
const QUEUE_PARTS: [&str; 4] = [MAILBOX_DIRECTORY, "tmp", "reports", "tasks"];
const LOCK_FILE: &str = "init.lock";
const LOCK_PATIENCE: Duration = Duration::from_secs(10);
/// A queue and its surroundings, of which the missing parts were created.
pub struct CreatedQueue {
    pub spool: Spool,
    pub added: Vec<Name>,
    pub config: PathBuf,
    pub config_created: bool,
}

/// Makes what is missing. `config` is the configuration to write, if it is not the usual one.
pub fn create_queue(app: &App, project: &Project, config: Option<&str>) -> Outcome<CreatedQueue> {
    refuse_inner(&project.queue)?;
    // The queue of another program is taken over with its files.
    if config.is_none() {
        refuse_other_files(&project.queue)?;
    }
    project.create_state()?;
    let spool = Spool::create(&project.queue, app.spool_options(project))?;
    let mut added = Vec::new();
    for name in MAILBOXES {
        let name = Name::new(name).map_err(Error::from)?;
        match spool.add_mailbox(&name, &Settings::default()) {
            Ok(()) => added.push(name),
            Err(Error::MailboxExists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    project.keep_out_of_git()?;
    let text = config.unwrap_or(CONFIG);
    let config = project.state.with_file_name(CONFIG_FILE);
    let config_created = write_config(&config, text)?;
    write_schema(project)?;
    // Read the configuration that was just written.
    let project = Project::discover(Some(&project.queue))?;
    list_project(&project);
    for spec in project.drop_boxes()?.iter() {
        DropBox::open(&project.queue, spec)?;
    }
    Ok(CreatedQueue { spool, added, config, config_created })
}

/// Notes the project in the user's list of projects, or says why it cannot.
pub fn list_project(project: &Project) {
    if let Err(error) = note_project(project) {
        say(&format!(
            "warning: NAME@PROJECT does not reach this project from others, because your list of \
             projects cannot be written: {error}"
        ));
    }
}

/// The queue of the project, which is made if there is none. Agents that start at the same time wait for the one that
/// makes it.
pub fn ensure_queue(app: &App) -> Outcome<Spool> {
    let project = app.project()?;
    if project.queue.join(MAILBOX_DIRECTORY).is_dir() {
        return app.spool();
    }
    refuse_inner(&project.queue)?;
    project.create_state()?;
    let _lock = FileLock::acquire(&project.state.join(LOCK_FILE), LOCK_PATIENCE)?;
    if project.queue.is_dir() {
        return app.spool();
    }
    let spool = create_queue(app, project, None)?.spool;
    say(&format!("created the queue {}", project.queue.display()));
    Ok(spool)
}

/// Refuses a queue below a directory in which only its owner writes: another queue, the state of a project, or git's.
fn refuse_inner(queue: &Path) -> Outcome {
    let owner = |place: &Path| match place.file_name()?.to_str()? {
        ".git" => Some("git's own directory"),
        STATE_DIRECTORY => Some("the state directory of a project"),
        _ if QUEUE_PARTS.iter().all(|part| place.join(part).is_dir()) => Some("a queue"),
        _ => None,
    };
    let mut places = queue.ancestors().skip(1);
    let Some((place, what)) = places.find_map(|place| Some((place, owner(place)?))) else {
        return Ok(());
    };
    let text = format!("no project can be made in {}, which is {what}", place.display());
    let project = shell_word(&place.parent().unwrap_or(place).to_string_lossy());
    Err(Failure::refused(text).with_hint(format!("`cd {project}`, and run it there")))
}

/// Refuses a directory with files of the project, such as a package that is called `queue`: git would ignore its next
/// ones.
fn refuse_other_files(queue: &Path) -> Outcome {
    if queue.join(MAILBOX_DIRECTORY).is_dir() {
        return Ok(());
    }
    let is_other = |entry: &DirEntry| {
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        !is_hidden && entry.file_type().is_ok_and(|kind| kind.is_file())
    };
    let mut entries = std::fs::read_dir(queue).into_iter().flatten().flatten();
    let Some(other) = entries.find(is_other) else { return Ok(()) };
    let text = format!("no queue can be made in {}, which has other files", queue.display());
    let place = shell_word(&queue.with_file_name("mail").to_string_lossy());
    Err(Failure::refused(format!("{text}: {}", other.file_name().to_string_lossy()))
        .with_hint(format!("`export {QUEUE_VARIABLE}={place}` chooses another directory")))
}

/// Writes the schema that the configuration names, as this program has it, for editors.
fn write_schema(project: &Project) -> Outcome {
    let path = project.state.join(SCHEMA_FILE);
    let text = config_schema()?;
    Ok(durable::write_document(&path, text.as_bytes(), Durability::Process)?)
}

/// Writes the configuration unless there is one. Returns whether it did. The default file, in which everything is
/// commented out, may be replaced.
fn write_config(path: &Path, text: &str) -> Outcome<bool> {
    let is_commented = || {
        let content = durable::read_chosen_file(path, DOCUMENT_BYTES_MAX).ok().flatten();
        content.is_some_and(|content| content == CONFIG.as_bytes())
    };
    if text != CONFIG && is_commented() {
        durable::write_document(path, text.as_bytes(), Durability::Process)?;
        return Ok(true);
    }
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(CONFIG_MODE)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(Failure::refused(format!("cannot write {}: {error}", path.display()))),
    }
}
