//! How much there is to read, to test, to build and to generate.

use crate::*;

/// Ordinary work adds lines: only growth beyond this needs a reason, and a budget that is raised by hand.
const LINES_ROOM: u64 = 3_000;
const WHY_ROOM: u64 = 10;
const CRATES_ROOM: u64 = 0;
/// Pages and files that a test writes and compares.
const GENERATED: [&str; 4] = [
    "docs/curves/",
    "docs/reference/commands.md",
    "docs/reference/configuration.md",
    "docs/schema/",
];

fn lines(count: usize) -> u64 {
    count.try_into().unwrap()
}

/// Lines that are shipped, with comments and blank lines.
fn shipped_lines(source: &Source) -> usize {
    source.shipped().lines().count()
}

/// The number of comments that are not documentation.
fn why_comments(source: &Source) -> usize {
    let shipped = shipped_lines(source);
    let text: Vec<&str> = source.text.lines().take(shipped).collect();
    let is_why = |(kind, text): &(Kind, &str)| {
        *kind == Kind::Comment && !text.starts_with("///") && !text.starts_with("//!")
    };
    parts(&text.join("\n")).iter().filter(|part| is_why(part)).count()
}

/// The crates that a build of the command compiles on this system, by name and version.
fn crates_of_the_command() -> Vec<String> {
    let output = Command::new(option_env!("CARGO").unwrap_or("cargo"))
        .args(["tree", "--package", "ensemble-broker", "--edges", "normal", "--prefix", "none"])
        .args(["--locked", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo tree: {error}");
    let text = String::from_utf8(output.stdout).unwrap();
    let name = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let unique: BTreeSet<String> = text.lines().map(name).collect();
    unique.into_iter().collect()
}

pub(crate) fn measures() -> Vec<Measure> {
    let by_crate: Vec<Vec<&Source>> = CRATES.iter().map(super::crates::Crate::files).collect();
    let shipped: Vec<usize> =
        by_crate.iter().map(|of| of.iter().map(|source| shipped_lines(source)).sum()).collect();
    let all: usize = shipped.iter().sum();
    let why: usize = by_crate.iter().flatten().map(|source| why_comments(source)).sum();
    let tests = sources().iter().filter(|source| source.is_test());
    let tests: usize = tests.map(|source| source.text.lines().count()).sum();
    let unit_tests: usize = by_crate
        .iter()
        .flatten()
        .map(|source| source.text.lines().count() - shipped_lines(source))
        .sum();
    let generated = files(&[".md", ".txt", ".json", ".svg", ".csv"]).into_iter();
    let generated = generated.filter(|(path, _)| GENERATED.iter().any(|g| path.starts_with(g)));
    let generated: Vec<String> = generated
        .flat_map(|(path, text)| vec![format!("{path}:1: generated"); text.lines().count()])
        .collect();
    let crates = crates_of_the_command();
    let long = super::ignored().filter(|one| one.1 == "long").map(|one| one.0).collect();
    let mut found = vec![
        Measure::roomy(
            "source lines of all crates, without tests",
            lines(all),
            LINES_ROOM,
            "120,000",
        ),
        Measure::roomy("lines of tests", lines(tests + unit_tests), LINES_ROOM, "62,000"),
    ];
    let goals = [
        "21,000", "10,700", "25,600", "3,000", "5,200", "7,500", "7,000", "13,400", "3,200",
        "4,200", "1,500", "2,200",
    ];
    let of_crates = CRATES.iter().zip(&shipped).zip(goals);
    found.extend(of_crates.map(|((of, count), goal)| {
        Measure::roomy(&format!("source lines: {}", of.name), lines(*count), LINES_ROOM, goal)
    }));
    found.extend([
        Measure::shrinking("generated lines", generated, "1,000"),
        Measure::roomy("lines for one comment that says why", lines(all / why), WHY_ROOM, "20"),
        Measure::shrinking("public items of core", super::face::public_items(), "200"),
        Measure::shrinking("tests that only `make test-all` runs", long, "40"),
        Measure::roomy("crates of the command", lines(crates.len()), CRATES_ROOM, "225"),
    ]);
    found
}

#[test]
fn comments_beside_code_are_counted_and_documentation_is_not() {
    let text =
        "//! Page.\n/// Doc.\nfn a() {} // Why.\n// Why.\n#[cfg(test)]\nmod tests {\n// Not.\n}\n";
    let code = super::code::without_text(text);
    let source = Source { path: "a.rs".to_owned(), text: text.to_owned(), code };
    assert_eq!((shipped_lines(&source), why_comments(&source)), (4, 2));
}
