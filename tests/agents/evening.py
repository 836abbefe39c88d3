"""A person's evening with one agent of each program in one project: they are asked, ask back, forget, and are stopped."""

import copy
import json
import os
import re
from datetime import datetime

from checks import Checks, expect
from colleagues import NAMES, Colleagues, moment
from peer_evening import PeerEvening
from providers import CONFIGURE
from scratch import Agent, Scratch, settled
from sides import lets_sleep

TEAM = """agents:
{agents}
team: {{columns: 100, lines: 40}}
notify: [{{when: [answered], command: cat, delay: 0}}]
"""
# Short enough that a message which is forgotten comes again while the evening lasts.
LEASE = "20s"
READY_SECONDS, ANSWERED_SECONDS, FORGOTTEN_SECONDS = 120, 90, 180
# From the moment that an answer is written to its record in the person's mailbox, and to the alert. The alerts of a busy
# machine are later, since the watcher looks less often there.
SEEN_SECONDS, SPARE_LOAD = 2.0, os.cpu_count()
# The tool that runs when somebody says stop, and none after it.
TOOLS_AFTER_STOP = 1


class Colleague(Agent):
    """One agent of the team. The person has no agent's name."""

    def person(self):
        return {name: value for name, value in super().person().items() if name != "ENSEMBLE_AGENT_ID"}


class Evening(Checks):
    """Walked once, with all agents that are installed."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.cells, self.agents, self.own, self.peers = {}, {}, None, None
        # Each question, and when it was asked first.
        self.asked = {}
        self.colleagues = Colleagues()

    def order(self):
        if self.provider != "claude":
            return []
        return [("an evening with four agents", self.evening)]

    def recover(self):
        if self.own is not None:
            for agent in self.agents.values():
                print("\n".join(f"    {line}" for line in agent.screen().splitlines() if line), flush=True)
            self.close()
        return True

    def close(self):
        self.own.close()
        if self.peers:
            self.peers.close()
        self.agents, self.own, self.peers = {}, None, None

    def evening(self):
        self.gather()
        self.model.follow(self.colleagues)
        # hcom does each act after us, so that a busy minute is the same for both.
        self.peers = PeerEvening(self) if self.own.has("hcom") else None
        for act in ("answered_in_words", "asked_back", "asked_twice", "stopped", "forgotten"):
            getattr(self, act)()
            if self.peers:
                getattr(self.peers, act)()
        self.nothing_is_left()
        self.do("down", "--force")
        self.close()

    def gather(self):
        """`init`, a file with four names, `up`: as a person begins."""
        # Gemini is the one that is choosy about its directory.
        self.own = Scratch(self.scratch.ensemble_path, self.scratch.agents_dir, self.model.url, 100, "gemini")
        first = self.first = Colleague(self.own, "claude", "-evening", hooked=True)
        installed = {provider: name for provider, name in NAMES.items() if self.own.has(provider)}
        for provider, name in installed.items():
            agent = first if provider == "claude" else copy.copy(first)
            agent.provider, agent.name = provider, name
            if agent is not first:
                # Codex is started as by default: without hooks, and with a person's leave for `ensemble`.
                agent.hooked = provider != "codex"
                first.environment |= CONFIGURE[provider](agent)
            lets_sleep(agent)
            self.agents[name] = agent
            first.run("mailbox", "add", name, "--lease", LEASE)
        rows = "\n".join(f"  {name}: {{provider: {provider}}}" for provider, name in installed.items())
        (first.project / "ensemble.yaml").write_text(TEAM.format(agents=rows))
        self.do("up")
        for agent in self.agents.values():
            agent.pane = agent.find_pane()
            self.is_steady(agent, READY_SECONDS)

    def answered_in_words(self):
        """The model says the answer to its own screen; at the end of its turn it is asked for it."""
        self.ask("now", "how many lines has main.rs?")
        self.are_answered("now")
        self.ask("words", "how many lines has main.rs?")
        self.are_answered("words")

    def asked_back(self):
        self.ask("back", "how many lines has it?")
        for name in self.agents:
            asked = lambda: self.find(f"which file, {name}-back")
            expect(settled(asked, ANSWERED_SECONDS), f"{name} asks nothing back")
            self.do("reply", asked()[0]["id"], f"main.rs, {name}-back")
        self.are_answered("back")

    def asked_twice(self):
        """The same question once more is no second question."""
        for _ in range(2):
            self.ask("twice", "how many tests has it?")
        self.are_answered("twice")

    def stopped(self):
        """A stop reaches an agent at work before what was sent earlier, and at the next tool at the latest."""
        self.ask("long", "count all lines, one file after the other")
        for name in self.agents:
            expect(settled(lambda name=name: self.colleagues.tools.get(name), ANSWERED_SECONDS), f"{name} begins no work")
        self.ask("later", "and then the tests", "--when", "turn")
        self.ask("stop", "stop: wrong branch", "--when", "interrupt")
        self.are_answered("stop", "later")
        given = self.colleagues.given
        for name in self.agents:
            sent = self.stored(f"{name}-stop")
            after = [at for at in self.colleagues.tools[name] if at > sent]
            self.cells["tools that begin after a stop", name] = str(len(after))
            self.cells["`stop` overtakes `later`", name] = "yes"
            expect(len(after) <= TOOLS_AFTER_STOP, f"{name} began {len(after)} tools after the stop")
            expect(given.index(f"{name}-stop") < given.index(f"{name}-later"), f"{name} read the stop late: {given}")

    def forgotten(self):
        """Read and not settled: asked about it, and answered once."""
        self.ask("forget", "is main.rs formatted?")
        self.are_answered("forget", seconds=FORGOTTEN_SECONDS)

    def ask(self, kind, text, *options):
        """Asks each of them."""
        for name in self.agents:
            self.asked.setdefault(f"{name}-{kind}", datetime.now().astimezone())
            self.do("send", "--to", name, "--id", f"{name}-{kind}", *options, text)

    def do(self, *words):
        """What the person runs; gives what it says."""
        code, said = self.first.run(*words)
        expect(code == 0, f"{' '.join(words)}: exit {code}: {said}")
        return said

    def are_answered(self, *kinds, seconds=ANSWERED_SECONDS):
        """The person has each answer, is alerted in time, and reads all."""
        for name, agent in self.agents.items():
            for kind in kinds:
                words = f"answer {name}-{kind}"
                expect(settled(lambda: self.find(words), seconds), f"no {words!r}: {agent.member()} {agent.screen()}")
            settled(lambda: agent.waiting() == 0, ANSWERED_SECONDS)
            self.is_state(agent, "ready", ANSWERED_SECONDS)
        for name in self.agents:
            for kind in kinds:
                stored, alerted = self.seen(name, kind)
                took = moment(self.find(f"answer {name}-{kind}")[0]["created_at"]) - self.asked[f"{name}-{kind}"]
                self.cells[f"`{kind}`: asked to answered", name] = f"{took.total_seconds():.1f} s"
                self.cells[f"`{kind}`: written to stored, alerted", name] = f"{stored:.2f}, {alerted:.2f} s"
                expect(stored <= SEEN_SECONDS, f"{name}: the answer to {kind} was stored after {stored} s")
                is_busy = os.getloadavg()[0] > SPARE_LOAD
                expect(is_busy or alerted <= SEEN_SECONDS, f"{name}: alerted of {kind} after {alerted} s")
        said = self.do("recv")
        missing = [name for name in self.agents for kind in kinds if f"answer {name}-{kind}" not in said]
        expect(not missing, f"recv without {missing}: {said}")

    def seen(self, name, kind):
        """Seconds from the answer's own time to its record, and to the alert that names its agent."""
        answer = self.find(f"answer {name}-{kind}")[0]
        stored = self.stored(answer["id"])
        told = lambda: [at for at, data in self.records("alert.sent")
                        if data["agent"] == name and at >= moment(answer["created_at"])]
        expect(settled(told, ANSWERED_SECONDS), f"nobody was alerted that {name} answered {kind}")
        return [(at - moment(answer["created_at"])).total_seconds() for at in (stored, told()[0])]

    def nothing_is_left(self):
        """Each question was given and answered once, transcripts show it, and nothing is a dead letter."""
        for question in self.asked:
            if question.endswith("-long"):
                continue
            answers = self.find(f"answer {question}")
            expect(len(answers) == 1, f"{question} was answered {len(answers)} times")
            expect(self.colleagues.given.count(question) == 1, f"{question} was given as new: {self.colleagues.given}")
            self.cells["`twice`: given", question.split("-")[0]] = "1"
        for name, agent in self.agents.items():
            expect(agent.waiting() == 0, f"{name} has {agent.waiting()} messages")
        confirmed = [one for _, data in self.records("receipt.confirmed") for one in data["ids"]]
        for name in self.agents:
            expect(f"{name}-now" in confirmed, f"no record of its own shows {name}-now: {confirmed}")
        said = self.do("dead", "list", "--json")
        expect(not said.strip(), f"dead letters: {said}")

    def find(self, words):
        """The person's messages with these words, read or not."""
        box = self.first.project / "queue/mailbox/operator"
        found = {}
        for part in ("new", "front", "cur", "done"):
            for file in (box / part).iterdir():
                try:
                    text = file.read_text()
                except OSError:
                    continue  # It has just moved.
                if re.search(rf"{re.escape(words)}\b", text):
                    found[file.name.split("@")[0]] = dict(re.findall(r'^(\w+): "?([^"\n]+)"?$', text, re.M))
        return list(found.values())

    def records(self, kind):
        """The event log's records of a type, with their times."""
        rows = [json.loads(line) for line in self.first.run("log", "--json", "--type", kind)[1].splitlines()]
        return [(moment(row["timestamp"]), row["data"]) for row in rows]

    def stored(self, message):
        return next(at for at, data in self.records("message.stored") if data["id"] == message)
