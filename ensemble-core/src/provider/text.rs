//! The words of a nudge.

use super::Profile;
use crate::message::{NAME_BYTES_MAX, Name};
use crate::pane::{NUDGE_BYTES_MAX, NudgeText};

/// The line that tells an agent about its mail: the profile's first template that fits into a
/// nudge, however long the mailbox's name is. With `more` the count is a lower bound.
///
/// ```
/// use ensemble_core::provider::{Profiles, nudge_text};
/// let profiles = Profiles::embedded()?;
/// let text = nudge_text(&*profiles.get("shell")?, &"dispatch".parse()?, 3, false);
/// assert_eq!(text.as_str(), ": ensemble - 3 messages for dispatch - run ensemble recv --as dispatch");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn nudge_text(profile: &Profile, mailbox: &Name, count: usize, more: bool) -> NudgeText {
    profile
        .nudges
        .iter()
        .map(|template| fill(template, mailbox.as_str(), count, more))
        .find_map(|line| NudgeText::new(line).ok())
        .unwrap_or_else(NudgeText::plain)
}

fn fill(template: &str, mailbox: &str, count: usize, more: bool) -> String {
    let messages = match (count, more) {
        (1, false) => "1 message".to_owned(),
        (_, false) => format!("{count} messages"),
        (_, true) => format!("{count} or more messages"),
    };
    template.replace("{messages}", &messages).replace("{mailbox}", mailbox)
}

/// Whether a template fits for the longest name and the largest count.
pub(super) fn always_fits(template: &str) -> bool {
    let longest = "x".repeat(NAME_BYTES_MAX);
    let line = fill(template, &longest, usize::MAX, true);
    line.len() <= NUDGE_BYTES_MAX && NudgeText::new(line).is_ok()
}

#[cfg(test)]
mod tests {
    use super::super::Profiles;
    use super::*;

    #[test]
    fn every_profile_has_a_line_for_every_name() {
        let profiles = Profiles::embedded().expect("the embedded profiles");
        for profile in profiles.names().map(|name| profiles.get(name).expect("a profile")) {
            for length in 1..=NAME_BYTES_MAX {
                let mailbox = Name::new("n".repeat(length)).expect("a name");
                for (count, more) in [(1, false), (0, true), (usize::MAX, true)] {
                    let text = nudge_text(&profile, &mailbox, count, more);
                    assert!(text.as_str().contains(mailbox.as_str()), "{text}");
                }
            }
        }
    }

    #[test]
    fn the_line_says_how_many() {
        let profiles = Profiles::embedded().expect("the embedded profiles");
        let claude = profiles.get("claude").expect("claude");
        let mailbox = Name::new("dispatch").expect("a name");
        let line = |count, more| nudge_text(&claude, &mailbox, count, more).to_string();
        let run = "for dispatch. Run: ensemble recv --as dispatch";
        assert_eq!(line(1, false), format!("ensemble: 1 message {run}"));
        assert_eq!(line(3, false), format!("ensemble: 3 messages {run}"));
        assert_eq!(line(100, true), format!("ensemble: 100 or more messages {run}"));
    }
}
