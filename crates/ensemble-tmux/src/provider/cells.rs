//! How many terminal cells a text takes.

/// East Asian wide characters and emoji take two cells. A character this table does not know is
/// counted as one; the worst that comes of it is a nudge that waits, or a table that is not aligned.
const WIDE: [(u32, u32); 12] = [
    (0x1100, 0x115F),
    (0x231A, 0x231B),
    (0x23E9, 0x23EC),
    (0x2E80, 0x303E),
    (0x3041, 0xA4CF),
    (0xAC00, 0xD7A3),
    (0xF900, 0xFAFF),
    (0xFE30, 0xFE6F),
    (0xFF00, 0xFF60),
    (0xFFE0, 0xFFE6),
    (0x1F300, 0x1FAFF),
    (0x20000, 0x3FFFD),
];

/// Combining marks, joiners and variation selectors take none.
const ZERO: [(u32, u32); 4] =
    [(0x0300, 0x036F), (0x200B, 0x200F), (0x20D0, 0x20FF), (0xFE00, 0xFE0F)];

pub fn width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

/// The beginning of `text` that fits into this many cells.
pub fn clipped(text: &str, cells: usize) -> &str {
    let mut taken = 0;
    let end = text.char_indices().find(|(_, c)| {
        taken += char_width(*c);
        taken > cells
    });
    end.map_or(text, |(at, _)| &text[..at])
}

pub fn char_width(c: char) -> usize {
    let within = |table: &[(u32, u32)]| {
        table.iter().any(|(first, last)| (*first..=*last).contains(&u32::from(c)))
    };
    match () {
        () if within(&ZERO) => 0,
        () if within(&WIDE) => 2,
        () => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths() {
        assert_eq!(width("user@h:~$"), 9);
        assert_eq!(width("❯"), 1);
        assert_eq!(width("日本"), 4);
        assert_eq!(width("🚀 e\u{301}"), 4);
        assert_eq!(clipped("日本x", 3), "日");
        assert_eq!(clipped("日本x", 4), "日本");
        assert_eq!(clipped("ab", 4), "ab");
    }
}
