//! What an agent is to read, looked up: `specs/architecture/roles.md#coder` is lines 12 to 40 of a
//! file, or is not there. Sections are named as in links to a heading: lower case, hyphens for
//! blanks, no other punctuation, and `-1` for the second of that name.

use std::collections::HashMap;
use std::path::{Component, Path};

use serde::Serialize;

use crate::durable::{Dir, read_whole};

/// Longer files are not searched for their sections.
const BYTES_MAX: usize = 1024 * 1024;

/// Something to read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Document {
    /// Where it should be: a path below the project, perhaps with `#section`.
    pub place: String,
    /// Why it is to be read.
    pub why: &'static str,
    /// What is there.
    pub found: Found,
}

/// What is at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    /// The whole file.
    Whole,
    /// The section that was asked for.
    Section {
        /// Its heading's line, from 1.
        first: usize,
        /// Its last line.
        last: usize,
    },
    /// The file, but no such section.
    NoSection,
    /// No file in this project that can be read.
    Nothing,
}

impl Document {
    /// Looks for it below `root`.
    pub(super) fn look(root: &Path, place: &str, why: &'static str) -> Self {
        Self { place: place.to_owned(), why, found: find(root, place) }
    }
}

/// As a list; what is missing comes last, in one line.
pub(super) fn listed(documents: &[Document]) -> String {
    let mut lines = Vec::new();
    let mut missing = Vec::new();
    for Document { place, why, found } in documents {
        let place = super::line(place);
        match found {
            Found::Whole => lines.push(format!("- {place}: {why}")),
            Found::Section { first, last } => {
                lines.push(format!("- {place}, lines {first} to {last}: {why}"));
            }
            Found::NoSection => {
                lines.push(format!("- {place}: {why} (no such section; read the file)"));
            }
            Found::Nothing => missing.push(place),
        }
    }
    if lines.is_empty() {
        lines.push("- none".to_owned());
    }
    if !missing.is_empty() {
        lines.push(format!("Not in this project: {}", missing.join(", ")));
    }
    lines.join("\n")
}

fn find(root: &Path, place: &str) -> Found {
    let (path, section) = match place.split_once('#') {
        Some((path, section)) => (path, Some(section)),
        None => (place, None),
    };
    let Some(text) = read(root, path) else { return Found::Nothing };
    match section {
        None => Found::Whole,
        Some(section) => lines_of(&text, section)
            .map_or(Found::NoSection, |(first, last)| Found::Section { first, last }),
    }
}

/// The text of a file of the project. Links are followed as long as they stay in it.
fn read(root: &Path, path: &str) -> Option<String> {
    let relative = Path::new(path);
    if relative.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir)) {
        return None;
    }
    let root = root.canonicalize().ok()?;
    let real = root.join(relative).canonicalize().ok()?;
    let (parent, name) = (real.parent()?, real.file_name()?.to_str()?);
    if !real.starts_with(&root) {
        return None;
    }
    let file = Dir::open(parent).ok()?.open_file(name).ok()??;
    match read_whole(&file, &real, BYTES_MAX) {
        Ok(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        // Too large to be searched, but there.
        Err(_) => Some(String::new()),
    }
}

/// The lines of a section: from its heading to before the next one that is not below it.
fn lines_of(text: &str, section: &str) -> Option<(usize, usize)> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let (mut begun, mut last, mut fence) = (None, 0, None);
    for (at, line) in text.lines().enumerate() {
        let mark = line.trim_start();
        let fenced = ["```", "~~~"].into_iter().find(|fence| mark.starts_with(fence));
        match (fence, fenced) {
            (None, Some(_)) => fence = fenced,
            (Some(open), Some(mark)) if open == mark => fence = None,
            _ => {}
        }
        let heading = fence.is_none().then(|| heading(line)).flatten();
        match (begun, heading) {
            (None, Some((level, title))) => {
                let slug = slug(title);
                let number = seen.entry(slug.clone()).or_default();
                let name = if *number == 0 { slug } else { format!("{slug}-{number}") };
                *number += 1;
                if name == section {
                    begun = Some((at + 1, level));
                }
            }
            (Some((_, level)), Some((other, _))) if other <= level => break,
            _ => {}
        }
        if begun.is_some() && !line.trim().is_empty() {
            last = at + 1;
        }
    }
    begun.map(|(first, _)| (first, last))
}

fn heading(line: &str) -> Option<(usize, &str)> {
    let level = line.bytes().take_while(|byte| *byte == b'#').count();
    let title = line.get(level..)?.strip_prefix([' ', '\t'])?;
    (1..=6).contains(&level).then(|| (level, title.trim().trim_end_matches('#').trim_end()))
}

fn slug(title: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let hyphen = |c: char| if c == ' ' { '-' } else { c };
    title.chars().filter(kept).map(hyphen).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLES: &str = "\
# Roles

## Coder (who writes)
writes
```sh
# no heading
```
### Tools

## Code Reviewer ##
reads

## Coder (who writes)
again
";

    #[test]
    fn a_section_is_found_by_the_name_of_a_link() {
        assert_eq!(lines_of(ROLES, "coder-who-writes"), Some((3, 8)));
        assert_eq!(lines_of(ROLES, "tools"), Some((8, 8)));
        assert_eq!(lines_of(ROLES, "code-reviewer"), Some((10, 11)));
        assert_eq!(lines_of(ROLES, "coder-who-writes-1"), Some((13, 14)));
        assert_eq!(lines_of(ROLES, "roles"), Some((1, 14)));
        assert_eq!(lines_of(ROLES, "no-heading"), None);
        assert_eq!(lines_of("#planner\n", "planner"), None);
    }

    #[test]
    fn only_files_of_the_project_are_found() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().join("project");
        std::fs::create_dir_all(root.join("specs")).unwrap();
        std::fs::write(root.join("specs/roles.md"), ROLES).unwrap();
        std::fs::write(home.path().join("other.md"), ROLES).unwrap();
        std::os::unix::fs::symlink("../other.md", root.join("link.md")).unwrap();
        assert_eq!(find(&root, "specs/roles.md"), Found::Whole);
        assert_eq!(find(&root, "specs/roles.md#roles"), Found::Section { first: 1, last: 14 });
        assert_eq!(find(&root, "specs/roles.md#boss"), Found::NoSection);
        for place in ["specs", "specs/none.md", "../other.md", "link.md", "/etc/passwd", ""] {
            assert_eq!(find(&root, place), Found::Nothing, "{place}");
        }
    }
}
