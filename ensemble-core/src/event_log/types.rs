//! Every type of record that Ensemble writes: one row with its constant, its writer, its data and its meaning.
//!
//! Writers and readers name a type by its constant, so a misspelt type does not compile. A test refuses a bare
//! literal at a call of `record`, and compares [`TABLE`] with docs/protocol/event-log.md (`BLESS=1` writes it).
//! Other programs use their own types, as text: see [`RecordType`](super::RecordType).
//!
//! ```
//! use ensemble_core::event_log::types;
//! assert_eq!(types::MESSAGE_STORED, "message.stored");
//! assert!(types::TABLE.iter().any(|row| row.name == types::NUDGE_SENT && row.writer == "watcher, `nudge`"));
//! ```

/// A row of [`TABLE`]. Its texts are Markdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventType {
    /// The type, as `name.event` or one of the eleven plain types.
    pub name: &'static str,
    /// The program, verb or role that writes it.
    pub writer: &'static str,
    /// The fields of its data; `?` marks one that may be missing.
    pub fields: &'static str,
    /// The event, in one line.
    pub meaning: &'static str,
}

macro_rules! event_types {
    ($(#[doc = $meaning:literal] $constant:ident = $name:literal by $writer:literal: $fields:literal;)*) => {
        $(#[doc = $meaning] pub const $constant: &str = $name;)*

        /// All types, in the order of the documentation.
        pub const TABLE: &[EventType] = &[$(EventType {
            name: $constant, writer: $writer, fields: $fields, meaning: $meaning.trim_ascii(),
        }),*];
    };
}

event_types! {
    /// A session began.
    SESSION_START = "session_start" by "first writer": "`after`?: the file that this session continues";
    /// The watcher ended the session.
    SESSION_END = "session_end" by "watcher": "";
    /// The log continues in another file.
    LOG_CONTINUED = "log.continued" by "any writer": "`next`";
    /// The log's file had vanished and was made again.
    LOG_RECREATED = "log.recreated" by "any writer": "";

    /// A mailbox was added.
    MAILBOX_ADDED = "mailbox.added" by "the adding process": "`mailbox`, `settings`";
    /// The settings of a mailbox changed.
    MAILBOX_CONFIGURED = "mailbox.configured" by "the changing process": "`mailbox`, `settings`";
    /// A mailbox was removed.
    MAILBOX_REMOVED = "mailbox.removed" by "the removing process": "`mailbox`, `unfinished`";
    /// A full mailbox refused a message.
    MAILBOX_FULL = "mailbox.full" by "sender": "`mailbox`, `id`, `capacity`, `refused`";
    /// A message was refused: its sender has too much unread mail there.
    MAILBOX_QUOTA = "mailbox.quota" by "sender": "`mailbox`, `id`, `messages`, `bytes`";

    /// A message was stored in its mailbox.
    MESSAGE_STORED = "message.stored" by "sender": "`id`, `mailbox`, `type`, `bytes`, `task_id`?, `correlation_id`?, `source`?, `traceparent`?";
    /// A message was received, which is its ack.
    MESSAGE_ACKED = "message.acked" by "holder": "`id`, `mailbox`, `epoch`";
    /// A message was settled.
    MESSAGE_SETTLED = "message.settled" by "holder": "`id`, `mailbox`, `epoch`";
    /// A lease was extended.
    MESSAGE_EXTENDED = "message.extended" by "holder": "`id`, `mailbox`, `epoch`, `lease_seconds`";
    /// A held message was returned to its mailbox.
    MESSAGE_RELEASED = "message.released" by "holder, observer": "`id`, `mailbox`, `epoch`, `why`, `delay_ms`";
    /// A message became a dead letter.
    MESSAGE_DEAD = "message.dead" by "holder, observer, sender": "`id`, `mailbox`, `epoch`, `reason`";
    /// A message was settled because an earlier holder has reported its task; its present holder was notified.
    MESSAGE_WITHDRAWN = "message.withdrawn" by "`report`, watcher": "`id`, `mailbox`, `task_id`, `from`, `by`, `epoch`";
    /// A dead letter was returned to its mailbox.
    MESSAGE_REDRIVEN = "message.redriven" by "the redriving process": "`id`, `mailbox`, `epoch`";
    /// A dead letter was removed for good.
    MESSAGE_DROPPED = "message.dropped" by "the dropping process": "`id`, `mailbox`";
    /// A stored message is damaged.
    MESSAGE_DAMAGED = "message.damaged" by "sender": "`id`, `mailbox`";
    /// A second copy of a message was set aside.
    MESSAGE_DOUBLE = "message.double" by "consumer": "`id`, `mailbox`, `kept_as`";
    /// Files that no client needs were removed.
    QUEUE_SWEPT = "queue.swept" by "watcher": "`tmp`, `done`, `orphans`, `requests`";
    /// Files past their retention were removed.
    HISTORY_SWEPT = "history.swept" by "watcher": "`logs`, `rejected`, `attachments`, `reviews`, `batches`, `merges`";
    /// Messages were moved between the directory and servers.
    BRIDGE_CARRIED = "bridge.carried" by "watcher": "`from`, `carried`, `buried`";

    /// An agent was notified of messages.
    RECEIPT_NOTIFIED = "receipt.notified" by "watcher": "`mailbox`, `ids` (at most 32), `evidence`";
    /// A line about messages was submitted in an agent's pane, or a hook delivered them.
    RECEIPT_SUBMITTED = "receipt.submitted" by "watcher, `hook`": "`mailbox`, `ids` (at most 32), `evidence`";
    /// The transcript of an agent's program contains the turn that read the messages.
    RECEIPT_CONFIRMED = "receipt.confirmed" by "`hook`": "`mailbox`, `ids`, `evidence`";
    /// A nudge was typed.
    NUDGE_SENT = "nudge.sent" by "watcher, `nudge`": "`agent`, `mailbox`, `pane`, `attempt`";
    /// A nudge was deferred.
    NUDGE_DEFERRED = "nudge.deferred" by "watcher, `nudge`": "`agent`, `mailbox`, `pane`, `reason`, `detail`, `waiting`";
    /// An agent received no mail after its last nudge.
    NUDGE_UNANSWERED = "nudge.unanswered" by "watcher": "`agent`, `mailbox`, `waiting`, `nudges`";
    /// A hook of an agent failed, and the agent was not notified.
    HOOK_FAILED = "hook.failed" by "`hook`": "`event`, `provider`, `why`";

    /// A task was delivered to a worker.
    WORKER_ASSIGN = "worker_assign" by "`assign`, `dispatch`, `AckManager`": "`task_id`, `worker_id`, `attempt`, `id`, `mailbox`";
    /// A worker acknowledged its task.
    TASK_START = "task_start" by "`assign`, `AckManager`": "`task_id`, `worker_id`, `attempt`, `phase`, `id`";
    /// A task ended with success.
    TASK_COMPLETE = "task_complete" by "the first process with evidence": "`task_id`, `worker_id`, `status`, `by` (`report`, `settle`), `id`?, `attempt`?";
    /// A task ended without success.
    TASK_FAILED = "task_failed" by "the first process with evidence": "`task_id`, `worker_id`, `status`, `by` (`report`, `settle`, `dead_letter`), `id`?, `attempt`?, `reason`?";
    /// A review began.
    REVIEW_START = "review_start" by "`review`, watcher": "`task_id`, `reviewer`";
    /// A reviewer gave a result.
    REVIEW_RESULT = "review_result" by "`review`, watcher, `summary`": "`task_id`, `reviewer`, `status`, `findings`: how many, `cycles`, `file`";
    /// A task came back from review too often, or an author gets no more automatic answers.
    LOOP_DETECTED = "loop_detected" by "`review`, watcher": "`task_id`, `cycles`, `limit`, `file`; or `worker_id`, `file`, `cycles`, `limit`, `why` (`notice`, `row`)";
    /// A person lifted the review stop of a task.
    REVIEW_LIFTED = "review.lifted" by "`review`": "`task_id`";
    /// No worker acknowledged a task.
    ESCALATION = "escalation" by "`assign`, `AckManager`": "the fields of the escalation file, `worker_id`, `file`";
    /// An agent left the team.
    WORKER_RELEASE = "worker_release" by "watcher, or the verb that ends the agent": "`worker_id`, `generation`, `how`, `request_id`, `reason`, `exit_code`, `survivors`, `leases_released`, `mail_returned`, `mail_dead`, `mail_kept`";

    /// A worker was asked whether it is ready.
    READY_PING = "ready.ping" by "`assign`, `ping`": "`worker_id`, `attempt`, `typed`, `reason`?, `way`?: `hook`";
    /// A typed ping could not be removed from its pane.
    READY_PING_LEFT = "ready.ping_left" by "`assign`, `ping`": "`worker_id`, `reason`";
    /// A worker was seen to be idle by its hooks or its server, and was not asked.
    READY_IDLE = "ready.idle" by "`assign`, `dispatch`": "`worker_id`";
    /// A worker answered that it is ready.
    READY_PONG = "ready.pong" by "`assign`, `ping`": "`worker_id`, `attempt`";
    /// A pong came from another worker.
    READY_STRAY_PONG = "ready.stray_pong" by "`assign`, `ping`": "`worker_id`, `attempt`, `from`";
    /// A ping had no answer and is repeated.
    READY_RETRY = "ready.retry" by "`assign`, `ping`": "`worker_id`, `attempt`, `error_type`, `observation`, `open_command_sent`";
    /// A worker's program was opened.
    READY_OPEN = "ready.open" by "`assign`, `ping`": "`worker_id`, `attempt`, `command`, `sent`, `reason`";
    /// A worker answered no ping.
    READY_FAILED = "ready.failed" by "`assign`, `ping`": "the fields of the readiness failure block";

    /// The ladder of a delivery began.
    LADDER_BEGUN = "ladder.begun" by "the runner of the ladder": "`task_id`, `worker_id`, `attempt`, `id`, `mailbox`";
    /// The ladder of a delivery entered a phase.
    LADDER_PHASE = "ladder.phase" by "`assign`, `AckManager`": "`task_id`, `worker_id`, `phase`";
    /// The ladder skipped a phase.
    LADDER_SKIPPED = "ladder.skipped" by "`assign`, `AckManager`": "`task_id`, `worker_id`, `phase`";
    /// The ladder typed a line, or refused to.
    LADDER_NUDGE = "ladder.nudge" by "`assign`, `AckManager`": "`task_id`, `worker_id`, `phase`, `sent`, `reason`, `detail`";
    /// The ladder pressed keys, or refused to.
    LADDER_PRESSED = "ladder.pressed" by "`assign`, `AckManager`": "`task_id`, `worker_id`, `phase`, `pressed`, `refused`";
    /// The ladder waits for a busy worker.
    LADDER_WAITING = "ladder.waiting" by "`assign`, `AckManager`": "`task_id`, `worker_id`, `worker_state`";
    /// An ack of an earlier attempt arrived.
    LADDER_STALE_ACK = "ladder.stale_ack" by "`assign`, `AckManager`": "`task_id`, `worker_id`, `attempt`";
    /// An ack arrived after the escalation.
    LADDER_LATE_ACK = "ladder.late_ack" by "`assign`, `AckManager`": "`task_id`, `worker_id`, `attempt`";

    /// The steps of a task were stored.
    STEP_ADDED = "step.added" by "`step add`": "`task_id`, `steps`";
    /// A worker took a step.
    STEP_TAKEN = "step.taken" by "worker": "`task_id`, `step_index`, `attempt`, `epoch`";
    /// The prompt of a step was sent to its worker.
    STEP_PROMPTED = "step.prompted" by "`step run`": "`task_id`, `step_index`, `attempt`, `epoch`, `id`, `mailbox`, `prompt_sha256`";
    /// A step was completed.
    STEP_COMPLETED = "step.completed" by "worker": "`task_id`, `step_index`, `epoch`, `next_attempt`, `paused`";
    /// A step failed.
    STEP_FAILED = "step.failed" by "worker": "`task_id`, `step_index`, `epoch`, `next_attempt`, `paused`";
    /// A step for the fixer of a failed step was inserted.
    STEP_FIX_ADDED = "step.fix_added" by "worker": "`task_id`, `step_index`, `fix_step`, `agent`";
    /// A step was blocked by its worker.
    STEP_BLOCKED = "step.blocked" by "worker": "`task_id`, `step_index`, `epoch`, `next_attempt`, `paused`";
    /// A report of a step changed nothing.
    STEP_REFUSED = "step.refused" by "worker": "`task_id`, `step_index`, `error`";
    /// A report of a step was stored, but mail about it was not.
    STEP_UNTOLD = "step.untold" by "`step run`": "`task_id`, `step_index`, `error`";
    /// The lease of a step ended.
    STEP_LEASE_ENDED = "step.lease_ended" by "watcher, worker": "`task_id`, `step_index`, `epoch`, `holder`, `stopped`";
    /// A step may be tried again.
    STEP_RETRIED = "step.retried" by "`step retry`": "`task_id`, `step_index`";
    /// A blocked step may continue.
    STEP_UNBLOCKED = "step.unblocked" by "`step unblock`": "`task_id`, `step_index`";
    /// A step was skipped.
    STEP_SKIPPED = "step.skipped" by "`step skip`": "`task_id`, `step_index`";
    /// A step was split into parts.
    STEP_SPLIT = "step.split" by "`step split`": "`task_id`, `step_index`, `parts`";
    /// All steps of a task are completed.
    STEPS_DONE = "steps.done" by "worker": "`task_id`";

    /// A drop-box file was routed to a recipient.
    FILE_ROUTED = "file.routed" by "watcher": "`file`, `mailbox`, `id`, `type`, `task_id`";
    /// A closure of an embedded watcher handled a drop-box file.
    FILE_HANDLED = "file.handled" by "the library's `Watcher`": "`file`, `id`: of this version of it";
    /// A drop-box file was rejected.
    FILE_REJECTED = "file.rejected" by "watcher": "`file`, `kept_as`, `error`, `told`: the notified mailboxes";
    /// A drop-box file waits for a recipient with a mailbox and room.
    FILE_WAITING = "file.waiting" by "watcher": "`file`, `error`";
    /// A drop-box file has no route.
    FILE_UNMATCHED = "file.unmatched" by "watcher": "`file`";
    /// Versions of a drop-box file were overwritten before they were read.
    FILE_OVERWRITTEN = "file.overwritten" by "watcher": "`file`, `versions`: at least this many, because the system merges events";
    /// A routed file was written again with the same content, and does not count again.
    FILE_AGAIN = "file.again" by "watcher": "`file`, `told`: the notified author of a task";
    /// A delivered report has lint findings.
    REPORT_VAGUE = "report.vague" by "watcher": "`file`, `findings`: how many, `rules`, `told`: the notified mailbox";
    /// A task was received on behalf of the agent that wrote an `ack/` file.
    ACK_RECEIVED = "ack.received" by "watcher": "`task_id`, `lease`";
    /// The summary of a batch was sent.
    BATCH_TOLD = "batch.told" by "`summary`, Dispatch": "`batch_id`, `status`, `total`, `completed`, `failed`, `missing`";
    /// A role was not notified in time and polls.
    ROLE_PATIENCE_ENDED = "role.patience_ended" by "watcher, Dispatch, Conductor": "`role`";

    /// The machine slept, or its wall clock was set.
    LEASE_CLOCK_GAP = "lease.clock_gap" by "observer": "`gap`";
    /// The observer itself was stopped for a while, and gives holders time to renew.
    LEASE_LATE_LOOK = "lease.late_look" by "observer": "`seconds`";
    /// A lease was extended for a long operation.
    LEASE_EXTENDED_LONG = "lease.extended_long" by "supervisor": "`agent`, `epoch`, `line`: `Extended lease for long operation: …`";
    /// The lease of an agent that is seen working was extended for the first time.
    LEASE_KEPT = "lease.kept" by "watcher": "`agent`, `lease`, `evidence`, `kept_seconds`";
    /// A lease was extended for the configured time; it expires unless its holder extends it.
    LEASE_KEPT_ENOUGH = "lease.kept_enough" by "watcher": "`agent`, `lease`, `evidence`, `kept_seconds`";
    /// An agent has ended; what it held was returned at once.
    LEASE_HOLDER_GONE = "lease.holder_gone" by "watcher": "`agent`, `why`, `messages` (`id`, `mailbox`, `attempt`), `others` (steps, claims, reviews)";

    /// A plan is demanded of each agent that takes a task.
    PLAN_DEMANDED = "plan.demanded" by "lead": "`task_id`";
    /// A task was settled although its plan was not approved.
    PLAN_PASSED = "plan.passed" by "watcher, `assign`": "`task_id`, `id`, `agent`, `state` (of the gate), `told`";
    /// A request was opened.
    REQUEST_OPENED = "request.opened" by "requester": "`request_id`, `kind`, `from`, `to`, `deadline_seconds`, `task_id`, `round`";
    /// The addressee of a request was reminded.
    REQUEST_REMINDED = "request.reminded" by "watcher": "`request_id`, `kind`, `from`, `to`, `nth`";
    /// A request was approved or rejected.
    REQUEST_DECIDED = "request.decided" by "addressee": "`request_id`, `kind`, `from`, `to`, `outcome`, `by`, `at`, `at_expiry`, `comment_bytes`";
    /// A request passed its deadline without a decision.
    REQUEST_EXPIRED = "request.expired" by "watcher, waiting process": "`request_id`, `kind`, `from`, `to`, `outcome`, `by`, `at`, `at_expiry`, `comment_bytes`";
    /// A requester withdrew a request.
    REQUEST_CANCELLED = "request.cancelled" by "requester": "`request_id`, `kind`, `from`, `to`, `outcome`, `by`, `at`, `at_expiry`, `comment_bytes`";
    /// A question or decision was refused.
    REQUEST_REFUSED = "request.refused" by "the refused agent": "`request_id`, `by`, `outcome`?, `why`: `unknown`, `decided`, `not_addressee`, `own_request`, `not_requester`, `not_over`, `unknown_kind`, `taken`, `plan_pending`";
    /// A received message would decide a request, but only the message says who sent it; it decides nothing.
    REQUEST_UNPROVEN = "request.unproven" by "recipient": "`request_id`, `kind`, `from`, `to`, `message`, `stated`, `approve`";
    /// A decided request was passed to the process that carries it out.
    REQUEST_HANDED_OVER = "request.handed_over" by "watcher": "`request_id`, `kind`, `from`, `to`, `outcome`";
    /// A file of a request was invalid and was set aside.
    REQUEST_REJECTED_FILE = "request.rejected_file" by "its reader": "`request_id`, `kept_as`, `error`";

    /// A member of the team runs.
    AGENT_UP = "agent.up" by "`up`, `agent start`, `agent join`, `claude` and its like": "`agent`, `role`, `provider`, `generation`, `how` (`started`, `restarted`, `adopted`, `joined`), `pane`, `pid`";
    /// Waiting mail started its reader.
    AGENT_MAIL_START = "agent.mail_start" by "watcher": "`agent`, `mailbox`, `waiting`, `count`, `max`";
    /// An agent that a person had started in a terminal has ended.
    AGENT_LEFT = "agent.left" by "`claude` and its like": "`agent`, `generation`, `exit_code`";
    /// Processes of an earlier generation were terminated before a start.
    AGENT_REMAINS = "agent.remains" by "`up`, `agent start`": "`agent`, `found`, `survivors`";
    /// The observed state of an agent changed.
    AGENT_STATE = "agent.state" by "watcher": "`agent`, `from`, `to`, `why`";
    /// An agent reached a usage limit and keeps its leases.
    WORKER_PARKED = "worker.parked" by "watcher": "`agent`, `resets_at`, `until`, `held`";
    /// An agent is no longer at its usage limit.
    WORKER_RESUMED = "worker.resumed" by "watcher": "`agent`, `parked_seconds`";
    /// An agent was at a usage limit for six hours; its leases expire.
    WORKER_GIVEN_UP = "worker.given_up" by "watcher": "`agent`";
    /// A shutdown did not succeed and is tried again.
    SHUTDOWN_FAILED = "shutdown.failed" by "watcher, `down`": "`agent`, `step` or `request_id`, `error`";
    /// The team was shut down.
    TEAM_DOWN = "team.down" by "`down`": "`session`";
    /// An agent was refused an action that it has no authority for.
    AUTHORITY_REFUSED = "authority.refused" by "agent": "`agent`, `role`, `act`: the key in `authority`, `request_id` of a request that was put down by hand";
    /// A claimed name was refused.
    IDENTITY_REFUSED = "identity.refused" by "any verb": "`claimed`, `actual`, `why` (`mismatch`, `outsider`, `contradiction`, `unknown_pass`, `ended`, `join`), `verb`";

    /// Ensemble wrote the blackboard.
    BOARD_WRITTEN = "board.written" by "the writing process": "`revision`, `sha256`, `bytes`, `count`, `steps` (at most 16: `what`, `task`?, `agent`?, `epoch`?, `status`?, …)";
    /// Another program changed the blackboard.
    BOARD_EDITED = "board.edited" by "its next writer": "`revision`, `sha256`, `before`";
    /// A condition of the board was reported; the same `id` twice if the watcher died in between.
    ALARM_RAISED = "alarm.raised" by "watcher": "`alarm`, `about`, `id` of the message, `text`, `told`: the mailbox that has it";
    /// A budget is used up; no work under it begins.
    BUDGET_PARKED = "budget.parked" by "watcher": "`scope`, `limit` and `used` (`usd`, `tokens`)";
    /// A budget is no longer used up.
    BUDGET_LIFTED = "budget.lifted" by "watcher": "`scope`";
    /// A person allowed more than the configured budget.
    BUDGET_ALLOWED = "budget.allowed" by "`usage`": "`scope`, `more` (`usd`, `tokens`)";
    /// A person was notified of a need, or that all work has ended.
    ALERT_SENT = "alert.sent" by "watcher": "`need`, `agent`?, `about`?, `since`?, `text`, `help`, `count`, `rule` (from 1)";
    /// An alert was not delivered.
    ALERT_FAILED = "alert.failed" by "watcher": "as `alert.sent`; `error`, `retried`: it is tried again";
    /// A control file was put beside the board.
    CONTROL_PUT = "control.put" by "`pause`, `checkpoint`, `abort`, circuit breaker": "`file` (PAUSE, CHECKPOINT, ABORT), `reason`?";
    /// A control file was removed.
    CONTROL_REMOVED = "control.removed" by "`resume`": "`file`";
    /// A claim of a task was given up after its tries.
    TASK_CLAIM_FAILED = "task.claim_failed" by "claimant": "`task`, `agent`, `tries`, `why`";
    /// The content of a worktree was saved as a commit.
    WORKTREE_SALVAGED = "worktree.salvaged" by "observer": "`task`, `epoch`, `ref`, `commit`, `ignored` (the first files that git ignores and that went)";
    /// A worktree was kept, since removing it would lose work.
    WORKTREE_KEPT = "worktree.kept" by "observer": "`task`, `epoch`, `from`, `path`, `why`";
    /// The repository's `post-checkout` hook failed in a new worktree; the worktree is usable.
    WORKTREE_HOOK_FAILED = "worktree.hook_failed" by "claimant, merger": "`path`, `why`";
    /// A problem of a worktree, for example after a crash, was repaired.
    WORKTREE_RECOVERED = "worktree.recovered" by "supervisor, `fsck`": "`task`?, `path`, `problem`";

    /// A supervisor started an agent.
    SUPERVISE_SPAWNED = "supervise.spawned" by "supervisor": "`agent`, `registration`, `task`, `epoch`, `pid`";
    /// A supervised agent ended.
    SUPERVISE_EXITED = "supervise.exited" by "supervisor": "`agent`, `registration`, `task`, `ending`, `holds`: its work is not finished, `progress`, `notes`";
    /// A supervisor ended its agent.
    SUPERVISE_TERMINATED = "supervise.terminated" by "supervisor": "`agent`, `registration`, `processes`";
    /// A control file holds a supervisor back.
    SUPERVISE_GATED = "supervise.gated" by "supervisor": "`agent`, `registration`, `file`: PAUSE, CHECKPOINT or ABORT";
    /// A supervisor blocked a task.
    SUPERVISE_BLOCKED = "supervise.blocked" by "supervisor": "`agent`, `registration`, `task`, `reason`";
    /// Processes that a killed supervisor's agent had left running were terminated.
    SUPERVISE_RECOVERED = "supervise.recovered" by "supervisor": "`agent`, `pid`, `processes`";
    /// An action of a supervisor failed and is tried again.
    SUPERVISE_FAILED = "supervise.failed" by "supervisor, observer": "`agent`, `what`, `error`";
    /// A supervisor ended.
    SUPERVISE_ENDED = "supervise.ended" by "supervisor": "`agent`, `reason`";

    /// The watcher polls, since it gets no events.
    WATCH_DEGRADED = "watch.degraded" by "watcher": "`why`";
    /// The system lost events, and the watcher scans.
    WATCH_OVERFLOW = "watch.overflow" by "watcher": "";
    /// The source of events does not respond.
    WATCH_SOURCE_DEAD = "watch.source_dead" by "watcher": "";
    /// Events arrive again.
    WATCH_RECOVERED = "watch.recovered" by "watcher": "";
    /// The queue's directory is gone.
    WATCH_QUEUE_GONE = "watch.queue_gone" by "watcher": "`queue`";
    /// The servers that have the mailboxes are unreachable.
    WATCH_SERVER_GONE = "watch.server_gone" by "watcher": "`why`";
    /// The servers that have the mailboxes are reachable again.
    WATCH_SERVER_BACK = "watch.server_back" by "watcher": "`server`";
}

#[cfg(test)]
mod tests {
    use super::TABLE;
    use crate::event_log::RecordType;

    #[test]
    fn each_type_stands_once_and_only_ensemble_writes_it() {
        for (at, row) in TABLE.iter().enumerate() {
            let kind = RecordType::new(row.name).unwrap();
            assert!(kind.is_reserved() || RecordType::SEED.contains(&kind), "{kind}");
            assert!(TABLE[..at].iter().all(|earlier| earlier.name != row.name), "{kind} twice");
        }
        let is_in_table = |kind: &RecordType| TABLE.iter().any(|row| row.name == kind.as_str());
        assert!(RecordType::SEED.iter().all(is_in_table));
    }
}
