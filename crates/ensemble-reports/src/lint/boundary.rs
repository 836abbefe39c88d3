//! Word boundaries in each language, and whether a match is a word there.

use super::words::{WordGuard, listed};

/// How much text around a word is searched for its sentence or token, in characters.
pub(super) const NEIGHBOURHOOD: usize = 300;

pub(super) fn is_word(text: &str, start: usize, end: usize, guard: WordGuard) -> bool {
    let before = text[..start].chars().next_back();
    let after = text[end..].chars().next();
    let word = &text[start..end];
    if word.starts_with(|c: char| c.is_ascii_alphanumeric())
        && (before.is_some_and(is_latin) || is_in_token(text, start, end))
    {
        return false;
    }
    if word.ends_with(|c: char| c.is_ascii_alphanumeric())
        && (after.is_some_and(is_latin) || is_in_token(text, start, end))
    {
        return false;
    }
    // Within a sentence it is Rust's or another language's.
    if word == "Some" && !begins_sentence(&text[..start]) {
        return false;
    }
    match guard {
        WordGuard::None => true,
        WordGuard::NumberAfter => number_follows(&text[end..]),
        WordGuard::NumberBefore => last_char(&text[..start]).is_some_and(is_number_or_unit),
        WordGuard::ThingsAfter => things_follow(&text[..start], &text[end..]),
        WordGuard::NotAfter(those) => !before.is_some_and(|c| those.contains(c)),
        WordGuard::NotBefore(those) => !those.iter().any(|other| text[end..].starts_with(other)),
    }
}

fn begins_sentence(before: &str) -> bool {
    last_char(before).is_none_or(|last| !last.is_alphanumeric() && last != ',')
        && !before.ends_with("::")
}

fn last_char(before: &str) -> Option<char> {
    before.trim_end_matches(' ').chars().next_back()
}

/// Whether a character continues a Latin word. Chinese and Japanese have no such boundary.
fn is_latin(c: char) -> bool {
    c == '_' || (c.is_alphanumeric() && !is_cjk(c))
}

pub(super) const fn is_cjk(c: char) -> bool {
    matches!(c, '\u{3005}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}'
        | '\u{f900}'..='\u{faff}' | '\u{ff66}'..='\u{ff9f}' | '\u{20000}'..='\u{3ffff}')
}

pub(super) const fn is_kana(c: char) -> bool {
    matches!(c, '\u{3041}'..='\u{309f}' | '\u{30a1}'..='\u{30ff}' | '\u{ff66}'..='\u{ff9f}')
}

/// Whether the match is part of a path, an option, a compound or an identifier.
fn is_in_token(text: &str, start: usize, end: usize) -> bool {
    let before = text[..start].chars().next_back();
    let mut after = text[end..].chars();
    let (next, next_but_one) = (after.next(), after.next());
    let goes_on = next_but_one.is_some_and(is_latin);
    if matches!(before, Some('-' | '.' | '@' | '#' | '\\' | '$' | '=' | '<')) {
        return true;
    }
    if matches!(next, Some('-' | '.' | '@' | '=' | ':' | '(' | '\\')) && goes_on {
        return true;
    }
    // A path has several slashes, a dot or a digit, so `and/or` is not a path.
    if before != Some('/') && next != Some('/') {
        return false;
    }
    let from = text[..start].char_indices().rev().take(NEIGHBOURHOOD);
    let from = from.take_while(|(_, c)| !c.is_whitespace()).last().map_or(start, |(at, _)| at);
    let token = &text[from..token_end(text, end)];
    token.matches('/').count() > 1 || token.contains(['.', '_', '~']) || token.starts_with('/')
}

pub(super) fn token_end(text: &str, from: usize) -> usize {
    let rest = text[from..].char_indices().take(NEIGHBOURHOOD * 8);
    let inside =
        rest.take_while(|(_, c)| !c.is_whitespace() && !is_cjk(*c) && !"<>\"`".contains(*c));
    inside.last().map_or(from, |(at, c)| from + at + c.len_utf8())
}

/// Number words that may follow a hedge.
const NUMBER_WORDS: &str = "\
    half, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve, twenty, \
    thirty, forty, fifty, a hundred, a thousand, a dozen, a third";

fn number_follows(rest: &str) -> bool {
    let rest = rest.trim_start_matches([' ', '~', '$', '€', '\n']);
    let is_number = |word: &str| {
        rest.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word))
            && !rest[word.len()..].starts_with(is_latin)
    };
    rest.starts_with(|c: char| c.is_ascii_digit()) || listed(NUMBER_WORDS).any(is_number)
}

fn things_follow(before: &str, rest: &str) -> bool {
    let last = before.split_whitespace().next_back().unwrap_or_default().to_ascii_lowercase();
    let next = rest.trim_start().split(|c: char| !c.is_ascii_alphabetic()).next();
    let is_plural = |word: &str| word == "of" || word.ends_with('s') && !word.ends_with("ss");
    !matches!(&*last, "the" | "at") && next.is_some_and(is_plural)
}

fn is_number_or_unit(c: char) -> bool {
    c.is_ascii_digit()
        || "%％一二三四五六七八九十百千万个個件次条條行秒分钟鐘时時天点點倍度岁歲元".contains(c)
}

/// Characters that only simplified Chinese has.
pub(super) const SIMPLIFIED: &str = "这们说对时没个为发问题开关见长门马车东书话认识请让还过进远连达运动应该确错误测试务报则规观现显变边过实际总结组织统计线级纯纳给绝续缓编缩网络处备复头买卖";
