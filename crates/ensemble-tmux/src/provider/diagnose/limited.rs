//! Usage limits: passed ones, and those that do not say when they end.

use super::{DiagnosisContext, Judgement, by_rules};
use crate::provider::composer::Input;
use crate::provider::machine::AgentReport;
use crate::provider::profile::{Profile, StateRule};
use ensemble_core::agent::{AgentState, Evidence};
use ensemble_core::pane::PaneState;

/// What the screen shows. A limit whose end has passed is only believed while nothing else on the
/// screen says what the agent is doing.
pub(super) fn on_screen(
    profile: &Profile,
    pane: &PaneState,
    input: Input,
    context: &DiagnosisContext<'_>,
) -> Judgement {
    let all = |_: &StateRule, _: Option<&str>| true;
    let mut first = by_rules(profile, pane, input, &all).with_limit(context);
    if first.state == AgentState::RateLimited && first.limit.is_none() {
        let others = |rule: &StateRule, _: Option<&str>| rule.state != AgentState::RateLimited;
        first.unlimited = Some(Box::new(by_rules(profile, pane, input, &others)));
    }
    if first.state != AgentState::RateLimited || !context.has_passed(first.limit.as_ref()) {
        return first;
    }
    let open = |rule: &StateRule, reset: Option<&str>| {
        rule.state != AgentState::RateLimited || !context.has_passed(context.read(reset).as_ref())
    };
    let mut second = by_rules(profile, pane, input, &open).with_limit(context);
    if matches!(second.state, AgentState::Unknown | AgentState::Starting) {
        return first;
    }
    for old in first.diagnosis.evidence {
        second.evidence.push(Evidence::new(old.source, "a limit that has passed", &old.text));
    }
    second.limit = second.limit.or(first.limit);
    second
}

impl Judgement {
    /// Whether the agent has met a usage limit that does not say when it ends. Its error may still be on the screen
    /// although the agent reports that it waits for input.
    pub const fn is_limited_without_end(&self) -> bool {
        self.unlimited.is_some()
    }

    /// This, or what it would be without a limit that does not say when it ends.
    pub(super) fn but_for_the_limit(&self) -> &Self {
        self.unlimited.as_deref().unwrap_or(self)
    }

    /// Whether the agent's word is newer than the error on its screen. It would not wait for input,
    /// nor work, if the error were the last thing that happened. Where the error names an end, both
    /// are true: it waits, and the next request is refused.
    pub(super) fn is_outranked_by(&self, report: &AgentReport) -> bool {
        let goes_on = matches!(report.state, AgentState::Ready | AgentState::Busy);
        goes_on && self.unlimited.is_some() && self.resets_at.is_none()
    }

    /// What the screen shows besides the error of a limit, which remains as evidence.
    pub(super) fn outranked(mut self) -> Self {
        let Some(mut diagnosis) = self.unlimited.take() else { return self };
        for old in self.diagnosis.evidence {
            diagnosis.evidence.push(Evidence::new(old.source, "an old limit", &old.text));
        }
        diagnosis.unlimited = Some(diagnosis.clone());
        *diagnosis
    }

    pub(super) fn with_limit(mut self, context: &DiagnosisContext<'_>) -> Self {
        self.limit = context.read(self.resets_at.as_deref());
        self.limited_until = self.limit.as_ref().map(|limit| limit.until);
        self
    }
}
