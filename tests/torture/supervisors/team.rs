//! Supervisors as processes: `ensemble agent supervise` with an agent that is a shell script, on one host or on
//! several.

use std::fs::File;

use super::*;

const AGENT: &str = include_str!("agent.sh");
/// Another one holds the name, or is just ending what its dead supervisor has left. Or the servers do not answer.
const BUSY: i32 = 75;
/// How many lines of the journal are read for agents that still work.
const AGENT_LINES: usize = 60;

pub(crate) struct Member {
    pub(crate) id: String,
    at: usize,
    role: &'static str,
    process: Child,
}

impl Member {
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }
}

/// An agent that works now, by its own word.
pub(crate) struct Agent {
    pub(crate) task: String,
    pub(crate) pid: u32,
    pub(crate) supervisor: u32,
}

/// All of them. What still runs is killed with this.
pub(crate) struct Team<'a> {
    /// For the files of the test and of the agents of all hosts.
    own: PathBuf,
    /// `--poll` of each.
    poll: &'static str,
    /// The program on the host of this number.
    program: Box<dyn Fn(usize) -> Command + 'a>,
    pub(crate) members: Vec<Member>,
    started: usize,
    /// How often a name was still in use.
    pub(crate) busy: usize,
}

impl<'a> Team<'a> {
    pub(crate) fn new(
        own: PathBuf,
        poll: &'static str,
        program: impl Fn(usize) -> Command + 'a,
    ) -> Self {
        std::fs::create_dir_all(own.join("working")).unwrap();
        std::fs::write(own.join("agent.sh"), AGENT).unwrap();
        Self { own, poll, program: Box::new(program), members: Vec::new(), started: 0, busy: 0 }
    }

    pub(crate) fn start_new(&mut self, at: usize, role: &'static str) {
        self.started += 1;
        self.start(format!("{role}-{}", self.started), at, role);
    }

    fn start(&mut self, id: String, at: usize, role: &'static str) {
        let told = File::options().append(true).create(true).open(self.own.join("told")).unwrap();
        let process = (self.program)(at)
            .args(["agent", "supervise", "--role", role, "--name", &id, "--poll", self.poll])
            .args(["--restart-delay", "100ms", "--hand-over-delay", "100ms", "--", "sh"])
            .arg(self.own.join("agent.sh"))
            .arg(role)
            .env("JOURNAL", self.own.join("journal"))
            .env("LOCKS", self.own.join("working"))
            .stdout(Stdio::null())
            .stderr(told)
            .spawn()
            .unwrap();
        self.members.push(Member { id, at, role, process });
    }

    /// `kill -9`, and another one for it: of the same name, or of a new one. Its process.
    pub(crate) fn kill(&mut self, chosen: u64, is_new: bool) -> u32 {
        let chosen = usize::try_from(chosen % self.members.len() as u64).unwrap();
        let mut member = self.members.remove(chosen);
        member.process.kill().unwrap();
        member.process.wait().unwrap();
        let pid = member.pid();
        match is_new {
            true => self.start_new(member.at, member.role),
            false => self.start(member.id, member.at, member.role),
        }
        pid
    }

    /// None ends by itself, but one whose name is still in use, or who cannot reach the servers at its start; that is
    /// tried again.
    pub(crate) fn tend(&mut self) {
        for at in (0..self.members.len()).rev() {
            let Some(status) = self.members[at].process.try_wait().unwrap() else { continue };
            let member = self.members.remove(at);
            assert_eq!(status.code(), Some(BUSY), "{} has ended:\n{}", member.id, self.told());
            self.busy += 1;
            self.start(member.id, member.at, member.role);
        }
    }

    /// Ends them as a user would.
    pub(crate) fn stop(&mut self) {
        for member in &self.members {
            signal(member.pid(), Signal::TERM);
        }
        for mut member in std::mem::take(&mut self.members) {
            let status = member.process.wait().unwrap();
            assert!(status.success(), "{} ended with {status}:\n{}", member.id, self.told());
        }
    }

    /// What the agents have written.
    pub(crate) fn journal(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.own.join("journal")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Those that began last come first.
    pub(crate) fn agents(&self) -> Vec<Agent> {
        let of_line = |line: &String| {
            let words: Vec<&str> = line.strip_prefix("begin ")?.split(' ').collect();
            let [task, epoch, pid, supervisor] = words[..] else { return None };
            is_agent_of(pid, task, epoch).then_some(())?;
            let (pid, supervisor) = (pid.parse().ok()?, supervisor.parse().ok()?);
            Some(Agent { task: task.to_owned(), pid, supervisor })
        };
        self.journal().iter().rev().take(AGENT_LINES).filter_map(of_line).collect()
    }

    /// The end of what agents and supervisors have said.
    pub(crate) fn told(&self) -> String {
        let journal = self.journal();
        let last = journal[journal.len().saturating_sub(20)..].join("\n");
        let text = std::fs::read_to_string(self.own.join("told")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        format!("{last}\n{}", lines[lines.len().saturating_sub(40)..].join("\n"))
    }
}

impl Drop for Team<'_> {
    fn drop(&mut self) {
        for member in &mut self.members {
            let _ = member.process.kill();
            let _ = member.process.wait();
        }
        // Their agents.
        for pid in running(&self.own) {
            signal(pid, Signal::KILL);
        }
    }
}

/// Whether the process with this number is still the agent of that time: numbers are used again.
fn is_agent_of(pid: &str, task: &str, epoch: &str) -> bool {
    let read = |name| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let (command, environ) = (read("cmdline"), read("environ"));
    let environ = String::from_utf8_lossy(&environ);
    let has = |variable: String| environ.split('\0').any(|one| one == variable);
    command.starts_with(b"sh\0")
        && has(format!("ENSEMBLE_TASK_ID={task}"))
        && has(format!("ENSEMBLE_TASK_EPOCH={epoch}"))
}

/// Processes whose command line names this place.
pub(crate) fn running(place: &Path) -> Vec<u32> {
    let place = place.to_str().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let names_it = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(place)
    };
    pids.filter(names_it).collect()
}
