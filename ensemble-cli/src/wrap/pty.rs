//! The pseudo-terminal of a wrapped agent: the person's keys in, the agent's screen out, and our lines in between.
//!
//! ```text
//! keys       event           ->  keys     effect
//! open       the person's    ->  open     written at once, and noted
//! open       hold            ->  held
//! held       the person's    ->  held     kept in their order, up to KEPT_BYTES_MAX; then the person waits
//! held       release         ->  open     the kept ones are written
//! ```

use std::io::{self, Read as _, Write as _};
use std::num::NonZeroU16;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ensemble_tmux::terminal::{Shown, Terminal};
use pty_process::blocking::Pty;

/// How many bytes of a person's keys are kept back.
const KEPT_BYTES_MAX: usize = 64 * 1024;
/// How many bytes are copied at once.
const CHUNK: usize = 16 * 1024;

/// An agent's pseudo-terminal, shared by the threads of its wrapper.
pub(super) struct PtyTerminal {
    pty: Pty,
    screen: Mutex<Screen>,
    changed: Condvar,
    keys: Mutex<Keys>,
    released: Condvar,
}

/// The exact screen, and how often it has changed.
struct Screen {
    parser: vt100::Parser<Title>,
    version: u64,
    ended: Option<Option<i32>>,
}

/// The title that the agent has set.
#[derive(Default)]
struct Title(String);

impl vt100::Callbacks for Title {
    fn set_window_title(&mut self, _: &mut vt100::Screen, title: &[u8]) {
        self.0 = String::from_utf8_lossy(title).into_owned();
    }
}

/// The person's keys.
#[derive(Default)]
struct Keys {
    is_held: bool,
    kept: Vec<u8>,
    last: Option<Instant>,
}

/// A poisoned lock still guards bytes that are whole.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const fn at_least_one(cells: u16) -> NonZeroU16 {
    match NonZeroU16::new(cells) {
        Some(cells) => cells,
        None => NonZeroU16::MIN,
    }
}

impl PtyTerminal {
    pub(super) fn new(pty: Pty, (rows, columns): (u16, u16)) -> Self {
        let (rows, columns) = (at_least_one(rows), at_least_one(columns));
        let parser = vt100::Parser::new_with_callbacks(rows, columns, 0, Title::default());
        let screen = Mutex::new(Screen { parser, version: 0, ended: None });
        let keys = Mutex::default();
        Self { pty, screen, changed: Condvar::new(), keys, released: Condvar::new() }
    }

    /// The window of the person has another size.
    pub(super) fn resize(&self, (rows, columns): (u16, u16)) {
        locked(&self.screen).parser.set_size(at_least_one(rows), at_least_one(columns));
        // The agent may have ended.
        let _ = self.pty.resize(pty_process::Size::new(rows, columns));
    }

    /// Passes the person's keys on until there are no more.
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
        if keys.is_held {
            keys.kept.extend_from_slice(bytes);
            return Ok(());
        }
        drop(keys);
        self.write(bytes)
    }

    /// Passes the agent's screen on until the agent has closed it.
    pub(super) fn copy_screen(&self) {
        let mut buffer = [0; CHUNK];
        let mut stdout = io::stdout();
        loop {
            match (&self.pty).read(&mut buffer) {
                Ok(count) if count > 0 => {
                    // The agent goes on without a person who looks.
                    let _ = stdout.write_all(&buffer[..count]).and_then(|()| stdout.flush());
                    let mut screen = locked(&self.screen);
                    screen.parser.process(&buffer[..count]);
                    screen.version += 1;
                    drop(screen);
                    self.changed.notify_all();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// The agent has ended.
    pub(super) fn end(&self, code: Option<i32>) {
        locked(&self.screen).ended = Some(code);
        self.changed.notify_all();
    }

    /// What the agent has left switched on.
    pub(super) fn with_modes(&self, look: impl FnOnce(&vt100::Screen)) {
        look(locked(&self.screen).parser.screen());
    }
}

impl Terminal for &PtyTerminal {
    fn shown(&self) -> Shown {
        let screen = locked(&self.screen);
        let shown = screen.parser.screen();
        let (row, column) = shown.cursor_position();
        let (_, columns) = shown.size();
        let rows = shown.rows(0, columns.get()).map(|row| row.trim_end().to_owned());
        Shown {
            screen: rows.collect(),
            cursor: (column.into(), row.into()),
            title: screen.parser.callbacks().0.clone(),
            ended: screen.ended,
            input_off: false,
            takes_pastes: shown.bracketed_paste(),
        }
    }

    fn last_key(&self) -> Option<Instant> {
        locked(&self.keys).last
    }

    fn hold_keys(&self) {
        locked(&self.keys).is_held = true;
    }

    fn release_keys(&self) {
        let mut keys = locked(&self.keys);
        let kept = std::mem::take(&mut keys.kept);
        // Written under the lock: what is typed now comes after it.
        let _ = PtyTerminal::write(self, &kept);
        keys.is_held = false;
        drop(keys);
        self.released.notify_all();
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        PtyTerminal::write(self, bytes)
    }

    fn version(&self) -> u64 {
        locked(&self.screen).version
    }

    fn wait_for_change(&self, seen: u64, deadline: Instant) {
        let screen = locked(&self.screen);
        let left = deadline.saturating_duration_since(Instant::now());
        let same = |screen: &mut Screen| screen.version == seen && screen.ended.is_none();
        let waited = self.changed.wait_timeout_while(screen, left, same);
        drop(waited);
    }
}

impl PtyTerminal {
    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.pty).write_all(bytes)
    }
}

/// Where there is no terminal: the agent reads a file or a pipe, and nothing can be typed.
pub(super) struct NoTerminal;

impl Terminal for NoTerminal {
    fn shown(&self) -> Shown {
        Shown { input_off: true, ..Shown::default() }
    }
    fn last_key(&self) -> Option<Instant> {
        None
    }
    fn hold_keys(&self) {}
    fn release_keys(&self) {}
    fn write(&self, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn version(&self) -> u64 {
        0
    }
    fn wait_for_change(&self, _: u64, _: Instant) {}
}
