//! Decides when to notify a person of which need, from the rules and from what was sent before.
//!
//! | a rule, of one need | on | then |
//! |---|---|---|
//! | pending | the need has lasted for the rule's delay, outside of its quiet hours | sent, once |
//! | sent | the rule's interval has passed, no person has looked since, and the hours are not quiet | sent again |
//! | sent | a person has looked since | silent until the need ends |
//! | sending failed | [`RETRY`] has passed, at most [`ATTEMPTS_MAX`] times | sent again |
//! | any | the need disappears before an alert was sent | forgotten; the delay starts again |
//! | any | the need has been gone for [`GONE_AFTER`] | forgotten: the next one is a new need |
//!
//! Needs are the same if kind, agent, subject and start are. The end of all work is handled like a need, once work
//! was seen. Pure: its clock is an argument.

use std::collections::BTreeMap;
use std::time::Duration;

use ensemble_core::env::Monotonic;
use ensemble_core::message::{Name, Timestamp};
use ensemble_project::AlertRule;
use ensemble_project::attention::{Kind, Need};
use serde::{Deserialize, Serialize};

/// How long a need must be gone before its return is a new need: evidence may be missing for a moment.
pub(super) const GONE_AFTER: Duration = Duration::from_secs(10);
/// How long no work must be seen before all work has ended: the next task may be on its way.
pub(super) const FINISHED_AFTER: Duration = Duration::from_secs(15);
pub(super) const RETRY: Duration = Duration::from_secs(30);
pub(super) const ATTEMPTS_MAX: u32 = 5;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AlertSubject {
    pub(super) key: AlertKey,
    /// The kind of need; none for the end of all work.
    pub(super) need: Option<Kind>,
    pub(super) text: String,
    pub(super) help: String,
}

/// The fields in which two equal occurrences agree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct AlertKey {
    pub(super) need: String,
    pub(super) agent: Option<Name>,
    pub(super) about: Option<String>,
    pub(super) since: Option<Timestamp>,
}

impl AlertSubject {
    pub(super) fn of(need: &Need) -> Self {
        let Need { need: kind, agent, about, text, since, help, person: _ } = need;
        let word = kind.word().replace(' ', "_");
        let key =
            AlertKey { need: word, agent: agent.clone(), about: about.clone(), since: *since };
        Self { key, need: Some(*kind), text: text.clone(), help: help.clone() }
    }

    pub(super) fn test() -> Self {
        let key = AlertKey { need: "test".to_owned(), agent: None, about: None, since: None };
        let text = "a test alert: nothing needs you".to_owned();
        Self { key, need: None, text, help: "`ensemble status`".to_owned() }
    }

    pub(super) fn finished() -> Self {
        Self {
            key: AlertKey { need: "finished".to_owned(), agent: None, about: None, since: None },
            need: None,
            text: "all work is finished: no agent holds a task, and none waits".to_owned(),
            help: "`ensemble log report`".to_owned(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct AlertMoment {
    pub(super) now: Monotonic,
    /// Minute of the local day, from 0.
    pub(super) minute: u16,
    /// Changes whenever a person looks.
    pub(super) looks: i128,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DueAlert {
    pub(super) rule: usize,
    pub(super) occurrence: AlertSubject,
    /// How often this rule has sent it, including this time.
    pub(super) count: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AlertMemory {
    /// Whether work was seen since the last time that all work had ended.
    worked: bool,
    told: Vec<KeptAlert>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct KeptAlert {
    #[serde(flatten)]
    key: AlertKey,
    /// How often each rule, in its JSON form, has sent it.
    rules: BTreeMap<String, u32>,
}

#[derive(Debug)]
struct ScheduleEntry {
    occurrence: AlertSubject,
    /// When this watcher first saw it.
    from: Monotonic,
    away_since: Option<Monotonic>,
    /// By rule.
    told: Vec<SentAlert>,
}

#[derive(Clone, Copy, Debug, Default)]
struct SentAlert {
    count: u32,
    at: Option<Monotonic>,
    looks: i128,
    /// Failures in a row, and the time of the next attempt.
    failed: Option<(u32, Monotonic)>,
}

#[derive(Debug)]
pub(super) struct AlertSchedule {
    rules: Vec<AlertRule>,
    entries: BTreeMap<AlertKey, ScheduleEntry>,
    worked: bool,
    /// Alerts that the last watcher has sent, until their needs are seen again.
    kept: BTreeMap<AlertKey, BTreeMap<String, u32>>,
    began: Option<Monotonic>,
}

impl AlertSchedule {
    pub(super) fn new(rules: Vec<AlertRule>, kept: AlertMemory) -> Self {
        let told = kept.told.into_iter().map(|alert| (alert.key, alert.rules)).collect();
        Self { rules, entries: BTreeMap::new(), worked: kept.worked, kept: told, began: None }
    }

    /// Updates the needs, and whether there is work.
    ///
    /// With `None` the servers are away and only a part is seen: what is not among the needs may last still.
    pub(super) fn update_needs(
        &mut self,
        moment: AlertMoment,
        needs: &[Need],
        has_work: Option<bool>,
    ) {
        self.worked |= has_work == Some(true);
        let mut present: Vec<AlertSubject> = needs.iter().map(AlertSubject::of).collect();
        if self.worked && has_work == Some(false) {
            present.push(AlertSubject::finished());
        }
        for entry in self.entries.values_mut().filter(|_| has_work.is_some()) {
            let is_there = present.iter().any(|it| it.key == entry.occurrence.key);
            entry.away_since = (!is_there).then(|| entry.away_since.unwrap_or(moment.now));
        }
        self.entries.retain(|_, entry| match entry.away_since {
            // Work that is back is not a flicker of evidence.
            Some(_) if entry.occurrence.need.is_none() => false,
            Some(since) => entry.is_told() && moment.now.since(since) < GONE_AFTER,
            None => true,
        });
        for occurrence in present {
            self.see(moment, occurrence);
        }
        // Forget needs that ended while no watcher ran. The first looks may still lack evidence.
        if has_work.is_some()
            && moment.now.since(*self.began.get_or_insert(moment.now)) >= GONE_AFTER
        {
            self.kept.clear();
        }
    }

    fn see(&mut self, moment: AlertMoment, occurrence: AlertSubject) {
        if let Some(entry) = self.entries.get_mut(&occurrence.key) {
            entry.occurrence = occurrence;
            return;
        }
        let before = self.kept.remove(&occurrence.key).unwrap_or_default();
        let told = |rule: &AlertRule| match before.get(&text_of(rule)) {
            Some(&count) => {
                SentAlert { count, at: Some(moment.now), looks: moment.looks, failed: None }
            }
            None => SentAlert::default(),
        };
        let told = self.rules.iter().map(told).collect();
        let entry = ScheduleEntry { from: moment.now, away_since: None, told, occurrence };
        self.entries.insert(entry.occurrence.key.clone(), entry);
    }

    /// Returns at most `limit` due alerts, and counts them as sent.
    pub(super) fn due(&mut self, moment: AlertMoment, limit: usize) -> Vec<DueAlert> {
        let mut due = Vec::new();
        for entry in self.entries.values_mut().filter(|entry| entry.away_since.is_none()) {
            for (rule, config) in self.rules.iter().enumerate() {
                let at = entry.due_at(rule, config, moment);
                if due.len() >= limit || at.is_none_or(|at| at > moment.now) {
                    continue;
                }
                let told = &mut entry.told[rule];
                told.count += 1;
                (told.at, told.looks) = (Some(moment.now), moment.looks);
                let occurrence = entry.occurrence.clone();
                due.push(DueAlert { rule, occurrence, count: told.count });
            }
        }
        due
    }

    /// An alert reached no person. Returns whether it is tried again.
    pub(super) fn failed(&mut self, now: Monotonic, due: &DueAlert) -> bool {
        let Some(entry) = self.entries.get_mut(&due.occurrence.key) else { return false };
        let told = &mut entry.told[due.rule];
        let failures = told.failed.map_or(0, |(failures, _)| failures) + 1;
        told.failed = Some((failures, now + RETRY));
        let is_retried = failures < ATTEMPTS_MAX;
        told.count -= u32::from(is_retried);
        is_retried
    }

    pub(super) fn succeeded(&mut self, due: &DueAlert) {
        if let Some(entry) = self.entries.get_mut(&due.occurrence.key) {
            entry.told[due.rule].failed = None;
        }
    }

    /// When [`AlertSchedule::due`] has something to say next. The end of quiet hours is seen by the looks.
    pub(super) fn next_due(&self, moment: AlertMoment) -> Option<Monotonic> {
        let entries = self.entries.values().filter(|entry| entry.away_since.is_none());
        let times = entries.flat_map(|entry| {
            let rules = self.rules.iter().enumerate();
            rules.filter_map(|(rule, config)| entry.due_at(rule, config, moment))
        });
        times.min()
    }

    pub(super) fn kept(&self) -> AlertMemory {
        let told = self.entries.values().filter(|entry| entry.is_told()).map(|entry| KeptAlert {
            key: entry.occurrence.key.clone(),
            rules: (self.rules.iter().zip(&entry.told))
                .filter(|(_, told)| told.count > 0)
                .map(|(rule, told)| (text_of(rule), told.count))
                .collect(),
        });
        AlertMemory { worked: self.worked, told: told.collect() }
    }
}

impl ScheduleEntry {
    fn is_told(&self) -> bool {
        self.told.iter().any(|told| told.count > 0)
    }

    /// When a rule sends it next, unless the hours are quiet.
    fn due_at(&self, rule: usize, config: &AlertRule, moment: AlertMoment) -> Option<Monotonic> {
        let is_quiet = config.quiet_hours.is_some_and(|hours| hours.contains(moment.minute));
        if is_quiet || !config.covers(self.occurrence.need) {
            return None;
        }
        let told = &self.told[rule];
        if let Some((failures, at)) = told.failed {
            return (failures < ATTEMPTS_MAX).then_some(at);
        }
        let least = if self.occurrence.need.is_none() { FINISHED_AFTER } else { Duration::ZERO };
        match told.at {
            None => Some(self.from + config.delay().max(least)),
            Some(_) if told.looks != moment.looks || self.occurrence.need.is_none() => None,
            Some(at) => config.repeat.map(|every| at + Duration::from(every)),
        }
    }
}

/// The text that identifies a rule: its whole text, so that another rule is another.
fn text_of(rule: &AlertRule) -> String {
    serde_json::to_string(rule).unwrap_or_default()
}
