#!/usr/bin/env python3
"""From a wheel alone to two real agents that talk: how many commands and how many seconds.

    first_value.py WHEEL [--beside WHEEL] [--runs N] [--agents-dir DIR] [--root DIR]

WHEEL          the wheel of Ensemble, as `make test-packages` builds it
--beside       the wheel of hcom, measured in turns and in the same way
--runs         how often each is measured [default: 3]
--agents-dir   where npm has put or shall put Claude Code [default: a directory that is removed again]
--root         the root directory of a bare system with Python, entered by bubblewrap (`bwrap`):
               `debootstrap --variant=minbase --include=python3-venv bookworm DIR` makes one

Each run has an empty home, an empty virtual environment with only that wheel, and a PATH of that environment, of
Claude Code and of the system. With --root the system is that one, read-only, with an ordinary user, an empty /tmp
and a network of nothing but loopback. Without it, root gets process and mount namespaces, which end with the run.
Two terminals run a shell each. Every line that is typed into one of them is a command and is counted; so is every
key that a dialog needs. Time runs from the first typed line to the request in which the second agent's model has the
first message. It fails above two commands or 60 seconds for Ensemble.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from model_server import ModelServer
from providers import KEY
from run import install
from scratch import settled
from wrapped import Terminal

COMMANDS_MAX, SECONDS_MAX = 2, 60
PATIENCE_SECONDS = 60
TRIES_MAX = 200
TEXT = "the build is green at 4f2a91c"
PROMPT = "Tell the other agent that the build is green."
INSIDE = "ENSEMBLE_FIRST_VALUE_INSIDE"
# What is said of the place of the runs, by the value of that variable.
PLACES = {"": "without namespaces: a clean home and PATH only", "1": "in namespaces of its own",
          "bare": "in a bare system, with no network but loopback"}
# Programs that a bare system lacks; what is there is said.
LACKING = ("cc", "cargo", "git", "tmux", "node", "npm")


class Sender:
    """The first agent's model: it sends the message by its shell tool, again until that succeeds."""

    def __init__(self, command):
        self.command, self.tries = command, 0

    def answer(self, asked):
        if asked.after_tool and not failed(asked.result):
            return "Sent."
        self.tries += 1
        return asked.shell(self.command) if self.tries <= TRIES_MAX else "It cannot be sent."


def failed(result):
    """Whether the command was refused: the other agent may not have joined yet."""
    return any(word in result.lower() for word in ("error", "no mailbox", "not found", "exit code", "hint:"))


class Product:
    """A program, the two lines that start its agents, and the line by which one writes to the other."""

    def __init__(self, name, wheel, second, first, send):
        self.name, self.wheel, self.second, self.first, self.send = name, wheel, second, first, send


class Machine:
    """An empty home with one wheel, and two terminals in a project."""

    def __init__(self, product, agents_dir):
        self.dir = Path(tempfile.mkdtemp(prefix="first."))
        self.home, self.project = self.dir / "home", self.dir / "home/project"
        self.project.mkdir(parents=True)
        venv = self.dir / "venv"
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        began = time.monotonic()
        subprocess.run([venv / "bin/pip", "install", "--quiet", "--no-index", "--no-deps",
                        "--disable-pip-version-check", product.wheel], check=True)
        self.install_seconds = time.monotonic() - began
        self.path = f"{venv}/bin:{Path(agents_dir) / 'node_modules/.bin'}:/usr/bin:/bin"
        known = {"hasCompletedOnboarding": True, "theme": "dark",
                 "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
                 "projects": {str(self.project): {"hasTrustDialogAccepted": True}}}
        (self.home / ".claude.json").write_text(json.dumps(known))
        self.commands, self.keys, self.terminals = [], 0, []

    def terminal(self, model):
        environment = {"HOME": str(self.home), "PATH": self.path, "TERM": "xterm-256color", "LANG": "C.UTF-8",
                       "SHELL": "/bin/sh", "TMPDIR": str(self.dir), "PS1": "$ ", "ANTHROPIC_BASE_URL": model.url,
                       "ANTHROPIC_API_KEY": KEY, "DISABLE_AUTOUPDATER": "1",
                       "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        terminal = Terminal(["/bin/sh", "-i"], self.project, environment, 110)
        self.terminals.append(terminal)
        return terminal

    def type(self, terminal, line):
        self.commands.append(line)
        terminal.type(line + "\r")

    def close(self):
        for terminal in self.terminals:
            try:
                os.killpg(terminal.pid, 9)
            except ProcessLookupError:
                pass
        shutil.rmtree(self.dir, ignore_errors=True)


def measure(product, agents_dir):
    """One run: commands, keys, seconds to the first message, seconds of the installation."""
    models = [ModelServer(), ModelServer()]
    machine = Machine(product, agents_dir)
    try:
        models[0].follow(Sender(product.send))
        second, first = machine.terminal(models[1]), machine.terminal(models[0])
        began = time.monotonic()
        machine.type(second, product.second)
        machine.type(first, product.first)

        def received():
            return [asked for asked in models[1].since(0) if TEXT in json.dumps(asked.body)]
        if not settled(received, PATIENCE_SECONDS):
            for place, terminal in (("first", first), ("second", second)):
                print(f"--- {product.name}, {place} terminal\n{terminal.output[-3000:].decode(errors='replace')}")
            print("--- results of the first agent's tool:", *[asked.result for asked in models[0].since(0)[-3:]])
            raise SystemExit(f"{product.name}: the second agent never received the message")
        return {"commands": len(machine.commands), "keys": machine.keys, "seconds": received()[0].at - began,
                "install": machine.install_seconds}
    finally:
        machine.close()
        for model in models:
            model.close()


def products(options):
    ours = Product("ensemble", options.wheel, "ensemble claude --name b",
                   f"ensemble claude --name a '{PROMPT}'", f"ensemble send --to b -m '{TEXT}'")
    theirs = Product("hcom", options.beside, "hcom claude --tag b", f"hcom claude --tag a '{PROMPT}'",
                     f"hcom send @b- -- {TEXT}")
    return [ours] + ([theirs] if options.beside else [])


def in_bare_system(options, agents_dir):
    """Runs this script again in the bare system; gives its exit code."""
    def read_only(place, name):
        return ["--ro-bind", str(place.resolve()), name]
    command = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--uid", "1000", "--gid", "1000",
               *read_only(options.root, "/"), "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp",
               "--tmpfs", "/mnt", *read_only(Path(agents_dir), "/mnt/agents"),
               *read_only(Path(__file__).parent, "/mnt/tests")]
    wheels = [options.wheel, *([options.beside] if options.beside else [])]
    for wheel in wheels:
        command += read_only(wheel, f"/mnt/{wheel.name}")
    command += ["--clearenv", "--setenv", INSIDE, "bare", "--setenv", "PATH", "/usr/bin:/bin", "--setenv", "HOME", "/tmp",
                "--setenv", "LANG", "C.UTF-8", "--chdir", "/tmp", "python3", "-B", "/mnt/tests/first_value.py",
                f"/mnt/{options.wheel.name}", "--runs", str(options.runs), "--agents-dir", "/mnt/agents"]
    if options.beside:
        command += ["--beside", f"/mnt/{options.beside.name}"]
    return subprocess.run(command).returncode


def isolated():
    """Runs this script again in namespaces of its own; gives its exit code, or `None` where that cannot be."""
    if os.environ.get(INSIDE) or os.getuid() != 0 or not shutil.which("unshare"):
        return None
    command = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*command, "true"], capture_output=True).returncode != 0:
        return None
    environment = {**os.environ, INSIDE: "1"}
    return subprocess.run([*command, sys.executable, *sys.argv], env=environment).returncode


def main():
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("wheel", type=Path)
    asked.add_argument("--beside", type=Path)
    asked.add_argument("--runs", type=int, default=3)
    asked.add_argument("--agents-dir", type=Path)
    asked.add_argument("--root", type=Path)
    options = asked.parse_args()
    agents_dir = options.agents_dir or Path(tempfile.mkdtemp(prefix="agents."))
    if not os.environ.get(INSIDE):
        install(str(agents_dir), ["claude"])
    if options.root:
        sys.exit(in_bare_system(options, agents_dir))
    if not options.agents_dir:
        sys.argv += ["--agents-dir", str(agents_dir)]
    code = isolated()
    if code is not None:
        sys.exit(code)
    there = [program for program in LACKING if shutil.which(program)]
    print(f"{PLACES[os.environ.get(INSIDE, '')]}; of {', '.join(LACKING)} it has: {', '.join(there) or 'none'}", flush=True)
    runs = {product.name: [] for product in products(options)}
    for _ in range(options.runs):
        for product in products(options):
            run = measure(product, agents_dir)
            runs[product.name].append(run)
            print(f"{product.name}: {run['commands']} commands, {run['keys']} keys, {run['seconds']:.1f} s", flush=True)
    for name, all_runs in runs.items():
        middle = {key: statistics.median(run[key] for run in all_runs) for key in all_runs[0]}
        print(f"{name}: {middle['commands']} commands, {middle['keys']} keys, first message after"
              f" {middle['seconds']:.1f} s (worst {max(run['seconds'] for run in all_runs):.1f} s);"
              f" wheel installed in {middle['install']:.1f} s")
    worst = max(run["seconds"] for run in runs["ensemble"])
    most = max(run["commands"] + run["keys"] for run in runs["ensemble"])
    if worst > SECONDS_MAX or most > COMMANDS_MAX:
        raise SystemExit(f"more than {COMMANDS_MAX} commands or {SECONDS_MAX} s")


if __name__ == "__main__":
    main()
