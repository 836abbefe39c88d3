//! The terminal of the person: raw while an agent has it, and as it was afterwards.

use std::io::{self, IsTerminal as _, Write as _};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Rows and columns if the terminal does not report its size.
const SIZE_DEFAULT: (u16, u16) = (24, 80);

/// The person's terminal, in raw mode until this is dropped.
pub(super) struct UserTerminal {
    before: Termios,
}

impl UserTerminal {
    /// Takes the terminal; `None` where stdin or stdout is none.
    pub(super) fn take_terminal() -> io::Result<Option<Self>> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Ok(None);
        }
        let user = Self { before: tcgetattr(io::stdin())? };
        user.make_raw()?;
        Ok(Some(user))
    }

    pub(super) fn make_raw(&self) -> io::Result<()> {
        let mut raw = self.before.clone();
        raw.make_raw();
        Ok(tcsetattr(io::stdin(), OptionalActions::Now, &raw)?)
    }

    /// Gives the terminal back as it was.
    pub(super) fn restore(&self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

impl Drop for UserTerminal {
    fn drop(&mut self) {
        self.restore();
    }
}

/// Rows and columns of the person's terminal.
pub(super) fn size() -> (u16, u16) {
    match tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (size.ws_row, size.ws_col),
        Ok(_) | Err(_) => SIZE_DEFAULT,
    }
}

/// Switches off what a killed agent has left on: each of these does nothing where it is off.
pub(super) fn undo_modes(modes: &vt100::Screen) {
    let mut undo = String::new();
    if modes.alternate_screen() {
        undo.push_str("\x1b[?1049l");
    }
    if modes.bracketed_paste() {
        undo.push_str("\x1b[?2004l");
    }
    if modes.mouse_protocol_mode() != vt100::MouseProtocolMode::None {
        undo.push_str("\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l");
    }
    if modes.hide_cursor() {
        undo.push_str("\x1b[?25h");
    }
    if modes.application_cursor() {
        undo.push_str("\x1b[?1l");
    }
    if modes.application_keypad() {
        undo.push_str("\x1b>");
    }
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(undo.as_bytes()).and_then(|()| stdout.flush());
}
