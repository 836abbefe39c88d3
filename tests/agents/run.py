#!/usr/bin/env python3
"""The real Claude Code, Codex, OpenCode and Gemini CLI against a model of ours: `make test-agents`.

    run.py [--write-docs] [AGENT]...

AGENTS       which agents, with commas between them [default: claude,codex,opencode,gemini; also copilot,kimi,qwen]
WIDTHS       how many columns their panes have [default: 80,110]; the first one is walked in full
JOBS         how many agents are walked beside each other [default: 4]; an agent's widths follow each other
LOAD         so many processes keep the machine busy meanwhile [default: 0]
CHECKS       which checks, by name, with commas between them [default: all]
MATRIX       writes agent × way × situation into this file
AGENTS_DIR   where npm has put or shall put the agents [default: a directory that is removed again]
ENSEMBLE     the program that is tested
SCREENS      a directory: records the screens of the states there, and checks nothing
"""

import multiprocessing
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

import network
import report
from burst import Burst, spin
from evening import Evening
from hooked import Hooked
from matrix import Matrix
from model_server import ModelServer
from neighbours import Neighbours
from plugin import Plugin
from providers import CONFIGURE, PACKAGES, USUAL
from record import Record
from scratch import Scratch
from supervised import Supervised
from trouble import Trouble
from walk import Walk
from wrapped import Wrapped

ROOT = Path(__file__).resolve().parents[2]
WIDTHS = [int(width) for width in os.environ.get("WIDTHS", "80,110").split(",")]
CHECKS = [name for name in os.environ.get("CHECKS", "").split(",") if name]
SCREENS = os.environ.get("SCREENS")
JOBS, LOAD = int(os.environ.get("JOBS", "4")), int(os.environ.get("LOAD", "0"))
# What is walked at the first width; at the others it is the walk alone.
FIRST = [Walk, Trouble, Hooked, Wrapped, Neighbours, Evening, Burst, Plugin, Supervised, Matrix]
# How long one agent takes at one width, and in its troubles, as far as was seen.
WALK_SECONDS, TROUBLE_SECONDS = 420, 120


def install(agents_dir, wanted):
    """Gets what is missing from the npm registry."""
    binaries = Path(agents_dir) / "node_modules/.bin"
    missing = [PACKAGES[name] for name in wanted if not (binaries / name).exists()]
    if missing:
        subprocess.run(["npm", "install", "--prefix", agents_dir, "--no-audit", "--no-fund", "--silent",
                        *missing], check=True)
    # The rival that the matrix is measured beside.
    place = Path(agents_dir) / "hcom"
    if not (place / "bin/hcom").exists():
        venv.create(place, with_pip=True)
        subprocess.run([place / "bin/pip", "install", "--quiet", "hcom"], check=True)


def version(scratch, provider):
    done = subprocess.run([provider, "--version"], env=scratch.environment(scratch.dir), text=True,
                          capture_output=True, timeout=60)
    return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else "unknown"


def examine(provider, width, kinds, ensemble, agents_dir, wanted=CHECKS):
    """One agent in panes of one width: a column of the report."""
    model = ModelServer()
    scratch = Scratch(ensemble, agents_dir, model.url, width, provider)
    results, times, cells = [], {}, {}
    try:
        seen = version(scratch, provider)
        for kind in kinds:
            checks = kind(scratch, model, provider, SCREENS if kind is Record else wanted)
            checks.run()
            results += checks.results
            times.update(checks.times)
            cells.update(getattr(checks, "cells", {}))
    finally:
        scratch.close()
        model.close()
    return report.Column(provider, width, seen, results, times, cells)


def repeated(column, kinds, ensemble, agents_dir):
    """The column, with each check that has failed walked once more, alone and with an agent of its own."""
    for index, first in enumerate(column.results):
        if first.word != "fail" or SCREENS:
            continue
        again = examine(column.provider, column.width, kinds, ensemble, agents_dir, [first.name])
        for result in again.results:
            result.repeats = first
            column.results[index] = result
        column.times.update(again.times)
        column.cells.update(again.cells)
    missed = [name for name in order(column, kinds) if name not in column.names()]
    if missed:
        again = examine(column.provider, column.width, kinds, ensemble, agents_dir, missed)
        column.add_missed(missed, again)
    return column


def order(column, kinds):
    """The names of all checks that were to be walked."""
    if SCREENS:
        return []
    names = [name for kind in kinds for name, *_ in kind(None, None, column.provider).order()]
    return [name for name in names if not CHECKS or name in CHECKS]


def walk(provider, ensemble, agents_dir, columns):
    """All widths of one agent, in a process of its own."""
    for width in WIDTHS:
        kinds = [Record] if SCREENS else FIRST if width == WIDTHS[0] else [Walk]
        column = examine(provider, width, kinds, ensemble, agents_dir)
        columns.put(repeated(column, kinds, ensemble, agents_dir))


def side_by_side(wanted, ensemble, agents_dir):
    """The columns of all agents, in their order; ends every process that was started, whatever happens."""
    fork = multiprocessing.get_context("fork")
    columns, left, running, found = fork.Queue(), list(wanted), [], []
    load = [fork.Process(target=spin, daemon=True) for _ in range(LOAD)]
    for process in load:
        process.start()
    try:
        while left or running:
            while left and len(running) < JOBS:
                running.append(fork.Process(target=walk, args=(left.pop(0), ensemble, agents_dir, columns)))
                running[-1].start()
            try:
                found.append(columns.get(timeout=1))
            except queue.Empty:
                pass
            running = [process for process in running if process.is_alive() or not columns.empty()]
    finally:
        for process in [*running, *load]:
            process.terminate()
        for process in [*running, *load]:
            process.join()
    return sorted(found, key=lambda column: (wanted.index(column.provider), column.width))


def wanted_agents(known=CONFIGURE, usual=USUAL):
    """The agents that the command line or the environment names; otherwise the usual ones."""
    named = [name for name in sys.argv[1:] if not name.startswith("-")]
    named = named or [name for name in os.environ.get("AGENTS", "").replace(",", " ").split() if name]
    unknown = [name for name in named if name not in known]
    if unknown:
        sys.exit(f"unknown agents: {', '.join(unknown)}; known are {', '.join(known)}")
    return named or usual


def main():
    # So that everything is cleaned up then, too.
    for sign in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, lambda *_: sys.exit(1))
    wanted = wanted_agents()
    ensemble = os.environ.get("ENSEMBLE") or (
        Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug/ensemble")
    minutes = -(-len(wanted) // JOBS) * (len(WIDTHS) * WALK_SECONDS + TROUBLE_SECONDS) // 60
    print(f"{', '.join(wanted)} at {', '.join(map(str, WIDTHS))} columns: about {minutes} minutes", flush=True)
    agents_dir, kept = os.environ.get("AGENTS_DIR"), True
    if not agents_dir:
        agents_dir, kept = tempfile.mkdtemp(prefix="agents-npm."), False
    began = time.monotonic()
    try:
        install(agents_dir, wanted)
        network.leave()
        columns = side_by_side(wanted, ensemble, agents_dir)
    finally:
        if not kept:
            shutil.rmtree(agents_dir, ignore_errors=True)
    minutes = (time.monotonic() - began) / 60
    text = report.text(columns, minutes)
    print(f"\n{text}", flush=True)
    if os.environ.get("MATRIX"):
        Path(os.environ["MATRIX"]).write_text(report.matrix(columns))
    if "--write-docs" in sys.argv:
        report.write(ROOT / "docs/evidence/measurements.md", report.matrix(columns, whole=False))
        report.write(ROOT / "tests/agents/README.md", text)
    is_whole = len(columns) == len(wanted) * len(WIDTHS)
    return 0 if is_whole and not any(column.has_failed() for column in columns) else 1


if __name__ == "__main__":
    sys.exit(main())
