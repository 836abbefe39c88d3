//! The ladder of one delivery on disk: `.ensemble/ladders/<mailbox>@<message>.yaml`.
//!
//! Only the process that holds `.ensemble/locks/ladder-<mailbox>.lock` changes the files of a mailbox. Each
//! change replaces the whole file, so a reader sees the old or the new one. A file that cannot be read is
//! one of a ladder that has not begun: its message is found again and gets a new one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::escalation::Notice;
use crate::Result;
use crate::durable::{self, Dir, Durability, FileLock};
use crate::env::{Clock, boot_id, millis};
use crate::error::allow_missing;
use crate::message::{MessageId, Name, yaml};
use crate::proto::ack::{Ladder, Phase, SavedLadder, WorkerActivity};

pub const LADDERS_DIRECTORY: &str = "ladders";
/// The largest such file, in bytes.
const BYTES_MAX: usize = 64 * 1024;
const SUFFIX: &str = ".yaml";
/// How many escalated ladders of a mailbox other hosts know.
const GIVEN_UP_MAX: usize = 32;
/// By how much a stamp may differ from the same moment read later, in milliseconds.
const CLOCK_NOISE_MS: u64 = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LadderState {
    /// It has not begun: another task comes first, the worker holds one, or a plan waits for approval.
    Behind,
    /// A phase runs, or the worker is waited for.
    Open,
    /// The notice for the conductor is final and is being written.
    Escalating,
    /// The conductor was notified; the message still waits.
    Escalated,
    /// The worker has received the message.
    Acked,
}

impl LadderState {
    /// Whether something is still to happen by itself.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Behind | Self::Open | Self::Escalating)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LadderFile {
    pub message: MessageId,
    pub mailbox: Name,
    /// The agent whose ack is waited for.
    pub worker: Name,
    /// The task; the message's id for a message that names none.
    pub task: String,
    pub from: Name,
    pub state: LadderState,
    /// The phase, 0 to 3.
    pub phase: u8,
    /// The attempt, which grows with a reset of the worker's context.
    pub attempt: u32,
    /// How often the message had been received before this ladder.
    pub epoch: u64,
    /// The worker's activity while the ladder waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// The boot in which the two times below were read.
    pub boot: String,
    /// When the phase began, in milliseconds of the boot-time clock.
    pub phase_began_ms: u64,
    /// When the ladder began, in milliseconds of the boot-time clock.
    pub began_ms: u64,
    /// The version of the `ack/` file that existed before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ack_before: Option<String>,
    /// The message before this one, which a reset has replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<MessageId>,
    /// The text of the escalation file, once it is decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalation: Option<String>,
}

pub(super) fn boot_ms(clock: &dyn Clock) -> u64 {
    millis(clock.boottime().as_duration())
}

impl LadderFile {
    pub(super) fn new(
        (mailbox, message): (Name, MessageId),
        worker: Name,
        task: String,
        from: Name,
        clock: &dyn Clock,
    ) -> Self {
        let now = boot_ms(clock);
        Self {
            message,
            mailbox,
            worker,
            task,
            from,
            state: LadderState::Behind,
            phase: 0,
            attempt: 1,
            epoch: 0,
            waits_for: None,
            ack_before: None,
            boot: boot_id().to_owned(),
            phase_began_ms: now,
            began_ms: now,
            replaced: None,
            escalation: None,
        }
    }

    /// The ladder has not begun, since the worker has shown that it lives.
    pub(super) fn put_back(&mut self, clock: &dyn Clock) {
        let now = boot_ms(clock);
        (self.state, self.phase, self.waits_for) = (LadderState::Behind, 0, None);
        self.boot = boot_id().to_owned();
        (self.phase_began_ms, self.began_ms) = (now, now);
        (self.replaced, self.escalation) = (None, None);
    }

    /// The state with which another process continues.
    pub(super) fn saved(&self, clock: &dyn Clock) -> SavedLadder {
        if self.boot != boot_id() {
            return SavedLadder::default();
        }
        let since = |then: u64| Duration::from_millis(boot_ms(clock).saturating_sub(then));
        let phase = Phase::of_number(self.phase).unwrap_or(Phase::Deliver);
        let waits_for = self.waits_for.as_deref().and_then(WorkerActivity::of_word);
        SavedLadder::new(phase, waits_for, since(self.phase_began_ms), since(self.began_ms))
    }

    pub(super) fn update(&mut self, ladder: &Ladder, clock: &dyn Clock) {
        let (now, boot) = (clock.monotonic(), boot_ms(clock));
        let ago = |then| boot.saturating_sub(millis(now.since(then)));
        // Of two readings of two clocks, some milliseconds are noise.
        let is_near = |kept: u64, now: u64| kept.abs_diff(now) < CLOCK_NOISE_MS;
        let (phase_began, began) = (ago(ladder.phase_began()), ago(ladder.began()));
        if self.boot != boot_id() || !is_near(self.phase_began_ms, phase_began) {
            self.phase_began_ms = phase_began;
        }
        if self.boot != boot_id() || !is_near(self.began_ms, began) {
            self.began_ms = began;
        }
        (self.state, self.boot) = (LadderState::Open, boot_id().to_owned());
        (self.phase, self.attempt) = (ladder.phase().number(), ladder.attempt());
        self.waits_for = ladder.waits_for().map(|worker| worker.word().to_owned());
    }

    /// For how long the worker has shown no sign of life.
    pub(super) fn waited(&self, clock: &dyn Clock) -> Duration {
        match self.boot == boot_id() {
            true => Duration::from_millis(boot_ms(clock).saturating_sub(self.began_ms)),
            false => Duration::ZERO,
        }
    }

    /// Fixes the notice for the conductor, so that a process that continues after a crash writes
    /// the same one.
    pub(super) fn decide(&mut self, notice: &Notice) {
        self.state = LadderState::Escalating;
        self.escalation = Some(yaml::render(notice));
    }
}

#[derive(Clone, Debug)]
pub struct LadderStore {
    state: PathBuf,
}

impl LadderStore {
    /// The ladders below a state directory, `.ensemble/`. Nothing is opened or made yet.
    pub fn new(state: &Path) -> Self {
        Self { state: state.to_owned() }
    }

    pub fn dir(&self) -> PathBuf {
        self.state.join(LADDERS_DIRECTORY)
    }

    /// All ladders, each with the name of its file, by name. A file that cannot be read is left out.
    pub fn all(&self) -> Result<Vec<(String, LadderFile)>> {
        Ok(self.entries()?.into_iter().flatten().collect())
    }

    /// As [`LadderStore::all`], with the error of each file that cannot be read.
    pub fn entries(&self) -> Result<Vec<Result<(String, LadderFile)>>> {
        let Some(dir) = allow_missing(Dir::open(&self.dir()))? else { return Ok(Vec::new()) };
        let mut names = dir.names()?;
        names.retain(|name| name.ends_with(SUFFIX) && !name.starts_with('.'));
        names.sort_unstable();
        let read = |name: String| {
            let content = dir.read(&name, BYTES_MAX).transpose()?;
            let path = dir.path().join(&name);
            let parse = |content: Vec<u8>| yaml::parse(&String::from_utf8_lossy(&content), &path);
            Some(content.and_then(parse).map(|file| (name, file)))
        };
        Ok(names.into_iter().filter_map(read).collect())
    }

    pub fn of_mailbox(&self, mailbox: &Name) -> Result<Vec<(String, LadderFile)>> {
        let mut all = self.all()?;
        all.retain(|(_, file)| file.mailbox == *mailbox);
        Ok(all)
    }

    /// The ladder of a task in a mailbox; of several the latest.
    pub fn of_task(&self, mailbox: &Name, task: &str) -> Result<Option<LadderFile>> {
        let all = self.of_mailbox(mailbox)?.into_iter().map(|(_, file)| file);
        Ok(all.filter(|file| file.task == task).max_by_key(|file| (file.attempt, file.began_ms)))
    }

    /// The latest escalated ladders of a mailbox, for hosts that do not run them.
    pub fn given_up(&self, mailbox: &Name) -> Result<Vec<LadderFile>> {
        let all = self.of_mailbox(mailbox)?.into_iter().map(|(_, file)| file);
        let mut ended: Vec<_> = all.filter(|it| it.state == LadderState::Escalated).collect();
        ended.sort_by(|a, b| (b.began_ms, &b.message).cmp(&(a.began_ms, &a.message)));
        ended.truncate(GIVEN_UP_MAX);
        Ok(ended)
    }

    /// The right to run the ladders of a mailbox; `None` while another process has it.
    pub(super) fn lock(&self, mailbox: &Name) -> Result<Option<FileLock>> {
        let locks = self.state.join("locks");
        durable::make_directory(&locks)?;
        FileLock::try_acquire(&locks.join(format!("ladder-{mailbox}.lock")))
    }

    pub(super) fn name(mailbox: &Name, message: &MessageId) -> String {
        format!("{mailbox}@{message}{SUFFIX}")
    }

    pub(super) fn write(&self, name: &str, file: &LadderFile) -> Result<()> {
        let dir = self.dir();
        let content = yaml::render(file);
        let write =
            || durable::write_document(&dir.join(name), content.as_bytes(), Durability::Process);
        match write() {
            Err(error) if error.io_kind() == Some(std::io::ErrorKind::NotFound) => {
                durable::make_directory(&dir)?;
                write()
            }
            written => written,
        }
    }

    pub(super) fn remove(&self, name: &str) -> Result<()> {
        durable::remove_file(&self.dir().join(name))
    }
}
