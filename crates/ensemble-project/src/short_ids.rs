//! Ids as people read and type them: their shortest beginnings that mean one of them.

use std::collections::BTreeSet;
use std::ops::Bound;

/// The shortest beginning that is shown: the time of an id that we made, in milliseconds. A shorter one would soon mean
/// several ids, for all of a minute begin alike.
pub const SHOWN_CHARS_MIN: usize = 13;

/// The ids among which a beginning must be unique: all that the next command would look through.
#[derive(Clone, Debug, Default)]
pub struct ShortIds(BTreeSet<String>);

impl ShortIds {
    /// The shortest beginning of an id that no other of them has. An id that is the beginning of another is whole.
    pub fn shorten<'i>(&self, id: &'i str) -> &'i str {
        let before = self.0.range::<str, _>((Bound::Unbounded, Bound::Excluded(id))).next_back();
        let after = self.0.range::<str, _>((Bound::Excluded(id), Bound::Unbounded)).next();
        let common = |other: &String| {
            id.chars().zip(other.chars()).take_while(|(one, other)| one == other).count()
        };
        let needed =
            before.into_iter().chain(after).map(common).max().map_or(0, |common| common + 1);
        let end = id.char_indices().nth(needed.max(SHOWN_CHARS_MIN));
        end.map_or(id, |(at, _)| &id[..at])
    }
}

impl<I: Into<String>> FromIterator<I> for ShortIds {
    fn from_iter<T: IntoIterator<Item = I>>(ids: T) -> Self {
        Self(ids.into_iter().map(Into::into).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_beginning_means_one_id() {
        let one = "01a217d5-8fcd-7269-8d43-fa96e245f583";
        let short = |others: &[&str]| {
            let all: ShortIds = others.iter().copied().chain([one]).collect();
            all.shorten(one).to_owned()
        };
        assert_eq!(short(&[]), "01a217d5-8fcd");
        assert_eq!(short(&["01a217d5-8fce-7269-8d43-fa96e245f583"]), "01a217d5-8fcd");
        assert_eq!(short(&["01a217d5-8fcd-7269-8d43-000000000000", "0"]), &one[..25]);
        assert_eq!(short(&["01a217d5-8fcd-7269-8d43-fa96e245f583.remind-1"]), one);
        let own: ShortIds = ["a-name-of-the-senders-own-choice"].into_iter().collect();
        assert_eq!(own.shorten("a-name"), "a-name");
    }
}
