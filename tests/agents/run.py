#!/usr/bin/env python3
"""The real Claude Code, Codex and OpenCode against a model of ours: `make test-agents`.

    run.py [claude] [codex] [opencode]

CHECKS       which checks, by name, with commas between them [default: all]; the table is not written then
AGENTS_DIR   where npm has put or shall put the agents [default: a directory that is removed again]
ENSEMBLE     the program that is tested
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import network
from checks import Checks
from model_server import ModelServer
from scratch import COMMANDS, Scratch

PACKAGES = {"claude": "@anthropic-ai/claude-code@latest", "codex": "@openai/codex@latest",
            "opencode": "opencode-ai@latest"}
ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "docs/agents.md"
CHECKS = [name for name in os.environ.get("CHECKS", "").split(",") if name]


def install(agents_dir):
    """Gets what is missing from the npm registry."""
    binaries = Path(agents_dir) / "node_modules/.bin"
    missing = [package for name, package in PACKAGES.items() if not (binaries / name).exists()]
    if missing:
        subprocess.run(["npm", "install", "--prefix", agents_dir, "--no-audit", "--no-fund", "--silent",
                        *missing], check=True)


def version(scratch, provider):
    done = subprocess.run([provider, "--version"], env=scratch.environment(scratch.dir), text=True,
                          capture_output=True, timeout=60)
    return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else "unknown"


def table(results, versions):
    """The results as Markdown: a line for each check, a column for each agent."""
    names = list(dict.fromkeys(check for _, check, _, _ in results))
    found = {(provider, check): word for provider, check, word, _ in results}
    lines = ["| check | " + " | ".join(versions) + " |", "|---" * (len(versions) + 1) + "|"]
    for name in names:
        cells = [found.get((provider, name), "–") for provider in versions]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    notes = [f"* {provider}, {check}: {word}: {note}" for provider, check, word, note in results if note]
    seen = ", ".join(f"{provider} `{text}`" for provider, text in versions.items())
    head = f"{time.strftime('%Y-%m-%d')}: {seen}."
    return "\n".join([head, "", *lines, *(["", "Notes:", "", *notes] if notes else []), ""])


def write(text):
    """Replaces what stands below the last heading of the document."""
    document = TABLE.read_text()
    heading = "## Results\n"
    TABLE.write_text(document[:document.index(heading)] + heading + "\n" + text)


def examine(provider, ensemble, agents_dir):
    """Its version, and the results of all checks."""
    model = ModelServer()
    scratch = Scratch(ensemble, agents_dir, model.url)
    try:
        seen = version(scratch, provider)
        checks = Checks(scratch, model, provider, CHECKS)
        checks.run()
    finally:
        left = scratch.close()
        model.close()
    clean = ("nothing is left running", "fail" if left else "pass", f"{left} processes" if left else "")
    return seen, [*checks.results, clean]


def main():
    # So that everything is cleaned up then, too.
    for sign in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, lambda *_: sys.exit(1))
    wanted = [name for name in sys.argv[1:] if name in COMMANDS] or list(COMMANDS)
    ensemble = os.environ.get("ENSEMBLE") or (
        Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug/ensemble")
    agents_dir, kept = os.environ.get("AGENTS_DIR"), True
    if not agents_dir:
        agents_dir, kept = tempfile.mkdtemp(prefix="agents-npm."), False
    try:
        install(agents_dir)
        network.leave()
        with ThreadPoolExecutor() as pool:
            found = list(pool.map(lambda name: examine(name, ensemble, agents_dir), wanted))
    finally:
        if not kept:
            shutil.rmtree(agents_dir, ignore_errors=True)
    versions = dict(zip(wanted, (text for text, _ in found)))
    results = [(name, *result) for name, (_, some) in zip(wanted, found) for result in some]
    text = table(results, versions)
    print("\n" + text)
    if len(wanted) == len(COMMANDS) and not CHECKS:
        write(text)
    return 1 if any(word == "fail" for _, _, word, _ in results) else 0


if __name__ == "__main__":
    sys.exit(main())
