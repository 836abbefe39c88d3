"""Agents that a person starts with `ensemble claude` and its like, in a plain terminal without tmux."""

import fcntl
import json
import os
import pty
import select
import statistics
import struct
import termios
import threading
import time

from checks import expect
from hooked import DRAFT, SENDS, Hooked
from scratch import Agent, settled

ROWS = 40
READY_SECONDS = 90


class Terminal:
    """A person's terminal: what the wrapper writes into it, and the person's keys."""

    def __init__(self, command, cwd, env, columns):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execvpe(command[0], command, env)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
        self.output, self.code = b"", None
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        while True:
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                return
            if not data:
                return
            self.output += data
            self.answer(data)

    def answer(self, data):
        """What a terminal says of itself when a program asks."""
        for question, said in ((b"\x1b[c", b"\x1b[?62;22c"), (b"\x1b[6n", b"\x1b[1;1R"), (b"\x1b[?u", b"\x1b[?0u"),
                               (b"\x1b]11;?", b"\x1b]11;rgb:0000/0000/0000\x1b\\"),
                               (b"\x1b]10;?", b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\")):
            if question in data:
                os.write(self.fd, said)

    def type(self, text):
        os.write(self.fd, text.encode())

    def ended(self, seconds):
        def look():
            if self.code is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.code = os.waitstatus_to_exitcode(status)
            return self.code is not None
        return settled(look, seconds)


class WrappedAgent(Agent):
    """The agent as its wrapper has it: what a pane shows elsewhere, the wrapper is asked for."""

    def start(self, *arguments):
        env = {**self.scratch.environment(self.home), **self.environment}
        command = [str(self.scratch.ensemble_path), self.provider, "--name", "w1", *arguments]
        self.terminal = Terminal(command, self.project, env, self.scratch.width)

    def type(self, text, enter=True):
        self.terminal.type(text)
        if enter:
            settled(lambda: text[-20:].replace(" ", "") in self.squeezed(), 5)
            time.sleep(0.7)
            self.terminal.type("\r")

    def keys(self, *keys):
        names = {"Enter": "\r", "C-u": "\x15", "Escape": "\x1b", "Down": "\x1b[B", "Up": "\x1b[A", "C-c": "\x03"}
        for key in keys:
            self.terminal.type(names.get(key, key))

    def screen(self):
        return self.terminal.output[-20000:].decode(errors="replace")


class Wrapped(Hooked):
    def order(self):
        return [("wrapped: idle", self.idle), ("wrapped: working", self.working), ("wrapped: draft", self.draft),
                ("wrapped: after clear", self.after_clear)]

    def ready_agent(self):
        self.model.set("text")
        agent = WrappedAgent(self.scratch, self.provider, "-wrapped", hooked=True)
        agent.start()
        expect(settled(lambda: agent.member()["state"] == "idle", READY_SECONDS), f"not ready: {agent.member()}")
        return agent


def main():
    import sys
    from model_server import ModelServer
    from scratch import Scratch
    import network
    network.leave()
    provider, ensemble, agents_dir = sys.argv[1:4]
    model = ModelServer()
    scratch = Scratch(ensemble, agents_dir, model.url, 100)
    try:
        agent = WrappedAgent(scratch, provider, "-wrapped", hooked=True)
        agent.start()
        settled(lambda: agent.member().get("state") in ("idle", "blocked"), 40)
        if agent.member().get("state") == "blocked":
            print(agent.member()["why"]); time.sleep(1); agent.keys("Down", "Enter")
        print("ready", settled(lambda: agent.member().get("state") == "idle", 40), agent.member(), flush=True)
        if agent.member().get("state") != "idle":
            print(agent.terminal.output[-3000:]); print(agent.run("pane", "inspect", "w1"))
        for number in range(4):
            count = len(model.since(0))
            began = time.monotonic()
            print(agent.run("send", "--to", "w1", "-m", f"hello {number}"))
            found = []
            look = lambda: found.extend(a for a in model.since(0) if f"hello {number}" in json.dumps(a.body)) or found
            ok = False
            deadline = time.monotonic() + 15
            while time.monotonic() < deadline and not look():
                time.sleep(0.01)
            print("arrived", found and found[0].at - began, "requests", len(model.since(0)) - count, flush=True)
            time.sleep(2)
            box = agent.project / "queue/mailbox/w1"
            for file in list((box / "cur").iterdir()):
                os.rename(file, box / "done" / (file.name.split("@")[0] + ".yaml"))
        print(agent.run("team")); print(agent.run("status")[1]);
        print([l for l in agent.run("log", "--json")[1].splitlines() if "nudge" in l or "submitted" in l or "agent.up" in l])
        print(agent.run("down", "--force"), agent.terminal.ended(20), agent.terminal.code)
        time.sleep(3)
        print("left", [(p, open(f"/proc/{p}/cmdline").read().replace("\0", " ")[:100]) for p in scratch.processes()])
        print(agent.run("team")); 
        print((agent.project / ".ensemble/watch.log").read_text())
    finally:
        scratch.close(); model.close()


if __name__ == "__main__":
    main()
