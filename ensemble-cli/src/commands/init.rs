//! `ensemble init`: a queue to begin with.

mod answered;
mod next;
mod takeover;
mod upstream;

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ensemble_core::Error;
use ensemble_core::dropbox::DropBox;
use ensemble_core::durable::{self, Durability, FileLock};
use ensemble_core::message::{Name, OPERATOR};
use ensemble_core::spool::{Settings, Spool};
use ensemble_watch::project::{CONFIG_FILE, Project, QUEUE_DEFAULT, QUEUE_VARIABLE};
use serde_json::json;

use crate::context::Context;
use crate::exit::{Failure, Outcome, say};
use crate::hooks::introduction::RULES;
use crate::output::STRONG;
use upstream::Upstream;

/// The mailboxes of every queue: who watches over it all, who hands the work out, and the person.
const MAILBOXES: [&str; 3] = ["conductor", "dispatch", OPERATOR];
const CONFIG: &str = include_str!("ensemble.yaml");
/// Only its owner may write it, even with a umask of 000, because it holds commands.
const CONFIG_MODE: u32 = 0o644;
/// The last directory that tells a queue from any other directory of that name.
const MAILBOX_DIRECTORY: &str = "mailbox";
/// Held while the queue of a project is made.
const LOCK_FILE: &str = "init.lock";
const LOCK_PATIENCE: Duration = Duration::from_secs(10);
/// The file in which agents of several makers look for instructions.
const AGENTS_FILE: &str = "AGENTS.md";
/// The first line of our section in it.
const SECTION: &str = "<!-- ensemble -->";
/// The largest document that is changed, in bytes.
const DOCUMENT_BYTES_MAX: usize = 1024 * 1024;

/// Create a queue, its state directory and a configuration to edit
///
/// Makes the mailboxes `conductor`, `dispatch` and `operator`, `.ensemble/` for logs and state, and a
/// commented `ensemble.yaml`. A `.gitignore` in `queue/` and in `.ensemble/` keeps both out of git. What
/// exists already is left as it is. Asks nothing, and says the next three commands for what it finds here.
///
/// `--from ensemble-claude` takes over a project of that name: the panes of its `panes.env` become agents, its
/// `reviews/` and `conductor/` drop boxes. Its files stay as they are, and it says what it has not taken.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble init
  ensemble init --from ensemble-claude .")]
pub(crate) struct Arguments {
    /// The project's directory, in which `queue/` is made [default: the current one]
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    #[arg(conflicts_with = "queue")]
    directory: Option<PathBuf>,
    /// Also tell agents without hooks how to take part, in a section of AGENTS.md
    #[arg(long)]
    agents_md: bool,
    /// Take over a project of another program, which lies in DIR
    #[arg(long, value_name = "PROGRAM")]
    from: Option<Origin>,
}

/// A program whose projects can be taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Origin {
    /// `ensemble-claude` of PyPI, github.com/ChikaKakazu/ensemble
    EnsembleClaude,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let project = match (self.directory, context.queue_flag()) {
            (Some(directory), _) => Project::discover(Some(&directory.join(QUEUE_DEFAULT)))?,
            (None, None) if std::env::var_os(QUEUE_VARIABLE).is_none_or(|it| it.is_empty()) => {
                // Here, also within another project.
                Project::discover(Some(Path::new(QUEUE_DEFAULT)))?
            }
            (None, flag) => Project::discover(flag)?,
        };
        let mut upstream = match self.from {
            Some(Origin::EnsembleClaude) => Some(Upstream::read(project.root())?),
            None => None,
        };
        let is_first = !project.queue.join(MAILBOX_DIRECTORY).is_dir();
        if let Some(found) = upstream.as_mut().filter(|_| is_first) {
            takeover::begin_log(&project)?;
            found.leave_answered(answered::enter(&project.queue, &project.state)?);
        }
        let text = upstream.as_ref().map(Upstream::configuration);
        let Created { spool, added, config, config_created } =
            create(context, &project, text.as_deref())?;
        if self.agents_md {
            let is_added = add_section(&project.root().join(AGENTS_FILE))?;
            if !context.out.is_json() {
                context.out.line(match is_added {
                    true => format!("added the team's rules to {AGENTS_FILE}"),
                    false => format!("the team's rules stand in {AGENTS_FILE} already"),
                })?;
            }
        }
        let lacking = upstream.as_ref().map(|found| match config_created {
            true => Vec::new(),
            false => found.lacking(&project.config),
        });
        if let Some(found) = &upstream {
            takeover::add_mailboxes(found, &spool)?;
        }
        if context.out.is_json() {
            let mut object = json!({
                "queue": project.queue, "state": project.state, "config": config,
                "mailboxes": spool.mailboxes()?, "mailboxes_added": added,
                "config_created": config_created,
            });
            if let Some(found) = &upstream {
                object["from"] = takeover::object(found, &lacking.unwrap_or_default());
            }
            return context.out.object(&object);
        }
        if let Some(found) = &upstream {
            return takeover::tell(context, &project, found, lacking.as_deref());
        }
        tell(context, &project, !added.is_empty())
    }
}

/// A queue and its surroundings, made as far as they were missing.
struct Created {
    spool: Spool,
    /// The mailboxes that were missing.
    added: Vec<Name>,
    /// The configuration.
    config: PathBuf,
    config_created: bool,
}

/// Makes what is missing. `config` is the configuration to write, if it is not the usual one.
fn create(context: &Context, project: &Project, config: Option<&str>) -> Outcome<Created> {
    project.ensure_state()?;
    let spool = Spool::create(&project.queue, context.spool_options(project))?;
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
    // With the configuration that is there now.
    let project = Project::discover(Some(&project.queue))?;
    for spec in project.drop_boxes()?.iter() {
        DropBox::open(&project.queue, spec)?;
    }
    Ok(Created { spool, added, config, config_created })
}

/// The queue of the project, which is made if there is none. Agents that start at the same time wait for the one that
/// makes it.
pub(crate) fn queue_or_new(context: &Context) -> Outcome<Spool> {
    let project = context.project()?;
    if project.queue.join(MAILBOX_DIRECTORY).is_dir() {
        return context.spool();
    }
    project.ensure_state()?;
    let _lock = FileLock::acquire(&project.state.join(LOCK_FILE), LOCK_PATIENCE)?;
    if project.queue.is_dir() {
        return context.spool();
    }
    let spool = create(context, project, None)?.spool;
    say(&format!("created the queue {}", project.queue.display()));
    Ok(spool)
}

fn tell(context: &Context, project: &Project, is_new: bool) -> Outcome {
    let out = &context.out;
    let queue = out.paint(STRONG, crate::text::one_line(&project.queue.to_string_lossy()));
    let what = if is_new { "created the queue" } else { "the queue is there already:" };
    out.line(format!("{what} {queue}"))?;
    out.line("")?;
    next::tell(context)
}

/// Writes the schema that the configuration names, as this program has it, for editors.
fn write_schema(project: &Project) -> Outcome {
    let path = project.state.join(super::schema::SCHEMA_FILE);
    let text = super::schema::config_schema()?;
    Ok(durable::write_document(&path, text.as_bytes(), Durability::Process)?)
}

/// Adds a section on the team to the instructions of agents, unless it is there; says whether it did.
fn add_section(path: &Path) -> Outcome<bool> {
    let fail = |error| Failure::refused(format!("cannot write {}: {error}", path.display()));
    let content = durable::read_chosen_file(path, DOCUMENT_BYTES_MAX)?.unwrap_or_default();
    let before = String::from_utf8(content)
        .map_err(|error| fail(std::io::Error::new(ErrorKind::InvalidData, error)))?;
    if before.contains(SECTION) {
        return Ok(false);
    }
    let gap = match before.as_str() {
        "" => "",
        text if text.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    let section = format!(
        "{gap}{SECTION}\n## The team\n\nAgents of this project work as a team. At the start of a session run \
         `ensemble agent prime`: it prints who you are, what you hold and what waits.\n\n{RULES}\n"
    );
    let mut file = OpenOptions::new().append(true).create(true).open(path).map_err(fail)?;
    file.write_all(section.as_bytes()).map_err(fail)?;
    Ok(true)
}

/// Writes the configuration unless there is one; says whether it did. The commented one, in which no value
/// stands, gives way to another one.
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
