#!/usr/bin/env python3
"""Many real messages, exported to a real collector: each is one complete trace, and promtool finds no fault.

    many.py ENSEMBLE ROTEL PROMTOOL [COUNT]

ROTEL is Rotel's program, an OpenTelemetry collector. It prints each span that it has received; those lines are counted
against the messages that were sent. Ends with exit code 1 if a span is missing or occurs twice.
"""

import collections
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time

ENSEMBLE, ROTEL, PROMTOOL = sys.argv[1:4]
COUNT = int(sys.argv[4]) if len(sys.argv) > 4 else 2000
ROUND = 500
PATIENCE_SECONDS = 120


def ensemble(project, *words, **options):
    return subprocess.run([ENSEMBLE, *words], cwd=project, check=True, text=True, capture_output=True, **options).stdout


def play(project, method, calls):
    """Calls one command many times in one process, one call at a time; its answers."""
    api = subprocess.Popen([ENSEMBLE, "--as", "worker-1", "admin", "api"], cwd=project, text=True,
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    answers = []
    api.stdout.readline()
    for at, call in enumerate(calls):
        api.stdin.write(json.dumps({"id": at, "method": method, "params": call}) + "\n")
        api.stdin.flush()
        answer = json.loads(api.stdout.readline())
        assert "error" not in answer, answer
        answers.append(answer["result"][0])
    api.stdin.close()
    assert api.wait() == 0
    return answers


def free_address():
    with socket.socket() as at:
        at.bind(("127.0.0.1", 0))
        return "{}:{}".format(*at.getsockname())


def messages(project):
    """Sends, receives and settles; the ids."""
    ensemble(project, "init")
    (project / "ensemble.yaml").write_text("durability: process\n")
    ensemble(project, "mailbox", "add", "worker-1")
    ids = []
    # A sender may have 1,000 unread messages in a mailbox.
    for begin in range(0, COUNT, ROUND):
        texts = [f"message {at}" for at in range(begin, min(begin + ROUND, COUNT))]
        ids += [message["id"] for message in play(project, "send", [{"to": ["worker-1"], "text": text} for text in texts])]
        held = play(project, "recv", [{} for _ in texts])
        play(project, "settle", [{"id": message["id"]} for message in held])
    return ids


def exported(project, log, expected):
    """What the collector has printed once it has all spans."""
    address = free_address()
    with open(log, "wb") as output:
        collector = subprocess.Popen(
            [ROTEL, "start", "--exporter", "blackhole", "--debug-log", "traces", "--debug-log-verbosity", "detailed",
             "--otlp-grpc-endpoint", free_address(), "--otlp-http-endpoint", address, "--pid-file", project / "pid"],
            stdout=output, stderr=subprocess.DEVNULL)
    try:
        command, deadline = [ENSEMBLE, "log", "export", "otlp", "--endpoint", f"http://{address}"], time.monotonic() + PATIENCE_SECONDS
        while True:
            began = time.monotonic()
            ran = subprocess.run(command, cwd=project, text=True, capture_output=True)
            if ran.returncode != 75 or time.monotonic() > deadline:
                break
        print(f"{ran.stdout.strip()}{ran.stderr.strip()}: {time.monotonic() - began:.2f} s")
        assert ran.returncode == 0
        while time.monotonic() < deadline:
            text = log.read_text(errors="replace")
            if text.count("    Trace ID ") >= expected:
                return text
            time.sleep(0.05)
        sys.exit(f"the collector has {text.count('    Trace ID ')} of {expected} spans")
    finally:
        collector.kill()
        collector.wait()


def main():
    with tempfile.TemporaryDirectory() as home:
        project = pathlib.Path(home) / "project"
        project.mkdir()
        ids = messages(project)
        text = exported(project, pathlib.Path(home) / "printed", 2 * COUNT)
        span = re.compile(r"Trace ID +: (\w+)\n +Parent ID +: (\w*)\n +ID +: (\w+)\n +Name +: (\w+) worker-1\n(?:.*\n)*?"
                          r" +-> messaging\.message\.id: Str\(([^)]+)\)")
        traces = collections.defaultdict(list)
        for trace, parent, own, name, message in span.findall(text):
            traces[message].append((name, trace, parent, own))
        assert sorted(traces) == sorted(ids), "other messages have arrived than were sent"
        for message, spans in traces.items():
            (first, trace, above, root), (second, same, parent, _) = sorted(spans, reverse=True)
            whole = (first, second, trace, parent, above) == ("publish", "process", same, root, "")
            assert whole, f"{message} is no complete trace: {spans}"
        assert len({spans[0][1] for spans in traces.values()}) == COUNT, "two messages share a trace"
        print(f"{COUNT} messages, {COUNT} complete traces")
        metrics = ensemble(project, "log", "export", "prometheus")
        assert f'ensemble_messages_settled_total{{mailbox="worker-1"}} {COUNT}\n' in metrics
        checked = subprocess.run([PROMTOOL, "check", "metrics"], input=metrics, text=True, capture_output=True)
        print(f"promtool check metrics: exit code {checked.returncode} {checked.stdout}{checked.stderr}".strip())
        assert checked.returncode == 0 and not checked.stderr
        version = subprocess.run([PROMTOOL, "--version"], text=True, capture_output=True)
        print((version.stdout + version.stderr).splitlines()[0])
        print(subprocess.run([ROTEL, "--version"], text=True, capture_output=True).stdout.strip())


main()
