use clap::Command;
use clap::error::{ContextKind, ContextValue};
use ensemble_app::diagnostics::{is_json, tell_program, write_line};
use ensemble_app::error_line::FailureCode;
use ensemble_app::exit_code::VerbExit;
use ensemble_app::failure::{Failure, typed_words};
use ensemble_app::text::one_line;
use ensemble_core::message::{Name, nearest};

use crate::spellings::{canonical, find_in_group, meant_by};

/// Texts of the parsers of numbers, and the same in plain words.
const NUMBER_WORDS: [(&str, &str); 7] = [
    ("is not in ", "is not "),
    ("..18446744073709551615", " or more"),
    ("invalid digit found in string", "it is not a whole number from 0 on"),
    ("cannot parse integer from empty string", "it is empty"),
    ("number too large to fit in target type", "it is too large"),
    ("invalid float literal", "it is not a number"),
    ("..=", " to "),
];

/// A message of the parser without the words of its library.
pub(crate) fn in_words(text: &str) -> String {
    NUMBER_WORDS.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

const STOPS_ONE: &str = "`ensemble request shutdown NAME` stops one agent";
const SHOWS_ONE: &str = "`ensemble why NAME` shows what happened to an agent, a message or a task";
/// What is meant by a word that a command does not take.
const WORD_HINTS: [(&str, &str); 3] =
    [("ensemble down", STOPS_ONE), ("ensemble status", SHOWS_ONE), ("ensemble top", SHOWS_ONE)];

fn typed_place(program: &Command) -> (&Command, String) {
    let (mut at, mut place) = (program, vec!["ensemble"]);
    let mut words = canonical(std::env::args_os().collect()).into_iter().skip(1);
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--queue" | "--as") => drop(words.next()),
            Some(option) if option.starts_with('-') => {}
            word => match word.and_then(|word| at.find_subcommand(word)) {
                Some(command) => {
                    at = command;
                    place.push(command.get_name());
                }
                None => break,
            },
        }
    }
    (at, place.join(" "))
}

/// What helps with a word that the command does not take: the recipient was named without its option, or most often, a
/// text was not put in quotes.
fn explain_word(command: &Command, place: &str, word: &str) -> Option<String> {
    if let Some((_, hint)) = WORD_HINTS.iter().find(|(at, _)| *at == place) {
        return Some((*hint).to_owned());
    }
    if !command.get_positionals().any(|it| it.get_id() == "text") {
        return None;
    }
    let quoted = "put the text in quotes";
    Some(match recipient_before(command, word) {
        Some(to) if word.contains(char::is_whitespace) => {
            format!("`{place} --to {to} TEXT` sends it to {to}")
        }
        Some(to) => format!("`{place} --to {to} TEXT` sends to {to}; {quoted}"),
        None => format!("{quoted}; `{place} -h` shows examples"),
    })
}

/// The typed option that a command with a text does not have. Its parser takes it for the text, which may begin with a
/// dash, and then complains of what follows.
fn unknown_option(program: &Command, command: &Command) -> Option<String> {
    command.get_positionals().find(|it| it.get_id() == "text")?;
    let is_known = |name: &str| {
        let mut all = command.get_arguments().chain(program.get_arguments());
        all.any(|it| it.get_long_and_visible_aliases().unwrap_or_default().contains(&name))
            || command
                .get_arguments()
                .any(|it| it.get_all_aliases().unwrap_or_default().contains(&name))
            || ["help", "version"].contains(&name)
    };
    let typed = typed_words().take_while(|word| word != "--");
    let options = typed.filter_map(|word| Some(word.strip_prefix("--")?.to_owned()));
    let names = options.map(|option| option.split('=').next().unwrap_or_default().to_owned());
    let mut words = names.filter(|name| !name.contains(char::is_whitespace));
    words.find(|name| !is_known(name))
}

fn explain_option(program: &Command, command: &Command, option: &str, place: &str) -> String {
    let all = command.get_arguments().chain(program.get_arguments());
    let all: Vec<&str> = all.filter_map(clap::Arg::get_long).collect();
    let shortened = all.iter().copied().find(|known| known.starts_with(option));
    let near = nearest(option, all.iter().copied()).first().copied();
    shortened.or(near).map_or_else(
        || format!("`{place} -h` lists its options"),
        |meant| format!("did you mean `--{meant}`?"),
    )
}

/// The word before the first one too many, if it can be a name and the command takes recipients that were not given.
fn recipient_before(command: &Command, word: &str) -> Option<String> {
    let words: Vec<String> = typed_words().collect();
    let takes_recipients = command.get_arguments().any(|it| it.get_id() == "to");
    let has_some = words.iter().any(|it| it == "--all" || it.starts_with("--to"));
    let at = words.iter().position(|it| it == word)?;
    let before = words.get(at.checked_sub(1)?)?;
    (takes_recipients && !has_some && Name::new(before).is_ok()).then(|| before.clone())
}

/// The hint that names a command. `stop` may mean all agents or one.
fn name_command(meant: &str) -> String {
    match meant {
        "down" => format!("`ensemble down` stops the team, {STOPS_ONE}"),
        _ => format!("`ensemble {meant}` does that"),
    }
}

fn name_list(program: &Command, group: &Command, place: &str) -> String {
    match group.get_name() == program.get_name() {
        true => "`ensemble help --all` lists all commands".to_owned(),
        false => format!("`{place} -h` lists its commands"),
    }
}

fn near_to(word: &str, similar: Option<&ContextValue>) -> Option<String> {
    let Some(ContextValue::Strings(similar)) = similar else { return None };
    let near = nearest(word, similar.iter().map(String::as_str));
    near.first().map(|meant| format!("did you mean `{meant}`?"))
}

/// Prints what clap has to say: help on stdout, mistakes on stderr.
pub(crate) fn report(error: &clap::Error, describe: fn() -> Command) -> VerbExit {
    if !error.use_stderr() {
        return match error.print() {
            Ok(()) => VerbExit::Done,
            Err(error) => Failure::from(error).report(),
        };
    }
    let program = &describe();
    let text = in_words(&error.render().to_string());
    let (command, place) = typed_place(program);
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        if is_json() {
            let (text, hint) =
                (format!("`{place}` lacks its command"), name_list(program, command, &place));
            tell_program(FailureCode::Usage, text, Some(hint), VerbExit::Usage);
        } else {
            write_line(text.trim_end());
        }
        return VerbExit::Usage;
    }
    let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    let mut is_word = false;
    let option = unknown_option(program, command);
    let known = option.as_ref().map(|option| explain_option(program, command, option, &place));
    let hint = known.or_else(|| match error.get(ContextKind::InvalidSubcommand) {
        // A known word of another program needs no words that are spelt like it.
        Some(ContextValue::String(word)) => find_in_group(command, word)
            .map(|meant| format!("`{place} {meant}` does that"))
            .or_else(|| meant_by(program, word).map(|meant| name_command(&meant)))
            .or_else(|| near_to(word, error.get(ContextKind::SuggestedSubcommand)))
            .or_else(|| Some(name_list(program, command, &place))),
        _ => match (error.get(ContextKind::SuggestedArg), error.get(ContextKind::InvalidArg)) {
            (Some(ContextValue::String(option)), _) => Some(format!("did you mean `{option}`?")),
            (_, Some(ContextValue::String(word))) if !word.starts_with('-') => {
                is_word = true;
                explain_word(command, &place, word)
            }
            _ => None,
        },
    });
    let said = option.map(|option| format!("there is no option `--{option}`"));
    let text = said.as_deref().unwrap_or(text);
    let text = text.split("\n\nFor more information").next().unwrap_or(text);
    // An option is not meant as a value.
    let mut parts = text.split("\n\n").filter(|part| !part.starts_with("  tip: to pass"));
    let text = match hint.is_some() && !is_word {
        true => parts.next().unwrap_or(text).to_owned(),
        false => parts.collect::<Vec<_>>().join("\n\n"),
    };
    if is_json() {
        let message = text.split("\n\n").next().unwrap_or(&text);
        tell_program(FailureCode::Usage, one_line(message), hint, VerbExit::Usage);
        return VerbExit::Usage;
    }
    write_line(&format!("ensemble: {text}"));
    let hint = hint.unwrap_or_else(|| format!("`{place} -h` explains it"));
    write_line(&format!("hint: {hint}"));
    VerbExit::Usage
}
