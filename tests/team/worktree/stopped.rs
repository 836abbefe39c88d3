//! A holder is stopped past its lease and continues afterwards. Its writes are refused, its work is
//! salvaged, and its successor is undisturbed.

use rustix::process::Signal;

use crate::children::{say, wait_for_parent};

use super::*;

/// In a child: claims the task, works, and submits when the parent says so.
pub(crate) fn hold(home: &str, agent: &str, epoch: &str) {
    let board = Board::find(Path::new(home), board_options()).unwrap();
    let worktrees = Worktrees::open(&board, options()).unwrap();
    let me = TaskHolder { by: name(agent), epoch: epoch.parse().unwrap() };
    let claimed = worktrees.claim_task(&name("t0"), &me).unwrap();
    std::env::set_current_dir(&claimed.path).unwrap();
    std::fs::write("early", "before the stop").unwrap();
    say("claimed");
    wait_for_parent();
    let write = std::fs::write("late", "after the stop");
    let error = worktrees.submit(&name("t0"), &claimed.granted.holder).unwrap_err();
    say(format!("{} {error}", if write.is_ok() { "wrote" } else { "could not write" }));
}

#[test]
fn a_holder_that_was_stopped_past_its_lease_is_refused_and_its_work_is_salvaged() {
    let bed = Bed::new();
    bed.task("t0");
    let first = bed.agent("coder-1", "coder");
    let home = bed.path();
    let role = ["worktree::hold", home.to_str().unwrap(), "coder-1", &first.epoch.to_string()];
    let mut holder = Child::spawn(&role);
    assert_eq!(holder.hear().as_deref(), Some("claimed"));
    holder.stop();
    // Its observer has seen the same number for a whole lease.
    let lease = ensemble_team::board::leases(&bed.board.read().unwrap());
    let claim = lease.iter().find(|lease| lease.epoch() > first.epoch).unwrap();
    bed.change(|board| board.expire(claim, 0));
    let second = bed.agent("coder-2", "coder");
    let claimed = bed.trees().claim_task(&name("t0"), &second).unwrap();
    let salvage = claimed.salvage.unwrap();
    assert_eq!(bed.file_in(&salvage.commit, "early"), "before the stop");

    holder.signal(Signal::CONT);
    holder.go();
    let said = holder.hear().unwrap();
    assert!(said.starts_with("could not write"), "{said}");
    assert!(said.contains("does not hold it: `coder-2`"), "{said}");
    holder.finish();
    assert_eq!(bed.status("t0"), TaskStatus::Claimed);
    assert!(git(&claimed.path, &["status", "--porcelain"]).is_empty(), "the other one's worktree");
    let reference = format!("refs/ensemble/salvage/t0/{}", claim.epoch());
    assert_eq!(bed.refs("refs/ensemble"), [reference]);
}
