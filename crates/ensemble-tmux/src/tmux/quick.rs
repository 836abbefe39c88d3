//! Scripts that read lines, in one exchange: the judgement itself, evaluated in the server.
//!
//! Inspecting and then typing takes two exchanges, most of the time from a file to the line in a pane. But what the
//! shell profile checks for a program that reads lines is simple enough for tmux's own formats: the program must be a
//! shell, and the cursor must be at the beginning of an empty line. (The full inspection would only add drafts that
//! begin with blanks and have the cursor before them, which no line editor leaves.) A pane that is refused here, such
//! as one at a prompt, is inspected in full; that either types after all or returns the reason.
//!
//! tmux does not see what a shell waits for: `sh -c 'ensemble agent supervise …'` looks like a shell at rest. So a
//! pane whose first process has children is inspected in full, too.

use super::TmuxServer;
use super::binding::Binding;
use super::failure::TmuxFailure;
use super::guard::{fresh, typing};
use super::quote::quote;
use crate::provider::Profile;
use crate::sys;

/// One comparison of everything, the program's name and the clock included, is a good deal cheaper
/// for the server than several.
const AT_REST: &str = "#{pane_id} #{@ensemble_pane} #{pane_pid} #{pane_dead} #{pane_in_mode} \
    #{pane_input_off} #{pane_synchronized} #{cursor_x} #{cursor_character}.";

/// Types and submits `text` if the program in the pane waits on an empty line; whether it does.
pub(super) fn nudged_at_once(
    server: &TmuxServer,
    binding: &Binding,
    profile: &Profile,
    text: &str,
) -> Result<bool, TmuxFailure> {
    let Some(programs) = profile.programs_at_rest() else { return Ok(false) };
    // A shell that waits for a program, such as a supervisor, does not read lines. The full inspection decides.
    if binding.started.is_some() && !sys::children(binding.pid).is_empty() {
        return Ok(false);
    }
    let target = quote(&binding.id);
    let Binding { id, token, pid, .. } = binding;
    let program = format!("#{{m:*/#{{pane_current_command}}/*,/{}/}}", programs.join("/"));
    let expected = format!("{id} {token} {pid} 0 0 0 0 0  . 1 1");
    let condition = format!("#{{==:{AT_REST} {program} {},{expected}}}", fresh());
    let reply = server.act(&format!(
        "if-shell -F -t {target} '{condition}' {{ {} }} {{ display-message -p no }}",
        typing(binding, text, true)
    ))?;
    match reply.complaint {
        Some(complaint) => Err(TmuxFailure::from_complaint(&complaint)),
        None => Ok(reply.lines.is_empty()),
    }
}
