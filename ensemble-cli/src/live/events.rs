use std::collections::VecDeque;
use std::path::PathBuf;

use ensemble_app::failure::Outcome;
use ensemble_app::sentences::{Sentence, SentenceMaker, SentenceWeight, sort_causally};
use ensemble_core::broker::Broker;
use ensemble_core::event_log::{self, Follower, Record};
use ensemble_core::message::Timestamp;
use ensemble_project::Project;

const FIRST_BYTES_MAX: u64 = 64 * 1024;
/// Most events that are kept: more than the largest terminal has lines.
const KEPT_MAX: usize = 200;
pub(super) struct FeedLine {
    pub(super) at: Timestamp,
    pub(super) sentence: Sentence,
}

pub(super) struct LastEvents {
    logs: PathBuf,
    follower: Option<Follower>,
    maker: SentenceMaker,
    kept: VecDeque<FeedLine>,
}

impl LastEvents {
    pub(super) fn of(project: &Project) -> Self {
        let maker = SentenceMaker::for_people(project.people());
        Self { logs: project.logs(), follower: None, maker, kept: VecDeque::new() }
    }

    /// Reads what is new. `queue` has the words of messages.
    pub(super) fn update(&mut self, queue: Option<&dyn Broker>) -> Outcome {
        let Some(follower) = &mut self.follower else { return self.begin(queue) };
        let new = follower.poll()?;
        self.add_records(new, queue);
        Ok(())
    }

    fn begin(&mut self, queue: Option<&dyn Broker>) -> Outcome {
        let mut follower = Follower::from_end(&self.logs)?;
        let mut before = event_log::recent(&self.logs, FIRST_BYTES_MAX)?;
        // Records written between the two are in both.
        let new = follower.poll()?;
        before.retain(|record| !new.contains(record));
        before.extend(new);
        self.add_records(before, queue);
        self.follower = Some(follower);
        Ok(())
    }

    fn add_records(&mut self, mut new: Vec<Record>, queue: Option<&dyn Broker>) {
        sort_causally(&mut new);
        for record in &new {
            let sentence = self.maker.describe(record, queue);
            let sentence = sentence.filter(|sentence| sentence.weight != SentenceWeight::Detail);
            let at = record.timestamp;
            self.kept.extend(sentence.map(|sentence| FeedLine { at, sentence }));
        }
        self.kept.drain(..self.kept.len().saturating_sub(KEPT_MAX));
    }

    pub(super) fn last(&self, count: usize) -> impl Iterator<Item = &FeedLine> {
        self.kept.iter().skip(self.kept.len().saturating_sub(count))
    }
}
