//! The shell that a page is typed into.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Instant;

use ensemble_tmux::tmux::TmuxServer;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;

use super::page::{Ids, Shown, is_shown, with_ids};
use crate::bed::{program, without_polling};
use crate::tmux_support::{LOOK_INTERVAL, PATIENCE, TestServer, eventually};

const AGENTS: [&str; 4] = ["claude", "codex", "gemini", "opencode"];
pub(super) const AGENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/cli/guides/agent.sh");
const WORKER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/worker.sh");
const GIT_CONFIG: &str =
    "[user]\n\tname = A Person\n\temail = person@example.org\n[init]\n\tdefaultBranch = main\n";

pub(super) struct Shell {
    home: TempDir,
    _tmux: TestServer,
    child: Child,
    stdin: ChildStdin,
    ids: Ids,
}

impl Shell {
    pub(super) fn start() -> Self {
        Self::start_with(AGENT)
    }

    /// A home with the programs that pages start, and the PATH to them.
    pub(super) fn home_with(agent: &str) -> (TempDir, String) {
        let home = tempfile::tempdir().unwrap();
        let (programs, work) = (home.path().join("bin"), home.path().join("work"));
        fs::create_dir(&programs).unwrap();
        fs::create_dir(&work).unwrap();
        symlink(program(), programs.join("ensemble")).unwrap();
        symlink(WORKER, programs.join("worker.sh")).unwrap();
        for name in AGENTS {
            let file = programs.join(name);
            fs::copy(agent, &file).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::write(home.path().join(".gitconfig"), GIT_CONFIG).unwrap();
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin:/usr/sbin", programs.display());
        (home, path)
    }

    /// As [`Self::start`], with this script as the agents' program.
    pub(super) fn start_with(agent: &str) -> Self {
        let (home, path) = Self::home_with(agent);
        let mut tmux = Self::tmux(&home, &path);
        tmux.adopt();
        let mut child = Command::new("sh")
            .env_clear()
            .env("HOME", home.path())
            .env("TMPDIR", home.path())
            .env("PATH", &path)
            .env("TMUX", format!("{},{},0", tmux.server.socket().display(), tmux.pid()))
            .current_dir(home.path().join("work"))
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        Self { home, _tmux: tmux, child, stdin, ids: Ids::new() }
    }

    /// The tmux that a reader sits in, with the same programs on its PATH.
    fn tmux(home: &TempDir, path: &str) -> TestServer {
        let dir = tempfile::tempdir().unwrap();
        let started = Command::new("tmux")
            .args(["-f", "/dev/null", "-S"])
            .arg(dir.path().join("socket"))
            .args(["new-session", "-d", "-s", "main", "-x", "132", "-y", "50", "cat"])
            .env_clear()
            .env("HOME", home.path())
            .env("PATH", path)
            .current_dir(home.path().join("work"))
            .status()
            .unwrap();
        assert!(started.success(), "tmux starts");
        TestServer::around(dir)
    }

    /// The home of the person who types; `work` in it is where a page begins.
    pub(super) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Writes a file that the page tells its reader to create into the shell's current directory.
    pub(super) fn write(&mut self, name: &str, content: &str) {
        let place = fs::read_link(format!("/proc/{}/cwd", self.child.id())).unwrap();
        fs::write(place.join(name), content).unwrap();
    }

    pub(super) fn run(&mut self, shown: &Shown) -> Result<(), String> {
        let command = with_ids(&shown.command, &self.ids);
        let script = self.home.path().join("command");
        fs::write(&script, format!("{command}\n")).unwrap();
        let codes = self.home.path().join("code");
        // A program that runs behind the page's commands still writes into the removed file of an earlier one.
        for file in [&codes, &self.transcript_file()] {
            let _ = fs::remove_file(file);
        }
        // The code is complete once the file has its name.
        writeln!(
            self.stdin,
            ". {} </dev/null >{} 2>&1; echo $? > {codes}.new; mv {codes}.new {codes}",
            script.display(),
            self.transcript_file().display(),
            codes = codes.display()
        )
        .unwrap();
        let deadline = Instant::now() + PATIENCE;
        while !codes.exists() {
            if Instant::now() > deadline {
                return Err(format!("`{command}` has not ended:\n{}", self.transcript()));
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        let code: i32 = fs::read_to_string(&codes).unwrap().trim().parse().unwrap();
        let behind = command.split(" # ").next().is_some_and(|it| it.trim_end().ends_with('&'));
        let output = || format!("`{command}` (exit code {code}) printed:\n{}", self.transcript());
        if code != shown.code {
            return Err(format!("{}and not exit code {}", output(), shown.code));
        }
        if shown.output.is_empty() && !behind && !self.transcript().trim().is_empty() {
            return Err(format!("{}and the page shows nothing", output()));
        }
        if !shown.output.is_empty() {
            // What runs behind prints a moment later.
            let mut ids = self.ids.clone();
            let as_shown = |ids: &mut Ids| {
                is_shown(&shown.output, &self.transcript().lines().collect::<Vec<_>>(), ids)
            };
            while !as_shown(&mut ids) {
                if !behind || Instant::now() > deadline {
                    return Err(format!("{}and not:\n{}", output(), shown.output.join("\n")));
                }
                std::thread::sleep(LOOK_INTERVAL);
            }
            self.ids = ids;
        }
        Ok(())
    }

    /// Types each command into a new window, and waits until the agents that they start are in the team.
    pub(super) fn open(&mut self, commands: &[Shown]) {
        for Shown { command, line, .. } in commands {
            let command = format!("tmux new-window -d -c \"$PWD\" '{command}'");
            let shown = Shown { line: *line, command, code: 0, output: Vec::new() };
            self.run(&shown).unwrap();
        }
        let names = commands.iter().filter_map(|shown| shown.command.split_whitespace().nth(1));
        for name in names {
            let command = format!("ensemble team --json | grep '\"agent\":\"{name}\"'");
            let shown = Shown { line: 0, command, code: 0, output: vec!["…".to_owned()] };
            eventually(name, || self.run(&shown).is_ok());
        }
    }

    fn transcript_file(&self) -> PathBuf {
        self.home.path().join("transcript")
    }

    fn transcript(&self) -> String {
        let printed = fs::read(self.transcript_file()).unwrap_or_default();
        without_polling(String::from_utf8_lossy(&printed).into_owned())
    }

    pub(super) fn end_teams(directory: &Path) {
        let mut sockets = Vec::new();
        Self::sockets(directory, &mut sockets);
        for socket in sockets {
            let _ = TmuxServer::brief(socket).kill_server();
        }
    }

    fn sockets(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.ends_with(".ensemble/tmux.sock") {
                found.push(path);
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                Self::sockets(&path, found);
            }
        }
    }
}

impl Shell {
    fn kill_processes_of(home: &Path) -> bool {
        let home = home.display().to_string();
        let mut found = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
            let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
            let environment = fs::read(entry.path().join("environ")).ok()?;
            String::from_utf8_lossy(&environment).contains(&home).then_some(pid)
        });
        !found.any(|process| kill_process(process, Signal::KILL).is_ok())
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        Self::end_teams(self.home.path());
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::TERM);
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
        // What outlives the shell, such as a watcher, would write into a directory that is being removed.
        while !Self::kill_processes_of(self.home.path()) {
            std::thread::yield_now();
        }
    }
}
