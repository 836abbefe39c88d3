use std::path::Path;
use std::time::Duration;

use ensemble_core::env::Monotonic;
use ensemble_project::ProjectConfig;
use ensemble_project::attention::{Kind, Need};

use super::channels::plain;
use super::schedule::{
    ATTEMPTS_MAX, AlertMemory, AlertMoment, AlertSchedule, DueAlert, FINISHED_AFTER, GONE_AFTER,
    RETRY,
};

const NOON: u16 = 12 * 60;
const NIGHT: u16 = 23 * 60;

/// A schedule with a clock that a test moves.
struct Case {
    schedule: AlertSchedule,
    moment: AlertMoment,
    rules: String,
}

impl Case {
    fn new(rules: &str) -> Self {
        Self::after(rules, AlertMemory::default())
    }

    fn after(rules: &str, kept: AlertMemory) -> Self {
        let config =
            ProjectConfig::parse(&format!("notify: {rules}\n"), Path::new("x.yaml")).unwrap();
        let moment = AlertMoment { now: Monotonic::ZERO, minute: NOON, looks: 0 };
        Self { schedule: AlertSchedule::new(config.notify, kept), moment, rules: rules.to_owned() }
    }

    /// Moves the clock, updates the needs, and returns the alerts sent: kind and count.
    fn at(&mut self, second: u64, needs: &[Need]) -> Vec<String> {
        let due = self.due(second, needs, Some(true));
        due.iter().map(|due| format!("{} {}", due.occurrence.key.need, due.count)).collect()
    }

    fn due(&mut self, second: u64, needs: &[Need], has_work: Option<bool>) -> Vec<DueAlert> {
        self.moment.now = Monotonic::ZERO + Duration::from_secs(second);
        self.schedule.update_needs(self.moment, needs, has_work);
        self.schedule.due(self.moment, 100)
    }

    fn restarted(self) -> Self {
        let kept = serde_json::to_string(&self.schedule.kept()).unwrap();
        Self::after(&self.rules, serde_json::from_str(&kept).unwrap())
    }
}

fn need(kind: Kind, about: &str, since: u32) -> Need {
    let since = Some(format!("2026-11-25T10:{since:02}:00Z").parse().unwrap());
    let (text, help) = (format!("{about} needs you"), "`ensemble why`".to_owned());
    let about = Some(about.to_owned());
    Need { need: kind, agent: None, about, text, since, help, person: None }
}

const NONE: [&str; 0] = [];

#[test]
fn a_need_is_told_once_when_its_delay_is_over() {
    let mut case = Case::new("[{command: x, delay: 5}]");
    let blocked = [need(Kind::Blocked, "w1", 1)];
    assert_eq!(case.at(0, &blocked), NONE);
    assert_eq!(case.schedule.next_due(case.moment), Some(Monotonic::ZERO + Duration::from_secs(5)));
    assert_eq!(case.at(4, &blocked), NONE);
    assert_eq!(case.at(5, &blocked), ["blocked 1"]);
    assert_eq!(case.schedule.next_due(case.moment), None);
    assert_eq!(case.at(5000, &blocked), NONE);
}

#[test]
fn a_need_that_was_away_before_its_delay_begins_anew() {
    let mut case = Case::new("[{command: x, delay: 5}]");
    let blocked = [need(Kind::Blocked, "w1", 1)];
    assert_eq!(case.at(0, &blocked), NONE);
    assert_eq!(case.at(4, &[]), NONE);
    assert_eq!(case.at(5, &blocked), NONE);
    assert_eq!(case.at(10, &blocked), ["blocked 1"]);
}

#[test]
fn a_flicker_is_the_same_need_and_another_start_is_another() {
    let mut case = Case::new("[{command: x, delay: 0}]");
    let (first, second) = ([need(Kind::Blocked, "w1", 1)], [need(Kind::Blocked, "w1", 2)]);
    let away = GONE_AFTER.as_secs();
    assert_eq!(case.at(0, &first), ["blocked 1"]);
    assert_eq!(case.at(1, &[]), NONE);
    assert_eq!(case.at(away, &first), NONE, "it was away for less");
    assert_eq!(case.at(away + 1, &second), ["blocked 1"], "the next prompt");
    assert_eq!(case.at(away + 2, &[]), NONE);
    assert_eq!(case.at(2 * away + 2, &[]), NONE);
    assert_eq!(case.at(2 * away + 3, &second), ["blocked 1"], "it was away for long");
}

#[test]
fn it_is_repeated_until_a_person_looks() {
    let mut case = Case::new("[{command: x, delay: 0, repeat: 60}]");
    let gone = [need(Kind::Gone, "w1", 1)];
    assert_eq!(case.at(0, &gone), ["gone 1"]);
    assert_eq!(case.at(59, &gone), NONE);
    assert_eq!(case.at(60, &gone), ["gone 2"]);
    case.moment.looks = 1;
    assert_eq!(case.at(120, &gone), NONE);
    assert_eq!(case.at(1200, &gone), NONE);
}

#[test]
fn quiet_hours_hold_it_back_until_they_end() {
    let mut case =
        Case::new("[{command: x, delay: 0, quiet_hours: '22:00-07:00'}, {command: y, delay: 0}]");
    case.moment.minute = NIGHT;
    let (gone, step) = (need(Kind::Gone, "w1", 1), need(Kind::Step, "t1", 1));
    let all = [gone.clone(), step];
    assert_eq!(case.at(0, &all), ["gone 1", "step 1"], "by the second rule");
    assert_eq!(case.schedule.next_due(case.moment), None, "quiet hours wake no thread");
    case.moment.minute = NOON;
    assert_eq!(case.at(10, &[gone]), ["gone 1"], "what lasts still");
}

#[test]
fn a_rule_is_told_of_its_occasions_alone() {
    let mut case = Case::new("[{command: x, when: [dead_letter, limited], delay: 0}]");
    let all = [Kind::Blocked, Kind::DeadLetter, Kind::Limited].map(|kind| need(kind, "x", 1));
    assert_eq!(case.at(0, &all), ["dead_letter 1", "limited 1"]);
    let mut case = Case::new("[{command: x, delay: 0}]");
    assert_eq!(case.at(0, &all), ["blocked 1", "dead_letter 1"], "by default what is urgent");
}

#[test]
fn what_has_failed_is_tried_again_a_few_times() {
    let mut case = Case::new("[{command: x, delay: 0}]");
    let gone = [need(Kind::Gone, "w1", 1)];
    let mut second = 0;
    for attempt in 1..=ATTEMPTS_MAX {
        let due = case.due(second, &gone, Some(true));
        assert_eq!(due.len(), 1, "attempt {attempt}");
        assert_eq!(due[0].count, 1, "attempt {attempt}");
        let is_retried = case.schedule.failed(case.moment.now, &due[0]);
        assert_eq!(is_retried, attempt < ATTEMPTS_MAX);
        assert_eq!(case.at(second + RETRY.as_secs() - 1, &gone), NONE);
        second += RETRY.as_secs();
    }
    assert_eq!(case.at(second, &gone), NONE);
    assert_eq!(case.at(second + 100_000, &gone), NONE);
}

#[test]
fn a_success_after_a_failure_ends_the_attempts() {
    let mut case = Case::new("[{command: x, delay: 0}]");
    let gone = [need(Kind::Gone, "w1", 1)];
    let due = case.due(0, &gone, Some(true));
    assert!(case.schedule.failed(case.moment.now, &due[0]));
    let due = case.due(RETRY.as_secs(), &gone, Some(true));
    case.schedule.succeeded(&due[0]);
    assert_eq!(case.at(10 * RETRY.as_secs(), &gone), NONE);
}

#[test]
fn the_end_of_all_work_is_told_once_after_work() {
    let mut case = Case::new("[{command: x}]");
    let finished = FINISHED_AFTER.as_secs();
    assert!(case.due(0, &[], Some(false)).is_empty(), "no work was seen");
    assert!(case.due(finished, &[], Some(false)).is_empty());
    assert!(case.due(100, &[], Some(true)).is_empty());
    assert!(case.due(101, &[], Some(false)).is_empty());
    assert!(case.due(100 + finished, &[], Some(false)).is_empty(), "the next task may come");
    assert_eq!(case.due(101 + finished, &[], Some(false)).len(), 1);
    assert!(case.due(9_000, &[], Some(false)).is_empty());
    assert!(case.due(9_001, &[], Some(true)).is_empty());
    assert!(case.due(9_002, &[], Some(false)).is_empty());
    assert_eq!(case.due(9_002 + finished, &[], Some(false)).len(), 1, "of the next work");
}

#[test]
fn what_cannot_be_seen_may_last_still() {
    let mut case = Case::new("[{command: x, delay: 0}]");
    let (decision, blocked) = (need(Kind::Decision, "r1", 1), need(Kind::Blocked, "w1", 2));
    let all = [decision.clone(), blocked.clone()];
    assert_eq!(case.at(0, &[decision]), ["decision 1"]);
    // The servers are away for long: the decision is on them, the pane is here.
    let seen = case.due(10 * GONE_AFTER.as_secs(), &[blocked], None);
    assert_eq!(seen.len(), 1, "what is here is told");
    assert!(case.due(20 * GONE_AFTER.as_secs(), &[], None).is_empty(), "not that all is over");
    assert_eq!(case.at(21 * GONE_AFTER.as_secs(), &all), NONE, "both are the same needs");
}

#[test]
fn a_burst_is_told_in_parts() {
    let mut case = Case::new("[{command: x, delay: 0}]");
    let needs: Vec<Need> = ["a", "b", "c"].map(|about| need(Kind::Step, about, 1)).into();
    case.schedule.update_needs(case.moment, &needs, Some(true));
    assert_eq!(case.schedule.due(case.moment, 2).len(), 2);
    assert_eq!(case.schedule.next_due(case.moment), Some(Monotonic::ZERO), "one waits");
    assert_eq!(case.schedule.due(case.moment, 2).len(), 1);
}

#[test]
fn the_next_watcher_repeats_nothing() {
    let mut case = Case::new("[{command: x, delay: 0}]");
    let gone = [need(Kind::Gone, "w1", 1)];
    assert_eq!(case.at(0, &gone), ["gone 1"]);
    let mut case = case.restarted();
    assert_eq!(case.at(0, &[]), NONE, "no evidence yet");
    assert_eq!(case.at(1, &gone), NONE);
    let mut case = case.restarted();
    assert_eq!(case.at(0, &[]), NONE);
    let away = GONE_AFTER.as_secs();
    assert_eq!(case.at(away, &[]), NONE);
    assert_eq!(case.at(away + 1, &gone), ["gone 1"], "it was over for a while");
    let mut other = Case::after("[{command: other, delay: 0}]", case.schedule.kept());
    assert_eq!(other.at(0, &gone), ["gone 1"], "another rule has told nothing");
}

#[test]
fn texts_of_others_do_nothing_to_a_terminal() {
    assert_eq!(plain("a\x1b]0;x\x07b\nc\u{202e}d\u{61c}e\u{2060}f\u{feff}"), "a ]0;x b c d e f ");
    assert_eq!(plain(&"x".repeat(1_000)).len(), 160);
}
