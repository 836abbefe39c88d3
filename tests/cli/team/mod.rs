//! A team in its own real tmux server: started, observed, killed in the middle.

mod agree;
mod alerts;
mod crash;
mod five_tasks;
mod hooked;
mod hour;
mod identity;
mod lifecycle;
mod reopened;
mod revived;
mod seen;
#[cfg(feature = "nats")]
mod servers;
mod shutdown;
mod starts;
mod states;
mod supervised;
mod terminal_less;
mod troubles;
mod unasked;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ensemble_tmux::tmux::{PaneSigns, TmuxServer};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::bed::{Bed, Ran, program, to_end};
use crate::tmux_support::eventually;

/// Does what the test tells it through a pipe, and leaves output and exit code in files.
const PUPPET: &str = r#"
me=$HERE/$ENSEMBLE_AGENT_ID
[ -p "$me.in" ] || mkfifo "$me.in"
exec 3<>"$me.in"
: >"$me.ready"
while IFS= read -r line <&3; do
    (eval "$line") 3<&- >"$me.out" 2>"$me.err"
    echo $? >"$me.code.new"
    mv "$me.code.new" "$me.code"
done
"#;

pub(super) struct Team {
    pub(super) bed: Bed,
}

impl Team {
    /// The agents `conductor`, `worker-1` and `worker-2`, all of them puppets.
    pub(super) fn new() -> Self {
        Self::with(&["conductor", "worker-1", "worker-2"], "")
    }

    pub(super) fn with(puppets: &[&str], config: &str) -> Self {
        let bed = Bed::empty();
        bed.ok("init");
        let here = bed.project().join("here");
        fs::create_dir(&here).unwrap();
        fs::write(here.join("puppet.sh"), PUPPET).unwrap();
        let mut text = "durability: process\nteam: {name: crew}\nagents:\n".to_owned();
        for name in puppets {
            text += &format!(
                "  {name}: {{command: 'sh here/puppet.sh', env: {{HERE: {}, E: {}}}}}\n",
                here.display(),
                program().display()
            );
        }
        bed.write_file("ensemble.yaml", text + config);
        Self { bed }
    }

    pub(super) fn server(&self) -> TmuxServer {
        TmuxServer::new(self.bed.project().join(".ensemble/tmux.sock"))
    }

    pub(super) fn here(&self, file: &str) -> PathBuf {
        self.bed.project().join("here").join(file)
    }

    pub(super) fn panes(&self) -> Vec<PaneSigns> {
        self.server().all_pane_signs().unwrap()
    }

    /// The pane that is marked as an agent's; there must be one and no more.
    #[track_caller]
    pub(super) fn pane(&self, name: &str) -> PaneSigns {
        let panes = self.panes();
        let is_its = |pane: &&PaneSigns| {
            pane.member.as_ref().is_some_and(|(member, _)| member.as_str() == name)
        };
        let its: Vec<&PaneSigns> = panes.iter().filter(is_its).collect();
        assert_eq!(its.len(), 1, "{name}: {panes:#?}");
        its[0].clone()
    }

    pub(super) fn wait_for_puppet(&self, name: &str) {
        eventually("the puppet is ready", || self.here(&format!("{name}.ready")).exists());
    }

    #[track_caller]
    pub(super) fn order(&self, name: &str, line: &str) -> Ran {
        let file = |end: &str| self.here(&format!("{name}.{end}"));
        self.wait_for_puppet(name);
        let _ = fs::remove_file(file("code"));
        self.tell(name, line);
        eventually(line, || file("code").exists());
        Ran {
            code: fs::read_to_string(file("code")).unwrap().trim().parse().unwrap(),
            stdout: fs::read_to_string(file("out")).unwrap(),
            stderr: fs::read_to_string(file("err")).unwrap(),
        }
    }

    /// Gives a puppet a line to run, and waits for nothing but the puppet. Without one, an ordinary
    /// open of its pipe would wait forever.
    #[track_caller]
    pub(super) fn tell(&self, name: &str, line: &str) {
        let pipe = self.here(&format!("{name}.in"));
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        eventually(&format!("{name} reads its pipe, to run {line}"), || {
            match rustix::fs::open(&pipe, flags, Mode::empty()) {
                Ok(pipe) => fs::File::from(pipe).write_all(format!("{line}\n").as_bytes()).is_ok(),
                Err(error) => {
                    assert_eq!(error, Errno::NXIO, "{}", pipe.display());
                    false
                }
            }
        });
    }

    #[track_caller]
    pub(super) fn member(&self, name: &str) -> Value {
        self.bed.object(&format!("team {name}"))
    }

    #[track_caller]
    pub(super) fn wait_for_state(&self, name: &str, state: &str) -> Value {
        let mut last = Value::Null;
        eventually(&format!("{name} is {state}"), || {
            last = self.member(name);
            last["state"] == state
        });
        last
    }

    #[track_caller]
    pub(super) fn wait_for_evidence(&self, name: &str, state: &str, why: &str) {
        eventually(&format!("{name} is {state}: {why}"), || {
            let line = self.member(name);
            line["state"] == state && line["why"].as_str().is_some_and(|said| said.contains(why))
        });
    }

    pub(super) fn records(&self, kind: &str) -> Vec<Value> {
        let all = self.bed.json(&format!("log --type {kind}"));
        all.into_iter().map(|record| record["data"].clone()).collect()
    }

    /// Opens a window of the session `crew` and returns the id of its pane.
    pub(super) fn open_window(&self, command: &str) -> String {
        let window = ["new-window", "-d", "-P", "-F", "#{pane_id}", "-t", "=crew:", command];
        self.server().run(&window).unwrap().remove(0)
    }

    pub(super) fn wait_for_screen(&self, pane: &str, text: &str) {
        let screen = || self.server().run(&["capture-pane", "-p", "-t", pane]).unwrap().join("\n");
        eventually(&format!("{pane} shows {text}"), || screen().contains(text));
    }

    /// `ensemble up`, as objects by agent; the first is about the session.
    #[track_caller]
    pub(super) fn up(&self) -> Vec<Value> {
        self.bed.json("up")
    }

    /// Runs a command and kills it before its `number`th call of `call`; whether it got that far.
    pub(super) fn is_killed_at(&self, line: &str, call: &str, number: u32) -> bool {
        let inject = format!("inject={call}:signal=SIGKILL:when={number}");
        let mut strace = Command::new("strace");
        // Without -f, only the command itself is watched, and not what it starts.
        strace
            .args(["-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &inject])
            .arg(program())
            .args(crate::bed::words(line))
            .env_clear()
            .env("HOME", self.bed.project())
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .current_dir(self.bed.project())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        !strace.status().expect("strace is installed").success()
    }

    /// A command of the shell, in the environment in which the tests run `ensemble`.
    pub(super) fn shell(&self, script: &str) -> Ran {
        let mut command = Command::new("sh");
        command
            .args(["-c", script])
            .env_clear()
            .env("HOME", self.bed.project())
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("E", program())
            .current_dir(self.bed.project());
        to_end(&mut command)
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        let server = self.server();
        let pids: Vec<u32> = server
            .all_pane_signs()
            .map(|panes| panes.iter().filter(|pane| !pane.dead).map(|pane| pane.pid).collect())
            .unwrap_or_default();
        let pid = server.pid().ok();
        // Everything is ended before anything is asserted.
        let ended = server.kill_server();
        for pid in pids.into_iter().chain(pid) {
            kill(pid);
        }
        if !std::thread::panicking() {
            ended.expect("the server ends when it is told to");
        }
    }
}

pub(super) fn kill(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

#[track_caller]
pub(super) fn of<'a>(objects: &'a [Value], agent: &str) -> &'a Value {
    objects.iter().find(|object| object["agent"] == agent).unwrap_or_else(|| {
        panic!("{agent} is not among {objects:#?}");
    })
}

pub(super) fn holds(path: &Path, text: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|content| content.contains(text))
}
