//! `ensemble admin api`: all commands in one process, as line-delimited JSON over stdin and stdout.
//!
//! ```text
//! reader ── a thread for each call ── a verb ── one answer
//!        └─ a thread for each subscription ── news (inotify) ── a line for each change
//! ```
//!
//! | limit | what happens beyond |
//! |---|---|
//! | [`LINE_BYTES_MAX`] | the line is skipped and answered with `too_large` |
//! | [`CALLS_MAX`], [`SUBSCRIPTIONS_MAX`] | the call is refused as `busy` |
//! | a client that does not read | the process stops reading: nothing is kept for the client but its positions |
//!
//! At the end of stdin, calls at work are finished and answered; calls that sleep end where they sleep, holding
//! nothing new. Leases stay. A kill leaves what it leaves of any command.

mod news;

use std::collections::BTreeMap;
use std::io::{self, BufReader, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ensemble_app::door_hints::{HintReader, render_hints, render_members};
use ensemble_app::error_line::FailureCode;
use ensemble_app::interrupt::{RunningCalls, end_if_cancelled, run_call};
use ensemble_core::CancelToken;
use ensemble_core::message::{Name, describe_json_fault, read_foreign_json};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::args::GlobalFlags;
use crate::context::{Context, Failure, Outcome, VerbExit, locked};
use crate::printed::lines::{ApiAnswer, ApiCall, ApiHello, ApiNews, SubscriptionEnd};

const PROTOCOL: u32 = 1;
/// The longest line that is read, in bytes: a body of the largest size in its worst form, and more.
const LINE_BYTES_MAX: usize = 1024 * 1024;
const CALLS_MAX: usize = 32;
const SUBSCRIPTIONS_MAX: usize = 16;
/// How long running calls may take to finish after stdin was closed.
const PATIENCE_AT_END: Duration = Duration::from_secs(30);

/// Runs the verb that a method names, with these parameters, in the queue and as the agent of the session. Returns what
/// it has printed, too.
pub(crate) type VerbCall =
    fn(&str, &Map<String, Value>, (Option<PathBuf>, Option<Name>)) -> (Vec<u8>, Outcome);

struct ApiSession {
    call_verb: VerbCall,
    read_hint: HintReader,
    queue: Option<PathBuf>,
    agent: Option<Name>,
    calls: &'static RunningCalls,
    running: AtomicUsize,
    /// Calls that run, by their number: their ids, of which several may be the same, and what cancels them.
    cancels: Mutex<BTreeMap<u64, (String, CancelToken)>>,
    begun: AtomicU64,
    /// By the id of the call that subscribed; set when it is to end.
    subscriptions: Mutex<BTreeMap<String, Arc<AtomicBool>>>,
    /// A file that is written here wakes all subscriptions.
    wake: tempfile::TempDir,
}

pub(crate) fn serve(context: &Context, call_verb: VerbCall, read_hint: HintReader) -> Outcome {
    ensemble_app::content::take_stdin();
    let session = Arc::new(ApiSession {
        call_verb,
        read_hint,
        queue: context.queue_flag().map(std::path::Path::to_owned),
        agent: context.agent_flag().cloned(),
        calls: RunningCalls::begin(),
        running: AtomicUsize::new(0),
        cancels: Mutex::default(),
        begun: AtomicU64::new(0),
        subscriptions: Mutex::default(),
        wake: tempfile::tempdir().map_err(|error| Failure::refused(error.to_string()))?,
    });
    write_line(&json!({ "hello": ApiHello {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION"),
        line_bytes_max: LINE_BYTES_MAX,
        calls_max: CALLS_MAX,
        subscriptions_max: SUBSCRIPTIONS_MAX,
    } }));
    let mut stdin = BufReader::new(io::stdin().lock());
    while let Some(line) = ensemble_app::content::read_line(&mut stdin, LINE_BYTES_MAX)? {
        session.begin_call(line);
    }
    session.calls.end(PATIENCE_AT_END);
    Ok(())
}

/// Writes a line in one piece. A client that has gone closes stdin, too.
fn write_line(line: &impl Serialize) {
    if let Ok(mut bytes) = serde_json::to_vec(line) {
        bytes.push(b'\n');
        let mut stdout = io::stdout().lock();
        let _ = stdout.write_all(&bytes).and_then(|()| stdout.flush());
    }
}

/// The id of a call or of a subscription, as a key: `1` and `"1"` are the same to those who name one.
fn key_of(id: &Value) -> String {
    id.as_str().map_or_else(|| id.to_string(), str::to_owned)
}

impl ApiSession {
    /// Answers a call, with its hints as calls.
    fn answer(&self, id: Value, mut result: Value, outcome: Outcome) {
        let render = |line: &str| {
            let call = (self.read_hint)(line)?;
            Some(json!({ "method": call.method, "params": call.params }).to_string())
        };
        render_members(&mut result, &render);
        let mut error = outcome.err().map(|failure| failure.into_line().error);
        if let Some(error) = &mut error {
            if matches!(error.code, FailureCode::Cancelled) {
                result = json!([]);
            }
            error.message = render_hints(&error.message, &render);
            error.hint = error.hint.take().map(|hint| render_hints(&hint, &render));
        }
        write_line(&ApiAnswer { id, result, error });
    }

    fn begin_call(self: &Arc<Self>, line: Outcome<Vec<u8>>) {
        let call = match line {
            Ok(line) => read_call(&line),
            Err(failure) => Err(Box::new((Value::Null, failure))),
        };
        match call {
            Ok(call) if call.method == "subscribe" => self.subscribe(call),
            Ok(call) if call.method == "unsubscribe" => self.unsubscribe(&call),
            Ok(call) if call.method == "cancel" => self.cancel(&call),
            Ok(call) => self.call(call),
            Err(unread) => {
                let (id, failure) = *unread;
                self.answer(id, json!([]), Err(failure));
            }
        }
    }

    fn call(self: &Arc<Self>, call: ApiCall) {
        if self.running.fetch_add(1, Ordering::SeqCst) >= CALLS_MAX {
            self.running.fetch_sub(1, Ordering::SeqCst);
            let text = format!("{CALLS_MAX} calls are running");
            return self.answer(call.id, json!([]), Err(Failure::new(VerbExit::Busy, text)));
        }
        let token = match CancelToken::new() {
            Ok(token) => token,
            Err(error) => {
                self.running.fetch_sub(1, Ordering::SeqCst);
                return self.answer(call.id, json!([]), Err(error.into()));
            }
        };
        let number = self.begun.fetch_add(1, Ordering::SeqCst);
        locked(&self.cancels).insert(number, (key_of(&call.id), token.clone()));
        let session = Arc::clone(self);
        // Here and not in its thread: the end of stdin waits for each call that was read.
        self.calls.enter();
        std::thread::spawn(move || {
            let (result, outcome) = run_call(token, || session.run(&call));
            session.running.fetch_sub(1, Ordering::SeqCst);
            locked(&session.cancels).remove(&number);
            session.answer(call.id, result, outcome);
            session.calls.leave();
        });
    }

    fn run(&self, call: &ApiCall) -> (Value, Outcome) {
        if call.method == "wait" {
            return match self.wait(&call.params) {
                Ok(news) => (json!([news]), Ok(())),
                Err(failure) => (json!([]), Err(failure)),
            };
        }
        let defaults = (self.queue.clone(), self.agent.clone());
        let (output, outcome) = (self.call_verb)(&call.method, &call.params, defaults);
        (printed(&output), outcome)
    }

    fn wait(&self, params: &Map<String, Value>) -> Outcome<Value> {
        let (wanted, patience) = news::SubscribeParams::read_with_timeout(params)?;
        let mut source = wanted.open(self.context(), self.wake.path())?;
        let deadline = std::time::Instant::now() + patience;
        loop {
            if let Some(news) = source.poll_news()?.into_iter().next() {
                return Ok(news);
            }
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return Err(Failure::nothing(format!("no news within {} s", patience.as_secs())));
            }
            self.calls.leave();
            source.sleep(left);
            self.calls.enter();
            end_if_cancelled()?;
        }
    }

    /// Ends the calls of an id where they wait; one that is at work is done first, and answers as if nothing had been said.
    fn cancel(&self, call: &ApiCall) {
        let outcome = named_id(call, "id").and_then(|key| {
            let all = locked(&self.cancels);
            let meant = all.values().filter(|(id, _)| *id == key);
            match meant.map(|(_, token)| token.cancel()).count() {
                0 => Err(Failure::nothing(format!("no call {key} is running"))),
                _ => Ok(()),
            }
        });
        self.wake_all();
        self.answer(call.id.clone(), json!([]), outcome);
    }

    /// Threads that sleep look at their flags now; without the file they would at their next regular look.
    fn wake_all(&self) {
        let _ = tempfile::NamedTempFile::new_in(self.wake.path());
    }

    fn context(&self) -> Context {
        let globals =
            GlobalFlags { queue: self.queue.clone(), agent: self.agent.clone(), json: true };
        Context::called(globals, "admin api")
    }

    fn subscribe(self: &Arc<Self>, call: ApiCall) {
        let (key, is_over) = (key_of(&call.id), Arc::new(AtomicBool::new(false)));
        let opened = self.enlist(&key, &is_over).and_then(|()| {
            let source = news::SubscribeParams::read(&call.params)
                .and_then(|wanted| wanted.open(self.context(), self.wake.path()));
            source.inspect_err(|_| drop(locked(&self.subscriptions).remove(&key)))
        });
        let source = match opened {
            Ok(source) => source,
            Err(failure) => return self.answer(call.id, json!([]), Err(failure)),
        };
        self.answer(call.id.clone(), json!([{ "subscription": call.id }]), Ok(()));
        let session = Arc::clone(self);
        std::thread::spawn(move || {
            if let Err(failure) = follow(source, &call.id, &is_over) {
                write_line(&SubscriptionEnd {
                    subscription: call.id,
                    error: failure.into_line().error,
                });
            }
            locked(&session.subscriptions).remove(&key);
        });
    }

    fn enlist(&self, key: &str, is_over: &Arc<AtomicBool>) -> Outcome {
        let mut all = locked(&self.subscriptions);
        if all.contains_key(key) {
            return Err(Failure::refused(format!("there is a subscription {key}"))
                .with_code(FailureCode::Conflict));
        }
        if all.len() >= SUBSCRIPTIONS_MAX {
            return Err(Failure::new(
                VerbExit::Busy,
                format!("there are {SUBSCRIPTIONS_MAX} subscriptions"),
            ));
        }
        all.insert(key.to_owned(), Arc::clone(is_over));
        Ok(())
    }

    fn unsubscribe(&self, call: &ApiCall) {
        let outcome = named_id(call, "subscription").and_then(|key| {
            let all = locked(&self.subscriptions);
            let Some(is_over) = all.get(&key) else {
                let known: Vec<&str> = all.keys().map(String::as_str).collect();
                let failure = Failure::nothing(format!("there is no subscription {key}"));
                return Err(match known.is_empty() {
                    true => failure,
                    false => failure.with_hint(format!("there are {}", known.join(", "))),
                });
            };
            is_over.store(true, Ordering::SeqCst);
            Ok(())
        });
        self.wake_all();
        self.answer(call.id.clone(), json!([]), outcome);
    }
}

/// Reads a call, or returns all that is wrong with it, with its id if that could be read.
fn read_call(line: &[u8]) -> Result<ApiCall, Box<(Value, Failure)>> {
    let unread = |text: String| Box::new((Value::Null, Failure::usage(text)));
    let call: Value = read_foreign_json(line).map_err(|error| {
        unread(format!("this line is not JSON: {}", describe_json_fault(&error)))
    })?;
    let Value::Object(mut members) = call else {
        return Err(unread("a call is an object with `id`, `method` and `params`".to_owned()));
    };
    let id = members.remove("id").unwrap_or_default();
    if !(id.is_string() || id.is_number()) {
        return Err(unread("`id` is a text or a number".to_owned()));
    }
    // Libraries for JSON-RPC send it.
    members.remove("jsonrpc");
    let mut faults = Vec::new();
    let method = match members.remove("method") {
        Some(Value::String(method)) => method.split_whitespace().collect::<Vec<_>>().join(" "),
        other => {
            let fault =
                other.map_or_else(|| "is missing".to_owned(), |it| format!("{it} is not a text"));
            faults.push(format!("method: {fault}"));
            String::new()
        }
    };
    let params = match members.remove("params").unwrap_or_default() {
        Value::Object(params) => params,
        Value::Null => Map::new(),
        other => {
            faults.push(format!("params: {other} is not an object"));
            Map::new()
        }
    };
    let known = "is not a member of a call (there are id, method, params)";
    faults.extend(members.keys().map(|member| format!("{member}: {known}")));
    match faults.is_empty() {
        true => Ok(ApiCall { id, method, params }),
        false => Err(Box::new((id, Failure::usage(faults.join("; "))))),
    }
}

fn named_id(call: &ApiCall, param: &str) -> Outcome<String> {
    let id = call.params.get(param).filter(|id| id.is_string() || id.is_number());
    id.map(key_of)
        .ok_or_else(|| Failure::usage(format!("{param}: is missing: pass a text or a number")))
}

fn follow(mut source: news::NewsSource, id: &Value, is_over: &AtomicBool) -> Outcome {
    loop {
        for news in source.poll_news()? {
            if is_over.load(Ordering::SeqCst) {
                return Ok(());
            }
            write_line(&ApiNews { subscription: id.clone(), news });
        }
        if is_over.load(Ordering::SeqCst) {
            return Ok(());
        }
        source.sleep(Duration::MAX);
    }
}

/// The printed lines as a list of objects, or the text where a command prints no JSON.
fn printed(output: &[u8]) -> Value {
    let text = String::from_utf8_lossy(output);
    let lines: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
    lines.map_or_else(|_| json!(text), |lines| json!(lines))
}
