//! Managers and handshakes that own what they work with, in their own thread, and a pane without a
//! screen.

use ensemble_core::driver::{ReadinessCheck, ReadyOutcome};

use super::*;

use crate::*;

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
            Ok(())
        };
        readiness.run(Some(&mut *pane), &mut rest).unwrap()
    });
    assert_eq!(handshake.join().unwrap(), ReadyOutcome::Ready { attempt: 2 });
    assert_eq!(heard.lock().unwrap().len(), 2);
}
