//! `up` and `down` of a project that was taken over: its agents run in panes of the user's own tmux server already.

use std::fs;

use crate::bed::{Bed, Ran, SaidText as _, ran, words, write_program};
use crate::takeover::upstream;
use crate::tmux_support::{TestServer, eventually};
use crate::wrapped::AGENT;

/// The user's tmux server: a session with the Conductor, and one with Dispatch and a worker.
struct Desk {
    bed: Bed,
    tmux: TestServer,
}

impl Desk {
    fn new() -> Self {
        let bed = Bed::empty();
        upstream(&bed, true);
        let mut tmux = TestServer::around(tempfile::tempdir().unwrap());
        let claude = tmux.dir.path().join("claude");
        write_program(&claude, AGENT);
        // What the user has typed into a shell; the shell stays when the agent ends.
        let pane = |agent: &str| {
            let lines = tmux.dir.path().join(agent);
            format!("LINES={} {}; exec bash --norc --noprofile", lines.display(), claude.display())
        };
        let session = |name: &str, agent: &str| {
            tmux.server.new_session(name, &pane(agent), 132, 24).unwrap();
        };
        session("shop-conductor", "conductor");
        session("shop-workers", "dispatch");
        tmux.server.run(&["split-window", "-t", "shop-workers", &pane("worker-1")]).unwrap();
        tmux.adopt();
        let desk = Self { bed, tmux };
        for pane in ["%0", "%1", "%2"] {
            eventually("the agent shows its composer", || {
                desk.tmux.screen(pane).iter().any(|line| line.contains("? for shortcuts"))
            });
        }
        desk
    }

    fn inside(&self, line: &str) -> Ran {
        let variable = format!("{},{},0", self.tmux.server.socket().display(), self.tmux.pid());
        ran(self.bed.command(&words(line)).env("TMUX", variable).output().unwrap())
    }

    fn panes(&self) -> Vec<String> {
        self.tmux.server.panes().unwrap().into_iter().map(|pane| pane.id).collect()
    }
}

#[test]
fn up_takes_in_the_panes_and_down_leaves_them() {
    let desk = Desk::new();
    // `init` of a new project beside it mentions the agents in tmux.
    let told = desk.inside("init elsewhere").stdout;
    let adopt = told.lines().find(|line| line.contains("ensemble agent adopt --all"));
    assert!(adopt.is_some_and(|line| line.ends_with("adopt the 3 agents in tmux")), "{told}");
    assert_eq!(desk.inside("init --from ensemble-claude .").code, 0);
    // The pane of the fixture's second worker is gone. The others are adopted anyway.
    let up = desk.inside("up");
    let expected =
        ["conductor  joined", "dispatch   joined", "worker-1   joined", "worker-2   lost"];
    for part in expected {
        assert!(up.stdout.contains(part), "{part}: {up:?}");
    }
    up.ends(1).says(["hint: run `ensemble agent join worker-2` in the pane"]);
    // What lay there is announced in the pane.
    let lines = desk.tmux.dir.path().join("worker-1");
    eventually("the worker is told of its task", || {
        fs::read_to_string(&lines).is_ok_and(|text| text.contains(" for worker-1. Run:"))
    });

    // An agent that ends does not come back by `up`, and no line says so.
    desk.tmux.human(&["quit 0", "Enter"]);
    eventually("the shell is back", || {
        desk.tmux.server.panes().unwrap().iter().any(|p| p.id == "%0" && p.command == "bash")
    });
    eventually("it is seen", || {
        let status = desk.bed.ok("status");
        status.contains("start it in its pane, or run `ensemble agent join conductor` in another")
    });
    desk.inside("up").says(["no claude runs in pane %0 yet: bash does"]);

    // Only what the team has opened is closed.
    let down = desk.inside("down --force");
    let closed = "session shop-workers stays with its own panes, watcher stopped\n";
    down.ends(0);
    down.stdout.finishes(closed);
    assert_eq!(desk.panes(), ["%0", "%1", "%2"]);

    // After a restart of tmux the same ids may be those of other panes: of the team's own window here.
    desk.tmux.server.kill_server().unwrap();
    desk.bed.run("up").ends(1).shows(["conductor  lost"]);
    desk.bed.ok("down").finishes("session shop-workers closed, watcher stopped\n");
}
