#!/usr/bin/env python3
"""How long it takes until a person is told: from a permission prompt on an agent's screen, and from a plan that waits,
to the end of the alert's command.

    tests/cli/alerts/measure.py PROGRAM [ROUNDS]

The team runs in a tmux server of its own, in a temporary directory. Its agent shows recorded screens of Claude Code,
has no hooks, and is watched with the default configuration. Prints medians and 95th percentiles, in seconds.
"""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

RECORDED = pathlib.Path(__file__).parents[3] / "crates/ensemble-tmux/src/provider/recorded/claude-80.txt"
ROUNDS = 30
PATIENCE_SECONDS = 60
# Shows the screens whose names it reads, with the cursor at the mark.
AGENT = r"""#!/bin/sh
[ -p in ] || mkfifo in
exec 3<>in
show() { printf '\033[H\033[2J\033[3J'; cat "screens/$1.before"; printf '\0337'; cat "screens/$1.after"; printf '\0338'; }
show ready
while IFS= read -r screen <&3; do show "$screen"; done
"""
CONFIG = """\
team: {tmux_config: /dev/null}
hooks: {providers: []}
agents:
  worker-1: {command: ./claude, provider: claude}
notify:
  - {command: 'date +%s.%N >> told; cat >> alerts'}
"""


def screens(home: pathlib.Path) -> None:
    """Writes each recorded screen in two parts: before the cursor, and after it."""
    (home / "screens").mkdir()
    for part in ("\n" + RECORDED.read_text()).split("\n=== ")[1:]:
        name, _, text = part.partition("\n")
        _title, _, text = text.partition("\n")
        before, _, after = text.partition("▮")
        (home / f"screens/{name}.before").write_text(before)
        (home / f"screens/{name}.after").write_text(after)


class Team:
    """A project with one agent, and the alerts that its person gets."""

    def __init__(self, program: str, home: pathlib.Path):
        self.program, self.home = program, home
        screens(home)
        # The program's own name says that it is Claude Code.
        (home / "claude").write_text(AGENT)
        (home / "claude").chmod(0o755)
        self.run("init")
        (home / "ensemble.yaml").write_text(CONFIG)
        (home / "plan.md").write_text("the plan\n")
        self.run("mailbox", "add", "boss")
        self.run("up")

    def run(self, *words: str) -> str:
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8"}
        done = subprocess.run([self.program, *words], cwd=self.home, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{words}: {done.stderr}")
        return done.stdout

    def show(self, screen: str) -> None:
        with open(self.home / "in", "w") as pipe:
            pipe.write(screen + "\n")

    def told(self) -> list[float]:
        file = self.home / "told"
        return [float(line) for line in file.read_text().splitlines()] if file.exists() else []

    def wait(self, what: str, is_so) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while not is_so():
            if time.monotonic() > until:
                sys.exit(f"not seen: {what}\n{self.run('status')}")
            time.sleep(0.02)

    def is_at_rest(self) -> bool:
        """Whether the watcher has seen that the last prompt is gone: it would take the next one for the same."""
        log = self.run("log", "--json")
        return log.rfind('"to":"blocked"') <= log.rfind('"from":"blocked"')

    def prompt(self) -> float:
        """A permission prompt appears. Returns how long it took until the person was told."""
        self.wait("the agent is at rest", self.is_at_rest)
        count, began = len(self.told()), time.time()
        self.show("permission")
        self.wait("an alert", lambda: len(self.told()) > count)
        self.show("ready")
        return self.told()[count] - began

    def plan(self) -> float:
        """A plan begins to wait. Returns how long it took until the person was told."""
        count = len(self.told())
        self.run("--as", "author", "request", "plan", "plan.md", "--task", f"t-{count}", "--to", "boss")
        began = time.time()
        self.wait("an alert", lambda: len(self.told()) > count)
        return self.told()[count] - began


def line(what: str, samples: list[float]) -> str:
    ordered = sorted(samples)
    p95 = ordered[min(len(ordered) - 1, len(ordered) * 95 // 100)]
    return f"{what:<24} median {statistics.median(ordered):.2f} s, p95 {p95:.2f} s, slowest {ordered[-1]:.2f} s ({len(ordered)})"


def main() -> None:
    program, rounds = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS
    with tempfile.TemporaryDirectory() as scratch:
        team = Team(program, pathlib.Path(scratch))
        try:
            print(line("a prompt on a screen", [team.prompt() for _ in range(rounds)]), flush=True)
            print(line("a plan that waits", [team.plan() for _ in range(rounds)]))
        finally:
            team.run("down", "--force")


if __name__ == "__main__":
    main()
