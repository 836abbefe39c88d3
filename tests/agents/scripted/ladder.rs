//! Phases 1 to 3 of the ladder against a scripted agent that never acks.

use ensemble_core::Result;

use crate::queue::hand_clock;
use crate::scripted::case::Case;

use crate::*;

const PHASES: usize = 4;
/// Shorter than usual, since each simulated second is a real look at a pane. Two lines, each with its delay before
/// Enter, and the pause after a reset (half a phase here) must fit.
const PHASE_TIMEOUT: Duration = Duration::from_secs(5);
const WAIT_MAX: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Keys(Mutex<usize>);

impl Recorder for Keys {
    fn record(&self, kind: &str, _: &str, data: Value) {
        let typed = match kind {
            "ladder.nudge" => data["sent"] == true,
            "ladder.pressed" => data["pressed"].as_array().is_some_and(|keys| !keys.is_empty()),
            _ => false,
        };
        *self.0.lock().expect("a count") += usize::from(typed);
    }
}

/// The agent's pane. A scripted agent may be slower than its delay before Enter, and simulated time
/// is not waited for. So the first half of a line has ended once the agent shows it.
struct Shown<'a>(&'a Case<'a>, TmuxPane);

impl Pane for Shown<'_> {
    fn inspect(&mut self) -> Result<PaneState> {
        self.1.inspect()
    }
    fn nudge(&mut self, text: &NudgeText) -> Result<NudgeOutcome> {
        self.1.nudge(text)
    }
    fn press(&mut self, key: Key) -> Result<NudgeOutcome> {
        self.1.press(key)
    }
    fn open(&mut self, command: &str) -> Result<NudgeOutcome> {
        self.1.open(command)
    }
}

impl AgentPane for Shown<'_> {
    fn program(&self) -> &ProgramSettings {
        self.1.profile().program()
    }
    fn diagnose(&mut self) -> Result<AgentDiagnosis> {
        self.1.diagnose().map(|judgement| judgement.diagnosis)
    }
    fn reset_context(&mut self) -> Result<NudgeOutcome> {
        self.1.reset_context()
    }
    fn begin(&mut self, line: TypedLine<'_>) -> Result<TypingStep> {
        let begun = self.1.begin(line)?;
        if matches!(begun, TypingStep::EnterAfter(_)) {
            match line {
                TypedLine::Nudge(text) | TypedLine::Again(text) => {
                    self.0.wait_for_text(text.as_str())
                }
                TypedLine::Reset => {
                    self.0.wait_for_text(self.1.profile().reset_command().expect("one"))
                }
            }
        }
        Ok(begun)
    }
    fn finish(&mut self, withdraw: bool) -> Result<NudgeOutcome> {
        self.1.finish(withdraw)
    }
}

/// What each of the phases 1 to 3 has typed until the conductor was notified.
pub(crate) fn climb<'a>(case: &'a Case<'a>) -> Vec<String> {
    let home = tempfile::tempdir().expect("a directory");
    let spool =
        Spool::create(&home.path().join("queue"), SpoolOptions::default()).expect("a queue");
    let worker = Name::new("dispatch").expect("a name");
    spool.add_mailbox(&worker, &Default::default()).expect("a mailbox");
    let (clock, keys) = (hand_clock(), Keys::default());
    let controller = Name::new("controller").expect("a name");
    let mut manager = AckDriver::borrowing(&spool, &clock, &keys, controller);
    let config =
        LadderSettings { phase_timeout: PHASE_TIMEOUT, wait_max: WAIT_MAX, ..Default::default() };
    let order = DeliveryOrder::new("task-1", worker.clone(), Envelope::new(worker, "count\n"))
        .with_config(config);
    let id = manager.deliver(order, Some(Box::new(Shown(case, case.pane())))).expect("a delivery");

    let mut typed = vec![String::new(); PHASES];
    let (mut before, mut typed_before) = (case.received(), 0);
    let ended = loop {
        manager.handle_timeout().expect("a step");
        let phase = manager.phase(id).map_or(0, |phase| usize::from(phase.number()));
        let typed_now = *keys.0.lock().expect("a count");
        if typed_now != typed_before {
            typed_before = typed_now;
            case.settle();
            let now = case.received();
            typed[phase] =
                format!("{} {}", typed[phase], now[before.len()..].trim()).trim().to_owned();
            before = now;
        }
        if let Some((_, ended)) = manager.poll_ended() {
            break ended;
        }
        let next = manager.poll_timeout().expect("it waits for something");
        clock.advance_to(next);
    };
    assert!(matches!(ended, Ended::Escalated { .. }), "{ended:?}");
    assert_eq!(manager.poll_ended(), None, "told more than once");
    assert_eq!(typed[0], "", "nothing is typed before the first phase is over");
    case.settle();
    assert_eq!(case.received(), before, "something was typed that no event mentions");
    typed.split_off(1)
}
