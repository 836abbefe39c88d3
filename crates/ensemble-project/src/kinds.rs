//! Kinds of requests as `ensemble.yaml` has them: a new kind is a few lines there.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use ensemble_core::proto::request::{AtExpiry, RequestKind, SHUTDOWN};
use ensemble_core::requests::{Kinds, kind_fault};
use ensemble_core::{Error, Result};
use serde::{Deserialize, Serialize};

use ensemble_core::message::ConfigDuration;

/// The longest deadline, in seconds: half of the time for which closed requests are kept.
const DEADLINE_SECONDS_MAX: u64 = 15 * 24 * 60 * 60;

/// `requests` in `ensemble.yaml`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RequestsConfig {
    /// Kinds of requests: further ones, or other times for `shutdown` and `plan_approval`.
    pub kinds: BTreeMap<String, KindConfig>,
}

/// A kind of request in `ensemble.yaml`. A field that is left out is as the kind has it. A new kind
/// has a plan's values: 30 minutes, a reminder every 5, and the requester is notified.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct KindConfig {
    /// How long a request stays pending.
    pub deadline: Option<ConfigDuration>,
    /// How often its addressee is reminded in that time; 0 for never.
    pub remind_every: Option<ConfigDuration>,
    /// What its expiry means: `tell`, `escalate`, or (for `shutdown`) `force`.
    pub at_expiry: Option<AtExpiry>,
    /// The field of the request that carries its content (default `content`).
    pub content_field: Option<String>,
    /// The field of the response that carries the decider's words (default `reason`).
    pub comment_field: Option<String>,
}

impl RequestsConfig {
    /// With what `fallback` says where this says nothing.
    pub(crate) fn or(self, fallback: Self) -> Self {
        let mut kinds = fallback.kinds;
        kinds.extend(self.kinds);
        Self { kinds }
    }

    /// The kinds there are: seed 004's and the configured ones.
    pub fn kinds(&self, file: &Path) -> Result<Kinds> {
        let mut kinds = Kinds::default();
        for (name, config) in &self.kinds {
            if let Some(fault) = kind_fault(name).or_else(|| config.fault(name)) {
                return Err(Error::malformed(file, format!("requests.kinds.{name}"), fault));
            }
            let known = kinds.find(name).cloned();
            kinds =
                kinds.with(config.apply(known.unwrap_or_else(|| RequestKind::new(name.clone()))));
        }
        Ok(kinds)
    }
}

impl KindConfig {
    fn fault(&self, name: &str) -> Option<String> {
        let longest = Duration::from_secs(DEADLINE_SECONDS_MAX);
        if self.deadline.is_some_and(|deadline| Duration::from(deadline) > longest) {
            return Some(format!("deadline is above {}", humantime::format_duration(longest)));
        }
        if self.at_expiry == Some(AtExpiry::Force) && name != SHUTDOWN {
            return Some(format!("at_expiry: only `{SHUTDOWN}` can be forced"));
        }
        let fields =
            [("content_field", &self.content_field), ("comment_field", &self.comment_field)];
        fields.into_iter().find_map(|(key, field)| {
            let fault = kind_fault(field.as_deref()?)?;
            Some(format!("{key}: {fault}"))
        })
    }

    fn apply(&self, kind: RequestKind) -> RequestKind {
        let period = |own: Option<ConfigDuration>, usual| own.map_or(usual, Duration::from);
        let field = |own: &Option<String>, usual| own.clone().map_or(usual, Into::into);
        RequestKind {
            deadline: period(self.deadline, kind.deadline),
            remind_every: period(self.remind_every, kind.remind_every),
            at_expiry: self.at_expiry.unwrap_or(kind.at_expiry),
            content_field: field(&self.content_field, kind.content_field),
            comment_field: field(&self.comment_field, kind.comment_field),
            ..kind
        }
    }
}

#[cfg(test)]
mod tests {
    use ensemble_core::message::yaml;

    use super::*;

    fn kinds(text: &str) -> Result<Kinds> {
        let file = Path::new("ensemble.yaml");
        yaml::parse::<RequestsConfig>(text, file)?.kinds(file)
    }

    #[test]
    fn a_new_kind_is_a_few_lines_and_a_known_one_keeps_what_is_not_said() {
        let text = "kinds:\n  hand_over: {deadline: 60, content_field: what}\n  \
                    shutdown: {deadline: 5}\n";
        let kinds = kinds(text).unwrap();
        let hand_over = kinds.find("hand_over").unwrap();
        assert_eq!(hand_over.deadline, Duration::from_secs(60));
        assert_eq!((&*hand_over.content_field, &*hand_over.comment_field), ("what", "reason"));
        let shutdown = kinds.find("shutdown").unwrap();
        assert_eq!((shutdown.deadline.as_secs(), shutdown.at_expiry), (5, AtExpiry::Force));
    }

    #[test]
    fn mistakes_name_the_kind() {
        for (text, said) in [
            ("kinds: {a b: {}}", "requests.kinds.a b"),
            ("kinds: {tea: {at_expiry: force}}", "only `shutdown` can be forced"),
            ("kinds: {tea: {deadline: 99999999}}", "deadline is above"),
            ("kinds: {tea: {content_field: \"a:b\"}}", "content_field: `"),
            ("kinds: {tea: {deadlin: 1}}", "deadlin"),
        ] {
            let error = kinds(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
