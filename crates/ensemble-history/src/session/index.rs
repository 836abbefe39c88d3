//! The lines of the stories behind the bars: by agent (`a:`), task (`t:`) and request (`r:`), each bounded.

use std::collections::{BTreeMap, VecDeque};

use ensemble_app::sentences::SentenceMaker;
use ensemble_core::event_log::Record;
use ensemble_core::message::Timestamp;
use serde_json::{Value, json};

const FIRST_MAX: usize = 12;
const LAST_MAX: usize = 36;
const STORIES_MAX: usize = 4_000;
const LINE_CHARS_MAX: usize = 220;

#[derive(Clone, Debug, Default)]
struct StoryLines {
    first: Vec<(Timestamp, String)>,
    last: VecDeque<(Timestamp, String)>,
    hidden: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct StoryIndex {
    maker: SentenceMaker,
    stories: BTreeMap<String, StoryLines>,
}

impl StoryIndex {
    /// Adds a record to these stories, as `why` says it.
    pub(super) fn add(&mut self, record: &Record, keys: &[String]) {
        if let Some(sentence) = self.maker.describe(record, None).filter(|_| !keys.is_empty()) {
            self.add_line(record.timestamp, &sentence.text, keys);
        }
    }

    fn add_line(&mut self, at: Timestamp, line: &str, keys: &[String]) {
        let line: String = line.chars().take(LINE_CHARS_MAX).collect();
        for key in keys {
            if !self.stories.contains_key(key) && self.stories.len() >= STORIES_MAX {
                continue;
            }
            let lines = self.stories.entry(key.clone()).or_default();
            if lines.first.len() < FIRST_MAX {
                lines.first.push((at, line.clone()));
                continue;
            }
            if lines.last.len() >= LAST_MAX {
                lines.last.pop_front();
                lines.hidden += 1;
            }
            lines.last.push_back((at, line.clone()));
        }
    }

    /// The stories of these keys, as the page's script reads them: time in milliseconds since 1970, and text.
    pub(super) fn json(&self, is_drawn: impl Fn(&str) -> bool) -> Value {
        let drawn = self.stories.iter().filter(|(key, _)| is_drawn(key));
        let lines = |lines: &StoryLines| {
            let line = |(at, text): &(Timestamp, String)| json!([at.unix_millis(), text]);
            let mut all: Vec<Value> = lines.first.iter().map(line).collect();
            if lines.hidden > 0 {
                all.push(json!([null, format!("… {} more …", lines.hidden)]));
            }
            all.extend(lines.last.iter().map(line));
            all
        };
        drawn.map(|(key, all)| (key.clone(), Value::from(lines(all)))).collect()
    }
}
