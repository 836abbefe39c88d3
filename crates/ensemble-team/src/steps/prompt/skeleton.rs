//! The skeleton of a large text: its lines that declare something, in any language.

use std::fmt::Write as _;

const WORDS: [&str; 34] = [
    "fn",
    "pub",
    "struct",
    "enum",
    "trait",
    "impl",
    "mod",
    "type",
    "const",
    "static",
    "macro_rules!",
    "class",
    "def",
    "async",
    "function",
    "export",
    "interface",
    "namespace",
    "func",
    "package",
    "public",
    "private",
    "protected",
    "abstract",
    "final",
    "module",
    "record",
    "object",
    "val",
    "template",
    "CREATE",
    "describe(",
    "it(",
    "test(",
];
/// Deepest indentation of a declaration, in columns.
const INDENTATION_MAX: usize = 8;
/// Number of first lines that are shown of a text without declarations.
const HEAD_LINES: usize = 40;
/// Longest line, in characters; longer ones are cut.
const LINE_CHARS_MAX: usize = 200;

/// The skeleton, of at most `bytes_max` bytes: declaring lines with their numbers, and the number
/// of lines between them.
pub(super) fn of(text: &str, bytes_max: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut kept: Vec<usize> = (0..lines.len()).filter(|&at| declares(lines[at])).collect();
    if kept.is_empty() {
        kept = (0..lines.len().min(HEAD_LINES)).collect();
    }
    let mut skeleton = String::new();
    let mut next = 0;
    for at in kept {
        let mut piece = String::new();
        gap(&mut piece, at - next);
        let line: String = lines[at].chars().take(LINE_CHARS_MAX).collect();
        let _ = writeln!(piece, "{:>5}: {}", at + 1, line.trim_end());
        if skeleton.len() + piece.len() > bytes_max {
            break;
        }
        skeleton.push_str(&piece);
        next = at + 1;
    }
    gap(&mut skeleton, lines.len() - next);
    skeleton
}

fn gap(text: &mut String, lines: usize) {
    match lines {
        0 => {}
        1 => text.push_str("       … 1 line\n"),
        _ => drop(writeln!(text, "       … {lines} lines")),
    }
}

fn declares(line: &str) -> bool {
    let code = line.trim_start();
    if line.len() - code.len() > INDENTATION_MAX {
        return false;
    }
    // Headings of Markdown, but not attributes or includes.
    if code.starts_with('#') {
        return code.trim_start_matches('#').starts_with(' ');
    }
    WORDS.iter().any(|word| {
        let rest = code.strip_prefix(word);
        rest.is_some_and(|rest| word.ends_with('(') || rest.starts_with([' ', '(', '<']))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_keep_their_line_numbers() {
        let text =
            "//! doc\n\npub fn one() {\n    let x = 1;\n}\n\nimpl A {\n    fn two(&self) {}\n}\n";
        let expected = "       … 2 lines\n    3: pub fn one() {\n       … 3 lines\n    7: impl A {\n    \
                        8:     fn two(&self) {}\n       … 1 line\n";
        assert_eq!(of(text, 1_000), expected);
        assert_eq!(of("# A\ntext\n## B\n", 1_000), "    1: # A\n       … 1 line\n    3: ## B\n");
    }

    #[test]
    fn text_without_declarations_shows_its_head_within_the_limit() {
        let text = "1,2,3\n".repeat(1_000);
        let skeleton = of(&text, 100_000);
        assert!(skeleton.starts_with("    1: 1,2,3\n") && skeleton.ends_with("… 960 lines\n"));
        let text = "fn f() {}\n".repeat(10_000);
        assert!(of(&text, 500).len() < 550);
    }
}
