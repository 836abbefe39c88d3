use std::cell::RefCell;
use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal as _, Stdout, Write};

use anstyle::Style;
use ensemble_app::failure::Outcome;
use ensemble_app::text::{CELL_WIDTH_MAX, printable, printable_json, table};
use serde::Serialize;

/// For ids and names.
pub(crate) const STRONG: Style = Style::new().bold();
/// For what matters less.
pub(crate) const FAINT: Style = Style::new().dimmed();
/// For what went well.
pub(crate) const GOOD: Style = anstyle::AnsiColor::Green.on_default();
/// For what a person should look at.
pub(crate) const WARNING: Style = anstyle::AnsiColor::Yellow.on_default();
pub(crate) const BAD: Style = anstyle::AnsiColor::Red.on_default();

#[derive(Debug)]
pub(crate) struct Output {
    is_json: bool,
    is_terminal: bool,
    is_coloured: bool,
    stdout: RefCell<OutputSink>,
}

#[derive(Debug)]
enum OutputSink {
    Stdout(BufWriter<Stdout>),
    /// Kept for the caller of the verb.
    Kept(Vec<u8>),
}

impl Write for OutputSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stdout(stdout) => stdout.write(bytes),
            Self::Kept(kept) => kept.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stdout(stdout) => stdout.flush(),
            Self::Kept(_) => Ok(()),
        }
    }
}

impl Output {
    pub(crate) fn new(is_json: bool) -> Self {
        let stdout = io::stdout();
        Self {
            is_json,
            is_terminal: stdout.is_terminal(),
            is_coloured: anstream::AutoStream::choice(&stdout) != anstream::ColorChoice::Never,
            stdout: RefCell::new(OutputSink::Stdout(BufWriter::new(stdout))),
        }
    }

    pub(crate) const fn kept() -> Self {
        let stdout = RefCell::new(OutputSink::Kept(Vec::new()));
        Self { is_json: true, is_terminal: false, is_coloured: false, stdout }
    }

    pub(crate) fn take_output(&self) -> Vec<u8> {
        match &mut *self.stdout.borrow_mut() {
            OutputSink::Stdout(_) => Vec::new(),
            OutputSink::Kept(kept) => std::mem::take(kept),
        }
    }

    pub(crate) const fn is_json(&self) -> bool {
        self.is_json
    }

    pub(crate) const fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// A line for people. Text from outside must have been passed through [`ensemble_app::text::one_line`] before.
    pub(crate) fn line(&self, line: impl Display) -> Outcome {
        Ok(writeln!(self.stdout.borrow_mut(), "{line}")?)
    }

    pub(crate) fn object(&self, object: &impl Serialize) -> Outcome {
        let json = serde_json::to_string(object).map_err(io::Error::from)?;
        self.line(if self.is_terminal { printable_json(&json) } else { json.into() })
    }

    pub(crate) fn print_answer(&self, object: &impl Serialize, line: impl Display) -> Outcome {
        if self.is_json { self.object(object) } else { self.line(line) }
    }

    /// The same with a text as it is.
    pub(crate) fn print_text(&self, object: &impl Serialize, text: &str) -> Outcome {
        if self.is_json { self.object(object) } else { self.content(text.as_bytes()) }
    }

    pub(crate) fn print_list<T: Serialize>(
        &self,
        items: &[T],
        heading: &[&str],
        row: impl Fn(&T) -> Vec<String>,
    ) -> Outcome {
        match self.is_json {
            true => items.iter().try_for_each(|item| self.object(item)),
            false => self.table(heading, items.iter().map(row).collect()),
        }
    }

    /// Bytes as they are, or made harmless if a terminal would act upon them.
    pub(crate) fn content(&self, content: &[u8]) -> Outcome {
        let mut stdout = self.stdout.borrow_mut();
        if self.is_terminal {
            let text = String::from_utf8_lossy(content);
            Ok(stdout.write_all(printable(&text).as_bytes())?)
        } else {
            Ok(stdout.write_all(content)?)
        }
    }

    pub(crate) fn flush(&self) -> Outcome {
        Ok(ensemble_app::wait_line::aside(|| self.stdout.borrow_mut().flush())?)
    }

    pub(crate) fn paint(&self, style: Style, text: impl Display) -> String {
        if self.is_coloured { format!("{style}{text}{style:#}") } else { text.to_string() }
    }

    /// Lines with aligned columns under a faint heading, or `none`.
    pub(crate) fn table(&self, heading: &[&str], rows: Vec<Vec<String>>) -> Outcome {
        if rows.is_empty() {
            return self.line("none");
        }
        self.styled_table(heading, rows.into_iter().map(|row| (Style::new(), row)).collect())
    }

    pub(crate) fn styled_table(
        &self,
        heading: &[&str],
        rows: Vec<(Style, Vec<String>)>,
    ) -> Outcome {
        let head = heading.iter().map(|&column| column.to_owned()).collect();
        let (styles, cells): (Vec<Style>, Vec<Vec<String>>) =
            std::iter::once((FAINT, head)).chain(rows).unzip();
        // A pipe gets everything.
        let cell_max = if self.is_terminal { CELL_WIDTH_MAX } else { usize::MAX };
        let lines = table(&cells, cell_max).into_iter().zip(styles);
        lines.into_iter().try_for_each(|(line, style)| self.line(self.paint(style, line)))
    }
}
