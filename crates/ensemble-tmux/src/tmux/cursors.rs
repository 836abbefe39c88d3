//! One cheap question about all panes of a server: has anything happened on a screen?

use ensemble_core::Result;

use super::TmuxServer;

/// Fields of [`PaneCursor`]. A character may be a blank, so the cursor comes last.
const FORMAT: &str = "#{pane_id} #{window_activity} \
    #{cursor_x},#{cursor_y},#{cursor_flag},#{alternate_on},#{cursor_character}";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaneCursor {
    pub id: String,
    /// When a pane of its window has last written something, in seconds of the server's clock.
    pub activity: String,
    /// Place of the cursor, whether it is shown, and the character under it.
    pub cursor: String,
}

impl TmuxServer {
    pub fn cursors(&self) -> Result<Vec<PaneCursor>> {
        let lines = self.lines("ask for cursors", &format!("list-panes -a -F '{FORMAT}'"))?;
        Ok(lines.iter().filter_map(|line| cursor(line)).collect())
    }
}

fn cursor(line: &str) -> Option<PaneCursor> {
    let mut fields = line.splitn(3, ' ').map(str::to_owned);
    Some(PaneCursor { id: fields.next()?, activity: fields.next()?, cursor: fields.next()? })
}
