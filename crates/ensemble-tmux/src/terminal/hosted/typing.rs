//! Types into a pane of another multiplexer, by the rules for our own terminals.

use std::path::Path;
use std::sync::Mutex;

use ensemble_core::durable::{self, Durability};

use super::*;
use crate::terminal::{LineTypist, TerminalAction, TerminalAnswer, TypedMemory};
use crate::tmux::PaneLock;

const MEMORY_BYTES_MAX: usize = 4096;

/// A pane with a person and an agent at its ends. Keys of a person cannot be kept back here.
struct HostedTerminal {
    pane: Box<dyn HostedPane>,
    refusal: Mutex<Option<Deferral>>,
}

impl PseudoTerminal for HostedTerminal {
    /// A pane that cannot be seen takes no input.
    fn shown(&self) -> TerminalSnapshot {
        let blind = TerminalSnapshot { input_off: true, ..TerminalSnapshot::default() };
        let screen = self.pane.observe_screen().ok().flatten();
        let screen = screen.unwrap_or(HostedScreen { shown: blind, refusal: None });
        *self.refusal.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = screen.refusal;
        screen.shown
    }
    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        self.pane.write_bytes(bytes)
    }
    fn wait_for_change(&self, _: u64, deadline: Instant) {
        thread::sleep(LOOK_INTERVAL.min(deadline.saturating_duration_since(Instant::now())));
    }
    fn refusal(&self) -> Option<Deferral> {
        self.refusal.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
    fn submit_line(&self, text: &str) -> io::Result<LineSubmission> {
        self.pane.submit_line(text)
    }
}

/// Does what is asked; `None` if the pane is gone or belongs to another process by now. `locks` is the directory that
/// all processes share that may type into the pane; the marks are kept there, too.
pub(in crate::terminal) fn answer_action(
    binding: &Binding,
    observer: &AgentObserver,
    locks: &Path,
    ask: TerminalAction,
) -> Result<Option<TerminalAnswer>> {
    let Some(pane) = open_pane(binding) else { return Ok(None) };
    let memory = locks.join(format!("pane-{}.json", binding.token));
    let may_type = !matches!(ask, TerminalAction::Look {});
    if may_type {
        durable::make_directory(locks)?;
    }
    let _lock = may_type.then(|| PaneLock::wait_for_lock(locks, &binding.token)).transpose()?;
    match pane.observe_screen() {
        Ok(Some(screen)) if screen.shown.ended.is_some() || binding.is_same_process() => {}
        Ok(_) => return Ok(None),
        Err(_) if !binding.lives() => return Ok(None),
        Err(error) => return Err(failed("reach a pane", &binding.socket, &error)),
    }
    let before = read_memory(&memory);
    let terminal = HostedTerminal { pane, refusal: Mutex::new(None) };
    let mut typist =
        LineTypist::new(terminal, binding.pid, observer.clone()).with_memory(before.clone());
    let answer = typist.answer(ask);
    let after = typist.into_memory();
    if may_type && after != before {
        let bytes = serde_json::to_vec(&after).unwrap_or_default();
        durable::write_document(&memory, &bytes, Durability::Process)?;
    }
    Ok(Some(answer))
}

/// The marks of the lines that were typed before, by any process. Without them, our line counts as a draft.
fn read_memory(file: &Path) -> TypedMemory {
    let bytes = durable::read_file(file, MEMORY_BYTES_MAX).ok().flatten().unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}
