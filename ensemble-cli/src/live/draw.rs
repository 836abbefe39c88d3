//! Draws the view, from 80 columns and 24 lines on.
//!
//! ```text
//! heading    project, agents, watcher, how many needs
//! list       needs, then agents: the worst first
//! waits      who waits for whom
//! tasks      how many are held, by place
//! events     the last ones
//! footer     keys, a question, or what is typed
//! ```
//!
//! A mark at the start of each line says what colour says as well, and `>` stands before the selected one.

use anstyle::AnsiColor;
use ensemble_app::text::{age, one_line, plural, wrapped};
use ensemble_app::usage::{cost, token_count};
use ensemble_core::event_log::Record;
use ensemble_core::message::Timestamp;
use ensemble_team::holdings::HeldAs;
use ensemble_team::roster::State;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::Scene;
use super::view::{Item, Mode, Purpose, View, items};
use ensemble_project::attention::{Need, WatcherState};
use ensemble_project::overview::Agent;
use ensemble_team::usage::Spent;

use crate::printing::overview::{counted, cut, held, mark, unread};

/// Lines for the last events, at the least.
const EVENTS_MIN: u16 = 3;
/// From so many columns on, the line of an agent says what it has used.
const WIDE: usize = 110;
/// The widest name of an agent, in characters.
const NAME_CHARS_MAX: usize = 16;
const KEYS: &str = "enter story  x run it  a attach  y/n answer  s send  / filter  ? keys  q quit";

/// Colours, if they are wanted.
fn colour(color: AnsiColor) -> Style {
    if std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) {
        return Style::new();
    }
    Style::new().fg(match color {
        AnsiColor::Red => Color::Red,
        AnsiColor::Yellow => Color::Yellow,
        AnsiColor::Green => Color::Green,
        _ => Color::Reset,
    })
}

pub(super) fn draw(frame: &mut Frame<'_>, scene: &Scene, view: &View) {
    let [top, middle, bottom] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(3), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(Paragraph::new(heading(scene)), top);
    match &view.mode {
        Mode::Story { title, lines, scroll } => story(frame, middle, (title, lines, *scroll)),
        _ => list(frame, middle, scene, view),
    }
    frame.render_widget(Paragraph::new(footer(view)), bottom);
}

fn heading(scene: &Scene) -> Line<'static> {
    let overview = &scene.overview;
    let watcher = match overview.watcher.state() {
        WatcherState::Runs => "watcher ok",
        WatcherState::Hangs(_) => "WATCHER HANGS",
        WatcherState::Missing => "NO WATCHER",
    };
    let away = if overview.away.is_some() { " · SERVERS AWAY" } else { "" };
    let needs = match overview.urgent() {
        0 => "nothing needs you".to_owned(),
        count => format!("NEEDS YOU: {count}"),
    };
    let time = overview.at.to_string();
    let time = time.get(11..19).unwrap_or_default();
    let agents = plural(overview.agents.len() as u64, "agent");
    let text =
        format!("{}{away} · {agents} · {watcher} · {time} UTC · {needs}", one_line(&scene.project));
    let style = if overview.urgent() > 0 { colour(AnsiColor::Red) } else { Style::new() };
    Line::styled(text, style.add_modifier(Modifier::BOLD))
}

fn story(frame: &mut Frame<'_>, area: Rect, (title, lines, scroll): (&String, &[String], usize)) {
    let [heading, area] = Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(area);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let title = format!("{} ({} lines)", one_line(title), lines.len());
    frame.render_widget(Paragraph::new(Line::styled(title, bold)), heading);
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let pieces: Vec<String> = lines.iter().flat_map(|line| wrapped(line, width)).collect();
    // How many of the wrapped lines stand before the first one that is wanted.
    let before: usize = lines.iter().take(scroll).map(|line| wrapped(line, width).len()).sum();
    let first = before.min(pieces.len().saturating_sub(height));
    let shown = pieces.into_iter().skip(first).take(height).map(Line::raw);
    frame.render_widget(Paragraph::new(shown.collect::<Vec<_>>()), area);
}

fn list(frame: &mut Frame<'_>, area: Rect, scene: &Scene, view: &View) {
    let (overview, width) = (&scene.overview, usize::from(area.width));
    let items = items(overview, &view.filter);
    let needs = items.iter().filter(|item| matches!(item, Item::Need(_))).count();
    let mut below: Vec<Line<'_>> = waits(scene, width).into_iter().collect();
    below.push(Line::styled(cut(&work(scene), width), Style::new().add_modifier(Modifier::DIM)));
    // Each need has a line for its command, where all of them fit.
    let all = items.len() + needs;
    let is_roomy = all + below.len() + usize::from(EVENTS_MIN) <= usize::from(area.height);
    let above = if is_roomy { all } else { items.len() } as u16;
    let events = area.height.saturating_sub(above + below.len() as u16).max(EVENTS_MIN);
    let lower = below.len() as u16 + events;
    let [upper, lower] =
        Layout::vertical([Constraint::Min(1), Constraint::Length(lower)]).areas(area);
    let last = scene.events.last(usize::from(events));
    below.extend(last.map(|record| event_line(record, width)));
    // The selected line is always in sight.
    let height = usize::from(upper.height).max(1);
    let first = view.selected.saturating_sub(height - 1);
    let lines = items.iter().enumerate().skip(first).take(height).flat_map(|(number, item)| {
        let (texts, style) = match item {
            Item::Need(need) if is_roomy => need_lines(need, overview.at),
            Item::Need(need) => need_line(need, overview.at, width - 1),
            Item::Agent(agent) => agent_line(agent, scene, width),
        };
        let selected = if number == view.selected { Modifier::REVERSED } else { Modifier::empty() };
        let style = style.add_modifier(selected);
        let mark = if number == view.selected { '>' } else { ' ' };
        let line = move |text: String| Line::styled(cut(&format!("{mark}{text}"), width), style);
        texts.into_iter().map(line)
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), upper);
    frame.render_widget(Paragraph::new(below), lower);
}

/// A need and its age in a line, and the command that helps in another one.
fn need_lines(need: &Need, now: Timestamp) -> (Vec<String>, Style) {
    let text = format!("{}  {}", need_head(need, now), one_line(&need.text));
    let help = format!("    -> {}", one_line(&need.help));
    (vec![text, help], need_style(need))
}

/// The same in one line. The command is never cut.
fn need_line(need: &Need, now: Timestamp, width: usize) -> (Vec<String>, Style) {
    let (head, help) = (need_head(need, now), help_shown(&need.help));
    let room = width.saturating_sub(head.chars().count() + help.chars().count() + 4);
    let text = cut(&one_line(&need.text), room);
    (vec![format!("{head}  {text}  {help}")], need_style(need))
}

fn need_head(need: &Need, now: Timestamp) -> String {
    let mark = if need.need.is_urgent() { "!" } else { "-" };
    let since = need.since.map_or_else(String::new, |at| format!(" {}", age(now.since(at))));
    format!("{mark} {}{since}", need.need.word().to_uppercase())
}

fn need_style(need: &Need) -> Style {
    colour(if need.need.is_urgent() { AnsiColor::Red } else { AnsiColor::Yellow })
}

/// The first command of a hint, without the program's name.
fn help_shown(help: &str) -> String {
    let command = help.split('`').nth(1).and_then(|command| command.strip_prefix("ensemble "));
    one_line(command.unwrap_or_default())
}

fn agent_line(agent: &Agent, scene: &Scene, width: usize) -> (Vec<String>, Style) {
    let now = scene.overview.at;
    let since = agent.since.map_or_else(|| "-".to_owned(), |at| age(now.since(at)));
    let spent = match scene.spent.agents.get(&agent.row.member.name).filter(|_| width >= WIDE) {
        Some(spent) => format!("{:>6} {:>9}  ", token_count(spent.tokens.total()), cost(spent)),
        None if width >= WIDE && !scene.spent.agents.is_empty() => " ".repeat(18),
        None => String::new(),
    };
    let text = format!(
        "{} {:<NAME_CHARS_MAX$} {:<8} {since:>6}  {:<18} {:>4}  {spent}{}",
        mark(agent),
        cut(agent.row.member.name.as_str(), NAME_CHARS_MAX),
        agent.presence.state.word(),
        held(agent),
        match unread(agent, &scene.overview) {
            none if none == "0" => String::new(),
            unread => unread,
        },
        one_line(&agent.presence.why),
    );
    let style = match agent.presence.state {
        State::Blocked | State::Gone => colour(AnsiColor::Red),
        State::Limited | State::Waiting | State::Unknown => colour(AnsiColor::Yellow),
        State::Working => colour(AnsiColor::Green),
        State::Shutdown => Style::new().add_modifier(Modifier::DIM),
        State::Idle | State::Starting => Style::new(),
    };
    (vec![text], style)
}

/// Who waits for whose decision.
fn waits(scene: &Scene, width: usize) -> Option<Line<'static>> {
    let edges = scene.overview.pending.iter().map(|asked| {
        format!("{} -> {} ({} {})", asked.from, asked.to, asked.kind, asked.request_id)
    });
    let edges: Vec<String> = edges.collect();
    let text = format!("waits: {}", edges.join(" · "));
    (!edges.is_empty()).then(|| Line::raw(cut(&text, width)))
}

/// How much is held in each place, and what is not acked.
fn work(scene: &Scene) -> String {
    let all = scene.overview.holds.values().flatten();
    let mut counts = [0_u64; 4];
    for holding in all {
        counts[match holding.held_as {
            HeldAs::Message => 0,
            HeldAs::Task => 1,
            HeldAs::Review => 2,
            HeldAs::Step => 3,
        }] += 1;
    }
    let nouns = ["mail", "board", "reviews", "steps"];
    let held = counts.iter().zip(nouns).filter(|(count, _)| **count > 0);
    let held: Vec<String> = held.map(|(count, noun)| format!("{count} {noun}")).collect();
    let is_away = scene.overview.away.is_some();
    let held = match (held.is_empty(), is_away) {
        (true, true) => "not known".to_owned(),
        (true, false) => "nothing".to_owned(),
        (false, true) => format!("{}, mail not known", held.join(", ")),
        (false, false) => held.join(", "),
    };
    let unread: u64 = scene.overview.mailboxes.iter().map(|mailbox| mailbox.glance.waiting).sum();
    let mut all = Spent::default();
    scene.spent.agents.values().for_each(|spent| all.merge(spent));
    let mut used = match scene.spent.agents.is_empty() {
        true => String::new(),
        false => format!(" · used: {} tokens, {}", token_count(all.tokens.total()), cost(&all)),
    };
    if scene.spent.unclear > 0 {
        used += &format!(" · {} of unclear owner", plural(scene.spent.unclear as u64, "record"));
    }
    format!(
        "held: {held} · waiting: {} · not acked: {}{used}",
        if is_away { "not known".to_owned() } else { counted(unread) },
        scene.overview.ladders.len()
    )
}

fn event_line(record: &Record, width: usize) -> Line<'static> {
    let time = record.timestamp.to_string();
    let about = ["task_id", "task", "agent", "worker_id", "id", "file", "request_id"];
    let about = about.iter().find_map(|field| record.data.get(*field)?.as_str());
    let text = format!(
        "{} {} {} {}",
        time.get(11..19).unwrap_or_default(),
        record.kind,
        one_line(&record.actor),
        about.map(one_line).unwrap_or_default()
    );
    Line::styled(cut(&text, width), Style::new().add_modifier(Modifier::DIM))
}

fn footer(view: &View) -> Line<'static> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    match &view.mode {
        Mode::Question { text, .. } => Line::styled(text.clone(), bold),
        Mode::Input { purpose: Purpose::Filter, text } => Line::styled(format!("/{text}_"), bold),
        Mode::Input { purpose: Purpose::Send(to), text } => {
            Line::styled(format!("to {to}: {text}_"), bold)
        }
        Mode::Story { .. } => Line::raw("up/down scroll  y/n answer a request  q back"),
        Mode::List if !view.said.is_empty() => Line::styled(view.said.clone(), bold),
        Mode::List if !view.filter.is_empty() => {
            Line::raw(format!("filter: {}  (/ changes it)  {KEYS}", view.filter))
        }
        Mode::List => Line::styled(KEYS, Style::new().add_modifier(Modifier::DIM)),
    }
}
