//! git in tests, without the settings of the user who runs them.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

use std::path::Path;
use std::process::Command;

/// The environment of git, and of programs that call it.
pub const ISOLATED: [(&str, &str); 6] = [
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_AUTHOR_NAME", "A Coder"),
    ("GIT_AUTHOR_EMAIL", "coder@example.org"),
    ("GIT_COMMITTER_NAME", "A Coder"),
    ("GIT_COMMITTER_EMAIL", "coder@example.org"),
];

/// Runs git, which must succeed. Returns its output without the last newline.
#[track_caller]
pub fn git(at: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command.arg("-C").arg(at).args(arguments).envs(ISOLATED);
    let output = command.output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {arguments:?}: {complaint}");
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}
