"""A scratch directory with a project, its team and a real agent in it, of which nothing remains."""

import copy
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unicodedata
from contextlib import contextmanager
from pathlib import Path

from providers import CONFIGURE

START_SECONDS = 90
# Marks everything that was started here, however far from the pane it has wandered.
MARK = "ENSEMBLE_AGENTS_SCRATCH"
TEAM = """agents:
{agents}
team: {{columns: {width}, lines: 40}}
ladder: {{phase: 8, ceiling: 20}}
{hooks}
"""


def parent(provider):
    """Where the scratch directory is made. Gemini CLI takes hooks only where no other user may write above."""
    if provider != "gemini" or "TMPDIR" in os.environ:
        return None
    place = Path.home() / ".cache"
    place.mkdir(exist_ok=True)
    return place


class Scratch:
    def __init__(self, ensemble, agents_dir, url, width, provider=None):
        self.dir = Path(tempfile.mkdtemp(prefix="agents.", dir=parent(provider)))
        self.ensemble_path, self.agents_dir, self.url, self.width = Path(ensemble), agents_dir, url, width
        path = [str(self.ensemble_path.parent), str(Path(agents_dir) / "node_modules/.bin"),
                str(Path(agents_dir) / "hcom/bin")]
        self.path = ":".join([*path, os.environ["PATH"]])

    def has(self, program):
        """Whether the agents that are walked can start this program."""
        return shutil.which(program, path=self.path) is not None

    def close(self):
        """Ends every process that was started here, by its id, and removes the directory."""
        left = self.processes()
        for sign in (signal.SIGTERM, signal.SIGKILL):
            for pid in self.processes():
                try:
                    os.kill(pid, sign)
                except ProcessLookupError:
                    pass
            if settled(lambda: not self.processes(), 5):
                break
        shutil.rmtree(self.dir, ignore_errors=True)
        return left

    def processes(self):
        """What carries the mark, and what descends from that."""
        mark, marked, parents = f"{MARK}={self.dir}".encode(), set(), {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                stat = (entry / "stat").read_text().rsplit(") ", 1)[1].split()
                if stat[0] == "Z":
                    continue
                parents[int(entry.name)] = int(stat[1])
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    marked.add(int(entry.name))
            except (OSError, IndexError):
                continue
        while more := {pid for pid, parent in parents.items() if parent in marked} - marked:
            marked |= more
        return sorted(marked)

    def environment(self, home):
        return {"HOME": str(home), "PATH": self.path, "TERM": "xterm-256color", "LANG": "C.UTF-8",
                "SHELL": "/bin/sh", "TMPDIR": str(self.dir), "PS1": "$ ", MARK: str(self.dir)}


class Agent:
    """A team of one agent, as a user makes it: `init`, `ensemble.yaml`, `up`."""

    def __init__(self, scratch, provider, home="", mcp=False, twins=False, hooked=False, **options):
        self.scratch, self.provider, self.name, self.hooked = scratch, provider, "w1", hooked
        self.home = scratch.dir / (provider + home)
        self.project = self.home / "p"
        self.socket = self.project / ".ensemble/tmux.sock"
        self.project.mkdir(parents=True)
        self.environment = CONFIGURE[provider](self, **options)
        self.initialized = self.run("init")
        if mcp:
            self.environment["ENSEMBLE_AGENT_ID"] = "w1"
            self.installed = self.run("mcp", "install", "--provider", provider)
        agents = "\n".join(f"  {name}: {{provider: {provider}}}" for name in ("w1", "w2")[:1 + twins])
        # The walk is about keystrokes; `hooked` is about what agents get by default.
        hooks = "" if hooked else "hooks: {providers: []}"
        team = TEAM.format(agents=agents, width=scratch.width, hooks=hooks)
        (self.project / "ensemble.yaml").write_text(team)
        for other in ("conductor", "human"):
            self.run("mailbox", "add", other)

    def up(self):
        """Brings the team up; gives the exit code and what was said."""
        said = self.run("up")
        self.pane = self.find_pane()
        return said

    def find_pane(self):
        panes = self.tmux("list-panes", "-s", "-F", "#{pane_id} #{window_name}").splitlines()
        return next((line.split()[0] for line in panes if line.endswith(f" {self.name}")), "")

    def twin(self, name):
        """The other agent of this team."""
        twin = copy.copy(self)
        twin.name = name
        twin.pane = twin.find_pane()
        return twin

    def run(self, *arguments, text=None, seconds=300):
        """Runs `ensemble` as a person does; gives its exit code and what it printed."""
        done = subprocess.run([self.scratch.ensemble_path, *arguments], cwd=self.project, input=text,
                              env=self.person(), text=True, capture_output=True, timeout=seconds)
        return done.returncode, done.stdout + done.stderr

    def popen(self, *arguments):
        """Starts `ensemble`, and leaves it running; what it says goes nowhere."""
        return subprocess.Popen([self.scratch.ensemble_path, *arguments], cwd=self.project, env=self.person(),
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=(self.home / "driver.log").open("ab"))

    def person(self):
        """The environment of a person's shell."""
        return {**self.scratch.environment(self.home), **self.environment, "ENSEMBLE_AGENT_ID": "human"}

    def holds_a_line_of_ours(self):
        """Whether the pane remembers a line that waits for its Enter."""
        return bool(self.tmux("show-options", "-pqv", "-t", self.pane, "@ensemble_typed"))

    @contextmanager
    def own_watcher(self):
        """A watcher that was started by hand in the place of the team's: tmux lets none of its own stand still."""
        for pid in self.watchers():
            os.kill(pid, signal.SIGTERM)
        settled(lambda: not self.watchers(), 10)
        watcher = self.popen("watch")
        try:
            yield watcher
        finally:
            watcher.send_signal(signal.SIGCONT)
            watcher.terminate()
            watcher.wait(20)
            self.run("up")

    def watchers(self):
        """The ids of the watchers of this project."""
        found, queue = [], f"{self.project}/queue".encode()
        for pid in self.scratch.processes():
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[0].endswith(b"/ensemble") and b"watch" in words and queue in words:
                found.append(pid)
        return found

    def tmux(self, *arguments):
        done = subprocess.run(["tmux", "-S", str(self.socket), *arguments], text=True,
                              env=self.scratch.environment(self.home), capture_output=True, timeout=20)
        return done.stdout.rstrip("\n")

    def type(self, text, enter=True):
        """What a person types."""
        self.tmux("send-keys", "-t", self.pane, "-l", "--", text)
        if enter:
            settled(lambda: text[-20:].replace(" ", "") in self.squeezed(), 5)
            time.sleep(0.7)
            self.keys("Enter")

    def keys(self, *keys):
        self.tmux("send-keys", "-t", self.pane, *keys)

    def screen(self):
        return self.tmux("capture-pane", "-p", "-t", self.pane)

    def recorded(self):
        """The screen as a fixture: what runs, the title, then the lines with `▮` where the cursor stands."""
        form = "#{pane_current_command}|#{cursor_x}|#{cursor_y}|#{pane_title}"
        command, x, y, title = self.tmux("display-message", "-p", "-t", self.pane, form).split("|", 3)
        lines = self.screen().split("\n")
        lines += [""] * (int(y) + 1 - len(lines))
        lines[int(y)] = at_cell(lines[int(y)], int(x))
        return "\n".join([f"{command}|{title.strip()}", *lines]).rstrip()

    def squeezed(self):
        """The screen without blanks and edges, so that it does not matter where a line was broken."""
        return "".join(c for c in self.screen() if not c.isspace() and c not in "│┃")

    def inspect(self):
        code, text = self.run("agent", "inspect", self.name, "--json")
        return json.loads(text) if code == 0 else {"state": "none", "error": text}

    def state(self):
        return self.inspect()["state"]

    def wait(self, state, seconds=20):
        """Waits for a state; gives what is seen at last."""
        seen = []
        settled(lambda: seen.append(self.state()) or seen[-1] == state, seconds)
        return seen[-1]

    def member(self):
        """The agent's row of `ensemble team`."""
        code, text = self.run("team", "--json")
        rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")] if code == 0 else []
        return next((row for row in rows if row.get("agent") == self.name), {"state": text})

    def waiting(self):
        """How many messages lie in the mailbox, unread or held."""
        box = self.project / "queue/mailbox" / self.name
        return sum(1 for part in ("new", "front", "cur") if (box / part).is_dir()
                   for file in (box / part).iterdir() if not file.name.startswith("."))

    def processes(self):
        """The processes in the pane: the agent lives as long as its own is among them."""
        first = self.tmux("display-message", "-p", "-t", self.pane, "#{pane_pid}")
        done = subprocess.run(["ps", "-o", "pid=", "--ppid", first], text=True, capture_output=True)
        return [first, *done.stdout.split()]


def settled(condition, seconds):
    """Waits until `condition` holds, at most so long; gives whether it does."""
    deadline = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return bool(holds)


def at_cell(line, cell):
    """The line with a cursor before that cell; wide characters have two."""
    at = cells = 0
    while at < len(line) and cells < cell:
        cells += 2 if unicodedata.east_asian_width(line[at]) in "WF" else 1
        at += 1
    return line[:at] + " " * (cell - cells) + "▮" + line[at:]
