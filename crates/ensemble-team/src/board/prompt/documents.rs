//! Looks up the documents that an agent must read. `specs/architecture/roles.md#coder` is lines 12
//! to 40 of a file, or is missing. Sections are named as in links to a heading: lower case, hyphens
//! for blanks, no other punctuation. The second heading of a name gets `-1`.

use std::collections::HashMap;
use std::path::{Component, Path};

use serde::Serialize;

use ensemble_core::durable::{Dir, read_whole};

const BYTES_MAX: usize = 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RequiredDocument {
    /// Path of the document below the project, optionally with `#section`.
    pub place: String,
    pub why: &'static str,
    pub found: DocumentMatch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DocumentMatch {
    Whole,
    Section {
        /// Line of its heading, starting at 1.
        first: usize,
        last: usize,
    },
    NoSection,
    Nothing,
}

/// Lists documents; missing ones come last, on one line.
pub(super) fn listed(documents: &[RequiredDocument]) -> String {
    let mut lines = Vec::new();
    let mut missing = Vec::new();
    for RequiredDocument { place, why, found } in documents {
        let place = super::line(place);
        match found {
            DocumentMatch::Whole => lines.push(format!("- {place}: {why}")),
            DocumentMatch::Section { first, last } => {
                lines.push(format!("- {place}, lines {first} to {last}: {why}"));
            }
            DocumentMatch::NoSection => {
                lines.push(format!("- {place}: {why} (no such section; read the file)"));
            }
            DocumentMatch::Nothing => missing.push(place),
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

/// Looks a document up below `root`.
pub(super) fn find(root: &Path, place: &str) -> DocumentMatch {
    let (path, section) = place.split_once('#').unzip();
    let Some(text) = read(root, path.unwrap_or(place)) else { return DocumentMatch::Nothing };
    match section.map(|section| lines_of(&text, section)) {
        None => DocumentMatch::Whole,
        Some(None) => DocumentMatch::NoSection,
        Some(Some((first, last))) => DocumentMatch::Section { first, last },
    }
}

/// The text of a project's file. Links are followed only within the project.
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
        // The file exists but is too large to search.
        Err(_) => Some(String::new()),
    }
}

/// The lines of a section: from its heading to the next heading of the same or a higher level.
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
    fn link_names_find_sections() {
        assert_eq!(lines_of(ROLES, "coder-who-writes"), Some((3, 8)));
        assert_eq!(lines_of(ROLES, "tools"), Some((8, 8)));
        assert_eq!(lines_of(ROLES, "code-reviewer"), Some((10, 11)));
        assert_eq!(lines_of(ROLES, "coder-who-writes-1"), Some((13, 14)));
        assert_eq!(lines_of(ROLES, "roles"), Some((1, 14)));
        assert_eq!(lines_of(ROLES, "no-heading"), None);
        assert_eq!(lines_of("#planner\n", "planner"), None);
    }

    #[test]
    fn files_outside_the_project_are_not_found() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().join("project");
        std::fs::create_dir_all(root.join("specs")).unwrap();
        std::fs::write(root.join("specs/roles.md"), ROLES).unwrap();
        std::fs::write(home.path().join("other.md"), ROLES).unwrap();
        std::os::unix::fs::symlink("../other.md", root.join("link.md")).unwrap();
        assert_eq!(find(&root, "specs/roles.md"), DocumentMatch::Whole);
        let all = DocumentMatch::Section { first: 1, last: 14 };
        assert_eq!(find(&root, "specs/roles.md#roles"), all);
        assert_eq!(find(&root, "specs/roles.md#boss"), DocumentMatch::NoSection);
        for place in ["specs", "specs/none.md", "../other.md", "link.md", "/etc/passwd", ""] {
            assert_eq!(find(&root, place), DocumentMatch::Nothing, "{place}");
        }
    }
}
