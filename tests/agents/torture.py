#!/usr/bin/env python3
"""Messages to real agents while hooks, servers, watchers and panes are killed at random: `make torture-ways`.

    torture.py [AGENT]...

COUNT        how many messages [default: 1000]
SEED         where all random choices come from [default: 1]
AGENTS       which agents, with commas between them [default: claude,codex,opencode]
AGENTS_DIR   where npm has put or shall put the agents [default: a directory that is removed again]
ENSEMBLE     the program that is tested

Every message must be settled, and settled once; none may be a dead letter. An agent may be told of one twice.
"""

import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import network
from checks import expect, rests
from model_server import ModelServer
from providers import CONFIGURE
from reader import Settler
from run import ROOT, install, wanted_agents
from scratch import Agent, Scratch, settled
from sides import lets_sleep

HOOKED = ("claude", "codex", "opencode")
COUNT = 1000
# The pause between two messages, and between two kills, in seconds: uniformly up to so much.
SEND_PAUSE, KILL_PAUSE = 0.6, 3.0
# Of all kills, so many of each kind.
KILLS = {"hook": 10, "waiter": 4, "mcp": 2, "watcher": 2, "agent": 2, "pane": 1}
# How long a hook that was chosen lives on.
HOOK_LIFE = 0.03
LEASE, ATTEMPTS = "30s", 30
# Without a network OpenCode looks for the packages of plugins for minutes.
READY_SECONDS, DRAIN_SECONDS = 300, 600
# The id of a message in what a hook or `recv` says, however often that was quoted.
ID = re.compile(r'ensemble settle ([0-9A-Za-z._-]+)')
TEAM = """agents:
{agents}
team: {{columns: 110, lines: 40}}
"""


class Fleet(Agent):
    """One project with an agent of each kind."""

    def __init__(self, scratch, providers):
        self.scratch, self.providers, self.name = scratch, providers, providers[0]
        self.home = scratch.dir / "fleet"
        self.project = self.home / "p"
        self.socket = self.project / ".ensemble/tmux.sock"
        self.project.mkdir(parents=True)
        self.environment, self.hooked = {}, True
        for self.provider in providers:
            self.environment.update(CONFIGURE[self.provider](self))
            lets_sleep(self)
        code, said = self.run("init")
        expect(code == 0, f"init: {said}")
        agents = "\n".join(f"  {name}: {{provider: {name}}}" for name in providers)
        (self.project / "ensemble.yaml").write_text(TEAM.format(agents=agents))
        for name in providers:
            code, said = self.run("mailbox", "add", name, "--lease", LEASE, "--attempts-max", str(ATTEMPTS))
            expect(code == 0, f"mailbox add: {said}")

    def start(self):
        code, said = self.up()
        expect(code == 0, f"up: {said}")
        for name in self.providers:
            agent = self.twin(name)
            expect(settled(lambda agent=agent: agent.state() == "ready" and rests(agent), READY_SECONDS),
                   f"{name} does not become ready: {agent.inspect()}")


class Killer(threading.Thread):
    """Kills what carries the mail, as the seed has it."""

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

    def processes(self, wanted):
        found = []
        for pid in self.fleet.scratch.processes():
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if wanted([word.decode(errors="replace") for word in words]):
                found.append(pid)
        return found

    def kill_one(self, wanted):
        found = self.processes(wanted)
        if found:
            os.kill(self.random.choice(found), signal.SIGKILL)
        return bool(found)

    def kill_waiter(self):
        return self.kill_one(lambda words: words[0].endswith("ensemble") and words[1:3] == ["hook", "wait"])

    def kill_mcp(self):
        return self.kill_one(lambda words: words[0].endswith("ensemble") and words[1:2] == ["mcp"])

    def kill_watcher(self):
        is_watcher = lambda words: words[0].endswith("/ensemble") and "watch" in words
        return self.kill_one(is_watcher)

    def kill_hook(self):
        """The next hook that is seen at work, after a part of its life."""
        deadline = time.monotonic() + 2 * KILL_PAUSE
        while time.monotonic() < deadline and not self.is_over.is_set():
            for pid in descendants(self.agents()):
                words = words_of(pid)
                if words[:1] and words[0].endswith("ensemble") and words[1:2] == ["hook"] and "wait" not in words[2:3]:
                    time.sleep(self.random.uniform(0, HOOK_LIFE))
                    os.kill(pid, signal.SIGKILL)
                    return True
        return False

    def agents(self):
        panes = self.fleet.tmux("list-panes", "-s", "-F", "#{window_name} #{pane_pid}").splitlines()
        return [int(line.split()[1]) for line in panes if line.split()[0] in self.fleet.providers]

    def kill_agent(self):
        pid = self.random.choice(self.agents())
        for one in [pid, *descendants([pid])]:
            try:
                os.kill(one, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return True

    def kill_pane(self):
        name = self.random.choice(self.fleet.providers)
        pane = self.fleet.twin(name).pane
        self.fleet.tmux("kill-pane", "-t", pane)
        return bool(pane)


def words_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return []


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


class Restarter(threading.Thread):
    """What a person does about what is gone: `ensemble up`."""

    def __init__(self, fleet):
        super().__init__(daemon=True)
        self.fleet, self.is_over, self.ups = fleet, threading.Event(), 0

    def run(self):
        while not self.is_over.wait(2):
            rows = self.rows()
            is_gone = any(row.get("state") in ("gone", "shutdown") for row in rows)
            if is_gone or len(rows) < len(self.fleet.providers) or not self.fleet.watchers():
                self.fleet.run("up")
                self.ups += 1

    def rows(self):
        code, text = self.fleet.run("team", "--json")
        rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        return [row for row in rows if row.get("agent") in self.fleet.providers]


def states(fleet):
    """How many messages are in each state, over all agents."""
    found = Counter()
    for name in fleet.providers:
        for state in ("new", "front", "cur", "done", "dead"):
            box = fleet.project / "queue/mailbox" / name / state
            for file in box.iterdir() if box.is_dir() else []:
                if file.name.endswith(".yaml") and not file.name.endswith(".reason.yaml"):
                    found[state] += 1
    return found


def drive(fleet, count, seed):
    """Sends everything under fire, then lets it come to rest; gives what came of it."""
    killer, restarter = Killer(fleet, seed), Restarter(fleet)
    choose, began = random.Random(seed + 1), time.monotonic()
    killer.start()
    restarter.start()
    sent = set()
    for number in range(count):
        code, said = fleet.run("send", "--to", choose.choice(fleet.providers), "-m", f"message {number}", "--json")
        expect(code == 0, f"send: exit {code}: {said}")
        sent.add(json.loads(said.splitlines()[0])["id"])
        time.sleep(choose.uniform(0, SEND_PAUSE))
        if number % 50 == 49:
            print(f"{time.monotonic() - began:5.0f} s: {number + 1} sent, {dict(states(fleet))}, "
                  f"kills {dict(killer.kills)}, ups {restarter.ups}", flush=True)
    killer.is_over.set()
    killer.join()
    settled(lambda: states(fleet)["done"] + states(fleet)["dead"] >= count, DRAIN_SECONDS)
    restarter.is_over.set()
    restarter.join()
    print(f"{time.monotonic() - began:5.0f} s: {dict(states(fleet))}, kills {dict(killer.kills)}, "
          f"ups {restarter.ups}", flush=True)
    return sent


def judge(fleet, sent):
    """What is wrong, in words; empty if all held."""
    found, wrong = states(fleet), []
    if found["done"] != len(sent) or sum(found.values()) != len(sent):
        wrong.append(f"{len(sent)} sent, but {dict(found)}")
    code, text = fleet.run("log", "--json", "--type", "message.settled")
    times = Counter(one for line in text.splitlines() for one in ids_of(json.loads(line)) if one in sent)
    twice = [one for one, number in times.items() if number > 1]
    if twice:
        wrong.append(f"{len(twice)} were settled twice: {twice[:3]}")
    never = sent - set(times)
    if never:
        wrong.append(f"{len(never)} have no record of their end: {sorted(never)[:3]}")
    code, text = fleet.run("log", "--json", "--type", "message.acked")
    acked = Counter(one for line in text.splitlines() for one in ids_of(json.loads(line)) if one in sent)
    print(f"deliveries: {sum(acked.values())} of {len(sent)} messages, at most {max(acked.values(), default=0)} of one")
    print(f"ways: {json.dumps(ways(fleet))}", flush=True)
    return wrong


def ids_of(record):
    data = record.get("data", record)
    return [data[key] for key in ("id", "message", "message_id") if data.get(key)] + list(data.get("ids", []))


def ways(fleet):
    code, text = fleet.run("status", "--json")
    total = Counter()
    for found in re.findall(r'"ways":\s*(\{[^}]*\})', text):
        total.update(json.loads(found))
    return dict(total)


def main():
    for sign in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, lambda *_: sys.exit(1))
    count, seed = int(os.environ.get("COUNT", COUNT)), int(os.environ.get("SEED", "1"))
    providers = [name for name in wanted_agents() if name in HOOKED]
    ensemble = os.environ.get("ENSEMBLE") or (
        Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug/ensemble")
    agents_dir, kept = os.environ.get("AGENTS_DIR"), True
    if not agents_dir:
        agents_dir, kept = tempfile.mkdtemp(prefix="agents-npm."), False
    model = None
    print(f"{count} messages to {', '.join(providers)}, seed {seed}", flush=True)
    try:
        install(agents_dir, providers)
        network.leave()
        model = ModelServer()
        model.follow(Settler())
        scratch = Scratch(ensemble, agents_dir, model.url, 110)
        try:
            fleet = Fleet(scratch, providers)
            fleet.start()
            sent = drive(fleet, count, seed)
            wrong = judge(fleet, sent)
            fleet.run("down", "--force")
        finally:
            scratch.close()
    finally:
        if model is not None:
            model.close()
        if not kept:
            shutil.rmtree(agents_dir, ignore_errors=True)
    print("; ".join(wrong) or f"each of {count} messages was settled once", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
