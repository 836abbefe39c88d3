//! Prose and reports as the lint reads them. An input's first line is the file's name.

use std::path::Path;

use ensemble_reports::lint::{
    FindingFormat, LintMode, LintOptions, LintRule, LintedFile, Linter, TextShape, render,
};

/// Findings are ordered and their positions are exact, and their output cannot steer a terminal.
pub fn check(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (name, content) = data.split_at(end);
    let content = content.strip_prefix(b"\n").unwrap_or(content);
    let name = String::from_utf8_lossy(name);
    let linter = Linter::new(&LintOptions::default());
    let path = Path::new(&*name);
    let by_name = TextShape::of(path);
    for shape in [by_name, TextShape::ReportText] {
        let linted = linter.file(path, content, shape);
        check_places(&linted, content, shape);
        for format in
            [FindingFormat::Text, FindingFormat::Json, FindingFormat::Sarif, FindingFormat::Github]
        {
            let text = render(std::slice::from_ref(&linted), format, LintMode::Warn);
            let steers = |c: char| c.is_control() && c != '\n';
            assert!(!text.chars().any(steers), "{format:?} steers: {text:?}");
        }
    }
}

fn check_places(linted: &LintedFile, content: &[u8], shape: TextShape) {
    let Ok(text) = std::str::from_utf8(content) else { return };
    let lines: Vec<&str> = text.split('\n').collect();
    let mut last = (0, 0);
    for finding in &linted.findings {
        assert!((finding.line, finding.column) >= last, "out of order: {:#?}", linted.findings);
        last = (finding.line, finding.column);
        assert!(finding.line >= 1 && finding.line <= lines.len() as u64, "{finding:?}");
        let is_prose = matches!(shape, TextShape::Text | TextShape::ReportText);
        if is_prose && finding.rule == LintRule::VagueWord {
            let line = lines[usize::try_from(finding.line - 1).expect("a line")];
            let column = usize::try_from(finding.column - 1).expect("a column");
            let there: String = line.chars().skip(column).collect();
            let first = finding.text.lines().next().unwrap_or_default();
            assert!(there.starts_with(first), "{finding:?} is not at {there:?}");
        }
    }
}
