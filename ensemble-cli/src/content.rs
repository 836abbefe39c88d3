//! What a message says: words of the command line, a file, or stdin. The same flags everywhere.

use std::fs::File;
use std::io::{self, BufRead, IsTerminal as _, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use ensemble_core::broker::Broker;
use ensemble_core::message::{Envelope, fill_body};

use crate::error_line::Code;
use crate::exit::{Failure, Outcome};
use crate::unasked::STDIN;

/// The largest content, in bytes; larger than a body, it becomes an attachment.
const CONTENT_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Whether stdin carries something else than content.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Keeps stdin for something else: no content is read from it any more.
pub(crate) fn take_stdin() {
    IS_TAKEN.store(true, Ordering::Relaxed);
}

/// Refuses to read stdin where it carries something else.
pub(crate) fn check_stdin() -> Outcome {
    match IS_TAKEN.load(Ordering::Relaxed) {
        true => Err(Failure::usage("there is no content: stdin carries the calls")),
        false => Ok(()),
    }
}

/// The next line of at most `bytes_max` bytes; `None` at the end. A line that the end cuts short is dropped,
/// and one that is too long is skipped and refused.
pub(crate) fn read_line(
    stdin: &mut impl BufRead,
    bytes_max: usize,
) -> Outcome<Option<Outcome<Vec<u8>>>> {
    let failed = |error: io::Error| Failure::refused(format!("cannot read stdin: {error}"));
    let mut line = Vec::new();
    stdin.by_ref().take(bytes_max as u64).read_until(b'\n', &mut line).map_err(failed)?;
    if line.pop_if(|last| *last == b'\n').is_some() {
        return Ok(Some(Ok(line)));
    }
    if line.len() < bytes_max {
        return Ok(None);
    }
    stdin.skip_until(b'\n').map_err(failed)?;
    let text = format!("a line has more than {bytes_max} bytes");
    Ok(Some(Err(Failure::refused(text).with_code(Code::TooLarge))))
}

/// A text, or a file with it.
#[derive(Debug, clap::Args)]
pub(crate) struct Content {
    /// The text
    #[arg(value_name = "TEXT", allow_hyphen_values = true, conflicts_with = "file")]
    text: Option<String>,
    /// A file with the text; `-` for stdin
    #[arg(short, long, value_name = "FILE|-", value_hint = clap::ValueHint::FilePath)]
    file: Option<PathBuf>,
    /// The former spelling of TEXT
    #[arg(short, long, hide = true, value_name = "TEXT", conflicts_with_all = ["text", "file"])]
    message: Option<String>,
}

impl Content {
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

    /// Where the content comes from, for a text about it.
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

/// A text, unless it is the name of a file: former versions took a file here.
fn words(text: &str) -> Outcome<Vec<u8>> {
    if !text.contains(char::is_whitespace) && Path::new(text).is_file() {
        let hint =
            format!("`-f {text}` takes what the file says; a text of several words is no file");
        return Err(Failure::usage(format!("{text} is a file")).with_hint(hint));
    }
    Ok(text.as_bytes().to_owned())
}

/// A file alone: a plan, an instruction, a report in JSON.
#[derive(Debug, clap::Args)]
pub(crate) struct FileContent {
    /// The file; `-` for stdin, which is also read if something is piped in
    #[arg(short, long, value_name = "FILE|-", value_hint = clap::ValueHint::FilePath)]
    file: Option<PathBuf>,
    /// The former place of the file
    #[arg(hide = true, value_name = "FILE|-", conflicts_with = "file")]
    former_file: Option<PathBuf>,
}

impl FileContent {
    pub(crate) fn path(&self) -> Outcome<&Path> {
        match self.file.as_deref().or(self.former_file.as_deref()) {
            Some(file) => Ok(file),
            None if io::stdin().is_terminal() => {
                Err(Failure::usage("there is no file").with_hint("name it with `-f FILE`"))
            }
            None => Ok(Path::new(STDIN)),
        }
    }

    pub(crate) fn read(&self) -> Outcome<Vec<u8>> {
        content_of(self.path()?)
    }
}

/// The content of a file; of stdin for `-`.
pub(crate) fn content_of(path: &Path) -> Outcome<Vec<u8>> {
    if path == Path::new(STDIN) {
        check_stdin()?;
        return read_content(io::stdin().lock())
            .map_err(|e| Failure::refused(format!("cannot read stdin: {e}")));
    }
    let fail = |e: io::Error| Failure::refused(format!("cannot read {}: {e}", path.display()));
    let file = File::open(path).map_err(fail)?;
    // What is too large is not read. A pipe has no length; of it, no more than the limit is read.
    let bytes = file.metadata().map_err(fail)?.len();
    if bytes > CONTENT_BYTES_MAX {
        let path = path.display();
        let text = format!("{path} has {bytes} bytes, the limit is {CONTENT_BYTES_MAX}");
        return Err(Failure::refused(text));
    }
    read_content(file).map_err(fail)
}

fn read_content(source: impl Read) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    source.take(CONTENT_BYTES_MAX + 1).read_to_end(&mut content)?;
    Ok(content)
}

/// Puts the content into the body, or into an attachment if it does not fit.
pub(crate) fn fill(queue: &dyn Broker, envelope: Envelope, content: Vec<u8>) -> Outcome<Envelope> {
    let (mut envelope, rest) = fill_body(envelope, content)?;
    let Some(content) = rest else { return Ok(envelope) };
    let attachment = queue.attach(&content)?;
    envelope.body = format!(
        "The content is attached: attachments/{} ({} bytes).\n\
         `ensemble recv --body` prints the content instead of this text.\n",
        attachment.sha256, attachment.bytes
    );
    Ok(envelope.with_attachment(attachment))
}
