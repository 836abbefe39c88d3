#!/usr/bin/env python3
"""Compares `ensemble agent usage` with ccusage on the same made records of Claude Code, Codex and Gemini CLI.

compare.py ENSEMBLE CCUSAGE [SEED]: exit code 1 if tokens or cost of a program differ by more than LIMIT.
The records have what makes counting hard: an answer in several lines, resumed sessions that repeat lines, caches of
two durations, sums that are written twice, messages that are written again with their tokens.
"""

import datetime
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

LIMIT = 0.005
CLAUDE = ["claude-opus-4-5-20251101", "claude-sonnet-4-5-20250929", "claude-haiku-4-5-20251001"]
CODEX = ["gpt-5-codex", "gpt-5"]
GEMINI = ["gemini-2.5-pro", "gemini-2.5-flash"]


class Clock:
    """Time stamps that only grow."""

    def __init__(self):
        self.now = datetime.datetime(2026, 11, 20, 8, 0, 0)

    def tick(self, seconds=0):
        self.now += datetime.timedelta(seconds=seconds)
        return self.now.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    # ccusage expects no blanks between members.
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    return path


def claude(home, rnd, clock):
    files, before = [], []
    for number in range(6):
        session = f"{rnd.getrandbits(32):08x}-0000-4000-8000-{number:012x}"
        common = {"sessionId": session, "cwd": "/w", "version": "2.1.331"}
        lines = before[:20] if number % 3 == 2 else []
        for _ in range(40):
            lines.append(dict(common, type="user", timestamp=clock.tick(7), message={"role": "user", "content": "go"}))
            written = rnd.randrange(9_000)
            hour = rnd.choice([0, 0, written])
            usage = {
                "input_tokens": rnd.randrange(3_000), "cache_creation_input_tokens": written,
                "cache_read_input_tokens": rnd.randrange(90_000), "output_tokens": rnd.randrange(50, 4_000),
                "cache_creation": {"ephemeral_1h_input_tokens": hour, "ephemeral_5m_input_tokens": written - hour},
            }
            message = {"id": f"msg_{rnd.getrandbits(60):x}", "type": "message", "role": "assistant",
                       "model": rnd.choice(CLAUDE), "content": [], "usage": usage}
            request = f"req_{rnd.getrandbits(60):x}"
            for _ in range(rnd.randrange(1, 4)):
                lines.append(dict(common, type="assistant", timestamp=clock.tick(1), requestId=request, message=message))
        files.append(write(home / f".claude/projects/-w/{session}.jsonl", lines))
        before = lines
    return files


def codex(home, rnd, clock):
    files = []
    for number in range(4):
        session = f"01a20f98-0bf4-7651-a31d-{number:012x}"
        total = dict.fromkeys(["input_tokens", "cached_input_tokens", "output_tokens", "total_tokens"], 0)
        lines = [{"timestamp": clock.tick(1), "type": "session_meta", "payload": {"id": session, "cwd": "/w"}}]
        for turn in range(30):
            context = {"turn_id": f"t{turn}", "model": rnd.choice(CODEX)}
            lines.append({"timestamp": clock.tick(5), "type": "turn_context", "payload": context})
            lines.append({"timestamp": clock.tick(), "type": "event_msg", "payload": {"type": "task_started"}})
            last = {"input_tokens": rnd.randrange(500, 60_000), "output_tokens": rnd.randrange(2_000)}
            last["cached_input_tokens"] = rnd.randrange(last["input_tokens"])
            last["total_tokens"] = last["input_tokens"] + last["output_tokens"]
            total = {name: total[name] + last[name] for name in total}
            info = {"total_token_usage": total, "last_token_usage": last}
            for _ in range(2 if turn % 7 == 0 else 1):
                payload = {"type": "token_count", "info": info}
                lines.append({"timestamp": clock.tick(1), "type": "event_msg", "payload": payload})
        name = f"rollout-2026-11-20T08-00-0{number}-{session}.jsonl"
        files.append(write(home / ".codex/sessions/2026/11/20" / name, lines))
    return files


def gemini(home, rnd, clock):
    files = []
    for number in range(3):
        session = f"{rnd.getrandbits(32):08x}-1111-4000-8000-{number:012x}"
        lines = [{"sessionId": session, "projectHash": "abc", "startTime": clock.tick(1)}]
        for turn in range(20):
            lines.append({"id": f"u{number}-{turn}", "timestamp": clock.tick(5), "type": "user", "content": "go"})
            tokens = {"input": rnd.randrange(1_000, 9_000), "output": rnd.randrange(900), "thoughts": rnd.randrange(300)}
            tokens["cached"] = rnd.randrange(tokens["input"])
            tokens["total"] = tokens["input"] + tokens["output"] + tokens["thoughts"]
            message = {"id": f"g{number}-{turn}", "timestamp": clock.tick(1), "type": "gemini", "content": "",
                       "model": rnd.choice(GEMINI)}
            lines += [message, dict(message, tokens=tokens)]
        files.append(write(home / f".gemini/tmp/abc/chats/session-2026-11-20T08-00-{session[:8]}.jsonl", lines))
    return files


def ours(ensemble, home, files, env):
    """What `ensemble agent usage` says of agents with these records, by program."""
    project = home / "project"
    project.mkdir()
    subprocess.run([ensemble, "init"], cwd=project, env=env, check=True, stdout=subprocess.DEVNULL)
    for program, records in files.items():
        session = {"version": 1, "agent": program, "provider": program, "since": "2026-11-20T08:00:00Z",
                   "records": [str(record) for record in records]}
        write(project / f".ensemble/sessions/{program}.json", [session])
    printed = subprocess.run([ensemble, "agent", "usage", "--json"], cwd=project, env=env, check=True, stdout=subprocess.PIPE)
    rows = [json.loads(line) for line in printed.stdout.splitlines()]
    return {row["agent"]: (sum(row["tokens"].values()), row["cost_usd"]) for row in rows}


def theirs(ccusage, program, env):
    command = [ccusage, program, "daily", "--json", "--offline"]
    totals = json.loads(subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE).stdout)["totals"]
    return totals["totalTokens"], totals.get("totalCost", totals.get("costUSD"))


def main(ensemble, ccusage, seed="1"):
    rnd, clock, is_same = random.Random(int(seed)), Clock(), True
    with tempfile.TemporaryDirectory(prefix="usage.") as directory:
        home = pathlib.Path(directory)
        env = dict(os.environ, HOME=directory)
        files = {"claude": claude(home, rnd, clock), "codex": codex(home, rnd, clock), "gemini": gemini(home, rnd, clock)}
        counted = ours(os.path.abspath(ensemble), home, files, env)
        for program, (tokens, cost) in counted.items():
            other_tokens, other_cost = theirs(os.path.abspath(ccusage), program, env)
            fits = abs(tokens - other_tokens) <= LIMIT * other_tokens and abs(cost - other_cost) <= LIMIT * other_cost
            is_same &= fits and other_tokens > 0
            print(f"{program}: {tokens} tokens, ${cost:.4f}; ccusage: {other_tokens} tokens, ${other_cost:.4f}")
    return 0 if is_same else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
