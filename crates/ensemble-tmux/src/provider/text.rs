//! The words of every profile's nudges.

#[cfg(test)]
mod tests {
    use super::super::Profiles;
    use ensemble_core::message::{NAME_BYTES_MAX, Name};

    #[test]
    fn every_profile_has_a_line_for_every_name() {
        let profiles = Profiles::embedded().expect("the embedded profiles");
        for profile in profiles.names().map(|name| profiles.get(name).expect("a profile")) {
            for length in 1..=NAME_BYTES_MAX {
                let mailbox = Name::new("n".repeat(length)).expect("a name");
                for (count, more) in [(1, false), (0, true), (usize::MAX, true)] {
                    let text = profile.program().nudge_text(&mailbox, count, more);
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
        let line = |count, more| claude.program().nudge_text(&mailbox, count, more).to_string();
        let run = "for dispatch. Run: ensemble recv --as dispatch";
        assert_eq!(line(1, false), format!("ensemble: 1 message {run}"));
        assert_eq!(line(3, false), format!("ensemble: 3 messages {run}"));
        assert_eq!(line(100, true), format!("ensemble: 100 or more messages {run}"));
    }
}
