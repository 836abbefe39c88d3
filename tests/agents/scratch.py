"""A scratch directory with a tmux server, a queue and real agents in it, of which nothing remains."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

KEY = "sk-ant-dummy-0123456789-0123456789"
WIDTH, HEIGHT = 110, 40
START_SECONDS = 90
# Marks everything that was started here, however far from the pane it has wandered.
MARK = "ENSEMBLE_AGENTS_SCRATCH"


class Scratch:
    def __init__(self, ensemble, agents_dir, url):
        self.dir = Path(tempfile.mkdtemp(prefix="agents."))
        self.ensemble_path, self.url = Path(ensemble), url
        self.socket = self.dir / "tmux"
        path = [str(self.ensemble_path.parent), str(Path(agents_dir) / "node_modules/.bin")]
        self.path = ":".join([*path, os.environ["PATH"]])

    def close(self):
        """Ends every process that was started here, by its id, and removes the directory."""
        for sign in (signal.SIGTERM, signal.SIGKILL):
            for pid in self.processes():
                try:
                    os.kill(pid, sign)
                except ProcessLookupError:
                    pass
            if settled(lambda: not self.processes(), 5):
                break
        shutil.rmtree(self.dir, ignore_errors=True)
        return len(self.processes())

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

    def tmux(self, *arguments, home=None):
        command = ["tmux", "-S", str(self.socket), "-f", "/dev/null", *arguments]
        done = subprocess.run(command, env=self.environment(home or self.dir), text=True,
                              capture_output=True, timeout=20)
        return done.stdout.rstrip("\n")


class Agent:
    """One agent: its home, its project with a queue, its pane."""

    def __init__(self, scratch, provider, name="", mcp=False, **options):
        self.scratch, self.provider = scratch, provider
        self.home = scratch.dir / (provider + name)
        self.project = self.home / "p"
        self.project.mkdir(parents=True)
        self.environment = CONFIGURE[provider](self, **options)
        self.run("init")
        if mcp:
            self.environment["ENSEMBLE_AGENT_ID"] = "w1"
            self.installed = self.run("mcp", "install", "--provider", provider)
        config = self.project / "ensemble.yaml"
        config.write_text("ladder:\n  phase_seconds: 8\n  ceiling_seconds: 20\n" + config.read_text())
        self.pane = self.open_pane()
        self.run("mailbox", "add", "w1", "--pane", self.pane, "--provider", provider,
                 "--tmux-socket", str(scratch.socket))
        for other in ("conductor", "human"):
            self.run("mailbox", "add", other)

    def open_pane(self):
        home, tmux = self.home, self.scratch.tmux
        environment = {**self.scratch.environment(home), **self.environment}
        pairs = [f"{key}={value}" for key, value in environment.items()]
        return tmux("new-session", "-d", "-P", "-F", "#{pane_id}", "-x", str(WIDTH), "-y", str(HEIGHT),
                    "-c", str(self.project), "env", "-i", *pairs, "sh", home=home)

    def run(self, *arguments, text=None, seconds=120):
        """Runs `ensemble`; gives its exit code and what it printed."""
        environment = {**self.scratch.environment(self.home), "ENSEMBLE_AGENT_ID": "human"}
        done = subprocess.run([self.scratch.ensemble_path, *arguments], cwd=self.project, input=text,
                              env=environment, text=True, capture_output=True, timeout=seconds)
        return done.returncode, done.stdout + done.stderr

    def popen(self, *arguments):
        """Starts `ensemble`, and leaves it running; what it says goes nowhere."""
        environment = {**self.scratch.environment(self.home), "ENSEMBLE_AGENT_ID": "human"}
        return subprocess.Popen([self.scratch.ensemble_path, *arguments], cwd=self.project, env=environment,
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=(self.home / "driver.log").open("ab"))

    def start(self, state="ready", seconds=START_SECONDS):
        """Starts the agent and waits until it shows `state`."""
        self.type(COMMANDS[self.provider])
        return self.wait(state, seconds)

    def type(self, text, enter=True):
        """What a human types."""
        self.scratch.tmux("send-keys", "-t", self.pane, "-l", "--", text)
        if enter:
            time.sleep(0.7)
            self.keys("Enter")

    def keys(self, *keys):
        self.scratch.tmux("send-keys", "-t", self.pane, *keys)

    def screen(self):
        return self.scratch.tmux("capture-pane", "-p", "-t", self.pane)

    def command(self):
        return self.scratch.tmux("display-message", "-p", "-t", self.pane, "#{pane_current_command}")

    def inspect(self):
        code, text = self.run("pane", "inspect", "w1", "--json")
        return json.loads(text) if code == 0 else {"state": "none", "error": text}

    def state(self):
        return self.inspect()["state"]

    def wait(self, state, seconds=20):
        """Waits for a state; gives what is seen at last."""
        settled(lambda: self.state() == state, seconds)
        return self.state()

    def children(self):
        """The processes below the pane: the agent lives as long as its own is among them."""
        first = self.scratch.tmux("display-message", "-p", "-t", self.pane, "#{pane_pid}")
        done = subprocess.run(["ps", "-o", "pid=", "--ppid", first], text=True, capture_output=True)
        return done.stdout.split()

    def close(self):
        self.scratch.tmux("kill-pane", "-t", self.pane)


def settled(condition, seconds):
    """Waits until `condition` holds, at most so long; gives whether it does."""
    deadline = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(0.3)
    return bool(holds)


def claude(agent, trusted=True, key=True):
    known = {"hasCompletedOnboarding": True, "theme": "dark"}
    if key:
        known["customApiKeyResponses"] = {"approved": [KEY[-20:]], "rejected": []}
    if trusted:
        known["projects"] = {str(agent.project): {"hasTrustDialogAccepted": True}}
    (agent.home / ".claude.json").write_text(json.dumps(known))
    (agent.home / ".claude").mkdir()
    allowed = ["Bash(ensemble pong:*)", "mcp__ensemble"]
    settings = {"permissions": {"defaultMode": "default", "allow": allowed},
                "enabledMcpjsonServers": ["ensemble"]}
    (agent.home / ".claude/settings.json").write_text(json.dumps(settings))
    environment = {"ANTHROPIC_BASE_URL": agent.scratch.url, "DISABLE_AUTOUPDATER": "1",
                   "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "CLAUDE_CODE_MAX_RETRIES": "1",
                   # Otherwise it does not say which tools there are before it searches for one.
                   "ENABLE_TOOL_SEARCH": "false"}
    return {**environment, "ANTHROPIC_API_KEY": KEY} if key else environment


def codex(agent, trusted=True, key=True):
    lines = ['model = "model"', 'model_provider = "ours"',
             "check_for_update_on_startup = false"]
    if not key:
        lines = lines[2:]
    lines += ["[model_providers.ours]", 'name = "ours"', f'base_url = "{agent.scratch.url}/v1"',
              'wire_api = "responses"', "requires_openai_auth = false", "request_max_retries = 1",
              "stream_max_retries = 0"]
    if trusted:
        lines += [f'[projects."{agent.project}"]', 'trust_level = "trusted"']
    subprocess.run(["git", "init", "--quiet", agent.project], check=True)
    # Its shell is a login shell, and /etc/profile sets another PATH.
    (agent.home / ".profile").write_text(f'PATH="{agent.scratch.path}"\n')
    (agent.home / ".codex").mkdir()
    (agent.home / ".codex/config.toml").write_text("\n".join(lines) + "\n")
    return {}


def opencode(agent, trusted=True, key=True):
    config = {"autoupdate": False, "share": "disabled",
              "permission": {"bash": {"*": "ask", "ensemble pong *": "allow"}}}
    if key:
        options = {"baseURL": f"{agent.scratch.url}/v1", "apiKey": KEY}
        config["model"] = "ours/model"
        config["provider"] = {"ours": {"npm": "@ai-sdk/openai-compatible", "name": "ours",
                                       "options": options, "models": {"model": {"name": "model"}}}}
    place = agent.home / ".config/opencode"
    place.mkdir(parents=True)
    (place / "opencode.json").write_text(json.dumps(config))
    return {"OPENCODE_DISABLE_AUTOUPDATE": "1"}


CONFIGURE = {"claude": claude, "codex": codex, "opencode": opencode}
COMMANDS = {"claude": "claude", "codex": "codex --no-daemon", "opencode": "opencode"}
