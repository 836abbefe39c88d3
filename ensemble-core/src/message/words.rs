//! Words for people and shells: the first of a message, for people who look at many, and a command's.

use std::path::Path;

use super::Envelope;
use super::canonical::is_plain;

/// Quotes a path for `sh -c`.
pub fn shell_quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', r"'\''"))
}

/// A word for a shell, quoted if it needs to be.
pub fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./+-@:,%=".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        shell_quoted(Path::new(text))
    }
}

/// Whether a character could deceive the reader of a terminal: it moves the cursor, turns the direction of writing, or
/// is not shown. Line ends and tabs are among them.
pub fn is_deceiving(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg_attr(not(feature = "internals"), doc(hidden))]
impl Envelope {
    /// The beginning of the body in one line, of at most `chars_max` characters. Runs of white space become one blank,
    /// and characters that could steer a terminal are left out.
    #[must_use]
    pub fn first_words(&self, chars_max: usize) -> String {
        let mut words = String::new();
        let mut left = chars_max;
        for word in self.body.split_whitespace() {
            let plain = word.chars().filter(|c| is_plain(*c));
            let gap = (!words.is_empty()).then_some(' ');
            for character in gap.into_iter().chain(plain) {
                if left == 0 {
                    words.pop();
                    words.push('…');
                    return words;
                }
                words.push(character);
                left -= 1;
            }
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Name;

    #[test]
    fn a_body_is_shown_by_its_first_words_in_one_line() {
        let words = |body: &str, max| Envelope::new(Name::operator(), body).first_words(max);
        assert_eq!(words("42 lines\n\tin main.rs\n", 40), "42 lines in main.rs");
        assert_eq!(words("42 lines in main.rs", 9), "42 lines…");
        assert_eq!(words("42 lines", 8), "42 lines");
        assert_eq!(words("a\u{1b}[31m b\u{202e}c", 40), "a[31m bc");
        assert_eq!(words(" \n", 40), "");
    }

    #[test]
    fn a_path_is_quoted_only_where_a_shell_would_read_it() {
        assert_eq!(shell_word("/opt/a-b/claude"), "/opt/a-b/claude");
        assert_eq!(shell_word("/opt/a b/it's"), r"'/opt/a b/it'\''s'");
        assert_eq!(shell_word(""), "''");
    }

    #[test]
    fn a_quoted_path_stays_one_word() {
        let word = shell_quoted(Path::new("/tmp/it's \"a\" $(path)"));
        let echo =
            std::process::Command::new("sh").args(["-c", &format!("printf %s {word}")]).output();
        assert_eq!(String::from_utf8(echo.unwrap().stdout).unwrap(), "/tmp/it's \"a\" $(path)");
    }
}
