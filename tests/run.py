#!/usr/bin/env python3
"""All tests, several programs at once: `make test`.

Most tests wait for processes, panes and timers, and each program at its end for its slowest test. Cargo runs one program
after the other, so that the processors stand idle most of the time. The programs that take longest begin first.

A test that fails is run once more when all others have ended. One that passes then is named as unsteady, and does not
fail the run: it is a defect all the same, of the test or of what it tests.

    run.py [CARGO_OPTION]...

PROGRAMS           how many programs run at once [default: one more than there are processors]
RUST_TEST_THREADS  how many tests of a program run at once [default: twice as many as there are processors]
"""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

PROCESSORS = len(os.sched_getaffinity(0))
PROGRAMS = int(os.environ.get("PROGRAMS", PROCESSORS + 1))
THREADS = os.environ.get("RUST_TEST_THREADS", str(2 * PROCESSORS))
CARGO = os.environ.get("CARGO", "cargo")
OPTIONS = ["--workspace", "--all-features", *sys.argv[1:]]
# What takes longest, as far as was seen; the others follow by their size.
FIRST = ["cli", "tmux_agents", "watch_contract", "steps"]


def build():
    """The test programs, the one that takes longest first: name, file, and directory of the package."""
    command = [CARGO, "test", *OPTIONS, "--quiet", "--no-run", "--message-format=json-render-diagnostics"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    programs = [(one["target"]["name"], Path(one["executable"]), Path(one["manifest_path"]).parent)
                for one in messages if one.get("executable") and one["profile"]["test"]]

    def weight(program):
        name, file, _ = program
        return FIRST.index(name) if name in FIRST else len(FIRST), -file.stat().st_size

    return sorted(programs, key=weight)


def run(program):
    """How a program ends, how long that takes, and what it says."""
    name, file, package = program
    began = time.monotonic()
    environment = {**os.environ, "RUST_TEST_THREADS": THREADS, "CARGO": CARGO, "CARGO_MANIFEST_DIR": str(package)}
    done = subprocess.run([file, "--quiet"], cwd=package, env=environment, text=True, errors="replace",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return name, done.returncode, time.monotonic() - began, done.stdout


def failures(text):
    """The tests that failed, by what their program printed last."""
    _, found, listed = text.rpartition("\nfailures:\n")
    return [line.strip() for line in listed.split("\n\n")[0].splitlines() if found]


def run_alone(program, tests):
    """Whether these tests pass, one after the other, beside nothing else."""
    _, file, package = program
    environment = {**os.environ, "CARGO": CARGO, "CARGO_MANIFEST_DIR": str(package)}
    return subprocess.run([file, "--exact", "--test-threads=1", *tests], cwd=package, env=environment).returncode == 0


def main():
    began, failed, unsteady, again = time.monotonic(), [], [], []
    programs = build()
    print(f"{len(programs)} programs, {PROGRAMS} at once", flush=True)
    with ThreadPoolExecutor(PROGRAMS) as pool:
        started = {pool.submit(run, program): program for program in programs}
        for running in as_completed(started):
            name, code, seconds, text = running.result()
            result = next((line for line in text.splitlines() if line.startswith("test result: ")), "no result")
            print(f"{seconds:6.1f} s  {name}: {result.removeprefix('test result: ')}", flush=True)
            if code:
                print(text, flush=True)
                again.append((started[running], failures(text)))
    for program, tests in again:
        named = [f"{program[0]} {test}" for test in tests] or [program[0]]
        (unsteady if tests and run_alone(program, tests) else failed).extend(named)
    if subprocess.run([CARGO, "test", *OPTIONS, "--quiet", "--doc", "--no-fail-fast"]).returncode:
        failed.append("examples of the documentation")
    if unsteady:
        print(f"unsteady, passed when run alone: {', '.join(unsteady)}")
    print(f"{time.monotonic() - began:.0f} s; failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
