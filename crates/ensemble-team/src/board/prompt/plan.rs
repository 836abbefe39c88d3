//! What a coder's prompt says of a plan that is demanded before the work.
//!
//! | the plan | the prompt says |
//! |---|---|
//! | was not submitted | plan only, submit the plan, and end |
//! | waits for its review | wait for the answer, and change nothing |
//! | was rejected, or not reviewed in time | the feedback and the plan; submit the next one, and end |
//! | was approved | the plan: carry it out |

use super::said;
use ensemble_core::message::Name;

const PLAN_BYTES_MAX: usize = 16 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmittedPlan {
    pub request: Name,
    pub reviewer: Name,
    pub text: String,
    pub comment: String,
}

impl SubmittedPlan {
    pub const fn new(request: Name, reviewer: Name, text: String) -> Self {
        Self { request, reviewer, text, comment: String::new() }
    }

    fn text(&self) -> String {
        let mut end = self.text.len().min(PLAN_BYTES_MAX);
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        let mut shown = format!("\n  {}", said(Some(&self.text[..end])));
        if end < self.text.len() {
            shown += &format!("\n  … (`ensemble request list {}` shows all of it)", self.request);
        }
        shown
    }

    fn comment(&self) -> String {
        match self.comment.trim() {
            "" => " without a word".to_owned(),
            comment => format!(", and says:\n  {}\n ", said(Some(comment))),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanStanding {
    Demanded {
        by: Name,
    },
    Pending(SubmittedPlan),
    Rejected(SubmittedPlan),
    /// The plan was not reviewed in time.
    Expired(SubmittedPlan),
    Approved(SubmittedPlan),
}

impl PlanStanding {
    pub(super) const fn is_approved(&self) -> bool {
        matches!(self, Self::Approved(_))
    }

    pub(super) fn instructions(&self, id: &Name) -> Vec<String> {
        let submit = |to: &Name| {
            format!(
                "Submit the plan on standard input, `ensemble request plan -f - --to {to} --task {id}`, then \
                 exit with 0. Your supervisor waits for the answer. Then it starts an agent that carries the \
                 plan out, or plans again."
            )
        };
        match self {
            Self::Demanded { by } => vec![
                format!(
                    "First a plan: {by} demands a plan for this task. Nothing is accepted before it is \
                     approved. Say what you will change, in which files, in which order, and how it is \
                     tested. Change and commit nothing now."
                ),
                submit(by),
            ],
            Self::Pending(plan) => vec![format!(
                "Your plan {} waits for {}. Change and commit nothing: `ensemble request list {0}` shows \
                 whether it is approved. If it still waits, exit with 0.",
                plan.request, plan.reviewer
            )],
            Self::Rejected(plan) => vec![
                format!(
                    "{} has rejected your plan {}{} The plan was:{}",
                    plan.reviewer,
                    plan.request,
                    plan.comment(),
                    plan.text()
                ),
                format!(
                    "Settle every point of that in the next plan. Change and commit nothing now. {}",
                    submit(&plan.reviewer)
                ),
            ],
            Self::Expired(plan) => vec![
                format!(
                    "{} has not reviewed your plan {} in time. The plan was:{}",
                    plan.reviewer,
                    plan.request,
                    plan.text()
                ),
                format!(
                    "Check it, and submit it again. Change and commit nothing now. {}",
                    submit(&plan.reviewer)
                ),
            ],
            Self::Approved(plan) => vec![format!(
                "{} has approved your plan {}{} Carry it out, and no other:{}",
                plan.reviewer,
                plan.request,
                plan.comment(),
                plan.text()
            )],
        }
    }
}
