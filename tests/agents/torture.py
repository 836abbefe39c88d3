#!/usr/bin/env python3
"""Messages to real agents while all that carries them is killed at random: `make torture-ways`.

    torture.py [AGENT]...

COUNT        how many messages [default: 1000]
SEED         where all random choices come from [default: 1]
AGENTS       which agents, with commas between them [default: claude,codex,opencode,gemini,gemini-acp,opencode-acp]
AGENTS_DIR   where npm has put or shall put the agents [default: a directory that is removed again]
ENSEMBLE     the program that is tested
KEEP         a directory that is made, and gets a copy of the project at the end

An agent `…-acp` is a worker without a terminal. Every message must be settled, and settled once; none may be a dead
letter. An agent may be notified of one twice.
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
from killer import Killer
from model_server import ModelServer
from providers import CONFIGURE
from reader import Settler
from run import ROOT, install, wanted_agents
from scratch import Agent, Scratch, settled
from sides import lets_sleep

# The rows of ensemble.yaml. Agents without a terminal are spoken to by the Agent Client Protocol.
ROWS = {
    **{name: f"{{provider: {name}}}" for name in ("claude", "codex", "opencode", "gemini")},
    "gemini-acp": "{provider: acp, command: gemini --acp}",
    "opencode-acp": "{provider: acp, command: opencode acp}",
}
COUNT = 1000
# The pause between two messages, in seconds: uniformly up to this.
SEND_PAUSE = 0.6
# How many of all messages are of each class.
CLASSES = {"tool": 18, "turn": 1, "interrupt": 1}
LEASE, ATTEMPTS = "30s", 30
# Without a network OpenCode looks for the packages of plugins for minutes.
READY_SECONDS, DRAIN_SECONDS = 600, 900
# What `team` calls an agent that has ended.
GONE = ("gone", "shutdown")
TEAM = """agents:
{agents}
team: {{columns: 110, lines: 40}}
"""


class Fleet(Agent):
    """One project with an agent of each kind."""

    def __init__(self, scratch, agents):
        self.scratch, self.agents, self.name = scratch, agents, agents[0]
        self.workers = [name for name in agents if name.endswith("-acp")]
        self.home = scratch.dir / "fleet"
        self.project = self.home / "p"
        self.socket = self.project / ".ensemble/tmux.sock"
        self.project.mkdir(parents=True)
        self.environment, self.hooked = {}, True
        for self.provider in programs(agents):
            self.environment.update(CONFIGURE[self.provider](self))
            lets_sleep(self)
        code, said = self.run("init")
        expect(code == 0, f"init: {said}")
        rows = "\n".join(f"  {name}: {ROWS[name]}" for name in agents)
        (self.project / "ensemble.yaml").write_text(TEAM.format(agents=rows))
        for name in agents:
            code, said = self.run("mailbox", "add", name, "--lease", LEASE, "--attempts-max", str(ATTEMPTS))
            expect(code == 0, f"mailbox add: {said}")

    def start(self):
        code, said = self.up()
        expect(code == 0, f"up: {said}")
        for name in self.agents:
            agent = self.twin(name)
            expect(settled(lambda agent=agent: self.is_ready(agent), READY_SECONDS),
                   f"{name} does not become ready: {agent.member()} {agent.inspect()}")

    def is_ready(self, agent):
        state = agent.member().get("state")
        if state in GONE:
            # On a busy machine a worker gives up on a program that takes minutes to start.
            self.run("up")
        if agent.name in self.workers:
            return state == "idle"
        return agent.state() == "ready" and rests(agent)


def programs(agents):
    """The programs of these agents, each once."""
    return list(dict.fromkeys(name.removesuffix("-acp") for name in agents))


class Restarter(threading.Thread):
    """What a person does about what is gone: `ensemble up`."""

    def __init__(self, fleet):
        super().__init__(daemon=True)
        self.fleet, self.is_over, self.ups = fleet, threading.Event(), 0

    def run(self):
        while not self.is_over.wait(2):
            rows = self.rows()
            is_gone = any(row.get("state") in GONE for row in rows)
            if is_gone or len(rows) < len(self.fleet.agents) or not self.fleet.watchers():
                self.fleet.run("up")
                self.ups += 1

    def rows(self):
        code, text = self.fleet.run("team", "--json")
        rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        return [row for row in rows if row.get("agent") in self.fleet.agents]


def states(fleet):
    """How many messages are in each state, over all agents."""
    found = Counter()
    for name in fleet.agents:
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
        when = choose.choices(list(CLASSES), CLASSES.values())[0]
        to = choose.choice(fleet.agents)
        code, said = fleet.run("send", "--to", to, "--when", when, "-m", f"message {number}", "--json")
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
    return sent, sum(killer.kills.values())


def judge(fleet, sent, kills):
    """What is wrong, in words; empty if all held. A command that is killed between its rename and its record leaves no
    record: the files are the truth."""
    found, wrong = states(fleet), []
    if found["done"] != len(sent) or sum(found.values()) != len(sent):
        wrong.append(f"{len(sent)} sent, but {dict(found)}")
    code, text = fleet.run("log", "--json", "--type", "message.settled")
    times = Counter(one for line in text.splitlines() for one in ids_of(json.loads(line)) if one in sent)
    twice = [one for one, number in times.items() if number > 1]
    if twice:
        wrong.append(f"{len(twice)} were settled twice: {twice[:3]}")
    never = sent - set(times)
    print(f"settled without a record: {len(never)}", flush=True)
    if len(never) > kills:
        wrong.append(f"{len(never)} have no record of their end, after {kills} kills: {sorted(never)[:3]}")
        print(fleet.run("team")[1], *(fleet.run("why", one)[1] for one in sorted(never)[:3]), sep="\n", flush=True)
    code, text = fleet.run("log", "--json", "--type", "message.acked")
    acked = Counter(one for line in text.splitlines() for one in ids_of(json.loads(line)) if one in sent)
    print(f"deliveries: {sum(acked.values())} of {len(sent)} messages, at most {max(acked.values(), default=0)} of one")
    print(f"ways: {json.dumps(ways(fleet))}", flush=True)
    return wrong


def sockets(place):
    """The names in a directory that cannot be copied."""
    return [file.name for file in Path(place).iterdir() if not (file.is_file() or file.is_dir())]


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
    agents = wanted_agents(ROWS, list(ROWS))
    ensemble = os.environ.get("ENSEMBLE") or (
        Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug/ensemble")
    agents_dir, kept = os.environ.get("AGENTS_DIR"), True
    if not agents_dir:
        agents_dir, kept = tempfile.mkdtemp(prefix="agents-npm."), False
    model = None
    print(f"{count} messages to {', '.join(agents)}, seed {seed}", flush=True)
    try:
        install(agents_dir, programs(agents))
        network.leave()
        model = ModelServer()
        model.follow(Settler())
        # Gemini takes hooks only in some directories.
        scratch = Scratch(ensemble, agents_dir, model.url, 110, "gemini")
        try:
            fleet = Fleet(scratch, agents)
            fleet.start()
            sent, kills = drive(fleet, count, seed)
            wrong = judge(fleet, sent, kills)
            if os.environ.get("KEEP"):
                shutil.copytree(fleet.project, os.environ["KEEP"], ignore=lambda place, names: sockets(place))
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
