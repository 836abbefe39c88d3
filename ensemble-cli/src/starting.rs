//! What agents show when they are started: whether a dialog waits for a person.
//!
//! A pane is looked at until its agent is seen ready, working, in a dialog or gone, for
//! [`FIRST_SIGHT_LIMIT`] at most, all panes at the same time. Scripts show nothing of that kind and
//! are not waited for. Several dialogs may come one after the other: this sees the first, and
//! `ensemble team` the one that is open.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use ensemble_core::agent::AgentState;
use ensemble_core::driver::{LOOK_INTERVAL, nap};
use ensemble_core::message::Name;
use ensemble_core::pane::Deferral;
use ensemble_core::provider::Judgement;
use ensemble_core::roster::{Member, PaneObservation};
use ensemble_watch::members;
use ensemble_watch::project::Project;

/// How long an agent that was started may take to show what the profile knows.
const FIRST_SIGHT_LIMIT: Duration = Duration::from_secs(5);

/// Of these agents those that wait for a person, and in which dialog.
pub(crate) fn first_dialogs(project: &Project, started: &[&Member]) -> BTreeMap<Name, String> {
    let deadline = Instant::now() + FIRST_SIGHT_LIMIT;
    thread::scope(|scope| {
        let looks: Vec<_> = started
            .iter()
            .filter(|member| !members::is_script(&member.provider))
            .map(|member| scope.spawn(move || (member, first_dialog(project, member, deadline))))
            .collect();
        let found = looks.into_iter().filter_map(|look| look.join().ok());
        found.filter_map(|(member, dialog)| Some((member.name.clone(), dialog?))).collect()
    })
}

fn first_dialog(project: &Project, member: &Member, deadline: Instant) -> Option<String> {
    loop {
        match members::look(project, member) {
            Ok(PaneObservation::Seen(diagnosis)) => match judged(&diagnosis) {
                First::Dialog(name) => return Some(name),
                First::Other => return None,
                First::NotYet => {}
            },
            Ok(PaneObservation::Unseen) => {}
            Ok(
                PaneObservation::Missing(_) | PaneObservation::NotStarted | PaneObservation::NoPane,
            )
            | Err(_) => return None,
        }
        if Instant::now() >= deadline {
            return None;
        }
        nap(LOOK_INTERVAL);
    }
}

/// What the first screen of an agent is.
enum First {
    Dialog(String),
    Other,
    NotYet,
}

fn judged(diagnosis: &Judgement) -> First {
    match diagnosis.state {
        AgentState::Permission | AgentState::Trust | AgentState::Dialog | AgentState::Login => {
            let seen = diagnosis.evidence.iter().find(|seen| seen.source == diagnosis.source);
            First::Dialog(seen.map_or_else(|| diagnosis.state.word(), |seen| &seen.what).to_owned())
        }
        AgentState::Ready | AgentState::Busy | AgentState::Draft | AgentState::RateLimited => {
            First::Other
        }
        _ => match diagnosis.deferral {
            Some(Deferral::PaneDead | Deferral::PaneGone | Deferral::PaneReused) => First::Other,
            _ => First::NotYet,
        },
    }
}
