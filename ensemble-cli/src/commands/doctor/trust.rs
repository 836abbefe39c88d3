//! Reads from agents' settings whether they trust this directory and our hooks. A program that does not asks a person
//! when it starts, and runs no hooks until that is answered.

use std::path::{Path, PathBuf};

use ensemble_app::agent_program::AgentProgram;
use ensemble_core::durable::read_chosen_file;
use serde_json::Value;

use super::DoctorCheck;

const CHECK: &str = "trust";
const FILE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Codex writes it beside each hook that a person has reviewed.
const REVIEWED: &str = "trusted_hash";

/// Checks whether a program trusts this directory. `has_hooks`: our hooks are in its configuration.
pub(super) fn check(program: AgentProgram, root: &Path, has_hooks: bool) -> Vec<DoctorCheck> {
    let Some(home) = std::env::var_os("HOME").map(PathBuf::from) else { return Vec::new() };
    let word = program.word();
    let is_trusted = match program {
        AgentProgram::Claude => by_claude(&place("CLAUDE_CONFIG_DIR", home.clone()), root),
        AgentProgram::Codex => by_codex(&place("CODEX_HOME", home.join(".codex")), root),
        AgentProgram::Gemini => by_gemini(&home.join(".gemini"), root),
        // They have no such question, or none that we know of.
        AgentProgram::Opencode | AgentProgram::Compatible | AgentProgram::Acp => return Vec::new(),
    };
    let mut checks = vec![match is_trusted {
        true => DoctorCheck::ok(CHECK, format!("{word} trusts this directory")),
        false => {
            let remedy =
                format!("run `{word}` here once and answer, or answer in the agent's pane");
            let text = format!("{word} will ask a person whether it trusts this directory");
            DoctorCheck::warn(CHECK, text, remedy)
        }
    }];
    let is_reviewed = || {
        let file = place("CODEX_HOME", home.join(".codex")).join("config.toml");
        text(&file).is_some_and(|text| text.contains(REVIEWED))
    };
    if program == AgentProgram::Codex && has_hooks && !is_reviewed() {
        let remedy = "run `codex` here once, and choose `Trust all and continue`";
        let text = "codex runs the hooks only after a person has reviewed them";
        checks.push(DoctorCheck::warn(CHECK, text, remedy));
    }
    checks
}

fn place(variable: &str, usual: PathBuf) -> PathBuf {
    std::env::var_os(variable).filter(|it| !it.is_empty()).map_or(usual, PathBuf::from)
}

fn text(file: &Path) -> Option<String> {
    String::from_utf8(read_chosen_file(file, FILE_BYTES_MAX).ok()??).ok()
}

/// Whether this directory or one that it is in has been trusted.
fn any_of(root: &Path, is_trusted: impl Fn(&str) -> bool) -> bool {
    root.ancestors().any(|dir| is_trusted(&dir.to_string_lossy()))
}

fn by_claude(place: &Path, root: &Path) -> bool {
    let known = text(&place.join(".claude.json"))
        .and_then(|text| serde_json::from_str::<Value>(&text).ok())
        .unwrap_or_default();
    any_of(root, |dir| known["projects"][dir]["hasTrustDialogAccepted"] == true)
}

/// A table `[projects."DIR"]` with `trust_level = "trusted"`.
fn by_codex(place: &Path, root: &Path) -> bool {
    let known = text(&place.join("config.toml")).unwrap_or_default();
    any_of(root, |dir| {
        let head = format!("[projects.{}]", Value::from(dir));
        let table = known.split_once(&head).map_or("", |(_, rest)| rest);
        let lines = table.lines().skip(1).take_while(|line| !line.starts_with('['));
        lines.map(|line| line.replace(' ', "")).any(|line| line == "trust_level=\"trusted\"")
    })
}

fn by_gemini(place: &Path, root: &Path) -> bool {
    let known = text(&place.join("trustedFolders.json"))
        .and_then(|text| serde_json::from_str::<Value>(&text).ok())
        .unwrap_or_default();
    any_of(root, |dir| known[dir] == "TRUST_FOLDER")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_tells_in_its_own_file() {
        let home = tempfile::tempdir().unwrap();
        let (place, root) = (home.path(), Path::new("/srv/shop/src"));
        let write = |name: &str, content: &str| std::fs::write(place.join(name), content).unwrap();
        type By = fn(&Path, &Path) -> bool;
        let cases: [(By, &str, &str, &str); 3] = [
            (
                by_claude,
                ".claude.json",
                r#"{"projects": {"/srv/shop": {"hasTrustDialogAccepted": true}}}"#,
                r#"{"projects": {"/srv/shop": {"hasTrustDialogAccepted": false}, "/srv/sho": {}}}"#,
            ),
            (
                by_codex,
                "config.toml",
                "[projects.\"/srv/shop\"]\ntrust_level = \"trusted\"\n",
                "[projects.\"/srv/shop\"]\ntrust_level = \"untrusted\"\n[x]\ntrust_level = \"trusted\"\n",
            ),
            (
                by_gemini,
                "trustedFolders.json",
                r#"{"/srv/shop": "TRUST_FOLDER"}"#,
                r#"{"/srv/shop": "DO_NOT_TRUST"}"#,
            ),
        ];
        for (by, file, trusts, does_not) in cases {
            assert!(!by(place, root), "{file}: nothing is known");
            write(file, trusts);
            assert!(by(place, root), "{file}");
            write(file, does_not);
            assert!(!by(place, root), "{file}");
        }
    }
}
