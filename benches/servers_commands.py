#!/usr/bin/env python3
"""What the commands of agents cost NATS servers: docs/evidence/measurements.md has the last run.

    benches/servers_commands.py ENSEMBLE NATS_SERVER [--agents 1000] [--servers 1] [--rounds 3] [--waiting 1000]

One team works on tasks by commands alone, each a process, with one watcher. Each kind of command runs in a phase of its
own, in four lanes. A row has the processor time of all servers for each command, and how long the command took.
Everything is on loopback, in a temporary directory, and stops with the script.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request

LANES = 4
IDLE_SECONDS = 20
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
# An agent works on a task for 5 to 25 minutes.
TASK_SECONDS = 15 * 60
TEXT = "count the words of the README " * 34  # about 1 KiB


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Servers:
    """One server, or a cluster, with what it keeps below `home`."""

    def __init__(self, program, home, count):
        self.ports = [free_port() for _ in range(count)]
        self.monitors = [free_port() for _ in range(count)]
        routes = [free_port() for _ in range(count)]
        all_routes = ",".join(f"nats-route://127.0.0.1:{port}" for port in routes)
        self.processes = []
        for at in range(count):
            line = [program, "-js", "-a", "127.0.0.1", "-p", self.ports[at], "-m", self.monitors[at], "-sd", home / f"store-{at}"]
            if count > 1:
                line += ["--name", f"server-{at}", "--cluster_name", "measured", "--routes", all_routes]
                line += ["--cluster", f"nats://127.0.0.1:{routes[at]}"]
            log = open(home / f"server-{at}.log", "w")
            self.processes.append(subprocess.Popen([str(word) for word in line], stdout=log, stderr=log))

    def url(self):
        return ",".join(f"nats://127.0.0.1:{port}" for port in self.ports)

    def seconds(self):
        """Processor time of all, so far."""
        total = 0
        for process in self.processes:
            fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
        return total / TICKS

    def memory(self):
        """Resident memory of all, in MiB."""
        pages = (pathlib.Path(f"/proc/{process.pid}/statm").read_text().split()[1] for process in self.processes)
        return sum(map(int, pages)) * PAGE / 2**20

    def told(self, page):
        for port in self.monitors:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}") as answer:
                yield json.load(answer)

    def connections(self):
        return sum(told["connections"] for told in self.told("varz"))

    def stored(self):
        """Messages and bytes that the streams hold, on all servers."""
        told = list(self.told("jsz"))
        return sum(it["messages"] for it in told), sum(it["bytes"] for it in told) / 2**20

    def stop(self):
        for process in self.processes:
            process.send_signal(signal.SIGKILL)
            process.wait()


class Team:
    def __init__(self, ensemble, home, servers, replicas):
        self.ensemble, self.servers = ensemble, servers
        self.project = home / "project"
        self.project.mkdir()
        config = f"transport: {servers.url()}\nnats: {{team: measured, host: one, replicas: {replicas}, patience: 60}}\n"
        (self.project / "ensemble.yaml").write_text(config)
        self.run("init")

    def command(self, line):
        return [self.ensemble, *line.split(), *([TEXT] if line.endswith(" -m") else [])]

    def run(self, line):
        start = time.monotonic()
        done = subprocess.run(self.command(line), cwd=self.project, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{line}: {done.returncode}: {done.stderr}")
        return time.monotonic() - start, done.stdout

    def phase(self, name, lines):
        """Runs commands of one kind, and returns what each cost the servers, in seconds."""
        before, start = self.servers.seconds(), time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(LANES) as lanes:
            took = sorted(1000 * seconds for seconds, _ in lanes.map(self.run, lines))
        cost = (self.servers.seconds() - before) / len(took)
        rate = len(took) / (time.monotonic() - start)
        late = took[int(len(took) * 0.99)]
        print(f"| {name} | {len(took):,} | {1e6 * cost:,.0f} us | {statistics.median(took):.0f} ms, {late:.0f} ms | {rate:.0f} /s |", flush=True)
        return cost


def rounds(team, agents, count):
    """Tasks of all agents, several times. Returns the cost of one task, in seconds, of the last time."""
    print("| command | times | servers' time, each | took, median and p99 | in four lanes |\n|---|---|---|---|---|")
    every, cost = range(agents), 0
    team.phase("`mailbox add`", [f"mailbox add worker-{n}" for n in every])
    for at in range(count):
        messages, size = team.servers.stored()
        print(f"| *round {at + 1}: {messages:,} versions stored, {size:.1f} MiB* | | | | |")
        cost = team.phase("`send` of a task", [f"send --to worker-{n} --as lead --type task --task t{at}-{n} --id t{at}-{n} -m" for n in every])
        cost += team.phase("`recv`", [f"recv --as worker-{n}" for n in every])
        cost += team.phase("`inbox`", [f"inbox worker-{n}" for n in every])
        cost += team.phase("`mailbox extend`", [f"mailbox extend t{at}-{n} 30m --as worker-{n}" for n in every])
        cost += team.phase("`report`", [f"report t{at}-{n} --as worker-{n} --status success --lint off --summary done" for n in every])
        cost += team.phase("`send` to the lead", [f"send --to lead --as worker-{n} --id m{at}-{n} -m" for n in every])
        cost += team.phase("`recv` by the lead", ["recv --as lead" for _ in every])
        cost += team.phase("`settle` by the lead", [f"settle m{at}-{n} --as lead" for n in every])
    return cost


def share(servers):
    """Load of servers with which nothing is done, in shares of a processor."""
    start = servers.seconds()
    time.sleep(IDLE_SECONDS)
    return (servers.seconds() - start) / IDLE_SECONDS


def waiting(team, agents):
    """All agents wait for mail at once. Returns the load of it, in shares of a processor."""
    servers = team.servers
    # The workers may have advice on their reports, which would end their waits.
    for n in range(agents):
        team.run(f"mailbox add idle-{n}")
    others = servers.connections()
    before = servers.memory()
    alone = share(servers)
    children = []
    for n in range(agents):
        line = team.command(f"recv --as idle-{n} --wait 30m")
        children.append(subprocess.Popen(line, cwd=team.project, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    try:
        return measured(team, children, (others, before, alone))
    finally:
        for child in children:
            child.kill()
            child.wait()


def measured(team, children, known):
    servers, agents, (others, before, alone) = team.servers, len(children), known
    while servers.connections() - others < agents:
        if any(child.poll() is not None for child in children):
            raise SystemExit("an agent has ended before there was mail")
        time.sleep(0.1)
    # Each has asked for its mail, and nothing is left to do.
    while True:
        start = servers.seconds()
        time.sleep(2)
        if servers.seconds() - start < 0.5:
            break
    idle = share(servers) - alone
    grown = servers.memory() - before
    print(f"\n{agents:,} agents in `recv --wait`: {100 * idle:.1f} % of a processor, {grown:.0f} MiB more.\n")
    print("| command | times | servers' time, each | took, median and p99 | in four lanes |\n|---|---|---|---|---|")
    team.phase("`send` to an agent that waits", [f"send --to idle-{n} --as lead --id w-{n} -m" for n in range(agents)])
    start = time.monotonic()
    for child in children:
        if child.wait() != 0:
            raise SystemExit("a waiting agent got no mail")
    print(f"\nThe last one had its message {time.monotonic() - start:.1f} s after the last was sent.")
    return idle


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ensemble")
    parser.add_argument("nats_server")
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--servers", type=int, default=1, choices=[1, 3])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--waiting", type=int, default=1000)
    options = parser.parse_args()
    ensemble = shutil.which(os.path.abspath(options.ensemble)) or parser.error("ENSEMBLE is no program")
    home = pathlib.Path(tempfile.mkdtemp(prefix="servers-commands-"))
    servers = Servers(options.nats_server, home, options.servers)
    watcher = None
    try:
        while True:
            try:
                if all("meta_cluster" in it or options.servers == 1 for it in servers.told("jsz")):
                    break
            except OSError:
                pass
            time.sleep(0.2)
        team = Team(ensemble, home, servers, options.servers)
        watcher = subprocess.Popen(team.command("admin watch"), cwd=team.project, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        team.run("mailbox add lead")
        cost = rounds(team, options.agents, options.rounds)
        idle = waiting(team, min(options.waiting, options.agents)) if options.waiting else 0
        tasks = 10_000 / TASK_SECONDS
        print(f"\nA task costs the servers {1e3 * cost:.2f} ms. 10,000 agents, each with a task in {TASK_SECONDS // 60} minutes: {100 * tasks * cost:.1f} % of a processor;"
              f" waiting: {100 * idle * 10_000 / max(options.waiting, 1):.0f} %.")
    finally:
        if watcher:
            watcher.kill()
            watcher.wait()
        servers.stop()
        shutil.rmtree(home)


main()
