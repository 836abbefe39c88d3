//! The power of a real file system is cut: `FS_IOC_SHUTDOWN` on a loop device stops every write at once, with (1) or
//! without (2) what its journal had in memory. Until then, processes publish, settle, decide and write the board. The
//! answers they got are stored elsewhere, and compared after the next mount.

use std::io::Write as _;
use std::process::Output;
use std::time::Instant;

use ensemble_core::durable::Dir;

use super::mail::whole;
use crate::support::history::Writer;

use super::*;

/// `FS_IOC_SHUTDOWN`, asked for with Python since there is no safe way in Rust. It gets ready, says so,
/// and waits for a line.
const SHUT_DOWN: &str = "import fcntl, os, struct, sys\n\
    disk, flag = os.open(sys.argv[1], os.O_RDONLY), struct.pack('I', int(sys.argv[2]))\n\
    print(flush=True)\nsys.stdin.readline()\nfcntl.ioctl(disk, 0x8004587d, flag)";
/// How many acknowledgements there are to be before the power is cut.
const NOTES_MIN: usize = 12;
const IMAGE_BYTES: u64 = 400 << 20;
pub const ROLES: [&str; 5] = ["publisher", "batcher", "consumer", "decider", "writer"];
const BATCH: usize = 5;

fn power() -> SpoolOptions {
    let mut options = SpoolOptions::default().with_admission(Arc::new(PlanGates));
    options.durability = Durability::Power;
    options
}

pub fn work(role: &str) {
    let project = PathBuf::from(given("QUEUE"));
    let mut history = Writer::open(Path::new(&given("HISTORY")));
    let spool = Spool::open(&project.join("queue"), power()).expect("the queue");
    let board = Board::find(&project, BoardOptions::new("writer")).expect("the board");
    for number in 0.. {
        if work_once(role, number, &spool, &board, &mut history).is_err() {
            return;
        }
    }
}

fn work_once(
    role: &str,
    number: u64,
    spool: &Spool,
    board: &Board,
    history: &mut Writer,
) -> ensemble_core::Result<()> {
    match role {
        "publisher" => {
            let id = format!("m-{number}");
            let envelope = Envelope::new(name("dispatch"), "the body\n".repeat(100));
            spool.publish(&envelope.with_id(MessageId::new(&*id).expect("an id")))?;
            history.note("published", &id, 0);
        }
        "batcher" => {
            let process = std::process::id();
            let id = |at| MessageId::new(format!("b-{process}-{number}-{at}")).expect("an id");
            let message = |at| Envelope::new(name("dispatch"), "a body\n").with_id(id(at));
            let batch: Vec<Envelope> = (0..BATCH).map(message).collect();
            spool.publish_batch(&batch)?;
            batch.iter().for_each(|envelope| history.note("published", envelope.id.as_str(), 0));
        }
        "consumer" => {
            let taken = spool.receive_batch(&name("dispatch"), &name("holder"), BATCH)?;
            let leases: Vec<_> = taken.into_iter().map(|delivery| delivery.lease).collect();
            for (lease, settled) in leases.iter().zip(spool.settle_batch(&leases)?) {
                settled?;
                history.note_lease("settled", lease);
            }
        }
        "decider" => {
            let id = format!("q-{number}");
            let requests = Requests::new(spool);
            let plan =
                NewRequest::new("plan_approval", name("conductor"), name("dispatch"), "1. think\n");
            requests.ask(plan.with_id(&*id))?;
            history.note("asked", &id, 0);
            requests.respond(&id, &name("dispatch"), true, "go")?;
            history.note("decided", &id, 0);
        }
        _ => {
            let id = format!("t-{number}");
            let mut locked = board.lock()?;
            locked.add_task(&NewTask::draft(name(&id)))?;
            locked.commit()?;
            history.note("added", &id, 0);
        }
    }
    Ok(())
}

/// A file system in a file, mounted through a loop device that goes with its mount.
pub struct Disk {
    pub image: PathBuf,
    pub at: PathBuf,
}

impl Disk {
    /// `None`, with the reason printed, where there is none of this kind: a name and options of its maker.
    pub fn make(home: &Path, kind: &str) -> Option<Self> {
        let mut words = kind.split(' ');
        let kind = words.next()?;
        let disk = Self { image: home.join(kind), at: home.join(format!("{kind}-mount")) };
        fs::create_dir(&disk.at).expect("a directory");
        let image = fs::File::create(&disk.image).expect("a file");
        image.set_len(IMAGE_BYTES).expect("a sparse file");
        let mut format = Command::new(format!("mkfs.{kind}"));
        let made = ran(format.arg("-q").args(words).arg(&disk.image), kind) && disk.mount();
        made.then_some(disk)
    }

    pub fn mount(&self) -> bool {
        ran(Command::new("mount").args(["-o", "loop"]).arg(&self.image).arg(&self.at), "mount")
    }

    /// Cuts the power, and returns the history up to the moment before.
    ///
    /// Lines printed after it do not count. The processes continue for a moment, and on an xfs that
    /// is shut down the `fsync` of a directory reports success.
    fn cut_the_power(&self, flag: u32, told: impl FnOnce() -> History) -> Option<History> {
        let mut command = Command::new("python3");
        command.args(["-c", SHUT_DOWN]).arg(&self.at).arg(flag.to_string());
        let mut cutter = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let ready = cutter.stdout.take().map(BufReader::new)?.read_line(&mut String::new());
        ready.expect("it is ready");
        let history = told();
        cutter.stdin.take()?.write_all(b"\n").expect("it is told");
        let is_cut = cutter.wait().expect("it ends").success();
        if !is_cut {
            println!("skipped: the file system cannot be shut down");
        }
        is_cut.then_some(history)
    }

    pub fn unmount(&self) {
        let unmount = || ran(Command::new("umount").arg(&self.at), "umount");
        eventually_true(PATIENCE, "no process uses the disk any more", unmount);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.at).output();
    }
}

pub fn ran(command: &mut Command, what: &str) -> bool {
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match command.output() {
        Ok(output) if output.status.success() => return true,
        Ok(output) => println!("skipped: {what}: {}", said(&output)),
        Err(error) => println!("skipped: {what}: {error}"),
    }
    false
}

pub fn prepare(project: &Path) {
    let spool = Spool::create(&project.join("queue"), power()).expect("a queue");
    for mailbox in ["dispatch", "conductor"] {
        spool.add_mailbox(&name(mailbox), &Settings::default()).expect("a mailbox");
    }
    Board::create(project, BoardOptions::new("test")).expect("a board");
}

/// Starts the roles, whose notes are kept outside of the disk.
pub fn start(roles: &[&str], project: &Path, kept: &Path) -> Vec<Process> {
    let start = |(number, role): (usize, &&str)| {
        let history = kept.join(format!("{role}-{number}"));
        let given = [("QUEUE", project.to_str()), ("HISTORY", history.to_str())];
        let role = format!("power_cut::{role}");
        Process::role(&role, &given.map(|(key, value)| (key, value.expect("a path in UTF-8"))))
    };
    roles.iter().enumerate().map(start).collect()
}

/// Lines printed in one cut, kept outside of the disk.
fn cut_once(disk: &Disk, flag: u32, number: u64, kept: &Path) -> Option<History> {
    let project = disk.at.join(format!("project-{number}"));
    prepare(&project);
    let kept = kept.join(format!("history-{number}"));
    fs::create_dir(&kept).expect("a directory");
    let workers = start(&ROLES, &project, &kept);
    let noted = || History::read(&kept).notes.values().map(Vec::len).sum::<usize>();
    eventually_true(PATIENCE, "enough is acknowledged", || noted() >= NOTES_MIN);
    let history = disk.cut_the_power(flag, || History::read(&kept));
    workers.into_iter().for_each(Process::kill);
    let history = history?;
    disk.unmount();
    assert!(disk.mount(), "the disk can be mounted after a power cut");
    judge(&project, &history);
    Some(history)
}

pub fn judge(project: &Path, history: &History) {
    let bed = Bed::found(project);
    let spool = Spool::open(&bed.queue(), power()).expect("the queue is there");
    let found = whole(&bed, "dispatch");
    for id in history.ids("published") {
        let times = found.iter().filter(|(_, envelope)| envelope.id.as_str() == id).count();
        assert_eq!(times, 1, "{id} was published");
    }
    for id in history.ids("settled") {
        let state = spool.state(&name("dispatch"), &MessageId::new(id).expect("an id"));
        assert_eq!(state.expect("a state"), Some(State::Settled), "{id}");
    }
    let requests = Requests::new(&spool);
    for id in history.ids("asked") {
        requests.get(id).expect("a request that was asked is there");
    }
    for id in history.ids("decided") {
        assert_eq!(requests.get(id).expect("a request").state(), "approved", "{id}");
    }
    let state = Board::find(project, BoardOptions::new("test")).and_then(|board| board.read());
    let state = state.expect("the board can be read");
    for id in history.ids("added") {
        assert!(state.task(&name(id)).is_some(), "{id} was added to the board");
    }
    spool.fsck(true).expect("the queue can be mended");
    bed.assert_clean();
}

#[test]
fn a_real_power_cut_loses_nothing_that_was_acknowledged() {
    let at_least = Duration::from_secs(setting("POWER_CUT_SECONDS", 0));
    for kind in ["ext4", "xfs"] {
        let home = tempfile::tempdir().expect("a temporary directory");
        let Some(disk) = Disk::make(home.path(), kind) else { continue };
        let (start, mut cuts, mut acknowledged) = (Instant::now(), 0, 0);
        while cuts < 4 || start.elapsed() < at_least {
            // 1: what the journal holds is written; 2: it is not.
            let flag = 1 + u32::try_from(cuts % 2).expect("a flag");
            let Some(history) = cut_once(&disk, flag, cuts, home.path()) else { break };
            acknowledged += history.notes.values().map(Vec::len).sum::<usize>();
            cuts += 1;
            let _ = fs::remove_dir_all(disk.at.join(format!("project-{}", cuts - 1)));
        }
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{kind}: {cuts} power cuts, {acknowledged} acknowledged, none lost, {seconds:.1} s"
        );
    }
}

#[test]
fn an_ext4_is_known_by_its_journal() {
    let kinds = [
        ("ext4", true, None),
        ("ext4 -O fast_commit", false, Some("`fast_commit`")),
        ("ext4 -O ^has_journal", false, Some("without a journal")),
    ];
    for (kind, is_one_sync_enough, risk) in kinds {
        let home = tempfile::tempdir().expect("a temporary directory");
        let Some(disk) = Disk::make(home.path(), kind) else { continue };
        let directory = Dir::open(&disk.at).expect("a directory");
        assert_eq!(directory.names_go_with_files(), is_one_sync_enough, "{kind}");
        let said = directory.find_power_cut_risk();
        let is_said = |risk| said.is_some_and(|said| said.contains(risk));
        assert!(risk.map_or_else(|| said.is_none(), is_said), "{kind}: {said:?}");
        drop(directory);
        disk.unmount();
    }
}
