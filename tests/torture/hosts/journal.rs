//! What the players noted: the answers of the command.

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// `send` has taken the message.
    Sent { id: String, to: String },
    /// `recv` has handed it over. It was asked at this time, in milliseconds since the begin.
    Received { id: String, epoch: u64, body: String, asked_at: u64 },
    /// `settle` has accepted the work; the answer came at this time.
    Settled { id: String, epoch: u64, answered_at: u64 },
    /// `settle` found the work settled: by its earlier attempt whose answer was lost, or by a later holder.
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
    /// The conductor was notified of a batch: the outcome of each of its tasks.
    Told { batch: String, outcomes: Vec<(String, String)> },
    /// `recv` has handed a worker an attempt at a task of a batch. It was asked at the first time, and answered at the
    /// second.
    Begun { task: String, attempt: u64, epoch: u64, asked_at: u64, answered_at: u64 },
    /// A worker has reported an attempt. The report was begun at the first time, and all was accepted at the second.
    Worked { task: String, attempt: u64, is_success: bool, begun_at: u64, answered_at: u64 },
    /// `settle` has accepted the message of an attempt.
    AttemptSettled { task: String, attempt: u64 },
    /// `request shutdown` has taken the question, which is decided now. With `is_gone` it has said that the agent has gone.
    Called { request: String, is_listed: bool, is_gone: bool },
    /// `request answer` has accepted this decision of an agent that was asked to leave.
    Answered { request: String, agrees: bool },
    /// An agent that went held this delivery of a message.
    Kept { request: String, id: String, epoch: u64 },
    /// The roster of an agent's host says that it was seen off because of this request.
    SeenOff { request: String },
    /// An agent that had agreed to leave was given work.
    TookUp { request: String, id: String },
    /// Another step had the same file at the same time.
    Shared { step: String, file: String },
    /// The command has answered in a way that no row of its contract allows here.
    Wrong { command: String, told: String },
}
