//! The test vectors of `conformance/`, and the judge that runs a client through one of them.
//!
//! ```text
//! lay out the case's files in an empty queue
//! make each call, and compare its answer and the body
//! compare the files, reasons and side files of leases that are left
//! ```
//!
//! conformance/README.md describes the members. This file uses nothing of the command, so a test of
//! `ensemble-core` runs the library through the same vectors.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ensemble_core::message::{Envelope, Name};
use ensemble_core::spool::{Spool, SpoolOptions};
use serde::Deserialize;
use serde_json::{Map, Value};

pub(crate) const MAILBOX: &str = "w";
/// How long a call may be repeated that waits for a delayed message.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// How far the time of a delayed message may be from the expected one, in milliseconds.
const DELAY_TOLERANCE_MS: u64 = 60_000;
/// The longest delay of a client that releases without a lock, in milliseconds.
const UNLOCKED_DELAY_MS: u64 = 10_000;

pub(crate) const FILES: [(&str, &str); 5] = [
    ("names", include_str!("names.json")),
    ("envelopes", include_str!("envelopes.json")),
    ("order", include_str!("order.json")),
    ("moves", include_str!("moves.json")),
    ("refusals", include_str!("refusals.json")),
];

pub(crate) trait TestedClient {
    /// Makes one call and returns the answer; an error is the text of a failure to answer.
    fn call(&mut self, call: &Value) -> Result<Value, String>;

    fn locks(&self) -> bool;
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VectorFile {
    #[allow(dead_code, reason = "for readers of the file")]
    about: String,
    pub(crate) cases: Vec<VectorCase>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VectorCase {
    pub(crate) name: String,
    /// Heading of PROTOCOL.md above the rule.
    pub(crate) section: String,
    /// The words of PROTOCOL.md that the case checks.
    pub(crate) rule: String,
    settings: Option<String>,
    mode: Option<u32>,
    /// Files below the mailbox.
    #[serde(default)]
    files: Vec<LaidFile>,
    #[serde(default)]
    queue_files: Vec<LaidFile>,
    steps: Vec<CaseStep>,
    after: Vec<String>,
    #[serde(default)]
    reasons: Vec<ReasonCheck>,
    leases: Option<Vec<ExtensionCheck>>,
    overflow: Option<Map<String, Value>>,
    /// Fields of messages as our reader reads them.
    #[serde(default)]
    stored: Vec<Map<String, Value>>,
    /// The client may also make the message a dead letter.
    #[serde(default)]
    odd: bool,
    /// Only for clients that take `gate.lock`.
    #[serde(default)]
    locks: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LaidFile {
    path: String,
    text: Option<String>,
    hex: Option<String>,
    link: Option<PathBuf>,
    /// Modification time, in seconds since 1970.
    modified: Option<u64>,
    fill: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseStep {
    call: Map<String, Value>,
    answer: Map<String, Value>,
    /// The body to send, or the one to receive.
    body: Option<String>,
    /// Repeats the body, or its `@FILL@`, this many times.
    times: Option<usize>,
    #[serde(default)]
    patient: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReasonCheck {
    id: String,
    begins: String,
    holder: String,
    epoch: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExtensionCheck {
    id: String,
    epoch: u64,
    sequence: u64,
    seconds: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CaseVerdict {
    Passed,
    /// The client made a legal but odd envelope a dead letter, which it may.
    Refused,
    Skipped,
    Failed(String),
}

pub(crate) fn all() -> Vec<(&'static str, VectorCase)> {
    let parse = |(file, text): &(&'static str, &str)| {
        let vectors: VectorFile = serde_json::from_str(text).expect("the vectors are embedded");
        let file = *file;
        vectors.cases.into_iter().map(move |case| (file, case))
    };
    FILES.iter().flat_map(parse).collect()
}

/// Runs one vector in its own queue below `home`. `open` starts the client on that queue.
pub(crate) fn judge<S: TestedClient>(
    case: &VectorCase,
    home: &Path,
    open: impl FnOnce(&Path) -> Result<S, String>,
) -> CaseVerdict {
    let queue = home.join("queue");
    if let Err(error) = case.lay_out(&queue) {
        return CaseVerdict::Failed(format!("the case cannot be laid out: {error}"));
    }
    let mut subject = match open(&queue) {
        Ok(subject) => subject,
        Err(error) => return CaseVerdict::Failed(error),
    };
    if case.locks && !subject.locks() {
        return CaseVerdict::Skipped;
    }
    let locks = subject.locks();
    let mut run = CaseRun { case, queue: &queue, home, locks, ids: Vec::new() };
    match run.steps(&mut subject).and_then(|()| run.left()) {
        Ok(()) => CaseVerdict::Passed,
        Err(_) if case.odd && run.is_refused() => CaseVerdict::Refused,
        Err(failure) => CaseVerdict::Failed(failure),
    }
}

impl VectorCase {
    fn lay_out(&self, queue: &Path) -> std::io::Result<()> {
        let mailbox = queue.join("mailbox").join(MAILBOX);
        for state in ["new", "front", "cur", "done", "dead", "lease", "../../tmp"] {
            fs::create_dir_all(mailbox.join(state))?;
        }
        self.files.iter().try_for_each(|laid| laid.write(&mailbox))?;
        self.queue_files.iter().try_for_each(|laid| laid.write(queue))?;
        if let Some(settings) = &self.settings {
            fs::write(mailbox.join("mailbox.yaml"), settings)?;
        }
        fs::set_permissions(queue, Permissions::from_mode(0o700))?;
        fs::set_permissions(&mailbox, Permissions::from_mode(self.mode.unwrap_or(0o700)))
    }
}

impl LaidFile {
    fn write(&self, dir: &Path) -> std::io::Result<()> {
        let path = dir.join(&self.path);
        fs::create_dir_all(path.parent().unwrap_or(dir))?;
        if let Some(link) = &self.link {
            return std::os::unix::fs::symlink(link, &path);
        }
        let content = match (&self.text, &self.hex) {
            (_, Some(hex)) => bytes(hex),
            (text, None) => {
                let letters = "x".repeat(self.fill.unwrap_or(0));
                text.as_deref().unwrap_or_default().replace("@FILL@", &letters).into_bytes()
            }
        };
        fs::write(&path, content)?;
        let Some(seconds) = self.modified else { return Ok(()) };
        File::options()
            .write(true)
            .open(&path)?
            .set_modified(UNIX_EPOCH + Duration::from_secs(seconds))
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap_or_default());
    pairs.filter_map(|pair| u8::from_str_radix(pair, 16).ok()).collect()
}

struct CaseRun<'a> {
    case: &'a VectorCase,
    queue: &'a Path,
    home: &'a Path,
    locks: bool,
    /// Ids in the answers so far; `{1}` is the first.
    ids: Vec<String>,
}

impl CaseRun<'_> {
    fn steps(&mut self, subject: &mut dyn TestedClient) -> Result<(), String> {
        for (number, step) in (1..).zip(&self.case.steps) {
            let verb = step.call["op"].as_str().unwrap_or_default();
            let made = self.step(step, subject);
            made.map_err(|failure| format!("call {number}, {verb}: {failure}"))?;
        }
        Ok(())
    }

    fn step(&mut self, step: &CaseStep, subject: &mut dyn TestedClient) -> Result<(), String> {
        let body_file = self.home.join("body");
        let body = step.body.as_deref().map(|body| step.repeated(body));
        let mut call = step.call.clone();
        call.values_mut().for_each(|value| self.fill_in(value));
        call.entry("mailbox").or_insert_with(|| MAILBOX.into());
        let is_send = call["op"] == "send";
        if is_send || call["op"] == "receive" {
            let content = if is_send { body.clone().unwrap_or_default() } else { String::new() };
            fs::write(&body_file, content).map_err(text)?;
            call.insert("body_file".to_owned(), body_file.display().to_string().into());
        }
        let call = Value::Object(call);
        let start = Instant::now();
        let mut answer = subject.call(&call)?;
        while step.patient && answer.get("id").is_none() && start.elapsed() < PATIENCE {
            std::thread::sleep(LOOK_INTERVAL);
            answer = subject.call(&call)?;
        }
        self.ids.push(answer["id"].as_str().unwrap_or_default().to_owned());
        for (key, expected) in &step.answer {
            let mut expected = expected.clone();
            self.fill_in(&mut expected);
            let given = answer.get(key).unwrap_or(&Value::Null);
            if !agrees(&expected, given) {
                return Err(format!("`{key}` should be {expected}, the answer is {answer}"));
            }
        }
        match body.filter(|_| !is_send) {
            Some(body) if fs::read(&body_file).ok().as_deref() != Some(body.as_bytes()) => {
                let given = fs::read(&body_file).unwrap_or_default();
                let given: String = String::from_utf8_lossy(&given).chars().take(200).collect();
                Err(format!("the body should be {body:?}, it is {given:?}"))
            }
            _ => Ok(()),
        }
    }

    fn fill_in(&self, value: &mut Value) {
        if let Value::String(text) = value {
            *text = self.with_ids(text);
        }
    }

    fn with_ids(&self, text: &str) -> String {
        (1..)
            .zip(&self.ids)
            .fold(text.to_owned(), |text, (n, id)| text.replace(&format!("{{{n}}}"), id))
    }

    fn left(&self) -> Result<(), String> {
        let found = self.messages()?;
        let mut missing: Vec<String> =
            self.case.after.iter().map(|file| self.with_ids(file)).collect();
        let mut extra = found.clone();
        extra.retain(|file| match missing.iter().position(|wanted| self.is_file(wanted, file)) {
            Some(at) => {
                missing.remove(at);
                false
            }
            None => true,
        });
        if !missing.is_empty() || !extra.is_empty() {
            return Err(format!("expected the files {missing:?}, found {extra:?} in their place"));
        }
        let tmp = names(&self.queue.join("tmp"));
        if !tmp.is_empty() {
            return Err(format!("tmp/ has {tmp:?} left"));
        }
        self.reasons()?;
        self.leases()?;
        self.overflow()?;
        self.stored(&found)
    }

    fn mailbox(&self) -> PathBuf {
        self.queue.join("mailbox").join(MAILBOX)
    }

    /// Files below the five states, without reasons and second copies.
    fn messages(&self) -> Result<Vec<String>, String> {
        let mut found = Vec::new();
        for state in ["new", "front", "cur", "done", "dead"] {
            let dir = self.mailbox().join(state);
            let is_message =
                |name: &String| !name.ends_with("@reason.yaml") && !name.contains("@double.");
            let listed = names(&dir).into_iter().filter(is_message);
            found.extend(listed.map(|name| format!("{state}/{name}")));
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Whether a file has a name of this form; `{due}` and `{+MS}` stand for a time of receipt.
    fn is_file(&self, form: &str, file: &str) -> bool {
        let Some((before, rest)) = form.split_once('{') else { return form == file };
        let Some((word, after)) = rest.split_once('}') else { return false };
        let digits = file.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
        let Some(due) = digits.and_then(|digits| digits.parse::<u64>().ok()) else { return false };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        match word.strip_prefix('+').and_then(|delay| delay.parse::<u64>().ok()) {
            Some(delay) => due.abs_diff(now + delay) < DELAY_TOLERANCE_MS,
            None if self.locks => due == 0,
            None => due.abs_diff(now) < UNLOCKED_DELAY_MS,
        }
    }

    /// The queue and the mailbox as our library reads them.
    fn read_by_us(&self) -> Result<(Spool, Name), String> {
        let spool = Spool::open(self.queue, SpoolOptions::default()).map_err(text)?;
        Ok((spool, Name::new(MAILBOX).map_err(text)?))
    }

    fn reasons(&self) -> Result<(), String> {
        if self.case.reasons.is_empty() {
            return Ok(());
        }
        let (spool, mailbox) = self.read_by_us()?;
        let letters = spool.dead_letters(&mailbox).map_err(text)?;
        for wanted in &self.case.reasons {
            let id = self.with_ids(&wanted.id);
            let letter = letters.iter().find(|letter| letter.id.as_str() == id);
            let Some(letter) = letter else { return Err(format!("{id} is not a dead letter")) };
            let holder = letter.holder.as_ref().map_or("", |holder| holder.as_str());
            let agrees = letter.reason.starts_with(&wanted.begins)
                && (holder, letter.epoch) == (&*wanted.holder, wanted.epoch)
                && letter.at.is_some();
            if !agrees {
                return Err(format!("the reason should be {wanted:?}, it is {letter:?}"));
            }
        }
        Ok(())
    }

    fn leases(&self) -> Result<(), String> {
        let Some(wanted) = &self.case.leases else { return Ok(()) };
        let files = names(&self.mailbox().join("lease"));
        if files.len() != wanted.len() {
            return Err(format!("lease/ should have {wanted:?}, it has {files:?}"));
        }
        let (spool, mailbox) = self.read_by_us()?;
        let seen = spool.observe(&mailbox).map_err(text)?;
        for lease in wanted {
            let agrees = seen.iter().any(|seen| {
                (seen.lease.id.as_str(), seen.lease.epoch) == (&*lease.id, lease.epoch)
                    && (seen.sequence, seen.duration.as_secs()) == (lease.sequence, lease.seconds)
            });
            if !agrees {
                return Err(format!("an observer should see {lease:?}, it sees {seen:?}"));
            }
        }
        Ok(())
    }

    fn overflow(&self) -> Result<(), String> {
        let Some(wanted) = &self.case.overflow else { return Ok(()) };
        let (spool, mailbox) = self.read_by_us()?;
        let found = spool.overflow(&mailbox).map_err(text)?;
        let found = serde_json::to_value(&found).unwrap_or_default();
        match wanted.iter().all(|(key, value)| found.get(key) == Some(value)) {
            true => Ok(()),
            false => Err(format!("overflow.yaml should have {wanted:?}, it has {found}")),
        }
    }

    fn stored(&self, found: &[String]) -> Result<(), String> {
        for wanted in &self.case.stored {
            let id = self.with_ids(wanted["id"].as_str().unwrap_or_default());
            let file = found.iter().find(|file| {
                let name = file.split('/').next_back().unwrap_or_default();
                name.strip_prefix(&*id).is_some_and(|rest| rest.starts_with(['.', '@']))
            });
            let Some(file) = file else { return Err(format!("no file holds {id}")) };
            let path = self.mailbox().join(file);
            let content = fs::read(&path).map_err(text)?;
            let plain = PathBuf::from(format!("{id}.yaml"));
            let envelope = Envelope::decode(&content, &plain).map_err(text)?;
            let read = serde_json::to_value(&envelope).unwrap_or_default();
            for (key, value) in wanted.iter().filter(|(key, _)| *key != "id") {
                if read.get(key) != Some(value) {
                    return Err(format!(
                        "`{key}` should be stored as {value}, a reader reads {read}"
                    ));
                }
            }
            let mode = fs::metadata(&path).map_err(text)?.permissions().mode();
            if mode & 0o777 != 0o600 {
                return Err(format!("the file has mode {:o}", mode & 0o777));
            }
        }
        Ok(())
    }

    fn is_refused(&self) -> bool {
        let dead = self.messages().unwrap_or_default();
        let Ok((spool, mailbox)) = self.read_by_us() else { return false };
        let letters = spool.dead_letters(&mailbox).unwrap_or_default();
        dead.iter().all(|file| file.starts_with("dead/"))
            && letters.len() == 1
            && letters.iter().all(|letter| letter.reason.starts_with("malformed: "))
    }
}

impl CaseStep {
    fn repeated(&self, body: &str) -> String {
        match self.times {
            None => body.to_owned(),
            Some(times) if body.contains("@FILL@") => body.replace("@FILL@", &"x".repeat(times)),
            Some(times) => body.repeat(times),
        }
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Whether an answer's member is as expected. Words of errors are alternatives, divided by `|`.
fn agrees(expected: &Value, given: &Value) -> bool {
    match (expected, given) {
        (Value::String(words), Value::String(word)) if words.contains('|') => {
            words.split('|').any(|expected| expected == word)
        }
        (Value::Number(expected), Value::Number(given)) => expected.as_u64() == given.as_u64(),
        _ => expected == given,
    }
}

/// The names in a directory; none if it cannot be listed.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
