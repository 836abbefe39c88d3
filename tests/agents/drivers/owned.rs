//! Managers and handshakes that own what they work with, in their own thread, and a pane without a
//! screen.

use super::*;
use ensemble_core::driver::{ReadinessCheck, ReadyOutcome};
use ensemble_core::proto::ready;
use ensemble_core::sim::SimClock;
use ensemble_core::spool::SpoolOptions;

/// An agent of an orchestrator that knows its state, and that hears each hint.
struct Headless {
    program: ProgramSettings,
    state: AgentState,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Pane for Headless {
    fn inspect(&mut self) -> Result<PaneState> {
        Ok(PaneState::headless())
    }
    fn nudge(&mut self, text: &NudgeText) -> Result<NudgeOutcome> {
        self.heard.lock().unwrap().push(text.to_string());
        Ok(NudgeOutcome::Sent)
    }
    fn press(&mut self, key: Key) -> Result<NudgeOutcome> {
        panic!("{key:?} was pressed, and there is no terminal")
    }
    fn open(&mut self, command: &str) -> Result<NudgeOutcome> {
        panic!("{command} was started, and there is no terminal")
    }
}

impl AgentPane for Headless {
    fn program(&self) -> &ProgramSettings {
        &self.program
    }
    fn diagnose(&mut self) -> Result<AgentDiagnosis> {
        Ok(AgentDiagnosis::of(self.state))
    }
}

fn headless(state: AgentState) -> (Box<Headless>, Arc<Mutex<Vec<String>>>) {
    let heard = Arc::default();
    (
        Box::new(Headless {
            program: ProgramSettings::plain("w1"),
            state,
            heard: Arc::clone(&heard),
        }),
        heard,
    )
}

/// Delivers one task to a headless agent that never takes it, in another thread.
fn climb(state: AgentState) -> (Ended, Vec<String>, SimClock, SimRecorder) {
    let home = tempfile::tempdir().unwrap();
    let (clock, log) = (SimClock::new(Timestamp::from_unix_millis(0)), SimRecorder::default());
    let options = SpoolOptions::default()
        .with_clock(Arc::new(clock.clone()))
        .with_recorder(Arc::new(log.clone()));
    let spool = Arc::new(Spool::create(&home.path().join("queue"), options).unwrap());
    spool.add_mailbox(&name("w1"), &Default::default()).unwrap();
    let mut manager = AckDriver::new(Arc::clone(&spool), name("lead"));
    let (pane, heard) = headless(state);
    let wait_max = Duration::from_secs(600);
    let config = LadderSettings { wait_max, ..LadderSettings::default() };
    manager.deliver(order("t1", "w1").with_config(config), Some(pane)).unwrap();
    let time = clock.clone();
    let ended = std::thread::spawn(move || wait_for(&mut manager, &time)).join().unwrap();
    let message = spool.receive(&name("w1"), &name("w1")).unwrap().unwrap();
    assert_eq!(message.envelope.from, name("lead"), "the actor is the sender of what names none");
    let heard = heard.lock().unwrap().clone();
    (ended, heard, clock, log)
}

#[test]
fn an_owned_manager_climbs_the_ladder_in_a_thread_by_the_clock_and_log_of_its_queue() {
    let (ended, heard, clock, log) = climb(AgentState::Ready);
    assert!(matches!(&ended, Ended::Escalated { notice, .. } if notice.from == name("lead")));
    assert!(heard.iter().all(|hint| hint == "ensemble: 1 message for w1") && !heard.is_empty());
    assert_eq!(clock.monotonic().as_duration().as_secs(), 240);
    assert_eq!(log.count("escalation"), 1);
}

#[test]
fn a_headless_agent_that_says_it_is_busy_is_waited_for_and_not_disturbed() {
    let (ended, heard, clock, _) = climb(AgentState::Busy);
    assert!(matches!(ended, Ended::Escalated { .. }));
    assert_eq!(heard, [""; 0]);
    assert!(clock.monotonic().as_duration().as_secs() > 240, "its time was added");
}

#[test]
fn an_owned_handshake_types_its_ping_into_a_headless_pane() {
    let home = tempfile::tempdir().unwrap();
    let pongs = PongBox::open(home.path().join("ready")).unwrap();
    let clock = SimClock::new(Timestamp::from_unix_millis(0));
    let log = SimRecorder::default();
    let (mut pane, heard) = headless(AgentState::Ready);
    let answers = Arc::clone(&heard);
    let handshake = std::thread::spawn(move || {
        let (worker, lead) = (name("w1"), name("lead"));
        let readiness = ReadinessCheck::new(worker, pongs.clone(), &clock, &log, lead)
            .with_config(ready::PingTimes { attempts_max: 2, ..Default::default() });
        let mut rest = |longest: Duration| {
            clock.advance(longest.max(Duration::from_millis(1)));
            if answers.lock().unwrap().len() == 2 {
                pongs.answer(&PongToken { worker: name("w1"), attempt: 2 }).unwrap();
            }
        };
        readiness.run(Some(&mut *pane), &mut rest).unwrap()
    });
    assert_eq!(handshake.join().unwrap(), ReadyOutcome::Ready { attempt: 2 });
    assert_eq!(heard.lock().unwrap().len(), 2);
}
