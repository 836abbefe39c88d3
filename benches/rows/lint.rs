//! Measures the vague-word rule: one megabyte of report text in one pass. The comparison is one
//! alternation of a regular expression applied line by line, as a hook in a script would do it.

use std::hint::black_box;

use ensemble_reports::lint::{LintOptions, Linter};

use crate::support::table::{self, Goal};
use crate::support::{Outcome, Pairs, go_on, micros, now_ns};

const ROUNDS: usize = 20;
const BYTES: usize = 1 << 20;
/// One line in fifty has a banned word: reports are mostly clean.
const LINES: [&str; 5] = [
    "Worker-1 fixed 4 of 4 tests (100%) in src/api/auth.rs:45-52 and reported it to the conductor.\n",
    "Worker-2 では 12件中12件（100%）が成功し、src/net/retry.rs の 10行目を変更しました。\n",
    "worker-3 在 src/store/index.rs:77 修复了 2 个错误，共有 12 个测试通过（100%）。\n",
    "The release is tagged `v1.2.0`; issue #123 covers the 3 remaining steps, see docs/release.md:8.\n",
    "Conductorが2件を差し戻し、Worker-4が30秒後に再実行して9件すべてを確認しました。\n",
];
const VAGUE: &str = "Some tests fail, 一部のテストが失敗, 部分测试失败。\n";

pub fn run() -> Outcome<()> {
    let text = text();
    let linter = Linter::new(&LintOptions::default());
    let regex = regex_lite::Regex::new(&alternation())?;
    let full = regex::Regex::new(&alternation())?;
    let found = linter.text(&text).len();
    table::heading(&format!("1 MB of report text, {found} findings (a megabyte)"));
    let (mut lite, mut fast) = (Pairs::default(), Pairs::default());
    for _ in 0..ROUNDS {
        go_on()?;
        let began = now_ns();
        black_box(linter.text(&text).len());
        let ours = micros(began, now_ns()) / 1e3;
        let began = now_ns();
        black_box(text.lines().map(|line| full.find_iter(line).count()).sum::<usize>());
        fast.push(vec![ours], vec![micros(began, now_ns()) / 1e3]);
        if lite_rounds_left(&lite) {
            let began = now_ns();
            black_box(text.lines().map(|line| regex.find_iter(line).count()).sum::<usize>());
            lite.push(vec![ours], vec![micros(began, now_ns()) / 1e3]);
        }
    }
    table::pairs("one pass (limit: regex, by line)", "ms", &fast, Goal::None);
    table::pairs("one pass (limit: regex-lite, by line)", "ms", &lite, Goal::AtMost(1.0));
    table::note("ours also tells quotations, code, paths and languages apart");
    Ok(())
}

/// The slow subject needs fewer rounds.
fn lite_rounds_left(pairs: &Pairs) -> bool {
    pairs.len() < 5
}

fn text() -> String {
    let mut text = String::with_capacity(BYTES + 256);
    for number in 0.. {
        if text.len() >= BYTES {
            break;
        }
        text.push_str(if number % 50 == 49 { VAGUE } else { LINES[number % LINES.len()] });
    }
    text
}

/// The words of all languages as one alternation, with word boundaries for English.
fn alternation() -> String {
    let words = ensemble_reports::lint::banned_words();
    let is_ascii = |word: &&str| word.is_ascii();
    let english: Vec<&str> = words.iter().copied().filter(is_ascii).collect();
    let others: Vec<&str> = words.iter().copied().filter(|word| !word.is_ascii()).collect();
    format!(r"(?i)\b(?:{})\b|(?:{})", english.join("|"), others.join("|"))
}
