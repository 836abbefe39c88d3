//! The words of the contracts, with every spelling that is read. The first spelling is the one that
//! is written.

use serde::{Deserialize, Serialize};

use super::reader::{Spelling, word};

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
            pub(super) const SPELLINGS: &'static [Spelling<Self>] =
                &[$((Self::$variant, &[$($spelling),+])),+];

            /// Reads a word in any of its spellings.
            #[must_use]
            pub fn read(text: &str) -> Option<Self> {
                let wanted = word(text);
                let found = Self::SPELLINGS.iter().find(|(_, all)| all.contains(&wanted.as_str()));
                found.map(|(value, _)| *value)
            }

            /// The word as it is written.
            #[must_use]
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
    /// How a task ended.
    Status ("snake_case") {
        /// It was done.
        Success = ["success", "succeeded", "successful", "ok", "done", "pass", "passed", "complete", "completed"];
        /// It was tried and did not work.
        Failed = ["failed", "failure", "fail", "error", "errored"];
        /// Somebody else has to do something first.
        Blocked = ["blocked", "blocking"];
    }
}

words! {
    /// What a reviewer says.
    Verdict ("snake_case") {
        /// It can stay as it is.
        Approved = ["approved", "approve", "accepted", "lgtm", "ok", "pass", "passed"];
        /// It has to be changed.
        NeedsFix = ["needs_fix", "needs_fixes", "need_fix", "needs_work", "needs_changes", "changes_requested", "request_changes", "rejected", "reject", "fail", "failed"];
    }
}

words! {
    /// How much a finding weighs.
    #[allow(missing_docs)] // the words say it
    Severity ("UPPERCASE") {
        Critical = ["CRITICAL", "critical", "blocker", "fatal"];
        High = ["HIGH", "high", "major", "error", "severe"];
        Medium = ["MEDIUM", "medium", "moderate", "warning", "warn", "normal"];
        Low = ["LOW", "low", "minor", "info", "information", "nit", "note", "trivial"];
    }
}

words! {
    /// How a batch of tasks ended.
    SummaryStatus ("snake_case") {
        /// Every task was done.
        Success = ["success", "succeeded", "ok", "done", "all_completed", "completed", "complete", "passed"];
        /// At least one task was done and at least one was not.
        Partial = ["partial", "partially_completed", "partial_success", "incomplete", "some_failed"];
        /// No task was done.
        Failed = ["failed", "failure", "fail", "error", "all_failed"];
    }
}

words! {
    /// What Dispatch is to start.
    InstructionType ("snake_case") {
        /// Workers in panes.
        StartWorkers = ["start_workers", "start_worker", "workers"];
        /// Workers with a worktree each.
        StartWorktree = ["start_worktree", "start_worktrees", "worktree", "worktrees"];
        /// Teams of the agent's own program.
        StartAgentTeams = ["start_agent_teams", "start_agent_team", "agent_teams"];
    }
}

words! {
    /// How much process a piece of work gets.
    #[allow(missing_docs)] // the words say it
    Workflow ("snake_case") {
        Simple = ["simple"];
        Default = ["default", "standard", "normal"];
        Heavy = ["heavy"];
        Worktree = ["worktree", "worktrees"];
    }
}

words! {
    /// How the work is spread: A one worker, B several, C a worktree each, T agent teams.
    #[allow(missing_docs)] // the words say it
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
    fn a_word_is_read_in_every_spelling_and_written_in_one() {
        for text in ["success", "SUCCESS", "Completed", "done", " ok "] {
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
