//! Events that wait for a later step: some forty bytes each, in blocks that are freed once they are worked off.
//!
//! A burst may leave tens of thousands of them. As [`FsEvent`]s, each with a path and its own name, they would take
//! four times as much. They would also leave gaps in the memory of the process.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use ensemble_core::watch::{FsEvent, Landing};

const BLOCK_EVENTS: usize = 1_024;

#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    blocks: VecDeque<EventBlock>,
    len: usize,
}

#[derive(Debug, Default)]
struct EventBlock {
    dirs: Vec<PathBuf>,
    names: String,
    events: Vec<QueuedEvent>,
    taken: usize,
    name_at: usize,
}

/// An event, as a block keeps it. `dir` is the directory's place in `dirs`, `bytes` the length of the name.
#[derive(Debug)]
enum QueuedEvent {
    Landed { dir: u16, bytes: u16, how: Landing },
    Left { dir: u16 },
    Other(Box<FsEvent>),
}

impl EventBlock {
    fn dir(&mut self, dir: &Path) -> u16 {
        let known = self.dirs.iter().rposition(|known| known == dir);
        let place = known.unwrap_or_else(|| {
            self.dirs.push(dir.to_owned());
            self.dirs.len() - 1
        });
        // There are no more directories than events.
        u16::try_from(place).unwrap_or(u16::MAX)
    }

    fn push(&mut self, event: FsEvent) -> bool {
        let waiting = match event {
            FsEvent::Landed { dir, name, how } if name.len() <= usize::from(u16::MAX) => {
                self.names.push_str(&name);
                let bytes = u16::try_from(name.len()).unwrap_or(u16::MAX);
                QueuedEvent::Landed { dir: self.dir(&dir), bytes, how }
            }
            FsEvent::Left { dir } => {
                let place = self.dir(&dir);
                // Only one of several in a row says something new.
                if self.taken < self.events.len()
                    && matches!(self.events.last(), Some(QueuedEvent::Left { dir }) if *dir == place)
                {
                    return false;
                }
                QueuedEvent::Left { dir: place }
            }
            other => QueuedEvent::Other(Box::new(other)),
        };
        self.events.push(waiting);
        true
    }

    fn pop(&mut self) -> Option<FsEvent> {
        let event = self.events.get_mut(self.taken)?;
        self.taken += 1;
        Some(match event {
            QueuedEvent::Landed { dir, bytes, how } => {
                let begin = self.name_at;
                self.name_at += usize::from(*bytes);
                let name = self.names[begin..self.name_at].to_owned();
                FsEvent::Landed { dir: self.dirs[usize::from(*dir)].clone(), name, how: *how }
            }
            QueuedEvent::Left { dir } => {
                FsEvent::Left { dir: self.dirs[usize::from(*dir)].clone() }
            }
            QueuedEvent::Other(event) => std::mem::replace(event, FsEvent::Overflow),
        })
    }
}

impl EventQueue {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn push(&mut self, event: FsEvent) {
        if self.blocks.back().is_none_or(|block| block.events.len() >= BLOCK_EVENTS) {
            self.blocks.push_back(EventBlock::default());
        }
        if let Some(block) = self.blocks.back_mut()
            && block.push(event)
        {
            self.len += 1;
        }
    }

    pub(crate) fn pop(&mut self) -> Option<FsEvent> {
        let block = self.blocks.front_mut()?;
        let event = block.pop();
        self.len -= usize::from(event.is_some());
        if block.taken == block.events.len() {
            self.blocks.pop_front();
        }
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn landed(dir: &str, name: String) -> FsEvent {
        FsEvent::Landed { dir: dir.into(), name, how: Landing::Renamed }
    }

    #[test]
    fn events_come_out_in_their_order_and_leave_nothing() {
        let mut queue = EventQueue::default();
        let events: Vec<FsEvent> = (0..3 * BLOCK_EVENTS)
            .map(|number| match number % 4 {
                0 => FsEvent::Overflow,
                1 => landed("/queue/reports", format!("r-{number}.yaml")),
                2 => FsEvent::Left { dir: "/queue/mailbox/a/new".into() },
                _ => landed("/queue/tasks", "ä\n".to_owned()),
            })
            .collect();
        let mut taken = Vec::new();
        for (number, event) in events.iter().enumerate() {
            queue.push(event.clone());
            if number % 3 == 0 {
                taken.extend(queue.pop());
            }
        }
        taken.extend(std::iter::from_fn(|| queue.pop()));
        assert_eq!(taken, events);
        assert_eq!((queue.len(), queue.blocks.len()), (0, 0));
    }

    #[test]
    fn removals_in_a_row_are_one_event_and_one_that_was_taken_is_not_forgotten() {
        let mut queue = EventQueue::default();
        let left = || FsEvent::Left { dir: "/queue/reports".into() };
        (0..20_000).for_each(|_| queue.push(left()));
        assert_eq!((queue.len(), queue.blocks.len()), (1, 1));
        assert_eq!(queue.pop(), Some(left()));
        queue.push(left());
        assert_eq!(queue.pop(), Some(left()), "what left since");
    }
}
