//! What stands where an agent takes input.

use regex_lite::Regex;

use super::cells::width;
use super::profile::{Composer, Profile, Region};
use crate::pane::PaneState;

/// What ends a prompt of the usual shells.
const TERMINATORS: [char; 5] = ['$', '#', '%', '>', '❯'];
/// How many lines of a composer are read; a nudge never wraps into more.
const COMPOSER_LINES_MAX: usize = 8;
/// How many lines at the bottom are searched for a nudge that was typed.
const TYPED_LINES: usize = 12;

/// What is known about the input.
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
    /// Anything may be typed, as far as is known.
    Anywhere,
}

/// What stands in the input of the agent.
pub(super) fn input(profile: &Profile, state: &PaneState) -> Input {
    match &profile.composer {
        Composer::Anywhere => Input::Anywhere,
        Composer::ShellLine { continuations } => shell_line(state, continuations),
        Composer::Prompt { prompt, placeholders } => boxed(state, prompt, placeholders),
    }
}

/// What stands on the cursor's line, read as a shell's.
///
/// A prompt is one terminator with one space behind it, at which the cursor stands. A second
/// terminator earlier in the line may be a redirection in a command that somebody types
/// (`user@host:~$ echo x > `), so that counts as a draft.
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

fn boxed(state: &PaneState, prompt: &Regex, placeholders: &[Regex]) -> Input {
    let Some(found) = find(state, prompt) else { return Input::Absent };
    let cursor_behind_prompt = state.cursor_y as usize == found.row
        && state.cursor_x as usize > found.prompt_width.max(width(&found.prompt_trimmed) + 1);
    let is_placeholder = placeholders.iter().any(|pattern| pattern.is_match(&found.text));
    match found.text.is_empty() || is_placeholder {
        true if !cursor_behind_prompt => Input::Prompt,
        _ => Input::Draft,
    }
}

/// A composer that was found on the screen.
struct Found {
    row: usize,
    prompt_width: usize,
    prompt_trimmed: String,
    text: String,
}

/// The lowest line that begins with the prompt, with the lines it wraps into.
fn find(state: &PaneState, prompt: &Regex) -> Option<Found> {
    let (row, at) = state.screen.iter().enumerate().rev().find_map(|(row, line)| {
        prompt.find(line).filter(|at| at.start() == 0).map(|at| (row, at))
    })?;
    let first = &state.screen[row][at.end()..];
    let rest = state.screen[row + 1..]
        .iter()
        .take(COMPOSER_LINES_MAX)
        .take_while(|line| !is_border(line))
        .map(String::as_str);
    let text: Vec<&str> = std::iter::once(first).chain(rest).map(inside).collect();
    Some(Found {
        row,
        prompt_width: width(at.as_str()),
        prompt_trimmed: at.as_str().trim_end().to_owned(),
        text: text.join(" ").trim().to_owned(),
    })
}

/// A line without the sides of the box around it.
fn inside(line: &str) -> &str {
    line.trim_matches(|c: char| c.is_whitespace() || matches!(c, '│' | '┃' | '|'))
}

/// A blank line or the edge of a box ends a composer.
fn is_border(line: &str) -> bool {
    let line = inside(line);
    line.is_empty() || line.starts_with(|c: char| ('\u{2500}'..='\u{259F}').contains(&c))
}

/// Whether exactly `text` stands in the input, typed and not sent. Line breaks are where the
/// program has put them, so blanks do not count.
pub(super) fn holds(profile: &Profile, state: &PaneState, text: &str) -> bool {
    let wanted = squeezed(text);
    match &profile.composer {
        Composer::Prompt { prompt, .. } => {
            find(state, prompt).is_some_and(|found| squeezed(&found.text) == wanted)
        }
        Composer::ShellLine { .. } => squeezed(state.cursor_line()).ends_with(&wanted),
        Composer::Anywhere => squeezed(&Region::Bottom(TYPED_LINES).text(state)).contains(&wanted),
    }
}

/// A nudge of ours that stands in a composer, alone: typed once, its Enter held back.
#[must_use]
pub fn standing_nudge(profile: &Profile, state: &PaneState) -> Option<String> {
    // On a shell's line nobody can tell where a prompt ends and somebody's command begins.
    let Composer::Prompt { prompt, .. } = &profile.composer else { return None };
    let text = find(state, prompt)?.text;
    profile.nudge_patterns.iter().any(|pattern| pattern.is_match(&text)).then_some(text)
}

fn squeezed(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}
