//! Texts with findings and texts without.

use std::path::Path;

use super::*;
use crate::contract::ContractKind;

const REPORT_FIELDS: TextShape = TextShape::Fields(Some(ContractKind::Report));

fn found(text: &str) -> Vec<String> {
    let findings = Linter::new(&LintOptions::default()).text(text);
    findings.into_iter().map(|f| format!("{}:{} {}", f.line, f.column, f.text)).collect()
}

fn rules(shape: TextShape, text: &str) -> Vec<String> {
    rules_of(&LintOptions::default(), shape, text)
}

fn rules_of(options: &LintOptions, shape: TextShape, text: &str) -> Vec<String> {
    let linted = Linter::new(options).file(Path::new("x.yaml"), text.as_bytes(), shape);
    linted.findings.iter().map(|f| format!("{}:{} {}", f.line, f.column, f.rule)).collect()
}

#[test]
fn words_match_at_boundaries_of_their_language() {
    assert_eq!(found("Some, SOME and awesome something"), ["1:1 Some", "1:7 SOME"]);
    assert_eq!(found("エラーが多発しました"), ["1:5 多発"]);
    assert_eq!(found("第一部と一部始終と一部"), ["1:10 一部"]);
    assert_eq!(found("内部分布和部分文件没有问题"), ["1:6 部分"]);
    let in_japanese = "该部分一致する件数は3件";
    assert_eq!(found(in_japanese), [""; 0], "a Japanese sentence has no Chinese words");
    assert_eq!(found("about 30 locks, and a report about locks"), ["1:1 about"]);
    assert_eq!(found("等了30秒左右，左右对齐"), ["1:6 左右"]);
    assert_eq!(found("many-to-many, --some, some_thing, a/some.rs, https://x.y/some"), [""; 0]);
    assert_eq!(found("and/some, (many) [few]"), ["1:5 some", "1:12 many", "1:19 few"]);
    assert_eq!(found("The enum has None and Some: Option::Some, a partially ordered set"), [""; 0]);
    let several = ["1:1 おおむね", "1:8 幾つか", "1:12 既知の不具合"];
    assert_eq!(found("おおむね完了、幾つかは既知の不具合"), several);
    assert_eq!(found("十一部を配布"), [""; 0]);
}

#[test]
fn quotations_and_code_are_ignored() {
    for text in [
        "the title is \"some tests fail\"",
        "“some” and „many“ and «few» and ‘several’",
        "「一部」と『多発』は使わない",
        "《一些故事》这本书",
        "he said 'some of it' twice",
        "`let some = many;` and ``a ` some``",
        "```rust\nlet some = 1;\n\nmany\n```",
        "~~~\nsome\n~~~",
        "```\nsome, never closed",
        "> some quoted line",
    ] {
        assert_eq!(found(text), [""; 0], "{text}");
    }
    assert_eq!(found("don't do some of the workers' work"), ["1:10 some"]);
    assert_eq!(found("a \" that is not closed: some\n\nnext"), ["1:25 some"]);
    assert_eq!(found("a ` that is not closed: some\n\n`"), ["1:25 some"]);
    assert_eq!(found("\"quoted\" some \"quoted\""), ["1:10 some"]);
    assert_eq!(found("a 5\" disk, some 3\" disk"), ["1:12 some"]);
    assert_eq!(found("```\ncode\n```\nsome"), ["4:1 some"]);
}

#[test]
fn suppressions_need_a_reason() {
    assert_eq!(found("some <!-- ensemble-lint: allow some: the ticket's word -->"), [""; 0]);
    let next_line = "<!-- ensemble-lint: allow some: the ticket's word -->\nsome\nsome";
    assert_eq!(found(next_line), ["3:1 some"]);
    let file = "# ensemble-lint: allow-file vague-word: minutes of a meeting\nsome\n\nmany";
    assert_eq!(found(file), [""; 0]);
    let linter = Linter::new(&LintOptions::default());
    let findings = linter.text("some <!-- ensemble-lint: allow some -->");
    let rules: Vec<LintRule> = findings.iter().map(|f| f.rule).collect();
    assert_eq!(rules, [LintRule::VagueWord, LintRule::BadAllow]);
}

#[test]
fn word_lists_are_configurable() {
    let mut options = LintOptions::default();
    let instead = Some("by 17:00".into());
    options.words.push(OwnWord { word: "ASAP".into(), instead, language: None });
    options.allow.push("Several".to_lowercase());
    let findings = Linter::new(&options).text("asap, several and many");
    assert_eq!(findings.iter().map(|f| f.text.as_str()).collect::<Vec<_>>(), ["asap", "many"]);
    assert!(findings[0].to_string().ends_with("by 17:00"));
    let english = LintOptions { languages: vec![Language::En], ..LintOptions::default() };
    assert_eq!(Linter::new(&english).text("some 多発 一些").len(), 1);
}

const REPORT: &str = "task_id: t-1\nstatus: success\nworker_id: worker-1\nsummary: >-\n  12 of 12 tests pass (100%),\n  see src/a.rs:1\n";

#[test]
fn reports_need_agent_count_share_and_place() {
    assert_eq!(rules(REPORT_FIELDS, REPORT), [""; 0]);
    for (what, with, rule) in [
        ("worker_id: worker-1\n", "", "1:1 missing-who"),
        ("12 of 12 tests pass (", "all tests pass (", "1:1 missing-count"),
        ("(100%)", "", "1:1 missing-share"),
        ("src/a.rs:1", "src/a.rs", "1:1 missing-where"),
    ] {
        assert_eq!(rules(REPORT_FIELDS, &REPORT.replace(what, with)), [rule], "{what}");
    }
    let vague = REPORT.replace("12 of 12 tests pass", "some of 12 tests pass");
    assert_eq!(rules(REPORT_FIELDS, &vague), ["5:3 vague-word"]);
    let allowed = "# ensemble-lint: allow missing-share: there is nothing to compare with\n";
    let allowed = allowed.to_owned() + &REPORT.replace("(100%)", "");
    assert_eq!(rules(REPORT_FIELDS, &allowed), [""; 0]);
    let broken = REPORT.replace("success", "maybe");
    assert_eq!(rules(REPORT_FIELDS, &broken), ["2:1 contract"]);
    assert_eq!(rules(REPORT_FIELDS, "status: ["), ["1:1 contract"]);
    let text = TextShape::ReportText;
    let missing = ["who", "count", "share", "where"].map(|what| format!("1:1 missing-{what}"));
    assert_eq!(rules(text, "done"), missing);
    assert_eq!(rules(text, "Worker-1: 3 files, 100%, src/a.rs:3"), [""; 0]);
}

#[test]
fn places_are_checked_if_there_is_a_root() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join("src")).unwrap();
    std::fs::write(home.path().join("src/a.rs"), "one\n").unwrap();
    let options = LintOptions { root: Some(home.path().to_owned()), ..LintOptions::default() };
    let rules = |shape, text: &str| rules_of(&options, shape, text);
    assert_eq!(rules(REPORT_FIELDS, REPORT), [""; 0]);
    assert_eq!(rules(REPORT_FIELDS, &REPORT.replace("a.rs:1", "a.rs:9")), ["6:7 bad-where"]);
    let review = "task_id: t\nreviewer: w\nstatus: needs_fix\nfindings:\n  - description: broken\n    file: src/a.rs\n    line: 7\n";
    let shape = TextShape::Fields(Some(ContractKind::Review));
    assert_eq!(rules(shape, review), ["7:1 bad-where"]);
}

#[test]
fn names_outputs_and_escapes_in_fields_are_not_prose() {
    let shape = TextShape::Fields(None);
    let text = "id: some\nfiles: [some]\noutput: |\n  some lines\nsome: 1\nnote: some\n";
    assert_eq!(rules(shape, text), ["6:7 vague-word"]);
    let quoted = "note: \"a \\\"some\\\" b\\nsome\"\n";
    let inexact = ["1:12 vague-word"];
    assert_eq!(rules(shape, quoted), inexact, "found, but without an exact position");
    assert_eq!(rules(shape, "note: \"\\u4e00\\u90e8が失敗\"\n"), ["1:7 vague-word"]);
    assert_eq!(rules(shape, "notes:\n  - 1\n  - {x: many}\n"), ["3:9 vague-word"]);
}

#[test]
fn unreadable_file_is_one_finding() {
    let linter = Linter::new(&LintOptions::default());
    let linted = linter.file(Path::new("x.md"), b"\xff\xfe", TextShape::Text);
    assert_eq!(linted.findings.len(), 1);
    assert!(linted.findings[0].to_string().contains("UTF-8"));
    assert_eq!(TextShape::of(Path::new("a/t-completed.yaml")), REPORT_FIELDS);
    assert_eq!(TextShape::of(Path::new("a.md")), TextShape::Text);
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_panic_and_places_lie_within(
        bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..400),
        text in "(\\PC|\n|some|一部|部分|左右|`|\"|'|「|」|```|ensemble-lint: allow|://|a\\.rs:1){0,60}",
    ) {
        let linter = Linter::new(&LintOptions::default());
        for shape in [TextShape::Text, TextShape::ReportText, REPORT_FIELDS] {
            let _ = linter.file(Path::new("x.yaml"), &bytes, shape);
            let linted = linter.file(Path::new("x.yaml"), text.as_bytes(), shape);
            let lines: Vec<&str> = text.split('\n').collect();
            for finding in linted.findings.iter().filter(|f| f.rule == LintRule::VagueWord) {
                if let TextShape::Text | TextShape::ReportText = shape {
                    let line = lines[finding.line as usize - 1];
                    let from: String = line.chars().skip(finding.column as usize - 1).collect();
                    proptest::prop_assert!(from.starts_with(&finding.text), "{:?} {:?}", finding, text);
                }
            }
        }
    }
}
