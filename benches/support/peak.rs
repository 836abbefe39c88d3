//! A process's peak memory and its processor time, as the kernel counts them.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::{Outcome, go_on, now_ns};

/// Interval between two looks at a process.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// A process waits for its reader after this many looks that find it asleep and its usage
/// unchanged.
const ASLEEP_LOOKS: u32 = 3;

/// Resources used by a process, all threads.
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

/// What a process uses of the machine while something is done.
pub struct UsedShare {
    pub cpu_percent: f64,
    pub wake_ups_a_minute: f64,
}

impl UsedShare {
    pub fn during(pid: u32, work: impl FnOnce() -> Outcome<()>) -> Outcome<Self> {
        let (before, began) = (Usage::of(pid)?, now_ns());
        work()?;
        let (elapsed_ns, after) = ((now_ns() - began) as f64, Usage::of(pid)?);
        Ok(Self {
            cpu_percent: (after.cpu_ns - before.cpu_ns) as f64 * 100.0 / elapsed_ns,
            wake_ups_a_minute: (after.wake_ups - before.wake_ups) as f64 * 60e9 / elapsed_ns,
        })
    }
}

/// Resets the kernel's count of the pages that a process touches.
pub fn forget_touched(pid: u32) -> Outcome<()> {
    Ok(fs::write(format!("/proc/{pid}/clear_refs"), "1")?)
}

/// KiB that a process has touched since: its own pages and those of files.
pub fn touched_kib(pid: u32) -> Outcome<u64> {
    let maps = fs::read_to_string(format!("/proc/{pid}/smaps"))?;
    let rows = maps.lines().filter(|row| row.starts_with("Referenced:"));
    rows.map(|row| field(row, "Referenced:")).sum()
}

fn field(status: &str, name: &str) -> Outcome<u64> {
    let row = status.lines().find_map(|row| row.strip_prefix(name)).ok_or("no such field")?;
    Ok(row.split_whitespace().next().ok_or("no value")?.parse()?)
}

/// Peak memory of a command up to its answer, in KiB. The command writes into a full pipe and is
/// inspected while it waits there. The kernel keeps no such figures after exit. Its figures for
/// dead children include the parent's memory.
pub fn of_command(mut command: Command) -> Outcome<u64> {
    let (mut reader, writer) = io::pipe()?;
    fill(&writer)?;
    command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::null());
    let mut child = command.spawn()?;
    // This end of the pipe would keep it open.
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

/// Fills a pipe up to its capacity.
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
