//! What a message says: a file or stdin, and how it is put into an envelope.

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use ensemble_core::Error;
use ensemble_core::broker::Broker;
use ensemble_core::durable::{Dir, Durability, FileModes, temporary_name};
use ensemble_core::message::{Envelope, fill_body};
use ensemble_reports::lint::{LintMode, Linter};

use crate::App;
use crate::diagnostics::say;
use crate::error_line::FailureCode;
use crate::failure::{Failure, Outcome};
use crate::wait_line::WaitLine;

pub const STDIN: &str = "-";
/// The largest content, in bytes; larger than a body, it becomes an attachment.
const CONTENT_BYTES_MAX: u64 = 256 * 1024 * 1024;
const STDIN_BYTES_MAX: u64 = 1024 * 1024;
const FINDINGS_MAX: usize = 5;
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Keeps stdin for something else: no content is read from it any more.
pub fn take_stdin() {
    IS_TAKEN.store(true, Ordering::Relaxed);
}

pub fn check_stdin() -> Outcome {
    match IS_TAKEN.load(Ordering::Relaxed) {
        true => Err(Failure::usage("the content is missing or empty, and stdin carries the calls")),
        false => Ok(()),
    }
}

/// The next line of at most `bytes_max` bytes; `None` at the end. The last one may lack its line end; one that is too
/// long is skipped and refused.
pub fn read_line(stdin: &mut impl BufRead, bytes_max: usize) -> Outcome<Option<Outcome<Vec<u8>>>> {
    let failed = |error: io::Error| Failure::refused(format!("cannot read stdin: {error}"));
    let mut line = Vec::new();
    stdin.by_ref().take(bytes_max as u64).read_until(b'\n', &mut line).map_err(failed)?;
    let is_whole = line.pop_if(|last| *last == b'\n').is_some();
    if is_whole || line.len() < bytes_max {
        return Ok((is_whole || !line.is_empty()).then_some(Ok(line)));
    }
    stdin.skip_until(b'\n').map_err(failed)?;
    let text = format!("a line has more than {bytes_max} bytes");
    Ok(Some(Err(Failure::refused(text).with_code(FailureCode::TooLarge))))
}

pub fn content_of(path: &Path) -> Outcome<Vec<u8>> {
    if path == Path::new(STDIN) {
        check_stdin()?;
        return read_content(io::stdin().lock())
            .map_err(|e| Failure::refused(format!("cannot read stdin: {e}")));
    }
    let fail = |e: io::Error| Failure::refused(format!("cannot read {}: {e}", path.display()));
    // A pipe is opened once another process writes to it.
    let _line = WaitLine::new(format!("the content of {}", path.display()), None);
    let file = File::open(path).map_err(fail)?;
    // A file that is too large is not read. A pipe has no length; of it, no more than the limit is read.
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

/// Writes a complete file, which replaces an earlier one. A pipe or a device is written to in place.
pub fn write_output(path: &Path, content: &[u8], mode: u32) -> Outcome {
    let is_file = std::fs::metadata(path).map_or(true, |it| it.is_file());
    if !is_file {
        return Ok(std::fs::write(path, content).map_err(|e| Error::io("write", path, e))?);
    }
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| Failure::usage("the name of the file is not UTF-8"))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let dir = Dir::open(parent.unwrap_or_else(|| Path::new(".")))?;
    let tmp = format!(".{}", temporary_name(name));
    let modes = FileModes { file: mode, ..FileModes::default() };
    Ok(dir.replace_by(name, content, &dir, &tmp, modes, Durability::Process)?)
}

/// The text itself, or what stdin has for `-`.
pub fn text_or_stdin(text: &str) -> Outcome<String> {
    if text != STDIN {
        return Ok(text.to_owned());
    }
    let mut read = String::new();
    let fail = |e| Failure::refused(format!("cannot read stdin: {e}"));
    check_stdin()?;
    io::stdin().lock().take(STDIN_BYTES_MAX).read_to_string(&mut read).map_err(fail)?;
    match read.trim() {
        "" => Err(Failure::usage("the text is empty: nothing was read from stdin")),
        text => Ok(text.to_owned()),
    }
}

/// Lists what is vague in a text that is to be sent, if the team checks that; a failure if it refuses such texts.
pub fn check_words(app: &App, content: &[u8]) -> Outcome<Option<String>> {
    let lint = &app.project()?.config.lint;
    let (mode, text) = (lint.messages.unwrap_or(LintMode::Off), std::str::from_utf8(content));
    let (Ok(text), LintMode::Warn | LintMode::Refuse) = (text, mode) else { return Ok(None) };
    let findings = Linter::new(&lint.options(None)).text(text);
    let lines: Vec<String> = findings.iter().take(FINDINGS_MAX).map(ToString::to_string).collect();
    match (lines.join("\n  "), mode) {
        (lines, _) if lines.is_empty() => Ok(None),
        (lines, LintMode::Refuse) => {
            let text = format!("nothing is sent: it is vague\n  {lines}");
            Err(Failure::refused(text).with_hint("say it exactly, or quote the word"))
        }
        (lines, LintMode::Warn | LintMode::Off) => Ok(Some(format!("it is vague: {lines}"))),
    }
}

/// Puts the content into the body, or into an attachment if it does not fit.
pub fn fill(
    app: &App,
    queue: &dyn Broker,
    envelope: Envelope,
    content: Vec<u8>,
) -> Outcome<Envelope> {
    if let Some(warning) = check_words(app, &content)? {
        say(&format!("warning: {warning}"));
    }
    let (mut envelope, rest) = fill_body(envelope, content)?;
    let Some(content) = rest else { return Ok(envelope) };
    let attachment = queue.attach(&content)?;
    envelope.body = format!(
        "attachments/{} has the content ({} bytes).\n",
        attachment.sha256, attachment.bytes
    );
    Ok(envelope.with_attachment(attachment))
}
