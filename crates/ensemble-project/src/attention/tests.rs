use ensemble_core::message::MessageId;
use ensemble_core::proto::testing::name;
use serde_json::json;

use super::*;

fn at(minute: u32) -> Timestamp {
    format!("2026-11-25T10:{minute:02}:00Z").parse().unwrap()
}

fn agent(who: &str, state: State) -> AgentView {
    AgentView {
        since: Some(at(1)),
        has_pane: true,
        again: format!("`ensemble up {who}`"),
        ..AgentView::new(name(who), state, "as seen".to_owned())
    }
}

fn asked(kind: &str, to: &str, minute: u32) -> AskedRequest {
    serde_json::from_value(json!({
        "version": 1, "request_id": "r1", "kind": kind, "from": "bob", "to": to,
        "created_at": at(minute), "deadline_seconds": 3600, "content": "x",
    }))
    .unwrap()
}

fn trouble(alarm: &str) -> BoardTrouble {
    BoardTrouble {
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

/// A calm team at 10:10, of which a test changes something.
fn calm() -> NeedFacts<'static> {
    NeedFacts {
        now: at(10),
        watcher_remedy: "`ensemble up`",
        watcher: WatcherState::Runs,
        watcher_pid: Some(7),
        servers_away: None,
        unreadable: &[],
        mail: &[],
        agents: &[],
        pending: &[],
        undecided: &[],
        unplanned: &[],
        stranded: &[],
        dead: &[],
        dead_ids: Box::leak(Box::<ShortIds>::default()),
        ladders: &[],
        troubles: &[],
        steps: &[],
        parked: &[],
    }
}

fn words(facts: &NeedFacts<'_>) -> Vec<&'static str> {
    needs(facts).iter().map(|need| need.need.word()).collect()
}

fn dead(id: &str) -> DeadTask {
    DeadTask {
        mailbox: name("w2"),
        id: MessageId::new(id).unwrap(),
        task: Some("t2".to_owned()),
        words: String::new(),
        reason: "after 5 attempts".to_owned(),
        at: Some(at(3)),
        is_readable: true,
    }
}

fn of(agents: &[AgentView]) -> Vec<&'static str> {
    words(&NeedFacts { agents, ..calm() })
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
        assert_eq!(of(&[agent("w1", state)]).first().copied(), expected, "{state:?}");
    }
}

#[test]
fn an_answer_to_the_person_comes_first_with_its_words() {
    let mail = |id: &str, from: &str, words: &str, minute| PersonMail {
        id: MessageId::new(id).unwrap(),
        from: name(from),
        project: (id == "m8").then(|| name("website")),
        to: Name::operator(),
        words: words.to_owned(),
        act: match from {
            "opal" => MailAct::Answers,
            "gem" => MailAct::Writes,
            "coda" => MailAct::Stays,
            "picky" => MailAct::Returns,
            _ => MailAct::Leaves,
        },
        at: at(minute),
    };
    let case = NeedFacts {
        watcher: WatcherState::Missing,
        agents: &[agent("w1", State::Blocked)],
        mail: &[
            mail("m1", "gem", "hello", 1),
            mail("m2", "opal", "wait", 2),
            mail("m3", "opal", "42 lines", 3),
            mail("m4", "cora", "", 4),
            mail("m5", "coda", "not done yet", 5),
            mail("m6", "bob", "done", 6),
            mail("m7", "picky", "t1: no attempt is left", 7),
            mail("m8", "opal", "I am another", 8),
            mail("m9", "coda", "", 9),
        ],
        ..calm()
    };
    assert_eq!(words(&case)[..6], ["answered"; 6]);
    assert_eq!(words(&case)[6..], ["watcher", "blocked"]);
    let needs = needs(&case);
    assert_eq!(needs[5].text, "coda does not shut down (and 1 more)", "it has given no reason");
    assert_eq!(needs[3].text, "picky returned your message: \"t1: no attempt is left\"");
    // Who has left is in one line, however many they are.
    assert_eq!(needs[2].text, "bob, cora agreed to shut down");
    // It is not the agent of that name here.
    assert_eq!(needs[4].text, "opal@website answered you: \"I am another\"");
    assert_eq!(needs[4].agent, None);
    assert_eq!(needs[0].text, "gem wrote to you: \"hello\"");
    assert_eq!(needs[1].text, "opal answered you: \"42 lines\" (and 1 more)");
    assert_eq!(needs[1].help, "`ensemble recv`");
    assert_eq!((&needs[1].agent, needs[1].since), (&Some(name("opal")), Some(at(3))));
}

#[test]
fn mail_that_waits_is_a_need_of_an_idle_agent_after_a_while() {
    let waiting = |state, waited| {
        let waited = Some(Duration::from_secs(waited));
        of(&[AgentView { waited, unread: 1, ..agent("w1", state) }])
    };
    assert_eq!(waiting(State::Idle, 31), ["undelivered"]);
    assert_eq!(waiting(State::Idle, 30), [""; 0]);
    assert_eq!(waiting(State::Working, 600), [""; 0]);
}

#[test]
fn mail_for_an_agent_that_has_left_is_a_need_while_others_are_up() {
    let left = || AgentView { unread: 1, ..agent("coda", State::Shutdown) };
    let case = NeedFacts { agents: &[left(), agent("gem", State::Working)], ..calm() };
    let needs = needs(&case);
    assert_eq!(words(&case), ["undelivered"]);
    assert_eq!(needs[0].text, "coda has left, and 1 message waits for it");
    assert_eq!(needs[0].help, "`ensemble up coda`");
    assert_eq!(of(&[left()]), [""; 0]);
}

#[test]
fn a_team_without_a_watcher_needs_one_while_agents_are_up() {
    let without = |agents: &[AgentView]| {
        words(&NeedFacts { watcher: WatcherState::Missing, agents, ..calm() })
    };
    assert_eq!(without(&[agent("w1", State::Idle)]), ["watcher"]);
    assert_eq!(without(&[agent("w1", State::Shutdown)]), [""; 0]);
    assert_eq!(without(&[]), [""; 0]);
}

#[test]
fn a_watcher_that_hangs_is_a_need_also_without_agents() {
    let watcher = WatcherState::Hangs(Duration::from_secs(90));
    let case = NeedFacts { watcher, ..calm() };
    let needs = needs(&case);
    assert_eq!(words(&case), ["watcher"]);
    assert!(needs[0].text.contains("hangs: no sign of life for 90 s"), "{}", needs[0].text);
    assert!(needs[0].help.contains("kill -KILL 7"), "{}", needs[0].help);
}

#[test]
fn a_request_is_a_need_where_no_agent_is_there_to_answer_or_none_does() {
    let case = |to: &str, minute, lead| {
        let (pending, agents) = (&[asked("plan", to, minute)], &[agent("lead", lead)]);
        words(&NeedFacts { pending, agents, ..calm() })
    };
    assert_eq!(case("a-person", 9, State::Idle), ["decision"]);
    assert_eq!(case("lead", 9, State::Idle), [""; 0], "it was asked a minute ago");
    assert_eq!(case("lead", 5, State::Idle), ["decision"]);
    assert_eq!(case("lead", 9, State::Shutdown), ["decision"]);
}

#[test]
fn one_trouble_is_one_need() {
    let unread = |state| {
        let waited = Some(Duration::from_secs(60));
        AgentView { waited, unread: 1, ..agent("bob", state) }
    };
    let ladders = &[ladder("escalated")];
    let escalated = |state| words(&NeedFacts { agents: &[unread(state)], ladders, ..calm() });
    assert_eq!(escalated(State::Idle), ["escalation"]);
    assert_eq!(escalated(State::Gone), ["gone"]);
    assert_eq!(escalated(State::Blocked), ["blocked"]);
    assert_eq!(escalated(State::Shutdown), [""; 0], "it waits for the next `up`");
    let troubles = &["untaken", "workers", "blocked"].map(trouble);
    let agents = &[agent("bob", State::Shutdown)];
    assert_eq!(words(&NeedFacts { troubles, agents, ..calm() }), ["standstill"]);
    assert_eq!(escalated(State::Working), ["escalation"]);
    let dead = &[dead(ladders[0].message.as_str())];
    assert_eq!(words(&NeedFacts { dead, ladders, ..calm() }), ["dead letter"]);
}

#[test]
fn each_need_names_the_command_that_helps() {
    let parked = json!({ "scope": "task", "name": "t1", "limit": { "usd": 5 }, "used": { "usd": 6 }, "since": at(2) });
    let away = AwayServers {
        why: "no answer".to_owned(),
        since: Some(at(1)),
        help: "`start them`".to_owned(),
    };
    let case = NeedFacts {
        watcher: WatcherState::Missing,
        agents: &[
            AgentView { holds: vec!["t9".to_owned()], ..agent("w3", State::Gone) },
            AgentView { has_pane: false, ..agent("w2", State::Blocked) },
            AgentView {
                has_pane: false,
                terminal: Some("its own terminal, pts/3".to_owned()),
                ..agent("w4", State::Blocked)
            },
            agent("w1", State::Blocked),
            agent("w4", State::Limited),
        ],
        pending: &[asked("plan", "lead", 0)],
        dead: &[dead("m2")],
        ladders: &[ladder("escalated"), ladder("open")],
        troubles: &[trouble("control"), trouble("merge_impossible")],
        unreadable: &[UnreadablePart {
            about: "mailbox w9".to_owned(),
            why: "mailbox.yaml: is a pipe".to_owned(),
            help: "`mend it`".to_owned(),
            cause: UnreadCause::Part,
        }],
        servers_away: Some(&away),
        parked: &[serde_json::from_value(parked).unwrap()],
        ..calm()
    };
    let needs = needs(&case);
    let found: Vec<(&str, &str)> =
        needs.iter().map(|need| (need.need.word(), need.help.as_str())).collect();
    assert_eq!(
        found,
        [
            ("servers", "`start them`"),
            ("watcher", "`ensemble up`"),
            ("blocked", "answer in its own terminal"),
            ("blocked", "answer in its own terminal, pts/3"),
            ("blocked", "`ensemble agent attach w1`"),
            ("gone", "`ensemble up w3`"),
            ("decision", "`ensemble request list r1` shows it, and how to answer"),
            ("escalation", "`ensemble why t1`; `ensemble agent inspect bob`"),
            ("standstill", "`x`"),
            ("unreadable", "`mend it`"),
            ("dead letter", "`ensemble dead retry m2`, or `dead drop`"),
            (
                "budget",
                "`ensemble agent usage allow task t1 --usd N|--tokens N` allows more; without that, it stays parked"
            ),
            ("paused", "`x`"),
            ("limited", "it continues by itself"),
        ]
    );
    assert!(needs[5].text.ends_with("it held t9"), "{}", needs[5].text);
    let calm = needs.iter().filter(|need| !need.need.is_urgent()).count();
    assert_eq!(calm, 2);
}

#[test]
fn a_task_is_one_word_of_the_command_that_helps_it() {
    let mut odd = ladder("escalated");
    odd.task = "t; reboot".to_owned();
    let help = of_ladder(&odd).unwrap().help;
    assert_eq!(help, "`ensemble why 't; reboot'`; `ensemble agent inspect bob`");
    assert!(
        budget_help("task t; reboot").starts_with("`ensemble agent usage allow task 't; reboot' ")
    );
}

#[test]
fn a_dead_letter_is_offered_what_can_help_it_under_an_id_that_means_it_alone() {
    let one = "01a217d5-8fcd-7269-8d43-fa96e245f583";
    let help = |is_readable, others: &[&str]| {
        let all: ShortIds = others.iter().copied().chain([one]).collect();
        of_dead(&DeadTask { is_readable, ..dead(one) }, &all).help
    };
    assert_eq!(help(true, &[]), "`ensemble dead retry 01a217d5-8fcd`, or `dead drop`");
    // A letter that is not a task, which no person needs to see, has the same beginning.
    let twin = "01a217d5-8fcd-7269-8d43-000000000000";
    assert_eq!(
        help(true, &[twin]),
        format!("`ensemble dead retry {}`, or `dead drop`", &one[..25])
    );
    assert_eq!(help(false, &[]), "`ensemble dead show 01a217d5-8fcd`, then `dead drop`");
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

#[test]
fn agents_that_end_for_one_reason_are_one_need() {
    let gone = |who: &str, why: &str| AgentView { why: why.to_owned(), ..agent(who, State::Gone) };
    let server = "the tmux server has ended";
    let agents = vec![gone("a", server), gone("b", "it was killed"), gone("c", server)];
    let needs = needs(&NeedFacts { agents: &agents, ..calm() });
    assert_eq!(needs.len(), 3, "each is a need of its own for alerts and programs");
    let joined = join_by_cause(&needs);
    let shown: Vec<_> =
        joined.iter().map(|need| (need.text.as_str(), need.help.as_str())).collect();
    let expected = [
        ("a and c are gone: the tmux server has ended", "`ensemble up a c`"),
        ("b is gone: it was killed", "`ensemble up b`"),
    ];
    assert_eq!(shown, expected);
}
