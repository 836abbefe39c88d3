//! Everything that a fuzzer has found, and what it begins with, in every ordinary test run.
//!
//! `fuzz/seeds/<target>/` and `fuzz/regressions/<target>/` are given to the target's own check, the one
//! that the fuzzer runs. docs/fuzzing.md says how a finding gets there.

use std::path::{Path, PathBuf};

#[path = "../fuzz/src/lib.rs"]
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

/// Runs a target's files; how many there were.
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

targets! { envelope control screen mcp board log_tail config drop_box lint }

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
