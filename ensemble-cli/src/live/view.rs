//! What a person has selected and typed, and what a key means.
//!
//! ```text
//! mode     key                          does
//! list     up, down, k, j, PgUp, PgDn   select another line
//!          Enter                        what the selected agent does, or what happened
//!          x                            run the suggested command, after a question
//!          y, n                         approve or reject the selected request, after a question
//!          a                            attach to the selected agent
//!          n                            nudge the selected agent
//!          s                            send it a message: type its text
//!          p                            pause or resume the team, after a question
//!          /                            show only lines that contain a text; Esc shows all again
//!          ?, h                         all keys
//!          q, Esc, Ctrl-C               leave; any other key with Ctrl or Alt does nothing
//! story    up, down …                   scroll
//!          y, n                         approve or reject the request whose story it is
//!          q, Esc, Enter                back
//! input    characters, Backspace        change the text; what is pasted is added, and means no keys elsewhere
//!          Enter                        send, or apply the filter
//!          Esc                          back, without effect
//! question y                            run the command
//!          any other                    back
//! ```

use ensemble_app::text::one_line;
use ensemble_core::message::Name;
use ensemble_core::requests::AskedRequest;
use ensemble_project::attention::{Kind, Need};
use ensemble_project::overview::{AgentOverview, MailboxOverview, Overview};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::printing::overview::{calm_agents, full_mailboxes};

const PAGE: usize = 10;
const KEYS: [&str; 11] = [
    "up, down, k, j, PgUp, PgDn   select another line",
    "Enter     the conversation; the last messages of an agent or a mailbox; what is asked",
    "x         run the command of the selected need, after a question; a plan is shown",
    "a         attach to the agent's pane; Ctrl-b d comes back",
    "y, n      approve or reject the selected request, after a question",
    "n         on another line: nudge its agent",
    "s         send it a message",
    "p         pause or resume the team, after a question",
    "/         show only the needs and agents that a text is in; Esc shows all again",
    "?, h      this list",
    "q, Esc    leave; the team keeps working",
];
const STORY_OF: &str = "story of ";
const INPUT_CHARS_MAX: usize = 500;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ViewAction {
    None,
    Quit,
    Story(String),
    Run(Vec<String>),
    Attach(Name),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum ViewMode {
    #[default]
    List,
    Story {
        title: String,
        lines: Vec<String>,
        scroll: usize,
    },
    Input {
        purpose: InputPurpose,
        text: String,
    },
    Question {
        text: String,
        arguments: Vec<String>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum InputPurpose {
    Filter,
    Send(Name),
}

#[derive(Debug, Default)]
pub(super) struct ViewState {
    pub(super) selected: usize,
    own: Option<Name>,
    /// The item of the selected line: it stays selected where lines come and go.
    selected_item: Option<String>,
    pub(super) filter: String,
    pub(super) mode: ViewMode,
    pub(super) said: String,
}

/// A line that can be selected: needs first, then agents, then mailboxes, and the person who looks.
pub(super) enum ListItem<'a> {
    Need(&'a Need),
    Agent(&'a AgentOverview),
    Mailbox(&'a MailboxOverview),
    Own(&'a Name),
}

impl ListItem<'_> {
    fn agent(&self) -> Option<&Name> {
        match self {
            Self::Need(need) => need.agent.as_ref(),
            Self::Agent(agent) => Some(&agent.row.member.name),
            Self::Mailbox(mailbox) => Some(&mailbox.name),
            Self::Own(_) => None,
        }
    }

    fn mark(&self) -> String {
        match self {
            Self::Need(need) => format!("{:?} {:?} {:?}", need.need, need.agent, need.about),
            Self::Agent(agent) => agent.row.member.name.to_string(),
            Self::Mailbox(mailbox) => format!("mailbox {}", mailbox.name),
            Self::Own(_) => "own".to_owned(),
        }
    }

    /// The request that waits for a decision. A need of this kind may also be about one that has expired, or about a task.
    fn decision(&self, overview: &Overview) -> Option<&Need> {
        let Self::Need(need) = self else { return None };
        let asked = |it: &AskedRequest| need.about.as_deref() == Some(it.request_id.as_str());
        (need.need == Kind::Decision && overview.pending.iter().any(asked)).then_some(*need)
    }

    fn id(&self) -> Option<String> {
        match self {
            Self::Need(need) => {
                need.about.clone().or_else(|| need.agent.as_ref().map(ToString::to_string))
            }
            Self::Agent(_) | Self::Mailbox(_) => self.agent().map(ToString::to_string),
            Self::Own(name) => Some(name.to_string()),
        }
    }
}

pub(super) fn items<'a>(overview: &'a Overview, view: &ViewState) -> Vec<ListItem<'a>> {
    let filter = view.filter.to_lowercase();
    let fits = |text: &str| filter.is_empty() || text.to_lowercase().contains(&filter);
    let needs = overview.needs.iter().filter(|need| fits(&need.text)).map(ListItem::Need);
    let is_wanted = |agent: &&&AgentOverview| {
        let member = &agent.row.member;
        let held = agent.holds.iter().any(|holding| fits(&holding.task_id));
        fits(member.name.as_str()) || fits(agent.presence.state.word()) || held
    };
    let agents = calm_agents(overview);
    let agents: Vec<&AgentOverview> = agents.iter().filter(is_wanted).copied().collect();
    let agents = agents.into_iter().map(ListItem::Agent);
    let mailboxes = full_mailboxes(overview).filter(|mailbox| fits(mailbox.name.as_str()));
    let mailboxes = mailboxes.map(ListItem::Mailbox);
    let own = overview.people.iter().find(|name| view.own.as_ref() == Some(name));
    let own = own.filter(|name| fits(name.as_str())).map(ListItem::Own);
    needs.chain(agents).chain(mailboxes).chain(own).collect()
}

impl ViewState {
    pub(super) fn of(own: Name) -> Self {
        Self { own: Some(own), ..Self::default() }
    }

    /// Keeps the selection on what is selected; on the first line once that has gone.
    pub(super) fn clamp(&mut self, overview: &Overview) {
        let items = items(overview, self);
        if let Some(wanted) = &self.selected_item {
            let found = items.iter().position(|item| item.mark() == *wanted);
            self.selected = found.unwrap_or(0);
        }
        self.note_selected(&items);
    }

    fn note_selected(&mut self, items: &[ListItem<'_>]) {
        self.selected_item = items.get(self.selected).map(ListItem::mark);
    }

    pub(super) fn show(&mut self, id: &str, lines: Vec<String>) {
        self.mode = ViewMode::Story { title: format!("{STORY_OF}{id}"), lines, scroll: 0 };
    }

    pub(super) fn say(&mut self, said: String) {
        self.said = said;
    }

    pub(super) fn press(&mut self, key: KeyEvent, overview: &Overview) -> ViewAction {
        self.said.clear();
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return ViewAction::Quit;
        }
        // Ctrl-X is not x.
        if key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) {
            return ViewAction::None;
        }
        match std::mem::take(&mut self.mode) {
            ViewMode::List => self.in_list(key.code, overview),
            ViewMode::Story { title, lines, scroll } => {
                let last = lines.len().saturating_sub(1);
                let scroll = match key.code {
                    KeyCode::Char('q') | KeyCode::Esc | KeyCode::Enter => return ViewAction::None,
                    KeyCode::Char('y' | 'n') => {
                        let items = items(overview, self);
                        let item = items.get(self.selected);
                        let need = item.and_then(|item| item.decision(overview));
                        // If its request was decided since, another line is selected by now.
                        let is_shown =
                            |need: &&Need| title.strip_prefix(STORY_OF) == need.about.as_deref();
                        if let Some(need) = need.filter(is_shown) {
                            self.answer(need, key.code == KeyCode::Char('y'));
                        }
                        return ViewAction::None;
                    }
                    code => moved(scroll.min(last), code, last),
                };
                self.mode = ViewMode::Story { title, lines, scroll };
                ViewAction::None
            }
            ViewMode::Input { purpose, text } => self.in_input(key.code, purpose, text, overview),
            ViewMode::Question { arguments, .. } => match key.code {
                KeyCode::Char('y') => ViewAction::Run(arguments),
                _ => ViewAction::None,
            },
        }
    }

    fn in_list(&mut self, code: KeyCode, overview: &Overview) -> ViewAction {
        let items = items(overview, self);
        let item = items.get(self.selected);
        let agent = item.and_then(ListItem::agent).cloned();
        match (code, item) {
            (KeyCode::Esc, _) if !self.filter.is_empty() => self.filter.clear(),
            (KeyCode::Char('q') | KeyCode::Esc, _) => return ViewAction::Quit,
            (KeyCode::Char('/'), _) => {
                let text = std::mem::take(&mut self.filter);
                self.mode = ViewMode::Input { purpose: InputPurpose::Filter, text };
            }
            (KeyCode::Char('p'), _) => {
                let is_paused = overview.needs.iter().any(|need| need.need == Kind::Paused);
                self.ask(vec![if is_paused { "resume" } else { "pause" }.to_owned()]);
            }
            (KeyCode::Char('?' | 'h'), _) => {
                let lines = KEYS.iter().map(|line| (*line).to_owned()).collect();
                self.mode = ViewMode::Story { title: "keys".to_owned(), lines, scroll: 0 };
            }
            (KeyCode::Enter, Some(item)) => {
                return item.id().map_or(ViewAction::None, ViewAction::Story);
            }
            (KeyCode::Char('y' | 'n'), Some(item)) if item.decision(overview).is_some() => {
                if let Some(need) = item.decision(overview) {
                    self.answer(need, code == KeyCode::Char('y'));
                }
            }
            (KeyCode::Char('x'), Some(ListItem::Need(need))) => return self.help(need),
            (KeyCode::Char('x'), _) => {
                self.say("nothing to run: select a line with `!`".to_owned())
            }
            (KeyCode::Char('y'), _)
            | (KeyCode::Char('n'), Some(ListItem::Need(Need { need: Kind::Decision, .. }))) => {
                self.say("nothing to answer: select a line that waits for a decision".to_owned())
            }
            (KeyCode::Char('a'), Some(_)) => {
                return agent.map_or(ViewAction::None, ViewAction::Attach);
            }
            (KeyCode::Char('n'), Some(_)) => {
                let nudge = |name: Name| {
                    ViewAction::Run(vec!["agent".to_owned(), "nudge".to_owned(), name.to_string()])
                };
                return agent.map_or(ViewAction::None, nudge);
            }
            (KeyCode::Char('s'), Some(_)) => {
                if let Some(name) = agent {
                    self.mode =
                        ViewMode::Input { purpose: InputPurpose::Send(name), text: String::new() };
                }
            }
            (code, _) => {
                self.selected = moved(self.selected, code, items.len().saturating_sub(1));
                self.note_selected(&items);
            }
        }
        ViewAction::None
    }

    fn in_input(
        &mut self,
        code: KeyCode,
        purpose: InputPurpose,
        mut text: String,
        overview: &Overview,
    ) -> ViewAction {
        match (code, &purpose) {
            (KeyCode::Esc, _) => return ViewAction::None,
            (KeyCode::Enter, InputPurpose::Filter) => {
                self.filter = text;
                self.clamp(overview);
                return ViewAction::None;
            }
            (KeyCode::Enter, InputPurpose::Send(_)) if text.is_empty() => return ViewAction::None,
            (KeyCode::Enter, InputPurpose::Send(name)) => {
                let to = name.to_string();
                return ViewAction::Run(
                    ["send", "--to", &to, "-m", &text].map(str::to_owned).to_vec(),
                );
            }
            (KeyCode::Backspace, _) => drop(text.pop()),
            (KeyCode::Char(typed), _) if text.chars().count() < INPUT_CHARS_MAX => text.push(typed),
            _ => {}
        }
        self.mode = ViewMode::Input { purpose, text };
        ViewAction::None
    }

    pub(super) fn paste(&mut self, pasted: &str) {
        if let ViewMode::Input { text, .. } = &mut self.mode {
            let room = INPUT_CHARS_MAX.saturating_sub(text.chars().count());
            text.extend(one_line(&pasted.replace('\r', "\n")).chars().take(room));
        }
    }

    fn help(&mut self, need: &Need) -> ViewAction {
        // A remedy for another host is not run here.
        let is_here = need.help.starts_with('`');
        let arguments = command_in(&need.help).filter(|_| is_here).unwrap_or_default();
        match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["agent", "attach", name] => {
                Name::new(*name).map_or(ViewAction::None, ViewAction::Attach)
            }
            ["why", id] | ["request", "list", id] => ViewAction::Story((*id).to_owned()),
            // A watcher would end with this view.
            [] | ["admin", "watch", ..] => {
                self.say(format!("by hand: {}", need.help));
                ViewAction::None
            }
            _ => {
                self.ask(arguments);
                ViewAction::None
            }
        }
    }

    fn answer(&mut self, need: &Need, is_yes: bool) {
        let (Some(id), Some(to)) = (&need.about, &need.agent) else { return };
        let how = if is_yes { "--approve" } else { "--reject" };
        let arguments = ["request", "answer", id.as_str(), how, "--as", to.as_str()];
        self.ask(arguments.map(str::to_owned).to_vec());
    }

    fn ask(&mut self, arguments: Vec<String>) {
        let text = format!("run `ensemble {}`? y/n", arguments.join(" "));
        self.mode = ViewMode::Question { text, arguments };
    }
}

fn moved(at: usize, code: KeyCode, last: usize) -> usize {
    match code {
        KeyCode::Up | KeyCode::Char('k') => at.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => (at + 1).min(last),
        KeyCode::PageUp => at.saturating_sub(PAGE),
        KeyCode::PageDown => (at + PAGE).min(last),
        KeyCode::Home => 0,
        KeyCode::End => last,
        _ => at,
    }
}

/// The arguments of the command in a hint, if it is complete: a word in capitals is a placeholder.
pub(super) fn command_in(help: &str) -> Option<Vec<String>> {
    let command = help.split('`').nth(1)?.strip_prefix("ensemble ")?;
    let parts = command.split('\'').enumerate();
    let words = parts.flat_map(|(at, part)| match at % 2 {
        0 => part.split_whitespace().collect(),
        _ => vec![part],
    });
    let words: Vec<String> = words.map(str::to_owned).collect();
    let is_place = |word: &String| {
        word.chars().any(char::is_alphabetic)
            && word.chars().all(|c| c.is_ascii_uppercase() || c == '|')
    };
    (!words.iter().any(is_place)).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::command_in;

    #[test]
    fn a_task_in_quotes_is_an_argument_without_them() {
        let words = command_in("`ensemble why '#7 b'`; `ensemble agent inspect bob`");
        assert_eq!(words.unwrap(), ["why", "#7 b"]);
    }
}
