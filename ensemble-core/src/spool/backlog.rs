//! Shares the listing of a deep backlog with the next process: `mailbox/<name>/backlog`.
//!
//! ```text
//! 00000000000000000058                     where the next entry begins: 20 digits, in bytes
//! 0199aa10-4c5e-7b3a-a1b2-3c4d5e6f7081     an id a line, in the order of receiving
//! 0199aa10-4c5e-7b3a-a1b2-3c4d5e6f7082
//! ```
//!
//! Without it, every new process that receives one message would list the whole of `new/`. With it, such a process
//! reads a few entries from the offset, tries them first, and moves the offset on, in place.
//!
//! It is a hint and nothing rests on it. An id that is not there any more costs a rename that fails. An offset that
//! went backwards in a race costs a few of them. Too many in a row, or anything that cannot be read, cost a listing.
//! After it the file is written again or removed. A message that the hint does not name waits until the hint is used
//! up. Urgent, delayed and returned messages are in `front/` and are not touched by it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt as _;

use super::listing::IdListing;
use crate::durable::{Dir, Durability, FileModes};
use crate::message::MessageId;

const BACKLOG_FILE: &str = "backlog";
/// A listing of up to this many messages is not worth keeping.
const SHARED_MIN: usize = 1024;
/// How much is read at once, in bytes: some two hundred entries.
const CHUNK_BYTES: usize = 8 * 1024;
/// About how long an entry is, in bytes: a UUID and the end of its line.
const ENTRY_BYTES: u64 = 37;
const OFFSET_DIGITS: usize = 20;
const FIRST_ENTRY: u64 = OFFSET_DIGITS as u64 + 1;

#[derive(Clone, Copy, Debug)]
pub(super) struct Backlog<'a> {
    pub(super) home: &'a Dir,
    pub(super) tmp: &'a Dir,
    pub(super) modes: FileModes,
}

impl Backlog<'_> {
    /// The entries that come next; `None` if there is no shared listing.
    pub(super) fn read(&self) -> Option<(IdListing, ListingPart)> {
        let file = self.home.open_in_place(BACKLOG_FILE).ok()??;
        let offset = read_offset(&file)?;
        let mut chunk = [0; CHUNK_BYTES];
        let bytes = file.read_at(&mut chunk, offset).ok()?;
        let mut ids = IdListing::default();
        let left = file.metadata().ok()?.len().saturating_sub(offset) / ENTRY_BYTES;
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let mut ahead = ListingPart { file, left, starts: VecDeque::new(), end: offset };
        for line in chunk[..bytes].split_inclusive(|&byte| byte == b'\n') {
            let Some((b'\n', line)) = line.split_last() else { break };
            if let Ok(text) = std::str::from_utf8(line)
                && let Ok(id) = MessageId::new(text)
            {
                ids.push(id);
                ahead.starts.push_back(ahead.end);
            }
            ahead.end += line.len() as u64 + 1;
        }
        (!ids.is_empty()).then_some((ids, ahead))
    }

    /// Keeps a listing for others if it is worth it, and forgets an older one in any case. Returns whether there is
    /// one now.
    pub(super) fn write(&self, ids: &IdListing) -> bool {
        if ids.len() <= SHARED_MIN {
            // Most often there is none; that it stays costs the others a few failed renames.
            let _ = self.home.remove(BACKLOG_FILE);
            return false;
        }
        let write = |file: &mut dyn Write| {
            writeln!(file, "{FIRST_ENTRY:0OFFSET_DIGITS$}")?;
            ids.iter().try_for_each(|id| writeln!(file, "{id}"))
        };
        // No room or no permission to share it is not a reason not to receive.
        let modes = self.modes;
        self.home.replace_with(BACKLOG_FILE, write, self.tmp, modes, Durability::Process).is_ok()
    }
}

/// The part of a shared listing that this process works off.
#[derive(Debug)]
pub(super) struct ListingPart {
    file: File,
    left: usize,
    /// Offsets of the entries that no consumer is known to have taken.
    starts: VecDeque<u64>,
    end: u64,
}

impl ListingPart {
    /// About how many entries there were from here on, with those that are not read yet.
    pub(super) const fn count_left(&self) -> usize {
        self.left
    }

    /// Drops an entry that was tried: whether the rename won or lost, its message is no longer in
    /// `new/`.
    pub(super) fn remove(&mut self, index: usize) {
        self.starts.remove(index);
    }

    /// Skips the entries that other processes have received, by the progress they have shared.
    pub(super) fn skip_taken(&mut self, ids: &mut IdListing) {
        let Some(offset) = read_offset(&self.file) else { return };
        let taken = self.starts.partition_point(|start| *start < offset);
        self.starts.drain(..taken);
        ids.skip(taken);
    }

    /// Shares where to continue, which is never past an entry that may still be in `new/`.
    pub(super) fn share_progress(&self) {
        let next = self.starts.front().copied().unwrap_or(self.end);
        if read_offset(&self.file).is_some_and(|offset| offset < next) {
            // If this fails, the next process only loses some renames.
            let _ = self.file.write_all_at(format!("{next:0OFFSET_DIGITS$}").as_bytes(), 0);
        }
    }
}

fn read_offset(file: &File) -> Option<u64> {
    let mut digits = [0; OFFSET_DIGITS];
    file.read_exact_at(&mut digits, 0).ok()?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let offset: u64 = std::str::from_utf8(&digits).ok()?.parse().ok()?;
    (offset >= FIRST_ENTRY).then_some(offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Place {
        _home: tempfile::TempDir,
        dir: Dir,
    }

    fn place() -> Place {
        let home = tempfile::tempdir().unwrap();
        let dir = Dir::open(home.path()).unwrap();
        Place { _home: home, dir }
    }

    impl Place {
        fn backlog(&self) -> Backlog<'_> {
            Backlog { home: &self.dir, tmp: &self.dir, modes: FileModes::default() }
        }
        fn put(&self, content: &[u8]) {
            std::fs::write(self.dir.path().join(BACKLOG_FILE), content).unwrap();
        }
    }

    fn ids(count: usize) -> IdListing {
        let mut ids = IdListing::default();
        (0..count).for_each(|n| ids.push(MessageId::new(format!("message-{n}")).unwrap()));
        ids
    }

    fn first(ids: &IdListing) -> String {
        ids.iter().next().unwrap().into()
    }

    #[test]
    fn entries_are_worked_off_by_one_process_after_the_other() {
        let place = place();
        let all = ids(SHARED_MIN + 1);
        assert!(place.backlog().write(&all));
        let mut seen = IdListing::default();
        while let Some((ids, mut ahead)) = place.backlog().read() {
            for id in ids.into_ids().take(100) {
                seen.push(id);
                ahead.remove(0);
            }
            ahead.share_progress();
        }
        assert_eq!(seen, all);
    }

    #[test]
    fn progress_stops_at_an_entry_that_may_still_be_there_and_never_goes_back() {
        let place = place();
        place.backlog().write(&ids(SHARED_MIN + 1));
        let (_, mut slow) = place.backlog().read().unwrap();
        let (_, mut quick) = place.backlog().read().unwrap();
        quick.remove(0);
        quick.remove(4);
        quick.share_progress();
        assert_eq!(first(&place.backlog().read().unwrap().0), "message-1");
        (0..4).for_each(|_| quick.remove(0));
        quick.share_progress();
        slow.remove(0);
        slow.share_progress();
        assert_eq!(first(&place.backlog().read().unwrap().0), "message-6");
    }

    #[test]
    fn what_others_have_taken_is_passed_over() {
        let place = place();
        place.backlog().write(&ids(SHARED_MIN + 1));
        let (mut left, mut slow) = place.backlog().read().unwrap();
        let (_, mut quick) = place.backlog().read().unwrap();
        (0..10).for_each(|_| quick.remove(0));
        quick.share_progress();
        slow.remove(1);
        left.remove(1);
        slow.skip_taken(&mut left);
        assert_eq!(first(&left), "message-10");
        assert_eq!(left.len(), slow.starts.len());
        slow.remove(0);
        slow.share_progress();
        assert_eq!(first(&place.backlog().read().unwrap().0), "message-11");
    }

    #[test]
    fn a_short_listing_is_not_kept_and_replaces_a_long_one() {
        let place = place();
        assert!(place.backlog().write(&ids(SHARED_MIN + 1)));
        assert!(!place.backlog().write(&ids(SHARED_MIN)));
        assert!(place.backlog().read().is_none());
    }

    #[test]
    fn garbage_is_no_backlog() {
        let place = place();
        let long = [b"00000000000000000021\n".as_slice(), &vec![b'x'; 3 * CHUNK_BYTES]].concat();
        let contents: [&[u8]; 9] = [
            b"",
            b"21",
            b"00000000000000000000\nmessage-1\n",
            b"00000000000000000999\nmessage-1\n",
            b"99999999999999999999\nmessage-1\n",
            b"-0000000000000000021\nmessage-1\n",
            b"00000000000000000021\n../../etc/passwd\n\xff\xfe\n\n",
            b"00000000000000000021\nwithout-an-end",
            &long,
        ];
        for content in contents {
            place.put(content);
            assert!(place.backlog().read().is_none(), "{}", content.escape_ascii());
        }
        std::fs::remove_file(place.dir.path().join(BACKLOG_FILE)).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", place.dir.path().join(BACKLOG_FILE)).unwrap();
        assert!(place.backlog().read().is_none());
        std::fs::remove_file(place.dir.path().join(BACKLOG_FILE)).unwrap();
        std::fs::create_dir(place.dir.path().join(BACKLOG_FILE)).unwrap();
        assert!(place.backlog().read().is_none());
        assert!(!place.backlog().write(&ids(SHARED_MIN + 1)));
    }
}
