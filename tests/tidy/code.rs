//! Just enough of Rust's grammar to distinguish code from text and to find where functions end.

/// What a part of a source file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Code,
    Comment,
    /// A text, with its quotes, or a character.
    Literal,
}

/// The parts of a source file, in their order.
pub(crate) fn parts(source: &str) -> Vec<(Kind, &str)> {
    let (mut parts, mut code, mut at) = (Vec::new(), 0, 0);
    while let Some(before) = source[at..].find(['/', '"', 'r', '\'']) {
        at += before;
        let Some(length) = text_at(&source[at..], &source[code..at]) else {
            at += 1;
            continue;
        };
        let is_comment = source[at..].starts_with('/');
        let kind = if is_comment { Kind::Comment } else { Kind::Literal };
        parts.extend([(Kind::Code, &source[code..at]), (kind, &source[at..at + length])]);
        at += length;
        code = at;
    }
    parts.push((Kind::Code, &source[code..]));
    parts
}

/// The code with comments and everything in quotes blanked out, its lines where they were.
pub(crate) fn without_text(source: &str) -> String {
    let blank = |text: &str| text.chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
    let part = |(kind, text): (Kind, &str)| match kind {
        Kind::Code => text.to_owned(),
        Kind::Comment | Kind::Literal => blank(text),
    };
    parts(source).into_iter().map(part).collect()
}

/// How long the comment or the literal is that begins here, if one does.
fn text_at(rest: &str, before: &str) -> Option<usize> {
    let within_word = before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if let Some(comment) = rest.strip_prefix("/*") {
        return Some(comment.find("*/").map_or(rest.len(), |end| end + 4));
    }
    if let Some(literal) = rest.strip_prefix('"') {
        return Some(1 + closing(literal, '"'));
    }
    if let Some(raw) = rest.strip_prefix('r').filter(|_| !within_word || before.ends_with('b')) {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            let body = &raw[hashes + 1..];
            return Some(body.find(&end).map_or(rest.len(), |at| hashes + 2 + at + end.len()));
        }
    }
    // A character, unless it is a lifetime.
    let literal = rest.strip_prefix('\'')?;
    let mut characters = literal.chars();
    match (characters.next()?, characters.next()?) {
        ('\\', _) => Some(1 + closing(literal, '\'')),
        (character, '\'') => Some(2 + character.len_utf8()),
        _ => None,
    }
}

/// The length up to and with the closing quote.
fn closing(literal: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in literal.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    literal.len()
}

pub(crate) struct Function {
    /// Its first line, from 1.
    pub(crate) at: usize,
    /// From `fn` to the closing brace.
    pub(crate) lines: usize,
}

/// The functions of a file, by counting braces.
pub(crate) fn functions(code: &str) -> impl Iterator<Item = Function> {
    code.match_indices("fn ")
        .filter(|(at, _)| !code[..*at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_'))
        .filter_map(|(at, _)| {
            let body = at + code[at..].find(['{', ';'])?;
            let lines = code[at..=body + end_of_block(&code[body..])?].lines().count();
            Some(Function { at: code[..at].matches('\n').count() + 1, lines })
        })
}

fn end_of_block(code: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in code.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

#[test]
fn text_is_told_from_code() {
    let source = "fn a<'x>() { // {\n \"}\\\"{\"; r#\"{\"{\"#; b'{'; '\\''; '{'; }\nfn b();\n";
    let code = without_text(source);
    assert_eq!(code.matches(['{', '}']).count(), 2, "{code}");
    let lengths: Vec<_> = functions(&code).map(|f| (f.at, f.lines)).collect();
    assert_eq!(lengths, [(1, 2), (3, 1)]);
}
