"""What is checked with each agent."""

import os
import re
import signal
import time

from scratch import COMMANDS, Agent, settled
from steps import NOTE, OUTCOMES, TASK, Queue, Worker

BUSY_EXIT = 75
DRAFT = "half a sentence that nobody has fin"
# What an agent cannot be brought to show without an account or does not have at all.
ABSENT = {("opencode", "trust"): "it has no such dialog",
          ("opencode", "bad key"): "it prints the server's words, which no rule can know"}


class Failed(Exception):
    """A check that did not hold."""


def expect(holds, what):
    if not holds:
        raise Failed(what)


class Checks:
    def __init__(self, scratch, model, provider, wanted=()):
        self.scratch, self.model, self.provider, self.wanted = scratch, model, provider, wanted
        self.results, self.agent = [], None

    def run(self):
        """The order matters: each check leaves a ready agent behind."""
        for name, check in (("trust dialog", self.trust), ("not logged in", self.login),
                            ("ready", self.ready), ("nudge while idle", self.nudge_idle),
                            ("busy; nudge while busy", self.busy), ("human draft", self.draft),
                            ("permission", self.permission), ("ping, pong on screen", self.ping_screen),
                            ("ping, `ensemble pong`", self.ping_shell), ("bad key", self.bad_key),
                            ("rate limit", self.rate_limit), ("phases 1 to 3", self.ladder),
                            ("crash", self.crash), ("step queue over MCP", self.steps)):
            if self.wanted and name not in self.wanted:
                continue
            word, note = "pass", ""
            try:
                note = check() or ""
                word = "deviation" if note else word
            except Failed as failed:
                word, note = "fail", " ".join(str(failed).split())
                self.recover()
            print(f"{self.provider:9} {name:24} {word:9} {note}", flush=True)
            self.results.append((name, word, note))

    def recover(self):
        """Shows what was there, and tries to reach a ready agent for the next check."""
        if self.agent is None:
            return
        print("\n".join(f"    {line}" for line in self.agent.screen().splitlines() if line), flush=True)
        self.model.set("text")
        repair = {"draft": "C-u", "permission": "Escape"}.get(self.agent.state())
        if repair:
            self.agent.keys(repair)
        self.agent.wait("ready", 20)

    def other(self, name, **options):
        """Another agent of the kind, with another home."""
        agent = Agent(self.scratch, self.provider, name, **options)
        agent.type(COMMANDS[self.provider])
        return agent

    def refused(self, agent, *reasons):
        """A nudge now says no, presses nothing that matters and asks the model nothing."""
        count = self.model.set(self.model.mode, self.model.command)
        time.sleep(1)
        before = still(agent.screen())
        agent.run("send", "--to", "w1", "-m", "mail")
        code, text = agent.run("nudge", "w1")
        expect(code == BUSY_EXIT, f"nudge: exit {code}: {text.strip()}")
        expect(any(reason in text for reason in reasons), f"nudge: {text.strip()}")
        time.sleep(1)
        expect(still(agent.screen()) == before, "the screen has changed")
        expect(not self.model.since(count), "the model was asked")
        self.drain(agent)

    @staticmethod
    def drain(agent):
        while agent.run("recv", "--as", "w1", "--lease", "1d")[0] == 0:
            pass

    def is_state(self, agent, state, seconds=20):
        seen = agent.wait(state, seconds)
        expect(seen == state, f"expected {state}, seen {seen}: {agent.inspect().get('evidence')}")

    def trust(self):
        if (self.provider, "trust") in ABSENT:
            return ABSENT[self.provider, "trust"]
        agent = self.other("-trust", trusted=False)
        self.is_state(agent, "trust", 30)
        children = agent.children()
        self.refused(agent, "dialog")
        code, _ = agent.run("ping", "w1")
        expect(code == 1, f"ping: exit {code}")
        self.is_state(agent, "trust")
        expect(agent.children() == children, "the agent has ended")
        return agent.close()

    def login(self):
        agent = self.other("-login", key=False)
        self.decline_offer(agent)
        self.is_state(agent, "login", 60)
        children = agent.children()
        self.refused(agent, "not_ready")
        expect(agent.children() == children, "the agent has ended")
        return agent.close()

    def decline_offer(self, agent, nudge=True):
        """Claude Code offers another permission mode at first; a human says no."""
        if self.provider == "claude":
            self.is_state(agent, "dialog", 30)
            if nudge:
                self.refused(agent, "dialog")
            # What begins in the background is still painted.
            settled(lambda: False, 0 if nudge else 3)
            agent.keys("Down")
            agent.keys("Enter")

    def ready(self):
        self.agent = self.other("")
        self.decline_offer(self.agent)
        self.is_state(self.agent, "ready", 90)
        self.children = self.agent.children()

    def nudge_idle(self):
        agent, count = self.agent, self.model.set("text")
        agent.run("send", "--to", "w1", "-m", "mail")
        tries = [agent.run("nudge", "w1")]
        # The screen may not show in time what was typed; later only Enter is missing.
        while tries[-1][0] == BUSY_EXIT and "moved" in tries[-1][1] and len(tries) < 5:
            time.sleep(2)
            tries.append(agent.run("nudge", "w1"))
        code, text = tries[-1]
        expect(code == 0, f"exit {code}: {text.strip()}")
        settled(lambda: self.model.since(count), 10)
        self.is_state(agent, "ready")
        prompts = [asked.prompt for asked in self.model.since(count)]
        expect(prompts == ["ensemble: 1 message for w1. Run: ensemble recv --as w1"], f"asked: {prompts}")
        self.drain(agent)
        return f"submitted at try {len(tries)}, slowly painted" if len(tries) > 1 else ""

    def busy(self):
        self.model.set("slow")
        self.agent.type("work")
        self.is_state(self.agent, "busy")
        release = self.model.release
        self.agent.run("send", "--to", "w1", "-m", "mail")
        code, text = self.agent.run("nudge", "w1")
        expect(code == BUSY_EXIT and "busy" in text, f"nudge: exit {code}: {text.strip()}")
        expect("ensemble: 1 message for w1" not in self.agent.screen().rsplit("work", 1)[-1], "it was typed")
        self.drain(self.agent)
        count = self.model.set("text")
        release.set()
        self.is_state(self.agent, "ready")
        expect(not self.model.since(count), "the model was asked again")

    def draft(self):
        self.model.set("text")
        self.agent.type(DRAFT, enter=False)
        self.is_state(self.agent, "draft")
        self.refused(self.agent, "draft")
        code, _ = self.agent.run("ping", "w1")
        expect(code == 1, f"ping: exit {code}")
        expect(DRAFT in self.agent.screen(), "the draft is gone")
        self.is_state(self.agent, "draft")
        self.agent.keys("C-u")
        self.is_state(self.agent, "ready")

    def permission(self):
        mark = self.agent.project / "mark"
        self.model.set("tool", f"touch {mark}")
        self.agent.type("go")
        self.is_state(self.agent, "permission")
        self.refused(self.agent, "dialog")
        expect(not mark.exists(), "the command was run")
        self.is_state(self.agent, "permission")
        self.model.set("text")
        self.agent.keys("Escape")
        self.is_state(self.agent, "ready")

    def ping(self, pong):
        count = self.model.set("text", pong=pong)
        code, text = self.agent.run("ping", "w1")
        expect(code == 0, f"exit {code}: {text.strip()}")
        asked = [asked for asked in self.model.since(count) if not asked.after_tool]
        prompts = [asked.prompt for asked in asked]
        expect(prompts == ["AGENT_TEAM_PING w1 1"], f"asked: {prompts}")
        self.is_state(self.agent, "ready")

    def ping_screen(self):
        self.ping("screen")

    def ping_shell(self):
        return self.ping("shell")

    def refusal(self, mode, state):
        self.model.set(mode)
        self.agent.type("go on")
        self.is_state(self.agent, state, 30)
        settled(lambda: False, 2)
        self.refused(self.agent, "not_ready")
        # Its human repairs that; the old error on the screen must not count any more.
        self.model.set("text")
        if self.provider != "opencode":
            self.agent.type("again")
        self.is_state(self.agent, "ready", 60)

    def bad_key(self):
        if (self.provider, "bad key") in ABSENT:
            return ABSENT[self.provider, "bad key"]
        return self.refusal("401", "login")

    def rate_limit(self):
        self.refusal("429", "rate_limited")

    def ladder(self):
        """A worker that answers pings and never takes its task: a nudge at once and in each phase."""
        agent, count = self.agent, self.model.set("text")
        agent.run("assign", "w1", "-", "--task", "t1", "--timeout", "90s", text="a task")
        expect(agent.children() == self.children, "the agent has ended")
        expect((agent.project / "queue/reports/escalation-t1.yaml").exists(), "nobody was told")
        prompts = [asked.prompt for asked in self.model.since(count)]
        nudges = [prompt for prompt in prompts if prompt.startswith("ensemble: 1 message for w1.")]
        others = [prompt for prompt in prompts if prompt not in nudges and "AGENT_TEAM_PING" not in prompt]
        expect(not others, f"asked: {others}")
        expect(len(nudges) == 4, f"{len(nudges)} nudges have arrived")
        fresh = len([asked for asked in self.model.since(count) if len(asked.prompts) == 1])
        expect(fresh >= 1, "the context was not reset")
        self.is_state(agent, "ready")
        self.drain(agent)

    def crash(self):
        for pid in self.agent.children():
            os.kill(int(pid), signal.SIGKILL)
        self.is_state(self.agent, "crashed")
        time.sleep(1)
        before = self.agent.screen()
        self.agent.run("send", "--to", "w1", "-m", "mail")
        code, text = self.agent.run("nudge", "w1")
        expect(code != 0 and "bare_shell" in text, f"nudge: exit {code}: {text.strip()}")
        expect(self.agent.screen() == before, "it was typed")

    def steps(self):
        """Three steps through the tools: success; failure, then its fix; blocked, then unblocked."""
        self.model.set("text")
        agent = self.agent = self.other("-steps", mcp=True)
        expect(agent.installed[0] == 0, f"mcp install: {agent.installed[1].strip()}")
        self.decline_offer(agent, nudge=False)
        self.is_state(agent, "ready", 90)
        queue, worker = Queue(agent), Worker()
        expect(queue.added[0] == 0, f"step add: {queue.added[1].strip()}")
        self.model.follow(worker)
        queue.drive()
        try:
            self.follow(queue, worker)
        finally:
            if queue.driver.poll() is None:
                queue.kill_driver()
        self.is_state(agent, "ready")
        agent.close()
        self.agent = None

    @staticmethod
    def follow(queue, worker):
        """The driver is killed once on the way, and another one goes on."""
        agent = queue.agent
        expect(queue.reaches(1, "COMPLETED"), f"step 1 is {queue.show(1)['status']}")
        queue.kill_driver()
        queue.drive()
        expect(queue.reaches(3, "BLOCKED"), f"step 3 is {queue.show(3)['status']}, runs: {queue.outcomes()}")
        code, text = agent.run("recv", "--as", "conductor", "--json")
        expect(code == 0 and "step.blocked" in text, f"the orchestrator was not told: {text.strip()}")
        agent.run("step", "unblock", TASK, "3", "--note", NOTE)
        code = queue.ends()
        expect(code == 0, f"step run: exit {code}, runs: {queue.outcomes()}")
        expect(queue.outcomes() == OUTCOMES, f"runs: {queue.outcomes()}")
        expect(len(worker.reported) == 5, f"{len(worker.reported)} reports")
        expect("left by step 1" in worker.handed[1], "step 2 does not know what step 1 has left")
        expect("401 expected" in worker.handed[2], "the fix was asked for without the error")
        settled = len(list((agent.project / "queue/mailbox/w1/done").iterdir()))
        expect(settled == 5, f"{settled} prompts are settled")


def still(screen):
    """A screen without what moves by itself."""
    return re.sub(r"[⬝■✶✻✽✢·*◦•●⠀-⣿▀-▟\s]|\d+s?|\S+…", "", screen)
