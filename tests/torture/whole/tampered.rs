//! The checker must be able to refute: it finds each tampered whole.

use super::checker::violations;
use super::journal::troubles;

use super::*;

fn line(at: f64, verb: &str, task: &str, (epoch, pid): (u64, u32), rest: &str) -> Line {
    let (verb, agent, task) = (verb.to_owned(), "a".to_owned(), task.to_owned());
    let rest = rest.split_whitespace().map(str::to_owned).collect();
    Line { at, verb, agent, task, epoch, pid, rest }
}

fn supervised(at: f64, verb: &str, task: &str, rest: &str) -> Line {
    Line { agent: "supervised".to_owned(), ..line(at, verb, task, (3, 30), rest) }
}

/// A history in which all is well: a message with a plan that was settled by its second holder, and
/// a failed one. Also a batch, two tasks of the board, and a queue of steps.
fn sound() -> Facts {
    let mut facts = Facts::default();
    facts.works.extend(["m1", "m2"].map(|id| Work::new(Kind::Mail, id)));
    facts.works[0].needs_plan = true;
    let order = |first: &str, then: &str| vec![(first.to_owned(), then.to_owned())];
    let mut batch = Work::new(Kind::Batch, "batch-1");
    batch.parts = vec!["i1-3".to_owned(), "i1-5".to_owned()];
    batch.order = order("i1-3", "i1-5");
    let mut second = Work::new(Kind::Board, "t2");
    second.order = order("t1", "t2");
    let mut steps = Work::new(Kind::Steps, "s1");
    steps.order = order("s1.1", "s1.2");
    facts.works.extend([batch, Work::new(Kind::Board, "t1"), second, steps]);
    let place = |place: &str| vec![Message { place: place.to_owned(), reason: String::new() }];
    facts.messages.extend([("m1".to_owned(), place("done")), ("m2".to_owned(), place("done"))]);
    facts.reports.insert("m2".to_owned(), ("failed".to_owned(), "no luck".to_owned()));
    facts.told = vec!["report.completed m2 no luck".to_owned()];
    let success = || vec!["success".to_owned()];
    facts.summaries.extend([("i1-3".to_owned(), success()), ("i1-5".to_owned(), success())]);
    let merged = |before: &[&str]| {
        let before = before.iter().map(|before| (*before).to_owned()).collect();
        ("MERGED".to_owned(), String::new(), before)
    };
    facts.board.extend([("t1".to_owned(), merged(&[])), ("t2".to_owned(), merged(&["t1"]))]);
    let completed = |index| (index, "COMPLETED".to_owned());
    facts.steps.insert("s1".to_owned(), vec![completed(1), completed(2)]);
    facts.requests.insert("r1".to_owned(), "closed".to_owned());
    facts.lines = vec![
        line(10.0, "begin", "m1", (1, 11), "9.9"),
        line(12.0, "hasty", "m1", (1, 11), "1"),
        line(18.0, "approving", "m1", (0, 9), "a"),
        line(20.0, "begin", "m1", (2, 12), "19.9"),
        line(20.0, "beside", "m1", (2, 12), "a 1 11"),
        line(21.0, "hand", "m1", (2, 12), "success"),
        line(21.1, "end", "m1", (2, 12), "ok"),
        line(22.0, "hand", "m1", (1, 11), "success"),
        line(22.1, "end", "m1", (1, 11), "refused 1"),
        line(23.0, "begin", "i1-3", (1, 12), "22.9"),
        line(24.0, "hand", "i1-3", (1, 12), "success"),
        line(25.0, "begin", "i1-5", (1, 12), "24.9"),
        line(26.0, "begin", "s1.1", (1, 13), "25.9"),
        line(27.0, "hand", "s1.1", (1, 13), "success"),
        line(28.0, "begin", "s1.2", (1, 14), "27.9"),
        supervised(29.0, "begin", "t1", ""),
        supervised(30.0, "begin", "t2", ""),
        line(60.0, "agreed", "r1", (0, 12), ""),
    ];
    facts.troubles = troubles("13 begin stop 11\n21.5 end stop 11\n40 begin pause\n55 end pause\n");
    facts
}

#[track_caller]
fn is_found(what: &str, tamper: impl FnOnce(&mut Facts)) {
    let mut facts = sound();
    tamper(&mut facts);
    let wrong = violations(&facts);
    assert!(wrong.iter().any(|wrong| wrong.contains(what)), "{what:?} is not in {wrong:?}");
}

#[test]
fn a_sound_whole_is_believed() {
    assert_eq!(violations(&sound()), [""; 0]);
}

/// However long the chain behind a task is that a person was notified of, it ends there.
#[test]
fn what_waits_behind_a_told_task_is_no_silence() {
    let mut facts = sound();
    let waits = |before: &str| ("UNCLAIMED".to_owned(), String::new(), vec![before.to_owned()]);
    facts.works.extend(["t3", "t4"].map(|id| Work::new(Kind::Board, id)));
    facts.board.extend([("t3".to_owned(), waits("t2")), ("t4".to_owned(), waits("t3"))]);
    facts.board.insert("t2".into(), ("BLOCKED".into(), "stuck".into(), vec!["t1".into()]));
    assert!(violations(&facts).contains(&"t4 is UNCLAIMED".to_owned()));
    facts.told.push("board.alarm t2 is blocked: stuck".to_owned());
    assert_eq!(violations(&facts), [""; 0]);
}

#[test]
fn work_that_is_open_lost_or_ends_in_silence_is_found() {
    let dead = |reason: &str| Message { place: "dead".to_owned(), reason: reason.to_owned() };
    is_found("m1 was sent and is None", |facts| drop(facts.messages.remove("m1")));
    is_found("m1 was sent", |facts| facts.messages.get_mut("m1").unwrap().push(dead("x")));
    is_found("m1 is open", |facts| facts.messages.get_mut("m1").unwrap()[0].place = "cur".into());
    is_found("m1 ended in silence", |facts| {
        facts.messages.insert("m1".into(), vec![dead("expired")]);
    });
    is_found("m2 ended in silence", |facts| facts.told = vec!["report.completed m21".into()]);
    is_found("i1-5 of batch-1 was told as None", |facts| drop(facts.summaries.remove("i1-5")));
    is_found("was told as Some", |facts| {
        facts.summaries.get_mut("i1-5").unwrap().push("success".into());
    });
    is_found("t2 is not on the board", |facts| drop(facts.board.remove("t2")));
    is_found("t2 is CLAIMED", |facts| facts.board.get_mut("t2").unwrap().0 = "CLAIMED".into());
    is_found("t2 is blocked in silence", |facts| {
        facts.board.get_mut("t2").unwrap().0 = "BLOCKED".into();
    });
    is_found("t2 is merged, and t1 is not", |facts| {
        facts.board.get_mut("t1").unwrap().0 = "BLOCKED".into();
    });
    is_found("s1 is lost", |facts| facts.steps.clear());
    is_found("step 2 of s1 is PENDING", |facts| {
        facts.steps.get_mut("s1").unwrap()[1].1 = "PENDING".into();
    });
    is_found("s1 stands in silence", |facts| {
        facts.steps.get_mut("s1").unwrap()[1].1 = "BLOCKED".into();
    });
}

#[test]
fn two_at_once_and_two_ends_are_found() {
    is_found("two at once", |facts| facts.troubles.retain(|trouble| trouble.what != "stop"));
    is_found("two at once", |facts| {
        facts.lines.push(line(20.5, "beside", "i1-3", (1, 12), "a 1 15"))
    });
    is_found("m1 was finished 2 times", |facts| facts.lines[8].rest = vec!["ok".into()]);
}

#[test]
fn work_that_was_not_allowed_is_found() {
    is_found("begun in the pause", |facts| {
        facts.lines.push(line(41.0, "begin", "m2", (1, 12), "40.5"));
    });
    is_found("begun in the pause", |facts| {
        facts.lines.push(supervised(50.0, "begin", "t1", ""));
    });
    is_found("without its plan", |facts| facts.lines[2].at = 22.0);
    is_found("without its plan", |facts| facts.lines[1].rest = vec!["0".into()]);
    is_found("s1.2 was begun before s1.1 was done", |facts| facts.lines[13].at = 29.0);
    is_found("i1-5 was begun before", |facts| facts.lines[10].rest = vec!["failed".into()]);
    is_found("t2 was begun before t1", |facts| facts.lines[15].at = 31.0);
    is_found("agreed to leave", |facts| {
        facts.lines.push(line(61.0, "begin", "m2", (1, 12), "60.9"));
    });
    is_found("agreed to leave", |facts| {
        facts.lines.push(line(61.0, "after-agreed", "m2", (1, 12), ""));
    });
}

#[test]
fn what_is_left_is_found() {
    is_found("request r1 is pending", |facts| {
        drop(facts.requests.insert("r1".into(), "pending".into()))
    });
    is_found("w/t1 is left", |facts| facts.worktrees.push("w/t1".into()));
    is_found("task/t2 is left", |facts| facts.branches.push("task/t2".into()));
    is_found("process 7 is left", |facts| facts.left.push("process 7 is left".into()));
}

#[test]
fn a_disturbance_lasts_until_its_end() {
    let found = troubles("1.5 begin stop 4 5\n2 once kill 6\n3 end stop 4 5\n4 begin full\n");
    let trouble = |what: &str, from, to, pids: &[u32]| Trouble {
        what: what.to_owned(),
        from,
        to,
        pids: pids.to_vec(),
    };
    let all = [
        trouble("stop", 1.5, 3.0, &[4, 5]),
        trouble("kill", 2.0, 2.0, &[6]),
        trouble("full", 4.0, f64::INFINITY, &[]),
    ];
    assert_eq!(found, all);
}
