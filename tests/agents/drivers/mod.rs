//! The drivers over scripted panes and a clock that moves when a driver rests; and the table of
//! docs/guides/escalation.md.

mod keystrokes;
mod ladders;
mod owned;
mod pane;

use ensemble_core::Result;
use ensemble_core::agent::EscalationStep;
use ensemble_core::driver::{
    AssignOutcome, HandedOver, HookEvidence, LadderHost, MailboxReader, PongBox, TaskAssigner,
    read_escalations,
};
use ensemble_core::env::{Clock, Monotonic};
use ensemble_core::message::Timestamp;
use ensemble_core::proto::ready::{ErrorType, PongToken};
use ensemble_core::sim::SimRecorder;
use ensemble_tmux::provider;
use ensemble_tmux::provider::{DiagnosisContext, Profile, UsageLimit, Zones, diagnose_with};

use self::ladders::Fuse;
use self::pane::{PaneAction, SimPane};
use crate::queue::{QueueBed, name};

use crate::*;

/// How long a pane with halves wants between text and Enter.
const DELAY: Duration = Duration::from_secs(3);

/// A scripted pane with an agent of a built-in profile in it.
struct Double {
    pane: SimPane,
    profile: Arc<Profile>,
    /// The line that waits for its Enter, if this pane has halves.
    half: Option<Option<Option<NudgeText>>>,
    /// Burns at each look and at each line and key.
    fuse: Fuse,
    /// By which the message of a usage limit is read, and the one that was read.
    limits: Option<(SimClock, Option<UsageLimit>)>,
}

impl Double {
    fn new(profile: &str, pane: &SimPane) -> Self {
        Self::of(Profiles::embedded().unwrap().get(profile).unwrap(), pane)
    }

    fn of(profile: Arc<Profile>, pane: &SimPane) -> Self {
        Self { pane: pane.clone(), profile, half: None, fuse: Fuse::never(), limits: None }
    }

    fn in_halves(profile: &str, pane: &SimPane) -> Self {
        Self { half: Some(None), ..Self::new(profile, pane) }
    }
}

impl Pane for Double {
    fn inspect(&mut self) -> Result<PaneState> {
        Ok(self.pane.state())
    }
    fn nudge(&mut self, text: &NudgeText) -> Result<NudgeOutcome> {
        self.fuse.burn();
        Ok(self.pane.receive(PaneAction::Text(text.clone())))
    }
    fn press(&mut self, key: Key) -> Result<NudgeOutcome> {
        self.fuse.burn();
        Ok(self.pane.receive(PaneAction::Key(key)))
    }
    fn open(&mut self, _: &str) -> Result<NudgeOutcome> {
        Ok(self.pane.receive(PaneAction::Open))
    }
}

impl AgentPane for Double {
    fn program(&self) -> &ProgramSettings {
        self.profile.program()
    }
    fn diagnose(&mut self) -> Result<AgentDiagnosis> {
        self.fuse.burn();
        let (state, zones) = (self.pane.state(), Zones::utc());
        let Some((clock, limit)) = &mut self.limits else {
            return Ok(provider::diagnose(&self.profile, &state).diagnosis);
        };
        let time = Some((clock.wall(), &zones));
        let context = DiagnosisContext { time, limit: limit.as_ref(), ..Default::default() };
        let judgement = diagnose_with(&self.profile, &state, &context);
        *limit = judgement.limit().cloned();
        Ok(judgement.diagnosis)
    }
    fn reset_context(&mut self) -> Result<NudgeOutcome> {
        self.nudge(&NudgeText::new("reset").unwrap())
    }
    fn begin(&mut self, line: TypedLine<'_>) -> Result<TypingStep> {
        let text = match line {
            TypedLine::Nudge(text) | TypedLine::Again(text) => Some(text.clone()),
            TypedLine::Reset => None,
        };
        match (&mut self.half, text) {
            (Some(half), text) => {
                assert_eq!(half.replace(text), None, "a line before the last one has its Enter");
                Ok(TypingStep::EnterAfter(DELAY))
            }
            (None, Some(text)) => self.nudge(&text).map(TypingStep::Done),
            (None, None) => self.reset_context().map(TypingStep::Done),
        }
    }
    fn finish(&mut self, withdraw: bool) -> Result<NudgeOutcome> {
        match self.half.as_mut().unwrap().take().unwrap() {
            _ if withdraw => Ok(NudgeOutcome::Refused { deferral: Deferral::Moved }),
            Some(text) => self.nudge(&text),
            None => self.reset_context(),
        }
    }
}

struct Bench {
    home: tempfile::TempDir,
    spool: Spool,
    clock: SimClock,
    log: SimRecorder,
    claim: Arc<std::sync::Mutex<ladders::Claim>>,
}

impl Bench {
    fn new() -> Self {
        let QueueBed { home, spool, .. } = QueueBed::new(["w1", "w2"]);
        let clock = SimClock::new(Timestamp::from_unix_millis(0));
        Self { home, spool, clock, log: SimRecorder::default(), claim: Arc::default() }
    }

    fn rest(&self, longest: Duration) {
        self.clock.advance(longest.max(Duration::from_millis(1)));
    }

    /// The seconds in which a driver has rested.
    fn passed(&self) -> u64 {
        self.clock.monotonic().as_duration().as_secs()
    }

    fn manager(&self) -> AckDriver<'_> {
        AckDriver::borrowing(&self.spool, &self.clock, &self.log, name("dispatch"))
    }

    fn assigner(&self) -> TaskAssigner<'_> {
        TaskAssigner {
            queue: &self.spool,
            spool: &self.spool,
            clock: &self.clock,
            recorder: &self.log,
            actor: name("dispatch"),
            state: self.home.path().join(".ensemble"),
            readiness: ready::PingTimes::default(),
            hook: None,
            elsewhere: None,
        }
    }
}

struct PanelessHost;

impl LadderHost for PanelessHost {
    fn reader(&self, mailbox: &Name) -> Result<MailboxReader> {
        Ok(MailboxReader::new(mailbox.clone(), LadderSettings::generic()))
    }
}

/// Lets time pass until a delivery has ended.
fn wait_for(manager: &mut AckDriver<'_>, clock: &SimClock) -> Ended {
    let (shortest, longest) = (Duration::from_millis(1), Duration::from_secs(1));
    loop {
        manager.handle_mail(None).unwrap();
        manager.handle_timeout().unwrap();
        if let Some((_, ended)) = manager.poll_ended() {
            return ended;
        }
        let left = manager.poll_timeout().map_or(longest, |at| at.since(clock.monotonic()));
        clock.advance(left.clamp(shortest, longest));
    }
}

fn order(task: &str, worker: &str) -> DeliveryOrder {
    DeliveryOrder::new(task, name(worker), Envelope::new(name(worker), "count\n"))
}

/// A pane that shows an idle agent of which nothing is known.
fn idle() -> SimPane {
    let pane = SimPane::default();
    pane.show(|state| state.command = "agent".to_owned());
    pane
}

fn words(pane: &SimPane) -> Vec<String> {
    let word = |press: &PaneAction| match press {
        PaneAction::Text(text) if text.as_str() == "reset" => "reset".to_owned(),
        PaneAction::Text(_) => "nudge".to_owned(),
        PaneAction::Key(key) => format!("{key:?}"),
        PaneAction::Open => "open".to_owned(),
    };
    pane.presses().iter().map(word).collect()
}

#[test]
fn the_seeds_ladder_takes_240_seconds_and_presses_its_keys() {
    let bench = Bench::new();
    let pane = idle();
    let agent = Box::new(Double::new("generic", &pane));
    let mut manager = bench.manager();
    let id = manager.deliver(order("t1", "w1"), Some(agent)).unwrap();
    let ended = wait_for(&mut manager, &bench.clock);
    assert!(matches!(ended, Ended::Escalated { .. }), "{ended:?}");
    assert_eq!(manager.phase(id), Some(Phase::ResetContext));
    assert_eq!(bench.passed(), 240);
    assert_eq!(words(&pane), ["nudge", "Escape", "Escape", "CtrlC", "nudge", "reset", "nudge"]);
    assert_eq!(bench.log.count("escalation"), 1);
    let files = read_escalations(bench.spool.root()).unwrap();
    let fields = files[0].1.as_ref().unwrap();
    assert_eq!((&fields["phase"], &fields["waited_seconds"]), (&3.into(), &240.into()));
}

/// Claude Code at rest, at a limit, at work, with a draft, and with a dialog.
fn claude_screens() -> [String; 5] {
    let rule = "─".repeat(20);
    let idle = format!("{rule}\n❯ \n{rule}\n  ? for shortcuts");
    let limit = "Claude usage limit reached. Your limit resets at 3pm (UTC)\n❯ ".to_owned();
    let busy = format!("{rule}\n❯ \n{rule}\n  esc to interrupt");
    let draft = idle.replace("❯ ", "❯ half a line");
    let dialog = "Do you want to proceed?\n ❯ 1. Yes\n   2. No".to_owned();
    [idle, limit, busy, draft, dialog]
}

fn claude(screen: &str) -> SimPane {
    let pane = SimPane::default();
    pane.show(|pane| {
        pane.command = "claude".to_owned();
        pane.screen = screen.lines().map(str::to_owned).collect();
    });
    pane
}

/// Which of the evidence of hooks, and which of the screens, make a worker ready without a ping.
#[test]
fn a_worker_whose_hooks_prove_that_it_is_idle_is_not_asked() {
    type HookReader = fn(&Path, &Name) -> HookEvidence;
    let woken = |_: &Path, _: &Name| HookEvidence { wakes: true, is_idle: false };
    let idle = |_: &Path, _: &Name| HookEvidence { wakes: false, is_idle: true };
    let both = |_: &Path, _: &Name| HookEvidence { wakes: true, is_idle: true };
    let all: [(HookReader, [bool; 5]); 3] = [
        (both, [true, false, false, true, false]),
        (idle, [true, false, false, false, false]),
        (woken, [false; 5]),
    ];
    for (hook, expected) in all {
        for (screen, is_ready) in claude_screens().iter().zip(expected) {
            for needs_pong in [false, true] {
                let bench = Bench::new();
                let mut agent = Double::new("claude", &claude(screen));
                let mut assigner = TaskAssigner { hook: Some(hook), ..bench.assigner() };
                assigner.readiness.needs_pong = needs_pong;
                let mut rest = |longest| {
                    bench.rest(longest);
                    Ok(())
                };
                let order = order("t1", "w1");
                let handed =
                    assigner.hand_over(order, Some(&mut agent), &PanelessHost, &mut rest).unwrap();
                let is_ready = is_ready && !needs_pong;
                assert_eq!(matches!(handed, HandedOver::Stored { .. }), is_ready, "{screen}");
                let pings = bench.log.count("ready.ping");
                assert_eq!((pings == 0, bench.log.count("ready.idle") == 1), (is_ready, is_ready));
            }
        }
    }
}

#[test]
fn who_may_not_be_pressed_is_waited_for() {
    let [_, limit, busy, draft, dialog] = claude_screens();
    let half_an_hour = 240 + 1800;
    for (screen, state, seconds) in [
        (limit, "limited", 6 * 3600 + 60),
        (busy, "busy", half_an_hour),
        (draft, "human_occupied", half_an_hour),
        (dialog, "asking", half_an_hour),
    ] {
        let bench = Bench::new();
        let pane = claude(&screen);
        let mut manager = bench.manager();
        let agent = Box::new(Double::new("claude", &pane));
        manager.deliver(order("t1", "w1"), Some(agent)).unwrap();
        let ended = wait_for(&mut manager, &bench.clock);
        let Ended::Escalated { notice, .. } = ended else { panic!("{ended:?}") };
        assert_eq!((notice.reason, notice.worker_state), ("not_pressable", Some(state)));
        assert_eq!(pane.presses_count(), 0, "{state}");
        let waited = bench.passed();
        assert!((seconds..seconds + 15).contains(&waited), "{state}: {waited} s");
        assert_eq!(bench.log.count("ladder.waiting"), 1);
    }
}

#[test]
fn deliveries_run_side_by_side_and_one_that_was_taken_is_not_reset() {
    let bench = Bench::new();
    let pane = idle();
    let mut manager = bench.manager();
    let first = manager.deliver(order("t1", "w1"), None).unwrap();
    let agent = Box::new(Double::new("generic", &pane));
    let second = manager.deliver(order("t2", "w2"), Some(agent)).unwrap();
    bench.spool.receive(&name("w1"), &name("w1")).unwrap().unwrap();
    manager.handle_mail(Some(&name("w1"))).unwrap();
    let (id, ended) = manager.poll_ended().unwrap();
    assert!(matches!(ended, Ended::Acked { phase: Phase::Deliver, attempt: 1, .. }));
    assert_eq!((id, manager.phase(first)), (first, None));
    while manager.phase(second) != Some(Phase::LeaveInputMode) {
        let now = bench.clock.monotonic();
        bench.rest(manager.poll_timeout().unwrap().since(now));
        manager.handle_timeout().unwrap();
    }
    // Taken before the reset, which is not pressed then; and no second attempt is stored.
    bench.spool.receive(&name("w2"), &name("w2")).unwrap().unwrap();
    bench.rest(Duration::from_secs(60));
    manager.handle_timeout().unwrap();
    let (_, ended) = manager.poll_ended().unwrap();
    assert!(matches!(ended, Ended::Acked { phase: Phase::ResetContext, attempt: 1, .. }));
    assert_eq!(bench.log.count("worker_assign"), 2);
}

#[test]
fn an_expired_task_and_one_that_was_given_up_end() {
    let bench = Bench::new();
    let mut manager = bench.manager();
    manager.deliver(order("t1", "w1"), None).unwrap();
    bench
        .spool
        .dead_letter_waiting(&name("w1"), &ensemble_core::driver::message_id("t1", 1), "expired")
        .unwrap();
    manager.handle_mail(None).unwrap();
    assert_eq!(manager.poll_ended().unwrap().1, Ended::Expired);
    manager.deliver(order("t2", "w1"), None).unwrap();
    bench
        .spool
        .dead_letter_waiting(&name("w1"), &ensemble_core::driver::message_id("t2", 1), "no")
        .unwrap();
    manager.handle_mail(None).unwrap();
    let Some((_, Ended::Escalated { notice, .. })) = manager.poll_ended() else { panic!() };
    assert_eq!(
        (notice.reason, notice.detail.as_deref()),
        ("undeliverable", Some("it is a dead letter: no"))
    );
}

#[test]
fn a_silent_worker_costs_25_seconds_and_gets_nothing() {
    let bench = Bench::new();
    let pane = idle();
    pane.defer(Deferral::Busy);
    let mut agent = Double::new("generic", &pane);
    let mut rest = |longest| {
        bench.rest(longest);
        Ok(())
    };
    let (order, assigner) = (order("t1", "w1"), bench.assigner());
    let assigned =
        assigner.assign(order, Some(&mut agent), &PanelessHost, &|| false, &mut rest).unwrap();
    let AssignOutcome::NotReady(failure) = assigned else { panic!("{assigned:?}") };
    assert_eq!((failure.error_type, failure.attempt), (ErrorType::NoPongTimeout, 3));
    assert!(failure.observation.starts_with("ping not typed: "), "{failure}");
    assert_eq!(bench.passed(), 25);
    assert_eq!(bench.spool.counts(&name("w1")).unwrap().queued, 0);
    assert_eq!(pane.presses_count(), 0);
}

#[test]
fn a_pong_to_the_second_ping_is_heard() {
    let bench = Bench::new();
    let pongs = PongBox::open(bench.home.path().join(".ensemble/ready")).unwrap();
    let stale = PongToken { worker: name("w1"), attempt: 1 };
    pongs.answer(&stale).unwrap();
    let mut rest = |longest| {
        bench.rest(longest);
        if let Some(ping) = pongs.asked(&name("w1")).unwrap().filter(|ping| ping.attempt == 2) {
            pongs.answer(&ping.pong()).unwrap();
        }
        bench.spool.receive(&name("w1"), &name("w1")).unwrap();
        Ok(())
    };
    let (order, assigner) = (order("t1", "w1"), bench.assigner());
    let assigned = assigner.assign(order, None, &PanelessHost, &|| true, &mut rest).unwrap();
    let AssignOutcome::Delivered { ready_attempt, ended } = assigned else {
        panic!("{assigned:?}")
    };
    assert_eq!(ready_attempt, 2);
    assert!(matches!(ended, Ended::Acked { phase: Phase::Deliver, .. }), "{ended:?}");
    assert_eq!(pongs.asked(&name("w1")).unwrap(), None, "the ping was removed");
}

/// What is pressed in which phase, and never in which state, by profile.
fn table() -> String {
    let profiles = Profiles::embedded().unwrap();
    let mut text = String::from(
        "\n| profile | phase 2 | phase 3 | reset | open | never pressed |\n|---|---|---|---|---|---|\n",
    );
    for profile in profiles.names().map(|name| profiles.get(name).unwrap()) {
        let steps = |steps: &[EscalationStep]| {
            let words = steps.iter().map(|step| serde_json::to_value(step).unwrap());
            words.map(|word| word.as_str().unwrap().to_owned()).collect::<Vec<_>>().join(", ")
        };
        let escalation = &profile.program().escalation;
        let code = |text: Option<&str>| text.map_or_else(|| "-".to_owned(), |t| format!("`{t}`"));
        writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} |",
            profile.name(),
            steps(&escalation.phase_2),
            steps(&escalation.phase_3),
            code(profile.reset_command()),
            code(profile.open_command()),
            forbidden(&profile),
        )
        .unwrap();
    }
    text
}

fn forbidden(profile: &Profile) -> String {
    use AgentState as S;
    let states = [
        S::Ready,
        S::Busy,
        S::Permission,
        S::Trust,
        S::Dialog,
        S::Login,
        S::RateLimited,
        S::Draft,
        S::Starting,
        S::Unknown,
    ];
    let never = |key: Key| {
        let words: Vec<&str> =
            states.iter().filter(|s| profile.forbids(**s, key)).map(|s| s.word()).collect();
        match words.len() {
            0 => "-".to_owned(),
            n if n == states.len() => "in any state".to_owned(),
            _ => words.join(", "),
        }
    };
    format!(
        "Enter: {}. Escape: {}. C-c: {}",
        never(Key::Enter),
        never(Key::Escape),
        never(Key::CtrlC)
    )
}

#[test]
fn the_documented_table_is_that_of_the_profiles() {
    const MARK: &str = "<!-- generated from the profiles by tests/agents/drivers/main.rs -->\n";
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/escalation.md");
    let page = std::fs::read_to_string(&file).unwrap();
    let written = page.split_once(MARK).unwrap().0;
    let expected = format!("{written}{MARK}{}", table());
    if std::env::var_os("ENSEMBLE_UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&file, &expected).unwrap();
    }
    let actual = std::fs::read_to_string(&file).unwrap();
    assert!(actual == expected, "out of date: run the tests with ENSEMBLE_UPDATE_SNAPSHOTS=1");
}
