//! What is typed in two halves, and what is not typed while a limit lasts.

use super::*;

#[test]
fn a_worker_is_parked_until_its_limit_ends_and_nudged_then() {
    let bench = Bench::new();
    let pane = idle();
    let rule = "─".repeat(20);
    let limit = "Claude usage limit reached. Your limit resets in 2 hours 5 minutes";
    let screen = format!("{limit}\n{rule}\n❯ \n{rule}\n  ? for shortcuts");
    pane.show(|pane| {
        pane.command = "claude".to_owned();
        pane.screen = screen.lines().map(str::to_owned).collect();
        (pane.cursor_x, pane.cursor_y) = (2, 2);
    });
    let limits = Some((bench.clock.clone(), None));
    let agent = Box::new(Double { limits, ..Double::new("claude", &pane) });
    let mut manager = bench.manager();
    let mut patient = order("t1", "w1");
    patient.config.wait_max = Duration::from_secs(60);
    let id = manager.deliver(patient, Some(agent)).unwrap();
    // It was seen first after a minute, and two hours and five minutes are 7500 seconds.
    go_on(&bench, &mut manager, 7_559);
    assert_eq!((words(&pane), manager.phase(id)), (vec![], Some(Phase::Deliver)));
    go_on(&bench, &mut manager, 7_560);
    assert_eq!((words(&pane), manager.phase(id)), (vec!["nudge".to_owned()], Some(Phase::Nudge)));
    assert_eq!(bench.log.count("ladder.waiting"), 1);
}

/// Lets a manager continue until `end`, in seconds; when something was pressed.
fn go_on(bench: &Bench, manager: &mut AckDriver<'_>, end: u64) {
    while let Some(due) = manager.poll_timeout().filter(|due| due.as_duration().as_secs() <= end) {
        bench.clock.advance_to(due);
        manager.handle_timeout().unwrap();
    }
}

#[test]
fn the_delay_before_enter_holds_up_no_other_pane() {
    let bench = Bench::new();
    let panes = [idle(), idle()];
    let mut manager = bench.manager();
    for (worker, pane) in ["w1", "w2"].iter().zip(&panes) {
        let agent = Box::new(Double::in_halves("generic", pane));
        manager.deliver(order(&format!("t-{worker}"), worker), Some(agent)).unwrap();
    }
    // Both lines are typed at 60 s, and neither is submitted: no time has passed in the calls.
    go_on(&bench, &mut manager, 60);
    assert_eq!(panes.each_ref().map(SimPane::presses_count), [0, 0]);
    assert_eq!(manager.poll_timeout(), Some(Monotonic::from_duration(Duration::from_secs(63))));
    go_on(&bench, &mut manager, 63);
    assert_eq!(panes.each_ref().map(words), [["nudge"], ["nudge"]]);
    // What comes after a reset waits for its Enter: the next attempt, then its nudge.
    go_on(&bench, &mut manager, 180);
    assert_eq!(bench.log.count("worker_assign"), 2);
    // And for the pause that the program needs after it.
    go_on(&bench, &mut manager, 187);
    assert_eq!(bench.log.count("worker_assign"), 2);
    go_on(&bench, &mut manager, 188);
    assert_eq!(bench.log.count("worker_assign"), 4);
    go_on(&bench, &mut manager, 191);
    let whole = ["nudge", "Escape", "Escape", "CtrlC", "nudge", "reset", "nudge"];
    assert_eq!(panes.each_ref().map(words), [whole, whole]);
}

#[test]
fn no_line_is_left_half_typed_and_a_reset_is_taken_back_from_who_is_alive() {
    let bench = Bench::new();
    let pane = idle();
    let mut manager = bench.manager();
    let agent = Box::new(Double::in_halves("claude", &pane));
    let id = manager.deliver(order("t1", "w1"), Some(agent)).unwrap();
    manager.nudge(id);
    bench.spool.receive(&name("w1"), &name("w1")).unwrap().unwrap();
    manager.handle_mail(None).unwrap();
    assert!(manager.poll_ended().is_none(), "a line waits for its Enter");
    go_on(&bench, &mut manager, 3);
    assert!(matches!(manager.poll_ended(), Some((_, Ended::Acked { .. }))));
    assert_eq!(words(&pane), ["nudge"]);

    let pane = idle();
    let agent = Box::new(Double::in_halves("generic", &pane));
    manager.deliver(order("t2", "w2"), Some(agent)).unwrap();
    go_on(&bench, &mut manager, 183);
    bench.spool.receive(&name("w2"), &name("w2")).unwrap().unwrap();
    go_on(&bench, &mut manager, 190);
    assert!(!words(&pane).contains(&"reset".to_owned()), "{:?}", words(&pane));
    assert!(is_acked_once(&mut manager));
}

/// Whether the worker has the first attempt, and no other attempt was stored.
fn is_acked_once(manager: &mut AckDriver<'_>) -> bool {
    matches!(manager.poll_ended(), Some((_, Ended::Acked { attempt: 1, message, .. })) if message.as_str() == "t2.1")
}

#[test]
fn a_worker_that_answers_in_the_pause_after_its_reset_is_given_the_task_once() {
    for answers_by_file in [false, true] {
        let (bench, pane) = (Bench::new(), idle());
        let mut manager = bench.manager();
        manager.deliver(order("t2", "w2"), Some(Box::new(Double::new("generic", &pane)))).unwrap();
        go_on(&bench, &mut manager, 180);
        assert_eq!(words(&pane).last().map(String::as_str), Some("reset"), "{:?}", words(&pane));
        match answers_by_file {
            true => std::fs::write(bench.spool.root().join("ack/t2.ack"), "w2").unwrap(),
            false => drop(bench.spool.receive(&name("w2"), &name("w2")).unwrap().unwrap()),
        }
        let nudges = words(&pane).len();
        go_on(&bench, &mut manager, 190);
        assert!(is_acked_once(&mut manager), "by file: {answers_by_file}");
        assert_eq!(bench.log.count("worker_assign"), 1);
        assert_eq!(words(&pane).len(), nudges, "it is pressed no further");
    }
}

/// When each of the first presses of phase 2 came, in milliseconds since the phase began.
fn phase_2(bench: &Bench, pane: &SimPane, mut between: impl FnMut(usize)) -> Vec<(u128, String)> {
    let mut manager = bench.manager();
    let agent = Box::new(Double::new("generic", pane));
    manager.deliver(order("t1", "w1"), Some(agent)).unwrap();
    go_on(bench, &mut manager, 119);
    let (before, mut seen) = (pane.presses_count(), Vec::new());
    while let Some(due) = manager.poll_timeout().filter(|due| due.as_duration().as_secs() < 125) {
        bench.clock.advance_to(due);
        manager.handle_timeout().unwrap();
        let words = words(pane);
        for word in words.into_iter().skip(before + seen.len()) {
            seen.push((due.as_duration().as_millis() - 120_000, word));
        }
        between(seen.len());
        manager.handle_mail(None).unwrap();
        if manager.poll_ended().is_some() {
            break;
        }
    }
    seen
}

#[test]
fn the_keys_of_a_phase_are_600_ms_apart() {
    let (bench, pane) = (Bench::new(), idle());
    let expected = [(0, "Escape"), (600, "Escape"), (1_200, "CtrlC"), (1_800, "nudge")];
    let expected = expected.map(|(at, word)| (at, word.to_owned()));
    assert_eq!(phase_2(&bench, &pane, |_| {}), expected);
}

#[test]
fn a_worker_that_answers_between_two_keys_is_pressed_no_further() {
    let (bench, pane) = (Bench::new(), idle());
    let pressed = phase_2(&bench, &pane, |pressed| {
        if pressed == 1 {
            bench.spool.receive(&name("w1"), &name("w1")).unwrap().unwrap();
        }
    });
    assert_eq!(pressed, [(0, "Escape".to_owned())]);
    assert_eq!((bench.log.count("ladder.pressed"), bench.log.count("task_start")), (1, 1));
}
