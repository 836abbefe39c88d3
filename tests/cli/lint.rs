//! `ensemble admin lint` as people, editors, code hosts and git hooks call it.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::bed::{Bed, SaidText as _, objects, program, ran, words};

/// The time limit for a hostile file on a busy machine; on an idle one it takes less than a second.
const PATIENCE: Duration = Duration::from_secs(120);

fn bed() -> Bed {
    let bed = Bed::empty();
    fs::create_dir(bed.project().join("src")).unwrap();
    bed.write_file("src/a.rs", "one\ntwo\n");
    bed
}

#[test]
fn findings_fail_the_run_or_warn_in_the_format_of_each_reader() {
    let bed = bed();
    bed.write_file("clean.md", "Worker-1 fixed 4 bugs.\n");
    bed.write_file("vague.md", "Worker-1 fixed some bugs.\n問題が多発した。\n");
    assert_eq!(bed.ok("admin lint clean.md"), "");
    let ran = bed.run("admin lint clean.md vague.md");
    ran.ends(1).shows(["vague.md:1:16: error[vague-word]: `some` is vague"]);
    ran.shows(["vague.md:2:4: error[vague-word]: `多発` is vague", "such as: 3回発生"]);
    ran.says(["2 findings in 1 file"]);
    bed.ok("admin lint --mode warn vague.md").has(["warning[vague-word]"]);
    assert_eq!(bed.ok("admin lint --lang zh vague.md"), "");
    assert_eq!(bed.run("admin lint --ban fixed clean.md").code, 1);
    bed.fails(1, "admin lint gone.md absent.md").has(["gone.md", "absent.md"]);
    bed.fails(2, "admin lint");
    bed.write_file("vague.md", "some\n");
    let lines = |line: &str| bed.run(line).stdout;
    let json = objects(&lines("admin lint --json vague.md"));
    assert_eq!((json.len(), json[0]["rule"].as_str()), (1, Some("vague-word")));
    assert_eq!(objects(&lines("admin lint --format json vague.md")), json);
    let sarif: Value = serde_json::from_str(&lines("admin lint --format sarif vague.md")).unwrap();
    assert_eq!(sarif["runs"][0]["results"][0]["level"], "error");
    lines("admin lint --format github vague.md").begins("::error file=vague.md,line=1,col=1,");
}

#[test]
fn reports_keep_their_contract_and_the_project_bans_words_of_its_own() {
    let bed = bed();
    let report =
        "task_id: t\nstatus: success\nworker_id: worker-1\nsummary: 3 of 3 (100%), src/a.rs:2\n";
    bed.write_file("t-completed.yaml", report);
    assert_eq!(bed.ok("admin lint t-completed.yaml"), "");
    bed.write_file("t-completed.yaml", report.replace("a.rs:2", "a.rs:3"));
    let ran = bed.run("admin lint t-completed.yaml");
    ran.shows(["t-completed.yaml:4:25: error[bad-where]: `src/a.rs` has 2 lines, not 3"]);
    bed.write_file("t-completed.yaml", "task_id: t\nstatus: maybe\n");
    let ran = bed.run("admin lint t-completed.yaml");
    ran.shows([":2:1: error[contract]: status is `maybe`"]);
    ran.shows(["error[missing-who]", "error[missing-where]"]);
    let text = bed.run_with("admin lint --require who,count -", b"done\n");
    assert_eq!(text.code, 1);
    assert_eq!(text.stdout.matches("error[missing-").count(), 2, "{text:?}");
    bed.run_with("admin lint --require who,count -", b"worker-1 did 3 of them\n").ends(0);
    bed.configure("lint:\n  words: [{word: ASAP, instead: 'by 17:00'}]\n  allow: [several]\n");
    bed.write_file("a.md", "several asap\n");
    let ran = bed.run("admin lint a.md");
    assert_eq!(
        ran.stdout,
        "a.md:1:9: error[vague-word]: `asap` is vague\n    say it exactly, such as: by 17:00\n"
    );
    bed.write_file("ensemble.yaml", "lint:\n  word: []\n");
    assert!(bed.run("admin lint a.md").stderr.contains("word"));
}

#[test]
fn hostile_files_cost_an_error_and_little_time() {
    let bed = bed();
    let deep = format!("a: {}{}\n", "[".repeat(50_000), "]".repeat(50_000));
    let laughs: String = (1..10)
        .map(|n| format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 9].join(",")))
        .collect();
    let ticks = "{a: `".to_owned() + &"`".repeat(64_000);
    let megabyte = |piece: &str| piece.repeat((1 << 20) / piece.len());
    for (file, content) in [
        ("deep-completed.yaml", deep),
        ("laughs-completed.yaml", format!("a0: &a0 x\n{laughs}")),
        ("ticks-completed.yaml", ticks),
        ("one-line.md", megabyte("some ")),
        ("quotes.md", megabyte("\"'`「")),
        ("han.md", megabyte("部分")),
        ("allow.md", megabyte("some <!-- ensemble-lint: allow some: it is so -->\n")),
        ("colons.md", megabyte("a/b.rs:")),
        ("blanks.md", megabyte("a/b.rs                                        ")),
        (
            "text-completed.yaml",
            format!("status: ok\nsummary: |\n  {}\n", megabyte("\\u4e00 some ")),
        ),
    ] {
        bed.write_file(file, content);
        let start = Instant::now();
        let ran = bed.run(&format!("admin lint {file}"));
        assert!((0..=1).contains(&ran.code), "{file}: {}", ran.stderr);
        assert!(start.elapsed() < PATIENCE, "{file}: {:?}", start.elapsed());
    }
    fs::File::create(bed.project().join("huge.md")).unwrap().set_len(1 << 31).unwrap();
    assert!(bed.fails(1, "admin lint huge.md").contains("the limit is"));
    bed.write_file("binary.md", [0xff, 0xfe, 0]);
    assert!(bed.run("admin lint binary.md").stdout.contains("not UTF-8"));
    bed.fails(4, "admin lint src");
}

#[test]
fn the_hook_that_is_shipped_stops_a_commit_and_lets_it_through() {
    let bed = bed();
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        command
            .args(words("-c user.name=t -c user.email=t@example.org -c init.defaultBranch=main"));
        command.args(args).env_clear().env("HOME", bed.project()).current_dir(bed.project());
        let path =
            format!("{}:/usr/local/bin:/usr/bin:/bin", program().parent().unwrap().display());
        ran(command.env("PATH", path).output().unwrap())
    };
    assert_eq!(git(&["init", "-q"]).code, 0);
    let hook = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/hooks/pre-commit");
    fs::copy(hook, bed.project().join(".git/hooks/pre-commit")).unwrap();
    bed.write_file("notes.md", "some tests fail\n");
    bed.write_file("code.rs", "let some = 1;\n");
    assert_eq!(git(&["add", "notes.md", "code.rs"]).code, 0);
    let stopped = git(&["commit", "-qm", "x"]);
    assert_ne!(stopped.code, 0, "{stopped:?}");
    assert!(format!("{stopped:?}").contains("notes.md:1:1"), "{stopped:?}");
    bed.write_file("notes.md", "3 tests fail\n");
    assert_ne!(
        git(&["commit", "-qm", "x"]).code,
        0,
        "the hook checks the staged file, not the working tree"
    );
    assert_eq!(git(&["add", "notes.md"]).code, 0);
    git(&["commit", "-qm", "x"]).ends(0);
}
