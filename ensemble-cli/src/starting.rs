//! What agents show when they are started: whether a dialog waits for a person.
//!
//! [`Starts::look`] looks at each pane until its agent is ready, working, in a dialog or gone, for
//! [`FIRST_LOOK`] at most, at all panes at the same time. [`Starts::look_on`] continues until
//! [`WHOLE_LOOK`], for the agents alone that this command has started and whose screen their profile
//! does not know yet. Scripts have no such screen, and neither look waits for them. Several dialogs
//! may follow one another: these looks see the first, and `ensemble team` the one that is open.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ensemble_core::agent::AgentState;
use ensemble_core::driver::{LOOK_INTERVAL, nap};
use ensemble_core::message::Name;
use ensemble_core::pane::Deferral;
use ensemble_team::roster::{Member, PaneObservation};
use ensemble_tmux::provider::Judgement;
use ensemble_watch::members;
use ensemble_watch::project::Project;
use ensemble_watch::team::{Brought, HowBrought};

use crate::exit::Outcome;

/// How long an agent may take to show what its profile knows, before the command reports on it.
const FIRST_LOOK: Duration = Duration::from_secs(5);
/// How long an agent that was started may take in all, the first look included.
const WHOLE_LOOK: Duration = Duration::from_secs(20);

/// What the agents of one `up` or `spawn` show.
pub(crate) struct Starts<'a> {
    project: &'a Project,
    began: Instant,
    /// The agents that wait for a person, and in which dialog.
    pub(crate) dialogs: BTreeMap<&'a Name, String>,
    /// The started agents whose screen their profile does not know yet.
    pub(crate) unknown: Vec<&'a Member>,
}

impl<'a> Starts<'a> {
    /// Looks for the first time, at every agent whose provider has screens to judge.
    pub(crate) fn look(project: &'a Project, brought: &'a [Brought]) -> Outcome<Self> {
        let began = Instant::now();
        let (mut dialogs, mut unknown) = (BTreeMap::new(), Vec::new());
        let looked_at = brought.iter().filter(|it| has_own_pane(it.how)).map(|it| &it.member);
        look_at_each(project, looked_at, began + FIRST_LOOK, |member, shown| {
            match shown {
                Shown::Dialog(dialog) => drop(dialogs.insert(&member.name, dialog)),
                Shown::Unknown => unknown.push(&member.name),
                Shown::Known | Shown::Covered => {}
            }
            Ok(())
        })?;
        // An agent that ran before this command is not starting, whatever it shows.
        let is_starting =
            |it: &&Brought| it.how != HowBrought::Running && unknown.contains(&&it.member.name);
        let unknown = brought.iter().filter(is_starting).map(|it| &it.member).collect();
        Ok(Self { project, began, dialogs, unknown })
    }

    /// Continues with the agents in `unknown`. Calls `then` with each dialog as soon as it opens.
    /// Afterwards `unknown` holds the agents that are still starting.
    pub(crate) fn look_on(&mut self, mut then: impl FnMut(&Name, &str) -> Outcome) -> Outcome {
        let (members, mut still) = (std::mem::take(&mut self.unknown), Vec::new());
        let deadline = self.began + WHOLE_LOOK;
        look_at_each(self.project, members.iter().copied(), deadline, |member, shown| {
            match shown {
                Shown::Dialog(dialog) => {
                    then(&member.name, &dialog)?;
                    self.dialogs.insert(&member.name, dialog);
                }
                Shown::Unknown => still.push(&member.name),
                Shown::Known | Shown::Covered => {}
            }
            Ok(())
        })?;
        self.unknown = members.into_iter().filter(|it| still.contains(&&it.name)).collect();
        Ok(())
    }
}

/// Whether the team has started the agent in a pane of its own.
const fn has_own_pane(how: HowBrought) -> bool {
    !matches!(how, HowBrought::Joined | HowBrought::Leaving | HowBrought::Lost)
}

/// Looks at all these agents at the same time; `then` gets each result as soon as it is there.
fn look_at_each<'a>(
    project: &Project,
    members: impl Iterator<Item = &'a Member>,
    deadline: Instant,
    mut then: impl FnMut(&'a Member, Shown) -> Outcome,
) -> Outcome {
    thread::scope(|scope| {
        let (sender, results) = mpsc::channel();
        for member in members.filter(|member| !members::is_script(&member.provider)) {
            let sender = sender.clone();
            scope.spawn(move || sender.send((member, look_until(project, member, deadline))));
        }
        drop(sender);
        results.into_iter().try_for_each(|(member, shown)| then(member, shown))
    })
}

fn look_until(project: &Project, member: &Member, deadline: Instant) -> Shown {
    loop {
        let shown = match members::look(project, member) {
            Ok(PaneObservation::Seen(diagnosis)) => judged(&diagnosis),
            Ok(PaneObservation::Unseen) => Shown::Unknown,
            Ok(
                PaneObservation::Missing(_) | PaneObservation::NotStarted | PaneObservation::NoPane,
            )
            | Err(_) => Shown::Known,
        };
        let is_final = matches!(shown, Shown::Dialog(_) | Shown::Known);
        if is_final || Instant::now() >= deadline {
            return shown;
        }
        nap(LOOK_INTERVAL);
    }
}

/// What the screen of a started agent is.
enum Shown {
    /// A dialog that only a person may answer.
    Dialog(String),
    /// Another state that the profile knows, or no agent any more.
    Known,
    /// A shell, or a pane that a person uses (copy-mode): the agent may come, but need not.
    Covered,
    /// None that the profile knows, or not painted yet.
    Unknown,
}

fn judged(diagnosis: &Judgement) -> Shown {
    match diagnosis.state {
        AgentState::Permission | AgentState::Trust | AgentState::Dialog | AgentState::Login => {
            let seen = diagnosis.evidence.iter().find(|seen| seen.source == diagnosis.source);
            Shown::Dialog(seen.map_or_else(|| diagnosis.state.word(), |seen| &seen.what).to_owned())
        }
        AgentState::Ready | AgentState::Busy | AgentState::Draft | AgentState::RateLimited => {
            Shown::Known
        }
        _ => match diagnosis.deferral {
            Some(Deferral::PaneDead | Deferral::PaneGone | Deferral::PaneReused) => Shown::Known,
            Some(Deferral::CopyMode | Deferral::InputOff | Deferral::Synchronized) => {
                Shown::Covered
            }
            _ if diagnosis.state == AgentState::Crashed => Shown::Covered,
            _ => Shown::Unknown,
        },
    }
}
