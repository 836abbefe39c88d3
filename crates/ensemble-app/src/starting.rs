//! Observes agents while they start: whether a dialog waits for a person.
//!
//! [`StartedAgents::observe`] looks at all panes at the same time. It looks at each until its agent is ready,
//! working, in a dialog or gone, for `FIRST_LOOK` at most. [`StartedAgents::observe_on`] continues until
//! `WHOLE_LOOK`, for agents that this command has started. They are those whose screen their profile does not know
//! yet, or who have been ready for less than `STEADY`: Gemini CLI draws its composer before its trust dialog. Scripts
//! have no such screen, and neither look waits for them. Several dialogs may follow one another: these looks see the
//! first, and `ensemble team` the one that is open. An agent that has joined from its own pane is observed once.

mod team;

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ensemble_core::agent::AgentState;
use ensemble_core::driver::{LOOK_INTERVAL, nap};
use ensemble_core::message::Name;
use ensemble_core::pane::Deferral;
use ensemble_project::team::{HowBrought, LaunchedAgent};
use ensemble_project::wrapped_terminal::own_terminal;
use ensemble_project::{Project, members};
use ensemble_team::roster::{Member, MemberOrigin, PaneObservation};
use ensemble_tmux::provider::Judgement;

use crate::failure::Outcome;
use crate::wait_line::WaitLine;

pub use team::{
    StartedSession, ended, ended_at_once, open, open_running, plans_of, require_programs,
    require_programs_again,
};

/// How long an agent may take to show a screen that its profile recognises, before the command reports on it.
const FIRST_LOOK: Duration = Duration::from_secs(5);
/// The total time a started agent may need, including the first wait.
const WHOLE_LOOK: Duration = Duration::from_secs(20);
/// How long a started agent must be ready before no dialog is expected any more. Gemini CLI 0.61 is
/// ready for 0.3 s on an idle machine with two processors.
const STEADY: Duration = Duration::from_secs(2);

/// The agents of one `up` or `spawn`, and what they show.
pub struct StartedAgents<'a> {
    project: &'a Project,
    began: Instant,
    /// The agents that wait for a person, and in which dialog.
    pub dialogs: BTreeMap<&'a Name, String>,
    /// The started agents whose screen their profile does not know yet.
    pub unknown: Vec<&'a Member>,
    /// The started agents that are ready but may still open a dialog.
    young: Vec<&'a Member>,
}

impl<'a> StartedAgents<'a> {
    /// Looks for the first time, at every agent whose provider has screens to judge.
    pub fn observe(project: &'a Project, brought: &'a [LaunchedAgent]) -> Outcome<Self> {
        let began = Instant::now();
        let (mut dialogs, mut unknown, mut young) = (BTreeMap::new(), Vec::new(), Vec::new());
        let mut note = |member: &'a Member, shown| {
            match shown {
                StartScreen::Dialog(dialog) => drop(dialogs.insert(&member.name, dialog)),
                StartScreen::Unknown => unknown.push(&member.name),
                StartScreen::Ready => young.push(&member.name),
                StartScreen::Known | StartScreen::Covered => {}
            }
            Ok(())
        };
        let members = |of: fn(&LaunchedAgent) -> bool| {
            brought.iter().filter(move |it| of(it)).map(|it| &it.member)
        };
        let first = StartLook { deadline: began + FIRST_LOOK, steady: Duration::ZERO };
        look_at_each(project, members(has_own_pane), first, &mut note)?;
        let once = StartLook { deadline: began, steady: Duration::ZERO };
        look_at_each(project, members(has_joined), once, &mut note)?;
        // An agent that ran before this command is not starting, no matter what it shows.
        let of_starting = |names: Vec<&Name>| {
            let is_starting = |it: &&LaunchedAgent| {
                !matches!(it.how, HowBrought::Running | HowBrought::Joined)
                    && names.contains(&&it.member.name)
            };
            brought.iter().filter(is_starting).map(|it| &it.member).collect()
        };
        let (unknown, young) = (of_starting(unknown), of_starting(young));
        Ok(Self { project, began, dialogs, unknown, young })
    }

    /// Continues with the agents in `unknown`, and with those that are ready only now. Calls `then` with each dialog as soon as it opens.
    /// Afterwards `unknown` holds the agents that are still starting.
    pub fn observe_on(&mut self, mut then: impl FnMut(&Name, &str) -> Outcome) -> Outcome {
        let (mut members, mut still) = (std::mem::take(&mut self.unknown), Vec::new());
        members.append(&mut self.young);
        let look = StartLook { deadline: self.began + WHOLE_LOOK, steady: STEADY };
        look_at_each(self.project, members.iter().copied(), look, |member, shown| {
            match shown {
                StartScreen::Dialog(dialog) => {
                    then(&member.name, &dialog)?;
                    self.dialogs.insert(&member.name, dialog);
                }
                StartScreen::Unknown => still.push(&member.name),
                StartScreen::Known | StartScreen::Ready | StartScreen::Covered => {}
            }
            Ok(())
        })?;
        self.unknown = members.into_iter().filter(|it| still.contains(&&it.name)).collect();
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct StartLook {
    deadline: Instant,
    /// How long it must be ready.
    steady: Duration,
}

/// Whether the team has started the agent in its own pane.
fn has_own_pane(brought: &LaunchedAgent) -> bool {
    !matches!(brought.how, HowBrought::Leaving | HowBrought::Lost) && !has_joined(brought)
}

/// Whether the agent runs in a pane that existed before it joined.
fn has_joined(brought: &LaunchedAgent) -> bool {
    let joined = brought.member.came() == MemberOrigin::Joined;
    brought.how == HowBrought::Joined || (brought.how == HowBrought::Running && joined)
}

/// Observes all these agents at the same time and calls `then` with each result as it arrives.
fn look_at_each<'a>(
    project: &Project,
    members: impl Iterator<Item = &'a Member>,
    look: StartLook,
    mut then: impl FnMut(&'a Member, StartScreen) -> Outcome,
) -> Outcome {
    let members: Vec<&Member> =
        members.filter(|member| !members::is_script(&member.provider)).collect();
    let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
    let left = look.deadline.saturating_duration_since(Instant::now());
    let _line = WaitLine::new(format!("{} to be ready", names.join(", ")), Some(left));
    thread::scope(|scope| {
        let (sender, results) = mpsc::channel();
        for member in members {
            let sender = sender.clone();
            scope.spawn(move || sender.send((member, look_until(project, member, look))));
        }
        drop(sender);
        results.into_iter().try_for_each(|(member, shown)| then(member, shown))
    })
}

fn look_until(project: &Project, member: &Member, look: StartLook) -> StartScreen {
    let mut ready_since = None;
    loop {
        let shown = match members::observe_member(project, member) {
            Ok(PaneObservation::Seen(diagnosis)) => judged(&diagnosis),
            Ok(PaneObservation::Unseen) => StartScreen::Unknown,
            // It has no screen.
            Ok(_) | Err(_) => StartScreen::Known,
        };
        let now = Instant::now();
        let is_final = match shown {
            StartScreen::Dialog(_) | StartScreen::Known => true,
            StartScreen::Ready => now - *ready_since.get_or_insert(now) >= look.steady,
            StartScreen::Covered | StartScreen::Unknown => {
                ready_since = None;
                false
            }
        };
        if is_final || now >= look.deadline {
            return shown;
        }
        nap(LOOK_INTERVAL);
    }
}

pub fn dialog_of(project: &Project, member: &Member) -> Option<String> {
    let now = StartLook { deadline: Instant::now(), steady: Duration::ZERO };
    match look_until(project, member, now) {
        StartScreen::Dialog(dialog) => Some(dialog),
        _ => None,
    }
}

/// The line that tells a person of such a dialog.
pub fn waiting_for_person(project: &Project, agent: &Name, dialog: &str) -> String {
    format!("{agent} waits for you: {dialog}; {}", place_to_answer(project, agent))
}

/// Where a person finds the agent: `attach` shows panes of tmux alone.
pub fn place_to_answer(project: &Project, agent: &Name) -> String {
    let member = project.roster().get(agent).ok().flatten();
    match member.and_then(|member| own_terminal(member.binding.as_ref()?)) {
        Some(place) => format!("answer in {place}"),
        None => format!("ensemble agent attach {agent}"),
    }
}

enum StartScreen {
    /// A dialog that only a person may answer.
    Dialog(String),
    /// The agent takes input.
    Ready,
    /// Another state that the profile knows, or no agent any more.
    Known,
    /// A shell, or a pane that a person uses (copy-mode): the agent may come, but need not.
    Covered,
    /// None that the profile knows, or not painted yet.
    Unknown,
}

fn judged(diagnosis: &Judgement) -> StartScreen {
    use Deferral::{CopyMode, InputOff, PaneDead, PaneGone, PaneReused, Synchronized};
    match diagnosis.state {
        AgentState::Permission | AgentState::Trust | AgentState::Dialog | AgentState::Login => {
            let seen = diagnosis.evidence.iter().find(|seen| seen.source == diagnosis.source);
            StartScreen::Dialog(
                seen.map_or_else(|| diagnosis.state.word(), |seen| &seen.what).to_owned(),
            )
        }
        AgentState::Ready => StartScreen::Ready,
        AgentState::Busy | AgentState::Draft | AgentState::RateLimited => StartScreen::Known,
        _ => match diagnosis.deferral {
            Some(PaneDead | PaneGone | PaneReused) => StartScreen::Known,
            Some(CopyMode | InputOff | Synchronized) => StartScreen::Covered,
            _ if diagnosis.state == AgentState::Crashed => StartScreen::Covered,
            _ => StartScreen::Unknown,
        },
    }
}
