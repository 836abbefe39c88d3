//! All processes of the project: who starts them, and who starts them again.
//!
//! | way | started by | killed with | started again |
//! |---|---|---|---|
//! | child | the test, as a service manager would | its process group, or alone | after a drawn time |
//! | pane | `up`, `spawn`, `join` | its terminal's session | by the same verb, once the roster or the process table shows that it has exited |

use std::os::unix::process::CommandExt as _;

use super::processes::{is_alive, of_group, of_session};
use crate::support::role_command;

use super::*;

/// How long a process stays dead at most, in milliseconds.
const DEAD_MAX_MS: u64 = 5_000;
const PANES_INTERVAL: Duration = Duration::from_secs(1);
/// Another process holds the name, or the lock.
pub const BUSY: i32 = 75;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A child; `true` if its whole group dies with it.
    Child(bool),
    Up,
    Spawn,
    Join,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Agent,
    Supervisor,
    Watcher,
    Dispatch,
}

const MEMBERS: [(&str, Kind, Way); 15] = [
    ("watcher", Kind::Watcher, Way::Child(false)),
    ("dispatcher", Kind::Dispatch, Way::Child(false)),
    ("conductor", Kind::Agent, Way::Up),
    ("worker-1", Kind::Agent, Way::Up),
    ("worker-2", Kind::Agent, Way::Up),
    ("worker-3", Kind::Agent, Way::Spawn),
    ("worker-4", Kind::Agent, Way::Join),
    ("box-1", Kind::Agent, Way::Child(true)),
    ("mcp-1", Kind::Agent, Way::Child(true)),
    ("tara", Kind::Agent, Way::Child(true)),
    ("devon", Kind::Agent, Way::Child(true)),
    ("coder-1", Kind::Supervisor, Way::Up),
    ("coder-2", Kind::Supervisor, Way::Child(false)),
    ("reviewer-1", Kind::Supervisor, Way::Child(false)),
    ("planner-1", Kind::Supervisor, Way::Child(false)),
];
/// Workers that may be asked to leave.
pub const LEAVERS: [&str; 5] = ["worker-1", "worker-2", "worker-3", "worker-4", "coder-2"];

struct Member {
    name: &'static str,
    kind: Kind,
    way: Way,
    child: Option<Child>,
    /// When it is started (again).
    due: Option<Instant>,
}

pub struct Cast {
    members: Vec<Member>,
    /// Verbs that start panes and have not ended yet.
    verbs: Vec<(&'static str, Child)>,
    random: SimRng,
    looked: Instant,
    starts: BTreeMap<&'static str, u64>,
    /// Children that ended without having been killed: name and exit code.
    pub ended: Vec<(&'static str, Option<i32>)>,
    is_over: bool,
}

impl Cast {
    pub fn new(_: &Stage, seed: u64) -> Self {
        let due = Some(Instant::now());
        let member = |(name, kind, way)| Member { name, kind, way, child: None, due };
        Self {
            members: MEMBERS.map(member).into(),
            verbs: Vec::new(),
            random: SimRng::new(seed),
            looked: Instant::now(),
            starts: BTreeMap::new(),
            ended: Vec::new(),
            is_over: false,
        }
    }

    /// The first start, in the order of a user: the watcher, the team, the rest.
    pub fn begin(&mut self, stage: &Stage) {
        let own = stage.own.display();
        self.start(stage, 0);
        crate::support::eventually_true(crate::support::PATIENCE, "the watcher watches", || {
            stage.home.join(".ensemble/watch.json").exists()
        });
        stage.ok("up --json");
        let command = format!("exec bash {own}/worker.sh");
        let arguments = ["agent", "start", "worker-3", "--role", "worker", "--command", &command];
        let spawned = stage.command(&arguments).output().unwrap();
        assert!(spawned.status.success(), "{spawned:?}");
        for member in self.members.iter_mut().filter(|m| matches!(m.way, Way::Up | Way::Spawn)) {
            member.due = None;
        }
    }

    fn start(&mut self, stage: &Stage, at: usize) {
        let (name, way) = (self.members[at].name, self.members[at].way);
        *self.starts.entry(name).or_default() += 1;
        self.members[at].due = None;
        if matches!(way, Way::Child(_)) {
            let mut command = child_command(stage, name);
            command.stdout(Stdio::null()).stderr(stage.told(name)).process_group(0);
            self.members[at].child = Some(command.spawn().expect("a program starts"));
            return;
        }
        let verb = match way {
            Way::Join => join(stage, name),
            Way::Spawn if is_shut_down(stage, name) => {
                let command = format!("exec bash {}/worker.sh", stage.own.display());
                Some(stage.command(&[
                    "agent",
                    "start",
                    name,
                    "--role",
                    "worker",
                    "--command",
                    &command,
                ]))
            }
            _ => Some(stage.command(&["up", name])),
        };
        if let Some(mut verb) = verb {
            verb.stdout(Stdio::null()).stderr(stage.told(name));
            self.verbs.push((name, verb.spawn().expect("a program starts")));
        }
    }

    pub fn tend(&mut self, stage: &Stage) {
        let now = Instant::now();
        self.verbs.retain_mut(|(_, child)| child.try_wait().unwrap().is_none());
        for at in 0..self.members.len() {
            let delay = Duration::from_millis(200 + self.random.below(DEAD_MAX_MS));
            let member = &mut self.members[at];
            let status = member.child.as_mut().and_then(|child| child.try_wait().unwrap());
            if let Some(status) = status {
                member.child = None;
                member.due = Some(now + delay);
                if status.code() != Some(BUSY) {
                    self.ended.push((member.name, status.code()));
                }
            }
            if !self.is_over && self.members[at].due.is_some_and(|due| due <= now) {
                self.start(stage, at);
            }
        }
        if now - self.looked >= PANES_INTERVAL && !self.is_over {
            self.looked = now;
            self.look_at_panes(stage, now);
        }
    }

    fn look_at_panes(&mut self, stage: &Stage, now: Instant) {
        for at in 0..self.members.len() {
            let name = self.members[at].name;
            let is_pane = !matches!(self.members[at].way, Way::Child(_));
            let is_busy = self.verbs.iter().any(|(verb, _)| *verb == name);
            if !is_pane || is_busy || self.members[at].due.is_some() {
                continue;
            }
            let is_up = pane_process(stage, name).is_some_and(is_alive);
            if !is_up && !is_leaving(stage, name) {
                let delay = Duration::from_millis(self.random.below(DEAD_MAX_MS));
                self.members[at].due = Some(now + delay);
            }
        }
    }

    /// Processes that die or pause together with a member, if it runs.
    pub fn processes(&self, stage: &Stage, name: &str) -> Vec<u32> {
        let Some(member) = self.members.iter().find(|member| member.name == name) else {
            return Vec::new();
        };
        match (member.way, &member.child) {
            (Way::Child(_), None) => Vec::new(),
            (Way::Child(true), Some(child)) => of_group(child.id()),
            (Way::Child(false), Some(child)) => vec![child.id()],
            _ => match pane_process(stage, name).filter(|pid| is_of(*pid, &stage.mark())) {
                // Its agent continues, as with any other supervisor.
                Some(pid) if member.kind == Kind::Supervisor => vec![pid],
                Some(pid) => of_session(pid),
                None => Vec::new(),
            },
        }
    }

    /// `kill -9`; whether there was something to kill.
    pub fn kill(&mut self, stage: &Stage, name: &str) -> bool {
        let (pids, at) = (self.processes(stage, name), now());
        signal_all(&pids, Signal::KILL);
        let delay = Duration::from_millis(self.random.below(DEAD_MAX_MS));
        if let Some(member) = self.members.iter_mut().find(|member| member.name == name)
            && let Some(mut child) = member.child.take()
        {
            child.wait().unwrap();
            member.due = Some(Instant::now() + delay);
        }
        let words: Vec<String> = pids.iter().map(u32::to_string).collect();
        if !pids.is_empty() {
            stage.note(at, &format!("once kill {}", words.join(" ")));
        }
        !pids.is_empty()
    }

    pub fn names(&self, kind: Kind) -> Vec<&'static str> {
        let of = self.members.iter().filter(|member| member.kind == kind);
        of.map(|member| member.name).collect()
    }

    /// Ends what is not a member of the team, as a user would, and starts none again.
    pub fn end(&mut self) {
        self.is_over = true;
        for (_, mut verb) in self.verbs.drain(..) {
            verb.wait().unwrap();
        }
        for member in &mut self.members {
            if let Some(mut child) = member.child.take() {
                signal(child.id(), Signal::TERM);
                let _ = crate::support::eventually(crate::support::PATIENCE, member.name, || {
                    child.try_wait().unwrap()
                });
            }
        }
    }

    pub fn told(&self) -> String {
        let starts: u64 = self.starts.values().sum();
        format!("{starts} starts; ended by themselves: {:?}", self.ended)
    }
}

impl Drop for Cast {
    fn drop(&mut self) {
        for (_, child) in &mut self.verbs {
            let _ = child.kill();
            let _ = child.wait();
        }
        for child in self.members.iter_mut().filter_map(|member| member.child.as_mut()) {
            signal_all(&of_group(child.id()), Signal::KILL);
            let _ = child.wait();
        }
    }
}

fn child_command(stage: &Stage, name: &str) -> Command {
    let script = |script: &str, arguments: &[&str]| {
        let mut command = Command::new("bash");
        command.arg(stage.own.join(script)).args(arguments);
        stage.prepare_command(&mut command);
        command
    };
    let supervise = |role: &str| stage.command(&stage.supervise(role, name));
    match name {
        "watcher" => stage.command(&["watch"]),
        "dispatcher" => stage.command(&["task", "dispatch"]),
        "box-1" => {
            let work = stage.own.join("box.sh");
            let work = work.to_str().expect("a path in UTF-8");
            let mut command = script("mailbox.sh", &["queue", name, name, "bash", work]);
            command.env("LEASE", (LEASE_SECONDS * 2).to_string()).env("DELAY", "0");
            command
        }
        "mcp-1" => {
            let mut command = role_command(&format!("whole::{}", client::ROLE), &[]);
            let variables: Vec<_> = command
                .get_envs()
                .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
                .collect();
            stage.prepare_command(&mut command);
            command.envs(variables);
            command
        }
        "coder-2" => supervise("coder"),
        "reviewer-1" => supervise("code-reviewer"),
        "planner-1" => supervise("planner"),
        _ => script("steps.sh", &[name]),
    }
}

/// A pane of a tmux server of the user's own, which joins the team.
fn join(stage: &Stage, name: &str) -> Option<Command> {
    let socket = stage.own.join("tmux.sock");
    let tmux = |arguments: &[&str]| {
        let mut command = Command::new("tmux");
        command.arg("-f").arg("/dev/null").arg("-S").arg(&socket).args(arguments);
        stage.prepare_command(&mut command);
        command.env("ENSEMBLE_AGENT_ID", name).output().expect("tmux")
    };
    let script = format!("exec bash {}/worker.sh", stage.own.display());
    let print = ["-P", "-F", "#{pane_id}"];
    let mut arguments = vec!["new-session", "-d"];
    if tmux(&["has-session"]).status.success() {
        arguments = vec!["new-window", "-d"];
    }
    arguments.extend(print);
    arguments.push(&script);
    let made = tmux(&arguments);
    let pane = String::from_utf8_lossy(&made.stdout).trim().to_owned();
    if pane.is_empty() {
        return None;
    }
    let socket = socket.to_str().expect("a path in UTF-8");
    Some(stage.command(&["agent", "join", name, "--pane", &pane, "--tmux-socket", socket]))
}

fn roster(stage: &Stage, name: &str) -> String {
    let path = stage.home.join(format!(".ensemble/roster/{name}.yaml"));
    fs::read_to_string(path).unwrap_or_default()
}

fn is_leaving(stage: &Stage, name: &str) -> bool {
    roster(stage, name).contains("\nstate: leaving")
}

fn is_shut_down(stage: &Stage, name: &str) -> bool {
    roster(stage, name).contains("\nstate: shutdown")
}

/// The first process of a member's pane, as the roster has it.
fn pane_process(stage: &Stage, name: &str) -> Option<u32> {
    let text = roster(stage, name);
    let (_, binding) = text.split_once("\nbinding:")?;
    let (_, pid) = binding.split_once("pid: ")?;
    pid.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}
