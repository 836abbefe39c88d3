"""One agent's program as five ways have it: ours by hooks, by keys and in a terminal of ours, hcom, and bare keys."""

import json
import os
import subprocess
import time
from pathlib import Path

from checks import Failed, expect, rests
from providers import CONFIGURE, GEMINI_POLICY
from reader import Answers, Reader
from scratch import Agent, settled
from times import enter_delay
from wrapped import WrappedAgent

READY_SECONDS = 90
# What an agent shows where it takes input, without blanks and edges.
COMPOSERS = {"claude": "❯", "codex": "Codextodo", "gemini": "Typeyourmessage", "opencode": "ctrl+p"}
WOKEN = ("claude", "opencode")


def lets_sleep(agent):
    """The home of an agent that may run `sleep` unasked and has no dialog but those that a check opens."""
    home, provider = agent.home, agent.provider
    if provider == "claude":
        change(home / ".claude.json", lambda known: known.update(hasSeenAutoDefaultNudge=True))
        change(home / ".claude/settings.json", lambda it: it["permissions"]["allow"].append("Bash(sleep:*)"))
    if provider == "opencode":
        place = home / ".config/opencode/opencode.json"
        change(place, lambda it: it["permission"]["bash"].update({"sleep *": "allow"}))
    if provider == "gemini":
        place = home / ".gemini/policies/sleep.toml"
        place.write_text(GEMINI_POLICY.replace('"ensemble"', '"sleep"'))


def change(file, how):
    known = json.loads(file.read_text())
    how(known)
    file.write_text(json.dumps(known))


class Side:
    """An agent, and how a message goes to it by one way."""

    way, in_tmux, agent = "", True, None
    # What the model does with what it is asked.
    reader = Answers()

    def __init__(self, checks):
        self.scratch, self.model, self.provider = checks.scratch, checks.model, checks.provider
        self.checks = checks

    def send(self, text):
        """Sends a message; gives when."""
        began = time.monotonic()
        code, said = self.agent.run("send", "--to", "w1", "-m", text)
        expect(code == 0, f"send: exit {code}: {said}")
        return began

    def rest(self):
        """Waits until the agent takes input again."""
        count = [len(self.model.asked)]

        def quiet():
            before, count[0] = count[0], len(self.model.asked)
            return before == count[0] and rests(self.agent, 3)

        settled(quiet, 20)

    def programs(self):
        """The processes of the agent's program."""
        home, found = f"HOME={self.agent.home}".encode(), []
        for pid in self.scratch.processes():
            try:
                place = Path(f"/proc/{pid}")
                words, variables = place.joinpath("cmdline").read_bytes(), place.joinpath("environ").read_bytes()
            except OSError:
                continue
            if home in variables.split(b"\0") and Path(words.split(b"\0")[0].decode()).name == self.provider:
                found.append(pid)
        return found

    def shows(self, text):
        return text.replace(" ", "") in self.agent.squeezed()

    def name(self):
        """What the agent is told that its name is."""
        return "You are w1"

    def clear_line(self):
        self.agent.keys("C-u")


class Ours(Side):
    """`up`, with hooks or without."""

    def __init__(self, checks, hooked):
        super().__init__(checks)
        self.way = "hooks" if hooked else "keys"
        self.hooked = hooked
        if not hooked:
            # The hint has no content: the agent takes the message itself.
            self.reader = Reader()

    def start(self):
        agent = self.agent = Agent(self.scratch, self.provider, f"-{self.way}", hooked=self.hooked)
        lets_sleep(agent)
        code, said = agent.up()
        expect(code == 0, f"up: exit {code}: {said}")
        self.checks.is_steady(self.agent, READY_SECONDS)
        self.waits()

    def waits(self):
        if self.hooked and self.provider in WOKEN:
            expect(settled(lambda: self.agent.member().get("way_in") == "waiter", 20), "no waiter lives")

    def rest(self):
        settled(lambda: self.agent.state() in ("ready", "draft", "rate_limited"), 30)
        box = self.agent.project / "queue/mailbox/w1"
        for file in list((box / "cur").iterdir()) if (box / "cur").is_dir() else []:
            os.rename(file, box / "done" / (file.name.split("@")[0] + ".yaml"))
        settled(lambda: self.agent.member().get("state") == "idle", 10)
        super().rest()

    def again(self):
        """Starts the agent once more, after its end."""
        code, said = self.agent.up()
        expect(code == 0, f"up: exit {code}: {said}")

    def stop(self):
        self.agent.run("down", "--force")


class OurTerminal(Ours):
    """`ensemble claude` and its like, in a plain terminal."""

    in_tmux = False

    def __init__(self, checks):
        super().__init__(checks, hooked=True)
        self.way = "terminal"

    def start(self):
        agent = self.agent = WrappedAgent(self.scratch, self.provider, "-terminal", hooked=True)
        lets_sleep(agent)
        agent.start()
        expect(settled(lambda: agent.member().get("state") in ("idle", "blocked"), READY_SECONDS), "it does not start")
        self.checks.is_steady(self.agent, READY_SECONDS)
        self.waits()

    def again(self):
        expect(self.agent.terminal.ended(20), "the wrapper has not ended")
        self.agent.start()

    def shows(self, text):
        evidence = str(self.agent.inspect().get("evidence")).replace(" ", "")
        return text.replace(" ", "") in evidence


class PeerAgent(Agent):
    """The agent's program in a tmux server, without Ensemble."""

    def __init__(self, scratch, provider, home, command):
        self.scratch, self.provider, self.name, self.hooked = scratch, provider, "w1", False
        self.home = scratch.dir / (provider + home)
        self.project, self.socket = self.home / "p", self.home / "tmux.sock"
        self.project.mkdir(parents=True)
        self.environment = CONFIGURE[provider](self)
        lets_sleep(self)
        self.command = command
        self.open()

    def open(self):
        """Starts the program in a new tmux server."""
        size = ["-x", str(self.scratch.width), "-y", "40"]
        self.tmux("new-session", "-d", *size, "-c", str(self.project), self.command)
        self.pane = "%0"

    def tmux(self, *arguments):
        done = subprocess.run(["tmux", "-S", str(self.socket), *arguments], text=True, capture_output=True, timeout=20,
                              env={**self.scratch.environment(self.home), **self.environment})
        return done.stdout.rstrip("\n")

    def hcom(self, *words):
        """Runs `hcom` as its person does; gives its exit code and what it printed."""
        done = subprocess.run(["hcom", *words], cwd=self.project, text=True, capture_output=True, timeout=60,
                              env={**self.scratch.environment(self.home), **self.environment},
                              stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout + done.stderr


class Bare(Side):
    """`tmux send-keys` of the message itself and Enter, with the pause of the profile and no look at the pane."""

    way = "send-keys"

    def start(self):
        self.agent = PeerAgent(self.scratch, self.provider, "-bare", self.provider)
        expect(settled(lambda: COMPOSERS[self.provider] in self.agent.squeezed(), READY_SECONDS), "it does not start")
        rests(self.agent)

    def send(self, text):
        began = time.monotonic()
        self.agent.tmux("send-keys", "-t", self.agent.pane, "-l", "--", text)
        time.sleep(enter_delay(self.provider))
        self.agent.keys("Enter")
        return began

    def again(self):
        self.agent.tmux("kill-server")
        self.agent.open()

    def stop(self):
        self.agent.tmux("kill-server")


class Hcom(Side):
    """hcom, as its own command starts the agent."""

    way = "hcom"

    def start(self):
        self.agent = PeerAgent(self.scratch, self.provider, "-hcom", f"hcom {self.provider}")
        expect(settled(lambda: (self.row() or {}).get("status") == "listening", READY_SECONDS), "hcom does not listen")
        self.called = self.row()["name"]
        settled(lambda: COMPOSERS[self.provider] in self.agent.squeezed(), READY_SECONDS)
        rests(self.agent)

    def row(self):
        code, text = self.agent.hcom("list", "--json")
        try:
            rows = json.loads(text)
        except ValueError:
            return None
        return next(iter(rows), None) if isinstance(rows, list) else None

    def send(self, text):
        began = time.monotonic()
        code, said = self.agent.hcom("send", f"@{self.called}", "--from", "tester", "--", text)
        if code != 0:
            # Its agent may have another name now.
            row = self.row()
            if row is None or row["name"] == self.called:
                raise Failed(f"refused: {said.strip()[:100]}")
            self.called = row["name"]
            began = time.monotonic()
            code, said = self.agent.hcom("send", f"@{self.called}", "--from", "tester", "--", text)
            expect(code == 0, f"refused: {said.strip()[:100]}")
        return began

    def name(self):
        return self.called

    def again(self):
        self.agent.tmux("kill-server")
        self.agent.open()
        settled(lambda: (self.row() or {}).get("status") == "listening", READY_SECONDS)

    def stop(self):
        self.agent.hcom("kill", "all")
        self.agent.tmux("kill-server")


def sides(checks):
    """All ways of an agent; outside of tmux there are fewer."""
    return [Ours(checks, True), OurTerminal(checks), Ours(checks, False), Hcom(checks), Bare(checks)]
