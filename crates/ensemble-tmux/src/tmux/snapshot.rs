//! One look at a pane: every field and the screen, from the same instant.

use super::TmuxServer;
use super::failure::TmuxFailure;
use super::quote::quote;
use crate::provider::process::exit_status;

pub(super) const TOKEN_OPTION: &str = "@ensemble_pane";
/// The pane option that holds `%s`, so that a format can read the clock.
pub(super) const CLOCK_OPTION: &str = "@ensemble_clock";

/// The identity of a pane, which must not change between looking and typing. The guard compares this very expansion,
/// so it is the only list of these fields there is. The token comes last, because any client can write any text into
/// it.
pub(super) const IDENTITY: &str = "#{pane_id} #{pane_pid} #{pane_dead} #{pane_in_mode} \
    #{pane_input_off} #{pane_synchronized} #{cursor_x} #{cursor_y} #{@ensemble_pane}";
const IDENTITY_FIELDS: usize = 9;

/// The rest, three lines. The dot keeps an exit status of 0 apart from none. The program's name is
/// looked up each time it is named, so it is named once.
const DETAILS: &str =
    "#{pane_height} #{pane_dead_status}.\\n#{pane_current_command}\\n#{pane_title}";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PaneIdentity {
    pub(super) id: String,
    pub(super) pid: u32,
    pub(super) dead: bool,
    pub(super) in_mode: bool,
    pub(super) input_off: bool,
    pub(super) synchronized: bool,
    pub(super) cursor_x: u32,
    pub(super) cursor_y: u32,
    pub(super) token: String,
    pub(super) text: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PaneSnapshot {
    pub(super) identity: PaneIdentity,
    pub(super) dead_status: Option<i32>,
    pub(super) command: String,
    pub(super) title: String,
    pub(super) screen: Vec<String>,
}

impl PaneIdentity {
    /// Reads what tmux printed; `None` if there is no such pane or it makes no sense.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut fields = line.splitn(IDENTITY_FIELDS, ' ');
        let mut next = || fields.next();
        let id = next().filter(|id| is_pane_id(id))?;
        let pid = next()?.parse().ok()?;
        let mut flag = || next().map(|value| !matches!(value, "" | "0"));
        let (dead, in_mode, input_off, synchronized) = (flag()?, flag()?, flag()?, flag()?);
        Some(Self {
            id: id.to_owned(),
            pid,
            dead,
            in_mode,
            input_off,
            synchronized,
            cursor_x: next()?.parse().ok()?,
            cursor_y: next()?.parse().ok()?,
            token: next()?.to_owned(),
            text: line.to_owned(),
        })
    }
}

impl PaneSnapshot {
    pub(super) fn take_snapshot(
        server: &TmuxServer,
        id: &str,
    ) -> Result<Option<Self>, TmuxFailure> {
        let target = quote(id);
        // All commands of a line are run before the server reads another byte from any pane.
        let reply = server.query_server(&format!(
            "display-message -p -t {target} \"{IDENTITY}\\n{DETAILS}\" ; capture-pane -p -t {target}"
        ))?;
        match PaneIdentity::parse(reply.lines.first().map_or("", String::as_str)) {
            Some(identity) if identity.id == id => {
                let lines = reply.into_lines()?;
                let mut snapshot = Self::parse(identity, &lines[1..]).ok_or_else(|| {
                    TmuxFailure::Refused("it described the pane in no way we know".into())
                })?;
                if snapshot.identity.dead {
                    let pid = snapshot.identity.pid;
                    snapshot.dead_status = exit_status(snapshot.dead_status, pid);
                }
                Ok(Some(snapshot))
            }
            // Without a pane every field is empty.
            _ => Ok(None),
        }
    }

    /// Reads the details and the screen below them. A program's name may hold newlines, so the
    /// title is counted from the screen, and the screen from the end.
    fn parse(identity: PaneIdentity, lines: &[String]) -> Option<Self> {
        let (first, lines) = lines.split_first()?;
        let (height, status) = first.strip_suffix('.')?.split_once(' ')?;
        let above_screen = lines.len().checked_sub(height.parse().ok()?)?;
        let (texts, screen) = lines.split_at_checked(above_screen)?;
        let (title, command) = texts.split_last()?;
        Some(Self {
            identity,
            dead_status: status.parse().ok(),
            command: command.join("\n"),
            title: title.clone(),
            screen: screen.iter().map(|line| line.trim_end().to_owned()).collect(),
        })
    }
}

/// How high a pane says that it is, and how many lines of its screen were found.
#[cfg(feature = "fuzzing")]
pub(crate) fn sizes(lines: &[String]) -> Option<(usize, usize)> {
    let (identity, lines) = lines.split_first()?;
    let snapshot = PaneSnapshot::parse(PaneIdentity::parse(identity)?, lines)?;
    let height = lines.first()?.split(' ').next()?.parse().ok()?;
    Some((height, snapshot.screen.len()))
}

pub(super) fn is_pane_id(text: &str) -> bool {
    text.strip_prefix('%')
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_read() {
        let identity = PaneIdentity::parse("%3 77 1 2 0 0 5 9 a token").expect("an identity");
        assert_eq!((identity.pid, identity.cursor_x, identity.cursor_y), (77, 5, 9));
        assert!(identity.dead && identity.in_mode && !identity.input_off);
        assert_eq!(identity.token, "a token");
        assert_eq!(PaneIdentity::parse("        "), None);
        assert_eq!(PaneIdentity::parse("%x 1 0 0 0 0 0 0 "), None);
    }

    #[test]
    fn a_snapshot_survives_names_with_newlines() {
        let lines = ["2 0.", "a", "b", "the title", "$ ", ""].map(str::to_owned);
        let snapshot = PaneSnapshot::parse(PaneIdentity::default(), &lines).expect("a snapshot");
        assert_eq!(snapshot.dead_status, Some(0));
        assert_eq!((snapshot.command.as_str(), snapshot.title.as_str()), ("a\nb", "the title"));
        assert_eq!(snapshot.screen, ["$", ""]);
    }

    #[test]
    fn nonsense_is_no_snapshot() {
        for lines in [&[][..], &["9 .", "x", "y"], &["x"], &["1 .", ""], &["1", "a", "b", ""]] {
            let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
            assert_eq!(PaneSnapshot::parse(PaneIdentity::default(), &lines), None, "{lines:?}");
        }
    }

    #[test]
    fn pane_ids_are_told_from_names() {
        assert!(is_pane_id("%0") && is_pane_id("%123"));
        assert!(!is_pane_id("%") && !is_pane_id("0") && !is_pane_id("=team") && !is_pane_id("%1x"));
    }
}
