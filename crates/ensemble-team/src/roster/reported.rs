//! Combines what an agent's hooks report with what its pane shows.
//!
//! Hooks are the better evidence of why an agent pauses. But a pane is observed now, while a hook has reported at the
//! time of its event, and no hook reports that a person has answered a dialog or interrupted a turn.
//!
//! ```text
//! hooks say    pane shows                        state
//! blocked      at rest, working, starting        as without hooks
//! blocked      anything else                     blocked, by what the hooks name
//! limited      at rest, unknown, none            limited
//! limited      anything else                     as without hooks
//! working      unknown, none                     working
//! working      anything else                     as without hooks
//! idle,failed  unknown, none                     as at a prompt
//! idle,failed  anything else                     as without hooks
//! ended        none                              gone
//! ended        anything else                     as without hooks
//! ```

use super::presence::{PaneObservation, Presence, PresenceEvidence, State};
use ensemble_tmux::session::Activity;

/// The word of an agent's hooks, while the agent's process lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedActivity {
    pub activity: Activity,
    /// What it is blocked by, or why its turn has failed.
    pub detail: Option<String>,
}

impl ReportedActivity {
    pub const fn new(activity: Activity, detail: Option<String>) -> Self {
        Self { activity, detail }
    }

    fn why(&self, what: &str) -> String {
        match &self.detail {
            Some(detail) => format!("{what} (hooks: {detail})"),
            None => format!("{what} (hooks)"),
        }
    }
}

/// The distinctions in what the pane shows that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShownActivity {
    State(State),
    Rest,
    /// Nothing that the profile knows.
    Nothing,
}

/// The state by the word of the hooks; `None` if the pane decides.
pub(super) fn by_hooks(evidence: &PresenceEvidence, shown: ShownActivity) -> Option<Presence> {
    let reported = evidence.reported.as_ref()?;
    let found = |state, why: &str| Some(Presence { state, why: reported.why(why) });
    match (reported.activity, shown) {
        // An agent without a terminal has no dialog: it waits for the decision on a request.
        (Activity::Blocked, _) if evidence.is_script && evidence.waits_for.is_some() => None,
        (Activity::Blocked, ShownActivity::Nothing | ShownActivity::State(State::Blocked)) => {
            found(State::Blocked, "waits for a person")
        }
        (Activity::Limited, ShownActivity::Nothing | ShownActivity::Rest) => {
            found(State::Limited, "limited")
        }
        (Activity::Working, ShownActivity::Nothing) => found(State::Working, "a turn runs"),
        (Activity::Idle | Activity::Failed, ShownActivity::Nothing)
            if evidence.waits_for.is_none() =>
        {
            let held = evidence.held().map_or_else(String::new, |held| format!("; {held}"));
            found(State::Idle, &format!("no turn runs{held}"))
        }
        (Activity::Ended, ShownActivity::Nothing) if evidence.sight == PaneObservation::NoPane => {
            found(State::Gone, "its session has ended")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roster::MemberState;

    #[test]
    fn hooks_decide_where_the_pane_cannot_know_better() {
        let (rest, nothing) = (ShownActivity::Rest, ShownActivity::Nothing);
        let busy = ShownActivity::State(State::Working);
        let dialog = ShownActivity::State(State::Blocked);
        for (activity, shown, state) in [
            (Activity::Blocked, nothing, Some(State::Blocked)),
            (Activity::Blocked, dialog, Some(State::Blocked)),
            (Activity::Blocked, rest, None),
            (Activity::Blocked, busy, None),
            (Activity::Limited, nothing, Some(State::Limited)),
            (Activity::Limited, rest, Some(State::Limited)),
            (Activity::Limited, busy, None),
            (Activity::Limited, dialog, None),
            (Activity::Working, nothing, Some(State::Working)),
            (Activity::Working, rest, None),
            (Activity::Working, dialog, None),
            (Activity::Idle, nothing, Some(State::Idle)),
            (Activity::Idle, busy, None),
            (Activity::Failed, nothing, Some(State::Idle)),
            (Activity::Failed, rest, None),
            (Activity::Ended, nothing, Some(State::Gone)),
            (Activity::Ended, rest, None),
        ] {
            let mut evidence = PresenceEvidence::new(MemberState::Up, PaneObservation::NoPane);
            evidence.reported = Some(ReportedActivity::new(activity, Some("Bash".to_owned())));
            let found = by_hooks(&evidence, shown);
            assert_eq!(found.as_ref().map(|it| it.state), state, "{activity:?} {shown:?}");
            assert!(found.is_none_or(|it| it.why.contains("hooks: Bash")));
        }
        // A pane that could not be observed is not proof of an end.
        let mut evidence = PresenceEvidence::new(MemberState::Up, PaneObservation::Unseen);
        evidence.reported = Some(ReportedActivity::new(Activity::Ended, None));
        assert_eq!(by_hooks(&evidence, nothing), None);
    }
}
