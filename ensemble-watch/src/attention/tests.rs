use serde_json::json;

use super::*;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn at(minute: u32) -> Timestamp {
    format!("2026-11-25T10:{minute:02}:00Z").parse().unwrap()
}

fn agent(who: &str, state: State) -> AgentView {
    AgentView {
        machine: None,
        name: name(who),
        state,
        why: "as seen".to_owned(),
        since: Some(at(1)),
        holds: Vec::new(),
        unread: 0,
        waited: None,
        nudges: None,
        has_pane: true,
        again: format!("`ensemble up {who}`"),
    }
}

fn asked(kind: &str, to: &str, minute: u32) -> Asked {
    serde_json::from_value(json!({
        "version": 1, "request_id": "r1", "kind": kind, "from": "bob", "to": to,
        "created_at": at(minute), "deadline_seconds": 3600, "content": "x",
    }))
    .unwrap()
}

fn trouble(alarm: &str) -> Trouble {
    Trouble {
        alarm: alarm.to_owned(),
        about: "t1".to_owned(),
        text: "task t1".to_owned(),
        help: "`x`".to_owned(),
    }
}

fn ladder(state: &str) -> LadderFile {
    serde_json::from_value(json!({
        "version": 1, "message": "m1", "mailbox": "bob", "worker": "bob", "task": "t1", "from": "lead",
        "state": state, "phase": 3, "attempt": 1, "epoch": 0, "boot": "b", "phase_began_ms": 0,
        "began_ms": 0,
    }))
    .unwrap()
}

/// A calm team at 10:10, with what a test changes.
#[derive(Default)]
struct Case {
    no_watcher: bool,
    agents: Vec<AgentView>,
    pending: Vec<Asked>,
    undecided: Vec<Asked>,
    dead: Vec<DeadTask>,
    ladders: Vec<LadderFile>,
    troubles: Vec<Trouble>,
    parked: Vec<Parked>,
}

impl Case {
    fn needs(&self) -> Vec<Need> {
        needs(&Facts {
            now: at(10),
            watcher_runs: !self.no_watcher,
            agents: &self.agents,
            pending: &self.pending,
            undecided: &self.undecided,
            dead: &self.dead,
            ladders: &self.ladders,
            troubles: &self.troubles,
            steps: &[],
            parked: &self.parked,
        })
    }

    fn words(&self) -> Vec<String> {
        self.needs().iter().map(|need| need.need.word().to_owned()).collect()
    }
}

fn dead(id: &str) -> DeadTask {
    DeadTask {
        mailbox: name("w2"),
        id: MessageId::new(id).unwrap(),
        task: Some("t2".to_owned()),
        reason: "after 5 attempts".to_owned(),
        at: Some(at(3)),
    }
}

fn of(agents: Vec<AgentView>) -> Vec<String> {
    Case { agents, ..Case::default() }.words()
}

#[test]
fn a_state_of_an_agent_is_a_need_or_is_not() {
    use State::{Blocked, Gone, Idle, Limited, Shutdown, Starting, Unknown, Waiting, Working};
    for (state, expected) in [
        (Blocked, Some("blocked")),
        (Gone, Some("gone")),
        (Limited, Some("limited")),
        (Idle, None),
        (Working, None),
        (Starting, None),
        (Unknown, None),
        (Waiting, None),
        (Shutdown, None),
    ] {
        let found = of(vec![agent("w1", state)]);
        assert_eq!(found.first().map(String::as_str), expected, "{state:?}");
    }
}

#[test]
fn mail_that_waits_is_a_need_of_an_idle_agent_after_a_while() {
    let waiting = |state, waited| {
        let waited = Some(Duration::from_secs(waited));
        of(vec![AgentView { waited, unread: 1, ..agent("w1", state) }])
    };
    assert_eq!(waiting(State::Idle, 31), ["undelivered"]);
    assert_eq!(waiting(State::Idle, 30), [""; 0]);
    assert_eq!(waiting(State::Working, 600), [""; 0]);
}

#[test]
fn a_team_without_a_watcher_needs_one_while_agents_are_up() {
    let case =
        |state| Case { no_watcher: true, agents: vec![agent("w1", state)], ..Case::default() };
    assert_eq!(case(State::Idle).words(), ["watcher"]);
    assert_eq!(case(State::Shutdown).words(), [""; 0]);
    assert_eq!(Case { no_watcher: true, ..Case::default() }.words(), [""; 0]);
}

#[test]
fn a_request_is_a_need_where_no_agent_is_there_to_answer_or_none_does() {
    let case = |to: &str, minute, agents| {
        Case { pending: vec![asked("plan", to, minute)], agents, ..Case::default() }.words()
    };
    let there = || vec![agent("lead", State::Idle)];
    assert_eq!(case("a-person", 9, there()), ["decision"]);
    assert_eq!(case("lead", 9, there()), [""; 0], "it was asked a minute ago");
    assert_eq!(case("lead", 5, there()), ["decision"]);
    assert_eq!(case("lead", 9, vec![agent("lead", State::Shutdown)]), ["decision"]);
}

#[test]
fn one_trouble_is_one_need() {
    let unread = |state| {
        let waited = Some(Duration::from_secs(60));
        AgentView { waited, unread: 1, ..agent("bob", state) }
    };
    let words = |state| {
        Case { agents: vec![unread(state)], ladders: vec![ladder("escalated")], ..Case::default() }
            .words()
    };
    assert_eq!(words(State::Idle), ["escalation"]);
    assert_eq!(words(State::Gone), ["gone"]);
    assert_eq!(words(State::Blocked), ["blocked"]);
    assert_eq!(words(State::Working), ["escalation"]);
    let buried = ladder("escalated");
    let case = Case {
        dead: vec![dead(buried.message.as_str())],
        ladders: vec![buried],
        ..Case::default()
    };
    assert_eq!(case.words(), ["dead letter"]);
}

#[test]
fn each_need_names_the_command_that_helps() {
    let parked = json!({ "scope": "task", "name": "t1", "limit": { "usd": 5 }, "used": { "usd": 6 }, "since": at(2) });
    let case = Case {
        no_watcher: true,
        agents: vec![
            AgentView { holds: vec!["t9".to_owned()], ..agent("w3", State::Gone) },
            AgentView { has_pane: false, ..agent("w2", State::Blocked) },
            agent("w1", State::Blocked),
            agent("w4", State::Limited),
        ],
        pending: vec![asked("plan", "lead", 0)],
        undecided: Vec::new(),
        dead: vec![dead("m2")],
        ladders: vec![ladder("escalated"), ladder("open")],
        troubles: vec![trouble("control"), trouble("merge_impossible")],
        parked: vec![serde_json::from_value(parked).unwrap()],
    };
    let needs = case.needs();
    let found: Vec<(&str, &str)> =
        needs.iter().map(|need| (need.need.word(), need.help.as_str())).collect();
    assert_eq!(
        found,
        [
            ("watcher", "`ensemble admin watch`"),
            ("blocked", "`ensemble why w2`"),
            ("blocked", "`ensemble agent attach w1`"),
            ("gone", "`ensemble up w3`"),
            ("decision", "`ensemble request list r1` shows it, and how to answer"),
            ("escalation", "`ensemble why t1`; `ensemble agent attach bob`"),
            ("standstill", "`x`"),
            ("dead letter", "`ensemble dead retry m2`, or `dead drop`"),
            ("budget", "`ensemble agent usage allow task t1 --usd N`"),
            ("paused", "`x`"),
            ("limited", "it goes on by itself"),
        ]
    );
    assert!(needs[3].text.ends_with("it held t9"), "{}", needs[3].text);
    let calm = needs.iter().filter(|need| !need.need.is_urgent()).count();
    assert_eq!(calm, 2);
}

#[test]
fn a_long_id_is_shortened_as_far_as_it_is_unique_among_dead_letters() {
    let help = |ids: &[&str]| -> Vec<String> {
        let all: Vec<DeadTask> = ids.iter().map(|id| dead(id)).collect();
        all.iter().map(|letter| of_dead(letter, &all).help).collect()
    };
    let (one, two) =
        ("01a217d5-8fcd-7269-8d43-fa96e245f583", "01a217d5-8fce-7269-8d43-fa96e245f583");
    let twin = "01a217d5-8fcd-7269-8d43-000000000000";
    assert_eq!(help(&[one, two])[0], "`ensemble dead retry 01a217d5-8fcd`, or `dead drop`");
    assert!(help(&[one, twin])[0].contains(one));
    assert!(help(&["a-name-of-the-senders-own-choice"])[0].contains("own-choice"));
}

#[test]
fn a_blocked_agent_is_told_with_its_reason() {
    let reason = |why: &str| {
        let need = of_agent(&AgentView { why: why.to_owned(), ..agent("w1", State::Blocked) });
        need.unwrap().text
    };
    let whole = "w1 waits for a person: permission (Bash)";
    assert_eq!(reason("waits for a person (permission (Bash))"), whole);
    assert_eq!(reason("permission (Bash)"), whole);
    assert_eq!(reason("waits for a person (hooks: permission (Bash))"), whole);
}
