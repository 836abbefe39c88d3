//! The watcher of a team that is up comes back by itself, once, and not after `down`.

use ensemble_core::durable::FileLock;

use super::{Team, kill};
use crate::bed::SaidText as _;
use crate::tmux_support::eventually;

impl Team {
    pub(super) fn watcher(&self) -> Option<u32> {
        FileLock::holder(&self.bed.project().join(".ensemble/watch.lock"))
    }

    #[track_caller]
    fn lose_watcher(&self) -> u32 {
        let watcher = self.watcher().expect("a watcher");
        kill(watcher);
        eventually("no watcher runs", || self.watcher().is_none());
        let is_dead = || self.panes().iter().any(|pane| pane.is_sidecar && pane.dead);
        eventually("tmux has noticed", is_dead);
        watcher
    }
}

#[test]
fn a_watcher_that_was_killed_comes_back_with_the_next_verb_which_reads_no_table_of_locks() {
    let team = Team::with(&["conductor"], "");
    team.up();
    let hook = "echo '{}' | $E admin hook start --provider claude";
    for line in ["$E send --as operator --to conductor -m news", "$E status", "$E team", hook] {
        let before = team.lose_watcher();
        let ran = team.shell(line);
        assert_eq!(ran.code, 0, "{line}: {ran:?}");
        eventually(line, || team.watcher().is_some_and(|now| now != before));
        let sidecars: Vec<_> = team.panes().into_iter().filter(|pane| pane.is_sidecar).collect();
        assert_eq!(sidecars.len(), 1, "it runs in its own window: {sidecars:#?}");
        assert_eq!(Some(sidecars[0].pid), team.watcher(), "{line}");
    }
    // Many at once start one.
    team.lose_watcher();
    let many = "for n in 1 2 3 4 5 6; do $E send --as operator --to conductor -m x & done; wait";
    assert_eq!(team.shell(many).code, 0);
    eventually("a watcher runs", || team.watcher().is_some());
    let sidecars = team.panes().into_iter().filter(|pane| pane.is_sidecar).count();
    assert_eq!(sidecars, 1);
    // While one process reads that table, each process of the machine that takes a lock waits.
    let trace = team.here("trace");
    for verb in ["send --as operator --to conductor -m x", "team", "status"] {
        let line = format!("strace -f -qq -e trace=openat -o {} $E {verb}", trace.display());
        let ran = team.shell(&line);
        let opened = std::fs::read_to_string(&trace).unwrap();
        assert!(ran.code == 0 && opened.contains("ensemble.yaml"), "{verb}: {ran:?}\n{opened}");
        assert!(!opened.contains("/proc/locks"), "{verb}: {opened}");
    }
}

#[test]
fn no_verb_starts_a_watcher_after_down_or_without_a_team() {
    let team = Team::with(&["conductor"], "");
    // Nothing is up yet.
    let said = team.bed.run("send --as operator --to conductor -m news").stderr;
    said.has(["`ensemble up conductor` starts it"]);
    team.up();
    team.bed.ok("down --force");
    for line in ["send --as operator --to conductor -m news", "status", "team", "inbox conductor"] {
        let ran = team.bed.run(line);
        assert!(ran.code == 0, "{line}: {ran:?}");
        assert_eq!(team.watcher(), None, "{line}");
        assert!(team.panes().is_empty(), "{line}");
    }
}
