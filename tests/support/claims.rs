//! The claims and reviews of a blackboard, by its log alone.
#![allow(unreachable_pub, reason = "a module of test programs")]

use std::collections::{BTreeMap, BTreeSet};

use ensemble_team::board::LEASE_RAN_OUT;
use serde_json::Value;

/// The claims and reviews in the log.
#[derive(Default)]
pub struct Claims {
    pub count: usize,
    pub lost: usize,
    /// Holders whose leases ran out.
    pub ran_out: BTreeSet<u64>,
}

/// Checks by the log alone that each task and each review has at most one holder at a time. Every
/// holder must have a new epoch.
pub fn one_holder_at_a_time<'a>(steps: impl Iterator<Item = &'a Value>) -> Result<Claims, String> {
    let mut held: BTreeMap<(String, bool), u64> = BTreeMap::new();
    let mut drawn = BTreeSet::new();
    let mut claims = Claims::default();
    for step in steps {
        let Some(task) = step["task"].as_str() else { continue };
        let what = step["what"].as_str().unwrap();
        let epoch = step["epoch"].as_u64();
        let is_review =
            what.contains("review_claim") || matches!(what, "task.approved" | "task.rejected");
        let key = (task.to_owned(), is_review);
        match what {
            "task.claimed"
            | "task.reclaimed_after_rejection"
            | "task.reassigned_after_rejection"
            | "task.claimed_for_integration_fix"
            | "task.review_claimed" => {
                let epoch = epoch.unwrap();
                must(held.insert(key, epoch).is_none(), || format!("two at once: {step}"))?;
                must(drawn.insert(epoch), || format!("given out twice: {step}"))?;
                claims.count += 1;
            }
            "task.ready_for_review" | "task.approved" | "task.rejected" | "task.blocked" => {
                must(held.remove(&key) == epoch, || format!("by another agent: {step}"))?;
            }
            "task.coder_claim_released" | "task.review_claim_released" => {
                must(held.remove(&key) == epoch, || format!("of another agent: {step}"))?;
                claims.lost += 1;
                if step["reason"] == LEASE_RAN_OUT {
                    claims.ran_out.extend(epoch);
                }
            }
            _ => {}
        }
    }
    must(held.is_empty(), || format!("leases are still held: {held:?}"))?;
    Ok(claims)
}

fn must(is_so: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(otherwise()) }
}
