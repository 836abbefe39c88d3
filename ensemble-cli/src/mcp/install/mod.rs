//! `ensemble admin mcp install` and `uninstall`: the server in an agent's configuration, and out of it again.

use std::path::{Path, PathBuf};

use ensemble_app::config_edit::{ConfigEdit, ConfigInsert, inside};
use ensemble_app::failure::{Failure, Outcome};
use ensemble_app::hook_entries::describe_unread_settings;
use serde_json::{Value, json};

const NOTES: &str = "mcp";

#[derive(Clone, Debug, PartialEq, Eq)]
struct TextInsertion {
    at: usize,
    text: String,
}

pub(crate) fn guest(state: &Path, provider: ConfiguredProgram) -> ConfigInsert {
    ConfigInsert {
        what: "the entry",
        by_hand: "take out what is called `ensemble` in it by hand",
        note: state.join(NOTES).join(format!("{}.json", provider.word())),
    }
}

/// Puts the entry into the file. Returns whether the file was changed.
pub(crate) fn install(
    state: &Path,
    provider: ConfiguredProgram,
    file: &Path,
    command: &ServerCommand,
) -> Outcome<bool> {
    guest(state, provider).put_in(file, |text| {
        let insertion = provider.insertion(text, command)?;
        Ok(insertion.map(|TextInsertion { at, text: inserted }| ConfigEdit {
            after: format!("{}{inserted}{}", &text[..at], &text[at..]),
            inserted: vec![inserted],
        }))
    })
}

const NAME: &str = "ensemble";
/// The settings by which the server finds its identity and its queue.
const VARIABLES: [&str; 4] =
    ["ENSEMBLE_AGENT_ID", "ENSEMBLE_AGENT_PASS", "ENSEMBLE_QUEUE", "LIZA_AGENT_ID"];

/// The program whose configuration is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ConfiguredProgram {
    /// Claude Code: `.mcp.json` in the project
    Claude,
    /// Codex: `config.toml` in $CODEX_HOME or ~/.codex
    Codex,
    /// OpenCode: `opencode.json` in the project
    Opencode,
    /// Gemini CLI: `.gemini/settings.json` in the project
    Gemini,
}

#[derive(Clone, Debug)]
pub(crate) struct ServerCommand {
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
}

impl ConfiguredProgram {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Opencode => "opencode",
            Self::Gemini => "gemini",
        }
    }

    pub(crate) fn file(self, project: &Path) -> Outcome<PathBuf> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        match self {
            Self::Claude => Ok(project.join(".mcp.json")),
            Self::Opencode => Ok(project.join("opencode.json")),
            Self::Gemini => Ok(project.join(".gemini/settings.json")),
            Self::Codex => {
                let home = variable("CODEX_HOME").map(PathBuf::from);
                let home = home
                    .or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".codex")));
                let unknown = || Failure::usage("neither CODEX_HOME nor HOME is set");
                Ok(home.ok_or_else(unknown)?.join("config.toml"))
            }
        }
    }

    /// Where the entry goes in this text; `None` if it exists.
    fn insertion(
        self,
        text: &str,
        command: &ServerCommand,
    ) -> Result<Option<TextInsertion>, String> {
        match self {
            Self::Claude => json_insertion(text, "mcpServers", NAME, &claude(command)),
            Self::Opencode => json_insertion(text, "mcp", NAME, &opencode(command)),
            Self::Gemini => json_insertion(text, "mcpServers", NAME, &gemini(command)),
            Self::Codex => toml_insertion(text, command),
        }
    }

    pub(crate) fn entry(self, command: &ServerCommand) -> String {
        match self {
            Self::Claude => pretty(&json!({ "mcpServers": { NAME: claude(command) } })),
            Self::Opencode => pretty(&json!({ "mcp": { NAME: opencode(command) } })),
            Self::Gemini => pretty(&json!({ "mcpServers": { NAME: gemini(command) } })),
            Self::Codex => codex(command),
        }
    }
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// Claude Code expands `${NAME:-}`; without it a variable that is not set would be an error.
fn claude(command: &ServerCommand) -> Value {
    let env = variables();
    json!({ "type": "stdio", "command": command.program, "args": command.arguments, "env": env })
}

/// Gemini CLI expands `${NAME:-}`, too. It removes variables that look like secrets from the
/// server's environment, except those that the entry names. With `trust` it does not ask a person
/// before each call.
fn gemini(command: &ServerCommand) -> Value {
    let env = variables();
    json!({ "command": command.program, "args": command.arguments, "env": env, "trust": true })
}

/// Each of [`VARIABLES`] with its value in the agent's environment, empty if it is not set.
fn variables() -> Value {
    VARIABLES.map(|name| (name.to_owned(), json!(format!("${{{name}:-}}")))).into_iter().collect()
}

/// OpenCode hands its environment on.
fn opencode(command: &ServerCommand) -> Value {
    let mut words = vec![command.program.clone()];
    words.extend(command.arguments.iter().cloned());
    json!({ "type": "local", "command": words, "enabled": true })
}

/// Codex hands on what is named. JSON's strings and lists are TOML's.
fn codex(command: &ServerCommand) -> String {
    let (program, arguments) = (json!(command.program), json!(command.arguments));
    let variables = json!(VARIABLES);
    format!(
        "[mcp_servers.{NAME}]\ncommand = {program}\nargs = {arguments}\nenv_vars = {variables}\n\
         default_tools_approval_mode = \"approve\"\n"
    )
}

/// Adds a table at the end of the file, where it cannot change the meaning of anything before it.
fn toml_insertion(text: &str, command: &ServerCommand) -> Result<Option<TextInsertion>, String> {
    let entry = codex(command);
    if text.contains(&entry) {
        return Ok(None);
    }
    let squeezed =
        |line: &str| line.split_whitespace().collect::<String>().replace(['"', '\''], "");
    let is_ours = |line: &str| {
        let line = squeezed(line);
        let table = format!("[mcp_servers.{NAME}");
        line.starts_with(&format!("{table}]"))
            || line.starts_with(&format!("{table}."))
            || line.starts_with(&format!("mcp_servers.{NAME}"))
    };
    if text.lines().any(is_ours) {
        return Err(format!("`mcp_servers.{NAME}` already exists and says something else"));
    }
    if text.lines().any(|line| squeezed(line).starts_with("mcp_servers=")) {
        return Err("`mcp_servers` is written in one line, so no table can follow".to_owned());
    }
    let gap = match text {
        "" => "",
        text if text.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    Ok(Some(TextInsertion { at: text.len(), text: format!("{gap}{entry}") }))
}

/// Puts `"name": value` as the first member into the object that is the member `outer` of the text's
/// object; makes what is missing. `None` if it already exists with this value.
fn json_insertion(
    text: &str,
    outer: &str,
    name: &str,
    value: &Value,
) -> Result<Option<TextInsertion>, String> {
    // All lines but the first are moved to the right.
    let entry = format!("\"{name}\": {value:#}").replace('\n', "\n    ");
    let outer_entry = format!("\n  \"{outer}\": {{\n    {entry}\n  }}");
    if text.trim().is_empty() {
        let whole = format!("{{{outer_entry}\n}}\n");
        return Ok(Some(TextInsertion { at: text.len(), text: whole }));
    }
    let root: Value =
        serde_json::from_str(text).map_err(|error| describe_unread_settings(&error))?;
    let root = root.as_object().ok_or("is not an object, so nothing was changed")?;
    let Some(inner) = root.get(outer) else {
        let at = text.find('{').map_or(0, |brace| brace + 1);
        let comma = if root.is_empty() { "\n" } else { "," };
        return Ok(Some(TextInsertion { at, text: format!("{outer_entry}{comma}") }));
    };
    let inner = inner.as_object().ok_or_else(|| format!("`{outer}` is not an object"))?;
    match inner.get(name) {
        Some(there) if there == value => return Ok(None),
        Some(_) => {
            return Err(format!("`{outer}.{name}` already exists and says something else"));
        }
        None => {}
    }
    let at = inside(text, &[outer]).ok_or_else(|| format!("cannot find `{outer}`"))?;
    let comma = if inner.is_empty() { "\n  " } else { "," };
    Ok(Some(TextInsertion { at, text: format!("\n    {entry}{comma}") }))
}

#[cfg(test)]
mod tests;
