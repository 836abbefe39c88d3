//! The words of the contracts, with every spelling that is read. The first spelling is the one that
//! is written.

use serde::{Deserialize, Serialize};

use super::reader::{ValueSpelling, word};

macro_rules! words {
    ($(#[$doc:meta])* $name:ident ($case:literal) {
        $($(#[$variant_doc:meta])* $variant:ident = [$($spelling:literal),+];)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(rename_all = $case)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            pub(super) const SPELLINGS: &'static [ValueSpelling<Self>] =
                &[$((Self::$variant, &[$($spelling),+])),+];

            /// Parses a word in any of its spellings.
            pub fn read(text: &str) -> Option<Self> {
                let wanted = word(text);
                let found = Self::SPELLINGS.iter().find(|(_, all)| all.contains(&wanted.as_str()));
                found.map(|(value, _)| *value)
            }

            /// The word as it is written.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => [$($spelling),+][0],)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

words! {
    /// Outcome of a task.
    #[derive(Default)]
    Status ("snake_case") {
        /// The task was done.
        Success = ["success", "succeeded", "successful", "ok", "done", "pass", "passed", "complete", "completed", "finished", "successfully_completed", "completed_successfully", "成功", "完了", "完成", "已完成", "✅", "✔"];
        /// The task was tried and failed.
        #[default]
        Failed = ["failed", "failure", "fail", "error", "errored", "失敗", "失败", "❌", "✗"];
        /// Another agent or a person must act first.
        Blocked = ["blocked", "blocking", "ブロック", "ブロック中", "保留", "阻塞", "受阻"];
    }
}

words! {
    /// A reviewer's verdict.
    #[derive(Default)]
    Verdict ("snake_case") {
        /// The work is approved.
        Approved = ["approved", "approve", "accepted", "lgtm", "ok", "pass", "passed", "承認", "批准", "通过", "通過", "✅", "✔"];
        /// The work needs changes.
        #[default]
        NeedsFix = ["needs_fix", "needs_fixes", "need_fix", "needs_work", "needs_changes", "changes_requested", "request_changes", "rejected", "reject", "fail", "failed", "要修正", "差し戻し", "需要修改", "驳回", "駁回", "❌", "✗"];
    }
}

words! {
    /// Severity of a finding.
    Severity ("UPPERCASE") {
        Critical = ["CRITICAL", "critical", "blocker", "fatal"];
        High = ["HIGH", "high", "major", "error", "severe"];
        Medium = ["MEDIUM", "medium", "moderate", "warning", "warn", "normal"];
        Low = ["LOW", "low", "minor", "info", "information", "nit", "note", "trivial"];
    }
}

words! {
    /// Outcome of a batch of tasks.
    #[derive(Default)]
    SummaryStatus ("snake_case") {
        /// Every task was done.
        Success = ["success", "succeeded", "ok", "done", "all_completed", "completed", "complete", "passed", "成功", "完了", "完成", "已完成"];
        /// At least one task was done and at least one was not.
        Partial = ["partial", "partially_completed", "partial_success", "incomplete", "some_failed", "一部成功", "部分成功"];
        /// No task was done.
        #[default]
        Failed = ["failed", "failure", "fail", "error", "all_failed", "失敗", "失败"];
    }
}

words! {
    /// Kind of workers that Dispatch starts.
    #[derive(Default)]
    InstructionType ("snake_case") {
        /// Workers in panes.
        #[default]
        StartWorkers = ["start_workers", "start_worker", "workers"];
        /// Workers with one worktree each.
        StartWorktree = ["start_worktree", "start_worktrees", "worktree", "worktrees"];
        /// Agent teams of the agent's own program.
        StartAgentTeams = ["start_agent_teams", "start_agent_team", "agent_teams"];
    }
}

words! {
    /// Amount of process for a piece of work.
    Workflow ("snake_case") {
        Simple = ["simple"];
        Default = ["default", "standard", "normal"];
        Heavy = ["heavy"];
        Worktree = ["worktree", "worktrees"];
    }
}

words! {
    /// How the work is distributed: A one worker, B several, C one worktree each, T agent teams.
    Pattern ("UPPERCASE") {
        A = ["A", "a", "pattern_a", "single"];
        B = ["B", "b", "pattern_b", "parallel"];
        C = ["C", "c", "pattern_c", "worktree"];
        T = ["T", "t", "pattern_t", "agent_teams"];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_in_every_spelling_and_written_in_one() {
        let words =
            ["success", "SUCCESS", "Completed", " ok ", "success!", "成功", "✅", "✔\u{fe0f}"];
        let wrapped = ["**done** ✅", "Successfully completed.", "Some(Success)", "“success”"];
        for text in words.iter().chain(&wrapped) {
            assert_eq!(Status::read(text), Some(Status::Success), "{text}");
        }
        for text in ["failed", "failure", "Failure", "FAIL"] {
            assert_eq!(Status::read(text), Some(Status::Failed), "{text}");
        }
        for text in ["needs_fix", "needs-fix", "Needs Fix", "needsFix", "NEEDS_FIX", "rejected"] {
            assert_eq!(Verdict::read(text), Some(Verdict::NeedsFix), "{text}");
        }
        assert_eq!(SummaryStatus::read("all_completed"), Some(SummaryStatus::Success));
        assert_eq!(Severity::read("Critical"), Some(Severity::Critical));
        assert_eq!((Severity::Low.as_str(), Status::Failed.as_str()), ("LOW", "failed"));
        for text in ["", "maybe", "successfully", "not ok"] {
            assert_eq!(Status::read(text), None, "{text}");
        }
        let word = serde_json::to_value((Severity::High, Verdict::NeedsFix, Pattern::T)).unwrap();
        assert_eq!(word, serde_json::json!(["HIGH", "needs_fix", "T"]));
    }
}
