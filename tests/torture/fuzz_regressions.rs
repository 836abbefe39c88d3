//! Everything that a fuzzer has found, and what it begins with, in every ordinary test run.
//!
//! `fuzz/seeds/<target>/` and `fuzz/regressions/<target>/` are given to the target's own check, the one
//! that the fuzzer runs. fuzz/README.md says how a finding gets there.

use std::path::{Path, PathBuf};

#[path = "../../fuzz/src/lib.rs"]
#[expect(unreachable_pub, reason = "elsewhere it is a crate of its own")]
mod fuzz;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz")
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.sort_unstable();
    files
}

fn replay(target: &str) -> usize {
    let (_, check) = fuzz::TARGETS.iter().find(|(name, _)| *name == target).expect("a target");
    let mut count = 0;
    for dir in ["seeds", "regressions"] {
        for file in files(&root().join(dir).join(target)) {
            // Where one fails, this is the last line that is shown.
            eprintln!("{}", file.display());
            check(&std::fs::read(&file).expect("a file"));
            count += 1;
        }
    }
    count
}

macro_rules! targets {
    ($($target:ident)+) => {
        const REPLAYED: &[&str] = &[$(stringify!($target)),+];
        $(
            #[test]
            fn $target() {
                assert!(replay(stringify!($target)) >= 3, "the seeds are somewhere else");
            }
        )+
    };
}

targets! { envelope control screen mcp board log_tail config drop_box lint foreign }

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        usize::try_from((z ^ (z >> 27)) >> 16).unwrap_or(0) % sides.max(1)
    }
}

/// Tokens with a meaning to one of the readers.
const WORDS: [&str; 30] = [
    "\n",
    ": ",
    "- ",
    "\"",
    "'",
    "{",
    "}",
    "[",
    "]",
    "#",
    "|2+\n",
    "...\n",
    "---\n",
    "&a ",
    "*a",
    "!!str ",
    "~",
    "0",
    "-1",
    "18446744073709551615",
    "1e999",
    "true",
    "null",
    "\u{0}",
    "\u{1b}[201~",
    "\u{202e}",
    "▮",
    "%end",
    "../",
    "\u{feff}",
];

/// Changes a text a little: bytes, words, pieces of another one.
fn mutated(seed: &[u8], other: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut text = seed.to_vec();
    for _ in 0..=dice.roll(4) {
        let at = dice.roll(text.len() + 1);
        let end = (at + 1 + dice.roll(12)).min(text.len());
        match dice.roll(6) {
            0 => drop(text.drain(at..end)),
            1 => text.insert(at, u8::try_from(dice.roll(256)).unwrap_or(0)),
            2 => {
                let piece = text[at..end].to_vec();
                text.splice(at..at, piece.repeat(1 + dice.roll(40)));
            }
            3 => {
                let from = dice.roll(other.len() + 1);
                let piece = &other[from..(from + dice.roll(60)).min(other.len())];
                text.splice(at..end, piece.iter().copied());
            }
            _ => {
                let word = WORDS[dice.roll(WORDS.len())];
                text.splice(at..end, word.bytes());
            }
        }
    }
    text
}

/// Without a fuzzer: makes `ENSEMBLE_FUZZ_ROUNDS` random changes of the seeds, from
/// `ENSEMBLE_FUZZ_SEED` on. The default is none, so that an ordinary run finds no new failures. A
/// failing input is written to a file.
#[test]
fn changed_seeds_break_nothing() {
    let setting = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let only = std::env::var("ENSEMBLE_FUZZ_TARGET").ok();
    let first = setting("ENSEMBLE_FUZZ_SEED").unwrap_or(1);
    for (target, check) in fuzz::TARGETS.iter().filter(|t| only.as_deref().is_none_or(|o| o == t.0))
    {
        let rounds = setting("ENSEMBLE_FUZZ_ROUNDS").unwrap_or(0);
        let dirs = ["seeds", "regressions"].map(|dir| root().join(dir).join(target));
        let seeds: Vec<Vec<u8>> = dirs
            .iter()
            .flat_map(|dir| files(dir))
            .map(|file| std::fs::read(file).unwrap())
            .collect();
        for round in first..first + rounds {
            let mut dice = Dice(round);
            let (one, other) = (dice.roll(seeds.len()), dice.roll(seeds.len()));
            let input = mutated(&seeds[one], &seeds[other], &mut dice);
            if std::panic::catch_unwind(|| check(&input)).is_err() {
                let file = std::env::temp_dir().join(format!("ensemble-{target}-{round}"));
                std::fs::write(&file, &input).unwrap();
                panic!("{target}, seed {round}: put {} into fuzz/regressions", file.display());
            }
        }
    }
}

#[test]
fn every_target_has_a_program_and_is_replayed() {
    let names: Vec<&str> = fuzz::TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, REPLAYED);
    for name in names {
        let program = std::fs::read_to_string(root().join(format!("bins/{name}.rs")));
        assert!(program.expect("a program").contains(&format!("ensemble_fuzz::{name}::check")));
    }
    for dir in files(&root().join("regressions")) {
        let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        assert!(
            REPLAYED.contains(&name) || name == "README.md",
            "regressions of no target: {name}"
        );
    }
}
