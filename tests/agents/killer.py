"""Kills what carries mail to a fleet of agents, at random: `torture.py` says how many of what."""

import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path

# The pause between two kills, in seconds: uniformly up to this.
KILL_PAUSE = 3.0
# How many of all kills are of each kind. The processes of one worker are its client and its program.
KILLS = {"hook": 10, "waiter": 4, "mcp": 2, "watcher": 2, "companion": 1, "server": 1, "worker": 2, "agent": 2, "pane": 1}
# How long a hook that was chosen lives on, in seconds.
HOOK_LIFE = 0.03
# What follows a Codex, and what waits to.
COMPANIONS = ("accompany", "relieve")
# What `ensemble hook` does that lasts as long as a session; all else is over in a moment.
LASTING = ("wait", *COMPANIONS, "converse", "host", "serve")


class Killer(threading.Thread):
    """Kills one thing after another, as the seed has it."""

    def __init__(self, fleet, seed):
        super().__init__(daemon=True)
        self.fleet, self.random, self.is_over = fleet, random.Random(seed), threading.Event()
        self.kills = Counter()

    def run(self):
        while not self.is_over.wait(self.random.uniform(0, KILL_PAUSE)):
            kind = self.random.choices(list(KILLS), KILLS.values())[0]
            try:
                if getattr(self, f"kill_{kind}")():
                    self.kills[kind] += 1
            except (OSError, IndexError, RuntimeError):
                pass

    def kill_one(self, wanted):
        found = [pid for pid in self.fleet.scratch.processes() if wanted(words_of(pid))]
        if found:
            os.kill(self.random.choice(found), signal.SIGKILL)
        return bool(found)

    def kill_waiter(self):
        return self.kill_one(lambda words: hook_of(words) == "wait")

    def kill_companion(self):
        return self.kill_one(lambda words: hook_of(words) in COMPANIONS)

    def kill_server(self):
        return self.kill_one(lambda words: "app-server" in words)

    def kill_mcp(self):
        return self.kill_one(lambda words: words[0].endswith("ensemble") and words[1:2] == ["mcp"])

    def kill_watcher(self):
        return self.kill_one(lambda words: words[0].endswith("/ensemble") and "watch" in words)

    def kill_hook(self):
        """The next hook that is seen at work, after a part of its life."""
        deadline = time.monotonic() + 2 * KILL_PAUSE
        while time.monotonic() < deadline and not self.is_over.is_set():
            for pid in descendants(self.panes(self.fleet.agents)):
                if hook_of(words_of(pid)) not in (None, *LASTING):
                    time.sleep(self.random.uniform(0, HOOK_LIFE))
                    os.kill(pid, signal.SIGKILL)
                    return True
        return False

    def kill_worker(self):
        """One process of an agent without a terminal: its client, its program, or what the program has started."""
        pid = self.random.choice(self.panes(self.fleet.workers))
        os.kill(self.random.choice([pid, *descendants([pid])]), signal.SIGKILL)
        return True

    def kill_agent(self):
        pid = self.random.choice(self.panes(self.fleet.agents))
        for one in [pid, *descendants([pid])]:
            try:
                os.kill(one, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return True

    def kill_pane(self):
        pane = self.fleet.twin(self.random.choice(self.fleet.agents)).pane
        self.fleet.tmux("kill-pane", "-t", pane)
        return bool(pane)

    def panes(self, names):
        """The first processes of these agents' panes."""
        panes = self.fleet.tmux("list-panes", "-s", "-F", "#{window_name} #{pane_pid}").splitlines()
        return [int(line.split()[1]) for line in panes if line.split()[0] in names]


def words_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return [""]


def hook_of(words):
    """The event of which this process of ours is the hook."""
    is_hook = words[0].endswith("ensemble") and words[1:2] == ["hook"]
    return words[2] if is_hook and words[2:] else None


def descendants(pids):
    """The processes below these, from the kernel's own lists."""
    found, left = [], list(pids)
    while left:
        pid = left.pop()
        for file in Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                children = [int(word) for word in file.read_text().split()]
            except OSError:
                continue
            found += children
            left += children
    return found
