//! The message for a wrong command line.

use clap::Command;
use clap::error::{ContextKind, ContextValue};
use ensemble_app::diagnostics::{is_json, tell_program, write_line};
use ensemble_app::error_line::FailureCode;
use ensemble_app::exit_code::VerbExit;
use ensemble_app::failure::Failure;
use ensemble_app::text::one_line;
use ensemble_core::message::nearest;

use crate::spellings::{canonical, meant_by};

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

/// The words of the command that was typed.
fn typed_place(program: &Command) -> String {
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
    place.join(" ")
}

/// The question whether the nearest of some words was meant.
fn near_to(word: &str, similar: Option<&ContextValue>) -> Option<String> {
    let Some(ContextValue::Strings(similar)) = similar else { return None };
    let near = nearest(word, similar.iter().map(String::as_str));
    near.first().map(|meant| format!("did you mean `{meant}`?"))
}

/// Prints what clap has to say: help on stdout, mistakes on stderr.
pub(crate) fn report(error: &clap::Error, program: &Command) -> VerbExit {
    if !error.use_stderr() {
        return match error.print() {
            Ok(()) => VerbExit::Done,
            Err(error) => Failure::from(error).report(),
        };
    }
    let text = in_words(&error.render().to_string());
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        write_line(text.trim_end());
        return VerbExit::Usage;
    }
    let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    let hint = match error.get(ContextKind::InvalidSubcommand) {
        // A known word of another program needs no words that are spelt like it.
        Some(ContextValue::String(word)) => meant_by(program, word)
            .map(|meant| format!("`ensemble {meant}` does that"))
            .or_else(|| near_to(word, error.get(ContextKind::SuggestedSubcommand)))
            .or_else(|| Some("`ensemble help --all` lists all commands".to_owned())),
        _ => match error.get(ContextKind::SuggestedArg) {
            Some(ContextValue::String(option)) => Some(format!("did you mean `{option}`?")),
            _ => None,
        },
    };
    let text = text.split("\n\nFor more information").next().unwrap_or(text);
    let text = hint.as_ref().and_then(|_| text.split("\n\n").next()).unwrap_or(text);
    if is_json() {
        let message = text.split("\n\n").next().unwrap_or(text);
        tell_program(FailureCode::Usage, one_line(message), hint, VerbExit::Usage);
        return VerbExit::Usage;
    }
    write_line(&format!("ensemble: {text}"));
    let explains = || format!("`{} -h` explains it", typed_place(program));
    let hint = hint.unwrap_or_else(explains);
    write_line(&format!("hint: {hint}"));
    VerbExit::Usage
}
