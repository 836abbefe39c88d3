//! The overview as lines of text, the worst first, for terminals of 80 columns and more;
//! [`ensemble_project::overview`] gathers it.

use std::cmp::Reverse;
use std::path::PathBuf;
use std::time::Duration;

use anstyle::Style;
use ensemble_app::diagnostics::say;
use ensemble_app::door_hints::name_queue;
use ensemble_app::text::{elapsed, one_line, plural, table};
use ensemble_core::message::Timestamp;
use ensemble_core::spool::Glance;
use ensemble_core::watch::Waiter;
use ensemble_project::Project;
use ensemble_project::attention::{Kind, Need, WatcherState, join_by_cause};
use ensemble_project::overview::{
    AgentOverview, COUNT_MAX, MailboxOverview, Overview, since_millis, watcher_remedy,
};
use ensemble_team::holdings::describe_tasks;
use ensemble_team::roster::State;
use ensemble_tmux::provider::cells;
use ensemble_watch::alerts::person_looked;
use serde_json::Value;

use crate::context::{Context, Outcome};
use crate::output::{BAD, FAINT, Output, STRONG, WARNING};

const NEEDS_SHOWN_MAX: usize = 10;
/// The longest word that is left out whole where a text is cut, in characters.
const WORD_CHARS_MAX: usize = 16;
pub(crate) const ROW_HEADS: [&str; 5] = ["", "agent", "state", "since", "doing"];
const WHOLE_HEADS: [&str; 2] = ["role", "last sign"];

const WATCH_INTERVAL: Duration = Duration::from_secs(2);
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

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

/// The first line of `status`, `team` and the live view.
pub(crate) struct StatusHeading {
    pub(crate) project: String,
    /// The first thing that a person should look at: the one thing in red.
    pub(crate) urgent: String,
    pub(crate) calm: String,
}

pub(crate) fn heading(project: &Project, overview: &Overview) -> StatusHeading {
    let count = |wanted: State| {
        overview.agents.iter().filter(|agent| agent.presence.state == wanted).count()
    };
    let mut calm = plural(overview.agents.len() as u64, "agent");
    let [working, down, unknown] = [State::Working, State::Shutdown, State::Unknown].map(count);
    match (overview.agents.len(), overview.urgent()) {
        (0, _) => {}
        (all, _) if down == all => calm += ", shut down",
        (_, 0) if unknown > 0 => calm += &format!(" · {unknown} unknown"),
        (_, 0) => calm += ", all fine",
        _ => {}
    }
    if working > 0 {
        calm += &format!(" · {working} working");
    }
    let is_need = overview.needs.iter().any(|need| need.need == Kind::Watcher);
    if overview.watcher.state() == WatcherState::Missing && !is_need {
        calm += &format!(" · watcher not running: {}", watcher_remedy(project));
    }
    let away = overview.away.as_ref().map(|_| "SERVERS AWAY".to_owned());
    let needs = (overview.urgent() > 0).then(|| format!("NEEDS YOU: {}", overview.urgent()));
    let urgent: Vec<String> = away.into_iter().chain(needs).collect();
    StatusHeading { project: one_line(&project.display_name()), urgent: urgent.join(" · "), calm }
}

pub(crate) fn print_needs(context: &Context, overview: &Overview) -> Outcome {
    let out = &context.out;
    let StatusHeading { project, urgent, calm } = heading(context.project()?, overview);
    let calm = name_queue(&calm, context.queue_flag());
    out.line(match urgent.is_empty() {
        true => format!("{project} · {calm}"),
        false => format!("{project} · {} · {calm}", out.paint(BAD.bold(), urgent)),
    })?;
    let needs = join_by_cause(&overview.needs);
    for need in needs.iter().take(NEEDS_SHOWN_MAX) {
        let style = if need.need.is_urgent() { STRONG } else { Style::new() };
        let help = one_line(&name_queue(&need.help, context.queue_flag()));
        let (text, help) = (need_text(need, overview.at), format!("-> {help}"));
        let length = cells::width(&text) + cells::width(&help) + 2;
        match columns(out).filter(|columns| length > *columns) {
            None => out.line(format!("{}  {help}", out.paint(style, text)))?,
            Some(columns) => {
                out.line(out.paint(style, cut(&text, columns)))?;
                out.line(format!("    {help}"))?;
            }
        }
    }
    match needs.len().saturating_sub(NEEDS_SHOWN_MAX) {
        0 => Ok(()),
        more => out.line(format!("  and {more} more: `ensemble status --json` has all")),
    }
}

pub(crate) fn need_text(need: &Need, now: Timestamp) -> String {
    let mark = if need.need.is_urgent() { "!" } else { "-" };
    let since = need.since.map_or_else(String::new, |at| format!(" ({})", elapsed(now.since(at))));
    format!("{mark}  {}{since}", one_line(&need.text))
}

pub(crate) fn worst_first(overview: &Overview) -> Vec<&AgentOverview> {
    let mut agents: Vec<&AgentOverview> = overview.agents.iter().collect();
    agents.sort_by_key(|agent| rank(agent));
    agents
}

/// The agents that no need is about, the worst first: a row each.
pub(crate) fn calm_agents(overview: &Overview) -> Vec<&AgentOverview> {
    let mut agents = worst_first(overview);
    agents.retain(|agent| {
        let has_need =
            matches!(agent.presence.state, State::Blocked | State::Gone | State::Limited);
        !has_need && !agent.is_overdue()
    });
    agents
}

/// Prints agents, and mailboxes that no agent reads, a row each. `is_whole` adds a heading, the role, the evidence, and
/// when each agent was last seen to act.
pub(crate) fn print_rows(
    context: &Context,
    overview: &Overview,
    agents: &[&AgentOverview],
    is_whole: bool,
) -> Outcome {
    let (out, mut rows, mut styles) = (&context.out, Vec::new(), Vec::new());
    let whole = |cells: &mut Vec<String>, more: [String; 2]| {
        if is_whole {
            cells.splice(4..4, more);
        }
    };
    if is_whole {
        let mut head = ROW_HEADS.map(str::to_owned).to_vec();
        whole(&mut head, WHOLE_HEADS.map(str::to_owned));
        rows.push(head);
        styles.push(FAINT);
    }
    for agent in agents {
        let mut cells = agent_cells(agent, overview, is_whole);
        let sign = agent.sign_of_life.map(|at| elapsed(overview.at.since(at)));
        let sign = sign.unwrap_or_else(|| "-".to_owned());
        whole(&mut cells, [agent.row.member.role.to_string(), sign]);
        rows.push(cells);
        styles.push(style(agent));
    }
    if !is_whole {
        rows.extend(full_mailboxes(overview).map(mailbox_cells));
        styles.resize(rows.len(), Style::new());
    }
    for (line, style) in table(&rows, usize::MAX).iter().zip(styles) {
        let line = columns(out).map_or_else(|| line.clone(), |columns| cut(line, columns));
        out.line(out.paint(style, line))?;
    }
    if overview.mailboxes.is_empty() && overview.away.is_none() && !is_whole {
        out.line("no mailbox yet: `ensemble mailbox add NAME` makes one")?;
    }
    Ok(())
}

/// The mailboxes that hold something and that neither an agent nor a person reads, and those that are full.
pub(crate) fn full_mailboxes(overview: &Overview) -> impl Iterator<Item = &MailboxOverview> {
    let is_read = |mailbox: &MailboxOverview| {
        let mut members = overview.agents.iter().map(|agent| &agent.row.member.mailbox);
        overview.people.contains(&mailbox.name) || members.any(|name| *name == mailbox.name)
    };
    overview.mailboxes.iter().filter(move |mailbox| {
        let Glance { waiting, held, dead, .. } = mailbox.glance;
        mailbox.overflow.is_some() || !is_read(mailbox) && waiting + held + dead > 0
    })
}

pub(crate) fn mailbox_cells(mailbox: &MailboxOverview) -> Vec<String> {
    let glance = &mailbox.glance;
    let oldest = glance.oldest_millis.map(|at| format!(", oldest {}", elapsed(since_millis(at))));
    let waits = format!("{} unread{}", counted(glance.waiting), oldest.unwrap_or_default());
    let held = format!("{} held", counted(glance.held));
    let dead = format!("{} dead", counted(glance.dead));
    let all = [(glance.waiting, waits), (glance.held, held), (glance.dead, dead)];
    let said = all.into_iter().filter(|(count, _)| *count > 0).map(|(_, text)| text);
    let overflow = mailbox.overflow.as_ref();
    let full =
        overflow.map(|overflow| format!("full: {} refused", plural(overflow.refused, "message")));
    let said = said.chain(full).collect::<Vec<_>>().join(" · ");
    ["", mailbox.name.as_str(), "", "", &said].map(str::to_owned).to_vec()
}

fn rank(agent: &AgentOverview) -> (Reverse<u8>, String) {
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

fn style(agent: &AgentOverview) -> Style {
    match agent.presence.state {
        State::Blocked | State::Gone => STRONG,
        State::Idle if agent.is_overdue() => STRONG,
        State::Limited | State::Waiting | State::Unknown => WARNING,
        State::Shutdown => FAINT,
        State::Working | State::Starting | State::Idle => Style::new(),
    }
}

pub(crate) fn mark(agent: &AgentOverview) -> &'static str {
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

pub(crate) fn agent_cells(
    agent: &AgentOverview,
    overview: &Overview,
    is_whole: bool,
) -> Vec<String> {
    let since = agent.since.map_or_else(String::new, |at| elapsed(overview.at.since(at)));
    vec![
        mark(agent).to_owned(),
        agent.row.member.name.to_string(),
        agent.presence.state.word().to_owned(),
        since,
        doing(agent, overview, is_whole),
    ]
}

/// What an agent has in hand, its unread mail, and the evidence for an unusual state, or for any.
fn doing(agent: &AgentOverview, overview: &Overview, is_whole: bool) -> String {
    let mut said = Vec::new();
    let held = describe_tasks(&agent.holds);
    match held.as_slice() {
        [] => {}
        [one] => said.push(one_line(one)),
        [one, more @ ..] => said.push(format!("{} +{}", one_line(one), more.len())),
    }
    if overview.away.is_some() {
        said.push("mail not known".to_owned());
    } else if agent.unread > 0 {
        said.push(format!("{} unread", counted(agent.unread)));
    }
    let why = one_line(&agent.presence.why);
    let is_plain = matches!(
        agent.presence.state,
        State::Idle | State::Working | State::Shutdown | State::Starting
    );
    // The words already say what it holds.
    if !is_plain || is_whole && !why.starts_with("holds ") {
        said.push(why);
    }
    said.join(" · ")
}

pub(crate) fn counted(number: u64) -> String {
    if number >= COUNT_MAX { format!("{COUNT_MAX}+") } else { number.to_string() }
}

/// A text of at most this many columns, cut between words. Where it is cut, its open brackets are closed.
pub(crate) fn cut(text: &str, columns_max: usize) -> String {
    if cells::width(text) <= columns_max {
        return text.to_owned();
    }
    let start = |chars: usize| text.chars().take(chars);
    let open = |chars: usize| {
        let count = |bracket| start(chars).filter(|it| *it == bracket).count();
        count('(').saturating_sub(count(')'))
    };
    let room = cells::clipped(text, columns_max.saturating_sub(1)).chars().count();
    let fits = |kept: &usize| kept + open(*kept) <= room;
    let kept = (0..=room).rev().find(fits).unwrap_or_default();
    let is_break = |kept: &usize| text.chars().nth(*kept) == Some(' ');
    let near = kept.saturating_sub(WORD_CHARS_MAX)..=kept;
    let kept = near.rev().filter(|at| *at > 0 && fits(at)).find(is_break).unwrap_or(kept);
    start(kept).chain(['…']).chain(std::iter::repeat_n(')', open(kept))).collect()
}

/// Columns of the terminal, or what `COLUMNS` says; `None` for a pipe, which gets everything.
pub(crate) fn columns(out: &Output) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    let columns = size.filter(|_| out.is_terminal()).map(|size| usize::from(size.ws_col));
    let told = || std::env::var("COLUMNS").ok()?.parse().ok();
    columns.or_else(told).filter(|columns| *columns > 0)
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn a_text_that_is_cut_closes_its_brackets() {
        let text = "w1 waits: dialog (menu: Enter to stay)";
        assert_eq!(cut(text, 38), text);
        assert_eq!(cut(text, 30), "w1 waits: dialog (menu:…)");
        assert_eq!(cut(text, 19), "w1 waits: dialog…");
        assert_eq!(cut(text, 10), "w1 waits:…");
        assert_eq!(cut("a (b) c", 6), "a (b)…");
        assert_eq!(cut("01a22131-dd0c-7000-8000", 9), "01a22131…", "a word that fills the line");
        assert_eq!((cut("abc", 1), cut("abc", 0)), ("…".to_owned(), "…".to_owned()));
        assert_eq!(cut("日本語です", 6), "日本…");
    }
}
