use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ensemble_app::authority::authorize;
use ensemble_app::departing::{DepartureAsk, present_members};
use ensemble_app::queue::ProjectQueue;
use ensemble_app::starting;
use ensemble_core::broker::UnreadMail;
use ensemble_core::durable::{Dir, FileLock};
use ensemble_core::event_log::types;
use ensemble_core::proto::request::AtExpiry;
use ensemble_core::{Error, allow_missing};
use ensemble_project::Project;
use ensemble_project::team::{ProjectTeam, session_of};
use ensemble_team::authority::AuthorityAct;
use ensemble_team::roster::Member;
use ensemble_tmux::reaper::PASS_VARIABLE;
use ensemble_tmux::tmux::{PaneSigns, TeamSession};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::args;
use crate::context::{Context, Failure, Outcome};
use crate::printing::print_fates;
use crate::stand_in::start_watcher;

const REASON: &str = "The team is going down. Please shut down gracefully.";
const WATCHER_PATIENCE: Duration = Duration::from_secs(20);
/// Where a run continues that was begun in a pane which it must close.
const LOG_FILE: &str = "down.log";

/// Stop the team: agents, watcher and session
///
/// Asks each agent to shut down: workers first, Dispatch next, the Conductor last. An agent that
/// agrees finishes its work. An agent that has not answered by the deadline is ended. An agent that
/// rejects stays, and so do the agents it needs. No process, pane or socket is left of the others. Panes that existed
/// before, and their session, stay.
/// Unread mail is kept, and `ensemble up` brings the same team back to it. An agent needs authority for
/// it: `authority` in ensemble.yaml.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble down
  ensemble down --force --reason 'the machine restarts'")]
pub(crate) struct Arguments {
    /// Reason that the agents are shown
    #[arg(long, value_name = "TEXT", default_value = REASON)]
    reason: String,
    /// How long they have to answer, all together [default: as configured, 2m each]
    #[arg(long, value_name = "DURATION", value_parser = args::duration)]
    deadline: Option<Duration>,
    /// End all agents at once without asking, and close what else runs in the session
    #[arg(long, conflicts_with = "deadline")]
    force: bool,
    /// Continue a run that began in one of the team's panes, once that has exited
    #[arg(long, hide = true)]
    detached: bool,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        authorize(context, AuthorityAct::Down)?;
        if self.detached {
            leave_the_pane();
        } else if context.identity()?.is_member() {
            return self.go_on_elsewhere(context);
        }
        let project = context.project()?;
        let spool = context.spool()?;
        let from = context.actor()?;
        let farewell = DepartureAsk {
            app: context,
            from: from.clone(),
            reason: self.reason.clone(),
            deadline: if self.force { Some(Duration::ZERO) } else { self.deadline },
            on_silence: Some(AtExpiry::Force),
            unread: Some(UnreadMail::Keep),
            ends_unrecorded: self.force,
            id: None,
        };
        let mut asked = BTreeSet::new();
        let (team, _alone) = loop {
            let mut members = present_members(project)?;
            // Those who stay were asked before.
            members.retain(|member| !asked.contains(&(member.name.clone(), member.generation)));
            let fates = farewell.drain(&ProjectQueue::open(context)?, &members, start_watcher)?;
            print_fates(context, &fates)?;
            asked.extend(members.into_iter().map(|member| (member.name, member.generation)));
            let team = starting::open_running(context, &spool)?;
            let lock = team.lock()?;
            // One that was started in the meantime is asked as well.
            let mut present = project.roster().entries()?.0.into_iter().filter(Member::is_present);
            if present.all(|member| asked.contains(&(member.name, member.generation))) {
                break (team, lock);
            }
        };
        let session = team.session()?;
        let is_watched = FileLock::is_held(&project.watch_lock())?;
        let watcher = if is_watched { "stopped" } else { "was not running" };
        let was = self.close_session(project, &team, session.as_ref())?;
        let session = session.map_or_else(|| session_of(project), |session| session.name);
        context.recorder()?.record(types::TEAM_DOWN, from.as_str(), json!({ "session": session }));
        let answer = json!({
            "session": session, "session_state": was.word(), "watcher_state": watcher,
        });
        context
            .out
            .print_answer(&answer, format!("session {session} {}, watcher {watcher}", was.word()))
    }

    /// Stops the watcher and closes all that the team has opened, wherever it was moved to. A session that the team
    /// has started is closed with it, unless a person works there. All other sessions and panes are a person's, and
    /// stay.
    fn close_session(
        &self,
        project: &Project,
        team: &ProjectTeam<'_>,
        session: Option<&TeamSession>,
    ) -> Outcome<SessionEnd> {
        let server = team.server();
        let ours = session.filter(|session| session.is_started_by_team);
        let is_in = |pane: &PaneSigns| ours.is_some_and(|session| pane.session == session.id);
        let opened = team.panes()?;
        let is_foreign = |pane: &PaneSigns| {
            !pane.dead && is_in(pane) && opened.iter().all(|opened| opened.id != pane.id)
        };
        let all = server.all_pane_signs()?;
        let others: Vec<&str> =
            all.iter().filter(|pane| is_foreign(pane)).map(|pane| pane.id.as_str()).collect();
        if !others.is_empty() && !self.force {
            let text = format!("the team has left, but something runs in {}", others.join(", "));
            return Err(Failure::refused(text)
                .with_hint("end it, or close it along with the session: `ensemble down --force`"));
        }
        stop_watcher(project)?;
        if session.is_none() && opened.is_empty() {
            return Ok(SessionEnd::NotRunning);
        }
        // A window that another session shows as well outlives its first session.
        let elsewhere = opened.iter().filter(|pane| !is_in(pane));
        for id in elsewhere.map(|pane| pane.id.as_str()).collect::<BTreeSet<_>>() {
            server.kill_pane(id)?;
        }
        let left = server.all_pane_signs()?;
        if left.iter().all(is_in) {
            server.kill_server()?;
            remove_socket(server.socket())?;
        } else if let Some(session) =
            ours.filter(|ours| left.iter().any(|it| it.session == ours.id))
        {
            server.kill_team_session(session)?;
        }
        Ok(match session {
            Some(session) if !session.is_started_by_team => SessionEnd::Left,
            Some(_) | None => SessionEnd::Closed,
        })
    }

    /// Continues in a detached process, because this one was started by an agent of the team and would kill itself.
    fn go_on_elsewhere(self, context: &Context) -> Outcome {
        let project = context.project()?;
        let path = project.state.join(LOG_FILE);
        let io = |operation, source| Error::Io { operation, path: path.clone(), source };
        let log = Dir::open(&project.state)?.begin_file(LOG_FILE)?;
        let err = log.try_clone().map_err(|e| io("create", e))?;
        let program = std::env::current_exe().map_err(|e| io("find this program for", e))?;
        let mut command = Command::new(program);
        command.arg("--queue").arg(&project.queue).args(["down", "--detached"]);
        command.args(["--reason", &self.reason]);
        if self.force {
            command.arg("--force");
        }
        if let Some(deadline) = self.deadline {
            command.args(["--deadline", &format!("{}", deadline.as_secs_f64())]);
        }
        for variable in [PASS_VARIABLE, "ENSEMBLE_AGENT_ID", "LIZA_AGENT_ID"] {
            command.env_remove(variable);
        }
        // It begins when its standard input is closed, which is when this process exits.
        command.stdin(Stdio::piped()).stdout(log).stderr(err);
        let child = command.spawn().map_err(|e| io("start a process that writes to", e))?;
        let text = format!("the team is shutting down; {} shows the progress", path.display());
        let told = context.out.print_answer(&json!({ "going_down": true, "log": path }), text);
        context.out.flush()?;
        // The pipe must stay open until this process exits.
        std::mem::forget(child);
        told
    }
}

#[derive(Clone, Copy)]
enum SessionEnd {
    Closed,
    NotRunning,
    /// It existed before the team, and its panes stay.
    Left,
}

impl SessionEnd {
    const fn word(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::NotRunning => "was not running",
            Self::Left => "stays with its own panes",
        }
    }
}

/// Waits until the command that started this has ended, and leaves its session.
fn leave_the_pane() {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    // Fails only if a person has started this by hand as the leader of a process group.
    let _ = rustix::process::setsid();
}

fn stop_watcher(project: &Project) -> Outcome {
    let lock = project.watch_lock();
    if !lock.exists() {
        return Ok(());
    }
    let deadline = Instant::now() + WATCHER_PATIENCE;
    loop {
        // Shared: a starting watcher waits for processes that only look.
        match FileLock::acquire_shared(&lock, Duration::from_millis(100)) {
            Ok(_) => return Ok(()),
            Err(Error::Locked { .. }) if Instant::now() < deadline => {
                // The kernel says who it is: a file might name a process that is another by now.
                let pid = FileLock::holder(&lock).and_then(|pid| i32::try_from(pid).ok());
                if let Some(pid) = pid.and_then(Pid::from_raw) {
                    let _ = kill_process(pid, Signal::TERM);
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn remove_socket(socket: &Path) -> Outcome {
    let removed = std::fs::remove_file(socket).map_err(|error| Error::io("remove", socket, error));
    allow_missing(removed)?;
    Ok(())
}
