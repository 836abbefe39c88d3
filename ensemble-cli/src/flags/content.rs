//! What a message says, as flags: words of the command line, a file, or stdin. The same everywhere.

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};

use ensemble_app::content::{STDIN, content_of};
use ensemble_app::failure::{Failure, Outcome};

use crate::args::ends_options;

/// A text, or a file with it.
#[derive(Debug, clap::Args)]
pub(crate) struct ContentFlags {
    /// The text
    #[arg(value_name = "TEXT", allow_hyphen_values = true, conflicts_with = "file")]
    text: Option<String>,
    /// A file with the text; `-` for stdin
    #[arg(short, long, value_name = "FILE|-", value_hint = clap::ValueHint::FilePath)]
    file: Option<PathBuf>,
    /// TEXT, as other programs take it
    #[arg(short, long, hide = true, value_name = "TEXT", conflicts_with_all = ["text", "file"])]
    message: Option<String>,
}

impl ContentFlags {
    /// The content; that of stdin if nothing is named and something is piped in.
    pub(crate) fn read(&self) -> Outcome<Vec<u8>> {
        let hint = "write it in quotes, name a file with `-f FILE`, or pipe it in";
        let content = match self.named()? {
            Some(content) => content,
            None if io::stdin().is_terminal() => {
                return Err(Failure::usage("there is no text").with_hint(hint));
            }
            None => content_of(Path::new(STDIN))?,
        };
        match content.iter().all(u8::is_ascii_whitespace) {
            true => {
                Err(Failure::usage(format!("the text is empty{}", self.source())).with_hint(hint))
            }
            false => Ok(content),
        }
    }

    fn source(&self) -> String {
        match (&self.message, &self.text, &self.file) {
            (Some(_), ..) => String::new(),
            (None, Some(text), _) if text != STDIN => String::new(),
            (None, _, Some(file)) if file != Path::new(STDIN) => format!(": {}", file.display()),
            _ => ": nothing was read from stdin".to_owned(),
        }
    }

    /// The content that the line names; stdin only where it is named.
    pub(crate) fn named(&self) -> Outcome<Option<Vec<u8>>> {
        if let Some(text) = &self.message {
            return Ok(Some(text.clone().into_bytes()));
        }
        match (self.text.as_deref(), self.file.as_deref()) {
            (Some(STDIN), _) => content_of(Path::new(STDIN)).map(Some),
            (Some(text), _) => words(text).map(Some),
            (None, Some(file)) => content_of(file).map(Some),
            (None, None) => Ok(None),
        }
    }
}

/// A text, unless it is the name of a file: what the file says is meant then.
fn words(text: &str) -> Outcome<Vec<u8>> {
    if ends_options() {
        return Ok(text.as_bytes().to_owned());
    }
    if !text.contains(char::is_whitespace) && Path::new(text).is_file() {
        let hint =
            format!("`-f {text}` takes what the file says; a text of several words is not a file");
        return Err(Failure::usage(format!("{text} is a file")).with_hint(hint));
    }
    // A text may begin with a dash, as items of a list do.
    let is_option = text.trim_start_matches('-').starts_with(|first: char| first.is_alphabetic());
    if is_option && text.starts_with('-') && !text.contains(char::is_whitespace) {
        let hint = format!("if it is the text, write `-- {text}`");
        return Err(Failure::usage(format!("there is no option `{text}`")).with_hint(hint));
    }
    Ok(text.as_bytes().to_owned())
}

/// A file alone: a plan, an instruction, a report in JSON.
#[derive(Debug, clap::Args)]
pub(crate) struct FileContent {
    /// The file; `-` for stdin, which is also read if something is piped in
    #[arg(short, long, value_name = "FILE|-", value_hint = clap::ValueHint::FilePath)]
    file: Option<PathBuf>,
    /// The file, as other programs take it
    #[arg(hide = true, value_name = "FILE|-", conflicts_with = "file")]
    positional_file: Option<PathBuf>,
}

impl FileContent {
    pub(crate) fn path(&self) -> Outcome<&Path> {
        match self.file.as_deref().or(self.positional_file.as_deref()) {
            Some(file) => Ok(file),
            None if io::stdin().is_terminal() => {
                Err(Failure::usage("there is no file").with_hint("name it with `-f FILE`"))
            }
            None => Ok(Path::new(STDIN)),
        }
    }

    pub(crate) fn read(&self) -> Outcome<Vec<u8>> {
        let (path, content) = (self.path()?, content_of(self.path()?)?);
        if !content.trim_ascii().is_empty() {
            return Ok(content);
        }
        let failure = match path == Path::new(STDIN) {
            true => Failure::usage("nothing was read from stdin"),
            false => Failure::usage(format!("{} is empty", path.display())),
        };
        Err(failure.with_hint("name a file with `-f FILE`, or pipe it in"))
    }
}
