//! Shortens the strings of an agent's screen for our own copy of it.
//!
//! An operating system command (`ESC ]`, such as a title) has no length, and the parser of the screen keeps all of it
//! until it ends. An agent that never ends one would fill the memory. The person's terminal gets every byte.

/// How much of one command is parsed, in bytes: more than any title or link needs.
const COMMAND_BYTES_MAX: usize = 64 * 1024;

const BELL: u8 = 0x07;
const CANCEL: u8 = 0x18;
const SUBSTITUTE: u8 = 0x1a;
const ESCAPE: u8 = 0x1b;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum CommandLimit {
    #[default]
    Text,
    Escape,
    /// In a command, of which this many bytes have come.
    Command(usize),
}

impl CommandLimit {
    pub(super) fn shorten(&mut self, bytes: &[u8]) -> Vec<u8> {
        bytes.iter().copied().filter(|byte| self.passes(*byte)).collect()
    }

    fn passes(&mut self, byte: u8) -> bool {
        let (next, passes) = match (&*self, byte) {
            (_, ESCAPE) => (Self::Escape, true),
            (Self::Escape, b']') => (Self::Command(0), true),
            (Self::Command(_), BELL | CANCEL | SUBSTITUTE) => (Self::Text, true),
            (Self::Command(length), _) => {
                (Self::Command(length.saturating_add(1)), *length < COMMAND_BYTES_MAX)
            }
            (Self::Text | Self::Escape, _) => (Self::Text, true),
        };
        *self = next;
        passes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_without_an_end_is_cut_and_what_follows_it_is_not() {
        let mut limit = CommandLimit::default();
        let long = [b"\x1b]0;".as_slice(), &vec![b'x'; 3 * COMMAND_BYTES_MAX]].concat();
        let mut passed = 0;
        for chunk in long.chunks(1000) {
            passed += limit.shorten(chunk).len();
        }
        assert_eq!(passed, 2 + COMMAND_BYTES_MAX);
        assert_eq!(limit.shorten(b"yy\x07text\x1b[1m"), b"\x07text\x1b[1m");
    }

    #[test]
    fn ordinary_output_passes_whole() {
        let mut limit = CommandLimit::default();
        let text = b"a\x1b]0;title\x1b\\b\x1b[31m]c\x1bP1;2q\x1b\\".repeat(10_000);
        let passed: Vec<u8> = text.chunks(7).flat_map(|chunk| limit.shorten(chunk)).collect();
        assert!(passed == text);
    }
}
