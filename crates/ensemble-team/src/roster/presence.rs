//! What an agent is doing, from evidence, and never from what it has said last.
//!
//! ```text
//!  roster      pane                                   waits for a   holds      state
//!              (of agents whose screens are known)    decision      something
//!  ──────────────────────────────────────────────────────────────────────────────────
//!  shutdown    any                                    any           any        shutdown
//!  up,leaving  gone, another one, dead, a bare shell  any           any        gone
//!  up,leaving  never started, its process has ended   any           any        gone
//!  up,leaving  a supervisor, whose agent runs         any           any        working
//!  up,leaving  a supervisor without an agent          no            yes        working
//!  up,leaving  a supervisor without an agent          no            no         idle
//!  up,leaving  a usage limit                          any           any        limited
//!  up,leaving  permission, trust, login, a dialog     any           any        blocked
//!  up,leaving  our hint with a person's words         any           any        blocked
//!  up,leaving  busy                                   any           any        working
//!  up,leaving  starting                               any           any        starting
//!  up,leaving  anything else                          yes           any        waiting
//!  up,leaving  ready, a draft                         no            any        idle
//!  up,leaving  unknown, not seen, none; any script    no            yes        working
//!  up,leaving  unknown, not seen                      no            no         unknown
//!  up,leaving  none; any script                       no            no         idle
//! ```
//!
//! What the agent's hooks have reported takes precedence, unless the pane is the better evidence (`reported`).
//!
//! A script (the providers `shell` and `generic`) shows output. Only a rule of its profile that names a person's
//! business counts: a question, a limit. Otherwise, it works if it holds a message, while its pane lives. Of a screen
//! that the profile does not know, `idle` is never said. An agent that sits at its prompt is idle, even if it holds a
//! message: a person should see that.

use serde::{Deserialize, Serialize};

use super::reported::{ReportedActivity, ShownActivity, by_hooks};
use super::{EndCause, MemberState};
use ensemble_core::agent::AgentState;
use ensemble_core::pane::Deferral;
use ensemble_tmux::provider::{Judgement, UnsentLine};

/// What an agent is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Idle,
    Working,
    /// It has not painted its screen yet.
    Starting,
    /// Its profile does not recognise the screen, or it could not be inspected, and it holds nothing.
    Unknown,
    Waiting,
    /// A dialog is in its way, which a person must answer.
    Blocked,
    /// It has met a usage limit.
    Limited,
    /// It has ended, and should have.
    Shutdown,
    /// It has ended or its pane is gone, and should not be.
    Gone,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PaneObservation {
    /// It has no pane and needs none.
    NoPane,
    /// It has no pane yet: the roster names it before that is opened.
    Opening,
    /// It should have a pane and never got one: the command that started it was interrupted.
    NotStarted,
    /// Its pane or the pane's server is gone.
    Missing(Deferral),
    /// A process without which there is no agent has ended.
    Ended {
        what: String,
    },
    /// Its supervisor runs, and speaks for it.
    Supervised {
        /// Pid of the agent that the supervisor has started, while there is one.
        agent: Option<u32>,
    },
    /// The pane could not be observed: tmux did not answer.
    Unseen,
    Seen(Judgement),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresenceEvidence {
    pub recorded: MemberState,
    pub ended: Option<EndCause>,
    pub sight: PaneObservation,
    /// Its screen says nothing about its work.
    pub is_script: bool,
    pub reported: Option<ReportedActivity>,
    /// Whose decision it waits for, in a few words.
    pub waits_for: Option<String>,
    pub holds: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Presence {
    pub state: State,
    /// The evidence that has decided, in a few words.
    pub why: String,
}

impl Presence {
    pub const fn new(state: State, why: String) -> Self {
        Self { state, why }
    }
}

impl PresenceEvidence {
    /// Evidence of an agent that holds nothing and waits for no other agent.
    pub const fn new(recorded: MemberState, sight: PaneObservation) -> Self {
        Self {
            recorded,
            ended: None,
            sight,
            is_script: false,
            reported: None,
            waits_for: None,
            holds: Vec::new(),
        }
    }

    /// What it holds, in words.
    pub(super) fn held(&self) -> Option<String> {
        (!self.holds.is_empty()).then(|| format!("holds {}", self.holds.join(", ")))
    }
}

impl PaneObservation {
    pub const fn diagnosis(&self) -> Option<&Judgement> {
        match self {
            Self::Seen(diagnosis) => Some(diagnosis),
            _ => None,
        }
    }

    /// The pid of the supervised agent, if a supervisor was seen: `Some(None)` while none runs.
    fn supervised(&self) -> Option<Option<u32>> {
        match self {
            Self::Supervised { agent } => Some(*agent),
            Self::Seen(seen) if seen.deferral == Some(Deferral::Supervised) => Some(None),
            _ => None,
        }
    }

    /// Why there is no agent there any more; `None` if there is one, or that is not known.
    pub fn absence(&self, is_script: bool) -> Option<String> {
        match self {
            Self::NotStarted => Some("its pane was never opened".to_owned()),
            Self::Missing(deferral) => Some(deferral.to_string()),
            Self::Ended { what } => Some(format!("{what} has ended")),
            Self::Seen(diagnosis) => match &diagnosis.deferral {
                Some(
                    deferral @ (Deferral::PaneGone
                    | Deferral::PaneReused
                    | Deferral::PaneDead
                    | Deferral::TerminalGone),
                ) => Some(deferral.to_string()),
                _ if is_script => None,
                Some(deferral @ Deferral::BareShell { .. }) => Some(deferral.to_string()),
                _ => (diagnosis.state == AgentState::Crashed).then(|| seen(diagnosis)),
            },
            Self::NoPane | Self::Opening | Self::Supervised { .. } | Self::Unseen => None,
        }
    }
}

impl State {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Working => "working",
            Self::Starting => "starting",
            Self::Unknown => "unknown",
            Self::Waiting => "waiting",
            Self::Blocked => "blocked",
            Self::Limited => "limited",
            Self::Shutdown => "shutdown",
            Self::Gone => "gone",
        }
    }
}

pub fn presence(evidence: &PresenceEvidence) -> Presence {
    let PresenceEvidence { recorded, ended, sight, is_script, waits_for, .. } = evidence;
    let found = |state, why: String| Presence { state, why };
    if *recorded == MemberState::Shutdown {
        return found(State::Shutdown, ended.map_or("recorded", EndCause::word).to_owned());
    }
    if let Some(why) = sight.absence(*is_script) {
        return found(State::Gone, why);
    }
    if let Some(agent) = sight.supervised() {
        return by_supervisor(agent, evidence);
    }
    let shown = sight.diagnosis().filter(|_| !is_script);
    let by_screen = match is_script {
        false => shown.and_then(by_screen),
        true => sight.diagnosis().and_then(by_screen).filter(|(state, _)| is_persons(*state)),
    };
    let known = match (&by_screen, shown) {
        (Some((state, _)), _) => ShownActivity::State(*state),
        (None, Some(diagnosis)) if is_at_rest(diagnosis) => ShownActivity::Rest,
        (None, _) => ShownActivity::Nothing,
    };
    if let Some(presence) = by_hooks(evidence, known) {
        return presence;
    }
    if let Some((state, why)) = by_screen {
        return found(state, why);
    }
    if let Some(whom) = waits_for {
        return found(State::Waiting, format!("waits for {whom}"));
    }
    match (shown, evidence.held()) {
        (Some(diagnosis), held) if is_at_rest(diagnosis) => {
            let at = seen(diagnosis);
            found(State::Idle, held.map_or_else(|| at.clone(), |held| format!("{at}; {held}")))
        }
        (_, Some(held)) => found(State::Working, held),
        (Some(diagnosis), None) => found(State::Unknown, seen(diagnosis)),
        (None, None) => match sight {
            PaneObservation::Unseen => {
                found(State::Unknown, "holds nothing; tmux did not answer".to_owned())
            }
            PaneObservation::Opening => {
                found(State::Starting, "its pane is being opened".to_owned())
            }
            _ => found(State::Idle, "holds nothing".to_owned()),
        },
    }
}

fn by_supervisor(agent: Option<u32>, evidence: &PresenceEvidence) -> Presence {
    let held = evidence.held();
    let holds = held.as_deref().unwrap_or("holds nothing");
    let (state, why) = match (agent, &evidence.waits_for) {
        (Some(pid), _) => (State::Working, format!("supervised: agent {pid} runs; {holds}")),
        (None, Some(whom)) => (State::Waiting, format!("waits for {whom}")),
        (None, None) => {
            let state = if held.is_some() { State::Working } else { State::Idle };
            (state, format!("supervised: no agent runs; {holds}"))
        }
    };
    Presence { state, why }
}

fn by_screen(diagnosis: &Judgement) -> Option<(State, String)> {
    let state = match diagnosis.state {
        AgentState::Draft => diagnosis.beneath,
        other => other,
    };
    // Neither their line nor ours can be submitted like that.
    if diagnosis.unsent_line() == UnsentLine::WithWords {
        return Some((State::Blocked, seen(diagnosis)));
    }
    let state = match state {
        AgentState::RateLimited => State::Limited,
        AgentState::Permission | AgentState::Trust | AgentState::Dialog | AgentState::Login => {
            State::Blocked
        }
        AgentState::Busy => State::Working,
        AgentState::Starting => State::Starting,
        AgentState::Ready | AgentState::Draft | AgentState::Crashed | AgentState::Unknown => {
            return None;
        }
    };
    let resets = diagnosis.resets_at.as_ref().map(|at| format!("; resets {at}"));
    Some((state, seen(diagnosis) + &resets.unwrap_or_default()))
}

/// Whether a state comes from a rule that names a person's business. A script's screen says nothing else: all the
/// rest of it is output.
const fn is_persons(state: State) -> bool {
    matches!(state, State::Blocked | State::Limited)
}

fn is_at_rest(diagnosis: &Judgement) -> bool {
    matches!(diagnosis.state, AgentState::Ready | AgentState::Draft)
}

/// The decisive piece of evidence, in a few words, none of them twice.
fn seen(diagnosis: &Judgement) -> String {
    let word = diagnosis.state.word();
    let Some(evidence) = diagnosis.evidence.first().filter(|it| it.what != word) else {
        return word.to_owned();
    };
    let (what, text) = (&evidence.what, &evidence.text);
    match text.is_empty() || text.eq_ignore_ascii_case(what) {
        true => format!("{word} ({what})"),
        false => format!("{word} ({what}: {text})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ensemble_core::pane::PaneState;
    use ensemble_tmux::provider::{Profiles, diagnose};

    /// Diagnoses a screen of Claude Code.
    fn claude(screen: &str) -> PaneObservation {
        in_pane("claude", "claude", screen, |_| {})
    }

    type Change = fn(&mut PaneState);

    fn in_pane(profile: &str, command: &str, screen: &str, change: Change) -> PaneObservation {
        let mut pane = PaneState::default();
        (pane.bound, pane.pid, pane.command) = (true, 7, command.to_owned());
        pane.screen = screen.lines().map(str::to_owned).collect();
        change(&mut pane);
        PaneObservation::Seen(diagnose(&Profiles::embedded().unwrap().get(profile).unwrap(), &pane))
    }

    const READY: &str = "─────\n❯ \n─────\n  ? for shortcuts";
    const BUSY: &str = "✶ Thinking…\n─────\n❯ \n─────\n  ? for shortcuts · esc to interrupt";
    const LIMIT: &str = "Claude usage limit reached. Your limit resets at 3pm (Europe/Berlin)\n❯ ";
    const PERMISSION: &str =
        "Do you want to proceed?\n❯ 1. Yes\n  2. No\n\nEsc to cancel · Tab to amend";

    fn state_of(sight: &PaneObservation, waits: bool, holds: bool, is_script: bool) -> State {
        let mut evidence = PresenceEvidence::new(MemberState::Up, sight.clone());
        evidence.is_script = is_script;
        evidence.waits_for = waits.then(|| "a decision".to_owned());
        evidence.holds = if holds { vec!["task-1".to_owned()] } else { Vec::new() };
        let presence = presence(&evidence);
        assert!(!presence.why.is_empty());
        presence.state
    }

    /// The four combinations of waiting and holding: none, holds, waits, both.
    fn row(sight: &PaneObservation, is_script: bool) -> [State; 4] {
        [(false, false), (false, true), (true, false), (true, true)]
            .map(|(waits, holds)| state_of(sight, waits, holds, is_script))
    }

    #[test]
    fn what_is_gone_is_gone_whatever_else_is_known() {
        let busy = |change: Change| in_pane("claude", "claude", BUSY, change);
        for (sight, is_script) in [
            (PaneObservation::NotStarted, false),
            (PaneObservation::Missing(Deferral::PaneGone), false),
            (PaneObservation::Missing(Deferral::ServerGone), false),
            (busy(|pane| pane.dead = true), false),
            (busy(|pane| pane.bound = false), false),
            (busy(|pane| (pane.bound, pane.pid) = (false, 0)), false),
            (in_pane("claude", "bash", "user@host:~$", |_| {}), false),
            (in_pane("shell", "sh", "", |pane| pane.dead = true), true),
        ] {
            assert_eq!(row(&sight, is_script), [State::Gone; 4], "{sight:?}");
        }
        assert!(!row(&PaneObservation::Opening, false).contains(&State::Gone));
    }

    #[test]
    fn the_screen_decides_and_where_it_says_nothing_the_leases_do() {
        use State::{Blocked, Idle, Limited, Starting, Unknown, Waiting, Working};
        let by_leases = [Idle, Working, Waiting, Waiting];
        let unseen = [Unknown, Working, Waiting, Waiting];
        let scrolling = in_pane("claude", "claude", BUSY, |pane| pane.in_mode = true);
        for (sight, is_script, expected) in [
            (claude(LIMIT), false, [Limited; 4]),
            (claude(PERMISSION), false, [Blocked; 4]),
            (claude(BUSY), false, [Working; 4]),
            (claude(READY), false, [Idle, Idle, Waiting, Waiting]),
            // A script is blocked where a rule says so, and nothing else is read from its screen.
            (claude(PERMISSION), true, [Blocked; 4]),
            (claude(LIMIT), true, [Limited; 4]),
            (claude(BUSY), true, by_leases),
            // A shell at its prompt, a script that reads, and one that runs something.
            (in_pane("shell", "bash", "user@host:~$", |_| {}), true, by_leases),
            (in_pane("shell", "sh", "", |_| {}), true, by_leases),
            (in_pane("shell", "cargo", "Compiling", |_| {}), true, by_leases),
            (PaneObservation::NoPane, false, by_leases),
            (PaneObservation::Unseen, false, unseen),
            (scrolling, false, unseen),
            (in_pane("claude", "vim", "", |_| {}), false, unseen),
            (claude(""), false, unseen),
            (claude("a screen that no rule of the profile matches"), false, unseen),
            (in_pane("opencode", "opencode", "", |_| {}), false, [Starting; 4]),
        ] {
            assert_eq!(row(&sight, is_script), expected, "{sight:?}");
        }
    }

    #[test]
    fn evidence_that_is_named_as_the_state_is_not_said_twice() {
        for (screen, expected) in [(READY, "ready"), (PERMISSION, "permission")] {
            let evidence = PresenceEvidence::new(MemberState::Up, claude(screen));
            assert_eq!(presence(&evidence).why, expected);
        }
        let review = "  Hooks need review\n\n› 1. Review hooks\n  2. Trust all and continue";
        let sight = in_pane("codex", "codex", review, |_| {});
        let why = presence(&PresenceEvidence::new(MemberState::Up, sight)).why;
        assert_eq!(why, "dialog (hooks need review)");
    }

    #[test]
    fn shutdown_is_what_the_roster_says() {
        for sight in [PaneObservation::NoPane, PaneObservation::Unseen, claude(BUSY)] {
            let mut evidence = PresenceEvidence::new(MemberState::Shutdown, sight.clone());
            evidence.ended = Some(EndCause::Forced);
            evidence.holds.push("task".to_owned());
            let found = presence(&evidence);
            assert_eq!((found.state, found.why.as_str()), (State::Shutdown, "forced"));
            // On its way out it is what it is.
            let leaving = PresenceEvidence::new(MemberState::Leaving, sight.clone());
            let up = PresenceEvidence::new(MemberState::Up, sight);
            assert_eq!(presence(&leaving), presence(&up));
        }
    }

    #[test]
    fn the_evidence_is_named() {
        let mut evidence = PresenceEvidence::new(MemberState::Up, claude(LIMIT));
        let limited = presence(&evidence).why;
        assert!(limited.contains("resets 3pm"), "{limited}");
        evidence.sight = PaneObservation::NoPane;
        evidence.holds = vec!["task-1".to_owned(), "task-2".to_owned()];
        assert_eq!(presence(&evidence).why, "holds task-1, task-2");
        evidence.waits_for = Some("plan_approval by conductor".to_owned());
        assert_eq!(presence(&evidence).why, "waits for plan_approval by conductor");
    }
}
