//! Links of pages lead somewhere, headings included, each page is plain Markdown, and the book lists each, some
//! twenty for users and the others below them.

use std::path::Component;

use crate::*;

const SUMMARY: &str = "docs/SUMMARY.md";
/// Texts about other projects, and samples of vague reports.
const SAMPLES: [&str; 2] = ["tests/team/lint/", "tests/fixtures/"];
/// Files that name pages in their texts.
const NAMING: [&str; 7] = [".rs", ".md", ".sh", ".py", ".yaml", ".toml", "Makefile"];
/// Pages that examples of reports and plans name, and that exist nowhere.
const IMAGINED: [&str; 3] = ["docs/api.md", "docs/release.md", "docs/tests.md"];

/// The lines of a page outside of blocks of code.
fn prose(page: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_fence = false;
    (1..).zip(page.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_fence ^= is_fence;
        !in_fence && !is_fence
    })
}

fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next())
}

/// The name by which a link finds a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter_map(|c| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
        _ => None,
    });
    kept.flat_map(char::to_lowercase).collect()
}

fn anchors(page: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (_, line) in prose(page) {
        if let Some(heading) = line.strip_prefix('#') {
            found.insert(anchor(heading.trim_start_matches('#')));
        }
        let ids = line.split("<a id=\"").skip(1).filter_map(|rest| rest.split('"').next());
        found.extend(ids.map(str::to_owned));
    }
    found
}

/// A path below the repository, as seen from a page.
fn below(page: &str, path: &str) -> PathBuf {
    let mut at = Path::new(page).parent().unwrap().to_owned();
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir => assert!(at.pop(), "{page}: {path} leaves the repository"),
            part => at.push(part),
        }
    }
    at
}

fn fault(page: &str, target: &str) -> Option<String> {
    let (path, heading) = target.split_once('#').unwrap_or((target, ""));
    if path.contains(':') {
        return None;
    }
    let file = if path.is_empty() { PathBuf::from(page) } else { below(page, path) };
    let full = root().join(&file);
    if !full.exists() {
        return Some(format!("there is no {}", file.display()));
    }
    let text = || std::fs::read_to_string(&full).unwrap_or_default();
    (!heading.is_empty() && !anchors(&text()).contains(heading))
        .then(|| format!("{} has no heading {heading}", file.display()))
}

#[test]
fn links_lead_somewhere() {
    let (mut broken, mut count) = (Vec::new(), 0);
    for (page, text) in files(&[".md"]) {
        for (number, line) in prose(&text) {
            for target in targets(line) {
                count += 1;
                let fault = fault(&page, target);
                broken.extend(fault.map(|fault| format!("{page}:{number}: {target}: {fault}")));
            }
        }
    }
    assert!(count > 200, "this test looks in the wrong place: {count}");
    assert_none("a broken link", &broken);
}

#[test]
fn pages_that_texts_name_exist() {
    let mut missing = Vec::new();
    for (path, text) in files(&NAMING) {
        if SAMPLES.iter().any(|samples| path.starts_with(samples)) || path.ends_with("links.rs") {
            continue;
        }
        for (at, _) in text.match_indices("docs/") {
            let is_name = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
            let name: String = text[at..].chars().take_while(|c| is_name(*c)).collect();
            let name = name.trim_end_matches('.');
            let starts = text[..at].chars().next_back().is_none_or(|c| !is_name(c));
            if starts
                && name.ends_with(".md")
                && !IMAGINED.contains(&name)
                && !root().join(name).exists()
            {
                missing.push(format!("{path}: {name}"));
            }
        }
    }
    assert_none("a page that does not exist", &missing);
}

/// Tags by which mdBook puts other files into a page. Elsewhere a reader would see the tag itself.
const TAG_START: &str = "{{#";
/// A page with fewer lines only leads to another one.
const PAGE_LINES_MIN: usize = 10;

#[test]
fn each_page_is_complete_as_plain_markdown() {
    let mut found = Vec::new();
    for (page, text) in files(&[".md"]) {
        if text.contains(TAG_START) {
            found.push(format!("{page}: has `{TAG_START}`"));
        }
        if page.starts_with("docs/") && text.lines().count() < PAGE_LINES_MIN {
            found.push(format!("{page}: leads only to another page"));
        }
    }
    assert_none("a page that is not complete", &found);
}

/// The most pages that the book shows before one of them is unfolded.
const BOOK_PAGES_MAX: usize = 27;

#[test]
fn the_book_shows_few_pages_and_lists_each_once() {
    let summary = std::fs::read_to_string(root().join(SUMMARY)).unwrap();
    let shown = summary.lines().filter(|line| line.starts_with(['-', '['])).count();
    assert!(shown <= BOOK_PAGES_MAX, "the book shows {shown} pages at first sight");
    let listed: Vec<String> = prose(&summary)
        .flat_map(|(_, line)| targets(line))
        .filter(|target| !target.starts_with("../"))
        .map(|target| format!("docs/{target}"))
        .collect();
    let unique: BTreeSet<&String> = listed.iter().collect();
    assert_eq!(unique.len(), listed.len(), "a page stands in the book twice");
    let pages = files(&[".md"]).into_iter().map(|(page, _)| page);
    let pages: BTreeSet<String> =
        pages.filter(|page| page.starts_with("docs/") && page != SUMMARY).collect();
    let unlisted: Vec<String> =
        pages.iter().filter(|page| !unique.contains(page)).cloned().collect();
    assert_none("a page that docs/SUMMARY.md does not list", &unlisted);
    assert_eq!(pages.len(), listed.len(), "docs/SUMMARY.md lists a page that does not exist");
}

#[test]
fn a_broken_link_is_found() {
    assert_eq!(anchor(" `join` & May it begin?"), "join--may-it-begin");
    assert_eq!(fault("docs/README.md", "SUMMARY.md"), None);
    assert_eq!(fault("docs/README.md", "https://example.org/x#y"), None);
    assert!(fault("docs/README.md", "nothing.md").unwrap().contains("no docs/nothing.md"));
    assert!(fault("README.md", "PROTOCOL.md#nothing").unwrap().contains("no heading nothing"));
    assert_eq!(fault("docs/README.md", "../PROTOCOL.md#the-envelope"), None);
    let page = "[a](b.md)\n```\n[c](d.md)\n```\n";
    assert_eq!(prose(page).flat_map(|(_, line)| targets(line)).collect::<Vec<_>>(), ["b.md"]);
}
