//! The control-mode protocol, read line by line: pure, and never surprised.
//!
//! ```text
//! %begin <time> <number> <flags>     a command's answer begins
//! ...                                its lines, verbatim: whatever stands on a screen
//! %end <time> <number> <flags>       it ends well, or
//! %error <time> <number> <flags>     with a complaint
//! %session-changed <id> <name>       the client is in a session now
//! %exit [reason]                     the client is being sent away
//! %anything else                     a notification
//! ```
//!
//! A screen may itself show a line like `%end 1 2 3`, so a block ends only with the numbers it
//! began with. Blocks with flag 0 answer commands that hooks of the user's configuration have run.

/// The longest line that is kept, in bytes; the rest of a longer one is cut off.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// The most lines of one block that are kept; more are dropped.
const BLOCK_LINES_MAX: usize = 10_000;
/// The flag of a block that answers a command of this client.
const OWN_COMMAND: &str = "1";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Block(AnswerBlock),
    /// The client is in a session, at first because it is attached.
    Attached,
    Exit(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AnswerBlock {
    pub(super) failed: bool,
    pub(super) lines: Vec<String>,
}

/// Reads lines; holds the block that is open.
#[derive(Debug, Default)]
pub(super) struct ControlParser {
    open: Option<OpenBlock>,
}

#[derive(Debug)]
struct OpenBlock {
    /// `<time> <number> <flags>`, as received after `%begin`.
    tag: String,
    lines: Vec<String>,
}

impl ControlParser {
    pub(super) fn line(&mut self, line: &[u8]) -> Option<Event> {
        let line = String::from_utf8_lossy(line.get(..LINE_BYTES_MAX).unwrap_or(line));
        let Some(open) = &mut self.open else { return self.outside(&line) };
        match ending(&line, &open.tag) {
            Some(failed) => self.close(failed),
            None => {
                if open.lines.len() < BLOCK_LINES_MAX {
                    open.lines.push(line.into_owned());
                }
                None
            }
        }
    }

    fn outside(&mut self, line: &str) -> Option<Event> {
        if let Some(tag) = line.strip_prefix("%begin ") {
            self.open = Some(OpenBlock { tag: tag.to_owned(), lines: Vec::new() });
        } else if let Some(reason) = line.strip_prefix("%exit") {
            return Some(Event::Exit(reason.trim().to_owned()));
        } else if line.starts_with("%session-changed ") {
            return Some(Event::Attached);
        }
        None
    }

    fn close(&mut self, failed: bool) -> Option<Event> {
        let OpenBlock { tag, lines } = self.open.take()?;
        let own = tag.rsplit(' ').next() == Some(OWN_COMMAND);
        own.then_some(Event::Block(AnswerBlock { failed, lines }))
    }
}

/// How much is kept of a line, in bytes, and of a block, in lines.
#[cfg(feature = "fuzzing")]
pub(crate) const LIMITS: (usize, usize) = (LINE_BYTES_MAX, BLOCK_LINES_MAX);

/// The events that a control client has parsed from its server's lines.
#[cfg(feature = "fuzzing")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlAnswer {
    /// A command's answer.
    Block {
        failed: bool,
        lines: Vec<String>,
    },
    Exit(String),
}

/// Everything that a server's lines complete.
#[cfg(feature = "fuzzing")]
pub(crate) fn answers(bytes: &[u8]) -> Vec<ControlAnswer> {
    let mut parser = ControlParser::default();
    let events = bytes.split(|byte| *byte == b'\n').filter_map(|line| parser.line(line));
    let answers = events.filter_map(|event| match event {
        Event::Block(AnswerBlock { failed, lines }) => Some(ControlAnswer::Block { failed, lines }),
        Event::Exit(reason) => Some(ControlAnswer::Exit(reason)),
        Event::Attached => None,
    });
    answers.collect()
}

/// Whether `line` ends the block `tag`, and if so whether it failed.
fn ending(line: &str, tag: &str) -> Option<bool> {
    let (word, rest) = line.split_once(' ')?;
    match word {
        "%end" if rest == tag => Some(false),
        "%error" if rest == tag => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Vec<Event> {
        let mut parser = ControlParser::default();
        text.lines().filter_map(|line| parser.line(line.as_bytes())).collect()
    }

    fn block(failed: bool, lines: &[&str]) -> Event {
        Event::Block(AnswerBlock { failed, lines: lines.iter().map(ToString::to_string).collect() })
    }

    #[test]
    fn answers_complaints_and_notifications() {
        let events = read(
            "%begin 9 1 0\n%end 9 1 0\n%session-changed $0 a\n%begin 9 2 1\nhi\n\n%end 9 2 1\n\
             %output %1 x\n%begin 9 3 1\nno such thing\n%error 9 3 1\n%exit server exited\n",
        );
        let expected = [
            Event::Attached,
            block(false, &["hi", ""]),
            block(true, &["no such thing"]),
            Event::Exit("server exited".to_owned()),
        ];
        assert_eq!(events, expected);
    }

    #[test]
    fn a_screen_that_shows_the_protocol_cannot_end_its_block() {
        let screen = ["%end 9 1 1", "%error 9 2 0", "%exit", "%begin 9 2 1", "%end 9 2 1 "];
        let text = format!("%begin 9 2 1\n{}\n%end 9 2 1\n", screen.join("\n"));
        assert_eq!(read(&text), [block(false, &screen)]);
    }

    #[test]
    fn long_lines_and_endless_blocks_are_cut() {
        let mut parser = ControlParser::default();
        parser.line(b"%begin 9 2 1");
        for _ in 0..BLOCK_LINES_MAX + 5 {
            assert_eq!(parser.line(&[b'x'; 10]), None);
        }
        let Some(Event::Block(block)) = parser.line(b"%end 9 2 1") else { panic!("no block") };
        assert_eq!(block.lines.len(), BLOCK_LINES_MAX);
        parser.line(b"%begin 9 3 1");
        parser.line(&vec![b'x'; LINE_BYTES_MAX * 2]);
        let Some(Event::Block(block)) = parser.line(b"%end 9 3 1") else { panic!("no block") };
        assert_eq!(block.lines[0].len(), LINE_BYTES_MAX);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(lines in proptest::collection::vec(any::<Vec<u8>>(), 0..50)) {
            let mut parser = ControlParser::default();
            for line in lines {
                parser.line(&line);
            }
        }

        #[test]
        fn almost_protocol_never_panics(lines in proptest::collection::vec(
            "%(begin|end|error|exit|output)( [0-9]{0,3}){0,4}", 0..50,
        )) {
            read(&lines.join("\n"));
        }
    }
}
