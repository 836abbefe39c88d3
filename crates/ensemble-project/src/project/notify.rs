//! `notify` in `ensemble.yaml`: how a person is notified of what needs one (docs/guides/attention.md).

use std::path::Path;
use std::time::Duration;

use ensemble_core::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::need_kind::NeedKind;
use ensemble_core::message::ConfigDuration;

const DELAY: Duration = Duration::from_secs(1);
const DAY_MINUTES: u16 = 24 * 60;

/// One way to tell a person, and of what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct AlertRule {
    /// Occasions (default `[urgent, finished]`).
    pub when: Vec<AlertOccasion>,
    /// Shell command that gets each alert as JSON on its standard input.
    pub command: Option<String>,
    /// Signal for the terminals of attached tmux clients: `bell`, or a desktop message by `osc9` or `osc777`.
    pub terminal: Option<TerminalSignal>,
    /// Whether the status line of attached tmux clients shows the alert.
    pub tmux: bool,
    /// How long the need must last before the alert (default 1s).
    pub delay: Option<ConfigDuration>,
    /// Interval of repetitions until a person has looked (default: none).
    pub repeat: Option<ConfigDuration>,
    /// Hours of the local day without alerts, such as `22:00-07:00`. What still lasts after them is alerted then.
    pub quiet_hours: Option<QuietHours>,
}

/// An occasion of an alert: a kind of need, a group of kinds, or the end of all work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AlertOccasion {
    /// Every kind but `paused` and `limited`.
    Urgent,
    /// No work is in hand, and none waits.
    Finished,
    Answered,
    Blocked,
    Gone,
    Decision,
    Escalation,
    Standstill,
    Step,
    DeadLetter,
    Budget,
    Undelivered,
    Paused,
    Limited,
}

/// A signal for terminals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum TerminalSignal {
    /// The bell.
    Bell,
    /// The control sequence `OSC 9` with the text (iTerm2, Windows Terminal, WezTerm, kitty, Ghostty).
    Osc9,
    /// The control sequence `OSC 777` with title and text (foot, WezTerm, Ghostty, rxvt-unicode).
    Osc777,
}

/// A part of the local day, which may contain midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(with = "String"))]
#[serde(try_from = "String", into = "String")]
pub struct QuietHours {
    /// First minute of the day, from 0.
    from: u16,
    /// The first minute after it.
    to: u16,
}

impl AlertRule {
    /// Refuses a rule that cannot work; `index` is its place in the list.
    pub(super) fn check(&self, index: usize, path: &Path) -> Result<()> {
        if self.command.is_none() && self.terminal.is_none() && !self.tmux {
            let detail = "a rule needs `command`, `terminal` or `tmux`";
            return Err(Error::malformed(path, format!("notify[{index}]"), detail));
        }
        if self.repeat.is_some_and(|every| Duration::from(every).is_zero()) {
            let field = format!("notify[{index}].repeat");
            return Err(Error::malformed(path, field, "is 0: write how long to wait, such as 5m"));
        }
        Ok(())
    }

    pub fn delay(&self) -> Duration {
        self.delay.map_or(DELAY, Duration::from)
    }

    /// Whether the rule is about this occasion: a kind of need, or `None` for the end of all work.
    pub fn covers(&self, need: Option<NeedKind>) -> bool {
        let usual = [AlertOccasion::Urgent, AlertOccasion::Finished];
        let when = if self.when.is_empty() { &usual[..] } else { &self.when };
        when.iter().any(|occasion| occasion.covers(need))
    }
}

impl AlertOccasion {
    fn covers(self, need: Option<NeedKind>) -> bool {
        let kind = match self {
            Self::Urgent => return need.is_some_and(NeedKind::is_urgent),
            Self::Finished => return need.is_none(),
            Self::Answered => NeedKind::Answered,
            Self::Blocked => NeedKind::Blocked,
            Self::Gone => NeedKind::Gone,
            Self::Decision => NeedKind::Decision,
            Self::Escalation => NeedKind::Escalation,
            Self::Standstill => NeedKind::Standstill,
            Self::Step => NeedKind::Step,
            Self::DeadLetter => NeedKind::DeadLetter,
            Self::Budget => NeedKind::Budget,
            Self::Undelivered => NeedKind::Undelivered,
            Self::Paused => NeedKind::Paused,
            Self::Limited => NeedKind::Limited,
        };
        need == Some(kind)
    }
}

impl QuietHours {
    /// Whether a minute of the local day, from 0, is quiet.
    pub const fn contains(self, minute: u16) -> bool {
        match self.from <= self.to {
            true => self.from <= minute && minute < self.to,
            false => self.from <= minute || minute < self.to,
        }
    }
}

impl TryFrom<String> for QuietHours {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        let minute = |time: &str| -> Option<u16> {
            let (hour, minute) = time.trim().split_once(':')?;
            let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
            let at = hour.checked_mul(60)?.checked_add(minute)?;
            (minute < 60 && at <= DAY_MINUTES).then_some(at)
        };
        let (from, to) = text.split_once('-').unwrap_or_default();
        match (minute(from), minute(to)) {
            (Some(from), Some(to)) if from != to => Ok(Self { from, to }),
            _ => Err(format!("`{text}` is not a part of a day: write it as 22:00-07:00")),
        }
    }
}

impl From<QuietHours> for String {
    fn from(QuietHours { from, to }: QuietHours) -> Self {
        format!("{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, to / 60, to % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project::ProjectConfig;

    fn rules(text: &str) -> Result<Vec<AlertRule>> {
        ProjectConfig::parse(text, Path::new("ensemble.yaml")).map(|config| config.notify)
    }

    #[test]
    fn a_rule_is_read_and_a_wrong_one_is_refused() {
        let text = "notify:\n  - {when: [gone, finished], command: cat, quiet_hours: '22:00-07:00'}\n  - {tmux: true}\n";
        let rules_read = rules(text).unwrap();
        assert!(rules_read[0].covers(Some(NeedKind::Gone)) && rules_read[0].covers(None));
        assert!(!rules_read[0].covers(Some(NeedKind::Blocked)));
        assert!(
            rules_read[1].covers(Some(NeedKind::Blocked))
                && !rules_read[1].covers(Some(NeedKind::Limited))
        );
        for wrong in [
            "notify: [{}]",
            "notify: [{tmux: true, when: [never]}]",
            "notify: [{tmux: true, quiet_hours: '25:00-07:00'}]",
            "notify: [{tmux: true, quiet_hours: '7:00-07:00'}]",
            "notify: [{tmux: true, repeat: 0}]",
            "notify: [{terminal: siren}]",
        ] {
            assert!(rules(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn quiet_hours_may_contain_midnight() {
        let hours = |text: &str| QuietHours::try_from(text.to_owned()).unwrap();
        let (night, noon) = (hours("22:00-07:00"), hours("12:00-13:30"));
        for (minute, quiet) in
            [(21 * 60 + 59, false), (22 * 60, true), (0, true), (419, true), (420, false)]
        {
            assert_eq!(night.contains(minute), quiet, "{minute}");
        }
        assert!(
            noon.contains(720) && noon.contains(809) && !noon.contains(810) && !noon.contains(0)
        );
        assert_eq!(String::from(night), "22:00-07:00");
    }
}
