//! The companion of a Codex that runs at a private server: its doorbell, without keys and without hooks.
//!
//! ```text
//! pane ── codex --remote unix://SOCKET     was `ensemble hook serve`, which has started the other two
//!           ├─ codex app-server            was `ensemble hook host`
//!           └─ ensemble hook accompany     follows the thread, and is the session's waiter
//!                └─ ensemble hook relieve   takes its place if it ends
//! ```
//!
//! | the server says | the session is | what is done |
//! |---|---|---|
//! | `thread/started` | idle | the introduction goes into the thread; no turn begins |
//! | status `active` | working | mail is said into the turn, for the model's next request |
//! | status `active`, with a flag | blocked | nothing |
//! | status `idle` | idle | mail, pings and what is still held begin a turn: `turn/start` |
//! | status `systemError` | failed | nothing; the watcher looks at the screen |
//!
//! Text that is sent into a running turn is lost if the person ends that turn before the model reads it, even though
//! the server has accepted it. So such a message has arrived only when the thread lists it; when the turn ends without
//! it, it is released, and begins the next turn. After `/clear` and `/new` the server still accepts the old
//! thread, and what happens there is seen on no screen: the thread that began last is the person's. Server and
//! companion end with the agent, so that no server outlives it. One that ends before is started again ([`post`]). A
//! failure before the program runs costs nothing: it is started without a server.
//!
//! Seen with codex-cli 0.171.0 (JSON-RPC in WebSocket frames over a Unix socket, without `jsonrpc`).

mod post;
mod server;
mod start;

use std::cell::{Cell, RefCell};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use ensemble_app::agent_program::AgentProgram;
use ensemble_app::queue::ProjectQueue;
use ensemble_core::watch::{FsWatcher, sleep_until_any};
use ensemble_tmux::session::{Activity, DeliveryWay};
use serde_json::{Value, json};

use super::carry::CarriedMail;
use super::rpc::RpcPeer as _;
use super::voice::Voice;
use super::{Event, EventInput, Hook, carry, waiter, with_hook};
use crate::context::{Context, Failure, Outcome};

use post::CompanionPost;
use server::AppServer;
pub(super) use start::part;
pub(crate) use start::{accompany, host, relieve, serve};

/// How long nothing is said after the server has refused something, unless a turn begins or ends. Each further refusal
/// doubles it, up to the maximum. A busy server is ready again soon, and the watcher types a hint after 5 s.
const REFUSED_PAUSE: Duration = Duration::from_millis(250);
const REFUSED_PAUSE_MAX: Duration = Duration::from_secs(30);

/// How many of a thread's last items are searched for what was said into its turn, every [`waiter::LOOK_INTERVAL`].
const ITEMS_MAX: u32 = 200;

#[derive(Clone, Debug, Default)]
struct CodexThread {
    id: String,
    /// The rollout, which Codex writes.
    path: Option<String>,
    /// How the session has begun, until its agent is introduced.
    source: Option<&'static str>,
}

/// Mail that was said into a turn, by the id that the thread gives the words when the model reads them.
type SteeredMail = Vec<(String, CarriedMail)>;

struct ThreadVoice<'a> {
    server: &'a RefCell<AppServer>,
    thread: &'a str,
    id: String,
    steered: &'a RefCell<SteeredMail>,
    may_steer: bool,
    agent: (u32, u64),
}

impl Voice for ThreadVoice<'_> {
    fn process(&self) -> Option<(u32, u64)> {
        Some(self.agent)
    }

    fn say(&self, hook: &Hook<'_>, said: &str, _: &str) -> Outcome {
        if said.is_empty() {
            return Ok(());
        }
        let (method, words) = match hook.event {
            Event::Start => {
                let content = json!([{ "type": "input_text", "text": said }]);
                let item = json!({ "type": "message", "role": "developer", "content": content });
                ("thread/inject_items", json!({ "threadId": self.thread, "items": [item] }))
            }
            _ => {
                let input = json!([{ "type": "text", "text": said }]);
                let words = json!({ "threadId": self.thread, "clientUserMessageId": self.id, "input": input });
                ("turn/start", words)
            }
        };
        self.server.borrow_mut().call(method, words).map(drop)
    }

    /// A server that does not list what a thread has read is not trusted with mail in a turn.
    fn hands_over(&self, way: DeliveryWay) -> bool {
        let lists_items = || self.server.borrow_mut().last_items(self.thread, 1).is_ok();
        way != DeliveryWay::Tool || self.may_steer && lists_items()
    }

    fn await_arrival(&self, hook: &Hook<'_>, mail: CarriedMail) -> Option<CarriedMail> {
        if hook.event != Event::Tool || mail.deliveries.is_empty() {
            return Some(mail);
        }
        self.steered.borrow_mut().push((self.id.clone(), mail));
        None
    }
}

struct Companion<'a> {
    context: &'a Context,
    program: AgentProgram,
    server: RefCell<AppServer>,
    post: &'a mut CompanionPost,
    thread: Option<CodexThread>,
    activity: Activity,
    /// The last change of it, until the session has it.
    unnoted: Option<(Event, EventInput)>,
    /// A thread that the person has left while its turn ran: the end of that turn does not bring the person back.
    left_working: Option<String>,
    quiet_until: Option<Instant>,
    refused_pause: Duration,
    /// Whether the turn that runs has refused what was said into it, as a compaction does.
    has_refused: bool,
    steered: RefCell<SteeredMail>,
    voices: Cell<u64>,
}

impl<'a> Companion<'a> {
    fn new(
        context: &'a Context,
        program: AgentProgram,
        server: AppServer,
        post: &'a mut CompanionPost,
    ) -> Self {
        Self {
            context,
            program,
            server: server.into(),
            post,
            thread: None,
            activity: Activity::Idle,
            unnoted: None,
            left_working: None,
            quiet_until: None,
            refused_pause: REFUSED_PAUSE,
            has_refused: false,
            steered: RefCell::default(),
            voices: Cell::default(),
        }
    }

    fn run(mut self) -> Outcome {
        let project = self.context.project()?;
        let Some(agent) = self.context.agent()? else { return Ok(()) };
        let mailbox = project.mailbox_of(&agent);
        let mut watcher = waiter::watch_places(project, &mailbox)?;
        while self.post.agent_lives() {
            self.post.keep_relief();
            if self.thread.is_none() {
                let met = self.meet_loaded();
                self.outlive(met)?;
            }
            while let Some(news) = self.server.get_mut().news()? {
                let followed = self.follow(&news);
                self.outlive(followed)?;
            }
            self.quiet_until.take_if(|until| Instant::now() >= *until);
            if self.quiet_until.is_none() {
                let said = self.say_what_waits();
                self.outlive(said)?;
            }
            let quiet = self.quiet_until.map(|it| it.saturating_duration_since(Instant::now()));
            let longest = quiet.map_or(waiter::LOOK_INTERVAL, |it| it.min(waiter::LOOK_INTERVAL));
            let server = self.server.get_mut();
            let sources: Vec<_> = [Some(server.as_fd()), watcher.as_ref().map(|it| it.as_fd())]
                .into_iter()
                .flatten()
                .collect();
            sleep_until_any(&sources, Some(longest))
                .map_err(|error| Failure::refused(error.to_string()))?;
            watcher.as_mut().map(FsWatcher::take_events);
        }
        Ok(())
    }

    fn outlive(&mut self, done: Outcome) -> Outcome {
        match done {
            Err(failure) if self.server.get_mut().has_ended() => Err(failure),
            Err(failure) => {
                super::record_failure(self.context, "accompany", self.program.word(), &failure);
                self.quiet_until = Some(Instant::now() + self.refused_pause);
                self.refused_pause = longer(self.refused_pause);
                self.has_refused = true;
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn meet_loaded(&mut self) -> Outcome {
        let ids = self.server.get_mut().loaded_threads()?;
        ids.iter().try_for_each(|id| self.meet(id))
    }

    fn follow(&mut self, news: &Value) -> Outcome {
        let params = &news["params"];
        match news["method"].as_str().unwrap_or_default() {
            "thread/started" => self.begin(&params["thread"]),
            "thread/status/changed" => {
                let id = params["threadId"].as_str().unwrap_or_default();
                let is_left = self.left_working.as_deref() == Some(id);
                if is_left && params["status"]["type"] != "active" {
                    self.left_working = None;
                } else if !is_left && self.thread.as_ref().is_none_or(|thread| thread.id != id) {
                    self.meet(id)?;
                }
                match &self.thread {
                    Some(thread) if thread.id == id => self.change(&params["status"]),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// A thread of which only the id is known: one that is older than this companion, or that the person has resumed.
    fn meet(&mut self, id: &str) -> Outcome {
        let read = self.server.get_mut().call("thread/read", json!({ "threadId": id }))?;
        self.begin(&read["thread"])?;
        match &self.thread {
            Some(thread) if thread.id == id => self.change(&read["thread"]["status"]),
            _ => Ok(()),
        }
    }

    /// From now on this thread is the person's, if it is not one that the program has begun for itself.
    fn begin(&mut self, thread: &Value) -> Outcome {
        let is_persons = thread["ephemeral"] != json!(true)
            && thread["parentThreadId"].is_null()
            && matches!(thread["threadSource"].as_str(), None | Some("user"));
        let Some(id) = thread["id"].as_str().filter(|_| is_persons) else { return Ok(()) };
        if self.thread.as_ref().is_some_and(|thread| thread.id == id) {
            return Ok(());
        }
        let is_known = self.thread.is_none() && self.is_introduced_in(id)?;
        let source = match self.thread {
            Some(_) => Some("clear"),
            None => (!is_known).then_some("startup"),
        };
        let path = thread["path"].as_str().map(str::to_owned);
        let is_at_work = matches!(self.activity, Activity::Working | Activity::Blocked);
        self.left_working = self.thread.take().map(|left| left.id).filter(|_| is_at_work);
        // All that the agent held is released when the new thread is introduced.
        self.steered.take();
        self.unnoted = None;
        self.thread = Some(CodexThread { id: id.to_owned(), path, source });
        // What happened to a known thread since another companion or server had it is noted with its status.
        self.activity = if is_known { Activity::Ended } else { Activity::Idle };
        self.introduce()
    }

    fn is_introduced_in(&self, thread: &str) -> Outcome<bool> {
        let Some(agent) = self.context.agent()? else { return Ok(false) };
        let session = self.context.project()?.sessions().get(&agent)?;
        // A program that was started again may have another role.
        Ok(session.is_some_and(|session| {
            session.introduced.as_deref() == Some(thread)
                && session.pid.zip(session.started) == Some(self.post.agent())
        }))
    }

    /// A failure is tried again: an agent that was never introduced cannot take part.
    fn introduce(&mut self) -> Outcome {
        let source = self.thread.as_ref().and_then(|thread| thread.source);
        let Some(source) = source else { return Ok(()) };
        let input = EventInput { source: Some(source.to_owned()), ..EventInput::default() };
        self.report(Event::Start, input)?;
        if let Some(thread) = &mut self.thread {
            thread.source = None;
        }
        Ok(())
    }

    fn change(&mut self, status: &Value) -> Outcome {
        let flags = status["activeFlags"].as_array();
        let flag = flags.and_then(|all| all.first()).and_then(Value::as_str);
        let now = match (status["type"].as_str(), flag) {
            (Some("active"), None) => Activity::Working,
            (Some("active"), Some(_)) => Activity::Blocked,
            (Some("idle"), _) => Activity::Idle,
            (Some("systemError"), _) => Activity::Failed,
            _ => return Ok(()),
        };
        if now == std::mem::replace(&mut self.activity, now) {
            return Ok(());
        }
        // A message that was refused during a turn (a compaction accepts none) may be sent after it.
        (self.quiet_until, self.has_refused) = (None, false);
        self.refused_pause = REFUSED_PAUSE;
        let checked = self.check_steered();
        let mut input = EventInput::default();
        let event = match now {
            Activity::Working => Event::Prompt,
            Activity::Blocked => {
                input.notification_type = Some("permission".to_owned());
                let asked =
                    if flag == Some("waitingOnApproval") { "permission" } else { "question" };
                input.message = Some(asked.to_owned());
                Event::Notification
            }
            Activity::Idle => Event::Stop,
            Activity::Failed | Activity::Limited | Activity::Ended => Event::Failure,
        };
        self.unnoted = Some((event, input));
        self.note_change().and(checked)
    }

    /// A failure is tried again: no event comes until the next change.
    fn note_change(&mut self) -> Outcome {
        let Some((event, input)) = self.unnoted.clone() else { return Ok(()) };
        self.report(event, input)?;
        self.unnoted = None;
        Ok(())
    }

    /// Notes an event, and says what is to be said of it. Only [`Self::say_what_waits`] speaks into a turn that runs.
    fn report(&self, event: Event, input: EventInput) -> Outcome {
        self.with_hook(event, input, |hook, _| hook.follow())
    }

    fn say_what_waits(&mut self) -> Outcome {
        self.introduce()?;
        self.note_change()?;
        self.check_steered()?;
        match self.activity {
            Activity::Idle => {
                let mut has_begun = false;
                self.with_hook(Event::Wait, EventInput::default(), |hook, queue| {
                    has_begun = waiter::pass_ping(hook)? || waiter::wake(hook, queue)?;
                    Ok(())
                })?;
                if has_begun {
                    self.activity = Activity::Working;
                    self.unnoted = Some((Event::Prompt, EventInput::default()));
                }
                self.note_change()
            }
            Activity::Working => {
                self.with_hook(Event::Tool, EventInput::default(), |hook, _| hook.answer())
            }
            Activity::Blocked | Activity::Limited | Activity::Failed | Activity::Ended => Ok(()),
        }
    }

    /// Notes which mail the model has read in its turn, and releases what an ended turn has not read.
    fn check_steered(&self) -> Outcome {
        let Some(thread) = self.thread.as_ref().filter(|_| !self.steered.borrow().is_empty())
        else {
            return Ok(());
        };
        let mut server = self.server.borrow_mut();
        // In this order: what a turn that has ended has not read by now is never read.
        let read = server.call("thread/read", json!({ "threadId": thread.id }))?;
        let is_over = read["thread"]["status"]["type"] != "active";
        let items = server.last_items(&thread.id, ITEMS_MAX)?;
        drop(server);
        let is_read = |(id, _): &(String, CarriedMail)| is_named(id, &items);
        self.with_hook(Event::Tool, EventInput::default(), |hook, queue| {
            // First the lock: without it, all is still awaited.
            let mut locked = hook.sessions.lock(&hook.agent)?;
            let (read, unread): (SteeredMail, SteeredMail) =
                self.steered.take().into_iter().partition(is_read);
            let lost = if is_over { unread } else { self.steered.replace(unread) };
            let all = [(read, true), (lost, false)].into_iter();
            let mut all = all.flat_map(|(mails, has)| mails.into_iter().map(move |it| (it.1, has)));
            all.try_for_each(|(mail, has)| carry::arrived(hook, queue, &mut locked, mail, has))
        })
    }

    fn with_hook(
        &self,
        event: Event,
        input: EventInput,
        act: impl FnOnce(&Hook<'_>, &ProjectQueue) -> Outcome,
    ) -> Outcome {
        let Some(thread) = &self.thread else { return Ok(()) };
        let path = thread.path.as_deref().map(Path::new).filter(|path| path.is_absolute());
        let input = EventInput {
            session_id: Some(thread.id.clone()),
            transcript_path: path.map(Path::to_owned),
            ..input
        };
        self.voices.set(self.voices.get() + 1);
        let id = format!("ensemble-{}-{}", std::process::id(), self.voices.get());
        let (steered, may_steer) = (&self.steered, !self.has_refused);
        let (server, agent) = (&self.server, self.post.agent());
        let voice = ThreadVoice { server, thread: &thread.id, id, steered, may_steer, agent };
        with_hook(self.context, &voice, (self.program, event, input), act)
    }
}

fn longer(pause: Duration) -> Duration {
    (pause * 2).min(REFUSED_PAUSE_MAX)
}

/// Whether items, as JSON, name this very id, and not only one that begins with it.
fn is_named(id: &str, items: &str) -> bool {
    items.contains(&format!("\"{id}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_has_refused_something_is_asked_again_soon_and_then_ever_later() {
        let mut pauses = std::iter::successors(Some(REFUSED_PAUSE), |pause| Some(longer(*pause)));
        let first: Duration = pauses.by_ref().take(4).sum();
        assert!(first < Duration::from_secs(5), "the watcher types a hint after that");
        assert_eq!(pauses.nth(9), Some(REFUSED_PAUSE_MAX));
    }

    #[test]
    fn an_id_is_not_read_with_one_that_begins_with_it() {
        let items = json!([{ "clientId": "ensemble-7-12" }]).to_string();
        assert!(is_named("ensemble-7-12", &items) && !is_named("ensemble-7-1", &items));
    }
}
