//! Flags that several verbs share.

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use ensemble_app::acting::given_number;
use ensemble_app::content::{STDIN, content_of};
use ensemble_app::drop::{LintChecks, OnFindings};
use ensemble_app::failure::{Failure, Outcome};
use ensemble_core::proto::request::AtExpiry;

use crate::args::{duration, ends_options};

/// Options for the lint of a written file.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckFlags {
    /// How to handle lint findings
    #[arg(long, value_name = "MODE", default_value = "refuse")]
    lint: OnFindings,
    /// A rule or a word that is allowed, with the reason; may be repeated
    #[arg(long = "allow", value_name = "RULE=REASON", value_parser = allowance)]
    allowed: Vec<(String, String)>,
}

impl From<&CheckFlags> for LintChecks {
    fn from(flags: &CheckFlags) -> Self {
        Self { on_findings: flags.lint, allowed: flags.allowed.clone() }
    }
}

fn allowance(text: &str) -> Result<(String, String), String> {
    let (what, why) = text.split_once('=').ok_or("write it as RULE=REASON")?;
    let is_plain = |text: &str| !text.trim().is_empty() && !text.contains(char::is_control);
    match is_plain(what) && is_plain(why) && !what.contains(':') {
        true => Ok((what.trim().to_owned(), why.trim().to_owned())),
        false => Err("write it as RULE=REASON, in one line".to_owned()),
    }
}

pub(crate) fn check_answer(is_approved: bool, is_rejected: bool) -> Outcome {
    match is_approved || is_rejected {
        true => Ok(()),
        false => Err(Failure::usage("what is the answer?")
            .with_hint("`--approve`, or `--reject --reason TEXT`")),
    }
}

/// What silence until the deadline means. The help is in attributes: the schema of the tool stays a
/// plain list of words.
#[derive(Clone, Copy, Debug, clap::ValueEnum, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnSilence {
    #[value(help = "The agent is ended without its consent")]
    Force,
    #[value(help = "Notify you")]
    Tell,
    #[value(help = "Notify you and the conductor")]
    Escalate,
}

impl From<OnSilence> for AtExpiry {
    fn from(on_silence: OnSilence) -> Self {
        match on_silence {
            OnSilence::Force => Self::Force,
            OnSilence::Tell => Self::Tell,
            OnSilence::Escalate => Self::Escalate,
        }
    }
}

/// A flag of verbs that act under a claim or a review.
#[derive(Debug, clap::Args)]
pub(crate) struct EpochFlag {
    /// The number of the claim or the review it acts under [default: $ENSEMBLE_TASK_EPOCH, or the one on the
    /// blackboard]
    #[arg(long, value_name = "N")]
    epoch: Option<u64>,
}

impl EpochFlag {
    pub(crate) fn given(&self) -> Outcome<Option<u64>> {
        match self.epoch {
            Some(epoch) => Ok(Some(epoch)),
            None => given_number(),
        }
    }
}

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

/// The flags of a command that can wait for a state.
#[derive(Debug, clap::Args)]
pub(crate) struct WaitFlags<S: ValueEnum + Clone + Send + Sync + 'static> {
    /// Return when it is in this state [default with --wait: acked]
    #[arg(long, value_name = "STATE", value_enum)]
    until: Option<S>,
    /// Give up after DURATION, with exit code 3 [default: never]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    wait: Option<Duration>,
}

impl<S: ValueEnum + Clone + Send + Sync + 'static> WaitFlags<S> {
    pub(crate) fn until(&self) -> Option<S> {
        let acked = || self.wait.and_then(|_| S::from_str("acked", false).ok());
        self.until.clone().or_else(acked)
    }

    pub(crate) const fn patience(&self) -> Option<Duration> {
        self.wait
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.patience().and_then(|patience| Instant::now().checked_add(patience))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use ensemble_app::receipt::Receipt;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        waiting: WaitFlags<Receipt>,
    }

    #[test]
    fn a_time_alone_waits_until_it_is_acked() {
        let read = |line: &str| {
            let line = Line::parse_from(line.split(' '));
            (line.waiting.until(), line.waiting.patience().map(|time| time.as_secs()))
        };
        assert_eq!(read("x --until settled --wait 1m"), (Some(Receipt::Settled), Some(60)));
        assert_eq!(read("x --wait 1m"), (Some(Receipt::Acked), Some(60)));
        assert_eq!(read("x --until notified"), (Some(Receipt::Notified), None));
        assert_eq!(read("x").0, None);
        assert!(Line::try_parse_from(["x", "--wait", "soon"]).is_err());
    }
}
