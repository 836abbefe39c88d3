"""What all checks are made of: a list of names, an agent, and what is expected of both."""

import os
import re
import time
from dataclasses import dataclass

from reader import Reader, nudge
from scratch import Agent, settled

BUSY_EXIT = 75
# How the line begins in which an agent takes input.
COMPOSERS = {"claude": "❯", "codex": "›", "gemini": (">", "│ >"), "opencode": "┃",
             "copilot": "❯", "kimi": ("> ", "│ >"), "qwen": ">"}
# What a dialog at the start is called, and what a person presses there, in their order.
DIALOGS = {
    "claude": [("trust", ["Down", "Enter"]), ("dialog", ["Down", "Enter"])],
    "codex": [("trust", ["Enter"])],
    "gemini": [("trust", ["Enter"])],
    "opencode": [],
    "copilot": [("trust", ["Enter"])],
    "kimi": [("trust", ["Enter"])],
    "qwen": [],
}
# The longest pause of the watcher between two looks at a mailbox that waits, and an agent's time to paint.
PACE_SECONDS = 35

# A nudge on the screen, without blanks and edges.
LINE = "ensemble:1messageforw1.Run:ensemblerecv"


@dataclass
class Result:
    """What came of a check, and how busy the machine was at its end."""

    name: str
    word: str
    note: str
    load: float
    # What it was before it was walked again.
    repeats: "Result | None" = None


class Failed(Exception):
    """A check that did not hold."""


def expect(holds, what):
    if not holds:
        raise Failed(what)


class Checks:
    """A list of checks; each leaves a ready agent behind."""

    def __init__(self, scratch, model, provider, wanted=()):
        self.scratch, self.model, self.provider, self.wanted = scratch, model, provider, wanted
        self.results, self.times, self.agent = [], {}, None

    def order(self):
        raise NotImplementedError

    def run(self):
        for name, check, *arguments in self.order():
            if self.wanted and name not in self.wanted:
                continue
            word, note, usable, began = "pass", "", True, time.monotonic()
            try:
                if self.agent is None and name in self.of_a_ready_agent:
                    self.agent = self.ready_agent()
                note = check(*arguments) or ""
                word = "deviation" if note else word
            except Exception as failed:
                # Also what went wrong in the check itself: the others are still walked.
                what = str(failed) if isinstance(failed, Failed) else repr(failed)
                word, note = "fail", " ".join(what.split())
                # Where no agent became ready, the rest is walked with another one.
                usable = self.recover() and not (self.agent is None and name in self.of_a_ready_agent)
            took, load = time.monotonic() - began, os.getloadavg()[0]
            print(f"{self.provider:9} {self.scratch.width:4} {name:30} {word:9} {took:5.1f} s, load {load:4.1f}  {note}",
                  flush=True)
            self.results.append(Result(name, word, note, load))
            if not usable:
                return

    @property
    def of_a_ready_agent(self):
        """The checks that another one leaves an agent to; alone, they need one of their own."""
        return ()

    def ready_agent(self):
        """An agent that a person has brought to where it waits for input."""
        self.model.follow(Reader())
        agent = self.other("-alone")
        self.answer_dialogs(agent, "trust")
        self.is_steady(agent, 90)
        return agent

    def recover(self):
        """Shows what was there, and tries to reach a ready agent for the next check; whether it has."""
        if self.agent is None:
            return True
        print("\n".join(f"    {line}" for line in self.agent.screen().splitlines() if line), flush=True)
        self.model.follow(Reader())
        repair = {"draft": "C-u", "permission": "Escape"}.get(self.agent.state())
        if repair:
            self.agent.keys(repair)
        if self.agent.state() == "crashed":
            self.agent.up()
        ready = self.agent.wait("ready", 20) == "ready"
        return ready and settled(lambda: self.agent.waiting() == 0, 2 * PACE_SECONDS)

    def other(self, name, prepare=None, **options):
        """Another agent of the kind, with another home, in which `prepare` has done its part."""
        agent = Agent(self.scratch, self.provider, name, **options)
        if prepare:
            prepare(agent)
        code, said = agent.up()
        expect(code == 0, f"up: exit {code}: {said}")
        return agent

    def answer_dialogs(self, agent, *without):
        """Does what a person does at the start."""
        for state, keys in DIALOGS[self.provider]:
            if state not in without:
                self.is_state(agent, state, 60)
                self.press(agent, keys)

    @staticmethod
    def press(agent, keys):
        """Presses keys, each when the screen has come to rest."""
        for key in keys:
            rests(agent)
            agent.keys(key)

    def is_state(self, agent, state, seconds=20):
        seen = agent.wait(state, seconds)
        expect(seen == state, f"expected {state}, seen {seen}: {agent.inspect().get('evidence')}")

    @staticmethod
    def is_steady(agent, seconds):
        """Ready, and to stay so: Codex shows its composer, and then starts its servers."""
        def stays():
            return agent.state() == "ready" and rests(agent) and agent.state() == "ready"

        expect(settled(stays, seconds), f"it does not become ready: {agent.inspect().get('evidence')}")

    def send(self, text="mail"):
        """Sends a message; gives when."""
        began = time.monotonic()
        code, said = self.agent.run("send", "--to", "w1", "-m", text)
        expect(code == 0, f"send: exit {code}: {said}")
        return began

    def held_back(self, *reasons):
        """Mail waits for one of these reasons; nothing is typed and the model is asked nothing."""
        agent, count = self.agent, len(self.model.asked)
        rests(agent)
        region = self.composer if "busy" in reasons else bottom
        before, lines = region(agent), agent.squeezed().count(LINE)
        self.send()
        code, text = agent.run("agent", "nudge", "w1")
        expect(code == BUSY_EXIT, f"nudge: exit {code}: {text.strip()}")
        expect(any(reason in text for reason in reasons), f"nudge: {text.strip()}")
        settled(lambda: self.model.since(count), 4)
        expect(not self.model.since(count), f"the model was asked {self.model.since(count)[:1]}")
        expect(region(agent) == before, f"the screen has changed: {agent.screen()}")
        expect(agent.squeezed().count(LINE) <= lines, f"a nudge was typed: {agent.screen()}")

    def composer(self, agent):
        """Where an agent takes input, and what is below; a working agent draws tips above that."""
        lines, first, _ = self.input_lines(agent)
        return still("\n".join(lines[first:]))

    def input_lines(self, agent):
        """The lines that are not blank, and the first and last of those in which the agent takes input."""
        lines = [line for line in agent.screen().splitlines() if line.strip()]
        begins = [line.strip().startswith(COMPOSERS[self.provider]) for line in lines]
        last = first = len(lines) - 1 - begins[::-1].index(True) if True in begins else 0
        while first and begins[first - 1]:
            first -= 1
        return lines, first, last

    def holds_hint(self, agent):
        """Whether a hint of ours is in the composer."""
        lines, first, last = self.input_lines(agent)
        return any(line.strip(" \u00a0│┃❯›>").startswith("ensemble:") for line in lines[first:last + 1])

    def nudged(self, count):
        return [asked for asked in self.model.since(count) if nudge(asked)]

    def arrives(self, count, seconds=PACE_SECONDS):
        """What waits is announced and received, without a person; gives when the model was asked."""
        found = settled(lambda: self.nudged(count), seconds)
        expect(found, f"no nudge within {seconds} s: {self.why()}")
        drained = settled(lambda: self.agent.waiting() == 0, 30)
        expect(drained, f"{self.agent.waiting()} messages were not received and settled")
        self.is_state(self.agent, "ready")
        return self.nudged(count)[0].at

    def why(self):
        """What the product says about mail that waits."""
        seen = self.agent.inspect()
        row = self.agent.member()
        status = self.agent.run("status", "--json")[1]
        found = re.search(r'"deferred":\{[^}]*\}', status)
        return (f"inspect {seen['state']}, nudge {seen.get('would', {}).get('nudge')}; team {row.get('state')} "
                f"({row.get('why')}); {found and found[0]}")


def rests(agent, seconds=8):
    """Waits until the screen stays as it is for a moment."""
    seen = [agent.screen()]

    def same():
        before = seen[0]
        time.sleep(0.4)
        seen[0] = agent.screen()
        return still(before) == still(seen[0])

    return settled(same, seconds) or True


def bottom(agent):
    """Where an agent takes input or asks; what it says above may still come."""
    return still("\n".join([line for line in agent.screen().splitlines() if line.strip()][-12:]))


def still(screen):
    """A screen without what moves by itself."""
    return re.sub(r"[⬝■✶✻✽✢·*◦•●◉◎○⠀-⣿▀-▟\s]|\d+( B|s)?|\S+…", "", screen)
