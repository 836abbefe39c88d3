//! From what can be seen of a pane to what may be done with it: pure functions.

use std::ops::{Deref, DerefMut};

use serde::Serialize;

mod limited;
mod unsent;

use limited::on_screen;

use super::composer::{self, Input, UnsentLine};
use super::machine::{AgentAnswer, AgentReport};
use super::profile::{Profile, Region, StateRule, is_shell, program_name};
use super::reset::{UsageLimit, Zones};
use ensemble_core::agent::{AgentDiagnosis, AgentState, Evidence, Source, excerpted};
use ensemble_core::message::Timestamp;
use ensemble_core::pane::{Deferral, ForegroundProcess, Key, PaneState};

/// The diagnosis of a pane: the [`AgentDiagnosis`], and what the next look needs of this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Judgement {
    #[serde(flatten)]
    pub diagnosis: AgentDiagnosis,
    /// The limit that the screen speaks of, passed or not.
    #[serde(skip)]
    limit: Option<UsageLimit>,
    /// The diagnosis without the limit, if the limit does not say when it ends.
    #[serde(skip)]
    unlimited: Option<Box<Self>>,
    /// Pid of the agent's program in the foreground, where it is not the pane's own process.
    #[serde(skip)]
    pub program: Option<u32>,
    /// The state beneath a draft: an agent may be working while something is in its composer.
    #[serde(skip)]
    pub beneath: AgentState,
    #[serde(skip)]
    runs: Option<String>,
    /// Mail was just handed over, so a turn begins that the screen does not show yet.
    #[serde(skip)]
    pub(super) is_turn_beginning: bool,
    #[serde(skip)]
    unsent_line: UnsentLine,
}

impl Deref for Judgement {
    type Target = AgentDiagnosis;
    fn deref(&self) -> &AgentDiagnosis {
        &self.diagnosis
    }
}

impl DerefMut for Judgement {
    fn deref_mut(&mut self) -> &mut AgentDiagnosis {
        &mut self.diagnosis
    }
}

/// Evidence besides the screen of a pane. The default knows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiagnosisContext<'a> {
    pub heard: Option<&'a AgentAnswer>,
    /// The wall clock, and the zones in which agents speak of time; without it no limit passes.
    pub time: Option<(Timestamp, &'a Zones)>,
    /// The limit that was seen at the last look ([`Judgement::limit`]).
    pub limit: Option<&'a UsageLimit>,
}

impl DiagnosisContext<'_> {
    fn report(&self) -> Option<&AgentReport> {
        self.heard.and_then(AgentAnswer::report)
    }

    fn read(&self, reset: Option<&str>) -> Option<UsageLimit> {
        let (now, zones) = self.time?;
        UsageLimit::read(reset?, now, zones, self.limit)
    }

    fn has_passed(&self, limit: Option<&UsageLimit>) -> bool {
        self.time.zip(limit).is_some_and(|((now, _), limit)| limit.is_over(now))
    }
}

#[derive(Clone, Copy, Debug)]
pub enum TypingPurpose<'a> {
    Nudge,
    /// Type a nudge that finds out whether a usage limit without an end has ended.
    Probe,
    Submit {
        text: &'a str,
    },
    Press(Key),
    /// Start the agent from the shell in the pane.
    Open,
}

/// Diagnoses what the agent in a pane is doing, from the pane alone.
pub fn diagnose(profile: &Profile, pane: &PaneState) -> Judgement {
    diagnose_with(profile, pane, &DiagnosisContext::default())
}

/// As [`diagnose`], with what else is known. The word of the agent itself decides whether it works
/// or waits. It also is above the error of a limit that does not say when it ends. A dialog or
/// a draft on the screen is still heeded. A limit whose end has passed is
/// none any more where the rest of the screen shows what the agent is doing.
pub fn diagnose_with(
    profile: &Profile,
    pane: &PaneState,
    context: &DiagnosisContext<'_>,
) -> Judgement {
    if let Some(deferral) = untouchable(pane) {
        return Judgement::by_pane(deferral);
    }
    let runs = other_program(pane).map(str::to_owned);
    if let Some(diagnosis) = by_program(profile, pane) {
        return Judgement { runs, ..diagnosis };
    }
    let input = composer::input(profile, pane);
    let seen = on_screen(profile, pane, input, context);
    let diagnosis = match context.report() {
        Some(report) if seen.is_outranked_by(report) => {
            seen.outranked().corrected_by(profile, report, input, context)
        }
        Some(report) => seen.corrected_by(profile, report, input, context),
        None => seen,
    };
    let mut judgement = Judgement { runs, ..diagnosis.with_heard(context.heard) };
    let is_agent = |p: &&ForegroundProcess| {
        p.pid != pane.pid && !p.shell && profile.name_as_program(p).is_some()
    };
    judgement.program = pane.foreground.iter().find(is_agent).map(|p| p.pid);
    judgement
}

/// Why `purpose` must wait; `None` if it need not.
pub fn objection(
    profile: &Profile,
    pane: &PaneState,
    context: &DiagnosisContext<'_>,
    purpose: TypingPurpose<'_>,
) -> Option<Deferral> {
    let diagnosis = || diagnose_with(profile, pane, context);
    match purpose {
        TypingPurpose::Open => untouchable(pane).or_else(|| not_a_bare_prompt(profile, pane)),
        TypingPurpose::Nudge
        | TypingPurpose::Probe
        | TypingPurpose::Submit { .. }
        | TypingPurpose::Press(_) => diagnosis().objection(profile, pane, purpose),
    }
}

impl Judgement {
    /// Why `purpose` must wait in a pane that was found to be so.
    pub(crate) fn objection(
        &self,
        profile: &Profile,
        pane: &PaneState,
        purpose: TypingPurpose<'_>,
    ) -> Option<Deferral> {
        match purpose {
            TypingPurpose::Nudge => self.deferral.clone().or_else(|| self.against_a_new_turn()),
            TypingPurpose::Probe => {
                let deferral = self.but_for_the_limit().deferral.clone();
                deferral.or_else(|| self.against_a_new_turn())
            }
            TypingPurpose::Submit { text } => {
                let open = self.but_for_the_limit();
                let in_the_way = match open.state {
                    AgentState::Draft => deferral_of(profile, open.beneath, "busy"),
                    _ => open.deferral.clone(),
                };
                in_the_way
                    .or_else(|| self.against_a_new_turn())
                    .or_else(|| not_standing(profile, pane, text))
            }
            TypingPurpose::Press(key) => {
                let never = matches!(self.source, Source::Pane | Source::Process);
                let forbidden = never || profile.forbids(self.state, key);
                forbidden.then(|| {
                    self.deferral.clone().unwrap_or_else(|| Deferral::NotReady {
                        state: self.state.word().to_owned(),
                    })
                })
            }
            TypingPurpose::Open => untouchable(pane).or_else(|| not_a_bare_prompt(profile, pane)),
        }
    }

    fn against_a_new_turn(&self) -> Option<Deferral> {
        self.is_turn_beginning.then_some(Deferral::Busy)
    }

    /// The limit that the screen speaks of, passed or not; for [`DiagnosisContext::limit`] at the next look.
    pub const fn limit(&self) -> Option<&UsageLimit> {
        self.limit.as_ref()
    }
}

fn untouchable(pane: &PaneState) -> Option<Deferral> {
    match pane {
        PaneState { bound: false, pid: 0, .. } => Some(Deferral::PaneGone),
        PaneState { bound: false, .. } => Some(Deferral::PaneReused),
        PaneState { dead: true, .. } => Some(Deferral::PaneDead),
        PaneState { foreground, .. } if foreground.iter().any(|process| process.supervises) => {
            Some(Deferral::Supervised)
        }
        PaneState { in_mode: true, .. } => Some(Deferral::CopyMode),
        PaneState { input_off: true, .. } => Some(Deferral::InputOff),
        PaneState { synchronized: true, .. } => Some(Deferral::Synchronized),
        _ => None,
    }
}

/// Why a line that was typed cannot be submitted: it is gone, or a person has changed it.
fn not_standing(profile: &Profile, pane: &PaneState, text: &str) -> Option<Deferral> {
    if composer::holds(profile, pane, text) {
        return None;
    }
    Some(match composer::input(profile, pane) {
        Input::Prompt | Input::EmptyLine | Input::Anywhere => Deferral::LineGone,
        Input::Draft => Deferral::Draft,
        Input::Absent => Deferral::Moved,
    })
}

/// Why a command that starts the agent cannot be typed. Only a shell that is alone in the foreground
/// runs it, and only at that shell's prompt.
fn not_a_bare_prompt(profile: &Profile, pane: &PaneState) -> Option<Deferral> {
    let is_alone = match pane.foreground.as_slice() {
        // The composer of an agent may look like a prompt.
        [] if composer::holds_cursor(profile, pane) => return Some(Deferral::Draft),
        [] => is_shell(program_name(&pane.command)),
        [only] => only.reads_commands,
        _ => false,
    };
    if !is_alone {
        let command = other_program(pane).unwrap_or(&pane.command).to_owned();
        return Some(Deferral::OtherProgram { command });
    }
    // An empty line may be a script that reads lines: that is not a place for a command.
    match composer::shell_line(pane, &[]) {
        Input::Prompt => None,
        Input::EmptyLine | Input::Draft | Input::Absent | Input::Anywhere => Some(Deferral::Draft),
    }
}

fn other_program(pane: &PaneState) -> Option<&str> {
    pane.foreground.iter().find(|process| !process.shell).map(ForegroundProcess::name)
}

/// Detects that a program other than the agent's is in the foreground: from the process table or, if that is empty,
/// from the name of the foreground program.
fn by_program(profile: &Profile, pane: &PaneState) -> Option<Judgement> {
    let leader = program_name(&pane.command);
    let (is_there, other) = match pane.foreground.as_slice() {
        [] => (profile.is_program(leader), (!is_shell(leader)).then_some(leader)),
        // A shell that runs a script may have replaced the agent. A shell that was started with a command is judged
        // by that command.
        [first, ..] if first.shell && !first.given_command => {
            (profile.program_among(&pane.foreground).is_some(), None)
        }
        processes => (profile.program_among(processes).is_some(), other_program(pane)),
    };
    if is_there {
        return None;
    }
    let command = other.unwrap_or(leader).to_owned();
    let (state, what, deferral) = match other {
        None => {
            (AgentState::Crashed, "bare shell", Deferral::BareShell { command: command.clone() })
        }
        Some(_) => {
            let deferral = Deferral::OtherProgram { command: command.clone() };
            (AgentState::Unknown, "other program", deferral)
        }
    };
    let evidence = Evidence::new(Source::Process, what, &command);
    Some(Judgement::new(state, evidence, Some(deferral)))
}

/// The first rule that matches and counts decides, dialogs and limits before everything else; then
/// what is in the composer.
fn by_rules(
    profile: &Profile,
    pane: &PaneState,
    input: Input,
    counts: &dyn Fn(&StateRule, Option<&str>) -> bool,
) -> Judgement {
    let matched = profile.rules.iter().find_map(|rule| {
        let (evidence, reset) = rule.find_match(pane)?;
        counts(rule, reset.as_deref()).then_some((rule, evidence, reset))
    });
    let (state, name, evidence, resets_at) = match matched {
        Some((rule, evidence, reset)) => (rule.state, rule.name.as_str(), evidence, reset),
        None => {
            let last = Region::Bottom(1).text(pane);
            let what = "unrecognised screen";
            let state = profile.otherwise;
            (state, state.word(), Evidence::new(Source::Screen, what, &last), None)
        }
    };
    let mut diagnosis = Judgement::new(state, evidence, deferral_of(profile, state, name));
    diagnosis.resets_at = resets_at;
    let takes_input = matches!(state, AgentState::Ready | AgentState::Busy);
    match input {
        Input::Draft if takes_input => {
            let draft = Evidence::new(Source::Screen, "draft", pane.cursor_line());
            diagnosis.overrule(AgentState::Draft, draft, Deferral::Draft);
        }
        // `Ready` promises that there is a place to type.
        Input::Absent if state == AgentState::Ready => {
            let absent = Evidence::new(Source::Screen, "no composer", pane.cursor_line());
            let word = AgentState::Unknown.word().to_owned();
            diagnosis.overrule(AgentState::Unknown, absent, Deferral::NotReady { state: word });
        }
        _ => {}
    }
    diagnosis
}

/// Why an agent in this state should not be nudged.
fn deferral_of(profile: &Profile, state: AgentState, name: &str) -> Option<Deferral> {
    match state {
        AgentState::Ready => None,
        AgentState::Busy => (!profile.types_when_busy).then_some(Deferral::Busy),
        AgentState::Draft => Some(Deferral::Draft),
        AgentState::Permission | AgentState::Trust | AgentState::Dialog => {
            Some(Deferral::Dialog { name: name.to_owned() })
        }
        AgentState::Login
        | AgentState::RateLimited
        | AgentState::Crashed
        | AgentState::Starting
        | AgentState::Unknown => Some(Deferral::NotReady { state: state.word().to_owned() }),
    }
}

impl StateRule {
    /// The rule's match, and the reset time if it captures one.
    fn find_match(&self, pane: &PaneState) -> Option<(Evidence, Option<String>)> {
        let text = self.region.text(pane);
        let captures = self.pattern.captures(&text)?;
        let at = captures.get(0)?.start();
        let line =
            text[..at].lines().count().saturating_sub(usize::from(!text[..at].ends_with('\n')));
        // The frame of a dialog says nothing.
        let is_said = |line: &&str| !excerpted(line).is_empty();
        let excerpt = text.lines().skip(line).find(is_said).unwrap_or_default();
        let source = match self.region {
            Region::Title => Source::Title,
            Region::Screen | Region::Bottom(_) | Region::CursorLine => Source::Screen,
        };
        // It may be wrapped.
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let reset = captures.name("reset").map(|m| excerpted(&words(m.as_str())));
        Some((Evidence::new(source, &self.name, excerpt), reset))
    }
}

impl Judgement {
    /// The first program in the pane's foreground that is not a shell; `None` if the process table does not show it.
    pub fn runs(&self) -> Option<&str> {
        self.runs.as_deref()
    }

    #[cfg(test)]
    pub(super) fn seen_on_screen(profile: &Profile, state: AgentState) -> Self {
        let evidence = Evidence::new(Source::Screen, state.word(), "");
        Self::new(state, evidence, deferral_of(profile, state, state.word()))
    }

    fn new(state: AgentState, evidence: Evidence, deferral: Option<Deferral>) -> Self {
        let source = evidence.source;
        let evidence = vec![evidence];
        let diagnosis = AgentDiagnosis { source, evidence, deferral, ..AgentDiagnosis::of(state) };
        Self {
            diagnosis,
            limit: None,
            unlimited: None,
            program: None,
            beneath: state,
            runs: None,
            is_turn_beginning: false,
            unsent_line: UnsentLine::Absent,
        }
    }

    /// Adds the result of asking the agent itself, so that a reader of the diagnosis knows whether
    /// it was asked.
    fn with_heard(mut self, heard: Option<&AgentAnswer>) -> Self {
        match heard {
            None | Some(AgentAnswer::Nothing) => {}
            Some(AgentAnswer::Report { report, place }) => {
                let what = report.state.word();
                let text = format!("{} ({place})", report.detail);
                let evidence = Evidence::new(Source::MachineReadable, what, &text);
                let at =
                    if self.source == Source::MachineReadable { 0 } else { self.evidence.len() };
                self.evidence.insert(at, evidence);
            }
            Some(AgentAnswer::Silence { place, why }) => {
                let text = format!("{why} ({place})");
                self.evidence.push(Evidence::new(Source::MachineReadable, "no answer", &text));
            }
        }
        self
    }

    fn by_pane(deferral: Deferral) -> Self {
        let state = match deferral {
            Deferral::PaneDead => AgentState::Crashed,
            _ => AgentState::Unknown,
        };
        let evidence = Evidence::new(Source::Pane, deferral.word(), &deferral.to_string());
        Self::new(state, evidence, Some(deferral))
    }

    fn overrule(&mut self, state: AgentState, evidence: Evidence, deferral: Deferral) {
        self.state = state;
        self.source = evidence.source;
        self.evidence.insert(0, evidence);
        self.deferral = Some(deferral);
    }

    /// The agent's own word is above what the screen says about working and waiting, never
    /// above a reason to keep off.
    fn corrected_by(
        mut self,
        profile: &Profile,
        report: &AgentReport,
        input: Input,
        context: &DiagnosisContext<'_>,
    ) -> Self {
        let on_screen = self.state;
        if !matches!(on_screen, AgentState::Ready | AgentState::Busy | AgentState::Unknown) {
            self.beneath = report.state;
            return self;
        }
        self.state = report.state;
        self.source = Source::MachineReadable;
        if report.state == AgentState::RateLimited {
            self.unlimited = None;
            self.resets_at.clone_from(&report.resets_at);
            self = self.with_limit(context);
        }
        // Ready by its own word, but we do not see where the keys would go.
        let blind = input == Input::Absent || on_screen == AgentState::Unknown;
        self.deferral = match deferral_of(profile, report.state, &report.detail) {
            None if blind => {
                Some(Deferral::NotReady { state: AgentState::Unknown.word().to_owned() })
            }
            other => other,
        };
        if let Some(unlimited) = &mut self.unlimited {
            let AgentDiagnosis { state, deferral, .. } = &self.diagnosis;
            (unlimited.state, unlimited.deferral) = (*state, deferral.clone());
        }
        self
    }
}
