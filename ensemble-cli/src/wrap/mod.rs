//! `ensemble claude` and its like: an agent in a person's own terminal, as a member of the team.
//!
//! ```text
//! project found or made -> name -> row, pass -> agent started -> terminal written -> watcher runs
//!      keys, screen, resizes, questions at the socket, until the agent ends
//! row shut down (exited) -> what it held is released, mail stays -> the terminal as it was -> the agent's exit code
//! ```
//!
//! | ends | the agent | the row | the person's terminal |
//! |---|---|---|---|
//! | the agent | – | shut down, exited | as it was |
//! | SIGTERM, SIGHUP, SIGINT to the wrapper | gets the same, and SIGKILL after [`END_PATIENCE`] | shut down, exited | as it was |
//! | SIGKILL to the wrapper | gets SIGHUP from the system, as at a closed window | stays; its process is gone, so its name is free | raw: `reset` |
//! | the agent is stopped | – | stays | as it was, until the wrapper continues |

mod osc;
mod pty;
mod user;

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{io, thread};

use ensemble_app::diagnostics::say;
use ensemble_app::free_names::{find_free_name, is_free};
use ensemble_app::new_queue::ensure_queue;
use ensemble_app::starting;
use ensemble_app::watcher_start::keep_watcher;
use ensemble_core::broker::{Broker as _, UnreadMail};
use ensemble_core::driver::nap;
use ensemble_core::message::Name;
use ensemble_core::spool::Spool;
use ensemble_project::Project;
use ensemble_project::team::{AgentPlan, PreparedLaunch, ProjectTeam};
use ensemble_tmux::terminal::TerminalDoor;
use ensemble_tmux::tmux::Binding;
use pty::{NoTerminal, PtyTerminal};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, waitpid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use signal_hook::iterator::Signals;
use user::UserTerminal;

use crate::context::{Context, Failure, Outcome, VerbExit};

/// How long an agent may take to end after a signal, before it is killed.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// How long the last lines of an agent may take after it ends.
const LAST_LINES: Duration = Duration::from_millis(300);

#[derive(Debug, Default)]
pub(crate) struct WrapOptions {
    pub(crate) name: Option<Name>,
    pub(crate) role: Option<Name>,
    pub(crate) arguments: Vec<String>,
}

/// Runs the agent in the foreground, and ends this process with its exit code.
pub(crate) fn run(context: &Context, provider: &str, wish: WrapOptions) -> Outcome {
    let spool = ensure_queue(context)?;
    let project = context.project()?;
    let identity = context.identity()?;
    if let Some(name) = identity.name.as_ref().filter(|_| identity.is_member()) {
        return Err(Failure::refused(format!("{name} runs here already"))
            .with_hint("start it in its own terminal"));
    }
    let team = starting::open(context, &spool)?;
    let lock = team.lock()?;
    let plan = plan_agent(project, provider, &wish)?;
    if let Some(program) = plan.unknown_program() {
        let text = format!("{program}: command not found");
        let hint = format!("install {program}, or put it on the PATH");
        return Err(Failure::new(VerbExit::MissingProgram, text).with_hint(hint));
    }
    let prepared = team.prepare_wrapped(&plan, &wish.arguments)?;
    let started = start(&team, project, &plan, &prepared);
    drop(lock);
    let code = match started {
        Ok(agent) => agent.see_through(project),
        Err(failure) => {
            team.leave_wrapped(&plan.name, prepared.launch.generation, None)?;
            return Err(failure);
        }
    };
    team.leave_wrapped(&plan.name, prepared.launch.generation, Some(code))?;
    give_back(&spool, &plan);
    context.out.flush()?;
    std::process::exit(code);
}

/// Releases the messages that the agent held; what it has not received stays.
fn give_back(spool: &Spool, plan: &AgentPlan) {
    let reason = format!("{} has ended", plan.name);
    let returned = spool.hand_back(&plan.mailbox, &plan.name, UnreadMail::Keep, &reason);
    if let Err(error) = returned {
        say(&format!("warning: {error}"));
    }
}

struct WrappedAgent {
    child: Child,
    pid: Pid,
    /// Missing where the agent reads a file or a pipe.
    terminal: Option<(Arc<PtyTerminal>, UserTerminal)>,
    door: Arc<TerminalDoor>,
}

fn start(
    team: &ProjectTeam<'_>,
    project: &Project,
    plan: &AgentPlan,
    prepared: &PreparedLaunch,
) -> Outcome<WrappedAgent> {
    let profile = project.profiles()?.get(&plan.provider)?;
    let mut command = Command::new("sh");
    command.args(["-c", &prepared.launch.command]).current_dir(&plan.directory);
    command.envs(prepared.launch.env.iter().map(|(name, value)| (name, value)));
    let door = Arc::new(TerminalDoor::open(&prepared.socket)?);
    let observer = project.sources().observer(Some(&plan.name), Arc::clone(&profile));
    let user = UserTerminal::take_terminal()?;
    let (child, terminal) = match &user {
        None => (command.spawn()?, None),
        Some(_) => {
            let (pty, inner) = pty_process::blocking::open().map_err(io::Error::other)?;
            let size = user::size();
            pty.resize(pty_process::Size::new(size.0, size.1)).map_err(io::Error::other)?;
            let command = pty_process::blocking::Command::from(command);
            let child = command.spawn(inner).map_err(io::Error::other)?;
            (child, Some(Arc::new(PtyTerminal::new(pty, size)?)))
        }
    };
    let binding = Binding::of_terminal(prepared.socket.clone(), child.id());
    let pid = Pid::from_child(&child);
    let (served, opened, place) = (terminal.clone(), Arc::clone(&door), binding.clone());
    thread::spawn(move || match served {
        Some(terminal) => opened.serve(&*terminal, &place, observer),
        None => opened.serve(NoTerminal, &place, observer),
    });
    let agent = WrappedAgent { child, pid, terminal: terminal.zip(user), door };
    if let Err(error) = team.enter_wrapped(&plan.name, prepared.launch.generation, binding) {
        let _ = kill_process_group(pid, Signal::KILL);
        return Err(error.into());
    }
    Ok(agent)
}

impl WrappedAgent {
    /// Passes everything on until the agent ends; its exit code.
    fn see_through(mut self, project: &Project) -> i32 {
        let screen = self.terminal.as_ref().map(|(terminal, _)| {
            let (keys, screen) = (Arc::clone(terminal), Arc::clone(terminal));
            thread::spawn(move || keys.copy_keys(io::stdin()));
            thread::spawn(move || screen.copy_screen())
        });
        if let Err(failure) = self.follow_signals() {
            say(&format!("warning: {}", failure.text()));
        }
        let watched = project.clone();
        thread::spawn(move || keep_watcher(&watched));
        let code = self.wait();
        self.door.close();
        let Some((terminal, user)) = self.terminal.take() else { return code };
        terminal.end(Some(code));
        let began = Instant::now();
        while screen.as_ref().is_some_and(|it| !it.is_finished()) && began.elapsed() < LAST_LINES {
            nap(Duration::from_millis(5));
        }
        terminal.with_modes(user::undo_modes);
        drop(user);
        code
    }

    fn follow_signals(&self) -> Outcome {
        let mut signals = Signals::new([SIGWINCH, SIGTERM, SIGHUP, SIGINT])?;
        let (pid, terminal) = (self.pid, self.terminal.as_ref().map(|(it, _)| Arc::clone(it)));
        thread::spawn(move || {
            // The window may have changed before its signal was waited for.
            for signal in [SIGWINCH].into_iter().chain(signals.forever()) {
                match (signal, &terminal) {
                    (SIGWINCH, Some(terminal)) => terminal.resize(user::size()),
                    (SIGWINCH, None) => {}
                    // Where the terminal is shared, the agent has got it already.
                    (SIGINT, None) => {}
                    (signal, _) => end(pid, signal),
                }
            }
        });
        Ok(())
    }

    /// Waits for the end of the agent. While it is stopped, so is this process.
    fn wait(&mut self) -> i32 {
        loop {
            match waitpid(Some(self.pid), WaitOptions::UNTRACED) {
                Ok(Some((_, status))) if status.stopped() => self.stop(),
                Ok(Some((_, status))) => {
                    return code_of(ExitStatus::from_raw(status.as_raw()));
                }
                Err(rustix::io::Errno::INTR) | Ok(None) => {}
                Err(_) => {
                    let status = self.child.wait();
                    return status.map_or(1, code_of);
                }
            }
        }
    }

    /// Stops as the agent has stopped, with the person's terminal as it was, until a shell lets both continue.
    fn stop(&self) {
        let Some((terminal, user)) = &self.terminal else { return };
        user.restore();
        let _ = kill_process(rustix::process::getpid(), Signal::STOP);
        let _ = user.make_raw();
        terminal.resize(user::size());
        let _ = kill_process_group(self.pid, Signal::CONT);
    }
}

/// Passes a signal on, and kills what does not heed it.
fn end(pid: Pid, signal: i32) {
    let signal = match signal {
        SIGHUP => Signal::HUP,
        SIGINT => Signal::INT,
        _ => Signal::TERM,
    };
    let _ = kill_process_group(pid, signal).or_else(|_| kill_process(pid, signal));
    thread::spawn(move || {
        nap(END_PATIENCE);
        let _ = kill_process_group(pid, Signal::KILL).or_else(|_| kill_process(pid, Signal::KILL));
    });
}

fn code_of(status: ExitStatus) -> i32 {
    const BY_SIGNAL: i32 = 128;
    status.code().or_else(|| status.signal().map(|signal| BY_SIGNAL + signal)).unwrap_or(1)
}

fn plan_agent(project: &Project, provider: &str, wish: &WrapOptions) -> Outcome<AgentPlan> {
    let name = match &wish.name {
        Some(name) => check_free(project, name)?,
        None => find_free_name(project, provider)?,
    };
    let mut agent = project.config.agents.get(&name).cloned().unwrap_or_default();
    let profiles = project.profiles()?;
    // Another program is not started by the command of the one that is configured.
    if agent.provider.as_deref() != Some(provider) {
        agent.command = None;
    }
    if agent.command.is_none() {
        let usual = profiles.get(provider)?.open_command().map(str::to_owned);
        agent.command = usual.map(|usual| without_repeated(&usual, &wish.arguments));
    }
    agent.provider = Some(provider.to_owned());
    agent.role = wish.role.clone().or(agent.role);
    agent.pane = None;
    // Without a configured one, it starts where the person is.
    agent.directory = match agent.directory {
        Some(directory) => Some(directory),
        None => Some(std::env::current_dir()?),
    };
    Ok(AgentPlan::configured(project, &profiles, &name, &agent)?)
}

/// The profile's command without the flags that the person gives as well: programs refuse a flag that comes twice.
fn without_repeated(command: &str, said: &[String]) -> String {
    let is_repeated = |word: &&str| word.starts_with('-') && said.iter().any(|it| it == word);
    let words: Vec<&str> = command.split(' ').filter(|word| !is_repeated(word)).collect();
    words.join(" ")
}

fn check_free(project: &Project, name: &Name) -> Outcome<Name> {
    match project.roster().get(name)? {
        Some(member) if !is_free(&member) => Err(Failure::refused(format!("{name} is up already"))
            .with_hint("take another name; `ensemble team` shows all")),
        _ => Ok(name.clone()),
    }
}
