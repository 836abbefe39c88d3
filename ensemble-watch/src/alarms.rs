//! Alarms of the blackboard. `board::conditions` lists the conditions, `proto::alarm` decides when
//! to report one. This module writes the record and sends a message to the planner, each once for
//! an occurrence.
//!
//! ```text
//! an event in the board's directory, the poll interval, or the end of a grace period
//!   stat state.yaml           read again only if the file changed since the last look
//!   Raise                     message (its id follows from the occurrence), record alarm.raised, then
//!                             alarms.json: after a crash the repeated message is stored once
//!   Forget                    alarms.json, so that it stays small
//! an agent that has ended with work in its hands
//!   happened                  message, record, alarms.json, as for Raise, once
//! ```
//!
//! A message that cannot be stored is retried at each scan, also by the next watcher, and also while no
//! recipient has a mailbox. An unreadable board is an alarm, too, and clears no other alarm.
//!
//! A look also does what the board needs after it or a control file has changed ([`BoardUpkeep`]). Supervisors do the
//! same, but there may be none.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ensemble_core::durable::{Dir, FileStat};
use ensemble_core::env::Monotonic;
use ensemble_core::event_log::types;
use ensemble_core::message::{Envelope, MessageId, Name, yaml};
use ensemble_core::proto::Machine as _;
use ensemble_core::{Error, Result};
use ensemble_project::alarm_list::{AlarmList, UnsentAlarm};
use ensemble_project::status::ACTOR;
use ensemble_project::troubles;
use ensemble_team::board::{
    Alarm, AlarmCondition, AlarmKey, Board, BoardError, FILE_NAME, State, conditions, is_missing,
    stale,
};
use ensemble_team::driver::BoardUpkeep;
use ensemble_team::proto::alarm::{AlarmWatch, Effect, Event};
use serde_json::json;

use crate::answers::NOTICE_DIGITS;
use crate::board_leases;
use crate::context::WatchContext;

const ALARM_TYPE: &str = "board.alarm";
const USUAL_RECIPIENT: &str = "conductor";
/// Received before messages of default priority.
const PRIORITY: u8 = 1;
const TEXT_CHARS_MAX: usize = 1_000;
/// Files in the board's directory whose change triggers a look.
pub(crate) const WATCHED_FILES: [&str; 4] = [FILE_NAME, "PAUSE", "CHECKPOINT", "ABORT"];

struct ReadBoard {
    path: PathBuf,
    stat: FileStat,
    state: Result<State, String>,
}

pub(crate) struct AlarmReporter {
    context: Arc<WatchContext>,
    watch: AlarmWatch<AlarmKey>,
    interval: Duration,
    next_look: Monotonic,
    read: Option<ReadBoard>,
    /// The present conditions, in words.
    texts: BTreeMap<AlarmKey, String>,
    /// Alarms whose message is not stored yet, with their texts.
    unsent: BTreeMap<AlarmKey, String>,
    is_unsaved: bool,
}

impl AlarmReporter {
    /// Continues from the state of the previous watcher.
    pub(crate) fn open(now: Monotonic, context: &Arc<WatchContext>) -> Self {
        let project = &context.project;
        let (mut watch, mut unsent) = (AlarmWatch::new(), BTreeMap::new());
        match AlarmList::read(&project.state) {
            Ok(list) => {
                for key in list.raised {
                    watch.handle(now, Event::Told { key });
                }
                unsent.extend(list.unsent.into_iter().map(|UnsentAlarm { key, text }| (key, text)));
            }
            // The watcher raises old alarms again, under the same ids.
            Err(error) => tracing::warn!(%error, "cannot read the list of raised alarms"),
        }
        Self {
            context: Arc::clone(context),
            watch,
            interval: project.config.poll_interval(),
            next_look: now,
            read: None,
            texts: BTreeMap::new(),
            unsent,
            is_unsaved: false,
        }
    }

    pub(crate) fn changed(&mut self, now: Monotonic) {
        self.next_look = now;
    }

    pub(crate) fn next_timeout(&self) -> Monotonic {
        self.watch.poll_timeout().map_or(self.next_look, |due| due.min(self.next_look))
    }

    pub(crate) fn summary(&self) -> serde_json::Value {
        json!({ "raised": self.watch.raised().count(), "untold": self.unsent.len() })
    }

    /// Looks if a look is due. Returns whether it raised an alarm.
    pub(crate) fn drive(&mut self, now: Monotonic) -> bool {
        if now < self.next_timeout() {
            return false;
        }
        self.watch.handle_timeout(now);
        self.next_look = now + self.interval;
        if let Err(error) = self.check_conditions(now) {
            tracing::warn!(%error, "cannot read the blackboard");
            self.watch.handle(now, Event::Blind);
        }
        let mut changed = false;
        while let Some(effect) = self.watch.poll_effect() {
            match effect {
                // The previous call did this.
                Effect::Look => {}
                Effect::Raise { key } => {
                    let text = self.texts.get(&key).cloned().unwrap_or_default();
                    self.report(&key, &text);
                    changed = true;
                }
                Effect::Forget { key } => {
                    self.unsent.remove(&key);
                    changed = true;
                }
            }
        }
        let unsent = std::mem::take(&mut self.unsent);
        let before = unsent.len();
        for (key, text) in unsent {
            self.send(&key, &text);
        }
        if changed || self.is_unsaved || self.unsent.len() < before {
            self.save_unsent();
        }
        changed
    }

    /// Reports a condition that no look sees: it has happened, and has ended.
    pub(crate) fn happened(&mut self, condition: &AlarmCondition) {
        self.report(&condition.key, &condition.text);
        if self.unsent.contains_key(&condition.key) {
            self.save_unsent();
        }
    }

    fn report(&mut self, key: &AlarmKey, text: &str) {
        let sent_to = self.send(key, text);
        let data = json!({
            "alarm": key.alarm, "about": key.about, "id": message_id(key),
            "text": shortened(text), "told": sent_to,
        });
        self.context.record(types::ALARM_RAISED, data);
    }

    fn check_conditions(&mut self, now: Monotonic) -> Result<()> {
        let board = match board_leases::find(&self.context) {
            Ok(board) => board,
            Err(error) if is_missing(&error) => {
                self.read = None;
                self.texts.clear();
                self.watch.handle(now, Event::LookDone);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let directory = board.path().parent().unwrap_or_else(|| Path::new("."));
        let stat = Dir::open(directory)?.stat(FILE_NAME)?;
        let missing = || BoardError::Missing { path: board.path().to_owned() };
        let stat = stat.ok_or_else(missing)?;
        if self.read.as_ref().is_none_or(|read| read.stat != stat) {
            let state = board.read().map_err(|error| error.to_string());
            self.read = Some(ReadBoard { path: board.path().to_owned(), stat, state });
        }
        if let Some(ReadBoard { state: Ok(state), .. }) = &self.read
            && !board.is_shared()
        {
            look_after(&board, state);
        }
        let mut found = stale(&board.controls()?, self.context.spool.now());
        let graces = self.context.project.config.alarms.graces();
        let is_whole = match self.read.as_ref().map(|read| &read.state) {
            Some(Ok(state)) => {
                found.extend(conditions(state, graces));
                true
            }
            Some(Err(error)) => {
                found.push(AlarmCondition::invalid(stat.modified_ns, error));
                false
            }
            None => false,
        };
        if is_whole {
            self.texts.clear();
        }
        for AlarmCondition { key, grace, text } in found {
            self.texts.insert(key.clone(), text);
            self.watch.handle(now, Event::Seen { key, grace });
        }
        self.watch.handle(now, if is_whole { Event::LookDone } else { Event::Blind });
        Ok(())
    }

    /// Stores the message. Returns the recipient.
    fn send(&mut self, key: &AlarmKey, text: &str) -> Option<Name> {
        let spool = &self.context.spool;
        let state = self.read.as_ref().and_then(|read| read.state.as_ref().ok());
        let help = match &self.read {
            Some(read) if key.alarm == Alarm::InvalidState => troubles::board_help(&read.path),
            _ => troubles::help(key.alarm, &key.about),
        };
        let sent = recipient(&self.context, state).and_then(|to| match to {
            Some(to) => spool.publish(&envelope(key, text, &help, to.clone())?).map(|_| Some(to)),
            None => {
                self.unsent.insert(key.clone(), text.to_owned());
                Ok(None)
            }
        });
        sent.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot store an alarm's message yet");
            self.unsent.insert(key.clone(), text.to_owned());
            None
        })
    }

    /// Each look tries it again until it succeeds.
    fn save_unsent(&mut self) {
        let unsent = self.unsent.iter();
        let unsent = unsent.map(|(key, text)| UnsentAlarm { key: key.clone(), text: text.clone() });
        let list = AlarmList::new(self.watch.raised().cloned().collect(), unsent.collect());
        let written = list.write(&self.context.project.state);
        self.is_unsaved = written.is_err();
        if let Err(error) = written {
            tracing::warn!(%error, "cannot write the list of raised alarms");
        }
    }
}

/// Does what is due on the board. Its writes trigger another look.
fn look_after(board: &Board, state: &State) {
    match BoardUpkeep::new(board.clone()).do_due_work(state) {
        // Another process writes, and its write triggers another look.
        Ok(_) | Err(Error::Locked { .. }) => {}
        Err(error) => tracing::warn!(%error, "cannot watch the blackboard"),
    }
}

/// The recipient: the first with a mailbox of the configured one, the planners of the board, and the default one.
fn recipient(context: &WatchContext, state: Option<&State>) -> Result<Option<Name>> {
    let WatchContext { project, spool, .. } = context;
    let mailboxes = spool.mailboxes()?;
    let planners = state.into_iter().flat_map(|state| {
        let planners =
            state.agents.iter().filter(|(_, agent)| agent.role.as_deref() == Some("planner"));
        planners.map(|(name, _)| name.clone())
    });
    let configured = project.config.alarms.to.clone().into_iter();
    let wanted = configured.chain(planners).chain(Name::new(USUAL_RECIPIENT));
    Ok(wanted.map(|name| project.mailbox_of(&name)).find(|name| mailboxes.contains(name)))
}

fn message_id(key: &AlarmKey) -> String {
    format!("alarm-{}", &key.digest()[..NOTICE_DIGITS])
}

fn shortened(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).collect()
}

fn envelope(key: &AlarmKey, text: &str, help: &str, to: Name) -> Result<Envelope> {
    let fields =
        json!({ "alarm": key.alarm, "about": key.about, "text": shortened(text), "help": help });
    let advice =
        "# See `ensemble board show`; `ensemble board prompt --role planner` says what to do.\n";
    Ok(Envelope::new(to, format!("{advice}{}", yaml::render(&fields)))
        .with_id(MessageId::new(message_id(key))?)
        .with_kind(Name::new(ALARM_TYPE)?)
        .from(Name::new(ACTOR)?)
        .with_priority(PRIORITY))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ensemble_core::env::Clock as _;
    use ensemble_core::event_log::{NullRecorder, Recorder};
    use ensemble_core::message::Timestamp;
    use ensemble_core::sim::SimClock;
    use ensemble_core::spool::{Settings, Spool, SpoolOptions};
    use ensemble_project::Project;
    use ensemble_team::board::{ActiveControl, BoardOptions, ControlFile, INVALID_GRACE};

    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn a_pause_does_not_look_old_because_the_wall_clock_was_set() {
        let home = tempfile::tempdir().unwrap();
        let clock = SimClock::new(Timestamp::from_unix_millis(1_800_000_000_000));
        let options = SpoolOptions { clock: Arc::new(clock.clone()), ..SpoolOptions::default() };
        let spool = Arc::new(Spool::create(&home.path().join("queue"), options).unwrap());
        let project = Project::discover(Some(spool.root())).unwrap();
        project.ensure_state().unwrap();
        let board = Board::create(project.root(), BoardOptions::new("test")).unwrap();
        let conductor = Name::new(USUAL_RECIPIENT).unwrap();
        spool.add_mailbox(&conductor, &Settings::default()).unwrap();
        assert_eq!(spool.now(), clock.wall(), "its calendar begins");
        let put_at = clock.wall();
        ActiveControl::put(&project.state, ControlFile::Pause, put_at, "lunch").unwrap();
        let recorder: Arc<dyn Recorder> = Arc::new(NullRecorder);
        let context = WatchContext { project, spool: Arc::clone(&spool), recorder };
        let mut alarms = AlarmReporter::open(clock.monotonic(), &Arc::new(context));
        let mut raised = || {
            alarms.changed(clock.monotonic());
            alarms.drive(clock.monotonic());
            alarms.watch.raised().map(|key| key.alarm).collect::<Vec<_>>()
        };
        let before = raised();
        for wall in [clock.wall().plus(8 * DAY), Timestamp::from_unix_millis(0)] {
            clock.set_wall(wall);
            assert_eq!(raised(), before);
            clock.set_wall(put_at);
        }
        clock.advance(Duration::from_secs(60 * 60));
        assert!(raised().contains(&Alarm::PauseStale));
        // Its message says what to do about a directory in the place of the board.
        std::fs::remove_file(board.path()).unwrap();
        std::fs::create_dir(board.path()).unwrap();
        raised();
        clock.advance(INVALID_GRACE);
        assert!(raised().contains(&Alarm::InvalidState));
        let mut told = std::iter::from_fn(|| spool.receive(&conductor, &conductor).unwrap());
        assert!(told.any(|it| it.envelope.body.contains("away, then `ensemble board init`")));
    }
}
