use super::*;
use ensemble_core::message::MessageId;

fn agent() -> Name {
    Name::new("w1").unwrap()
}

#[test]
fn a_file_that_is_no_session_is_an_error_to_readers_and_begun_anew_by_the_next_hook() {
    let home = tempfile::tempdir().unwrap();
    let sessions = Sessions::open(home.path());
    assert_eq!(sessions.get(&agent()).unwrap(), None);
    sessions.change(&agent(), |session| session.set(Activity::Working, None)).unwrap();
    let file = sessions.dir().join("w1.json");
    for text in ["", "{", "[]", "{\"version\": 99}", "{\"version\": 1, \"agent\": \"../x\"}"] {
        std::fs::write(&file, text).unwrap();
        assert!(sessions.get(&agent()).is_err(), "{text}");
        sessions.change(&agent(), |session| session.set(Activity::Blocked, None)).unwrap();
        assert_eq!(sessions.get(&agent()).unwrap().unwrap().activity, Activity::Blocked, "{text}");
    }
}

#[test]
fn a_record_stays_below_the_limit_of_its_file() {
    let home = tempfile::tempdir().unwrap();
    let sessions = Sessions::open(home.path());
    sessions
        .change(&agent(), |session| {
            session.hinted = (0..2000).map(|_| MessageId::generate()).collect();
            session.blocked_for = session.hinted.clone();
            session.id = Some("ü".repeat(100_000));
            session.detail = Some("\u{1}".repeat(100_000));
        })
        .unwrap();
    let bytes = std::fs::metadata(sessions.dir().join("w1.json")).unwrap().len();
    assert!(bytes < SESSION_BYTES_MAX as u64, "{bytes}");
    assert!(sessions.get(&agent()).unwrap().is_some());
}

#[test]
fn a_waiter_lives_as_long_as_it_holds_its_lock() {
    let home = tempfile::tempdir().unwrap();
    let sessions = Sessions::open(home.path());
    assert!(!sessions.waiter_lives(&agent()));
    let waiter = sessions.become_waiter(&agent(), Duration::ZERO).unwrap();
    assert!(sessions.waiter_lives(&agent()));
    assert!(sessions.become_waiter(&agent(), Duration::ZERO).is_err());
    drop(waiter);
    assert!(!sessions.waiter_lives(&agent()));
}

#[test]
fn what_an_ended_process_carried_is_abandoned() {
    let ids = || (agent(), MessageId::generate(), 1);
    let (mailbox, id, epoch) = ids();
    let mine = CarriedMessage::by_this_process(mailbox, id, epoch);
    assert!(!mine.is_abandoned());
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    let pid = ended.id();
    ended.wait().unwrap();
    let its = CarriedMessage { pid, ..mine.clone() };
    // The same pid with another start is another process.
    let parent = std::os::unix::process::parent_id();
    let reused = CarriedMessage { pid: parent, started: Some(1), ..mine.clone() };
    assert!(its.is_abandoned() && reused.is_abandoned());
    let mut session = AgentSession::new(agent());
    session.carrying = vec![mine, its.clone(), reused.clone()];
    assert_eq!(session.abandoned().collect::<Vec<_>>(), [&its, &reused]);
}
