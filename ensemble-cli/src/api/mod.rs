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
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ensemble_app::error_line::FailureCode;
use ensemble_app::exit_code::VerbExit;
use ensemble_app::failure::{Failure, Outcome};
use ensemble_app::interrupt::RunningCalls;
use ensemble_core::message::Name;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::args::GlobalFlags;
use crate::context::Context;
use crate::printed::lines::{ApiAnswer, ApiCall, ApiHello, ApiNews, SubscriptionEnd};

/// Version of the protocol.
const PROTOCOL: u32 = 1;
/// The longest line that is read, in bytes: a body of the largest size in its worst form, and more.
const LINE_BYTES_MAX: usize = 1024 * 1024;
/// How many calls run at once.
const CALLS_MAX: usize = 32;
/// How many subscriptions there are at once.
const SUBSCRIPTIONS_MAX: usize = 16;
/// How long running calls may take to finish after stdin was closed.
const PATIENCE_AT_END: Duration = Duration::from_secs(30);

/// Runs the verb that a method names, with these parameters, in the queue and as the agent of the session. Returns what
/// it has printed, too.
pub(crate) type VerbCall =
    fn(&str, &Map<String, Value>, (Option<PathBuf>, Option<Name>)) -> (Vec<u8>, Outcome);

/// One client, and what it has under way.
struct ApiSession {
    call_verb: VerbCall,
    queue: Option<PathBuf>,
    agent: Option<Name>,
    calls: &'static RunningCalls,
    running: AtomicUsize,
    /// By the id of the call that subscribed; set when it is to end.
    subscriptions: Mutex<BTreeMap<String, Arc<AtomicBool>>>,
    /// A file that is written here wakes all subscriptions.
    wake: tempfile::TempDir,
}

/// Serves one client until it closes stdin.
pub(crate) fn serve(context: &Context, call_verb: VerbCall) -> Outcome {
    ensemble_app::content::take_stdin();
    let session = Arc::new(ApiSession {
        call_verb,
        queue: context.queue_flag().map(std::path::Path::to_owned),
        agent: context.agent_flag().cloned(),
        calls: RunningCalls::begin(),
        running: AtomicUsize::new(0),
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

fn answer(id: Value, result: Value, outcome: Outcome) {
    let error = outcome.err().map(|failure| failure.into_line().error);
    write_line(&ApiAnswer { id, result, error });
}

impl ApiSession {
    /// Begins what a line asks for.
    fn begin_call(self: &Arc<Self>, line: Outcome<Vec<u8>>) {
        let call = line.and_then(|line| {
            serde_json::from_slice::<ApiCall>(&line)
                .map_err(|error| Failure::usage(format!("no call: {error}")))
        });
        match call {
            Ok(call) if !(call.id.is_string() || call.id.is_number()) => {
                answer(Value::Null, json!([]), Err(Failure::usage("`id` is a text or a number")));
            }
            Ok(call) if call.method == "subscribe" => self.subscribe(call),
            Ok(call) if call.method == "unsubscribe" => self.unsubscribe(&call),
            Ok(call) => self.call(call),
            Err(failure) => answer(Value::Null, json!([]), Err(failure)),
        }
    }

    /// Runs a call in its own thread.
    fn call(self: &Arc<Self>, call: ApiCall) {
        if self.running.fetch_add(1, Ordering::SeqCst) >= CALLS_MAX {
            self.running.fetch_sub(1, Ordering::SeqCst);
            let text = format!("{CALLS_MAX} calls are running");
            return answer(call.id, json!([]), Err(Failure::new(VerbExit::Busy, text)));
        }
        let session = Arc::clone(self);
        // Here and not in its thread: the end of stdin waits for each call that was read.
        self.calls.enter();
        std::thread::spawn(move || {
            let (result, outcome) = catch_unwind(AssertUnwindSafe(|| session.run(&call)))
                .unwrap_or_else(|_| {
                    (json!([]), Err(Failure::new(VerbExit::Corrupt, "a bug: see stderr")))
                });
            session.running.fetch_sub(1, Ordering::SeqCst);
            answer(call.id, result, outcome);
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

    /// Waits for news, at most for `timeout_seconds`.
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
        }
    }

    fn context(&self) -> Context {
        let globals =
            GlobalFlags { queue: self.queue.clone(), agent: self.agent.clone(), json: true };
        Context::called(globals, "admin api")
    }

    /// Follows a subject until it is unsubscribed, and reports its current state first.
    fn subscribe(self: &Arc<Self>, call: ApiCall) {
        let (key, is_over) = (call.id.to_string(), Arc::new(AtomicBool::new(false)));
        let opened = self.enlist(&key, &is_over).and_then(|()| {
            let source = news::SubscribeParams::read(&call.params)
                .and_then(|wanted| wanted.open(self.context(), self.wake.path()));
            source.inspect_err(|_| drop(self.subscriptions().remove(&key)))
        });
        let source = match opened {
            Ok(source) => source,
            Err(failure) => return answer(call.id, json!([]), Err(failure)),
        };
        answer(call.id.clone(), json!([]), Ok(()));
        let session = Arc::clone(self);
        std::thread::spawn(move || {
            if let Err(failure) = follow(source, &call.id, &is_over) {
                write_line(&SubscriptionEnd {
                    subscription: call.id,
                    error: failure.into_line().error,
                });
            }
            session.subscriptions().remove(&key);
        });
    }

    /// Takes a place for a subscription.
    fn enlist(&self, key: &str, is_over: &Arc<AtomicBool>) -> Outcome {
        let mut all = self.subscriptions();
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
        let key = call.params.get("subscription").map(Value::to_string).unwrap_or_default();
        let outcome = match self.subscriptions().get(&key) {
            Some(is_over) => {
                is_over.store(true, Ordering::SeqCst);
                Ok(())
            }
            None => Err(Failure::nothing(format!("there is no subscription {key}"))),
        };
        if outcome.is_ok() {
            // The sleeping thread looks at its flag now; without the file it would at its next regular look.
            let _ = tempfile::NamedTempFile::new_in(self.wake.path());
        }
        answer(call.id.clone(), json!([]), outcome);
    }

    fn subscriptions(&self) -> MutexGuard<'_, BTreeMap<String, Arc<AtomicBool>>> {
        self.subscriptions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells news until the subscription has ended.
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
