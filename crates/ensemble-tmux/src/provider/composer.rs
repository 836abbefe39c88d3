//! Reads what is in an agent's input area.

use std::ops::Range;

use regex_lite::Regex;
use serde::{Deserialize, Serialize};

use super::cells::{clipped, width};
use super::profile::{Composer, Profile, Region};
use ensemble_core::pane::{ForegroundProcess, PaneState};

/// The characters that end a prompt of the usual shells.
const TERMINATORS: [char; 5] = ['$', '#', '%', '>', '❯'];
/// How many lines of a composer are read; a nudge never wraps into more.
const COMPOSER_LINES_MAX: usize = 8;
/// How many lines at the bottom are searched for a nudge that was typed.
const TYPED_LINES: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// A prompt with nothing behind it.
    Prompt,
    /// An empty line: a program that reads lines.
    EmptyLine,
    /// Something is typed and not sent.
    Draft,
    /// There is no place for input on the screen.
    Absent,
    /// Nothing is known, so anything may be typed.
    Anywhere,
}

pub(super) fn input(profile: &Profile, state: &PaneState) -> Input {
    match &profile.composer {
        Composer::Anywhere => Input::Anywhere,
        Composer::ShellLine { continuations } => {
            match shell_line(state, continuations_of(state, continuations)) {
                // The prompt belongs to the program that the shell was started to run.
                Input::Prompt if state.foreground.iter().any(|process| process.given_command) => {
                    Input::Draft
                }
                input => input,
            }
        }
        Composer::Prompt { placeholders, .. } | Composer::Boxed { placeholders, .. } => {
            within(profile, state, placeholders)
        }
    }
}

/// The secondary prompts that are possible: a script has prompts, but no command to continue.
fn continuations_of<'a>(state: &PaneState, all: &'a [Regex]) -> &'a [Regex] {
    let is_script = state.foreground.first().is_some_and(ForegroundProcess::runs_script);
    if is_script { &[] } else { all }
}

/// Reads the cursor's line as a shell's.
///
/// A prompt is one terminator, one space, and then the cursor. A second terminator earlier in the line may be a
/// redirection in a command that a person is typing (`user@host:~$ echo x > `), so that counts as a draft.
pub(super) fn shell_line(state: &PaneState, continuations: &[Regex]) -> Input {
    let line = state.cursor_line().trim_end();
    let cursor = state.cursor_x as usize;
    if line.is_empty() && cursor == 0 {
        return Input::EmptyLine;
    }
    let terminators = line.chars().filter(|c| TERMINATORS.contains(c)).count();
    let is_prompt = line.ends_with(TERMINATORS)
        && terminators == 1
        && cursor == width(line) + 1
        && !continuations.iter().any(|pattern| pattern.is_match(line));
    if is_prompt { Input::Prompt } else { Input::Draft }
}

fn within(profile: &Profile, state: &PaneState, placeholders: &[Regex]) -> Input {
    let Some(found) = find(&profile.composer, state) else { return Input::Absent };
    let cursor_behind_start =
        found.rows.contains(&(state.cursor_y as usize)) && state.cursor_x as usize > found.start;
    let is_placeholder = placeholders.iter().any(|pattern| pattern.is_match(&found.text));
    match found.text.is_empty() || is_placeholder {
        true if !cursor_behind_start => Input::Prompt,
        _ => Input::Draft,
    }
}

pub(super) fn holds_cursor(profile: &Profile, state: &PaneState) -> bool {
    find(&profile.composer, state).is_some_and(|at| at.rows.contains(&(state.cursor_y as usize)))
}

struct FoundComposer {
    /// The lines in which the cursor is at the start as long as nothing is typed.
    rows: Range<usize>,
    /// The column in which typing starts.
    start: usize,
    text: String,
}

fn find(composer: &Composer, state: &PaneState) -> Option<FoundComposer> {
    match composer {
        Composer::Prompt { prompt, .. } => prompted(state, prompt),
        Composer::Boxed { side, bottom, foot, .. } => boxed(state, side, bottom, *foot),
        Composer::ShellLine { .. } | Composer::Anywhere => None,
    }
}

/// The lowest line that begins with the prompt, with the lines it wraps into.
fn prompted(state: &PaneState, prompt: &Regex) -> Option<FoundComposer> {
    let (row, at) = lowest(state, prompt)?;
    let first = &state.screen[row][at.end()..];
    let rest = state.screen[row + 1..]
        .iter()
        .take(COMPOSER_LINES_MAX)
        .take_while(|line| !is_border(line))
        .map(String::as_str);
    let text: Vec<&str> = std::iter::once(first).chain(rest).map(inside).collect();
    Some(FoundComposer {
        rows: row..row + 1,
        start: width(at.as_str()).max(width(at.as_str().trim_end()) + 1),
        text: text.join(" ").trim().to_owned(),
    })
}

/// The lines with a side that are on the lowest edge, without the foot and without what is
/// beside the box. There is none if the cursor is elsewhere: something else takes the keys.
fn boxed(state: &PaneState, side: &Regex, bottom: &Regex, foot: usize) -> Option<FoundComposer> {
    let (edge, at) = lowest(state, bottom)?;
    let cells = width(at.as_str());
    let lines: Vec<&str> = state.screen[..edge].iter().map(|line| clipped(line, cells)).collect();
    let has_side = |line: &&&str| side.find(line).is_some_and(|at| at.start() == 0);
    let top = edge - lines.iter().rev().take_while(has_side).count();
    let rows = top..edge.checked_sub(foot).filter(|end| *end > top)?;
    if !rows.contains(&(state.cursor_y as usize)) {
        return None;
    }
    // The foot is never blank, so that it shows how far the side is from the text.
    let start = side.find(lines.get(rows.end)?).map_or(0, |at| width(at.as_str()));
    let text: Vec<&str> = lines[rows.clone()].iter().copied().filter(|l| !is_menu(l)).collect();
    let text = text.into_iter().map(inside).collect::<Vec<_>>().join(" ").trim().to_owned();
    Some(FoundComposer { rows, start, text })
}

/// A line between two sides: a menu above the composer, as programs show for a slash.
fn is_menu(line: &str) -> bool {
    let line = line.trim();
    line.chars().count() > 1 && line.ends_with(['│', '┃'])
}

fn lowest<'a>(state: &'a PaneState, pattern: &Regex) -> Option<(usize, regex_lite::Match<'a>)> {
    state
        .screen
        .iter()
        .enumerate()
        .rev()
        .find_map(|(row, line)| pattern.find(line).filter(|at| at.start() == 0).map(|at| (row, at)))
}

/// A line without the sides of the box around it.
fn inside(line: &str) -> &str {
    line.trim_matches(|c: char| is_blank(c) || matches!(c, '│' | '┃' | '|'))
}

/// A blank line or the edge of a box ends a composer.
fn is_border(line: &str) -> bool {
    let line = inside(line);
    line.is_empty() || line.starts_with(|c: char| ('\u{2500}'..='\u{259F}').contains(&c))
}

/// Whether exactly `text` is in the input, typed and not sent. Line breaks are where the
/// program has put them, so blanks do not count.
pub(super) fn holds(profile: &Profile, state: &PaneState, text: &str) -> bool {
    let wanted = squeezed(text);
    match &profile.composer {
        Composer::Prompt { .. } | Composer::Boxed { .. } => {
            find(&profile.composer, state).is_some_and(|found| squeezed(&found.text) == wanted)
        }
        Composer::ShellLine { .. } => squeezed(state.cursor_line()).ends_with(&wanted),
        Composer::Anywhere => squeezed(&Region::Bottom(TYPED_LINES).text(state)).contains(&wanted),
    }
}

/// Whether a composer contains `text` and nothing else, so that it can be submitted or withdrawn. Never true on a
/// shell's line, where a prompt cannot be distinguished from a command that a person has begun.
pub fn stands_alone(profile: &Profile, state: &PaneState, text: &str) -> bool {
    match &profile.composer {
        Composer::Prompt { .. } | Composer::Boxed { .. } => holds(profile, state, text),
        Composer::ShellLine { .. } | Composer::Anywhere => false,
    }
}

/// How a composer shows a line that we typed and did not submit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnsentLine {
    /// The composer shows no line of that kind.
    #[default]
    Absent,
    /// It shows nothing else, so the line can be submitted or withdrawn.
    Alone,
    /// A person has typed behind it.
    WithWords,
}

impl UnsentLine {
    pub fn find(profile: &Profile, state: &PaneState, text: &str) -> Self {
        if stands_alone(profile, state, text) {
            return Self::Alone;
        }
        let found = find(&profile.composer, state);
        match found.is_some_and(|found| squeezed(&found.text).starts_with(&squeezed(text))) {
            true => Self::WithWords,
            false => Self::Absent,
        }
    }
}

fn squeezed(text: &str) -> String {
    text.chars().filter(|c| !is_blank(*c)).collect()
}

/// Whether a character shows nothing. Qwen Code draws its cursor on a blank without width.
fn is_blank(c: char) -> bool {
    c.is_whitespace() || c == '\u{200B}'
}
