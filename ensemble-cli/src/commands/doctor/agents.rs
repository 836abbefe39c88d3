//! Checks agents' programs: whether they are installed, their versions, and how mail reaches them.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ensemble_app::agent_program::{PROGRAMS, find_on_path};
use ensemble_app::hook_files::hooks_in_place;
use ensemble_app::text::one_line;
use ensemble_project::team::{AgentPlan, GivenWays, given_ways};
use ensemble_tmux::provider::Profiles;

use super::{DoctorCheck, trust};
use crate::context::Context;

const VERSION_PATIENCE: Duration = Duration::from_secs(5);
/// Words of a shell that begin a command but are not a program.
const BUILTINS: [&str; 6] = ["exec", "env", "cd", "export", "if", "while"];

pub(super) fn programs(context: &Context) -> Vec<DoctorCheck> {
    let found: Vec<(String, PathBuf)> = known_programs(context)
        .into_iter()
        .filter_map(|word| find_on_path(&word).map(|path| (word, path)))
        .collect();
    if found.is_empty() {
        let text = "none of claude, codex, opencode and gemini is on PATH";
        let remedy = "install one, or name your own program: `agents: {NAME: {command: …}}` in ensemble.yaml";
        return vec![DoctorCheck::warn("agents", text, remedy)];
    }
    // Some take a second to say their version.
    let versions: Vec<_> = found
        .iter()
        .map(|(_, path)| path.clone())
        .map(|path| thread::spawn(|| version(path)))
        .collect();
    let versions = versions.into_iter().map(|asked| asked.join().ok().flatten());
    found
        .iter()
        .zip(versions)
        .flat_map(|((word, _), version)| one(context, word, version))
        .collect()
}

/// The programs that profiles are called after: first those that have hooks, then the others.
fn known_programs(context: &Context) -> Vec<String> {
    let mut words: Vec<String> = PROGRAMS.map(|program| program.word().to_owned()).to_vec();
    let profiles = context.project().and_then(|it| Ok(it.profiles()?));
    let Ok(profiles) = profiles.or_else(|_| Profiles::embedded()) else { return words };
    let opens = |name: &str| {
        profiles.get(name).is_ok_and(|it| it.open_command().is_some_and(|it| it.starts_with(name)))
    };
    let others: Vec<&str> = profiles.names().filter(|name| opens(name)).collect();
    for name in others {
        if !words.iter().any(|word| word == name) {
            words.push(name.to_owned());
        }
    }
    words
}

fn one(context: &Context, word: &str, version: Option<String>) -> Vec<DoctorCheck> {
    let Some(version) = version else {
        let seconds = VERSION_PATIENCE.as_secs();
        let text = format!("{word} is on PATH, but has said no version within {seconds} s");
        let remedy = format!("see whether `{word} --version` works");
        return vec![DoctorCheck::warn("agents", text, remedy)];
    };
    let version = match version.to_lowercase().contains(word) {
        true => version,
        false => format!("{word} {version}"),
    };
    let mut checks = vec![known_version(context, word, version)];
    let Some(program) = PROGRAMS.into_iter().find(|program| program.word() == word) else {
        return checks;
    };
    let places = hooks_in_place(context, program);
    checks.push(hooks(word, given(context, word), &places));
    let is_used = !places.is_empty() || is_configured(context, word);
    if let (true, Ok(project)) = (is_used, context.project()) {
        checks.extend(trust::check(program, project.root(), !places.is_empty()));
    }
    checks
}

/// A version, with a note if its profile was not tried with it yet.
fn known_version(context: &Context, word: &str, version: String) -> DoctorCheck {
    let profile = context.project().ok().and_then(|it| it.profiles().ok()?.get(word).ok());
    let newer = profile.filter(|profile| profile.is_older_than(&version) == Some(true));
    let Some(seen) = newer.as_ref().and_then(|profile| profile.seen_version()) else {
        return DoctorCheck::ok("agents", version);
    };
    let text = format!("{version}, newer than the tried {seen}");
    let remedy = "`ensemble agent inspect NAME` shows how its screen is read".to_owned();
    DoctorCheck { remedy: Some(remedy), ..DoctorCheck::ok("agents", text) }
}

fn hooks(word: &str, given: GivenWays, places: &[&str]) -> DoctorCheck {
    let by_us = match given {
        GivenWays::Hooks => "hooks and tools",
        GivenWays::Server => "a server and tools",
        GivenWays::Tools => "tools only",
        GivenWays::Nothing => "neither hooks nor tools",
    };
    let text = |own: &str| format!("{word}: {by_us}; own sessions: {own}");
    match places {
        [] => DoctorCheck {
            remedy: Some(format!("`ensemble admin hooks install --provider {word}`")),
            ..DoctorCheck::ok("hooks", text("none"))
        },
        [place] => DoctorCheck::ok("hooks", text(&format!("those of the {place}"))),
        _ => DoctorCheck::warn(
            "hooks",
            format!("own sessions of {word} have them twice: each hint comes twice"),
            format!("`ensemble admin hooks uninstall --provider {word} --user`"),
        ),
    }
}

/// The hooks and tools that `ensemble PROGRAM` and `up` pass to the program; outside of a project, what they would by
/// default.
fn given(context: &Context, word: &str) -> GivenWays {
    let given = context.project().ok().and_then(|project| {
        let profile = project.profiles().ok()?.get(word).ok()?;
        Some(given_ways(project, &profile))
    });
    given.unwrap_or(GivenWays::Nothing)
}

fn is_configured(context: &Context, word: &str) -> bool {
    context.project().is_ok_and(|project| {
        project.config.agents.values().any(|agent| agent.provider.as_deref() == Some(word))
    })
}

pub(super) fn configured(context: &Context) -> Vec<DoctorCheck> {
    let Ok(project) = context.project() else { return Vec::new() };
    let Ok(profiles) = project.profiles() else { return Vec::new() };
    let plans = project
        .config
        .agents
        .iter()
        .map(|(name, agent)| AgentPlan::configured(project, &profiles, name, agent));
    let missing = |plan: &AgentPlan| {
        let command = plan.command.as_deref()?;
        let program = command.split_whitespace().next().filter(|word| is_plain(word))?;
        let is_there = match program.contains('/') {
            true => plan.directory.join(program).exists(),
            false => find_on_path(program).is_some(),
        };
        (!is_there).then(|| program.to_owned())
    };
    plans
        .filter_map(|plan| match plan {
            Err(error) => {
                Some(DoctorCheck::fail("agents", error.to_string(), "correct ensemble.yaml"))
            }
            Ok(plan) => missing(&plan).map(|program| {
                let text = format!("{}: `{}` is not on PATH", plan.name, one_line(&program));
                let remedy = "install it, or change its `command` in ensemble.yaml";
                DoctorCheck::fail("agents", text, remedy)
            }),
        })
        .collect()
}

/// Whether a word of a command is certainly the name of a program.
fn is_plain(word: &str) -> bool {
    let is_usual = |c: char| c.is_ascii_alphanumeric() || "._-/+".contains(c);
    word.chars().all(is_usual) && !BUILTINS.contains(&word)
}

/// The first line that a program says of its version; `None` if it does not in time.
fn version(program: PathBuf) -> Option<String> {
    let mut asked = Command::new(program);
    asked.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let child = asked.spawn().ok()?;
    let pid = rustix::process::Pid::from_child(&child);
    let (said, heard) = mpsc::channel();
    let waiting = thread::spawn(move || {
        // The receiver is gone if the program took too long.
        let _ = said.send(child.wait_with_output());
    });
    let output = heard.recv_timeout(VERSION_PATIENCE);
    if output.is_err() {
        // It may have ended just now.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    let _ = waiting.join();
    let text = String::from_utf8(output.ok()?.ok()?.stdout).ok()?;
    text.lines().find(|line| !line.trim().is_empty()).map(|line| line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_certain_names_of_programs_are_looked_for() {
        assert!(is_plain("claude") && is_plain("./run.sh") && is_plain("/usr/bin/python3.12"));
        for word in ["exec", "FOO=1", "$SHELL", "\"my", "(cd"] {
            assert!(!is_plain(word), "{word}");
        }
    }

    #[test]
    fn a_program_says_its_version_or_nothing() {
        assert!(version(find_on_path("git").unwrap()).unwrap().starts_with("git version"));
        assert_eq!(version(PathBuf::from("/nowhere/at-all")), None);
    }
}
