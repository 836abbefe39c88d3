#!/usr/bin/env python3
"""The real Claude Code, Codex, OpenCode and Gemini CLI against a model of ours: `make test-agents`.

    run.py [--write-docs] [AGENT]...

AGENTS       which agents, with commas between them [default: claude,codex,opencode,gemini]
WIDTHS       how many columns their panes have [default: 80,110]; the first one is walked in full
CHECKS       which checks, by name, with commas between them [default: all]
AGENTS_DIR   where npm has put or shall put the agents [default: a directory that is removed again]
ENSEMBLE     the program that is tested
SCREENS      a directory: records the screens of the states there, and checks nothing
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import network
import report
from model_server import ModelServer
from providers import CONFIGURE, PACKAGES
from record import Record
from scratch import Scratch
from trouble import Trouble
from walk import Walk

ROOT = Path(__file__).resolve().parents[2]
WIDTHS = [int(width) for width in os.environ.get("WIDTHS", "80,110").split(",")]
CHECKS = [name for name in os.environ.get("CHECKS", "").split(",") if name]
SCREENS = os.environ.get("SCREENS")
# How long one agent takes at one width, and in its troubles, as far as was seen.
WALK_SECONDS, TROUBLE_SECONDS = 420, 120


def install(agents_dir, wanted):
    """Gets what is missing from the npm registry."""
    binaries = Path(agents_dir) / "node_modules/.bin"
    missing = [PACKAGES[name] for name in wanted if not (binaries / name).exists()]
    if missing:
        subprocess.run(["npm", "install", "--prefix", agents_dir, "--no-audit", "--no-fund", "--silent",
                        *missing], check=True)


def version(scratch, provider):
    done = subprocess.run([provider, "--version"], env=scratch.environment(scratch.dir), text=True,
                          capture_output=True, timeout=60)
    return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else "unknown"


def examine(provider, width, kinds, ensemble, agents_dir):
    """One agent in panes of one width: a column of the report."""
    model = ModelServer()
    scratch = Scratch(ensemble, agents_dir, model.url, width)
    results, times = [], {}
    try:
        seen = version(scratch, provider)
        for kind in kinds:
            checks = kind(scratch, model, provider, SCREENS if kind is Record else CHECKS)
            checks.run()
            results += checks.results
            times.update(checks.times)
    finally:
        scratch.close()
        model.close()
    return report.Column(provider, width, seen, results, times)


def wanted_agents():
    named = [name for name in sys.argv[1:] if not name.startswith("-")]
    named = named or [name for name in os.environ.get("AGENTS", "").replace(",", " ").split() if name]
    unknown = [name for name in named if name not in CONFIGURE]
    if unknown:
        sys.exit(f"unknown agents: {', '.join(unknown)}; known are {', '.join(CONFIGURE)}")
    return named or list(CONFIGURE)


def main():
    # So that everything is cleaned up then, too.
    for sign in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, lambda *_: sys.exit(1))
    wanted = wanted_agents()
    ensemble = os.environ.get("ENSEMBLE") or (
        Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug/ensemble")
    minutes = len(wanted) * (len(WIDTHS) * WALK_SECONDS + TROUBLE_SECONDS) // 60
    print(f"{', '.join(wanted)} at {', '.join(map(str, WIDTHS))} columns: about {minutes} minutes", flush=True)
    agents_dir, kept = os.environ.get("AGENTS_DIR"), True
    if not agents_dir:
        agents_dir, kept = tempfile.mkdtemp(prefix="agents-npm."), False
    columns, began = [], time.monotonic()
    try:
        install(agents_dir, wanted)
        network.leave()
        for provider in wanted:
            for width in WIDTHS:
                kinds = [Record] if SCREENS else [Walk, Trouble] if width == WIDTHS[0] else [Walk]
                columns.append(examine(provider, width, kinds, ensemble, agents_dir))
    finally:
        if not kept:
            shutil.rmtree(agents_dir, ignore_errors=True)
    text = report.text(columns)
    print(f"\n{text}\n{(time.monotonic() - began) / 60:.0f} minutes", flush=True)
    if "--write-docs" in sys.argv:
        report.write(ROOT / "docs/agents.md", text)
    return 1 if any(column.has_failed() for column in columns) else 0


if __name__ == "__main__":
    sys.exit(main())
