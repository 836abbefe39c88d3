//! Places where an operation cannot be done: real mounts, limits and another user.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use super::operations::prepare;
use crate::support::Mount;

use super::*;

/// Runs an operation by a shell's setup, as root or the current user. Returns its exit code and its
/// error.
fn run(home: &Path, operation: &str, setup: &str) -> (Option<i32>, String) {
    let role = role_command(&format!("faults::{operation}"), &[]);
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("{setup} exec \"$0\" \"$@\"")).arg(role.get_program());
    shell.args(role.get_args()).env("QUEUE", home.join("queue"));
    for (key, value) in role.get_envs() {
        shell.env(key, value.expect("a value"));
    }
    let output = shell.stdin(Stdio::null()).stdout(Stdio::null()).output().expect("a shell");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let said = text.split_once(SAID).map_or(text.as_str(), |(_, said)| said);
    (output.status.code(), said.trim().to_owned())
}

fn small_disk(options: &str) -> Option<(tempfile::TempDir, Mount)> {
    let home = tempfile::tempdir().expect("a temporary directory");
    let mount = Mount::tmpfs(home.path(), options)?;
    Some((home, mount))
}

fn mount(arguments: &[&str], at: &Path) {
    let status = Command::new("mount").args(arguments).arg(at).status().expect("mount");
    assert!(status.success(), "mount {arguments:?}");
}

#[test]
fn on_a_file_system_that_became_read_only_all_is_refused_and_goes_on_afterwards() {
    for operation in OPERATIONS {
        let Some((home, _mount)) = small_disk("size=8m,mode=700") else { return };
        prepare(home.path(), operation).expect("prepared");
        mount(&["-o", "remount,ro"], home.path());
        let (code, text) = run(home.path(), operation, "");
        assert_eq!(code, Some(EXIT_REFUSED), "{operation}: {text}");
        let words = ["mount it writable", "must be writable", "is read-only"];
        assert_clear(home.path(), operation, &text, &words);
        mount(&["-o", "remount,rw"], home.path());
        judge(home.path(), operation, operation);
    }
}

#[test]
fn on_a_full_file_system_all_is_refused_or_done_and_goes_on_afterwards() {
    let mut refused = 0;
    for operation in OPERATIONS {
        let Some((home, _mount)) = small_disk("size=2m,mode=700") else { return };
        prepare(home.path(), operation).expect("prepared");
        let ballast = home.path().join("ballast");
        // To the last page, and then short of one.
        let fill = Command::new("dd")
            .args(["if=/dev/zero", "bs=4096"])
            .stderr(Stdio::null())
            .arg(format!("of={}", ballast.display()))
            .status();
        assert!(!fill.expect("dd").success(), "the disk is full");
        let (code, text) = run(home.path(), operation, "");
        if code == Some(EXIT_REFUSED) {
            refused += 1;
            let words = ["free some room"];
            assert_clear(home.path(), operation, &text, &words);
        } else {
            // A rename needs no room.
            assert_eq!(code, Some(0), "{operation}: {text}");
        }
        fs::remove_file(ballast).expect("room");
        judge(home.path(), operation, operation);
    }
    println!("{refused} of {} operations were refused", OPERATIONS.len());
    assert!(refused >= 8, "the disk was not full: {refused}");
}

/// A limit cuts a write short, as a full disk does in the middle of a file.
#[test]
fn a_file_that_is_cut_short_is_an_error_and_not_a_file() {
    let mut refused = 0;
    for operation in OPERATIONS {
        let home = prepared(operation);
        // Two blocks of 512 bytes, in dash; a database of steps has more already.
        let (code, text) = run(home.path(), operation, "trap '' XFSZ; ulimit -f 2;");
        assert!(matches!(code, Some(0 | EXIT_REFUSED)), "{operation}: {code:?} {text}");
        if code == Some(EXIT_REFUSED) {
            refused += 1;
            let words = ["File too large", "free some room"];
            assert_clear(home.path(), operation, &text, &words);
        }
        judge(home.path(), operation, operation);
    }
    println!("{refused} of {} operations were refused", OPERATIONS.len());
    assert!(refused >= 4, "nothing was cut short: {refused}");
}

#[test]
fn without_descriptors_all_is_refused_and_says_so() {
    let mut refused = 0;
    for operation in OPERATIONS {
        // The process itself needs some; the fewest with which it starts to work.
        for descriptors in 5..24 {
            let home = prepared(operation);
            let (code, text) = run(home.path(), operation, &format!("ulimit -n {descriptors};"));
            match code {
                Some(EXIT_REFUSED) => {
                    refused += 1;
                    assert!(text.contains("ulimit -n"), "{operation}: {text}");
                }
                Some(0) => break,
                // It did not come so far as to do anything.
                other => assert_ne!(other, None, "{operation}: {text}"),
            }
            judge(home.path(), operation, operation);
        }
    }
    println!("{refused} refusals in {} operations", OPERATIONS.len());
    assert!(refused >= OPERATIONS.len(), "descriptors were not used up: {refused}");
}

#[test]
fn an_unauthorized_user_learns_the_owner_of_the_queue() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can change the user for a moment");
        return;
    }
    // Every user must be able to read the program itself.
    let program = tempfile::tempdir().expect("a temporary directory");
    let copy = program.path().join("program");
    fs::copy(std::env::current_exe().expect("a test program"), &copy).expect("a copy");
    fs::set_permissions(program.path(), fs::Permissions::from_mode(0o755)).expect("permissions");
    for operation in OPERATIONS {
        let home = prepared(operation);
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).expect("permissions");
        for file in ["counter", "steps.db"] {
            let path = home.path().join(file);
            let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o600));
        }
        let setup = format!(
            "cd /; set -- \"$@\"; exec setpriv --reuid=65534 --regid=65534 --clear-groups {} \"$@\";",
            copy.display()
        );
        let (code, text) = run(home.path(), operation, &setup);
        assert_eq!(code, Some(EXIT_REFUSED), "{operation}: {text}");
        let words = ["check who owns it", "must be writable"];
        assert_clear(home.path(), operation, &text, &words);
        judge(home.path(), operation, operation);
    }
}
