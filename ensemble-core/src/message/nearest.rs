//! The word that a mistyped one was meant to be.

/// The most edits after which a word may still be meant.
const EDITS_MAX: usize = 3;

/// How many insertions, deletions, replacements and swaps of neighbours lead from one name to the other, ignoring case.
fn edits(from: &str, to: &str) -> usize {
    let (from, to) = (from.to_ascii_lowercase(), to.to_ascii_lowercase());
    let (from, to) = (from.as_bytes(), to.as_bytes());
    let mut rows: Vec<Vec<usize>> = vec![(0..=to.len()).collect()];
    for (i, a) in from.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in to.iter().enumerate() {
            let replaced = rows[i][j] + usize::from(a != b);
            let least = replaced.min(rows[i][j + 1] + 1).min(row[j] + 1);
            let is_swap = i > 0 && j > 0 && *a == to[j - 1] && from[i - 1] == *b;
            row.push(if is_swap { least.min(rows[i - 1][j - 1] + 1) } else { least });
        }
        rows.push(row);
    }
    rows[from.len()][to.len()]
}

/// The words that are most like `word`, the best one first.
pub fn nearest<'w>(word: &str, known: impl IntoIterator<Item = &'w str>) -> Vec<&'w str> {
    // Half of a short word may not be another one.
    let limit = EDITS_MAX.min(word.len() / 2);
    let mut near: Vec<(usize, &str)> =
        known.into_iter().map(|other| (edits(word, other), other)).collect();
    near.retain(|(distance, _)| *distance <= limit);
    near.sort_unstable();
    near.into_iter().map(|(_, other)| other).collect()
}

#[cfg(test)]
mod tests {
    use super::{edits, nearest};

    #[test]
    fn edits_between_names() {
        assert_eq!(edits("dispatch", "dispatch"), 0);
        assert_eq!(edits("Dispatch", "dispatch"), 0);
        assert_eq!(edits("dispach", "dispatch"), 1);
        assert_eq!(edits("worker-1", "worker-2"), 1);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("stauts", "status"), 1);
    }

    #[test]
    fn the_nearest_word_comes_first_and_others_are_not_meant() {
        assert_eq!(nearest("stauts", ["pause", "status", "start"]), ["status", "start"]);
        assert_eq!(nearest("claud", ["claude", "codex"]), ["claude"]);
        assert!(nearest("x", ["y", "abc"]).is_empty());
    }
}
