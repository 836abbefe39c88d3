mod answered;
mod next;
mod takeover;
mod upstream;

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use ensemble_app::config_edit::read_settings;
use ensemble_app::introduction::RULES;
use ensemble_app::new_queue::{CreatedQueue, MAILBOX_DIRECTORY, create_queue};
use ensemble_app::text::one_line;
use ensemble_core::event_log::EventLog;
use ensemble_project::{Project, QUEUE_DEFAULT, QUEUE_VARIABLE};
use serde_json::json;

use crate::context::{Context, Failure, Outcome};
use crate::output::STRONG;
use upstream::UpstreamProject;

/// The file in which agents of several makers look for instructions.
const AGENTS_FILE: &str = "AGENTS.md";
const SECTION: &str = "<!-- ensemble -->";

/// Create a queue, its state directory and a configuration to edit
///
/// Makes the mailboxes `conductor`, `dispatch` and `operator`, `.ensemble/` for logs and state, and an
/// `ensemble.yaml` to fill in. A `.gitignore` in `queue/` and in `.ensemble/` keeps both out of git. Existing
/// files are kept. It asks no questions, and suggests three commands to run next.
///
/// `--from ensemble-claude` takes over a project of that name: the panes of its `panes.env` become agents, its
/// `reviews/` and `conductor/` drop boxes. Its files stay as they are, and it lists what it did not take over.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble init
  ensemble init --from ensemble-claude .")]
pub(crate) struct Arguments {
    /// The project's directory, in which `queue/` is made [default: the current one]
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath, conflicts_with = "queue")]
    directory: Option<PathBuf>,
    /// Also tell agents without hooks how to take part, in a section of AGENTS.md
    #[arg(long)]
    agents_md: bool,
    /// Take over a project of another program in DIR
    #[arg(long, value_name = "PROGRAM")]
    from: Option<ProjectOrigin>,
}

/// A program whose projects can be taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ProjectOrigin {
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
            Some(ProjectOrigin::EnsembleClaude) => Some(UpstreamProject::read(project.root())?),
            None => None,
        };
        let is_first = !project.queue.join(MAILBOX_DIRECTORY).is_dir();
        if let Some(found) = upstream.as_mut().filter(|_| is_first) {
            // Our records have their own file. The last log of the other program gets one line, which names it.
            project.ensure_state()?;
            EventLog::start_session(&project.logs(), "ensemble")?;
            found.leave_answered(answered::enter(&project.queue, &project.state)?);
        }
        let text = upstream.as_ref().map(UpstreamProject::configuration);
        let CreatedQueue { spool, mut added, config, config_created } =
            create_queue(context, &project, text.as_deref())?;
        if self.agents_md {
            let is_added = add_section(&project.root().join(AGENTS_FILE))?;
            if !context.out.is_json() {
                context.out.line(match is_added {
                    true => format!("added the team's rules to {AGENTS_FILE}"),
                    false => format!("the team's rules are already in {AGENTS_FILE}"),
                })?;
            }
        }
        let lacking = upstream.as_ref().map(|found| match config_created {
            true => Vec::new(),
            false => found.lacking(&project.config),
        });
        if let Some(found) = &upstream {
            takeover::add_mailboxes(found, &spool, &mut added)?;
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
            return takeover::print_takeover(context, &project, found, lacking.as_deref());
        }
        let out = &context.out;
        let queue = out.paint(STRONG, one_line(&project.queue.to_string_lossy()));
        let what = if is_first { "created the queue" } else { "the queue already exists:" };
        out.line(format!("{what} {queue}"))?;
        out.line("")?;
        next::print_next_steps(context, &project)
    }
}

/// Adds a section on the team to the instructions of agents, unless it exists; returns whether it did.
fn add_section(path: &Path) -> Outcome<bool> {
    let fail = |error| Failure::refused(format!("cannot write {}: {error}", path.display()));
    let before = read_settings(path)?.unwrap_or_default();
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
