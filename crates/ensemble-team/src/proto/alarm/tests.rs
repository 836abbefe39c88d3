use super::*;
use crate::proto::testing::{variant, wake};
use ensemble_core::proto::testing::{at, drain, pairs, run};

const GRACE: Duration = Duration::from_secs(30);

fn seen(key: &'static str, grace: Duration) -> Event<&'static str> {
    Event::Seen { key, grace }
}

fn look(watch: &mut AlarmWatch<&'static str>, now: u64, keys: &[&'static str]) {
    for key in keys {
        watch.handle(at(now), seen(key, GRACE));
    }
    watch.handle(at(now), Event::LookDone);
}

#[test]
fn every_pair_of_state_and_event() {
    let absent = AlarmWatch::new();
    let mut waiting = AlarmWatch::new();
    look(&mut waiting, 0, &["a"]);
    let mut raised = AlarmWatch::new();
    raised.handle(at(0), Event::Told { key: "a" });
    let states = [("absent", absent), ("waiting", waiting), ("raised", raised)];
    type Looked = (u64, Vec<Event<&'static str>>);
    let events: [(&str, Looked); 7] = [
        ("Seen", (1, vec![seen("a", GRACE)])),
        ("Seen without grace", (1, vec![seen("a", Duration::ZERO)])),
        ("Seen late", (30, vec![seen("a", GRACE)])),
        ("Told", (1, vec![Event::Told { key: "a" }])),
        ("LookDone", (1, vec![Event::LookDone])),
        ("Seen, LookDone", (1, vec![seen("a", GRACE), Event::LookDone])),
        ("Blind", (1, vec![Event::Blind])),
    ];
    let table = pairs(&states, &events, |state, (now, events)| {
        let mut watch = state.clone();
        for event in events {
            watch.handle(at(*now), event.clone());
        }
        let state = watch.occurrences.get("a").map(|occurrence| occurrence.state);
        let mut said = state.map_or_else(|| "absent".to_owned(), |state| variant(&state));
        for effect in drain(&mut watch) {
            said = said + "+" + &variant(&effect);
        }
        said
    });
    let expected = "
                    absent        waiting       raised
Seen                Waiting       Waiting       Raised
Seen without grace  Raised+Raise  Waiting       Raised
Seen late           Waiting       Raised+Raise  Raised
Told                Raised        Raised        Raised
LookDone            absent        absent        absent+Forget
Seen, LookDone      Waiting       Waiting       Raised
Blind               absent        Waiting       Raised
";
    assert_eq!(table, expected);
}

#[test]
fn an_occurrence_is_told_once_however_often_it_is_seen() {
    let mut watch = AlarmWatch::new();
    let mut raised = Vec::new();
    for second in 0..3_600 {
        watch.handle_timeout(at(second));
        look(&mut watch, second, &["a", "b"]);
        raised.extend(drain(&mut watch).into_iter().filter(|effect| *effect != Effect::Look));
    }
    assert_eq!(raised, [Effect::Raise { key: "a" }, Effect::Raise { key: "b" }]);
    // It disappears, and occurs again.
    look(&mut watch, 3_600, &["b"]);
    assert_eq!(drain(&mut watch), [Effect::Forget { key: "a" }]);
    watch.handle(at(3_601), seen("a 2", Duration::ZERO));
    assert_eq!(drain(&mut watch), [Effect::Raise { key: "a 2" }]);
}

#[test]
fn an_observer_asks_to_look_when_a_grace_is_over_and_does_not_spin() {
    let mut watch = AlarmWatch::new();
    look(&mut watch, 0, &["a"]);
    let asked: Vec<_> = run(&mut watch, at(44)).into_iter().map(|(when, _)| when).collect();
    assert_eq!(asked, [at(30), at(35), at(40)], "no observer answers");
    // It cannot look: nothing is forgotten, and it tries again.
    watch.handle(at(44), Event::Blind);
    assert_eq!(watch.poll_timeout(), Some(at(49)));
    assert_eq!(wake(&mut watch, at(49)), [Effect::Look]);
    look(&mut watch, 50, &[]);
    assert_eq!((drain(&mut watch), watch.poll_timeout()), (vec![], None), "it went in time");
}
