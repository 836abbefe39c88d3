//! The terminal in which a person has started a wrapped agent.

use std::path::PathBuf;

use ensemble_tmux::provider::process::line_of;
use ensemble_tmux::tmux::Binding;

/// The terminal of the wrapper that has started an agent: the output of the agent's parent.
pub fn terminal_of_wrapper(agent: u32) -> Option<PathBuf> {
    let (wrapper, _) = *line_of(agent).get(1)?;
    let path = std::fs::read_link(format!("/proc/{wrapper}/fd/1")).ok()?;
    path.starts_with("/dev").then_some(path)
}

/// Where a person finds an agent that is not in tmux, in a few words.
pub fn own_terminal(binding: &Binding) -> Option<String> {
    if binding.is_hosted() {
        return Some(format!("pane {}", binding.id));
    }
    let path = binding.is_terminal().then(|| terminal_of_wrapper(binding.pid))?;
    let name = path.as_deref().and_then(|path| path.strip_prefix("/dev").ok());
    Some(match name {
        Some(name) => format!("its own terminal, {}", name.display()),
        None => "its own terminal".to_owned(),
    })
}
