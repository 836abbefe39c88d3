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
    /// `settle` has found the work settled: by a try of its own whose answer did not come, or by a later holder.
    FoundSettled { id: String, answered_at: u64 },
    /// `request plan` has taken the question.
    Asked { id: String },
    /// `request answer` has accepted this decision.
    Decided { id: String, approves: bool },
    /// `step add` has stored a queue.
    Planned { task: String, steps: usize },
    /// `step next` has handed a step out, which is named by its queue and its number.
    Taken { step: String, epoch: u64, is_again: bool, asked_at: u64 },
    /// `step submit` has accepted a report.
    Reported { step: String, epoch: u64, is_success: bool, is_again: bool, answered_at: u64 },
    /// Another step had the same file at the same time.
    Shared { step: String, file: String },
    /// The command has answered in a way that no row of its contract allows here.
    Wrong { command: String, told: String },
}
