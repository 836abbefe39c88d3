"""Mail by the agent's own hooks, and by the server of a Codex: how long from `ensemble send` to the request that has the message itself."""

import json
import os
import re
import statistics
import time

from checks import Checks, expect
from reader import Answers, Settler, Turn, is_reminder
from scratch import settled

SENDS = 3
# The message must be in the first request after it; so many seconds are far above what was seen.
ASKED_SECONDS = 20
# How long a person may wait for what came.
SEEN_SECONDS = 5
DRAFT = "half a sentence that is not fin"
TOOL_SECONDS = 4
# How long a tool may take to begin, with a person's answer.
TOOL_STARTS = 30
# Those that a waiter wakes, and those that hooks know at all.
WOKEN, HOOKED = ("claude", "codex", "opencode"), ("claude", "codex", "opencode", "gemini", "qwen")
# These show nothing of what their hooks say to the person.
UNSHOWN = ("qwen",)
CLEAR = {"opencode": "/new"}


class Ponger:
    """Answers a ping wherever in the request it is: a hook's words are no prompt of a person."""

    def answer(self, asked):
        ping = re.search(r"`(ensemble agent pong \S+ \d+)`", json.dumps(asked.body))
        if asked.after_tool or not ping:
            return "Answered."
        return asked.shell(ping[1], inside=True)


class Hooked(Checks):
    KIND = "hook"
    PROVIDERS = HOOKED
    ASKED = ASKED_SECONDS
    WOKEN = WOKEN

    def order(self):
        if self.provider not in self.PROVIDERS:
            return []
        checks = (("idle", self.idle), ("own verbs", self.own_verbs), ("working", self.working), ("draft", self.draft),
                  ("after clear", self.after_clear))
        if self.provider in self.WOKEN:
            checks = (*checks[:1], ("ping", self.ping), *checks[1:])
        if self.provider == "opencode":
            # The last check takes the agent down.
            checks = (*checks[:-1], ("usage", self.usage), checks[-1])
        return [(f"{self.KIND}: {name}", check) for name, check in checks]

    @property
    def of_a_ready_agent(self):
        return [name for name, _ in self.order()]

    def ready_agent(self):
        self.model.set("text")
        agent = self.other("-hooked", hooked=True)
        self.answer_dialogs(agent, "trust")
        self.is_steady(agent, 90)
        self.waits(agent)
        return agent

    def waits(self, agent):
        """Agents that are woken are ready when their waiter is."""
        if self.provider in self.WOKEN:
            expect(settled(lambda: agent.member()["way_in"] == "waiter", 20), "no waiter lives")

    def usage(self):
        """What it has used so far, as its plugin says it."""
        self.carried("something to count")
        self.at_rest()
        code, text = self.agent.run("agent", "usage", "--json")
        rows = [json.loads(line) for line in text.splitlines()]
        mine = [row for row in rows if row["agent"] == "w1" and not row["task_id"]]
        asked = len(self.model.since(0))
        expect(mine and 0 < mine[0]["requests"] <= asked, f"{asked} requests, but: {text}")
        expect(mine[0]["tokens"]["input"] > 0 and mine[0]["turns"] > 0, f"usage: {text}")

    def ping(self):
        """The waiter hands it over: nothing is typed, and the agent answers by the command."""
        self.model.follow(Ponger())
        began, before = time.monotonic(), self.lines()
        code, text = self.agent.run("agent", "ping", "w1")
        expect(code == 0, f"exit {code}: {text.strip()}")
        self.times[f"{self.KIND} ping answered"] = time.monotonic() - began
        expect(self.lines() == before, "a line was typed")
        code, said = self.agent.run("log", "--json", "--type", "ready.ping")
        pings = [json.loads(line)["data"] for line in said.splitlines()]
        expect(pings[-1].get("way") == "hook" and not pings[-1]["typed"], f"pings: {pings}")
        self.model.set("text")
        self.at_rest()
        self.waits(self.agent)

    def idle(self):
        took, before = [], len(self.model.asked)
        for number in range(SENDS):
            took.append(self.carried(f"idle {number}"))
            self.is_seen(f"idle {number}")
            self.at_rest()
        self.times[f"{self.KIND} idle"] = statistics.median(took)
        lines = self.lines()
        expect(self.provider not in self.WOKEN or lines == 0, f"{lines} lines were typed")
        # Nothing is settled here, so that the end of a turn says once what is held.
        asked = [one for one in self.model.since(before) if not is_reminder(one)]
        expect(len(asked) == SENDS, f"{len(asked)} requests for {SENDS} messages")

    def own_verbs(self):
        """Our verbs run without a question; what ends an agent is asked about, and a no keeps it from running."""
        self.model.follow(Settler())
        done = lambda: len(list(self.agent.project.glob("queue/mailbox/w1/done/*.yaml")))
        count = done()
        self.send("to be settled")
        expect(settled(lambda: done() > count, 30), f"not settled: {self.agent.inspect()}")
        self.is_state(self.agent, "ready", 30)
        if self.provider == "codex":
            # It runs commands in a sandbox without a question; ours is refused for want of authority.
            return
        self.model.follow(Turn("ensemble down --force", True, Answers()))
        self.agent.type("end it")
        is_blocked = lambda: self.agent.member()["state"] == "blocked"
        expect(settled(is_blocked, TOOL_STARTS), f"`ensemble down` was not asked about: {self.agent.inspect()}")
        self.agent.keys("Escape")
        self.model.set("text")
        self.is_state(self.agent, "ready", 30)

    def working(self):
        begun = self.agent.project / "begun"
        self.model.follow(Turn(f"touch {begun}; sleep {TOOL_SECONDS}", False, Answers()))
        self.agent.type("run it")
        expect(settled(lambda: begun.exists() or self.confirm(), TOOL_STARTS), "no tool has begun")
        begun.unlink()
        count = len(self.model.since(0))
        self.times[f"{self.KIND} working"] = self.carried("while a tool runs")
        self.is_seen("while a tool runs")
        self.model.set("text")
        self.at_rest()
        later = [self.has(asked, "while a tool runs") for asked in self.model.since(0)[count:]]
        expect(later and later[0], "it was not in the next request")

    def confirm(self):
        """Says yes where the agent asks before it runs a command."""
        if self.agent.member()["state"] == "blocked":
            self.agent.keys("Enter")

    def draft(self):
        self.agent.type(DRAFT, enter=False)
        expect(settled(lambda: self.shows(DRAFT), 10), "the draft is not shown")
        if self.provider in self.WOKEN:
            self.times[f"{self.KIND} draft"] = self.carried("beside a draft")
            expect(settled(lambda: self.shows(DRAFT), 5), "the draft is gone")
            self.agent.keys("C-u")
        else:
            self.send("beside a draft")
            self.agent.keys("C-u")
            self.until("beside a draft", time.monotonic(), 60)
        self.at_rest()

    def after_clear(self):
        self.agent.type(CLEAR.get(self.provider, "/clear"))
        before = len(self.model.since(0))
        settled(lambda: "idle" == self.agent.member()["state"], 10)
        self.times[f"{self.KIND} after clear"] = self.carried("after clear")
        asked = self.model.since(0)[before:]
        expect(any(self.has(one, "You are w1") for one in asked), "it does not know its name any more")
        self.at_rest()
        code, text = self.agent.run("down", "--force")
        expect(code == 0, f"down --force: exit {code}: {text}")
        self.agent = None

    def is_seen(self, text):
        """The person at the screen is shown what came, and from whom."""
        for part in ("from human", f"{self.KIND}: {text}") if self.provider not in UNSHOWN else ():
            expect(settled(lambda part=part: self.shows(part), SEEN_SECONDS), f"the screen does not show `{part}`")

    def shows(self, text):
        """Whether the agent shows this text now."""
        return text.replace(" ", "") in self.agent.squeezed()

    def send(self, text):
        began = time.monotonic()
        code, said = self.agent.run("send", "--to", "w1", "-m", f"{self.KIND}: {text}")
        expect(code == 0, f"send: exit {code}: {said}")
        return began

    def carried(self, text):
        """Seconds from `send` to the request that has the text."""
        return self.until(text, self.send(text), self.ASKED)

    def until(self, text, began, seconds):
        found = []
        said = f"{self.KIND}: {text}"
        look = lambda: found.extend(asked for asked in self.model.since(0) if self.has(asked, said)) or found
        expect(settled(look, seconds), f"{text!r} never reached the model: {self.agent.inspect()}")
        return found[0].at - began

    @staticmethod
    def has(asked, text):
        return text in json.dumps(asked.body, ensure_ascii=False)

    def lines(self):
        code, text = self.agent.run("log", "--json")
        return sum('"nudge.sent"' in line for line in text.splitlines())

    def at_rest(self):
        """Ends what is held, as the model does not: the next message is a task to itself."""
        self.is_state(self.agent, "ready", 30)
        box = self.agent.project / "queue/mailbox/w1"
        for file in list((box / "cur").iterdir()):
            os.rename(file, box / "done" / (file.name.split("@")[0] + ".yaml"))
