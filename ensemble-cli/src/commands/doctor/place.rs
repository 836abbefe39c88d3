//! Checks the location of a queue: its file system, its drop boxes, what git tracks of it, and whether tasks can be
//! merged.

use std::path::Path;
use std::process::{Command, Stdio};

use ensemble_app::text::plural;
use ensemble_core::Error;
use ensemble_core::message::shell_word;
use ensemble_project::Project;
use ensemble_project::overview::WatcherView;
use ensemble_team::worktree::{CheckedOut, RemoteState, without_git};

use super::DoctorCheck;
use crate::context::Context;

/// File systems that other machines change: events and locks may not arrive. Magic numbers as in statfs(2).
const NETWORKED: [(u64, &str); 7] = [
    (0x6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x0102_1997, "9p (a drive of Windows under WSL, or a virtual machine's share)"),
    (0x5346_4846, "a drive of Windows under WSL 1"),
    (0x5346_414f, "AFS"),
    (0x6573_5546, "FUSE"),
];

pub(super) fn network(queue: &Path) -> Option<DoctorCheck> {
    of_kind(rustix::fs::statfs(queue).ok()?.f_type as u64 & 0xffff_ffff)
}

fn of_kind(kind: u64) -> Option<DoctorCheck> {
    let (_, name) = NETWORKED.iter().find(|(magic, _)| *magic == kind)?;
    let text = format!("the queue is on {name}: events and locks may not arrive");
    let remedy = "move the project to a disk of this machine; for several hosts set `transport` in ensemble.yaml";
    Some(DoctorCheck::warn("place", text, remedy))
}

pub(super) fn drop_boxes(project: &Project) -> DoctorCheck {
    const CHECK: &str = "drop boxes";
    let table = match project.drop_boxes().and_then(|table| project.routes().map(|_| table)) {
        Ok(table) => table,
        Err(error) => {
            let remedy =
                "correct that line of the user's configuration: it does not fit the project's";
            return DoctorCheck::fail(CHECK, error.to_string(), remedy);
        }
    };
    let shown: Vec<String> = table.iter().map(|spec| spec.shown()).collect();
    let view = WatcherView::of(project);
    let opened = view.status().filter(|_| view.runs()).and_then(|it| it["boxes"].as_array());
    let is_open = |name: &str| opened.is_none_or(|all| all.iter().any(|it| it["box"] == name));
    let closed: Vec<String> =
        table.iter().filter(|it| !is_open(it.name())).map(|it| it.shown()).collect();
    if closed.is_empty() {
        return DoctorCheck::ok(CHECK, shown.join(", "));
    }
    let text = format!("the running watcher does not watch {}", closed.join(", "));
    let remedy = "restart the watcher, which reads ensemble.yaml when it starts; a link in place of a directory is refused";
    DoctorCheck::warn(CHECK, text, remedy)
}

/// Whether git leaves the queue and the state alone. Nothing is said outside of a repository.
pub(super) fn git(project: &Project) -> Option<DoctorCheck> {
    let root = project.root();
    let run = |arguments: &[&str]| {
        let mut git = without_git(Command::new("git"));
        git.arg("-C").arg(root).args(arguments).env("GIT_OPTIONAL_LOCKS", "0");
        git.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().ok()?.code()
    };
    if run(&["rev-parse", "--is-inside-work-tree"])? != 0 {
        return None;
    }
    let seen: Vec<String> = [&project.queue, &project.state]
        .into_iter()
        .filter(|dir| dir.is_dir())
        .filter(|dir| {
            let probe = dir.join("tmp/probe");
            run(&["check-ignore", "-q", &probe.to_string_lossy()]) == Some(1)
        })
        .map(|dir| dir.display().to_string())
        .collect();
    if seen.is_empty() {
        return Some(DoctorCheck::ok("git", "ignores the queue and its state"));
    }
    let text = format!("git sees {}: messages could be committed", seen.join(" and "));
    let queue = shell_word(&project.queue.to_string_lossy());
    let remedy = format!("`ensemble --queue {queue} init` writes a .gitignore into each");
    Some(DoctorCheck::warn("git", text, remedy))
}

/// Whether approved tasks can be merged. Nothing is said without a blackboard in a git repository.
pub(super) fn merges(context: &Context) -> Option<DoctorCheck> {
    let board = context.board().ok()?;
    let worktrees = context.worktrees(&board).ok()?;
    if let Some(state) = worktrees.remote_state().transpose() {
        return Some(shared(state));
    }
    Some(match worktrees.checked_out() {
        Ok(None) => DoctorCheck::ok("merges", "the integration branch is not checked out"),
        Ok(Some(CheckedOut { branch, path, .. })) => DoctorCheck::warn(
            "merges",
            format!("`{branch}`, the integration branch, is checked out at {}", path.display()),
            "approved tasks wait until then: `git switch --detach` there, or name another \
             `integration_branch`",
        ),
        Err(error) => DoctorCheck::warn("merges", error.to_string(), "see what git says"),
    })
}

fn shared(state: Result<RemoteState, Error>) -> DoctorCheck {
    let (remote, branch, tip, unpushed) = match state {
        Ok(RemoteState { remote, branch, tip, unpushed, .. }) => (remote, branch, tip, unpushed),
        Err(error) => {
            let remedy = "no task can be claimed, submitted or merged until it answers: try \
                          `git ls-remote`, and see `worktrees: {remote: …}` in ensemble.yaml";
            return DoctorCheck::fail("merges", error.to_string(), remedy);
        }
    };
    match (tip, unpushed) {
        (None, _) => {
            let text = format!("`{remote}` answers; the first claim makes `{branch}` there");
            DoctorCheck::ok("merges", text)
        }
        (Some(_), 0) => {
            DoctorCheck::ok("merges", format!("go to `{branch}` of `{remote}`, which answers"))
        }
        (Some(_), count) => {
            let text =
                format!("`{branch}` here has {}, which `{remote}` lacks", plural(count, "commit"));
            let remedy =
                format!("tasks begin at the remote's branch: `git push {remote} {branch}`");
            DoctorCheck::warn("merges", text, remedy)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::of_kind;

    #[test]
    fn file_systems_of_other_machines_are_warned_of_and_local_ones_are_not() {
        // As statfs(2) has them. WSL 2 shows the drives below /mnt as 9p.
        for (kind, name) in [
            (0x6969, "NFS"),
            (0xff53_4d42, "CIFS"),
            (0x0102_1997, "Windows"),
            (0x6573_5546, "FUSE"),
        ] {
            let check = of_kind(kind).unwrap();
            assert!(check.text.contains(name), "{}", check.text);
            assert!(check.remedy.unwrap().contains("move the project to a disk of this machine"));
        }
        for (kind, name) in [
            (0xef53, "ext4"),
            (0x0102_1994, "tmpfs"),
            (0x9123_683e, "btrfs"),
            (0x794c_7630, "overlay"),
        ] {
            assert!(of_kind(kind).is_none(), "{name}");
        }
    }
}
