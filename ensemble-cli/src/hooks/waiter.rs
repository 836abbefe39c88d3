//! The waiter of an idle session: it sleeps until mail lands, and wakes the agent by ending.
//!
//! | it ends | exit code | because |
//! |---|---|---|
//! | with a message on stderr | 2 | mail landed while the session was idle, or it was pinged |
//! | silently | 0 | another waiter of the session lives |
//! | silently | 0 | the session has ended, another one has begun, or the agent's process is gone |
//!
//! Claude Code starts it at each session start and at each end of a turn. It takes exit code 2 of
//! such a hook (`asyncRewake`) as a reason to begin a turn. While a turn runs, the waiter sleeps
//! on: what lands then comes after the next tool. A turn that is interrupted, also at a dialog, ends
//! without a hook, so the session file of the program itself is asked, too. It holds the lock by
//! which the watcher knows that no keystrokes are needed.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use ensemble_app::exit_code::VerbExit;
use ensemble_app::failure::Outcome;
use ensemble_app::queue::ProjectQueue;
use ensemble_core::driver::PongBox;
use ensemble_core::message::Name;
use ensemble_core::watch::{FsWatcher, Waiter};
use ensemble_project::Project;
use ensemble_tmux::provider::machine::SourcePlaces;
use ensemble_tmux::provider::process;
use ensemble_tmux::session::{Activity, AgentSession, DeliveryWay};

use super::{Hook, carry, ping};

/// How long a new waiter waits for the one before it, which ends when it sees that its session has ended.
pub(super) const TAKE_OVER: Duration = Duration::from_secs(5);
/// How long the hook that begins a session may take to note it.
const GRACE: Duration = Duration::from_secs(3);
/// How often to look whether the agent lives, whether its turn was interrupted, and for messages whose time has come.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_secs(2);

pub(super) fn wait(hook: &Hook<'_>) -> Outcome<VerbExit> {
    let Some(queue) = hook.queue()? else { return Ok(VerbExit::Done) };
    if queue.directory().is_none() {
        return Ok(VerbExit::Done);
    }
    let Ok(_lock) = hook.sessions.become_waiter(&hook.agent, TAKE_OVER) else {
        return Ok(VerbExit::Done);
    };
    let places = places(hook.context.project()?, &hook.mailbox)?;
    let dirs: Vec<_> = places.into_iter().chain([hook.sessions.dir().to_owned()]).collect();
    let (waiter, began) = (Waiter::new(&dirs), Instant::now());
    let mut was_noted = false;
    loop {
        let session = hook.sessions.get(&hook.agent).ok().flatten();
        was_noted |= session.as_ref().is_some_and(|it| it.id == hook.input.session_id);
        let is_noted = was_noted || began.elapsed() > GRACE;
        if is_over(hook, session.as_ref(), is_noted) {
            return Ok(VerbExit::Done);
        }
        let is_idle = session.as_ref().is_some_and(|session| is_idle(hook, session));
        if is_idle && (pass_ping(hook)? || wake(hook, &queue)?) {
            return Ok(VerbExit::Usage);
        }
        waiter.wait(LOOK_INTERVAL);
    }
}

fn places(project: &Project, mailbox: &Name) -> Outcome<[PathBuf; 3]> {
    let (place, ready) = (project.queue.join("mailbox").join(mailbox.as_str()), project.ready());
    // One that does not exist yet could not be watched.
    PongBox::open(&ready)?;
    Ok([place.join("new"), place.join("front"), ready])
}

/// A watcher of these places; `None` if they cannot be watched.
pub(super) fn watch_places(project: &Project, mailbox: &Name) -> Outcome<Option<FsWatcher>> {
    let places = places(project, mailbox)?;
    let mut watcher = FsWatcher::new().ok();
    let all = watcher.as_mut().map(|watcher| places.iter().all(|dir| watcher.watch(dir).is_ok()));
    Ok(watcher.filter(|_| all == Some(true)))
}

/// Whether the session for which this waits has ended. Before the hook that begins it has noted it, the file still
/// speaks of the session before.
fn is_over(hook: &Hook<'_>, session: Option<&AgentSession>, is_noted: bool) -> bool {
    let is_gone = |(pid, started)| !process::is_running(pid, Some(started));
    if hook.process.is_some_and(is_gone) {
        return true;
    }
    let Some(session) = session else { return false };
    let is_other = session.id != hook.input.session_id || session.activity == Activity::Ended;
    is_other && is_noted
}

fn is_idle(hook: &Hook<'_>, session: &AgentSession) -> bool {
    if session.id != hook.input.session_id {
        return false;
    }
    match session.activity {
        Activity::Idle => true,
        Activity::Working | Activity::Blocked => hook.process.is_some_and(|(pid, _)| rests(pid)),
        Activity::Limited | Activity::Failed | Activity::Ended => false,
    }
}

fn rests(pid: u32) -> bool {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    home.is_some_and(|home| SourcePlaces::in_home(home.as_ref()).claude_rests(pid))
}

pub(super) fn pass_ping(hook: &Hook<'_>) -> Outcome<bool> {
    let session = hook.sessions.get(&hook.agent).ok().flatten();
    if ping::AwaitedPing::untold(hook, session.as_ref()).is_none() {
        return Ok(false);
    }
    let mut locked = hook.sessions.lock(&hook.agent)?;
    let asked = ping::AwaitedPing::untold(hook, Some(&locked.session));
    // A turn may have begun in the meantime.
    let Some(asked) = asked.filter(|_| is_idle(hook, &locked.session)) else { return Ok(false) };
    hook.voice.say(hook, &asked.text(), "")?;
    asked.mark_told(&mut locked.session);
    locked.write()?;
    Ok(true)
}

pub(super) fn wake(hook: &Hook<'_>, queue: &ProjectQueue) -> Outcome<bool> {
    if carry::due(queue, hook)?.is_empty() {
        return Ok(false);
    }
    let mut locked = hook.sessions.lock(&hook.agent)?;
    // A turn may have begun in the meantime.
    if !is_idle(hook, &locked.session) {
        return Ok(false);
    }
    let carried = carry::receive_mail(hook, queue, &mut locked, DeliveryWay::Waiter)?;
    if carried.text.is_empty() {
        return Ok(false);
    }
    let printed = hook.voice.say(hook, &carried.text, "");
    carry::said(hook, queue, &mut locked, carried, printed.is_ok())?;
    printed.map(|()| true)
}
