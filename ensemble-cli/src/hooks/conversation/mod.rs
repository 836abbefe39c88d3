//! An agent without a terminal: it is spoken to by the Agent Client Protocol, and its pane shows what is said.
//!
//! ```text
//! pane ── ensemble hook converse     the pane's process: the client, and the session's waiter
//!           └─ gemini --acp          was `ensemble hook host`, and ends with the client
//! ```
//!
//! | the agent | the session is | what is done |
//! |---|---|---|
//! | has a new session | idle | what was held waits again; its introduction waits for its first prompt: every prompt begins a turn |
//! | is idle | idle | mail and pings are given to it: `session/prompt` |
//! | works | working | nothing; a message that interrupts goes into the turn where the agent offers that (`_session/steering`), or ends it: `session/cancel` |
//! | calls `session/request_permission` | blocked | a request to the person ([`permission`]); its decision is the answer |
//! | answers the prompt | idle | what the turn has used is counted; mail, and once what is still held, begin the next turn |
//! | answers with an error, or that the model refuses | failed | the same after a pause |
//! | answers that it is at a usage limit | limited | it keeps what it holds, and after a pause the prompt is said again |
//!
//! The end of a turn settles nothing: the agent does that by its verbs. The protocol takes no second prompt while a
//! turn runs, so mail waits until it has ended. *A crash* of either process ends the other one: the client sees the
//! agent's output close, and the agent is ended with its parent (`PR_SET_PDEATHSIG`) and reads the end of its input.
//! At the next start, what was held waits again, and a question that was asked is withdrawn.
//!
//! The agent also gets our tools: `ensemble mcp` is an MCP server of its session, under the agent's own name and pass.
//!
//! Seen with version 1 of the protocol and `gemini --acp` 0.61.0, `opencode acp` 1.18.33, `claude-agent-acp` 0.101.0,
//! `codex-acp` 0.16.0, `qwen --acp` 0.24.4, `copilot --acp` 1.0.102 and `kimi acp` 2.1.0.

pub(super) mod client;
pub(super) mod permission;

use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use ensemble_app::agent_program::AgentProgram;
use ensemble_app::environment::AGENT_VARIABLES;
use ensemble_app::queue::ProjectQueue;
use ensemble_app::text::printable;
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::message::Name;
use ensemble_core::proto::ack::PARK_MAX;
use ensemble_core::watch::{FsWatcher, sleep_until_any};
use ensemble_project::QUEUE_VARIABLE;
use ensemble_tmux::reaper::PASS_VARIABLE;
use ensemble_tmux::session::Activity;
use serde_json::{Value, json};

use super::rpc::RpcPeer as _;
use super::voice::Voice;
use super::{Event, EventInput, Hook, carry, waiter, with_hook};
use crate::context::{Context, Failure, Outcome};

use client::AcpClient;
use permission::AskedPermission;

const FAILED_PAUSE: Duration = Duration::from_secs(30);
/// By the code [`TOO_MANY_REQUESTS`] or by one of these words, in lower case, an error says that it is a usage limit.
const LIMITS: [&str; 5] = ["rate limit", "rate_limit", "usage limit", "hit your limit", "quota"];
const TOO_MANY_REQUESTS: i64 = 429;
const DECISION_INTERVAL: Duration = Duration::from_millis(250);

struct Conversation<'a> {
    context: &'a Context,
    agent: Name,
    mailbox: Name,
    client: RefCell<AcpClient>,
    session: String,
    model: String,
    /// Who the agent is, until that is said with its first prompt.
    introduction: RefCell<String>,
    prompt: Cell<Option<u64>>,
    prompted: RefCell<Value>,
    activity: Activity,
    asked: Vec<AskedPermission>,
    is_cancelled: bool,
    quiet_until: Option<Instant>,
    limited_since: Option<Instant>,
}

pub(crate) fn converse(context: &Context, words: &[OsString]) -> Outcome {
    let project = context.project()?;
    let agent = context.agent()?.ok_or_else(|| Failure::usage("no agent of a team runs here"))?;
    if project.is_shared()? {
        return Err(Failure::refused("an agent without a terminal needs mailboxes in a directory"));
    }
    let mailbox = project.mailbox_of(&agent);
    let _lock = project.sessions().become_waiter(&agent, waiter::TAKE_OVER)?;
    let queue = ProjectQueue::open(context)?;
    permission::withdraw_earlier(context, &queue, &agent)?;
    let mut client = AcpClient::start(words)?;
    let place = std::env::current_dir()?;
    let servers = our_servers()?;
    let begun = client.begin_session(json!({ "cwd": place, "mcpServers": servers }))?;
    let session = begun["sessionId"].as_str().unwrap_or_default().to_owned();
    let conversation = Conversation {
        context,
        agent,
        mailbox,
        client: client.into(),
        session,
        model: model_of(&begun),
        introduction: RefCell::default(),
        prompt: Cell::default(),
        prompted: RefCell::default(),
        activity: Activity::Idle,
        asked: Vec::new(),
        is_cancelled: false,
        quiet_until: None,
        limited_since: None,
    };
    conversation.run(&queue)
}

impl Voice for Conversation<'_> {
    fn say(&self, hook: &Hook<'_>, said: &str, _: &str) -> Outcome {
        if hook.event == Event::Start {
            self.introduction.replace(said.to_owned());
            return Ok(());
        }
        let text = self.introduction.borrow().clone() + said;
        let words = json!([{ "type": "text", "text": text }]);
        let mut words = json!({ "sessionId": self.session, "prompt": words });
        if hook.event == Event::Tool {
            // What comes too late for the turn must not begin another one, whose end is not known.
            words["_meta"]["steering"]["idleBehavior"] = "promptRequired".into();
            let answer = self.client.borrow_mut().call("_session/steering", words)?;
            if answer["outcome"] != "injected" {
                return Err(Failure::refused(format!("_session/steering: {answer}")));
            }
        } else {
            self.say_prompt(words)?;
        }
        self.introduction.borrow_mut().clear();
        show(&format!("\n{}\n", printable(said)));
        Ok(())
    }
}

impl Conversation<'_> {
    fn run(mut self, queue: &ProjectQueue) -> Outcome {
        let project = self.context.project()?;
        let mut watcher = waiter::watch_places(project, &self.mailbox)?;
        // A new session knows nothing of what was said in the last one.
        let input = EventInput { source: Some("clear".to_owned()), ..EventInput::default() };
        self.report(Event::Start, input)?;
        loop {
            let done = self.work(queue);
            if self.client.get_mut().has_ended() {
                let withdrawn = self.withdraw(queue);
                self.report(Event::End, EventInput::default())?;
                let ended = self.client.get_mut().ended();
                return withdrawn.and(ended);
            }
            if let Err(failure) = done {
                super::record_failure(self.context, "converse", AgentProgram::Acp.word(), &failure);
                self.quiet_until = Some(Instant::now() + FAILED_PAUSE);
            }
            let longest = match self.asked.is_empty() {
                true => waiter::LOOK_INTERVAL,
                false => DECISION_INTERVAL,
            };
            let client = self.client.borrow();
            let watched = watcher.as_ref().map(|it| it.as_fd());
            let sources: Vec<_> = [client.as_fd()].into_iter().chain(watched).collect();
            sleep_until_any(&sources, Some(longest))
                .map_err(|error| Failure::refused(error.to_string()))?;
            drop(client);
            watcher.as_mut().map(FsWatcher::take_events);
        }
    }

    fn work(&mut self, queue: &ProjectQueue) -> Outcome {
        loop {
            // The agent may not be spoken to while its words are taken.
            let news = self.client.borrow_mut().news()?;
            let Some(news) = news else { break };
            self.follow(queue, &news)?;
        }
        self.answer_permissions(queue)?;
        permission::settle_responses(queue, &self.agent, &self.mailbox)?;
        if self.quiet_until.take_if(|until| Instant::now() >= *until).is_some() {
            match self.activity {
                Activity::Failed => self.end_turn(Event::Stop, EventInput::default())?,
                Activity::Limited => {
                    self.say_prompt(self.prompted.take())?;
                    self.begin_turn()?;
                }
                _ => {}
            }
        }
        match self.activity {
            _ if self.quiet_until.is_some() => Ok(()),
            Activity::Idle => self.say_what_waits(),
            Activity::Working | Activity::Blocked => self.interrupt(queue),
            Activity::Limited | Activity::Failed | Activity::Ended => Ok(()),
        }
    }

    fn follow(&mut self, queue: &ProjectQueue, news: &Value) -> Outcome {
        let params = &news["params"];
        match (news["method"].as_str(), news.get("id")) {
            (Some("session/update"), None) => show(&update_text(&params["update"])),
            (Some("session/request_permission"), Some(call)) => {
                return self.ask_permission(queue, (call, params));
            }
            (Some(_), Some(call)) => return self.client.get_mut().refuse(call),
            (None, Some(id)) if self.prompt.get().is_some_and(|prompt| *id == json!(prompt)) => {
                return self.take_answer(queue, news);
            }
            _ => {}
        }
        Ok(())
    }

    fn take_answer(&mut self, queue: &ProjectQueue, answer: &Value) -> Outcome {
        let prompt = self.prompt.take().unwrap_or_default();
        self.is_cancelled = false;
        let limited_since = self.limited_since.take();
        show("\n");
        // A question that cannot be withdrawn, because a person has just answered it, does not keep the turn from ending.
        let withdrawn = self.withdraw(queue);
        let usage = self.usage_of(&answer["result"], prompt);
        let mut input = EventInput { usage, ..EventInput::default() };
        let refusal = json!({ "message": "the model has refused the prompt" });
        let is_refused = answer["result"]["stopReason"] == "refusal";
        let Some(error) = answer.get("error").or_else(|| is_refused.then_some(&refusal)) else {
            return self.end_turn(Event::Stop, input).and(withdrawn);
        };
        let mut said = error["message"].as_str().unwrap_or("unknown error").to_owned();
        show(&format!("{}\n", printable(&said)));
        self.quiet_until = Some(Instant::now() + FAILED_PAUSE);
        let details = error.to_string().to_lowercase();
        let is_limited =
            error["code"] == TOO_MANY_REQUESTS || LIMITS.iter().any(|it| details.contains(it));
        if is_limited {
            said.insert_str(0, "rate_limit: ");
        }
        input.error = Some(said);
        self.end_turn(Event::Failure, input)?;
        if is_limited {
            self.activity = Activity::Limited;
            let since = *self.limited_since.insert(limited_since.unwrap_or_else(Instant::now));
            if since.elapsed() < PARK_MAX {
                self.keep_held(queue)?;
            }
        }
        withdrawn
    }

    /// Extends the leases of what the agent holds, as the watcher does where a screen shows the limit.
    fn keep_held(&self, queue: &ProjectQueue) -> Outcome {
        let Some(spool) = queue.directory() else { return Ok(()) };
        let held = spool.observe(&self.mailbox)?.into_iter();
        for held in held.filter(|held| held.lease.holder == self.agent) {
            // What it does not hold any more is not extended.
            let _ = spool.extend(&held.lease, held.duration);
        }
        Ok(())
    }

    fn say_prompt(&self, words: Value) -> Outcome {
        let prompt = self.client.borrow_mut().request("session/prompt", words.clone())?;
        self.prompt.set(Some(prompt));
        self.prompted.replace(words);
        Ok(())
    }

    fn begin_turn(&mut self) -> Outcome {
        self.activity = Activity::Working;
        self.report(Event::Prompt, EventInput::default())
    }

    /// Notes the end of a turn. The hook's text at the end of a turn begins the next one.
    fn end_turn(&mut self, event: Event, input: EventInput) -> Outcome {
        let reported = self.report(event, input);
        self.activity = if event == Event::Failure { Activity::Failed } else { Activity::Idle };
        if self.prompt.get().is_some() {
            self.begin_turn()?;
        }
        reported
    }

    fn say_what_waits(&mut self) -> Outcome {
        let said = self.with_hook(Event::Wait, EventInput::default(), |hook, queue| {
            let has_pinged = waiter::pass_ping(hook)?;
            if !has_pinged {
                waiter::wake(hook, queue)?;
            }
            Ok(())
        });
        if self.prompt.get().is_some() {
            self.begin_turn()?;
        }
        said
    }

    /// Says a message that interrupts into the turn, or ends the turn for it. An agent that waits for a person's answer
    /// would read it only after that.
    fn interrupt(&mut self, queue: &ProjectQueue) -> Outcome {
        let mut is_called = false;
        if self.is_cancelled || self.prompt.get().is_none() {
            return Ok(());
        }
        self.with_hook(Event::Wait, EventInput::default(), |hook, queue| {
            is_called = carry::is_interrupted(queue, hook)?;
            Ok(())
        })?;
        let may_steer = self.activity == Activity::Working && self.client.get_mut().can_steer;
        let is_steered = is_called
            && may_steer
            && self.with_hook(Event::Tool, EventInput::default(), |hook, _| hook.answer()).is_ok();
        if is_called && !is_steered {
            self.is_cancelled = true;
            self.client.get_mut().notify("session/cancel", json!({ "sessionId": self.session }))?;
            self.withdraw(queue)?;
        }
        Ok(())
    }

    fn ask_permission(
        &mut self,
        queue: &ProjectQueue,
        (call, params): (&Value, &Value),
    ) -> Outcome {
        let (tool, options) = (&params["toolCall"], &params["options"]);
        if self.is_cancelled || permission::is_everyday(tool) {
            let outcome = permission::outcome(options, !self.is_cancelled);
            return self.client.get_mut().respond(call, outcome);
        }
        match AskedPermission::ask(self.context, queue, &self.agent, (call, params)) {
            Ok(asked) => self.asked.push(asked),
            Err(failure) => {
                self.client.get_mut().respond(call, permission::outcome(options, false))?;
                return Err(failure);
            }
        }
        let title = permission::title_of(tool);
        show(&format!("\n? {}: a person is asked for permission\n", printable(title)));
        self.activity = Activity::Blocked;
        let message = Some(format!("permission: {title}"));
        let notification_type = Some("permission".to_owned());
        let input = EventInput { notification_type, message, ..EventInput::default() };
        self.report(Event::Notification, input)
    }

    fn answer_permissions(&mut self, queue: &ProjectQueue) -> Outcome {
        if self.asked.is_empty() {
            return Ok(());
        }
        for asked in std::mem::take(&mut self.asked) {
            match asked.answer(self.context, queue) {
                Ok(Some(is_allowed)) => {
                    let outcome = permission::outcome(&asked.options, is_allowed);
                    self.client.get_mut().respond(&asked.call, outcome)?;
                }
                Ok(None) => self.asked.push(asked),
                Err(failure) => {
                    self.asked.push(asked);
                    return Err(failure);
                }
            }
        }
        if self.asked.is_empty() && self.activity == Activity::Blocked {
            self.activity = Activity::Working;
            let notification_type = Some("working".to_owned());
            let input = EventInput { notification_type, ..EventInput::default() };
            self.report(Event::Notification, input)?;
        }
        Ok(())
    }

    fn withdraw(&mut self, queue: &ProjectQueue) -> Outcome {
        for asked in std::mem::take(&mut self.asked) {
            let outcome = json!({ "outcome": { "outcome": "cancelled" } });
            if !self.client.get_mut().has_ended() {
                self.client.get_mut().respond(&asked.call, outcome)?;
            }
            asked.withdraw(self.context, queue, &self.agent)?;
        }
        Ok(())
    }

    fn report(&self, event: Event, input: EventInput) -> Outcome {
        self.with_hook(event, input, |hook, _| hook.follow())
    }

    fn with_hook(
        &self,
        event: Event,
        input: EventInput,
        act: impl FnOnce(&Hook<'_>, &ProjectQueue) -> Outcome,
    ) -> Outcome {
        let input = EventInput { session_id: Some(self.session.clone()), ..input };
        with_hook(self.context, self, (AgentProgram::Acp, event, input), act)
    }

    /// What a turn has used, as the records of usage have it. What is counted by model may be of the whole session.
    fn usage_of(&self, result: &Value, prompt: u64) -> Vec<Value> {
        let (at, id) = (SystemClock.wall(), format!("{}.{prompt}", self.session));
        let models = result["_meta"]["quota"]["model_usage"].as_array();
        let model_of = |used: &Value| used["model"].as_str().unwrap_or_default().to_owned();
        let used = &result["usage"];
        if used.is_object() {
            let model =
                models.and_then(|all| all.first()).map_or_else(|| self.model.clone(), model_of);
            return vec![json!({
                "at": at, "id": id, "model": model, "input": count_of(&used["inputTokens"]),
                "output": count_of(&used["outputTokens"]),
                "reasoning": count_of(&used["thoughtTokens"]),
                "cache_read": count_of(&used["cachedReadTokens"]),
                "cache_write": count_of(&used["cachedWriteTokens"]),
            })];
        }
        let by_model = models.into_iter().flatten().map(|used| {
            let (model, tokens) = (model_of(used), &used["token_count"]);
            json!({
                "at": at, "id": format!("{id}.{model}"), "model": model,
                "input": count_of(&tokens["input_tokens"]),
                "output": count_of(&tokens["output_tokens"]),
            })
        });
        by_model.collect()
    }
}

fn count_of(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

/// Our tools, for an agent that is known by the variables of this process.
fn our_servers() -> Outcome<Value> {
    if cfg!(not(feature = "mcp")) {
        return Ok(json!([]));
    }
    let variables = [AGENT_VARIABLES[0], PASS_VARIABLE, QUEUE_VARIABLE].into_iter();
    let env: Vec<Value> = variables
        .filter_map(|name| Some(json!({ "name": name, "value": std::env::var(name).ok()? })))
        .collect();
    let program = std::env::current_exe()?;
    Ok(json!([{ "name": "ensemble", "command": program, "args": ["mcp"], "env": env }]))
}

fn model_of(begun: &Value) -> String {
    let options = begun["configOptions"].as_array().into_iter().flatten();
    let option = options.filter(|it| it["id"] == "model").map(|it| &it["currentValue"]);
    let said = option.chain([&begun["models"]["currentModelId"]]).find_map(Value::as_str);
    said.unwrap_or_default().to_owned()
}

fn update_text(update: &Value) -> String {
    let is_over = matches!(update["status"].as_str(), Some("completed" | "failed"));
    match update["sessionUpdate"].as_str() {
        Some("agent_message_chunk") => {
            printable(update["content"]["text"].as_str().unwrap_or_default()).into_owned()
        }
        Some("tool_call_update") if is_over => {
            format!("\n* {}\n", printable(permission::title_of(update)))
        }
        _ => String::new(),
    }
}

/// Shows something in the pane, which may be gone.
fn show(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}
