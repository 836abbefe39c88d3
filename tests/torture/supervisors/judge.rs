//! Invariants of the final state.

use ensemble_core::event_log::Record;

use crate::claims::{Claims, one_holder_at_a_time};

use super::*;

/// At least one of this many jumps is visible in the order of the board's writes.
const JUMPS_SEEN: u64 = 12;
/// A clock that goes back by more than this, in milliseconds, was set.
const BACK_MS: i64 = 60_000;

pub(crate) fn told(bed: &Bed, killer: &Killer<'_>) -> String {
    let state = bed.board.read().unwrap();
    let line = |task: &BoardTask| {
        let events: Vec<&str> = task.history.iter().map(|line| line.event.as_str()).collect();
        format!("{} {} {events:?}", task.id, task.status.as_str())
    };
    let is_over =
        |task: &&BoardTask| !matches!(task.status, TaskStatus::Merged | TaskStatus::Blocked);
    let tasks: Vec<String> = state.tasks.iter().filter(is_over).map(line).collect();
    format!("{}\n{:?}\n{}", tasks.join("\n"), state.agents, killer.team.told())
}

/// All writes to the board, in their order.
fn writes(bed: &Bed) -> Vec<Record> {
    let records = read_all(&bed.home.path().join(".ensemble/logs")).unwrap();
    let revision = |record: &Record| record.data["revision"].as_u64().unwrap();
    let writes = records.filter(|record| record.kind.matches("board.written"));
    // A write whose process was killed may be recorded twice: by itself and by the next one.
    let by_revision: BTreeMap<u64, Record> =
        writes.map(|record| (revision(&record), record)).collect();
    by_revision.into_values().collect()
}

/// Two processes may meet at one task only if the first paused, itself or with its supervisor.
/// The other exception is a first process that was not seen to live for a whole lease. An agent
/// whose supervisor was killed is ended before.
fn two_processes(journal: &[String], killer: &Killer<'_>, claims: &Claims) -> usize {
    let beside: Vec<&String> = journal.iter().filter(|line| line.starts_with("beside ")).collect();
    for line in &beside {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, _, _, epoch, pid, supervisor] = words[..] else { panic!("{line}") };
        let [epoch, pid, supervisor] = [epoch, pid, supervisor].map(|n| n.parse::<u64>().unwrap());
        let stood = [pid, supervisor].iter().any(|pid| killer.stood.contains(&(*pid as u32)));
        let is_orphan = killer.killed.contains(&(supervisor as u32));
        assert!(stood || (claims.ran_out.contains(&epoch) && !is_orphan), "two at once: {line}");
    }
    beside.len()
}

/// One that has ended, as it must be; whether it is merged.
fn judge_task(bed: &Bed, task: &BoardTask) -> bool {
    let (id, home) = (task.id.as_str(), bed.home.path());
    if is_hopeless(id) {
        assert_eq!(task.status, TaskStatus::Blocked, "{task:?}");
        assert!(task.blocked_reason.as_ref().is_some_and(|why| !why.is_empty()), "{task:?}");
        return false;
    }
    assert_eq!(task.status, TaskStatus::Merged, "{task:?}");
    let merge = task.merge_commit.clone().unwrap();
    let trailer = format!("--grep=^Ensemble-Task: {id}$");
    let merges = git(home, &["log", "--format=%H", &trailer, "integration"]);
    assert_eq!(merges, merge, "{id} is merged once, and where the board says");
    let content = bed.file_in("integration", id);
    for part in 0..3 {
        assert!(content.contains(&format!("{id} part {part}")), "{id}: {content}");
    }
    for before in &task.depends_on {
        let first = bed.on_board(before.as_str()).merge_commit.unwrap();
        git(home, &["merge-base", "--is-ancestor", &first, &format!("{merge}^2")]);
    }
    true
}

pub(crate) fn judge(bed: &Bed, killer: &Killer<'_>) -> String {
    let state = bed.board.read().unwrap();
    let merged = state.tasks.iter().filter(|task| judge_task(bed, task)).count();
    let blocked = state.tasks.len() - merged;
    assert!(state.agents.is_empty(), "{:?}", state.agents);

    let writes = writes(bed);
    let steps = writes.iter().flat_map(|record| record.data["steps"].as_array().unwrap());
    let claims = one_holder_at_a_time(steps).unwrap();
    let journal = killer.team.journal();
    let beside = two_processes(&journal, killer, &claims);
    let at = |record: &Record| record.timestamp.unix_millis();
    let back = writes.windows(2).filter(|two| at(&two[1]) < at(&two[0]) - BACK_MS).count();
    // Jumps that follow each other without a write in between, and jumps ahead, leave no trace.
    assert!(back > 0 || killer.jumps < JUMPS_SEEN, "the wall clock was set and no write shows it");

    assert!(bed.directories().is_empty(), "{:?}", bed.directories());
    assert!(bed.refs("refs/heads/task").is_empty(), "{:?}", bed.refs("refs/heads/task"));
    let entries = git(bed.home.path(), &["worktree", "list", "--porcelain"]);
    assert_eq!(entries.matches("worktree ").count(), 1, "{entries}");

    let refused = journal.iter().filter(|line| line.starts_with("refused")).count();
    let anew = journal.iter().filter(|line| line.starts_with("cut anew")).count();
    let salvaged = bed.refs("refs/ensemble/salvage").len();
    format!(
        "{merged} merged, {blocked} blocked; {} claims and reviews, {} of them lost, \
         {refused} late writes refused, {anew} cut anew, {beside} met at work, {salvaged} salvaged; \
         {} supervisors and {} agents killed, {} times stopped past the lease, \
         the clock set {} times, seen to go back {back} times, a name still in use {} times",
        claims.count,
        claims.lost,
        killer.killed.len(),
        killer.killed_agents,
        killer.stops,
        killer.jumps,
        killer.team.busy,
    )
}
