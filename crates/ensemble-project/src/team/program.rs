//! Whether the program that an agent's command begins with can be found, before anything is started.
//!
//! `sh` itself is asked (`command -v`), in the agent's directory and with the `PATH` that the agent
//! will have. So builtins, functions and relative paths are found as they will be. A command whose
//! first word is not a plain word (`$EDITOR`, `(cd x; …)`) is left to the shell.

use std::process::{Command, Stdio};

use ensemble_core::Result;

use super::place::AgentPlace;
use super::{AgentPlan, ProjectTeam};

const PATH: &str = "PATH";

impl ProjectTeam<'_> {
    /// The program that `plan` would start and that cannot be found. `None` if it exists, if the agent runs already,
    /// or if only the shell can find out.
    pub fn missing_program(&self, plan: &AgentPlan) -> Result<Option<String>> {
        let Some(program) = plan.unknown_program() else { return Ok(None) };
        let recorded = self.roster().get(&plan.name)?;
        let place = self.place_of(&plan.name, recorded.as_ref())?;
        let runs = matches!(place, AgentPlace::Bound(_) | AgentPlace::Marked(_));
        Ok((!runs).then(|| program.to_owned()))
    }
}

impl AgentPlan {
    pub fn unknown_program(&self) -> Option<&str> {
        let program = self.command.as_deref().and_then(first_program)?;
        let mut shell = Command::new("sh");
        shell.args(["-c", r#"command -v "$1""#, "sh", program]).current_dir(&self.directory);
        // Otherwise, it gets ours: tmux gives a window the PATH of the client that opens it.
        if let Some(path) = self.env.get(PATH) {
            shell.env(PATH, path);
        }
        let asked = shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        // Without a shell the start itself says so.
        let is_missing = asked.is_ok_and(|status| !status.success());
        is_missing.then_some(program)
    }
}

/// The first word of a command that names a program, behind assignments and `exec`, if it is a
/// plain word: one that no shell expands.
fn first_program(command: &str) -> Option<&str> {
    let is_plain = |word: &str| {
        !word.starts_with('-')
            && word.chars().all(|c| c.is_ascii_alphanumeric() || "_./+-@:,%".contains(c))
    };
    for word in command.split_ascii_whitespace() {
        match word.split_once('=') {
            Some((name, value)) if name != PATH && is_plain(name) && is_plain(value) => {}
            Some(_) => return None,
            None if word == "exec" => {}
            // `claude; echo ended` begins with a plain word, too.
            None => return Some(word.strip_suffix(';').unwrap_or(word)).filter(|w| is_plain(w)),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_word_is_looked_up() {
        for (command, program) in [
            ("claude", Some("claude")),
            ("claude --model x", Some("claude")),
            ("exec claude", Some("claude")),
            ("A=1 B= ./bin/agent 'x y'", Some("./bin/agent")),
            ("claude; echo ended", Some("claude")),
            ("sh -c 'claude; echo ended'", Some("sh")),
            ("\"$SHELL\"", None),
            ("exec -a x claude", None),
            ("PATH=/opt/bin claude", None),
            ("A=$(date) claude", None),
            ("(claude)", None),
            ("~/bin/claude", None),
            ("claude|tee log", None),
            ("", None),
        ] {
            assert_eq!(first_program(command), program, "{command}");
        }
    }
}
