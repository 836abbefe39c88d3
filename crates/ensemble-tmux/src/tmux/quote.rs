//! One argument inside a tmux command line.

/// Quotes `text` so that tmux takes it as one argument, verbatim. Formats (`#{…}`) in it are still
/// expanded by commands that expand their argument.
///
/// Single quotes know no escapes and no variables; a single quote itself is in double ones.
pub(super) fn quote(text: &str) -> String {
    let parts: Vec<String> = text.split('\'').map(|part| format!("'{part}'")).collect();
    parts.join("\"'\"")
}

/// Whether `text` may be part of a command line at all: a newline would end the line, other
/// control characters would be keys.
pub(super) fn is_one_line(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_stay_inside() {
        assert_eq!(quote("a b;"), "'a b;'");
        assert_eq!(quote("it's"), "'it'\"'\"'s'");
        assert_eq!(quote(""), "''");
    }

    #[test]
    fn control_characters_are_seen() {
        assert!(is_one_line("echo $HOME; ls | wc"));
        assert!(!is_one_line("a\nb"));
        assert!(!is_one_line("a\u{9b}b"));
    }
}
