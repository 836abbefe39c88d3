//! One agent as it is seen again and again: its profile, where it speaks to programs, and the limit of the last look.

use std::sync::Arc;

use super::machine::{self, AgentAnswer, SourcePlaces};
use super::{DiagnosisContext, Judgement, Profile, TurnSign, UsageLimit, Zones, diagnose_with};
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::pane::PaneState;

/// Judges the looks at one agent. What one look shows helps to read the next: the message of a usage limit may not
/// say the day.
#[derive(Clone, Debug)]
pub struct AgentObserver {
    profile: Arc<Profile>,
    places: SourcePlaces,
    zones: Zones,
    turn_sign: TurnSign,
    limit: Option<UsageLimit>,
    is_limited: bool,
}

impl AgentObserver {
    /// For an agent of this profile. It heeds no place and reads times in UTC.
    pub fn new(profile: Arc<Profile>) -> Self {
        let (places, zones) = (SourcePlaces::default(), Zones::utc());
        let turn_sign = TurnSign::default();
        Self { profile, places, zones, turn_sign, limit: None, is_limited: false }
    }

    /// Also uses what the agent reports over its own interfaces, at these places.
    pub fn with_places(mut self, places: SourcePlaces) -> Self {
        self.places = places;
        self
    }

    /// Also reads when a limit ends, in these zones.
    pub fn with_zones(mut self, zones: Zones) -> Self {
        self.zones = zones;
        self
    }

    /// Also leaves a turn alone that begins by this sign.
    pub fn with_turn_sign(mut self, turn_sign: TurnSign) -> Self {
        self.turn_sign = turn_sign;
        self
    }

    pub fn with_limit(mut self, limit: Option<UsageLimit>) -> Self {
        self.limit = limit;
        self
    }

    pub fn replace_profile(&mut self, profile: Arc<Profile>) -> Arc<Profile> {
        std::mem::replace(&mut self.profile, profile)
    }

    pub const fn profile(&self) -> &Arc<Profile> {
        &self.profile
    }

    pub const fn limit(&self) -> Option<&UsageLimit> {
        self.limit.as_ref()
    }

    pub const fn is_limited_without_end(&self) -> bool {
        self.is_limited
    }

    /// Asks the agent with this first process for its state, over its own interface.
    pub(crate) fn ask(&self, pid: u32) -> AgentAnswer {
        machine::ask(&self.profile, pid, &self.places)
    }

    /// Judges a look; the limit that is shown is remembered.
    pub(crate) fn judge(&mut self, state: &PaneState, heard: &AgentAnswer) -> Judgement {
        let context = DiagnosisContext {
            heard: Some(heard),
            time: Some((SystemClock.wall(), &self.zones)),
            limit: self.limit.as_ref(),
        };
        let mut judgement = diagnose_with(&self.profile, state, &context);
        judgement.is_turn_beginning = self.turn_sign.is_given();
        self.limit = judgement.limit().cloned();
        self.is_limited = judgement.is_limited_without_end();
        judgement
    }
}
