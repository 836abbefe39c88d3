//! Files that other programs put into the drop boxes of a queue: each goes to a closure, or to a mailbox.
//!
//! | a file | what follows |
//! |---|---|
//! | complete, and a route matches | the closure is called, or the message is stored; then the ledger has its version |
//! | the closure returns an error, or the mailbox is full or missing | it stays, and is tried again |
//! | the closure rejects it, it is complete and not valid YAML, or not a file | it goes to `rejected/`, with the reason beside it |
//! | it is not valid YAML, and its writer may still append to it | it stays, and is read again once it has changed |
//! | no route matches | it stays |
//! | it is handled, and the disk has no room for its line in the ledger | the line is written later |
//!
//! The ledger is written last. So a crash in between repeats the closure for that version; a message has an id made of
//! path and version, and is stored once.

use std::collections::HashSet;
use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{CallbackResult, CancelToken, IntoName, Queue, Report};
use crate::dropbox::{
    BoxFinding, BoxSpec, CompleteFile, DROP_BOXES, Ledger, LedgerEntry, OpenBoxes, PathPattern,
    RejectedFile, Routes, STATE_DIRECTORY, UnfitFile, WATCH_LOCK,
};
use crate::durable::{FileLock, make_directory};
use crate::env::{Clock as _, Monotonic, SystemClock};
use crate::event_log::types;
use crate::message::Name;
use crate::watch::{FsEvent, FsWatcher, POLL_WITHOUT_EVENTS, sleep_until_any};
use crate::{Error, Result};

/// The largest file that is read, in bytes.
const FILE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Maximum time between two listings of the boxes: file events are only a hint.
const POLL_INTERVAL: Duration = Duration::from_secs(30);
/// How soon a file is tried again whose closure failed.
const RETRY: Duration = Duration::from_secs(2);
/// How many listed files one look examines.
const FILES_A_LOOK: usize = 256;
/// How many files that wait are remembered, each with its error, so that each is recorded once.
const RECORDED_WAITING_MAX: usize = 1_000;
/// How many handled files may wait for room in the ledger.
const UNWRITTEN_MAX: usize = 1_000;
/// Maximum number of reads of file events in one look.
const READS_MAX: usize = 1_024;
/// How long another watcher of the queue is waited for.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
/// Actor of its log records.
const ACTOR: &str = "watcher";

/// Watches the drop boxes `reports/`, `tasks/` and `ack/` of a queue, where any program puts files.
///
/// Each version of a file is handled once. After a crash, a closure may be called again for the version that it was
/// working on; a message that [`deliver`](Self::deliver) stores is stored once. A file counts as a version once it is
/// complete: renamed into place, ended with the YAML end mark, or closed by its writer and quiet. One watcher works on
/// a queue at a time, `ensemble-watch` included; it keeps its ledger in `.ensemble/`, beside the queue.
///
/// ```
/// use ensemble_core::{CancelToken, Queue, Watcher};
/// # let home = tempfile::tempdir()?;
/// # std::env::set_current_dir(home.path())?;
/// let queue = Queue::open_or_create("queue")?;
/// let (lead, stop) = (queue.mailbox("lead")?, CancelToken::new()?);
/// # let stopper = stop.clone();
/// # std::fs::create_dir_all("queue/reports")?;
/// # std::fs::write("queue/reports/task-7-completed.yaml", "status: success\n...\n")?;
/// Watcher::new(&queue)?
///     .route("reports/*-completed.yaml", move |report| {
///         println!("{:?}: {:?}", report.stem(), report.field("status"));
/// #       stopper.cancel();
///         Ok(())
///     })
///     .deliver("reports/escalation-*.yaml", &lead)
///     .until(&stop)
///     .run()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "it watches in `run` or `look`"]
pub struct Watcher {
    queue: Queue,
    routes: Vec<WatchRoute>,
    cancel: Option<CancelToken>,
    poll_interval: Duration,
    /// The first mistake of a route, for the call that watches.
    mistake: Option<Error>,
    /// Opened with the first look, when the routes are known.
    boxes: Option<OpenBoxes>,
    /// Missing where the system has no file watches left.
    events: Option<FsWatcher>,
    ledger: Ledger,
    /// Handled files that the ledger does not have yet: the disk is full.
    unwritten: Vec<LedgerEntry>,
    scanned_at: Option<Monotonic>,
    recorded_waiting: HashSet<String>,
    _lock: FileLock,
}

struct WatchRoute {
    pattern: PathPattern,
    target: RouteTarget,
}

type ReportHandler = Box<dyn FnMut(&Report) -> CallbackResult + Send>;

enum RouteTarget {
    Closure(ReportHandler),
    Mailbox(Name),
}

impl Watcher {
    /// A watcher without routes. It holds the queue's watch lock until it is dropped.
    ///
    /// # Errors
    /// [`Error::Locked`] if another watcher works on the queue; or the directory beside it cannot be written.
    pub fn new(queue: &Queue) -> Result<Self> {
        let state = queue.root().parent().unwrap_or_else(|| Path::new("/")).join(STATE_DIRECTORY);
        make_directory(&state)?;
        let lock = FileLock::acquire(&state.join(WATCH_LOCK), LOCK_PATIENCE)?;
        Ok(Self {
            queue: queue.clone(),
            routes: Vec::new(),
            cancel: None,
            poll_interval: POLL_INTERVAL,
            mistake: None,
            boxes: None,
            events: FsWatcher::new().ok(),
            ledger: Ledger::open(&state)?,
            unwritten: Vec::new(),
            scanned_at: None,
            recorded_waiting: HashSet::new(),
            _lock: lock,
        })
    }

    /// Calls a closure for each version of each file that matches, such as `reports/*-completed.yaml`. The first route
    /// that matches decides. Where the closure returns an error, it is called again a little later.
    pub fn route(
        self,
        pattern: &str,
        handler: impl FnMut(&Report) -> CallbackResult + Send + 'static,
    ) -> Self {
        self.with_route(pattern, RouteTarget::Closure(Box::new(handler)))
    }

    /// Sends each version of each file that matches to a mailbox: exactly once, even after a crash. The message has the
    /// file's text as its body, or as its content where it is large.
    pub fn deliver(mut self, pattern: &str, to: impl IntoName) -> Self {
        match to.into_name() {
            Ok(name) => self.with_route(pattern, RouteTarget::Mailbox(name)),
            Err(error) => {
                self.mistake.get_or_insert(error);
                self
            }
        }
    }

    /// Ends [`run`](Self::run) once the token is cancelled.
    pub fn until(mut self, cancel: &CancelToken) -> Self {
        self.cancel = Some(cancel.clone());
        self
    }

    /// The longest time for which a file can stay unseen that raised no event; 30 s by default. Where the system has no
    /// file watches left, the boxes are listed five times a second. [`look`](Self::look) has an example.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.poll_interval = interval;
        self
    }

    /// Watches until the token of [`until`](Self::until) is cancelled; without one, it never returns. Blocks the thread.
    ///
    /// # Errors
    /// A route is not possible, or the queue is gone. A file that cannot be handled does not end it.
    pub fn run(&mut self) -> Result<()> {
        while !self.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
            self.look()?;
            self.sleep(self.next_look())?;
        }
        Ok(())
    }

    /// Handles what is complete now, and does not wait, for use in your event loop. Returns how many files were handled.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ensemble_core::{Queue, Watcher};
    /// # let home = tempfile::tempdir()?;
    /// # let queue = Queue::open_or_create(home.path().join("queue"))?;
    /// let watcher = Watcher::new(&queue)?.poll_interval(Duration::from_secs(5));
    /// let mut watcher = watcher.deliver("reports/*.yaml", &queue.mailbox("lead")?);
    /// for _turn_of_your_loop in 0..3 {
    ///     println!("{} files, the next look in {:?}", watcher.look()?, watcher.next_look());
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    pub fn look(&mut self) -> Result<usize> {
        self.mistake.take().map_or(Ok(()), Err)?;
        let now = SystemClock.monotonic();
        self.enter(None)?;
        self.open_boxes()?;
        let mut findings = self.take_events(now)?;
        let has_events = !findings.is_empty();
        self.list_files(now)?;
        if let Some(boxes) = &mut self.boxes {
            findings.extend(boxes.examine_due(now, FILES_A_LOOK, &mut self.ledger));
            if boxes.may_examine_listed(now, has_events) {
                findings.extend(boxes.examine_listed(now, FILES_A_LOOK, &mut self.ledger));
            }
            for error in boxes.take_failures() {
                self.record_waiting("reports", &error.to_string());
            }
        }
        let mut handled = 0;
        for finding in findings {
            handled += usize::from(self.handle_finding(now, finding)?);
        }
        Ok(handled)
    }

    /// The longest time until the next [`look`](Self::look) of your event loop.
    #[must_use]
    pub fn next_look(&self) -> Duration {
        let now = SystemClock.monotonic();
        let boxes = self.boxes.as_ref();
        if boxes.is_none_or(OpenBoxes::has_listed) {
            return Duration::ZERO;
        }
        let scan = self.scanned_at.map_or(now, |at| at + self.scan_interval());
        let due = boxes.and_then(OpenBoxes::next_due);
        due.map_or(scan, |due| due.min(scan)).since(now)
    }

    fn scan_interval(&self) -> Duration {
        match self.events {
            Some(_) => self.poll_interval,
            None => self.poll_interval.min(POLL_WITHOUT_EVENTS),
        }
    }

    fn with_route(mut self, pattern: &str, target: RouteTarget) -> Self {
        let is_box = |(name, _): (&str, &str)| DROP_BOXES.contains(&name);
        if !pattern.split_once('/').is_some_and(is_box) {
            let detail = format!("begin it with a drop box: {}", DROP_BOXES.join("/, "));
            let route = format!("the route `{pattern}`");
            self.mistake.get_or_insert_with(|| Error::invalid(route, "pattern", detail));
        }
        self.routes.push(WatchRoute { pattern: PathPattern::new(pattern), target });
        self
    }

    fn open_boxes(&mut self) -> Result<()> {
        if self.boxes.is_some() {
            return Ok(());
        }
        let boxes =
            OpenBoxes::open(self.queue.root(), &DROP_BOXES.map(BoxSpec::named), FILE_BYTES_MAX)?;
        if let Some(detail) = boxes.refused() {
            return Err(Error::malformed(self.queue.root(), "drop boxes", detail));
        }
        let mut is_watched = true;
        if let Some(events) = &mut self.events {
            // A box that is removed is still open here, so only the directory above it raises an event.
            let boxes = boxes.directories().map(|(directory, _)| directory);
            for directory in boxes.chain([self.queue.root()]) {
                // Another directory may have had this name before.
                events.unwatch(directory);
                is_watched &= events.watch(directory).is_ok();
            }
        }
        if !is_watched {
            self.events = None;
        }
        (self.boxes, self.scanned_at) = (Some(boxes), None);
        Ok(())
    }

    fn take_events(&mut self, now: Monotonic) -> Result<Vec<BoxFinding>> {
        let mut findings = Vec::new();
        for _ in 0..READS_MAX {
            let events = self.events.as_mut().map(FsWatcher::take_events).unwrap_or_default();
            if events.is_empty() {
                break;
            }
            for event in events {
                findings.extend(self.handle_event(now, event)?);
            }
        }
        Ok(findings)
    }

    fn handle_event(&mut self, now: Monotonic, event: FsEvent) -> Result<Option<BoxFinding>> {
        match event {
            FsEvent::Landed { dir, name, how } => {
                let Some(boxes) = &mut self.boxes else { return Ok(None) };
                let place = boxes.directories().find(|(path, _)| *path == dir);
                let Some(place) = place.map(|(_, place)| Arc::clone(place)) else {
                    return Ok(None);
                };
                return Ok(boxes.landed(now, &place, &name, how, &mut self.ledger));
            }
            FsEvent::Strange { .. } | FsEvent::Overflow => self.scanned_at = None,
            FsEvent::Left { .. } => {}
            FsEvent::Replaced { .. } => {
                self.boxes = None;
                self.open_boxes()?;
            }
            FsEvent::Failed { .. } => (self.events, self.scanned_at) = (None, None),
        }
        Ok(None)
    }

    /// Lists the boxes, if that is due.
    fn list_files(&mut self, now: Monotonic) -> Result<()> {
        let interval = self.scan_interval();
        if self.scanned_at.is_some_and(|at| now.since(at) < interval) {
            return Ok(());
        }
        if self.boxes.as_ref().is_some_and(|boxes| !boxes.are_current()) {
            self.boxes = None;
            self.open_boxes()?;
        }
        self.scanned_at = Some(now);
        let Some(boxes) = &mut self.boxes else { return Ok(()) };
        let strange = boxes.reject_strange();
        boxes.scan(now, &mut self.ledger)?;
        strange.iter().for_each(|file| self.record_rejected(file));
        Ok(())
    }

    /// Acts on one file. Returns whether it was handled.
    fn handle_finding(&mut self, now: Monotonic, finding: BoxFinding) -> Result<bool> {
        match finding {
            BoxFinding::Complete(file) => self.handle_file(now, file),
            BoxFinding::Unfit(unfit) => {
                if self.find_route(&unfit.path()).is_some() {
                    self.set_aside(now, &unfit);
                }
                Ok(false)
            }
            // The same content again is not another version.
            BoxFinding::Again(_, entry) => self.enter(Some(entry)).map(|()| false),
        }
    }

    fn find_route(&self, path: &str) -> Option<(usize, Option<String>)> {
        self.routes.iter().enumerate().find_map(|(index, route)| {
            let stars = route.pattern.stars(path)?;
            Some((index, stars.first().map(|star| (*star).to_owned())))
        })
    }

    fn handle_file(&mut self, now: Monotonic, file: CompleteFile) -> Result<bool> {
        let path = file.path();
        // It may have been handled since it was found: events and listings name a file twice.
        let next = self.ledger.next_version(&path, &file.stat, &file.content);
        let Some(entry) = next.filter(|entry| !self.unwritten.contains(entry)) else {
            return Ok(false);
        };
        let Some((route, stem)) = self.find_route(&path) else {
            let boxes = self.boxes.as_mut();
            if boxes.is_some_and(|boxes| boxes.note_unmatched(&file.box_name, &file.file)) {
                self.record(types::FILE_UNMATCHED, json!({ "file": path }));
            }
            return Ok(false);
        };
        match &mut self.routes[route].target {
            RouteTarget::Mailbox(name) => {
                let to = name.clone();
                match self.send(&file, &entry, to, stem) {
                    Ok(()) => self.enter(Some(entry)).map(|()| true),
                    Err(error) => {
                        self.try_again(now, &file, &error.to_string());
                        Ok(false)
                    }
                }
            }
            RouteTarget::Closure(handler) => {
                let id = entry.version_id();
                let report = Report::new(file, id.clone(), stem);
                let outcome = handler(&report);
                let (file, rejected) = report.into_verdict();
                match (outcome, rejected) {
                    (Err(error), _) => {
                        self.try_again(now, &file, &error.to_string());
                        Ok(false)
                    }
                    (Ok(()), Some(reason)) => {
                        let unfit = UnfitFile { is_final: true, ..file.into_unfit(reason) };
                        self.set_aside(now, &unfit);
                        Ok(true)
                    }
                    (Ok(()), None) => {
                        self.record(types::FILE_HANDLED, json!({ "file": path, "id": id }));
                        self.enter(Some(entry)).map(|()| true)
                    }
                }
            }
        }
    }

    /// Writes what was handled into the ledger, or tries again with the next look.
    fn enter(&mut self, handled: Option<LedgerEntry>) -> Result<()> {
        self.unwritten.extend(handled);
        match self.ledger.append(self.unwritten.clone()) {
            Err(error) if self.unwritten.len() < UNWRITTEN_MAX => {
                let path = self.unwritten.last().map_or_else(String::new, |it| it.path.clone());
                self.record_waiting(&path, &error.to_string());
            }
            entered => entered.map(|()| self.unwritten.clear())?,
        }
        Ok(())
    }

    fn send(
        &self,
        file: &CompleteFile,
        entry: &LedgerEntry,
        to: Name,
        stem: Option<String>,
    ) -> Result<()> {
        let (spool, path) = (self.queue.spool(), file.path());
        let known = Routes::new(&[])?.destination(&path).ok().flatten();
        let kind = known.as_ref().map(|destination| &destination.kind);
        let envelope = file.to_envelope(entry, to, kind, stem.as_deref(), spool)?;
        spool.publish(&envelope)?;
        self.record(types::FILE_ROUTED, json!({
            "file": path, "mailbox": envelope.to, "id": envelope.id, "type": envelope.kind, "task_id": envelope.task_id,
        }));
        Ok(())
    }

    fn try_again(&mut self, now: Monotonic, file: &CompleteFile, error: &str) {
        if let Some(boxes) = &mut self.boxes {
            boxes.retry(now, &file.box_name, &file.file, RETRY);
        }
        self.record_waiting(&file.path(), error);
    }

    fn set_aside(&mut self, now: Monotonic, unfit: &UnfitFile) {
        let rejected = self.boxes.as_mut().and_then(|boxes| boxes.set_aside(now, unfit));
        if let Some(rejected) = rejected {
            self.record_rejected(&rejected);
        }
    }

    fn record_rejected(&self, RejectedFile { path, kept_as, error }: &RejectedFile) {
        let data = json!({ "file": path, "kept_as": kept_as, "error": error, "told": [] });
        self.record(types::FILE_REJECTED, data);
    }

    /// Records once that a file cannot be handled at the moment.
    fn record_waiting(&mut self, path: &str, error: &str) {
        if self.recorded_waiting.len() >= RECORDED_WAITING_MAX {
            self.recorded_waiting.clear();
        }
        if self.recorded_waiting.insert(format!("{path}: {error}")) {
            self.record(types::FILE_WAITING, json!({ "file": path, "error": error }));
        }
    }

    fn record(&self, kind: &str, data: Value) {
        self.queue.spool().recorder().record(kind, ACTOR, data);
    }

    fn sleep(&self, longest: Duration) -> Result<()> {
        let events = self.events.as_ref().map(|events| events.as_fd());
        let cancel = self.cancel.as_ref().map(|token| token.as_fd());
        let sources: Vec<BorrowedFd<'_>> = events.into_iter().chain(cancel).collect();
        Ok(sleep_until_any(&sources, Some(longest)).map(drop)?)
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let routes: Vec<String> =
            self.routes.iter().map(|route| route.pattern.to_string()).collect();
        f.debug_struct("Watcher")
            .field("queue", &self.queue.root())
            .field("routes", &routes)
            .finish()
    }
}

#[cfg(test)]
mod tests;
