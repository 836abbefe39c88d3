//! `ensemble.yaml` holds commands: it is read only where no other user can have changed it, and never waited for. Agents
//! that run as separate users can work where they may write, and other users can do nothing.

use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::process::Command;

use crate::bed::{Bed, Ran, SaidText as _, program, to_end, words};

#[test]
fn a_configuration_that_others_could_change_is_refused_with_the_remedy() {
    let bed = Bed::new();
    let config = bed.project().join("ensemble.yaml");
    let mode =
        |mode| std::fs::set_permissions(&config, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(0o666);
    bed.fails(2, "status").has(["other users may change it", "chmod go-w"]);
    mode(0o600);
    bed.ok("status");
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can give files away");
    }
    // A group may have several users. The private group of the owner, as with a umask of 002, does not.
    chown(&config, None, Some(4001)).unwrap();
    mode(0o664);
    assert!(bed.fails(2, "status").contains("other users may change it"));
    chown(&config, None, Some(0)).unwrap();
    bed.ok("status");
    mode(0o644);
    chown(&config, Some(4001), None).unwrap();
    bed.fails(2, "status").has(["belongs to user 4001"]);
}

#[test]
fn a_configuration_that_is_no_file_of_the_project_is_refused_at_once() {
    let bed = Bed::new();
    let config = bed.project().join("ensemble.yaml");
    let user = bed.project().with_file_name(".config/ensemble/config.yaml");
    std::fs::create_dir_all(user.parent().unwrap()).unwrap();
    let outside = bed.project().with_file_name("outside.yaml");
    std::fs::write(&outside, "durability: process\n").unwrap();
    let pipe = |at: &std::path::Path| {
        assert!(Command::new("mkfifo").arg(at).status().unwrap().success());
    };
    std::fs::remove_file(&config).unwrap();
    for (target, word) in [("/dev/zero", "outside of the project"), ("../outside.yaml", "outside")]
    {
        symlink(target, &config).unwrap();
        bed.fails(2, "status").has([word]);
        std::fs::remove_file(&config).unwrap();
    }
    pipe(&config);
    assert!(bed.fails(2, "status").contains("not a regular file"));
    std::fs::remove_file(&config).unwrap();
    // A link within the project, and one in a person's home, are what people make.
    bed.write_file("real.yaml", "durability: process\n");
    symlink("real.yaml", &config).unwrap();
    symlink(&outside, &user).unwrap();
    bed.ok("status");
    std::fs::remove_file(&user).unwrap();
    symlink("/dev/zero", &user).unwrap();
    assert!(bed.fails(2, "status").contains("not a regular file"));
}

#[test]
fn init_makes_a_configuration_that_is_accepted_under_every_umask() {
    let bed = Bed::empty();
    std::fs::remove_file(bed.project().join("ensemble.yaml")).unwrap();
    let script = format!("umask 000; {} init", program().display());
    let mut shell = bed.command(&["init"]);
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(bed.project()).env_clear();
    command
        .envs(shell.env("LC_ALL", "C").get_envs().filter_map(|(key, value)| Some((key, value?))));
    assert_eq!(to_end(&mut command).code, 0);
    bed.ok("status");
}

/// Users that no machine has, and a group that both are in.
const WORKERS: [(&str, u32); 2] = [("worker-1", 4001), ("worker-2", 4002)];
const STRANGER: u32 = 4003;

fn by(bed: &Bed, user: u32, line: &str) -> Ran {
    let own = bed.command(&words(line));
    let mut command = Command::new("setpriv");
    let user = user.to_string();
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
    command.arg(bed.project().join("program")).args(own.get_args());
    command.env_clear().current_dir(bed.project());
    for (key, value) in own.get_envs() {
        command.env(key, value.unwrap());
    }
    to_end(&mut command)
}

fn open(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_user_has_its_own_mailbox_and_nothing_of_another_user() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can run commands as other users");
        return;
    }
    let bed = Bed::empty();
    // Every user can reach the program and the project.
    let (temporary, mut above) = (std::env::temp_dir(), bed.project());
    while above.pop() && above != temporary && above.starts_with(&temporary) {
        open(&above, 0o755);
    }
    open(&bed.project(), 0o755);
    let reached = bed.project().join("program");
    if std::fs::hard_link(program(), &reached).is_err() {
        std::fs::copy(program(), &reached).unwrap();
    }
    assert_eq!(by(&bed, STRANGER, "--version").code, 0, "another user can start it");
    bed.configure("agents: {worker-1: {user: 4001}, worker-2: {user: 4002}}\n");
    bed.ok("init");
    for (worker, _) in WORKERS {
        bed.ok(&format!("mailbox add {worker}"));
        let line = format!("send --to {worker} --as lead --id for-{worker} -m secret-of-{worker}");
        assert_eq!(bed.run(&line).code, 0);
    }
    let refused = |ran: Ran, what: &str| {
        assert!(ran.code != 0 && !ran.stdout.contains("secret"), "{what}: {ran:?}");
        assert!(!ran.stderr.contains("panicked"), "{what}: {ran:?}");
    };
    for line in [
        "status",
        "inbox --as worker-1",
        "recv --as worker-1",
        "send --to worker-2 -m x --as worker-1",
    ] {
        refused(by(&bed, STRANGER, line), line);
    }
    let queue = bed.project().join("queue");
    assert_eq!(std::fs::metadata(&queue).unwrap().permissions().mode() & 0o077, 0, "private");

    // The set-up that SECURITY.md describes: each user gets its mailbox, and may pass through the directories above.
    for directory in ["", "mailbox"] {
        open(&queue.join(directory), 0o711);
    }
    for (worker, user) in WORKERS {
        give(&queue.join("mailbox").join(worker), user);
    }
    let taken = std::fs::read_dir(queue.join("mailbox/worker-1/new")).unwrap().count()
        + std::fs::read_dir(queue.join("mailbox/worker-1/front")).unwrap().count();
    assert_eq!(taken, 1, "its mail is there");
    let script =
        "mv mailbox/worker-1/new/*.yaml taken 2>/dev/null || cat mailbox/worker-1/*/*.yaml";
    for (user, may) in [(4001, true), (4002, false), (STRANGER, false)] {
        let user = user.to_string();
        let mut shell = Command::new("setpriv");
        shell.args(["--reuid", &user, "--regid", &user, "--clear-groups", "sh", "-c", script]);
        let said = shell.current_dir(&queue).output().unwrap();
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        assert_eq!(text.contains("secret-of-worker-1"), may, "user {user}: {said:?}");
    }
    // The owner still reads and writes everything.
    assert_eq!(bed.run("send --to worker-1 --as lead --id more -m more").code, 0);
    assert_eq!(bed.run("recv --as worker-1").code, 0);
}

fn give(path: &Path, user: u32) {
    chown(path, Some(user), Some(user)).unwrap();
    if path.is_dir() {
        for entry in std::fs::read_dir(path).unwrap().flatten() {
            give(&entry.path(), user);
        }
    }
}
