//! What a place has to do for the suite.
#![allow(dead_code, reason = "each test program uses a part of it")]

use ensemble_tmux::tmux::Binding;

/// A place in which the suite can open panes, and act as the person who uses them.
pub(crate) trait PaneStage {
    fn directory(&self) -> &std::path::Path;
    /// Opens a pane in which `sh` runs this command, and binds it.
    fn open_pane(&self, command: &str) -> Binding;
    fn type_keys(&self, binding: &Binding, keys: &str);
    fn close_pane(&self, binding: &Binding);
    /// Whether the place shows where the cursor is.
    fn shows_cursor(&self) -> bool {
        true
    }
}
