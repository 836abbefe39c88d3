//! Draws the view, from 80 columns and 24 lines on.
//!
//! ```text
//! heading    project, agents, watcher, how many needs
//! list       needs, then the other agents: the worst first
//! mailboxes  those with mail that no agent reads
//! waits      who waits for whom
//! feed       what was said and what has changed
//! footer     keys, a question, or what is typed
//! ```
//!
//! A mark at the start of each line says what colour says as well, and `>` is before the selected one.

use anstyle::AnsiColor;
use ensemble_app::sentences::SentenceWeight;
use ensemble_app::text::{one_line, plural, table, wrapped};
use ensemble_app::usage::{cost, token_count};
use ensemble_core::message::Timestamp;
use ensemble_core::requests::AskedRequest;
use ensemble_project::attention::Need;
use ensemble_project::overview::{AgentOverview, Overview};
use ensemble_team::roster::State;
use ensemble_tmux::provider::cells;
use ensemble_usage::UsageTotals;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::LiveScene;
use super::events::FeedLine;
use super::view::{InputPurpose, ListItem, ViewMode, ViewState, items};
use crate::printing::overview::{self, StatusHeading, cut};

const EVENTS_MIN: u16 = 3;
/// From this number of columns on, an agent's line includes its usage.
const WIDE: usize = 110;
const KEYS: &str = "enter look  x run it  a attach  y/n answer  s send  / filter  ? keys  q quit";

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

pub(super) fn draw(frame: &mut Frame<'_>, scene: &LiveScene<'_>, view: &ViewState) {
    let (text, style) = footer(view);
    // The end of a question, of what is typed and of an answer matters as much as the beginning.
    let footer = wrapped(&text, frame.area().width.into(), 0);
    let below = Constraint::Length(footer.len() as u16);
    let [top, middle, bottom] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(3), below]).areas(frame.area());
    frame.render_widget(Paragraph::new(heading(scene, top.width.into())), top);
    match &view.mode {
        ViewMode::Story { title, lines, scroll } => story(frame, middle, (title, lines, *scroll)),
        _ => list(frame, middle, scene, view),
    }
    let footer = footer.into_iter().map(|line| Line::styled(line, style));
    frame.render_widget(Paragraph::new(footer.collect::<Vec<_>>()), bottom);
}

fn heading(scene: &LiveScene<'_>, width: usize) -> Line<'static> {
    let overview = &scene.overview;
    let StatusHeading { project, urgent, calm } = overview::heading(scene.project, overview);
    let time = overview.at.to_string();
    let time = time.get(11..19).unwrap_or_default();
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let urgent = match urgent.is_empty() {
        true => Span::styled("nothing needs you", bold),
        false => Span::styled(urgent, bold.patch(colour(AnsiColor::Red))),
    };
    let project = Span::styled(format!("{project} · "), bold);
    let line = |calm: &str| {
        let calm = Span::styled(format!(" · {time} UTC · {calm}"), bold);
        Line::from(vec![project.clone(), urgent.clone(), calm])
    };
    let whole = line(&calm);
    // A command that is cut off is of no use.
    let without_command = calm.split(": `").next().unwrap_or(&calm);
    if whole.width() <= width { whole } else { line(without_command) }
}

fn story(frame: &mut Frame<'_>, area: Rect, (title, lines, scroll): (&String, &[String], usize)) {
    let [heading, area] = Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(area);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let title = format!("{} ({})", one_line(title), plural(lines.len() as u64, "line"));
    frame.render_widget(Paragraph::new(Line::styled(title, bold)), heading);
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let pieces: Vec<String> = lines.iter().flat_map(|line| wrapped(line, width, 4)).collect();
    // How many of the wrapped lines are before the first one that is wanted.
    let before: usize = lines.iter().take(scroll).map(|line| wrapped(line, width, 4).len()).sum();
    let first = before.min(pieces.len().saturating_sub(height));
    let shown = pieces.into_iter().skip(first).take(height).map(Line::raw);
    frame.render_widget(Paragraph::new(shown.collect::<Vec<_>>()), area);
}

fn list(frame: &mut Frame<'_>, area: Rect, scene: &LiveScene<'_>, view: &ViewState) {
    let (overview, width) = (&scene.overview, usize::from(area.width));
    let items = items(overview, view);
    let needs = items.iter().filter(|item| matches!(item, ListItem::Need(_))).count();
    let dim = Style::new().add_modifier(Modifier::DIM);
    let mut rows = item_lines(&items, scene, width).into_iter();
    let head = rows.next().unwrap_or_default();
    let mut below: Vec<Line<'_>> = waits(scene, width).into_iter().collect();
    below.extend(used(scene).map(|text| Line::styled(cut(&text, width), dim)));
    below.push(Line::raw(""));
    // Each need has a line for its command, where all of them fit.
    let all = items.len() + needs + 1;
    let is_roomy = all + below.len() + usize::from(EVENTS_MIN) <= usize::from(area.height);
    let above = if is_roomy { all } else { items.len() + 1 } as u16;
    let events = area.height.saturating_sub(above + below.len() as u16).max(EVENTS_MIN);
    let lower = below.len() as u16 + events;
    let [upper, lower] =
        Layout::vertical([Constraint::Min(2), Constraint::Length(lower)]).areas(area);
    let last = scene.events.last(usize::from(events));
    below.extend(last.map(|line| feed_line(line, width)));
    // The selected line is always in sight.
    let height = usize::from(upper.height).max(2);
    let first = view.selected.saturating_sub(height - 2);
    let mut lines = Vec::new();
    let mut has_head = false;
    for (number, item) in items.iter().enumerate() {
        let (texts, style) = match item {
            ListItem::Need(need) => {
                (need_lines(need, overview.at, width - 1, is_roomy), need_style(need))
            }
            ListItem::Agent(agent) => {
                if !std::mem::replace(&mut has_head, true) {
                    lines.push(Line::styled(format!(" {head}"), dim));
                }
                (vec![rows.next().unwrap_or_default()], agent_style(agent))
            }
            ListItem::Mailbox(_) | ListItem::Own(_) => {
                (vec![rows.next().unwrap_or_default()], Style::new())
            }
        };
        if number < first {
            continue;
        }
        let selected = if number == view.selected { Modifier::REVERSED } else { Modifier::empty() };
        let style = style.add_modifier(selected);
        let mark = if number == view.selected { '>' } else { ' ' };
        let line = |text: String| Line::styled(cut(&format!("{mark}{text}"), width), style);
        lines.extend(texts.into_iter().map(line));
    }
    lines.truncate(height);
    frame.render_widget(Paragraph::new(lines), upper);
    frame.render_widget(Paragraph::new(below), lower);
}

/// A need in one line, or with its command in another one. The command is never cut.
fn need_lines(need: &Need, now: Timestamp, width: usize, is_roomy: bool) -> Vec<String> {
    let text = overview::need_text(need, now);
    if is_roomy {
        return vec![cut(&text, width), format!("    -> {}", one_line(&need.help))];
    }
    let help = help_shown(&need.help);
    if help.is_empty() {
        return vec![cut(&text, width)];
    }
    let room = width.saturating_sub(cells::width(&help) + 5);
    vec![format!("{}  -> {help}", cut(&text, room))]
}

fn need_style(need: &Need) -> Style {
    match need.need.is_urgent() {
        true => Style::new().add_modifier(Modifier::BOLD),
        false => Style::new(),
    }
}

fn help_shown(help: &str) -> String {
    let command = help.split('`').nth(1).and_then(|command| command.strip_prefix("ensemble "));
    one_line(command.unwrap_or_default())
}

/// The head of the columns, and a line for each agent and each mailbox. A wide view says what each agent has used.
fn item_lines(items: &[ListItem<'_>], scene: &LiveScene<'_>, width: usize) -> Vec<String> {
    let has_agents = items.iter().any(|item| matches!(item, ListItem::Agent(_)));
    let has_spent = has_agents && width >= WIDE && !scene.spent.agents.is_empty();
    let head = overview::ROW_HEADS.map(|head| if has_agents { head } else { "" });
    let mut head = head.map(str::to_owned).to_vec();
    if has_spent {
        head.splice(4..4, ["tokens".to_owned(), "cost".to_owned()]);
    }
    let row = |agent: &AgentOverview| {
        let mut cells = overview::agent_cells(agent, &scene.overview, false);
        if has_spent {
            let spent = scene.spent.agents.get(&agent.row.member.name);
            let tokens = spent.map_or_else(String::new, |it| token_count(it.tokens.total()));
            cells.splice(4..4, [tokens, spent.map_or_else(String::new, cost)]);
        }
        cells
    };
    let rows = items.iter().filter_map(|item| match item {
        ListItem::Need(_) => None,
        ListItem::Agent(agent) => Some(row(agent)),
        ListItem::Mailbox(mailbox) => Some(overview::mailbox_cells(mailbox)),
        ListItem::Own(name) => Some(
            ["", name.as_str(), "", "", "you: what you asked, and the answers"]
                .map(str::to_owned)
                .to_vec(),
        ),
    });
    table(&std::iter::once(head).chain(rows).collect::<Vec<_>>(), usize::MAX)
}

fn agent_style(agent: &AgentOverview) -> Style {
    match agent.presence.state {
        State::Waiting | State::Unknown => colour(AnsiColor::Yellow),
        State::Shutdown => Style::new().add_modifier(Modifier::DIM),
        _ => Style::new(),
    }
}

fn waits(scene: &LiveScene<'_>, width: usize) -> Option<Line<'static>> {
    let Overview { pending, needs, .. } = &scene.overview;
    let is_need = |asked: &&AskedRequest| {
        needs.iter().any(|need| need.about.as_deref() == Some(asked.request_id.as_str()))
    };
    let edges: Vec<String> = pending
        .iter()
        .filter(|asked| !is_need(asked))
        .map(|asked| {
            let kind = asked.kind.as_str().replace('_', " ");
            format!("{} waits for {} ({kind})", asked.from, asked.to)
        })
        .collect();
    (!edges.is_empty()).then(|| Line::raw(cut(&edges.join(" · "), width)))
}

fn used(scene: &LiveScene<'_>) -> Option<String> {
    let mut all = UsageTotals::default();
    scene.spent.agents.values().for_each(|spent| all.merge(spent));
    let unclear = match scene.spent.unclear as u64 {
        0 => String::new(),
        count => format!(" · {} of unclear owner", plural(count, "record")),
    };
    let used =
        || format!("used {} tokens, {}{unclear}", token_count(all.tokens.total()), cost(&all));
    (all.tokens.total() > 0 || scene.spent.unclear > 0).then(used)
}

fn feed_line(line: &FeedLine, width: usize) -> Line<'static> {
    let time = line.at.to_string();
    let text = format!("{}  {}", time.get(11..19).unwrap_or_default(), line.sentence.text);
    let style = match line.sentence.weight {
        SentenceWeight::Talk => Style::new(),
        SentenceWeight::Trouble => colour(AnsiColor::Yellow),
        SentenceWeight::Change | SentenceWeight::Detail => Style::new().add_modifier(Modifier::DIM),
    };
    Line::styled(cut(&text, width), style)
}

fn footer(view: &ViewState) -> (String, Style) {
    let (plain, bold) = (Style::new(), Style::new().add_modifier(Modifier::BOLD));
    match &view.mode {
        ViewMode::Question { text, .. } => (text.clone(), bold),
        ViewMode::Input { purpose: InputPurpose::Filter, text } => (format!("/{text}_"), bold),
        ViewMode::Input { purpose: InputPurpose::Send(to), text } => {
            (format!("to {to}: {text}_"), bold)
        }
        ViewMode::Story { .. } => {
            ("up/down scroll  y/n answer a request  q back".to_owned(), plain)
        }
        ViewMode::List if !view.said.is_empty() => (view.said.clone(), bold),
        ViewMode::List if !view.filter.is_empty() => {
            (format!("filter: {}  (/ changes it)  {KEYS}", view.filter), plain)
        }
        ViewMode::List => (KEYS.to_owned(), plain.add_modifier(Modifier::DIM)),
    }
}
