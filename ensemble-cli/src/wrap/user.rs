//! The terminal of the person: raw while an agent has it, and as it was afterwards.

use std::io::{self, IsTerminal as _, Write as _};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use super::pty::ScreenExtras;

const SIZE_DEFAULT: (u16, u16) = (24, 80);

/// The person's terminal, in raw mode until this is dropped.
pub(super) struct UserTerminal {
    before: Termios,
}

impl UserTerminal {
    pub(super) fn take_terminal() -> io::Result<Option<Self>> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Ok(None);
        }
        let user = Self { before: tcgetattr(io::stdin())? };
        let (before, report) = (user.before.clone(), std::panic::take_hook());
        std::panic::set_hook(Box::new(move |panic| {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
            report(panic);
        }));
        user.make_raw()?;
        Ok(Some(user))
    }

    pub(super) fn make_raw(&self) -> io::Result<()> {
        let mut raw = self.before.clone();
        raw.make_raw();
        Ok(tcsetattr(io::stdin(), OptionalActions::Now, &raw)?)
    }

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
pub(super) fn undo_modes(modes: &vt100::Screen, extras: &ScreenExtras) {
    let undo = sequences_to_undo(modes, extras);
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(undo.as_bytes()).and_then(|()| stdout.flush());
}

fn sequences_to_undo(modes: &vt100::Screen, extras: &ScreenExtras) -> String {
    let has_mouse = modes.mouse_protocol_mode() != vt100::MouseProtocolMode::None;
    let all = [
        (modes.alternate_screen(), "\x1b[?1049l"),
        (modes.bracketed_paste(), "\x1b[?2004l"),
        (has_mouse, "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l"),
        (modes.hide_cursor(), "\x1b[?25h"),
        (modes.application_cursor(), "\x1b[?1l"),
        (modes.application_keypad(), "\x1b>"),
        (extras.reports_focus, "\x1b[?1004l"),
        (extras.modifies_keys, "\x1b[>4m"),
        // Each of the two screens has its levels, and the other screen is left by now.
        (extras.keyboard_levels > 0, "\x1b[=0u"),
    ];
    all.iter().filter(|(is_on, _)| *is_on).map(|(_, sequence)| *sequence).collect()
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;

    #[test]
    fn what_an_agent_has_left_on_is_switched_off_and_nothing_else() {
        let undone = |output: &str| {
            let (size, extras) = (NonZeroU16::MIN, ScreenExtras::default());
            let mut parser = vt100::Parser::new_with_callbacks(size, size, 0, extras);
            parser.process(output.as_bytes());
            sequences_to_undo(parser.screen(), parser.callbacks())
        };
        assert_eq!(undone("\x1b[?1049h\x1b[?2004h"), "\x1b[?1049l\x1b[?2004l");
        let on = "\x1b[?1004h\x1b[>4;2m\x1b[>7u\x1b[>1u";
        assert_eq!(undone(on), "\x1b[?1004l\x1b[>4m\x1b[=0u");
        assert_eq!(undone(&format!("{on}\x1b[<u")), undone(on));
        assert_eq!(undone(&format!("{on}\x1b[<2u\x1b[>4;0m\x1b[?1004l")), "");
    }
}
