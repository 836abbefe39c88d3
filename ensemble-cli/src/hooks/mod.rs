//! Answers an agent's hooks: the agent's own way to learn of mail.
//!
//! ```text
//! event         Claude Code         Codex              Gemini CLI     OpenCode                 the agent is     what is said
//! start         SessionStart        SessionStart       SessionStart   shown, compacted         idle             introduction
//! prompt        UserPromptSubmit    UserPromptSubmit   BeforeAgent    chat.message             working          introduction if new, mail
//! tool          PostToolUse         PostToolUse        AfterTool      tool.execute.after       working          mail, a ping
//! stop          Stop                Stop               AfterAgent     session.idle             idle             mail and what is still held; the turn continues
//! permission    PermissionRequest   PermissionRequest  -              permission.asked         blocked          nothing
//! notification  Notification        -                  Notification   question.asked, answers  blocked or idle  nothing
//! failure       StopFailure         -                  -              session.error, retry     limited, failed  nothing
//! end           SessionEnd          SessionEnd         SessionEnd     dispose                  ended            nothing
//! wait          SessionStart, Stop  -                  -              start, session.idle      as it was        mail, on stderr, with exit code 2
//!
//! said at               in which JSON
//! start, prompt, tool   {"hookSpecificOutput": {"hookEventName": NAME, "additionalContext": TEXT}, "systemMessage": SHOWN}
//! stop                  {"decision": "block", "reason": TEXT}
//! ```
//!
//! The agent reads TEXT. The person at its screen reads SHOWN: sender and first words of each message.
//!
//! OpenCode cannot run commands as hooks, so our two plugins do it (`ensemble_tmux::provider::plugin`). A Codex
//! without hooks has a [`companion`], which handles the events of its server here. An agent without a terminal has a
//! [`conversation`].
//!
//! *Mail* is the messages themselves, received for the agent and fenced, up to `hooks.carry_bytes`. A message that is
//! longer, or must wait for other work, is announced once per session. A message is received before it is written,
//! under the session's lock, and noted there until the answer has been flushed. So a hook that is killed in between
//! leaves a note, and its message is released (`carry`). When a turn ends, the agent is reminded of what it holds,
//! once per delivery (`reminder`).
//!
//! *Our failures* never reach the agent: nothing is printed, the exit code is 0, and the event log gets
//! `hook.failed`. *A turn* waits for one listing of the mailbox, and for nothing outside of this machine. If the
//! mailboxes are on servers, hooks report the agent's state and deliver nothing.
//!
//! *Whose hook* this is follows from pass and process tree, as for all verbs. A program of the same kind that the
//! agent has started itself, or one of its subagents, gets none of the agent's mail.

mod carry;
mod companion;
mod conversation;
mod event;
mod frames;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod ping;
mod reminder;
mod report;
mod rpc;
mod voice;
mod waiter;

use ensemble_app::agent_program::AgentProgram;
use ensemble_app::queue::ProjectQueue;
use ensemble_core::event_log::types;
use ensemble_core::message::Name;
use ensemble_team::roster::Member;
use ensemble_tmux::provider::process;
use ensemble_tmux::session::{Activity, DeliveryWay, LockedSession, Sessions};
use serde_json::json;

use crate::context::{Context, Failure, Outcome, VerbExit};

use reminder::HeldReminder;
use voice::{HookAnswer, Voice};

pub(crate) use companion::{accompany, host, relieve, serve};
pub(crate) use conversation::converse;
pub(crate) use event::{Event, EventInput};

pub(crate) struct Hook<'a> {
    context: &'a Context,
    voice: &'a dyn Voice,
    program: AgentProgram,
    event: Event,
    input: EventInput,
    agent: Name,
    mailbox: Name,
    member: Option<Member>,
    sessions: Sessions,
    /// Pid and start of the agent's process.
    process: Option<(u32, u64)>,
}

pub(crate) fn run(context: &Context, event: Event, program: AgentProgram) -> Outcome<VerbExit> {
    // The agent writes its event whether or not it is wanted.
    let input = EventInput::read()?;
    let project = context.project()?;
    // A hook of the user runs in every directory. Without a queue it has nothing to say.
    if !project.queue.is_dir() {
        return Ok(VerbExit::Done);
    }
    let Some(hook) = Hook::new(context, &HookAnswer, program, event, input)? else {
        return Ok(VerbExit::Done);
    };
    match event {
        Event::Wait => waiter::wait(&hook),
        _ => hook.answer().map(|()| VerbExit::Done),
    }
}

impl<'a> Hook<'a> {
    /// `None` for a program that is not an agent, or that an agent has started itself.
    fn new(
        context: &'a Context,
        voice: &'a dyn Voice,
        program: AgentProgram,
        event: Event,
        input: EventInput,
    ) -> Outcome<Option<Self>> {
        let project = context.project()?;
        let Some(agent) = context.agent()? else { return Ok(None) };
        let member = project.roster().get(&agent)?;
        let mailbox = member.as_ref().map_or_else(|| agent.clone(), |it| it.mailbox.clone());
        let sessions = project.sessions();
        let me = std::process::id();
        let process = match program {
            // The agent is below its client.
            AgentProgram::Acp => Some(me).zip(process::start_time(me)),
            _ => voice.process().or_else(|| process::program_above(me)),
        };
        let hook = Self {
            context,
            voice,
            program,
            event,
            input,
            agent,
            mailbox,
            member,
            sessions,
            process,
        };
        Ok((!hook.is_nested()?).then_some(hook))
    }

    fn answer(&self) -> Outcome {
        let may_speak = self.event.speaks() && !self.input.is_subagent();
        let queue = if may_speak { self.queue()? } else { None };
        let due = match &queue {
            Some(queue) => carry::due(queue, self)?,
            None => Vec::new(),
        };
        let session = self.sessions.get(&self.agent).ok().flatten();
        let is_asked = ping::AwaitedPing::untold(self, session.as_ref()).is_some();
        let is_known = session.is_some_and(|session| report::changes_nothing(self, &session, &due));
        // At the end of a turn, the held messages are checked.
        let may_wait = !self.event.introduces() && self.event != Event::Stop;
        if is_known && !is_asked && may_wait {
            return Ok(());
        }
        let mut locked = self.sessions.lock(&self.agent)?;
        let is_left = report::leaves_conversation(self, &locked.session);
        report::record_event(self, &mut locked.session);
        let said = match &queue {
            Some(queue) => self.say(queue, &mut locked, is_left),
            None => Ok(()),
        };
        locked.write()?;
        said
    }

    /// Notes the event of an agent that is followed. At a session's beginning and a turn's end, it also says what waits.
    fn follow(&self) -> Outcome {
        if matches!(self.event, Event::Start | Event::Stop) {
            return self.answer();
        }
        let mut locked = self.sessions.lock(&self.agent)?;
        report::record_event(self, &mut locked.session);
        Ok(locked.write()?)
    }

    /// Prints what is to be said at this event, and notes it. `is_left`: the agent has begun another conversation.
    fn say(&self, queue: &ProjectQueue, locked: &mut LockedSession, is_left: bool) -> Outcome {
        let mut said = String::new();
        if is_left {
            carry::give_back_held(self, queue)?;
        }
        if self.is_introduction_due(locked) {
            let member = self.member.as_ref();
            let text = ensemble_app::introduction::text(self.context, queue, &self.agent, member)?;
            // It names tasks, whose names are words of others.
            said = text.split_inclusive('\n').filter(|line| !frames::has_frame(line)).collect();
        }
        let reminder = match self.event {
            Event::Stop => HeldReminder::due(self, queue, &locked.session)?,
            _ => None,
        };
        let way = match self.event {
            Event::Prompt => Some(DeliveryWay::Prompt),
            Event::Tool => Some(DeliveryWay::Tool),
            // A turn that a reminder continues takes the mail along.
            Event::Stop if !self.input.stop_hook_active || reminder.is_some() => {
                Some(DeliveryWay::Stop)
            }
            _ => None,
        };
        if self.event == Event::Stop {
            carry::confirm(self, &mut locked.session)?;
        }
        let mut carried = carry::CarriedMail::none();
        if let Some(way) = way {
            carried = carry::receive_mail(self, queue, locked, way)?;
            if !carried.text.is_empty() {
                said.push_str(if said.is_empty() { "" } else { "\n" });
                said.push_str(&carried.text);
            }
        }
        said.extend(reminder.iter().map(|reminder| reminder.text.as_str()));
        let asked = ping::AwaitedPing::untold(self, Some(&locked.session));
        said.extend(asked.iter().map(ping::AwaitedPing::text));
        let shown = self.shown(locked, &carried);
        if said.is_empty() && shown.is_empty() {
            return Ok(());
        }
        let printed = self.voice.say(self, &said, &shown);
        if printed.is_ok() && !shown.is_empty() {
            locked.session.unshown.clear();
        }
        if let Some(asked) = asked.filter(|_| printed.is_ok()) {
            asked.mark_told(&mut locked.session);
        }
        if let Some(reminder) = reminder.filter(|_| printed.is_ok()) {
            reminder.said(&mut locked.session);
            // The turn continues.
            locked.session.mark_hand_over();
            locked.session.set(Activity::Working, None);
        }
        carry::said(self, queue, locked, carried, printed.is_ok())?;
        let is_heard =
            self.event == Event::Prompt || self.program.hears_start(self.input.source.as_deref());
        if printed.is_ok() && self.event.introduces() && is_heard {
            locked.session.introduced = self.input.session_id.clone().or_else(unnamed);
        }
        printed
    }

    fn shown(&self, locked: &LockedSession, carried: &carry::CarriedMail) -> String {
        if !matches!(self.event, Event::Prompt | Event::Tool) {
            return String::new();
        }
        let before = locked.session.unshown.iter().cloned();
        before.chain(carried.shown()).collect::<Vec<_>>().join("\n")
    }

    fn is_introduction_due(&self, locked: &LockedSession) -> bool {
        match self.event {
            Event::Start => true,
            Event::Prompt => {
                let session = self.input.session_id.clone().or_else(unnamed);
                locked.session.introduced != session
            }
            _ => false,
        }
    }

    /// The mailboxes, if they are in a directory: servers may be away, and a turn would wait for them.
    fn queue(&self) -> Outcome<Option<ProjectQueue>> {
        match self.context.project()?.is_shared()? {
            true => Ok(None),
            false => Ok(Some(ProjectQueue::in_directory(self.context.spool()?))),
        }
    }

    /// Whether this is the hook of a program that the agent itself has started, such as another session as a tool.
    fn is_nested(&self) -> Outcome<bool> {
        let Some(session) = self.sessions.get(&self.agent).ok().flatten() else { return Ok(false) };
        let Some((pid, started)) = session.pid.zip(session.started) else { return Ok(false) };
        let line = process::line_of(std::process::id());
        let is_below = line.contains(&(pid, started));
        Ok(is_below && self.process.is_some_and(|process| process != (pid, started)))
    }
}

/// Acts by a hook of the agent that speaks by this voice. Without an agent, or with mailboxes on servers, nothing is done.
fn with_hook(
    context: &Context,
    voice: &dyn Voice,
    (program, event, input): (AgentProgram, Event, EventInput),
    act: impl FnOnce(&Hook<'_>, &ProjectQueue) -> Outcome,
) -> Outcome {
    let Some(hook) = Hook::new(context, voice, program, event, input)? else { return Ok(()) };
    match hook.queue()? {
        Some(queue) => act(&hook, &queue),
        None => Ok(()),
    }
}

fn unnamed() -> Option<String> {
    Some(String::new())
}

pub(crate) fn record_failure(context: &Context, event: &str, provider: &str, failure: &Failure) {
    let Ok(project) = context.project() else { return };
    if !project.queue.is_dir() {
        return;
    }
    let Ok(recorder) = context.recorder() else { return };
    let agent = context.agent().ok().flatten();
    let actor = agent.as_ref().map_or("outside", |agent| agent.as_str());
    let data = json!({ "event": event, "provider": provider, "why": failure.text() });
    recorder.record(types::HOOK_FAILED, actor, data);
}
