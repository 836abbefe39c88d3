//! What the players have noted: what the command has answered to whom.

/// One answer of the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// `send` has taken the message.
    Sent { id: String, to: String },
    /// `recv` has handed it over. It was asked at this time, in milliseconds since the begin.
    Received { id: String, epoch: u64, body: String, asked_at: u64 },
    /// `settle` has accepted the work; the answer came at this time.
    Settled { id: String, epoch: u64, answered_at: u64 },
    /// `request plan` has taken the question.
    Asked { id: String },
    /// `request answer` has accepted this decision.
    Decided { id: String, approves: bool },
    /// The command has answered in a way that no row of its contract allows here.
    Wrong { command: String, told: String },
}
