#!/usr/bin/env python3
"""All tests, several programs at once: `make test`; with those that take long, `make test-all`.

Most tests wait for processes, panes and timers, and each program at its end for its slowest test. Cargo runs one program
after the other, so that the processors are idle most of the time. The programs that take longest begin first.

A test that fails is run once more when all others have ended. One that passes then is named as unsteady, and does not
fail the run: it is a defect all the same, of the test or of what it tests.

    run.py [--all] [CARGO_OPTION]...

--all              also the tests that are marked by `#[ignore = "long"]`: above 20 seconds on two processors
PROGRAMS           how many programs run at once [default: one more than there are processors]
RUST_TEST_THREADS  how many tests of a program run at once [default: twice as many as there are processors; of `cli`,
                   which has a third of all tests, four times as many]
SLOW               prints the tests that take longer than that many seconds
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

PROCESSORS = len(os.sched_getaffinity(0))
PROGRAMS = int(os.environ.get("PROGRAMS", PROCESSORS + 1))
CARGO = os.environ.get("CARGO", "cargo")
IS_ALL = "--all" in sys.argv[1:]
OPTIONS = ["--workspace", "--all-features", *(word for word in sys.argv[1:] if word != "--all")]
SLOW = os.environ.get("SLOW")
# The programs that take longest; the others follow by their size.
FIRST = [
    "cli", "torture_command", "team", "torture", "watch", "agents", "mail", "hosts",
]
# The user's own state, which no test may take for its own.
STATE = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "ensemble"
# The ignored tests that do not run by themselves: those that others start, and measurements.
SKIPPED = ["subprocess_", "measurement_"]


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


def choice():
    """The arguments that choose the tests of a program."""
    arguments = []
    if IS_ALL:
        arguments = ["--include-ignored", *(word for name in SKIPPED for word in ("--skip", name))]
    # Times of tests are an unstable option, which a stable compiler's tests take in this environment only.
    return arguments + (["-Z", "unstable-options", "--report-time"] if SLOW else ["--quiet"])


def run(program):
    """How a program ends, how long that takes, how long its processors work for it, and what it says."""
    name, file, package = program
    began = time.monotonic()
    threads = os.environ.get("RUST_TEST_THREADS", str((4 if name == "cli" else 2) * PROCESSORS))
    environment = {**os.environ, "RUST_TEST_THREADS": threads, "CARGO": CARGO, "CARGO_MANIFEST_DIR": str(package)}
    if SLOW:
        environment["RUSTC_BOOTSTRAP"] = "1"
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        started = subprocess.Popen([file, *choice()], cwd=package, env=environment, stdout=said, stderr=said)
        # With all processes that it has started and waited for.
        _, status, used = os.wait4(started.pid, 0)
        started.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        return name, started.returncode, (time.monotonic() - began, used.ru_utime + used.ru_stime), said.read()


def users_files():
    """What the files of the user's own state say."""
    return {path.read_text(errors="replace") for path in STATE.rglob("*") if path.is_file()}


def failures(text):
    """The tests that failed, by what their program printed last."""
    _, found, listed = text.rpartition("\nfailures:\n")
    return [line.strip() for line in listed.split("\n\n")[0].splitlines() if found]


def run_alone(program, tests):
    """Whether these tests pass, one after the other, beside nothing else."""
    _, file, package = program
    environment = {**os.environ, "CARGO": CARGO, "CARGO_MANIFEST_DIR": str(package)}
    command = [file, "--exact", "--include-ignored", "--test-threads=1", *tests]
    return subprocess.run(command, cwd=package, env=environment).returncode == 0


def main():
    began, before, failed, unsteady, again = time.monotonic(), users_files(), [], [], []
    programs = build()
    print(f"{len(programs)} programs, {PROGRAMS} at once", flush=True)
    with ThreadPoolExecutor(PROGRAMS) as pool:
        started = {pool.submit(run, program): program for program in programs}
        for running in as_completed(started):
            name, code, (seconds, busy), text = running.result()
            result = next((line for line in reversed(text.splitlines()) if line.startswith("test result: ")), "no result")
            print(f"{seconds:6.1f} s, busy {busy:6.1f} s  {name}: {result.removeprefix('test result: ')}", flush=True)
            for test, took in re.findall(r"^test (\S+) .*<([\d.]+)s>$", text, re.MULTILINE) if SLOW else ():
                if float(took) > float(SLOW):
                    print(f"{took:>10} s  {test}", flush=True)
            if code:
                print(text, flush=True)
                again.append((started[running], failures(text)))
    for program, tests in again:
        named = [f"{program[0]} {test}" for test in tests] or [program[0]]
        (unsteady if tests and run_alone(program, tests) else failed).extend(named)
    if subprocess.run([CARGO, "test", *OPTIONS, "--quiet", "--doc", "--no-fail-fast"]).returncode:
        failed.append("examples of the documentation")
    noted = [text for text in users_files() - before if tempfile.gettempdir() in text]
    if noted:
        failed.append(f"a test wrote among the user's own files: {noted}")
    if unsteady:
        print(f"unsteady, passed when run alone: {', '.join(unsteady)}")
    print(f"{time.monotonic() - began:.0f} s; failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
