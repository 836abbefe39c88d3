"""Agents that a person starts with `ensemble claude` and its like, in a plain terminal without tmux."""

import copy
import fcntl
import os
import pty
import struct
import termios
import threading
import time

from checks import expect
from hooked import Hooked
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
        command = [str(self.scratch.ensemble_path), self.provider, "--name", self.name, *arguments]
        self.terminal = Terminal(command, self.project, env, self.scratch.width)

    def beside(self, name):
        """Another agent of the same home and project, not yet started."""
        other = copy.copy(self)
        other.name = name
        return other

    def plain(self):
        """The same program as a person starts it, without Ensemble."""
        env = {**self.scratch.environment(self.home), **self.environment}
        return Terminal([self.provider], self.project, env, self.scratch.width)

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
    KIND = "wrapped"

    def ready_agent(self):
        self.model.set("text")
        agent = WrappedAgent(self.scratch, self.provider, "-wrapped", hooked=True)
        agent.start()
        expect(settled(lambda: agent.member().get("state") in ("idle", "blocked"), READY_SECONDS), "it does not start")
        self.answer_dialogs(agent, "trust")
        self.is_steady(agent, READY_SECONDS)
        self.waits(agent)
        return agent

    def is_seen(self, text):
        """What the wrapper passes on moves the cursor between the words; the hooks are those of the other checks."""

    def shows(self, text):
        """Where it is a draft: the wrapper says what stands in the composer."""
        return text.replace(" ", "") in str(self.agent.inspect().get("evidence")).replace(" ", "")

    def after_clear(self):
        agent = self.agent
        super().after_clear()
        expect(agent.terminal.ended(20), "the wrapper has not ended")
        expect(settled(lambda: not agent.watchers(), 20), "the watcher has not ended")
