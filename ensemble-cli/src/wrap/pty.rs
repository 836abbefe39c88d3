//! The pseudo-terminal of a wrapped agent: the person's keys in, the agent's screen out, and our lines in between.
//!
//! ```text
//! keys       event           ->  keys     effect
//! open       the person's    ->  open     written at once, and noted
//! open       hold            ->  held
//! held       the person's    ->  held     kept in their order, up to KEPT_BYTES_MAX; then the person waits
//! held       release         ->  open     the kept ones are written
//! ```
//!
//! An agent may not read its terminal. The person's keys then wait for it, as in any terminal, and while they do, the
//! person counts as typing. Our own lines wait for [`WRITE_PATIENCE`] at most: others wait for the answer.

use std::io::{self, Read as _, Write as _};
use std::num::NonZeroU16;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ensemble_tmux::terminal::{PseudoTerminal, TerminalSnapshot};
use pty_process::blocking::Pty;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::osc::CommandLimit;
use crate::context::locked;

const KEPT_BYTES_MAX: usize = 64 * 1024;
/// How much of a title is kept, in bytes: the profiles look at its beginning.
const TITLE_BYTES_MAX: usize = 4 * 1024;
/// How long an agent may take to read one of our lines.
const WRITE_PATIENCE: Duration = Duration::from_secs(2);
const CHUNK: usize = 16 * 1024;

pub(super) struct PtyTerminal {
    pty: Pty,
    screen: Mutex<PtyScreen>,
    changed: Condvar,
    keys: Mutex<PersonKeys>,
    released: Condvar,
}

struct PtyScreen {
    parser: vt100::Parser<ScreenExtras>,
    version: u64,
    ended: Option<Option<i32>>,
}

#[derive(Default)]
pub(super) struct ScreenExtras {
    title: String,
    pub(super) reports_focus: bool,
    /// XTerm's `modifyOtherKeys`.
    pub(super) modifies_keys: bool,
    /// Levels of the kitty keyboard protocol.
    pub(super) keyboard_levels: u16,
}

impl vt100::Callbacks for ScreenExtras {
    fn set_window_title(&mut self, _: &mut vt100::Screen, title: &[u8]) {
        let title = &title[..title.len().min(TITLE_BYTES_MAX)];
        self.title = String::from_utf8_lossy(title).into_owned();
    }

    fn unhandled_csi(
        &mut self,
        _: &mut vt100::Screen,
        mark: Option<u8>,
        _: Option<u8>,
        parameters: &[&[u16]],
        end: char,
    ) {
        let number = |at: usize| parameters.get(at).and_then(|it| it.first().copied()).unwrap_or(0);
        match (mark, end) {
            (Some(b'?'), 'h' | 'l') if (0..parameters.len()).any(|at| number(at) == 1004) => {
                self.reports_focus = end == 'h';
            }
            (Some(b'>'), 'm') if number(0) == 4 => self.modifies_keys = number(1) > 0,
            (Some(b'>'), 'u') => self.keyboard_levels = self.keyboard_levels.saturating_add(1),
            (Some(b'<'), 'u') => {
                self.keyboard_levels = self.keyboard_levels.saturating_sub(number(0).max(1));
            }
            _ => {}
        }
    }
}

#[derive(Default)]
struct PersonKeys {
    is_held: bool,
    kept: Vec<u8>,
    last: Option<Instant>,
    /// The agent has not read the last keys yet.
    is_writing: bool,
}

const fn at_least_one(cells: u16) -> NonZeroU16 {
    match NonZeroU16::new(cells) {
        Some(cells) => cells,
        None => NonZeroU16::MIN,
    }
}

impl PtyTerminal {
    pub(super) fn new(pty: Pty, (rows, columns): (u16, u16)) -> io::Result<Self> {
        // A blocking write would wait for an agent that does not read.
        fcntl_setfl(&pty, fcntl_getfl(&pty)? | OFlags::NONBLOCK)?;
        let (rows, columns) = (at_least_one(rows), at_least_one(columns));
        let parser = vt100::Parser::new_with_callbacks(rows, columns, 0, ScreenExtras::default());
        let screen = Mutex::new(PtyScreen { parser, version: 0, ended: None });
        let keys = Mutex::default();
        Ok(Self { pty, screen, changed: Condvar::new(), keys, released: Condvar::new() })
    }

    pub(super) fn resize(&self, (rows, columns): (u16, u16)) {
        locked(&self.screen).parser.set_size(at_least_one(rows), at_least_one(columns));
        // The agent may have ended.
        let _ = self.pty.resize(pty_process::Size::new(rows, columns));
    }

    pub(super) fn copy_keys(&self, mut from: impl io::Read) {
        let mut buffer = [0; CHUNK];
        loop {
            match from.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => {
                    if self.person_types(&buffer[..count]).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    fn person_types(&self, bytes: &[u8]) -> io::Result<()> {
        let mut keys = locked(&self.keys);
        keys.last = Some(Instant::now());
        while keys.is_held && keys.kept.len() >= KEPT_BYTES_MAX {
            keys = self.released.wait(keys).unwrap_or_else(PoisonError::into_inner);
        }
        keys.kept.extend_from_slice(bytes);
        while !keys.is_held && !keys.kept.is_empty() {
            let next = std::mem::take(&mut keys.kept);
            keys.is_writing = true;
            drop(keys);
            let written = self.write_until(&next, None);
            keys = locked(&self.keys);
            keys.is_writing = false;
            written.map_err(|(error, _)| error)?;
        }
        Ok(())
    }

    pub(super) fn copy_screen(&self) {
        let mut buffer = [0; CHUNK];
        let (mut stdout, mut limit) = (io::stdout(), CommandLimit::default());
        loop {
            match (&self.pty).read(&mut buffer) {
                Ok(count) if count > 0 => {
                    // The agent continues without a person who looks.
                    let _ = stdout.write_all(&buffer[..count]).and_then(|()| stdout.flush());
                    let parsed = limit.shorten(&buffer[..count]);
                    let mut screen = locked(&self.screen);
                    screen.parser.process(&parsed);
                    screen.version += 1;
                    drop(screen);
                    self.changed.notify_all();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.await_room(PollFlags::IN, None).is_err() {
                        return;
                    }
                }
                Ok(_) | Err(_) => return,
            }
        }
    }

    pub(super) fn end(&self, code: Option<i32>) {
        locked(&self.screen).ended = Some(code);
        self.changed.notify_all();
    }

    pub(super) fn with_modes(&self, look: impl FnOnce(&vt100::Screen, &ScreenExtras)) {
        let screen = locked(&self.screen);
        look(screen.parser.screen(), screen.parser.callbacks());
    }
}

impl PseudoTerminal for &PtyTerminal {
    fn shown(&self) -> TerminalSnapshot {
        let screen = locked(&self.screen);
        let shown = screen.parser.screen();
        let (row, column) = shown.cursor_position();
        let (_, columns) = shown.size();
        let rows = shown.rows(0, columns.get()).map(|row| row.trim_end().to_owned());
        TerminalSnapshot {
            screen: rows.collect(),
            cursor: (column.into(), row.into()),
            title: screen.parser.callbacks().title.clone(),
            ended: screen.ended,
            takes_pastes: shown.bracketed_paste(),
            ..TerminalSnapshot::default()
        }
    }

    fn last_key(&self) -> Option<Instant> {
        let keys = locked(&self.keys);
        if keys.is_writing { Some(Instant::now()) } else { keys.last }
    }

    fn hold_keys(&self) {
        locked(&self.keys).is_held = true;
    }

    fn release_keys(&self) {
        let mut keys = locked(&self.keys);
        keys.is_held = false;
        // The thread that writes the person's keys writes these after them.
        if !keys.is_writing {
            let kept = std::mem::take(&mut keys.kept);
            // Written under the lock: what is typed now comes after it. What the agent does not read now is written
            // with the next key or the next line.
            let written = self.write_until(&kept, Some(Instant::now() + WRITE_PATIENCE));
            if let Err((_, count)) = written {
                keys.kept = kept[count..].to_vec();
            }
        }
        drop(keys);
        self.released.notify_all();
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let written = self.write_until(bytes, Some(Instant::now() + WRITE_PATIENCE));
        written.map_err(|(error, _)| error)
    }

    fn version(&self) -> u64 {
        locked(&self.screen).version
    }

    fn wait_for_change(&self, seen: u64, deadline: Instant) {
        let screen = locked(&self.screen);
        let left = deadline.saturating_duration_since(Instant::now());
        let same = |screen: &mut PtyScreen| screen.version == seen && screen.ended.is_none();
        let waited = self.changed.wait_timeout_while(screen, left, same);
        drop(waited);
    }
}

impl PtyTerminal {
    /// Writes all of it; or says why not, and how much was written.
    fn write_until(
        &self,
        bytes: &[u8],
        deadline: Option<Instant>,
    ) -> Result<(), (io::Error, usize)> {
        let mut written = 0;
        while written < bytes.len() {
            match (&self.pty).write(&bytes[written..]) {
                Ok(0) => return Err((io::ErrorKind::WriteZero.into(), written)),
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.await_room(PollFlags::OUT, deadline).map_err(|error| (error, written))?;
                }
                Err(error) => return Err((error, written)),
            }
        }
        Ok(())
    }

    fn await_room(&self, wanted: PollFlags, deadline: Option<Instant>) -> io::Result<()> {
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::new(&self.pty, wanted)], left.as_ref()) {
            Ok(0) => Err(io::ErrorKind::TimedOut.into()),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Where there is no terminal: the agent reads a file or a pipe, and nothing can be typed.
pub(super) struct NoTerminal;

impl PseudoTerminal for NoTerminal {
    fn shown(&self) -> TerminalSnapshot {
        TerminalSnapshot { input_off: true, ..TerminalSnapshot::default() }
    }
    fn write(&self, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn wait_for_change(&self, _: u64, _: Instant) {}
}
