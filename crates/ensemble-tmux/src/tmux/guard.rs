//! Typing under a guard that the server itself evaluates.
//!
//! Between looking at a pane and typing into it, a person may scroll, type, or end the agent. So
//! the keys travel inside one command line whose condition is checked by the server in the same
//! breath. The pane, its first process, its modes and its cursor must be what they were when we
//! looked. And the look must be recent. Otherwise nothing is typed and the server says what it saw.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::EXCHANGE_LIMIT;
use super::binding::Binding;
use super::quote::quote;
use super::snapshot::{CLOCK_OPTION, IDENTITY, PaneIdentity};
use crate::provider::{PASTE_BEGINS, PASTE_ENDS};
use ensemble_core::pane::Deferral;

/// A command that waited longer than this in a server that hung is not carried out any more. A
/// second less than [`EXCHANGE_LIMIT`], since the clock inside tmux has whole seconds: when we
/// report a time-out, nothing will be typed later.
const FRESH: Duration = Duration::from_secs(EXCHANGE_LIMIT.as_secs() - 1);

/// The command line that has `commands` carried out if the pane still is as `seen`, and says how it is otherwise.
pub(super) fn guarded(binding: &Binding, seen: &PaneIdentity, commands: &str) -> String {
    let target = quote(&binding.id);
    let unchanged = format!("#{{==:{IDENTITY},{}}}", seen.text);
    format!(
        "if-shell -F -t {target} '#{{&&:{unchanged},{}}}' \
         {{ {commands} }} \
         {{ display-message -p -t {target} '{IDENTITY}' }}",
        fresh()
    )
}

/// The commands that type `text`; with `enter` they submit it in the same breath.
pub(super) fn typing(binding: &Binding, text: &str, enter: bool) -> String {
    let target = quote(&binding.id);
    let typing = format!("send-keys -t {target} -l -- {}", quote(text));
    if enter { format!("{typing} ; {}", pressing(binding, "Enter")) } else { typing }
}

/// The command that types `text` as a bracketed paste, byte by byte: `paste-buffer` into a dead pane ends a server of
/// tmux 3.3a.
pub(super) fn pasting(binding: &Binding, text: &str) -> String {
    let bytes = PASTE_BEGINS.bytes().chain(text.bytes()).chain(PASTE_ENDS.bytes());
    let keys: String = bytes.map(|byte| format!(" {byte:02x}")).collect();
    format!("send-keys -t {} -H{keys}", quote(&binding.id))
}

pub(super) fn pressing(binding: &Binding, key: &str) -> String {
    format!("send-keys -t {} {key}", quote(&binding.id))
}

/// What no profile can allow: reasons to leave any pane alone.
pub(super) fn untouchable(identity: &PaneIdentity) -> Option<Deferral> {
    match identity {
        PaneIdentity { dead: true, .. } => Some(Deferral::PaneDead),
        PaneIdentity { in_mode: true, .. } => Some(Deferral::CopyMode),
        PaneIdentity { input_off: true, .. } => Some(Deferral::InputOff),
        PaneIdentity { synchronized: true, .. } => Some(Deferral::Synchronized),
        _ => None,
    }
}

pub(super) fn difference(
    binding: &Binding,
    seen: &PaneIdentity,
    now: Option<&PaneIdentity>,
) -> Deferral {
    let Some(identity) = now else { return Deferral::PaneGone };
    if let Some(deferral) = binding.mismatch(now) {
        return deferral;
    }
    if identity.text == seen.text {
        // Nothing differs but the time.
        return Deferral::Timeout;
    }
    untouchable(identity).unwrap_or(Deferral::Moved)
}

/// The condition that the command is not carried out late.
pub(super) fn fresh() -> String {
    format!("#{{e|<=:#{{T:{CLOCK_OPTION}}},{}}}", seconds_now() + FRESH.as_secs())
}

fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::super::binding::tests::binding;
    use super::*;

    fn identity(fields: &str) -> PaneIdentity {
        PaneIdentity::parse(&format!("%3 7 {fields} {}", "0".repeat(32))).expect("an identity")
    }

    #[test]
    fn every_difference_has_its_reason() {
        let seen = identity("0 0 0 0 5 9");
        for (now, reason) in [
            ("1 0 0 0 5 9", Deferral::PaneDead),
            ("0 1 0 0 5 9", Deferral::CopyMode),
            ("0 0 1 0 5 9", Deferral::InputOff),
            ("0 0 0 1 5 9", Deferral::Synchronized),
            ("0 0 0 0 6 9", Deferral::Moved),
            ("0 0 0 0 5 9", Deferral::Timeout),
        ] {
            assert_eq!(difference(&binding(), &seen, Some(&identity(now))), reason, "{now}");
        }
        assert_eq!(difference(&binding(), &seen, None), Deferral::PaneGone);
    }

    #[test]
    fn a_command_is_one_line() {
        assert_eq!(
            typing(&binding(), ": hello", true),
            "send-keys -t '%3' -l -- ': hello' ; send-keys -t '%3' Enter"
        );
    }
}
