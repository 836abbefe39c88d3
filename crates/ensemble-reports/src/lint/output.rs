//! Output of findings for people, programs and code hosts.

use std::fmt::Write as _;

use ensemble_core::message::is_deceiving;
use serde_json::{Value, json};

use super::config::LintMode;
use super::document::LintedFile;
use super::finding::{LintFinding, LintRule};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FindingFormat {
    /// One line for each finding, with the correction.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
    /// SARIF 2.1.0, one document.
    Sarif,
    /// Annotations as GitHub's runners read them.
    Github,
}

/// Renders findings. They are warnings in the mode `warn`, and errors otherwise.
pub fn render(linted: &[LintedFile], format: FindingFormat, mode: LintMode) -> String {
    let level = match mode {
        LintMode::Refuse => "error",
        LintMode::Warn | LintMode::Off => "warning",
    };
    let all = linted.iter().flat_map(|one| one.findings.iter().map(move |f| (one, f)));
    match format {
        FindingFormat::Text => all.map(|(one, finding)| text(&one.file, finding, level)).collect(),
        FindingFormat::Json => all.map(|(one, finding)| line(&one.file, finding, level)).collect(),
        FindingFormat::Github => {
            all.map(|(one, finding)| annotation(&one.file, finding, level)).collect()
        }
        FindingFormat::Sarif => {
            let results: Vec<Value> = all.map(|(one, f)| result(&one.file, f, level)).collect();
            let text = serde_json::to_string_pretty(&sarif(results)).unwrap_or_default();
            format!("{}\n", unmoved(&text))
        }
    }
}

fn text(file: &str, finding: &LintFinding, level: &str) -> String {
    let LintFinding { rule, line, column, message, instead, .. } = finding;
    let (file, message) = (one_line(file), one_line(message));
    let (at, instead) = (format!("{file}:{line}:{column}"), one_line(instead));
    format!("{at}: {level}[{rule}]: {message}\n    {instead}\n")
}

/// Removes everything that moves a terminal's cursor.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if is_deceiving(c) { '\u{fffd}' } else { c }).collect()
}

fn line(file: &str, finding: &LintFinding, level: &str) -> String {
    let mut object = json!({ "file": file, "level": level });
    if let (Some(object), Ok(Value::Object(fields))) =
        (object.as_object_mut(), serde_json::to_value(finding))
    {
        object.extend(fields);
    }
    format!("{}\n", unmoved(&object.to_string()))
}

/// Escapes DEL and C1 control characters: JSON allows them, but terminals act on them.
fn unmoved(json: &str) -> String {
    json.chars().fold(String::with_capacity(json.len()), |mut text, c| {
        match c.is_control() && c != '\n' {
            true => drop(write!(text, "\\u{:04x}", u32::from(c))),
            false => text.push(c),
        }
        text
    })
}

/// `::error file=…,line=…::message`, with the delimiters of properties and messages escaped.
fn annotation(file: &str, finding: &LintFinding, level: &str) -> String {
    let escaped = |text: &str| text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    let message = |text: &str| one_line(&escaped(text));
    let property = |text: &str| message(text).replace(':', "%3A").replace(',', "%2C");
    let LintFinding { rule, line, column, end_column, .. } = finding;
    let mut out = format!("::{level} file={},line={line},col={column}", property(file));
    if end_column > column {
        let _ = write!(out, ",endColumn={end_column}");
    }
    let _ = writeln!(out, ",title={}::{}", rule.as_str(), message(&finding.to_string()));
    out
}

fn result(file: &str, finding: &LintFinding, level: &str) -> Value {
    let end = finding.end_column.max(finding.column + 1);
    json!({
        "ruleId": finding.rule.as_str(),
        "ruleIndex": LintRule::ALL.iter().position(|rule| *rule == finding.rule),
        "level": level,
        "message": { "text": finding.to_string() },
        "locations": [{ "physicalLocation": {
            "artifactLocation": { "uri": uri(file) },
            "region": {
                "startLine": finding.line, "startColumn": finding.column, "endColumn": end,
            },
        }}],
    })
}

fn uri(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.trim_start_matches("./").bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                out.push(char::from(byte));
            }
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

fn sarif(results: Vec<Value>) -> Value {
    let rules: Vec<Value> = LintRule::ALL
        .iter()
        .map(|rule| json!({ "id": rule.as_str(), "shortDescription": { "text": rule.about() } }))
        .collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "ensemble admin lint", "version": env!("CARGO_PKG_VERSION"), "rules": rules,
            }},
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lint::{LintOptions, Linter, TextShape};

    fn linted() -> Vec<LintedFile> {
        let linter = Linter::new(&LintOptions::default());
        let path = std::path::Path::new("reports/a b,100%.md");
        vec![linter.file(path, "ok\nsome 問題が多発\n".as_bytes(), TextShape::Text)]
    }

    #[test]
    fn every_format_has_file_line_column_rule_and_correction() {
        let text = render(&linted(), FindingFormat::Text, LintMode::Refuse);
        let first = "reports/a b,100%.md:2:1: error[vague-word]: `some` is vague\n";
        assert!(text.starts_with(first), "{text}");
        let second =
            ":2:9: error[vague-word]: `多発` is vague\n    say it exactly, such as: 3回発生\n";
        assert!(text.contains(second), "{text}");

        let lines = render(&linted(), FindingFormat::Json, LintMode::Warn);
        let lines = lines.lines().map(|line| serde_json::from_str(line).unwrap());
        let json: Vec<Value> = lines.collect();
        assert_eq!((&json[1]["line"], &json[1]["column"]), (&json!(2), &json!(9)));
        assert_eq!(json[0]["level"], "warning");
        assert_eq!(json[0]["rule"], "vague-word");

        let github = render(&linted(), FindingFormat::Github, LintMode::Refuse);
        let first = github.lines().next().unwrap();
        let expected = "::error file=reports/a b%2C100%25.md,line=2,col=1,endColumn=5,title=vague-word::`some` is vague: say it exactly, such as: src/api/auth.py:45-52";
        assert_eq!(first, expected);

        let sarif = render(&linted(), FindingFormat::Sarif, LintMode::Refuse);
        let sarif: Value = serde_json::from_str(&sarif).unwrap();
        let result = &sarif["runs"][0]["results"][1];
        assert_eq!(result["ruleId"], "vague-word");
        let place = &result["locations"][0]["physicalLocation"];
        assert_eq!(place["artifactLocation"]["uri"], "reports/a%20b%2C100%25.md");
        assert_eq!(place["region"], json!({"startLine": 2, "startColumn": 9, "endColumn": 11}));
        let index = result["ruleIndex"].as_u64().unwrap() as usize;
        assert_eq!(sarif["runs"][0]["tool"]["driver"]["rules"][index]["id"], "vague-word");
    }

    #[test]
    fn without_findings_only_sarif_has_output() {
        assert_eq!(render(&[], FindingFormat::Text, LintMode::Refuse), "");
        assert!(render(&[], FindingFormat::Sarif, LintMode::Refuse).contains("\"results\": []"));
    }
}
