//! How far a message got, and how that is known (seed 002: told is not read, read is not done).
//!
//! ```text
//! step        what it means                              its evidence
//! stored      it survives as the durability promises     the rename into new/
//! notified    a hint was typed, not submitted            the multiplexer, before Enter
//! submitted   a hint was typed and submitted             the multiplexer confirmed Enter
//! acked       its recipient has taken it                 the rename new/ -> cur/ (this is the ack)
//! dead        it will not be delivered any more          the rename into dead/, with a reason
//! settled     the work is done                           the rename cur/ -> done/
//!
//! state             observation                   -> state             effects
//! nothing           any step                      -> that step         Advanced
//! a step            a higher one                  -> the higher        Advanced
//! a step            the same or a lower one       -> unchanged         (kept as evidence)
//! delivery n        a step of delivery n + 1 ...  -> that delivery     Advanced, again: true
//! delivery n        a step of delivery n - 1 ...  -> unchanged         (kept as evidence)
//! ```
//!
//! The steps are seen by different witnesses (the publisher, the watcher, the multiplexer, the
//! recipient's file) who report late, twice and in any order. So a receipt is a lattice: it keeps
//! for each delivery and step the earliest evidence, and merging two receipts is their union. The
//! same observations merge to the same receipt, in whatever order they came. A step is never
//! assumed: an agent that looks for itself is `acked` without ever being `notified`.
//!
//! The only way back is forward: a message that is released, swept or redriven begins a new
//! delivery, whose number (the lease's epoch) is higher. *Silence* changes nothing; there are no
//! time-outs here. *A crash* loses nothing that the files do not tell again.
//!
//! ```
//! use ensemble_core::message::Timestamp;
//! use ensemble_core::proto::receipt::{Evidence, Observation, Receipt, Step};
//!
//! let at = Timestamp::from_unix_millis(0);
//! let mut receipt = Receipt::default();
//! let holder = "worker-1".to_owned();
//! receipt.observe(Observation { delivery: 1, at, evidence: Evidence::Acked { holder } });
//! receipt.observe(Observation { delivery: 1, at, evidence: Evidence::Stored });
//! assert_eq!(receipt.reached(), Some((1, Step::Acked)));
//! assert_eq!(receipt.evidence(1, Step::Submitted), None);
//! ```

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::message::Timestamp;

/// Of how many deliveries, the newest, evidence is kept.
pub const DELIVERIES_MAX: usize = 16;

/// How far a message got. Higher is further; in the same delivery `settled` outranks `dead`,
/// since work that is done is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// It survives as the durability promises.
    Stored,
    /// A hint was typed, and not submitted.
    Notified,
    /// A hint was typed and submitted.
    Submitted,
    /// Its recipient has taken it.
    Acked,
    /// It will not be delivered any more.
    Dead,
    /// The work is done.
    Settled,
}

impl Step {
    /// All steps, lowest first.
    pub const ALL: [Self; 6] =
        [Self::Stored, Self::Notified, Self::Submitted, Self::Acked, Self::Dead, Self::Settled];

    /// The stable word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Notified => "notified",
            Self::Submitted => "submitted",
            Self::Acked => "acked",
            Self::Dead => "dead",
            Self::Settled => "settled",
        }
    }

    /// Whether this delivery can go no further.
    #[must_use]
    pub const fn is_final(self) -> bool {
        match self {
            Self::Stored | Self::Notified | Self::Submitted | Self::Acked => false,
            Self::Dead | Self::Settled => true,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What shows that a step was reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(tag = "step", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Evidence {
    /// The file was renamed into `new/`.
    Stored,
    /// The multiplexer typed a hint and could not submit it.
    Notified {
        /// The pane.
        pane: String,
    },
    /// The multiplexer confirmed that it typed and submitted a hint.
    Submitted {
        /// The pane.
        pane: String,
    },
    /// The file was renamed into `cur/`.
    Acked {
        /// The consumer that received it.
        holder: String,
    },
    /// The file was renamed into `dead/`.
    Dead {
        /// Why.
        reason: String,
    },
    /// The file was renamed into `done/`.
    Settled {
        /// The consumer that settled it.
        holder: String,
    },
}

impl Evidence {
    /// The step it shows.
    #[must_use]
    pub const fn step(&self) -> Step {
        match self {
            Self::Stored => Step::Stored,
            Self::Notified { .. } => Step::Notified,
            Self::Submitted { .. } => Step::Submitted,
            Self::Acked { .. } => Step::Acked,
            Self::Dead { .. } => Step::Dead,
            Self::Settled { .. } => Step::Settled,
        }
    }
}

/// Something that a witness saw.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Observation {
    /// Of which delivery, from 1: the epoch that the next or the current holder has.
    pub delivery: u64,
    /// When, by the witness's wall clock; for people, and to choose between two witnesses.
    pub at: Timestamp,
    /// Evidence of the step.
    #[serde(flatten)]
    pub evidence: Evidence,
}

/// A message got further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advanced {
    /// In which delivery.
    pub delivery: u64,
    /// The step that the message reached.
    pub step: Step,
    /// Whether this is the first that is known of a delivery after another one.
    pub again: bool,
}

/// The receipt of one message; see the table at the top of this page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    seen: BTreeMap<u64, BTreeMap<Step, (Timestamp, Evidence)>>,
}

impl Receipt {
    /// Takes what a witness saw. The same observation twice is the same as once. Returns the step
    /// that the message reached by it; `None` if it got no further.
    pub fn observe(&mut self, observation: Observation) -> Option<Advanced> {
        let before = self.reached();
        let Observation { delivery, at, evidence } = observation;
        let steps = self.seen.entry(delivery).or_default();
        let seen = (at, evidence);
        match steps.get_mut(&seen.1.step()) {
            Some(earlier) if *earlier <= seen => {}
            Some(later) => *later = seen,
            None => {
                steps.insert(seen.1.step(), seen);
            }
        }
        while self.seen.len() > DELIVERIES_MAX {
            self.seen.pop_first();
        }
        let (delivery, step) = self.reached().filter(|after| Some(*after) > before)?;
        let again = before.is_some_and(|(earlier, _)| earlier < delivery);
        Some(Advanced { delivery, step, again })
    }

    /// Takes everything that another receipt of the same message knows.
    pub fn merge(&mut self, other: &Self) -> Vec<Advanced> {
        other.observations().filter_map(|observation| self.observe(observation)).collect()
    }

    /// The newest delivery and how far it got; `None` if nothing is known.
    #[must_use]
    pub fn reached(&self) -> Option<(u64, Step)> {
        let (delivery, steps) = self.seen.last_key_value()?;
        Some((*delivery, *steps.last_key_value()?.0))
    }

    /// The earliest evidence of a step.
    #[must_use]
    pub fn evidence(&self, delivery: u64, step: Step) -> Option<(Timestamp, &Evidence)> {
        self.seen.get(&delivery)?.get(&step).map(|(at, evidence)| (*at, evidence))
    }

    /// Everything that is known, oldest delivery and lowest step first.
    pub fn observations(&self) -> impl Iterator<Item = Observation> {
        self.seen.iter().flat_map(|(&delivery, steps)| {
            steps.values().cloned().map(move |(at, evidence)| Observation {
                delivery,
                at,
                evidence,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::testing::pairs;
    use proptest::prelude::*;

    fn observation(delivery: u64, step: Step, witness: u8) -> Observation {
        let name = || format!("w{witness}");
        let evidence = match step {
            Step::Stored => Evidence::Stored,
            Step::Notified => Evidence::Notified { pane: name() },
            Step::Submitted => Evidence::Submitted { pane: name() },
            Step::Acked => Evidence::Acked { holder: name() },
            Step::Dead => Evidence::Dead { reason: name() },
            Step::Settled => Evidence::Settled { holder: name() },
        };
        let at = Timestamp::from_unix_millis(i64::from(witness / 2));
        Observation { delivery, at, evidence }
    }

    fn receipt_of(observations: &[Observation]) -> Receipt {
        let mut receipt = Receipt::default();
        for observation in observations {
            receipt.observe(observation.clone());
        }
        receipt
    }

    #[test]
    fn every_pair_of_state_and_event() {
        let mut states = vec![("nothing", Receipt::default())];
        for step in Step::ALL {
            states.push((step.word(), receipt_of(&[observation(2, step, 0)])));
        }
        let mut events: Vec<_> =
            Step::ALL.into_iter().map(|step| (step.word(), observation(2, step, 1))).collect();
        events.push(("older", observation(1, Step::Settled, 1)));
        events.push(("newer", observation(3, Step::Stored, 1)));
        let table = pairs(&states, &events, |receipt, event| {
            let mut receipt = receipt.clone();
            let advanced = receipt.observe(event.clone());
            let (delivery, step) = receipt.reached().unwrap();
            assert!(advanced.is_none_or(|a| (a.delivery, a.step) == (delivery, step)));
            format!("{delivery} {step}{}", if advanced.is_none() { "" } else { " A" })
        });
        assert_eq!(
            table,
            "
           nothing        stored         notified       submitted    acked        dead         settled
stored     2 stored A     2 stored       2 notified     2 submitted  2 acked      2 dead       2 settled
notified   2 notified A   2 notified A   2 notified     2 submitted  2 acked      2 dead       2 settled
submitted  2 submitted A  2 submitted A  2 submitted A  2 submitted  2 acked      2 dead       2 settled
acked      2 acked A      2 acked A      2 acked A      2 acked A    2 acked      2 dead       2 settled
dead       2 dead A       2 dead A       2 dead A       2 dead A     2 dead A     2 dead       2 settled
settled    2 settled A    2 settled A    2 settled A    2 settled A  2 settled A  2 settled A  2 settled
older      1 settled A    2 stored       2 notified     2 submitted  2 acked      2 dead       2 settled
newer      3 stored A     3 stored A     3 stored A     3 stored A   3 stored A   3 stored A   3 stored A
"
        );
    }

    #[test]
    fn a_redelivery_is_told_as_one() {
        let mut receipt = receipt_of(&[observation(1, Step::Acked, 0)]);
        let again = Advanced { delivery: 2, step: Step::Stored, again: true };
        assert_eq!(receipt.observe(observation(2, Step::Stored, 0)), Some(again));
        assert_eq!(receipt.observe(observation(1, Step::Settled, 0)), None);
        assert_eq!(receipt.reached(), Some((2, Step::Stored)));
    }

    fn any_observations() -> impl Strategy<Value = Vec<Observation>> {
        let one = (0..40_u64, prop::sample::select(&Step::ALL[..]), 0..4_u8)
            .prop_map(|(delivery, step, witness)| observation(delivery, step, witness));
        prop::collection::vec(one, 0..80)
    }

    proptest! {
        #[test]
        fn the_order_of_witnesses_does_not_matter(
            (observations, shuffled) in any_observations()
                .prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
            cut in 0..80_usize,
        ) {
            let receipt = receipt_of(&observations);
            prop_assert_eq!(&receipt_of(&shuffled), &receipt);

            let (left, right) = shuffled.split_at(cut.min(shuffled.len()));
            let (mut left, mut right) = (receipt_of(left), receipt_of(right));
            let alone = left.clone();
            left.merge(&right);
            left.merge(&right);
            right.merge(&alone);
            prop_assert_eq!(&left, &receipt);
            prop_assert_eq!(&right, &receipt);
        }

        #[test]
        fn it_never_goes_back(observations in any_observations()) {
            let mut receipt = Receipt::default();
            let mut told = None;
            for observation in observations {
                let before = receipt.reached();
                let advanced = receipt.observe(observation);
                prop_assert!(receipt.reached() >= before);
                if let Some(Advanced { delivery, step, .. }) = advanced {
                    prop_assert!(told < Some((delivery, step)));
                    told = Some((delivery, step));
                }
                prop_assert_eq!(told, receipt.reached());
            }
        }
    }
}
