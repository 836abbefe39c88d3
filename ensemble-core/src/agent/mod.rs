//! An agent as the drivers see it: what it is doing, and what is known of its program.
//!
//! The drivers of readiness and acknowledgement work with any [`AgentPane`]. Its [`Program`] says
//! how the agent is told of mail and which keys wake it. A program of an embedder that has no
//! screen is [`Program::plain`]: it is notified of mail, and no key is pressed. Its state is
//! [`Diagnosis::of`].

mod diagnosis;
mod pane;
mod program;

pub use diagnosis::{AgentState, Diagnosis, Evidence, Source};
pub use pane::{AgentPane, Begun, Line};
pub use program::{Escalation, Program, Step};

pub use diagnosis::excerpted;
