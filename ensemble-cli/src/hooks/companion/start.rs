use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use ensemble_app::agent_program::AgentProgram;
use ensemble_project::team::socket_at;
use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};

use super::Companion;
use super::post::{CompanionPost, START_PATIENCE, TRY_INTERVAL};
use super::server::AppServer;
use crate::context::{Context, Failure, Outcome, VerbExit};
use crate::hooks::waiter;

/// How long a server has ended before it is started again. Each further try doubles it, up to the maximum, until a
/// server has run for longer than that.
const RESTART_PAUSE: Duration = Duration::from_millis(500);
const RESTART_PAUSE_MAX: Duration = Duration::from_secs(30);
const READY: &str = "ready";
const AWAITS_TRUST: &str = "awaits trust";
/// Options by which the person has said what the program may do, or that it works elsewhere.
pub(super) const DECIDING: [&str; 6] =
    ["-s", "--sandbox", "-a", "--ask-for-approval", "-C", "--cd"];
/// Options that the server must have as well as the program, each with a word behind it.
const SHARED_OPTIONS: [&str; 4] = ["-c", "--config", "--enable", "--disable"];
/// Other options with a word behind them that were seen to work at a server.
const VALUED_OPTIONS: [&str; 8] =
    ["-m", "--model", "-s", "--sandbox", "-a", "--ask-for-approval", "-C", "--cd"];
/// Options without a word behind them that were seen to work at a server, or belong to a conversation.
const FLAGS: [&str; 8] = [
    WITHOUT_SERVER,
    "--all",
    "--approve-for-me",
    "--dangerously-bypass-approvals-and-sandbox",
    "--last",
    "--no-alt-screen",
    "--search",
    "--strict-config",
];
const WITHOUT_SERVER: &str = "--no-daemon";
/// The subcommands that open a conversation as the program alone does.
const CONVERSATIONS: [&str; 2] = ["resume", "fork"];

/// Becomes the program, at a private server if one can be had.
pub(crate) fn serve(context: &Context, words: &[OsString]) -> Failure {
    let Some((program, said)) = words.split_first() else {
        return Failure::usage("give the program behind `--`");
    };
    let mut command = Command::new(program);
    match start_companion(context, words) {
        Ok(Some(socket)) => {
            let said = said.iter().filter(|word| *word != WITHOUT_SERVER);
            command.arg("--remote").arg(address(&socket)).args(said);
        }
        Ok(None) => drop(command.args(said)),
        Err(failure) => {
            crate::hooks::record_failure(context, "serve", AgentProgram::Codex.word(), &failure);
            command.args(said);
        }
    }
    let error = command.exec();
    Failure::new(VerbExit::MissingProgram, format!("{}: {error}", program.display()))
}

/// Starts server and companion, and returns the socket of the server; `None` where there is to be none.
fn start_companion(context: &Context, words: &[OsString]) -> Outcome<Option<PathBuf>> {
    let project = context.project()?;
    let Some(agent) = context.agent()? else { return Ok(None) };
    if !can_be_served(&words[1..]) || project.is_shared()? {
        return Ok(None);
    }
    let socket = socket_at(project, &format!("{agent}.app-server"))?;
    // This process becomes the agent.
    let post = CompanionPost::new(std::process::id(), socket.clone(), words.to_vec())?;
    let mut host = post.start_server()?;
    let mut companion = post.command("accompany")?.stdout(Stdio::piped()).spawn()?;
    let lines = companion.stdout.take().map(BufReader::new);
    let (sender, said) = mpsc::channel();
    thread::spawn(move || {
        let line = lines.and_then(|lines| lines.lines().next()?.ok());
        let _ = sender.send(line);
    });
    let until = Instant::now() + START_PATIENCE;
    let outcome = loop {
        match said.recv_timeout(TRY_INTERVAL) {
            Ok(Some(line)) if line == READY => return Ok(Some(socket)),
            Ok(Some(line)) if line == AWAITS_TRUST => break Ok(None),
            Err(RecvTimeoutError::Timeout)
                if Instant::now() < until && host.try_wait()?.is_none() => {}
            _ => break Err(Failure::refused("the program has no server that could be reached")),
        }
    };
    for child in [&mut companion, &mut host] {
        let _ = kill_process(Pid::from_child(child), Signal::TERM);
        let _ = child.wait();
    }
    outcome
}

/// A process that ends with the agent, and gets none of the signals of its terminal.
pub(in crate::hooks) fn part(event: &str, provider: &str) -> Outcome<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["hook", event, "--provider", provider, "--"]);
    command.stdin(Stdio::null()).stderr(Stdio::null()).process_group(0);
    Ok(command)
}

pub(crate) fn accompany(context: &Context, program: AgentProgram, words: &[OsString]) -> Outcome {
    let post = CompanionPost::parse(words)?;
    end_with_parent()?;
    let mut server = post.connect()?;
    let awaits_trust = !post.is_decided() && server.awaits_trust(&std::env::current_dir()?);
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{}", if awaits_trust { AWAITS_TRUST } else { READY })?;
    stdout.flush()?;
    drop(stdout);
    let Some(agent) = context.agent()?.filter(|_| !awaits_trust) else { return Ok(()) };
    let _lock = context.project()?.sessions().become_waiter(&agent, waiter::TAKE_OVER)?;
    follow_agent(context, program, post, Some(server))
}

/// Follows an agent once the companion before this one has ended.
pub(crate) fn relieve(context: &Context, program: AgentProgram, words: &[OsString]) -> Outcome {
    let post = CompanionPost::parse(words)?;
    let Some(agent) = context.agent()? else { return Ok(()) };
    match post.await_turn(&context.project()?.sessions(), &agent)? {
        Some(_lock) => follow_agent(context, program, post, None),
        None => Ok(()),
    }
}

fn follow_agent(
    context: &Context,
    program: AgentProgram,
    mut post: CompanionPost,
    mut server: Option<AppServer>,
) -> Outcome {
    let mut pause = RESTART_PAUSE;
    loop {
        post.keep_relief();
        let began = Instant::now();
        let reached = server.take().map_or_else(|| post.reach_server(), Ok);
        let ended = match reached {
            Ok(server) => Companion::new(context, program, server, &mut post).run(),
            Err(failure) => Err(failure),
        };
        if began.elapsed() > RESTART_PAUSE_MAX {
            pause = RESTART_PAUSE;
        }
        // A server that ends with its agent is not a failure.
        if post.agent_ends_within(pause) {
            return Ok(());
        }
        if let Err(failure) = ended {
            crate::hooks::record_failure(context, "accompany", program.word(), &failure);
        }
        pause = (pause * 2).min(RESTART_PAUSE_MAX);
    }
}

pub(crate) fn host(words: &[OsString]) -> Failure {
    let Some((program, said)) = words.split_first() else {
        return Failure::usage("give the program behind `--`");
    };
    if let Err(failure) = end_with_parent() {
        return failure;
    }
    let error = Command::new(program).args(said).exec();
    Failure::new(VerbExit::MissingProgram, format!("{}: {error}", program.display()))
}

fn end_with_parent() -> Outcome {
    let parent = getppid();
    set_parent_process_death_signal(Some(Signal::TERM)).map_err(std::io::Error::from)?;
    // It may have ended before.
    match getppid() == parent && parent.is_some_and(|parent| !parent.is_init()) {
        true => Ok(()),
        false => Err(Failure::refused("the process that has started this one has ended")),
    }
}

pub(super) fn address(socket: &Path) -> OsString {
    let mut address = OsString::from("unix://");
    address.push(socket);
    address
}

/// Whether the program is started for a conversation that a server can have. It ends at an option that it does not
/// take there (`--add-dir`, `--worktree`), and then nothing can be tried instead: what is not known is not risked.
fn can_be_served(said: &[OsString]) -> bool {
    let mut words = said.iter().map(|word| word.to_str().unwrap_or("-"));
    let mut is_named = false;
    while let Some(word) = words.next() {
        let takes_word =
            |option: &str| SHARED_OPTIONS.contains(&option) || VALUED_OPTIONS.contains(&option);
        match word.split_once('=') {
            _ if takes_word(word) => drop(words.next()),
            Some((option, _)) if option.starts_with("--") && takes_word(option) => {}
            _ if word.starts_with('-') => {
                if !FLAGS.contains(&word) {
                    return false;
                }
            }
            // A prompt has blanks. A word alone may be another command.
            _ if is_named || CONVERSATIONS.contains(&word) => is_named = true,
            _ if word.contains(char::is_whitespace) => is_named = true,
            _ => return false,
        }
    }
    true
}

pub(super) fn shared(said: &[OsString]) -> Vec<OsString> {
    let mut options = Vec::new();
    let mut words = said.iter();
    while let Some(word) = words.next() {
        let text = word.to_str().unwrap_or_default();
        if SHARED_OPTIONS.contains(&text) {
            options.push(word.clone());
            options.extend(words.next().cloned());
        } else if SHARED_OPTIONS.iter().any(|it| text.starts_with(&format!("{it}="))) {
            options.push(word.clone());
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split('|').map(OsString::from).collect()
    }

    #[test]
    fn only_a_conversation_with_options_that_are_known_gets_a_server() {
        for line in [
            "--no-daemon",
            "-c|a=b|--no-daemon",
            "fix the bug",
            "resume|--last",
            "resume|0199-a",
            "--model|m|--no-daemon",
            "--model=m|fix a=b",
            "-m|m|-s|read-only|fix it",
        ] {
            assert!(can_be_served(&words(line)), "{line}");
        }
        for line in [
            "exec|fix it",
            "-c|a=b|login",
            "mcp",
            "--remote|unix:///x",
            "--search|exec",
            "fix it|--add-dir|/tmp",
            "--worktree",
            "-p|work",
            "--later=option",
        ] {
            assert!(!can_be_served(&words(line)), "{line}");
        }
        assert!(can_be_served(&[]));
    }

    #[test]
    fn the_server_has_the_options_that_configure() {
        let said = words("-c|a=b|--no-daemon|--model|m|--enable|x|--config=c=d|a prompt");
        assert_eq!(shared(&said), words("-c|a=b|--enable|x|--config=c=d"));
    }
}
