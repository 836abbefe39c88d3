//! A key of the configuration in a section that does not have it: the error names the section that has.

use ensemble_core::message::Name;
use serde_json::Value;

use super::{AgentConfig, AlertRule, ProjectConfig};
use crate::kinds::{KindConfig, RequestsConfig};

/// The error, with the places that its unknown key has in other sections.
pub(super) fn with_places(detail: String) -> String {
    let unknown = detail.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`'));
    let Some((key, _)) = unknown else { return detail };
    let mut places = Vec::new();
    find_places(&all_keys(), key, "", &mut places);
    match places.is_empty() {
        true => detail,
        false => format!("unknown field `{key}` here: its place is {}", places.join(" or ")),
    }
}

/// A configuration with one item in each section that has items.
fn all_keys() -> Value {
    let agents = Name::new("NAME").into_iter().map(|name| (name, AgentConfig::default()));
    let kinds = [("NAME".to_owned(), KindConfig::default())].into();
    let all = ProjectConfig {
        agents: agents.collect(),
        notify: vec![AlertRule::default()],
        requests: RequestsConfig { kinds },
        ..ProjectConfig::default()
    };
    serde_json::to_value(all).unwrap_or_default()
}

fn find_places(value: &Value, key: &str, at: &str, found: &mut Vec<String>) {
    if let Some(item) = value.get(0) {
        find_places(item, key, &format!("{at}[]"), found);
    }
    for (name, below) in value.as_object().into_iter().flatten() {
        let place = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
        if name == key {
            let section = if at.is_empty() { " outside of all sections" } else { "" };
            found.push(format!("`{place}`{section}"));
        }
        find_places(below, key, &place, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_key_and_the_place_of_one_in_the_wrong_section() {
        for (text, said) in [
            ("tests: make\n", "unknown field `tests` here: its place is `worktrees.tests`"),
            (
                "team:\n  poll_interval: 5s\n",
                "its place is `poll_interval` outside of all sections",
            ),
            ("agents:\n  a:\n    grace: 1m\n", "its place is `agents.NAME.shutdown.grace`"),
            ("quiet_hours: 22:00-07:00\n", "its place is `notify[].quiet_hours`"),
            (
                "team: {deadline: 1m}\n",
                "`agents.NAME.shutdown.deadline` or `requests.kinds.NAME.deadline`",
            ),
            ("durabilty: power\n", "did you mean `durability`?"),
            ("budget: {agents: {a: {usd: -5}}}\n", "budget.agents.a.usd: is -5, which is not"),
            ("notify: [{tmux: true}, {}]\n", "notify[1]: a rule needs `command`"),
            ("notify: [{tmux: true, repeat: 0}]\n", "notify[0].repeat: is 0: write how long"),
            ("readiness: {attempts: 0}\n", "readiness.attempts: is 0, and must be 1 to 99"),
        ] {
            let error = ProjectConfig::parse(text, "ensemble.yaml".as_ref()).unwrap_err();
            assert!(error.to_string().contains(said), "{text}: {error}");
        }
    }
}
