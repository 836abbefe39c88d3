//! Starting an agent with our hooks and tools, without touching the user's files.
//!
//! ```text
//! profile: hooks.files      ─▶ .ensemble/launch/PROVIDER/FILE      written before each start
//! profile: hooks.arguments  ─▶ claude --settings=… REST            behind the program's name
//! profile: hooks.tools      ─▶ codex -c mcp_servers… REST       also where the hooks are not given
//! profile: hooks.before     ─▶ ensemble hook serve … -- codex     before the program's name, where the hooks are not given
//! profile: hooks.around    ─▶ ensemble hook converse -- sh -c 'gemini --acp'     the whole command, of an agent without a terminal
//! profile: hooks.env        ─▶ the agent's environment          
//! ```
//!
//! The roster keeps the command as the user wrote it. The files are the same for all agents of a provider: an agent is
//! known by its pass, not by its hooks. A crash between writing and starting leaves files that the next start replaces.
//! A program that reads only private files is started as it is where others may write a directory on the way. So
//! is a command that does not begin with the program of its profile, or that has one of the arguments or variables
//! already.

use std::collections::BTreeMap;
use std::path::Path;

use ensemble_core::durable::{self, Durability};
use ensemble_core::message::shell_word;
use ensemble_core::{Error, Result};
use ensemble_tmux::provider::{COMMAND, HookConfig, PROGRAM, Profile, file_text, filled};

use super::{AgentPlan, ProjectTeam};
use crate::project::Project;

const LAUNCH_DIRECTORY: &str = "launch";

#[derive(Default)]
struct HookLaunch {
    before: Vec<String>,
    arguments: Vec<String>,
    env: Vec<(String, String)>,
}

/// A command of words, with our hooks if its program has any.
#[derive(Clone, Debug)]
pub struct HookedCommand {
    pub words: Vec<String>,
    pub env: Vec<(String, String)>,
}

impl ProjectTeam<'_> {
    /// The command of an agent, as `sh -c` takes it, and its variables, with hooks if its provider has any, and with
    /// these arguments of a person.
    pub(super) fn hooked_line(
        &self,
        plan: &AgentPlan,
        said: &[String],
    ) -> Result<(String, Vec<(String, String)>)> {
        let command = plan.command.clone().unwrap_or_default();
        let profile = self.project.profiles()?.get(&plan.provider)?;
        if let (Some(ensemble), false) = (&self.ensemble, profile.hooks().around.is_empty()) {
            let fill = |text: &String| fill(text, profile.hooks(), Path::new(""), ensemble);
            let said = said.iter().map(|it| format!(" {}", shell_word(it))).collect::<String>();
            let words = profile.hooks().around.iter().map(fill).chain([command + &said]);
            let command = words.map(|it| shell_word(&it)).collect::<Vec<_>>().join(" ");
            return Ok((command, Vec::new()));
        }
        let end = program_end(&command, &profile);
        let words = command.split_ascii_whitespace().map(str::to_owned).chain(said.iter().cloned());
        let words: Vec<String> = words.collect();
        let hooks = match (&self.ensemble, end) {
            (Some(ensemble), Some(_)) => {
                hooked(self.project, ensemble, &profile, &words, &plan.env)?
            }
            _ => None,
        };
        let HookLaunch { before, arguments, env } = hooks.unwrap_or_default();
        let joined =
            |words: &[String]| words.iter().map(|it| format!(" {}", shell_word(it))).collect();
        let (arguments, said): (String, String) = (joined(&arguments), joined(said));
        let before: String = before.iter().map(|it| format!("{} ", shell_word(it))).collect();
        let (program, rest) = command.split_at(end.unwrap_or(command.len()));
        let start = program.rfind(char::is_whitespace).map_or(0, |blank| blank + 1);
        let (first, program) = program.split_at(start);
        Ok((format!("{first}{before}{program}{arguments}{rest}{said}"), env))
    }

    pub(super) fn begins_with_program(&self, plan: &AgentPlan) -> Result<bool> {
        let profile = self.project.profiles()?.get(&plan.provider)?;
        let command = plan.command.as_deref().unwrap_or_default();
        Ok(program_end(command, &profile).is_some())
    }
}

/// The words that start an agent's program, and variables for it, with our hooks if the program has any.
/// `ensemble` is the program that the hooks run, `words` what a person wants to be started, without a shell.
pub fn hooked_words(project: &Project, ensemble: &Path, words: &[String]) -> Result<HookedCommand> {
    let bare = || Ok(HookedCommand { words: words.to_vec(), env: Vec::new() });
    let Some((program, said)) = words.split_first() else { return bare() };
    let name = Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Ok(profile) = project.profiles()?.get(name) else { return bare() };
    let opened = profile.open_command().and_then(|open| open.split_ascii_whitespace().next());
    if opened != Some(name) {
        return bare();
    }
    match hooked(project, ensemble, &profile, said, &BTreeMap::new())? {
        // A program without a screen is not woken.
        Some(HookLaunch { arguments, env, .. }) => {
            let words = [program].into_iter().chain(&arguments).chain(said);
            Ok(HookedCommand { words: words.cloned().collect(), env })
        }
        None => bare(),
    }
}

fn hooked(
    project: &Project,
    ensemble: &Path,
    profile: &Profile,
    said: &[String],
    plan_env: &BTreeMap<String, String>,
) -> Result<Option<HookLaunch>> {
    let hooks = profile.hooks();
    let flag = |argument: &str| argument.split('=').next().unwrap_or_default().to_owned();
    let is_taken = |argument: &String| {
        argument.starts_with("--") && said.iter().any(|word| flag(word) == flag(argument))
    };
    let dir = project.state.join(LAUNCH_DIRECTORY).join(profile.name());
    let fill = |text: &str| fill(text, hooks, &dir, ensemble);
    let tools: Vec<String> = hooks.tools.iter().map(|argument| fill(argument)).collect();
    if !wants_hooks(project, profile) {
        let before = hooks.before.iter().map(|word| fill(word)).collect();
        let bare = HookLaunch { before, arguments: tools, env: Vec::new() };
        return Ok(Some(bare).filter(|_| gives_tools(project, profile)));
    }
    // An agent that starts another one of its kind has our own value.
    let is_set = |(name, value): (&String, &String)| {
        plan_env.contains_key(name)
            || std::env::var_os(name).is_some_and(|set| set != fill(value).as_str())
    };
    if hooks.arguments.iter().any(is_taken) || hooks.env.iter().any(is_set) {
        return Ok(None);
    }
    if hooks.private_files && !is_private(&dir) {
        return Ok(None);
    }
    write_files(&dir, hooks, ensemble)?;
    let arguments = hooks.arguments.iter().map(|argument| fill(argument)).chain(tools).collect();
    let env = hooks.env.iter().map(|(name, value)| (name.clone(), fill(value))).collect();
    Ok(Some(HookLaunch { arguments, env, ..HookLaunch::default() }))
}

/// The arguments, variables and files that a program gets when it is started for an agent of this project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenWays {
    Hooks,
    /// Tools and a private server, without hooks: the program would ask a person to trust them.
    Server,
    Tools,
    /// Nothing: it reads its mail by commands alone.
    Nothing,
}

pub fn given_ways(project: &Project, profile: &Profile) -> GivenWays {
    match wants_hooks(project, profile) {
        true => GivenWays::Hooks,
        false if !gives_tools(project, profile) => GivenWays::Nothing,
        false if !profile.hooks().before.is_empty() => GivenWays::Server,
        false => GivenWays::Tools,
    }
}

/// Whether a program without our hooks gets our tools. An empty list of providers wants neither.
fn gives_tools(project: &Project, profile: &Profile) -> bool {
    let providers = project.config.hooks.providers.as_ref();
    !profile.hooks().tools.is_empty() && providers.is_none_or(|named| !named.is_empty())
}

fn wants_hooks(project: &Project, profile: &Profile) -> bool {
    let hooks = profile.hooks();
    hooks.can_launch()
        && match &project.config.hooks.providers {
            Some(providers) => providers.iter().any(|name| name == profile.name()),
            None => !hooks.asks_trust,
        }
}

/// Whether only their owners may write the directories that lead to this one, as far as they exist.
fn is_private(dir: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    const OTHERS_WRITE: u32 = 0o022;
    let is_open = |dir: &Path| std::fs::metadata(dir).is_ok_and(|it| it.mode() & OTHERS_WRITE != 0);
    !dir.ancestors().any(is_open)
}

fn write_files(dir: &Path, hooks: &HookConfig, ensemble: &Path) -> Result<()> {
    let io = |source| Error::Io { operation: "create directory", path: dir.to_owned(), source };
    std::fs::create_dir_all(dir).map_err(io)?;
    let path = ensemble.to_string_lossy();
    for (name, content) in &hooks.files {
        let content = hooks.files.keys().fold(content.clone(), |content, other| {
            let place = dir.join(other).to_string_lossy().into_owned();
            filled(&content, &format!("{{{other}}}"), &place)
        });
        let text = file_text(&content, &path, &shell_word(&path));
        durable::write_document(&dir.join(name), text.as_bytes(), Durability::Process)?;
    }
    Ok(())
}

fn fill(text: &str, hooks: &HookConfig, dir: &Path, ensemble: &Path) -> String {
    let path = ensemble.to_string_lossy();
    let mut text = text.replace(PROGRAM, &path).replace(COMMAND, &shell_word(&path));
    for name in hooks.files.keys() {
        text = text.replace(&format!("{{{name}}}"), &dir.join(name).to_string_lossy());
    }
    text
}

/// The place behind the name of the profile's program, if the command begins with it: behind assignments and `exec`.
fn program_end(command: &str, profile: &Profile) -> Option<usize> {
    let program = profile.open_command()?.split_ascii_whitespace().next()?;
    let mut at = 0;
    for word in command.split_ascii_whitespace() {
        let start = at + command[at..].find(word)?;
        at = start + word.len();
        let is_assignment = word
            .split_once('=')
            .is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'));
        if !is_assignment && word != "exec" {
            return (word.rsplit('/').next() == Some(program)).then_some(at);
        }
        // A quoted word may contain blanks.
        if word.contains(['"', '\'', '\\', '$', '`']) {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use ensemble_tmux::provider::Profiles;

    use super::*;

    #[test]
    fn arguments_go_behind_the_program_and_nowhere_else() {
        let profile = Profiles::embedded().unwrap().get("claude").unwrap();
        for (command, before) in [
            ("claude", Some("claude")),
            ("exec claude --model x", Some("exec claude")),
            ("A=1  exec /opt/bin/claude -c; echo claude", Some("A=1  exec /opt/bin/claude")),
            ("claude; echo ended", None),
            ("sh -c claude", None),
            ("A='x y' claude", None),
            ("claude-wrapper", None),
            ("npx claude", None),
            ("", None),
        ] {
            let end = program_end(command, &profile);
            assert_eq!(end.map(|end| &command[..end]), before, "{command}");
        }
    }
}
