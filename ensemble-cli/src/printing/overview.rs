//! The overview as lines of text, the worst first, for terminals of 80 columns and more;
//! [`ensemble_project::overview`] gathers it.

use std::cmp::Reverse;
use std::path::PathBuf;
use std::time::Duration;

use anstyle::Style;
use ensemble_app::diagnostics::say;
use ensemble_app::failure::Outcome;
use ensemble_app::text::{age, one_line, plural};
use ensemble_core::message::Timestamp;
use ensemble_core::watch::Waiter;
use ensemble_project::attention::Need;
use ensemble_project::overview::{Agent, COUNT_MAX, MailboxView, Overview, since_millis};
use ensemble_team::holdings::tasks;
use ensemble_team::roster::State;
use ensemble_watch::alerts::person_looked;

use ensemble_project::Project;
use serde_json::Value;

use crate::context::Context;
use crate::output::{BAD, FAINT, Output, STRONG, WARNING};

/// The columns of a table whose output is no terminal.
const COLUMNS: usize = 80;
/// Most needs that are shown.
const NEEDS_SHOWN_MAX: usize = 10;
/// The longest name of a task in a table, in characters.
const TASK_CHARS_MAX: usize = 18;

/// How often [`watch`] looks again although no file has changed.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);
/// Clears a terminal.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// The directories in which a change may change the overview, as far as they exist.
fn places(project: &Project) -> Vec<PathBuf> {
    let all = [
        project.state.clone(),
        project.roster().dir().to_owned(),
        project.panes(),
        project.logs(),
        project.queue.join(ensemble_core::requests::REQUESTS),
    ];
    // A waiter with one that does not exist would poll.
    all.into_iter().filter(|place| place.is_dir()).collect()
}

/// Shows something again whenever it has changed, until a signal ends the process: on a terminal in the same place,
/// elsewhere below. `look` returns what is to be shown, and what of it does not change by itself.
pub(crate) fn watch<T>(
    context: &Context,
    look: impl Fn() -> Outcome<(T, Value)>,
    print: impl Fn(&T) -> Outcome,
) -> Outcome {
    let (waiter, mut shown) = (Waiter::for_logs(&places(context.project()?)), None);
    loop {
        let (found, lasting) = look()?;
        if shown.as_ref() != Some(&lasting) {
            if context.out.is_terminal() && !context.out.is_json() {
                context.out.line(CLEAR)?;
            } else if shown.is_some() && !context.out.is_json() {
                context.out.line("")?;
            }
            shown = Some(lasting);
            print(&found)?;
            context.out.flush()?;
        }
        waiter.wait(WATCH_INTERVAL);
    }
}

/// Notes that a person looks, which ends the repetition of alerts: a terminal, and no agent at it.
pub(crate) fn note_look(context: &Context) {
    let Ok(project) = context.project() else { return };
    let is_person = context.out.is_terminal() && matches!(context.agent(), Ok(None));
    if let Some(error) = is_person.then(|| person_looked(project).err()).flatten() {
        say(&format!("warning: {error}"));
    }
}

/// The needs, each with the command that helps.
pub(crate) fn print_needs(context: &Context, overview: &Overview) -> Outcome {
    let (out, urgent) = (&context.out, overview.urgent());
    if urgent > 0 {
        out.line(out.paint(BAD, format!("NEEDS YOU: {urgent}")))?;
    }
    for need in overview.needs.iter().take(NEEDS_SHOWN_MAX) {
        out.line(need_line(out, need, overview.at))?;
        out.line(format!("    -> {}", one_line(&need.help)))?;
    }
    match overview.needs.len().saturating_sub(NEEDS_SHOWN_MAX) {
        0 => Ok(()),
        more => out.line(format!("  and {more} more: `ensemble status --json` has all")),
    }
}

/// The agents, the worst first.
pub(crate) fn worst_first(overview: &Overview) -> Vec<&Agent> {
    let mut agents: Vec<&Agent> = overview.agents.iter().collect();
    agents.sort_by_key(|agent| rank(agent));
    agents
}

/// The agents that fit, the worst first. `is_whole` adds how each is reached and when it was last seen to act.
pub(crate) fn print_agents(context: &Context, overview: &Overview, is_whole: bool) -> Outcome {
    let agents = worst_first(overview);
    let mut rows = vec![heading(is_whole)];
    rows.extend(agents.iter().map(|agent| agent_cells(agent, overview, is_whole)));
    let width = width(&context.out);
    let styles = std::iter::once(FAINT).chain(agents.iter().map(|agent| style(agent)));
    for (line, style) in ensemble_app::text::table(&rows).iter().zip(styles) {
        context.out.line(context.out.paint(style, cut(line, width)))?;
    }
    Ok(())
}

/// The mailboxes in which something lies.
pub(crate) fn print_mailboxes(context: &Context, overview: &Overview) -> Outcome {
    if overview.away.is_some() {
        return context.out.line("the mailboxes are not known while the servers are away");
    }
    if overview.mailboxes.is_empty() {
        return context.out.line("no mailbox yet: `ensemble mailbox add NAME` makes one");
    }
    let (full, empty): (Vec<_>, Vec<_>) = overview.mailboxes.iter().partition(|it| has_any(it));
    if !full.is_empty() {
        let heading = ["mailbox", "waiting", "delayed", "oldest", "held", "dead", ""];
        context.out.table(&heading, full.iter().map(|it| mailbox_cells(it)).collect())?;
    }
    match empty.len() as u64 {
        0 => Ok(()),
        count => {
            let line = format!("{} empty", plural(count, "mailbox"));
            context.out.line(context.out.paint(FAINT, line))
        }
    }
}

const fn has_any(mailbox: &MailboxView) -> bool {
    let glance = &mailbox.glance;
    glance.waiting + glance.held + glance.dead > 0 || mailbox.overflow.is_some()
}

fn mailbox_cells(mailbox: &MailboxView) -> Vec<String> {
    let MailboxView { name, glance, overflow, .. } = mailbox;
    vec![
        name.to_string(),
        counted(glance.waiting),
        counted(glance.delayed),
        glance.oldest_millis.map_or_else(|| "-".to_owned(), |at| age(since_millis(at))),
        counted(glance.held),
        counted(glance.dead),
        overflow.as_ref().map_or_else(String::new, |o| format!("full: {} refused", o.refused)),
    ]
}

/// A need in one line, with its age.
fn need_line(out: &Output, need: &Need, now: Timestamp) -> String {
    let mark = if need.need.is_urgent() { "!" } else { "-" };
    let since = need.since.map_or_else(String::new, |at| format!(" ({})", age(now.since(at))));
    let style = if need.need.is_urgent() { STRONG } else { Style::new() };
    let text = match out.is_terminal() {
        true => cut(&one_line(&need.text), width(out).saturating_sub(4 + since.chars().count())),
        false => one_line(&need.text),
    };
    format!("  {mark} {}{since}", out.paint(style, text))
}

/// The worst first; of one state by name.
fn rank(agent: &Agent) -> (Reverse<u8>, String) {
    let weight = match agent.presence.state {
        State::Blocked => 8,
        State::Gone => 7,
        State::Idle if agent.is_overdue() => 6,
        State::Limited => 5,
        State::Waiting => 4,
        State::Unknown | State::Starting => 3,
        State::Working => 2,
        State::Idle => 1,
        State::Shutdown => 0,
    };
    (Reverse(weight), agent.row.member.name.to_string())
}

fn style(agent: &Agent) -> Style {
    match agent.presence.state {
        State::Blocked | State::Gone => BAD,
        State::Idle if agent.is_overdue() => BAD,
        State::Limited | State::Waiting | State::Unknown => WARNING,
        State::Shutdown => FAINT,
        State::Working | State::Starting | State::Idle => Style::new(),
    }
}

/// The sign of a state, which says it without colour.
pub(crate) fn mark(agent: &Agent) -> &'static str {
    match agent.presence.state {
        State::Blocked | State::Gone => "!",
        State::Idle if agent.is_overdue() => "!",
        State::Limited | State::Waiting => "~",
        State::Unknown | State::Starting => "?",
        State::Working => ">",
        State::Idle => ".",
        State::Shutdown => "x",
    }
}

fn heading(is_whole: bool) -> Vec<String> {
    let usual = ["", "agent", "state", "since", "task", "unread"];
    let whole = ["role", "last sign"];
    let more = whole.iter().filter(|_| is_whole);
    usual.iter().chain(more).chain(&["why"]).map(ToString::to_string).collect()
}

fn agent_cells(agent: &Agent, overview: &Overview, is_whole: bool) -> Vec<String> {
    let now = overview.at;
    let ago = |at: Option<Timestamp>| at.map_or_else(|| "-".to_owned(), |at| age(now.since(at)));
    let mut cells = vec![
        mark(agent).to_owned(),
        agent.row.member.name.to_string(),
        agent.presence.state.word().to_owned(),
        ago(agent.since),
        held(agent),
        unread(agent, overview),
    ];
    if is_whole {
        cells.extend([agent.row.member.role.to_string(), ago(agent.sign_of_life)]);
    }
    cells.push(one_line(&agent.presence.why));
    cells
}

/// The first task that an agent holds, and how many more.
pub(crate) fn held(agent: &Agent) -> String {
    let tasks = tasks(&agent.holds);
    match tasks.as_slice() {
        [] => "-".to_owned(),
        [task] => cut(&one_line(task), TASK_CHARS_MAX),
        [task, more @ ..] => {
            let more = format!(" +{}", more.len());
            format!("{}{more}", cut(&one_line(task), TASK_CHARS_MAX - more.len()))
        }
    }
}

/// The unread messages of an agent; `?` while the servers that have them are away.
pub(crate) fn unread(agent: &Agent, overview: &Overview) -> String {
    overview.away.as_ref().map_or_else(|| counted(agent.unread), |_| "?".to_owned())
}

/// A number that was counted up to [`COUNT_MAX`].
pub(crate) fn counted(number: u64) -> String {
    if number >= COUNT_MAX { format!("{COUNT_MAX}+") } else { number.to_string() }
}

/// A text of at most so many characters. Where it is cut, its open brackets are closed.
pub(crate) fn cut(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    let start = |chars: usize| text.chars().take(chars);
    let open = |chars: usize| {
        let count = |bracket| start(chars).filter(|it| *it == bracket).count();
        count('(').saturating_sub(count(')'))
    };
    let room = chars_max.saturating_sub(1);
    let kept = (0..=room).rev().find(|kept| kept + open(*kept) <= room).unwrap_or_default();
    start(kept).chain(['…']).chain(std::iter::repeat_n(')', open(kept))).collect()
}

/// Columns of the terminal; [`COLUMNS`] elsewhere.
fn width(out: &Output) -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    let columns = size.filter(|_| out.is_terminal()).map(|size| usize::from(size.ws_col));
    columns.filter(|columns| *columns > 0).unwrap_or(COLUMNS)
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn a_text_that_is_cut_closes_its_brackets() {
        let text = "w1 waits: dialog (menu: Enter to stay)";
        assert_eq!(cut(text, 38), text);
        assert_eq!(cut(text, 30), "w1 waits: dialog (menu: Ente…)");
        assert_eq!(cut(text, 19), "w1 waits: dialog …");
        assert_eq!(cut(text, 10), "w1 waits:…");
        assert_eq!(cut("a (b) c", 6), "a (b)…");
        assert_eq!((cut("abc", 1), cut("abc", 0)), ("…".to_owned(), "…".to_owned()));
    }
}
