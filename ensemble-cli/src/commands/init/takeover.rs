use ensemble_app::text::one_line;
use ensemble_core::Error;
use ensemble_core::message::Name;
use ensemble_core::spool::{Settings, Spool};
use ensemble_project::Project;
use serde_json::{Value, json};

use super::next::print_steps;
use super::upstream::{NAME, UpstreamProject, UpstreamRemark};
use crate::context::{Context, Outcome};
use crate::output::{FAINT, STRONG, WARNING};

const THING_CHARS: usize = 32;

pub(super) fn add_mailboxes(
    found: &UpstreamProject,
    spool: &Spool,
    added: &mut Vec<Name>,
) -> Outcome {
    for agent in &found.agents {
        match spool.add_mailbox(&agent.name, &Settings::default()) {
            Ok(()) => added.push(agent.name.clone()),
            Err(Error::MailboxExists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

pub(super) fn object(found: &UpstreamProject, lacking: &[String]) -> Value {
    json!({
        "project": NAME, "agents": found.agents, "boxes": found.boxes, "left": found.left,
        "lacking": lacking, "watcher_pid": found.watcher,
    })
}

pub(super) fn print_takeover(
    context: &Context,
    project: &Project,
    found: &UpstreamProject,
    lacking: Option<&[String]>,
) -> Outcome {
    let out = &context.out;
    out.line(format!(
        "took over a project of {NAME} in {}",
        one_line(&project.root().to_string_lossy())
    ))?;
    out.line("")?;
    for agent in &found.agents {
        let lives = match agent.lives {
            Some(true) => "",
            Some(false) => ", not in tmux now",
            None => ", no tmux runs",
        };
        let name = format!("{:<THING_CHARS$} ", agent.name.as_str());
        out.line(format!(
            "  {}{} in pane {}{lives}",
            out.paint(STRONG, name),
            agent.role,
            agent.pane
        ))?;
    }
    let line = |said: &UpstreamRemark| {
        format!("  {:<THING_CHARS$} {}", one_line(&said.what), one_line(&said.why))
    };
    found.boxes.iter().try_for_each(|said| out.line(line(said)))?;
    if !found.left.is_empty() {
        out.line("")?;
        out.line("left as it is:")?;
        found.left.iter().try_for_each(|said| out.line(out.paint(FAINT, line(said))))?;
    }
    if let Some(lacking) = lacking.filter(|lacking| !lacking.is_empty()) {
        out.line("")?;
        out.line(out.paint(WARNING, "ensemble.yaml is left as it is; it lacks:"))?;
        lacking.iter().try_for_each(|line| out.line(format!("  {}", one_line(line))))?;
    }
    out.line("")?;
    print_next(context, project, found)
}

fn print_next(context: &Context, project: &Project, found: &UpstreamProject) -> Outcome {
    let stop =
        found.watcher.map(|pid| (format!("kill {pid}"), "its watcher: ours tells the agents"));
    let up = ("ensemble up".to_owned(), "adopt the panes, and start the watcher");
    let watch = ("ensemble admin watch &".to_owned(), "route what is in the drop boxes");
    let steps = [
        stop,
        Some(if found.agents.is_empty() { watch } else { up }),
        Some(("ensemble status".to_owned(), "see the team and its mail")),
        Some(("ensemble".to_owned(), "watch what happens")),
    ];
    print_steps(context, project, steps.into_iter().flatten().take(3))
}
