//! Describes, as data, how to install our hooks in an agent's program.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The placeholder in a profile for our command, quoted for a shell.
pub const COMMAND: &str = "{ensemble}";
/// The placeholder in a profile for our program's path, for commands that run without a shell.
pub const PROGRAM: &str = "{ensemble_path}";

/// `hooks` of a profile (docs/reference/providers.md).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HookConfig {
    /// Whether the program asks a person before it runs hooks that it has not seen. Such a program is started with
    /// hooks only where the project wants it.
    pub asks_trust: bool,
    /// Whether the program reads its files only where no other user could have changed them: in directories that only
    /// their owner may write.
    pub private_files: bool,
    /// Arguments behind the program's name. `{FILE}` is the path of one of `files`.
    pub arguments: Vec<String>,
    /// Arguments that add our tools alone. A program that is started without our hooks still gets these.
    pub tools: Vec<String>,
    /// Words before the program's name: our own program, which starts it, where it gets our tools and no hooks.
    pub before: Vec<String>,
    /// Words before the whole command, which becomes one word behind them: our own program, which runs it in a shell.
    pub around: Vec<String>,
    pub env: BTreeMap<String, String>,
    /// Files that are written before it starts, by name. A text is written as it is, `{plugin: NAME}` as that
    /// [`plugin`], anything else as JSON. `{FILE}` in them is the path of one of them.
    pub files: BTreeMap<String, Value>,
    /// Where a person's own start of the program looks for hooks.
    pub install: InstallPlaces,
}

/// Configuration files of a program, for `hooks install`: one file for its hooks, or a directory for plugins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InstallPlaces {
    /// The file, or the directory, of a project, below its directory.
    pub project: Option<String>,
    /// The file, or the directory, of a user, below the home directory.
    pub user: Option<String>,
    /// The variable that names another directory for the last part of `user`.
    pub home_variable: Option<String>,
    /// Our files in the directory, as [`HookConfig::files`] has them.
    pub files: BTreeMap<String, Value>,
    /// Entries in lists of the program's own files in the directory: file, name of the list, entry.
    pub lists: BTreeMap<String, BTreeMap<String, String>>,
}

impl HookConfig {
    /// Whether the program can be started with our hooks.
    pub fn can_launch(&self) -> bool {
        !self.arguments.is_empty() || !self.env.is_empty()
    }

    /// The hooks among the files: event by event, as the program's configuration has them below `hooks`.
    pub fn events(&self) -> Option<&serde_json::Map<String, Value>> {
        self.files.values().find_map(|file| file.get("hooks")?.as_object())
    }
}

/// The verbs that every agent may run without a question: those of the rules of Claude Code.
pub fn everyday_verbs() -> Vec<String> {
    let profile = super::Profiles::embedded().and_then(|all| all.get("claude"));
    let settings =
        profile.map(|it| it.hooks().files.get("settings.json").cloned().unwrap_or_default());
    let rules = settings.unwrap_or_default()["permissions"]["allow"].clone();
    let rules = rules.as_array().into_iter().flatten().filter_map(Value::as_str);
    let verb =
        |rule: &str| rule.strip_prefix("Bash(ensemble ")?.strip_suffix(":*)").map(str::to_owned);
    let mut verbs: Vec<String> = rules.filter_map(verb).collect();
    verbs.sort_unstable();
    verbs
}

/// The line of a plugin that names our program, found on PATH.
const PLUGIN_PROGRAM: &str = "const PROGRAM = \"ensemble\"";

/// Our plugin for an agent's program, as JavaScript and as it is published: `opencode-events.js`, `opencode-waiter.js`.
pub fn plugin(name: &str) -> Option<&'static str> {
    match name {
        "opencode-events.js" => Some(include_str!("plugins/opencode-events.js")),
        "opencode-waiter.js" => Some(include_str!("plugins/opencode-waiter.js")),
        _ => None,
    }
}

/// The text of a file as [`HookConfig::files`] has it. `path` is our own program, `command` the same as a shell reads
/// it.
pub fn file_text(content: &Value, path: &str, command: &str) -> String {
    let named = content.get("plugin").and_then(Value::as_str).and_then(plugin);
    let by_path = |text: &str| {
        Value::from(text.replace(PLUGIN_PROGRAM, &format!("const PROGRAM = \"{PROGRAM}\"")))
    };
    let content = named.map_or_else(|| content.clone(), by_path);
    match filled(&filled(&content, PROGRAM, path), COMMAND, command) {
        Value::String(text) => text,
        other => format!("{other:#}\n"),
    }
}

/// A value in which each text has `from` replaced by `to`.
pub fn filled(value: &Value, from: &str, to: &str) -> Value {
    match value {
        Value::String(text) => Value::String(text.replace(from, to)),
        Value::Array(items) => items.iter().map(|item| filled(item, from, to)).collect(),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| (key.clone(), filled(value, from, to)));
            Value::Object(fields.collect())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use crate::provider::Profiles;

    /// The texts in quotation marks between `begin` and the next bracket, in order.
    fn quoted_list<'a>(text: &'a str, begin: &str) -> Vec<&'a str> {
        let list = text.split_once(begin).unwrap().1.split_once(']').unwrap().0;
        let mut quoted: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
        quoted.sort_unstable();
        quoted
    }

    #[test]
    fn all_agents_are_allowed_what_claude_is() {
        let profiles = Profiles::embedded().unwrap();
        let verbs = super::everyday_verbs();
        assert!(verbs.len() > 20, "{verbs:?}");
        let plugin = super::plugin("opencode-events.js").unwrap();
        assert_eq!(quoted_list(plugin, "const ALLOWED = ["), verbs);
        let gemini = profiles.get("gemini").unwrap();
        let policy = gemini.hooks().files["policy.toml"].as_str().unwrap();
        let prefixes = quoted_list(policy, "commandPrefix = [");
        let allowed: Vec<&str> =
            prefixes.iter().filter_map(|prefix| prefix.strip_prefix("ensemble ")).collect();
        assert_eq!(allowed, verbs);
    }
}
