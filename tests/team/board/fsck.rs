//! Remains of crashes, people and other programs around a board.

use ensemble_team::board::BoardFinding;

use super::*;

fn found(bed: &Bed, repair: bool) -> Vec<BoardFinding> {
    bed.board.fsck(repair).unwrap()
}

#[track_caller]
fn one(bed: &Bed, repair: bool, problem: &str) -> BoardFinding {
    let mut all = found(bed, repair);
    assert_eq!(all.len(), 1, "{all:#?}");
    assert!(all[0].problem.contains(problem), "{all:#?}");
    all.remove(0)
}

#[test]
fn heartbeats_of_unregistered_agents_are_removed_and_others_kept() {
    let bed = Bed::new();
    let (ann, bob) = (bed.agent("ann", "coder"), bed.agent("bob", "coder"));
    let directory = bed.board.path().parent().unwrap();
    for agent in [&ann, &bob] {
        write_beat(directory, agent, 1, Duration::from_secs(300)).unwrap();
    }
    assert_eq!(found(&bed, false), []);
    bed.change(|board| board.unregister(&ann, "gone"));
    let left = one(&bed, false, "a registration that has ended");
    assert!(left.path.ends_with("leases/ann@1.beat") && left.is_repairable && !left.repaired);
    assert!(one(&bed, true, "a registration that has ended").repaired);
    assert_eq!(found(&bed, false), []);
    assert!(directory.join("leases/bob@2.beat").exists());
}

#[test]
fn a_write_that_the_log_does_not_know_is_recorded() {
    let bed = Bed::new();
    bed.task("task-1", &[]);
    let last = bed.board.path().with_file_name("state.yaml.last");
    let text = std::fs::read_to_string(&last).unwrap();
    std::fs::write(&last, text.replace("\"is_logged\":true", "\"is_logged\":false")).unwrap();
    bed.memory.take_records();
    assert!(!one(&bed, false, "its writer died").repaired);
    assert_eq!(bed.memory.take_records(), [], "looking changes nothing");
    assert!(one(&bed, true, "its writer died").repaired);
    assert_eq!(bed.memory.take_records().len(), 1);
    assert_eq!(found(&bed, false), []);
}

#[test]
fn a_write_by_another_program_is_noted() {
    let bed = Bed::new();
    bed.task("task-1", &[]);
    std::fs::write(bed.board.path(), bed.text() + "# by hand\n").unwrap();
    assert!(one(&bed, false, "by another program or by hand").is_note);
    drop(bed.board.lock().unwrap());
    std::fs::write(bed.board.path().with_file_name("state.edit.1.yaml"), "").unwrap();
    assert!(one(&bed, true, "is an edited copy").is_note);
    let broken = bed.text().replace("status: UNCLAIMED", "status: DONE");
    std::fs::write(bed.board.path(), broken).unwrap();
    let broken = one(&bed, true, "is `DONE`");
    assert!(broken.path.ends_with("state.yaml: tasks[0].status") && !broken.is_repairable);
}

#[test]
fn agents_and_claims_without_a_supervisor_are_reported() {
    let text = "version: 1\ntasks:\n  - {id: a, status: CLAIMED, assigned_to: ann, worktree: w, base_commit: c, lease_expires: 2026-01-01T00:00:00Z, spec_ref: s, done_when: d}\n  - {id: b, status: ABANDONED}\nagents:\n  ann: {status: IDLE}\n  bob: {status: WORKING, current_task: b, lease_expires: 2026-01-01T00:00:00Z}\n";
    let bed = Bed::with(".liza", text);
    let all = found(&bed, false);
    assert_eq!(all.len(), 2, "{all:#?}");
    assert_eq!(all[0].problem, "it is WORKING on b, but the tasks say something else");
    assert!(all[0].path.ends_with("state.yaml: agents.bob") && !all[0].is_note);
    assert!(all[1].is_note && all[1].problem.starts_with("`ann` held it until 2026-01-01"));
}
