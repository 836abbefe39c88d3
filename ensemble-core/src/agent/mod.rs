//! An agent as the drivers see it: what it is doing, and what is known of its program.
//!
//! The drivers of readiness and acknowledgement work with any [`AgentPane`]. Its [`ProgramSettings`] says
//! how the agent is notified of mail and which keys wake it. A program of an embedder that has no
//! screen is [`ProgramSettings::plain`]: it is notified of mail, and no key is pressed. Its state is
//! [`AgentDiagnosis::of`].

mod diagnosis;
mod pane;
mod program;

pub use diagnosis::{AgentDiagnosis, AgentState, Evidence, Source};
pub use pane::{AgentPane, TypedLine, TypingStep};
pub use program::{EscalationPlan, EscalationStep, ProgramSettings};

pub use diagnosis::excerpted;
