//! The power of a real file system is cut after every write and flush that came to its disk.
//!
//! The disk is a file that `recorder.py` serves through FUSE, with a loop device above it. What is recorded while the
//! roles of `real` work is replayed up to some step. Of the writes since the last flush, any may be lost or half done.
//! Each such disk is mounted, which replays its journal, and judged as after a real cut: a note counts if it was made
//! before the next step. `POWER_CUT_RECORDED` (4) is how many disks of each file system are judged.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use super::real::{Disk, ran};

use super::*;

const RECORDER: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/torture/power_cut/recorder.py");
/// The file systems in which the sync of a file covers its name.
const KINDS: [&str; 3] = ["ext4", "xfs", "btrfs"];
const ROLES: [&str; 6] = ["publisher", "batcher", "batcher", "consumer", "decider", "writer"];
/// Words before a record, and what says in the second one that it is a write.
const WORDS: usize = 4;
const WRITE: u64 = 1;
/// What a disk writes whole or not at all. xfs cannot be mounted after less.
const BLOCK_BYTES: usize = 4096;

/// What came to the disk, and when.
struct Step {
    at_ns: i64,
    /// `None` for a flush.
    write: Option<(u64, Vec<u8>)>,
}

fn steps(record: &Path) -> Vec<Step> {
    let record = fs::read(record).expect("a record");
    let mut left = record.as_slice();
    let mut steps = Vec::new();
    while !left.is_empty() {
        let (head, rest) = left.split_at(WORDS * 8);
        let word = |at: usize| u64::from_le_bytes(head[at * 8..][..8].try_into().expect("a word"));
        let (content, rest) = rest.split_at(word(3) as usize);
        let write = (word(1) == WRITE).then(|| (word(2), content.to_vec()));
        steps.push(Step { at_ns: word(0).cast_signed(), write });
        left = rest;
    }
    steps
}

fn copy(image: &Path, to: &Path) {
    assert!(ran(Command::new("cp").arg("--sparse=always").args([image, to]), "cp"));
}

/// Lets the roles work on a recorded disk of this kind, which they find as it is in `base`.
fn record(home: &Path, kind: &str, notes_min: usize) -> Option<(PathBuf, Vec<Step>)> {
    let disk = Disk::make(home, kind)?;
    real::prepare(&disk.at.join("project"));
    disk.unmount();
    let base = home.join("base");
    copy(&disk.image, &base);
    let (served, record) = (home.join("served"), home.join("record"));
    File::create(&served).expect("a file");
    let mut recorder = Command::new("python3");
    recorder.arg(RECORDER).args([&disk.image, &served, &record]).stdout(Stdio::piped());
    let mut recorder = recorder.spawn().expect("python runs");
    let said = recorder.stdout.take().and_then(|said| BufReader::new(said).lines().next());
    if said.is_none() {
        recorder.wait().expect("it ends");
        println!("skipped: FUSE cannot be used here");
        return None;
    }
    let recorded = Disk { image: served.clone(), at: disk.at.clone() };
    assert!(recorded.mount(), "a file of FUSE can be mounted");
    let told = home.join("told");
    fs::create_dir(&told).expect("a directory");
    let workers = real::start(&ROLES, &disk.at.join("project"), &told);
    let noted = || History::read(&told).notes.values().map(Vec::len).sum::<usize>();
    eventually_true(PATIENCE, "enough is acknowledged", || noted() >= notes_min);
    workers.into_iter().for_each(Process::kill);
    recorded.unmount();
    assert!(ran(Command::new("umount").arg(&served), "umount"));
    recorder.wait().expect("it ends");
    Some((base, steps(&record)))
}

/// Writes what is left of the steps before `cut`: those before the last flush, and of the others what chance says.
fn replay(image: &Path, steps: &[Step], random: &mut SimRng) -> usize {
    let file = File::options().write(true).open(image).expect("an image");
    let safe = steps.iter().rposition(|step| step.write.is_none()).unwrap_or(0);
    let chance = [0, 30, 60, 100][random.below(4) as usize];
    let mut lost = 0;
    for (at, (offset, content)) in
        steps.iter().enumerate().filter_map(|(at, step)| Some((at, step.write.as_ref()?)))
    {
        let mut kept = content.len();
        if at > safe && random.percent(chance) {
            lost += 1;
            kept = BLOCK_BYTES * random.below(kept.div_ceil(BLOCK_BYTES) as u64) as usize;
        }
        file.write_all_at(&content[..kept], *offset).expect("an image can be written");
    }
    lost
}

#[test]
fn a_disk_that_lost_any_write_since_its_last_flush_has_all_that_was_acknowledged() {
    let states = setting("POWER_CUT_RECORDED", 4);
    for kind in KINDS {
        let home = tempfile::tempdir_in("/dev/shm").expect("a temporary directory");
        let notes_min = 40 + states as usize / 10;
        let Some((base, steps)) = record(home.path(), kind, notes_min) else { continue };
        let mut random = SimRng::new(setting("TORTURE_SEED", 1));
        let disk = Disk { image: home.path().join("cut"), at: home.path().join("cut-mount") };
        fs::create_dir(&disk.at).expect("a directory");
        let (mut acknowledged, mut lost) = (0, 0);
        for _ in 0..states {
            let cut = 1 + random.below(steps.len() as u64 - 1) as usize;
            let history = History::read_before(&home.path().join("told"), steps[cut].at_ns);
            acknowledged += history.notes.values().map(Vec::len).sum::<usize>();
            copy(&base, &disk.image);
            lost += replay(&disk.image, &steps[..cut], &mut random);
            assert!(disk.mount(), "{kind}: the disk can be mounted after a power cut");
            real::judge(&disk.at.join("project"), &history);
            disk.unmount();
        }
        let steps = steps.len();
        println!(
            "{kind}: {steps} steps, {states} disks, {lost} writes lost, {acknowledged} acknowledged"
        );
    }
}
