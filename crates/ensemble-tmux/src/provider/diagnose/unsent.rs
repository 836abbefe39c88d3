//! A draft that is our own line.

use super::{AgentState, Judgement, Profile, UnsentLine, deferral_of};

impl Judgement {
    pub const fn unsent_line(&self) -> UnsentLine {
        self.unsent_line
    }

    /// A draft that is our unsent line waits for its Enter and is not a person's, so the state beneath it counts.
    pub(crate) fn with_unsent_line(mut self, profile: &Profile, line: UnsentLine) -> Self {
        if self.state != AgentState::Draft {
            return self;
        }
        let what = match line {
            UnsentLine::Absent => return self,
            UnsentLine::Alone => "our hint is still unsent in its prompt",
            UnsentLine::WithWords => "our hint with your words behind it",
        };
        self.unsent_line = line;
        if let Some(draft) = self.evidence.first_mut() {
            draft.what = what.to_owned();
        }
        if line == UnsentLine::Alone {
            self.state = self.beneath;
            self.deferral = deferral_of(profile, self.beneath, self.beneath.word());
        }
        self
    }
}
