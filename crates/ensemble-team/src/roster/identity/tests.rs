use super::super::MemberState;
use super::super::tests::{binding, member, name};
use super::*;

/// `a` and `b` are up, `c` was shut down.
fn team() -> Vec<Member> {
    let made = |called: &str, pid| {
        let mut member = member(called);
        member.pass_sha256 = Some(Digest::of(called.as_bytes()));
        member.binding = Some(binding(Path::new("/tmp/s"), pid, Some(u64::from(pid))));
        member
    };
    let mut ended = made("c", 30);
    ended.state = MemberState::Shutdown;
    vec![made("a", 10), made("b", 20), ended]
}

type Answer = Result<CallerIdentity, NameRefusal>;

fn ask(pass: Option<&str>, line: &[(u32, u64)], claimed: &str) -> Answer {
    let mut asking = CallerEvidence { line: line.to_vec(), ..CallerEvidence::new() };
    asking.pass = pass.map(|pass| Digest::of(pass.as_bytes()));
    ask_team(&team(), &asking, claimed)
}

fn ask_team(team: &[Member], asking: &CallerEvidence, claimed: &str) -> Answer {
    identify(team, asking, named(claimed).as_ref(), OutsiderPolicy::Refuse)
}

/// The name; none if it is empty.
fn named(called: &str) -> Option<Name> {
    Some(called).filter(|called| !called.is_empty()).map(name)
}

fn known(called: &str, proof: IdentityProof) -> Answer {
    Ok(CallerIdentity { name: named(called), proof })
}

const A: &[(u32, u64)] = &[(99, 99), (10, 10), (1, 1)];
const B: &[(u32, u64)] = &[(20, 20), (1, 1)];
const OUTSIDE: &[(u32, u64)] = &[(99, 99), (1, 1)];

#[test]
fn a_caller_has_the_name_that_is_proved_and_no_other() {
    use IdentityProof::{Claimed, Pass, ProcessTree};
    let mismatch = |claimed: &str, proof| {
        let (claimed, actual) = (name(claimed), name("a"));
        Err(NameRefusal::Mismatch { claimed, actual, proof })
    };
    let contradiction = NameRefusal::Contradiction { pass: name("a"), tree: name("b") };
    let any = ["", "a", "free"];
    for (pass, line, claims, answer) in [
        (Some("a"), A, &["", "a"][..], known("a", Pass)),
        (Some("a"), OUTSIDE, &["", "a"], known("a", Pass)),
        (None, A, &["", "a"], known("a", ProcessTree)),
        (Some("a"), A, &["b"], mismatch("b", Pass)),
        (None, A, &["b"], mismatch("b", ProcessTree)),
        (None, A, &["another"], mismatch("another", ProcessTree)),
        (Some("a"), B, &["", "a", "b"], Err(contradiction)),
        (Some("forged"), A, &any, Err(NameRefusal::UnknownPass { tree: Some(name("a")) })),
        (Some("forged"), OUTSIDE, &any, Err(NameRefusal::UnknownPass { tree: None })),
        // An old pass.
        (Some("c"), OUTSIDE, &any, Err(NameRefusal::Ended { name: name("c") })),
        // Outsiders have other names.
        (None, OUTSIDE, &[""], known("", Claimed)),
        (None, OUTSIDE, &["operator"], known("operator", Claimed)),
        (None, OUTSIDE, &["c"], known("c", Claimed)),
        (None, OUTSIDE, &["a"], Err(NameRefusal::Outsider { claimed: name("a") })),
        // A pid that is used again is another process.
        (None, &[(10, 11), (1, 1)], &[""], known("", Claimed)),
        // The pane of an agent that was shut down identifies no agent.
        (None, &[(30, 30)], &[""], known("", Claimed)),
        // The nearest pane decides: b's was opened from within a's.
        (None, &[(99, 99), (20, 20), (10, 10)], &[""], known("b", ProcessTree)),
    ] {
        for claimed in claims {
            assert_eq!(ask(pass, line, claimed), answer, "{pass:?} {line:?} `{claimed}`");
        }
    }
}

#[test]
fn any_name_may_be_claimed_by_a_permitted_outsider_and_in_an_empty_team() {
    let unknown = CallerEvidence::new();
    let allowed = identify(&team(), &unknown, Some(&name("a")), OutsiderPolicy::Allow);
    assert_eq!(allowed, known("a", IdentityProof::Claimed));
    let in_an_empty_team = ask_team(&[], &unknown.with_pass("x"), "a");
    assert_eq!(in_an_empty_team, known("a", IdentityProof::Claimed));
}

#[test]
fn a_message_says_how_its_sender_is_known() {
    let proof = |asked: Answer| asked.unwrap().sender_proof();
    assert_eq!(proof(ask(Some("a"), A, "")), Some(SenderProof::Pass));
    assert_eq!(proof(ask(None, A, "a")), Some(SenderProof::Pane));
    assert_eq!(proof(ask(None, OUTSIDE, "")), Some(SenderProof::Person));
    assert_eq!(proof(ask(None, OUTSIDE, "operator")), Some(SenderProof::Person));
    assert_eq!(proof(ask(None, OUTSIDE, "free")), None);
}

#[test]
fn a_sandbox_that_hides_the_tree_is_known_by_its_pane() {
    // No process has this number: /proc/sys/kernel/pid_max is at most 2^22.
    let hidden = |pane| CallerEvidence::new().with_hidden_pane("/tmp/s,4194305,0", pane);
    let team = [team().remove(0), team().remove(2)];
    let ask = |asking: &CallerEvidence, claimed| ask_team(&team, asking, claimed);
    assert_eq!(ask(&hidden("%1"), ""), known("a", IdentityProof::HiddenPane));
    assert_eq!(ask(&hidden("%1"), "a"), known("a", IdentityProof::HiddenPane));
    assert!(matches!(ask(&hidden("%1"), "free"), Err(NameRefusal::Mismatch { .. })));
    assert_eq!(ask(&hidden("%2"), ""), known("", IdentityProof::Claimed));
    let elsewhere = CallerEvidence::new().with_hidden_pane("/tmp/another,4194305,0", "%1");
    assert_eq!(ask(&elsewhere, ""), known("", IdentityProof::Claimed));
    // The environment names a server that can be seen: the process tree would have shown it.
    let tmux = format!("/tmp/s,{},0", std::process::id());
    let seen = CallerEvidence::new().with_hidden_pane(&tmux, "%1");
    assert_eq!(ask(&seen, ""), known("", IdentityProof::Claimed));
    assert_eq!(ask(&seen, "a"), Err(NameRefusal::Outsider { claimed: name("a") }));
    for damaged in ["", "/tmp/s", "/tmp/s,x,0", ",,"] {
        let asking = CallerEvidence::new().with_hidden_pane(damaged, "%1");
        assert_eq!(asking, CallerEvidence::new(), "{damaged}");
    }
}

#[test]
fn a_sandbox_in_a_pane_of_another_multiplexer_is_known_by_that_pane() {
    let mut team = [team().remove(0), team().remove(2)];
    let bind = |member: &mut Member, pid: u32, started: Option<u64>| {
        let binding = member.binding.as_mut().unwrap();
        (binding.id, binding.pid, binding.started) = ("herdr:w1:p1".to_owned(), pid, started);
    };
    let ask = |team: &[Member], pane: &str| {
        let asking = CallerEvidence::new().with_hosted_panes(vec![pane.to_owned()]);
        ask_team(team, &asking, "")
    };
    // No process has this number.
    bind(&mut team[0], 4_194_305, Some(1));
    assert_eq!(ask(&team, "herdr:w1:p1"), known("a", IdentityProof::HiddenPane));
    assert_eq!(ask(&team, "herdr:w1:p2"), known("", IdentityProof::Claimed));
    // The first process of the pane can be seen: the process tree would have shown it.
    let visible = std::process::id();
    bind(&mut team[0], visible, process::start_time(visible));
    assert_eq!(ask(&team, "herdr:w1:p1"), known("", IdentityProof::Claimed));
}

#[test]
fn a_real_process_has_a_line() {
    let mut ours = member("ours");
    let parent = std::os::unix::process::parent_id();
    let started = process::start_time(parent);
    ours.binding = Some(binding(Path::new("/tmp/s"), parent, started));
    let asking = CallerEvidence::new().with_process(std::process::id());
    assert_eq!(ask_team(&[ours], &asking, ""), known("ours", IdentityProof::ProcessTree));
}
