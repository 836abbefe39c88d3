//! Documents under a lock, changed by real processes.

use ensemble_core::document::{DocumentOptions, LockedDocument, with_file_lock};

use crate::*;

const SHORT: Duration = Duration::from_millis(50);

fn lock(path: &Path) -> LockedDocument {
    // These tests kill processes, they do not cut the power.
    let options = DocumentOptions { durability: Durability::Process, ..DocumentOptions::default() };
    LockedDocument::lock_with(path, DEADLINE, options).unwrap()
}

#[test]
fn play_role() {
    let Some(role) = cast() else { return };
    let path = Path::new(&role[1]);
    match role[0].as_str() {
        "count" => {
            for _ in 0..role[2].parse().unwrap() {
                let document = lock(path);
                let count = document.read().unwrap().map_or(0, |text| number(&text));
                document.replace((count + 1).to_string().as_bytes()).unwrap();
            }
        }
        "hold" => {
            let _document = lock(path);
            say("locked");
            wait_for_parent();
        }
        "rewrite" => {
            for n in 0_u64.. {
                lock(path).replace(&whole(n)).unwrap();
                say(n);
            }
        }
        other => panic!("no role {other}"),
    }
}

fn number(text: &[u8]) -> u64 {
    std::str::from_utf8(text).unwrap().parse().unwrap()
}

/// Content of many pages of which a part is recognised as such.
fn whole(n: u64) -> Vec<u8> {
    format!("{n:020}\n").repeat(2_000).into_bytes()
}

#[test]
fn eight_processes_count_exactly() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("counter");
    let name = path.to_str().unwrap();
    let children: Vec<Child> =
        (0..8).map(|_| Child::spawn(&["document::count", name, "200"])).collect();
    children.into_iter().for_each(Child::finish);
    assert_eq!(std::fs::read(&path).unwrap(), b"1600");
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 2, "counter and counter.lock");
}

#[test]
fn a_deadline_names_the_holder() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("state.yaml");
    let mut holder = Child::spawn(&["document::hold", path.to_str().unwrap()]);
    assert_eq!(holder.hear().as_deref(), Some("locked"));

    let start = Instant::now();
    let error = with_file_lock(&path, SHORT, |_| panic!("not under a lock")).unwrap_err();
    assert!(start.elapsed() >= SHORT);
    assert!(matches!(error, Error::Locked { .. }));
    assert!(error.to_string().contains(&format!("(pid {})", holder.pid())), "{error}");
    assert!(error.to_string().contains("state.yaml.lock"), "{error}");

    holder.kill();
    with_file_lock(&path, DEADLINE, |_| Ok(Some(b"free".to_vec()))).unwrap();
}

#[test]
fn flock_of_util_linux_excludes_us() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("x.yaml");
    // `cat` says that it runs under the lock, and ends with its input.
    let mut flock = Command::new("flock")
        .args(["--no-fork", "x.yaml.lock", "sh", "-c", "echo locked; exec cat"])
        .current_dir(home.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 7];
    std::io::Read::read_exact(flock.stdout.as_mut().unwrap(), &mut said).unwrap();

    let error = with_file_lock(&path, SHORT, |_| Ok(None)).unwrap_err().to_string();
    assert!(error.contains(&format!("(pid {})", flock.id())), "{error}");
    drop(flock.stdin.take());
    with_file_lock(&path, DEADLINE, |_| Ok(None)).unwrap();
    assert!(flock.wait().unwrap().success());
}

#[test]
fn we_exclude_flock_of_util_linux() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("x.yaml");
    let flock = |path: &Path| {
        let lock = path.with_extension("yaml.lock");
        Command::new("flock").arg("--nonblock").arg(lock).arg("true").status().unwrap().success()
    };
    let document = LockedDocument::lock(&path, DEADLINE).unwrap();
    assert!(!flock(&path));
    drop(document);
    assert!(flock(&path));
}

#[test]
fn a_killed_writer_leaves_the_old_or_the_new_content() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("state.yaml");
    let mut dice = Dice(0x5eed);
    for _ in 0..100 {
        let mut child = Child::spawn(&["document::rewrite", path.to_str().unwrap()]);
        let mut done = None;
        for _ in 0..=dice.below(8) {
            done = child.hear();
        }
        // So that not all die at the same instruction.
        for _ in 0..dice.below(20_000) {
            std::hint::spin_loop();
        }
        let acknowledged = child.kill().pop().or(done).unwrap().parse::<u64>().unwrap();
        let content = lock(&path).read().unwrap().unwrap();
        let found = number(&content[..20]);
        assert_eq!(content, whole(found));
        assert!(found == acknowledged || found == acknowledged + 1, "{found} {acknowledged}");
    }
    lock(&path).replace(b"end").unwrap();
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 2, "no temporary file is left");
}
