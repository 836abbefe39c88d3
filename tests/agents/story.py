#!/usr/bin/env python3
"""Records the picture of README: Claude asks Codex, Codex is killed, and the task comes back.

    story.py [PICTURE.svg]

The agents are the real ones, in plain terminals, against a model on loopback; ENSEMBLE is that of run.py, and
AGENTS_DIR is ~/.cache/ensemble-agents by default. Each frame is a screen that tmux has shown; only the time for which it stays is made up. With FRAMES=1 the
frames are printed as text, too.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import network
from film import write_film
from model_server import ModelServer
from providers import CONFIGURE
from reader import HINT, ID, newest
from run import ROOT, install
from scratch import Scratch, settled
from sides import lets_sleep

COLUMNS = 96
# The panes from top to bottom, with their titles and lines.
PANES = [("claude", "Terminal 1: Claude Code", 15), ("codex", "Terminal 2: Codex", 13), ("shell", "Terminal 3: you", 8)]
ASKED = "Ask codex to review src/main.rs, and tell me what it finds."
FOUND = "src/main.rs:3 divides by zero when the list is empty."
SOURCE = """fn main() {
    let times: Vec<u64> = std::env::args().skip(1).flat_map(|arg| arg.parse()).collect();
    println!("{}", times.iter().sum::<u64>() / times.len() as u64);
}
"""
PATIENCE_SECONDS = 90


class Story:
    """What the models of both agents do."""

    def __init__(self):
        self.is_killed = threading.Event()

    def answer(self, asked):
        said = json.dumps(newest(asked.body))
        if "/messages" in asked.path:
            return self.claude(asked, said)
        return self.codex(asked, said)

    @staticmethod
    def claude(asked, said):
        ids = [one or other for one, other in ID.findall(said)]
        if FOUND in said and ids:
            return asked.shell(f"ensemble settle {ids[0]}")
        if asked.after_tool:
            is_asked = "settled" not in asked.result
            return "I asked codex. I will tell you when it answers." if is_asked else f"Codex found: {FOUND}"
        if ASKED in said:
            return asked.shell("ensemble send --to codex 'Please review src/main.rs, and answer with what you find.'")
        return "Understood."

    def codex(self, asked, said):
        ids = [one or other for one, other in ID.findall(said)]
        if ids and self.is_killed.is_set():
            return asked.shell(f"ensemble reply {ids[0]} '{FOUND}'", inside=True)
        if ids:
            # Codex thinks until it is killed.
            self.is_killed.wait(10 * PATIENCE_SECONDS)
            return "Killed."
        if HINT.search(said):
            return asked.shell("ensemble recv", inside=True)
        return "Done."


class Stage:
    """Three terminals, each a pane of a private tmux server without tmux's variables."""

    def __init__(self, scratch):
        self.scratch, self.home = scratch, scratch.dir / "home"
        self.project = self.home / "shop"
        (self.project / "src").mkdir(parents=True)
        (self.project / "src/main.rs").write_text(SOURCE)
        seat = SimpleNamespace(home=self.home, project=self.project, hooked=True, scratch=scratch)
        self.environment = {**scratch.environment(self.home), **CONFIGURE["codex"](seat), **CONFIGURE["claude"](seat)}
        lets_sleep(SimpleNamespace(home=self.home, provider="claude"))
        # Codex keeps no helper programs below a directory for temporary files.
        self.environment["TMPDIR"] = str(scratch.dir / "tmp")
        (scratch.dir / "tmp").mkdir()
        self.frames = []
        for name, _, lines in PANES:
            self.open(name, lines)

    def open(self, name, lines):
        assign = [f"{key}={value}" for key, value in self.environment.items()]
        shell = shlex.join(["env", "-i", *assign, "PS1=$ ", "bash", "--noprofile", "--norc"])
        self.tmux("-f", "/dev/null", "new-session", "-d", "-s", name, "-x", str(COLUMNS), "-y", str(lines),
                  "-c", str(self.project), shell, ";", "set-option", "-g", "status", "off",
                  ";", "resize-window", "-t", name, "-x", str(COLUMNS), "-y", str(lines))

    def tmux(self, *arguments):
        env = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "LANG": "C.UTF-8", "HOME": str(self.home),
               "TMPDIR": str(self.scratch.dir), "ENSEMBLE_AGENTS_SCRATCH": str(self.scratch.dir)}
        done = subprocess.run(["tmux", "-S", str(self.scratch.dir / "stage.sock"), *arguments], text=True, env=env,
                              capture_output=True, timeout=20)
        return done.stdout.rstrip("\n")

    def screen(self, name, *options):
        return self.tmux("capture-pane", *options, "-p", "-t", name)

    def type(self, name, text, enter=True):
        self.tmux("send-keys", "-t", name, "-l", "--", text)
        self.shows(name, text[-20:])
        if enter:
            time.sleep(0.7)
            self.keys(name, "Enter")

    def keys(self, name, *keys):
        self.tmux("send-keys", "-t", name, *keys)

    def shows(self, name, text):
        """Waits until a terminal shows the text, however its lines are broken."""
        wanted = "".join(text.split())
        squeezed = lambda: "".join(self.screen(name).split())
        if not settled(lambda: wanted in squeezed(), PATIENCE_SECONDS):
            screens = "\n".join(self.screen(shown) for shown, *_ in PANES)
            raise SystemExit(f"{name} does not show `{text}`:\n{screens}")

    def rests(self, name):
        """Waits until a terminal has stayed the same for two seconds."""
        seen = [self.screen(name), time.monotonic()]

        def still():
            now = self.screen(name)
            if now != seen[0]:
                seen[:] = [now, time.monotonic()]
            return time.monotonic() - seen[1] > 2
        settled(still, PATIENCE_SECONDS)

    def keep(self, stays_ms):
        """Keeps what all terminals show, without the paths of this machine."""
        shown = []
        for name, title, lines in PANES:
            text = self.screen(name, "-e").replace(str(self.home), "~")
            shown.append((title, (text.split("\n") + [""] * lines)[:lines]))
        self.frames.append((shown, stays_ms))

    def run(self, command, shows):
        self.keys("shell", "C-l")
        self.type("shell", command)
        self.shows("shell", shows)
        self.rests("shell")


def start(stage, name):
    stage.type(name, f"ensemble {name}")
    composer = {"claude": "❯", "codex": "›"}[name]
    stage.shows(name, composer)
    if name == "codex" and settled(lambda: "need review" in stage.screen(name), 5):
        stage.keys(name, "2", "Enter")
    ready = lambda: re.search(rf'"agent":"{name}".*"state":"idle"', state(stage))
    if not settled(ready, PATIENCE_SECONDS):
        raise SystemExit(f"{name} is not ready: {state(stage)}\n{stage.screen(name)}")
    stage.rests(name)


def state(stage):
    done = subprocess.run([stage.scratch.ensemble_path, "team", "--json"], cwd=stage.project, env=stage.environment,
                          text=True, capture_output=True, timeout=60)
    return done.stdout


def holds(stage):
    """Whether Codex has received the message, and not settled it."""
    held = stage.project / "queue/mailbox/codex/cur"
    return held.is_dir() and any(held.iterdir())


def codex_processes(stage):
    """The processes of Codex itself below its wrapper."""
    found = []
    for pid in stage.scratch.processes():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"/codex") and not words[0].endswith(b"ensemble"):
            found.append(pid)
    return found


def play(stage, story):
    start(stage, "claude")
    start(stage, "codex")
    stage.run("ensemble status", "idle")
    # The first frame is what a preview shows.
    stage.type("claude", ASKED, enter=False)
    stage.keep(3500)
    stage.keys("claude", "Enter")
    stage.shows("claude", "I will tell you when it answers")
    stage.keep(1800)
    if not settled(lambda: holds(stage), PATIENCE_SECONDS):
        raise SystemExit(f"codex takes nothing: {state(stage)}\n{stage.screen('codex')}")
    stage.rests("claude")
    stage.shows("codex", "esc to interrupt")
    stage.run("ensemble status", "working")
    stage.keep(3000)
    victims = codex_processes(stage)
    stage.run(f"kill -9 {' '.join(map(str, victims))}   # Codex crashes", "crashes")
    stage.shows("codex", "$")
    stage.keep(2500)
    stage.run("ensemble status", "codex")
    stage.keep(3500)
    story.is_killed.set()
    stage.type("codex", "ensemble codex", enter=False)
    stage.keep(1500)
    stage.keys("codex", "Enter")
    stage.shows("claude", f"Codex found: {FOUND}")
    stage.rests("claude")
    stage.rests("codex")
    stage.run("ensemble status", "idle")
    stage.keep(6000)


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    picture = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "docs/pictures/two-agents.svg")
    ensemble = os.environ.get("ENSEMBLE") or (
        Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug/ensemble")
    agents_dir = os.environ.get("AGENTS_DIR") or Path.home() / ".cache/ensemble-agents"
    install(agents_dir, ["claude", "codex"])
    network.leave()
    model, story = ModelServer(), Story()
    model.follow(story)
    scratch = Scratch(ensemble, agents_dir, model.url, COLUMNS)
    stage = Stage(scratch)
    try:
        play(stage, story)
    finally:
        for frame, _ in stage.frames:
            if os.environ.get("FRAMES"):
                for title, lines in frame:
                    print(f"=== {title}", *(re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines), sep="\n")
        scratch.close()
        model.close()
    write_film(picture, "Claude asks Codex; Codex is killed; the task comes back", stage.frames, COLUMNS)


if __name__ == "__main__":
    main()
