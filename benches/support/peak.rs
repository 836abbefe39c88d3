//! How much memory a process has used at most, and what it has used of the processor: as the kernel counts.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::{Outcome, go_on};

/// Between two looks at a process.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// After so many looks that found it asleep, and no more used than before, it waits for its reader.
const ASLEEP_LOOKS: u32 = 3;

/// What a process has used, all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub cpu_ns: u64,
    pub wake_ups: u64,
    pub resident_kib: u64,
    pub peak_kib: u64,
}

impl Usage {
    pub fn of(pid: u32) -> Outcome<Self> {
        let (mut cpu_ns, mut wake_ups) = (0, 0);
        for task in fs::read_dir(format!("/proc/{pid}/task"))? {
            let task = task?.path();
            let times = fs::read_to_string(task.join("schedstat"))?;
            cpu_ns += times.split(' ').next().ok_or("no times")?.parse::<u64>()?;
            wake_ups +=
                field(&fs::read_to_string(task.join("status"))?, "voluntary_ctxt_switches:")?;
        }
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let (resident_kib, peak_kib) = (field(&status, "VmRSS:")?, field(&status, "VmHWM:")?);
        Ok(Self { cpu_ns, wake_ups, resident_kib, peak_kib })
    }
}

/// From now on the kernel counts anew which pages a process touches.
pub fn forget_touched(pid: u32) -> Outcome<()> {
    Ok(fs::write(format!("/proc/{pid}/clear_refs"), "1")?)
}

/// What a process has touched since, in KiB: its own pages and those of files.
pub fn touched_kib(pid: u32) -> Outcome<u64> {
    let maps = fs::read_to_string(format!("/proc/{pid}/smaps"))?;
    let rows = maps.lines().filter(|row| row.starts_with("Referenced:"));
    rows.map(|row| field(row, "Referenced:")).sum()
}

fn field(status: &str, name: &str) -> Outcome<u64> {
    let row = status.lines().find_map(|row| row.strip_prefix(name)).ok_or("no such field")?;
    Ok(row.split_whitespace().next().ok_or("no value")?.parse()?)
}

/// The most memory that a command has used up to its answer, in KiB. It is made to write into a pipe that is
/// full, and looked at while it waits there: what has ended can no longer be asked, and what the kernel
/// tells of dead children counts the memory of their parent, too.
pub fn of_command(mut command: Command) -> Outcome<u64> {
    let (mut reader, writer) = io::pipe()?;
    fill(&writer)?;
    command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::null());
    let mut child = command.spawn()?;
    // The end that it holds would keep the pipe open.
    drop(command);
    let peak = peak_when_asleep(&mut child);
    if peak.is_err() {
        let _ = child.kill();
    }
    let drained = reader.read_to_end(&mut Vec::new());
    child.wait()?;
    drained?;
    peak
}

fn peak_when_asleep(child: &mut Child) -> Outcome<u64> {
    let (mut before, mut asleep) = (Usage::default(), 0);
    while asleep < ASLEEP_LOOKS {
        go_on()?;
        std::thread::sleep(LOOK_INTERVAL);
        if let Some(status) = child.try_wait()? {
            return Err(format!("it ended without an answer: {status}").into());
        }
        let usage = Usage::of(child.id())?;
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id()))?;
        let is_asleep = stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" S"));
        asleep = if is_asleep && usage == before { asleep + 1 } else { 0 };
        before = usage;
    }
    Ok(before.peak_kib)
}

/// Fills a pipe until nothing fits into it.
fn fill(mut writer: &io::PipeWriter) -> Outcome<()> {
    let flags = fcntl_getfl(writer)?;
    fcntl_setfl(writer, flags | OFlags::NONBLOCK)?;
    let filled = loop {
        match writer.write(&[b'\n'; 4096]) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    fcntl_setfl(writer, flags)?;
    Ok(filled?)
}
