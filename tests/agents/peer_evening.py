"""The same evening by hcom, in turns with ours: as much of it as hcom has, with agents and a model of its own."""

import json
import re
import time
from datetime import datetime

from checks import expect, rests
from colleagues import NAMES, Colleagues, moment
from model_server import ModelServer
from providers import CONFIGURE
from scratch import Scratch, settled
from sides import COMPOSERS, READY_SECONDS, PeerAgent, lets_sleep

# What is not answered so long after ours was is not answered.
MISSED_SECONDS = 30


class PeerColleagues(Colleagues):
    """They answer by `hcom send`."""

    QUESTION = r"question ({name}-[a-z]+)"

    def __init__(self):
        super().__init__()
        self.called = {}

    def reply(self, question, text):
        return f"hcom send @bigboss --name {self.called[question.split('-')[0]]} -- {text}"

    def settle(self, question):
        return []

    def threads(self, name, said):
        return re.findall(rf"main\.rs, (({name}-back))", said)


class PeerEvening:
    """Four agents in one home, as `hcom claude` and its like start them."""

    def __init__(self, evening):
        self.cells, self.names = evening.cells, list(evening.agents)
        self.model, self.colleagues, self.sent = ModelServer(), PeerColleagues(), {}
        ours = evening.scratch
        self.own = Scratch(ours.ensemble_path, ours.agents_dir, self.model.url, 100, "gemini")
        self.model.follow(self.colleagues)
        first = self.first = PeerAgent(self.own, "claude", "-hcom", "hcom claude")
        self.gather(first)

    def gather(self, first):
        for provider, name in NAMES.items():
            if name not in self.names:
                continue
            pane = first.pane
            if provider != "claude":
                first.environment |= CONFIGURE[provider](first)
                first.provider = provider
                lets_sleep(first)
                settings = [f"{key}={value}" for key, value in first.environment.items()]
                first.tmux("new-window", "-c", str(first.project), "env", *settings, "hcom", provider)
                pane = first.tmux("list-panes", "-s", "-F", "#{pane_id}").splitlines()[-1]
            listens = lambda: next((row["name"] for row in self.rows() if row["tool"] == provider
                                    and row["status"] == "listening"), None)
            first.pane = pane
            expect(settled(listens, READY_SECONDS), f"hcom {provider} does not listen: {first.screen()}")
            self.colleagues.called[name] = listens()
            settled(lambda: COMPOSERS[provider] in first.squeezed(), READY_SECONDS)
            rests(first)

    def close(self):
        self.first.hcom("kill", "all")
        self.first.tmux("kill-server")
        self.own.close()
        self.model.close()

    def rows(self):
        return json.loads(self.first.hcom("list", "--json")[1] or "[]")

    def ask(self, kind, text):
        for name in self.names:
            self.sent.setdefault(f"{name}-{kind}", datetime.now().astimezone())
            code, said = self.first.hcom("send", f"@{self.colleagues.called[name]}", "-b", "--intent", "request", "--",
                                   f"{text} (question {name}-{kind})")
            expect(code == 0, f"hcom send: exit {code}: {said}")

    def find(self, words):
        """When the person was sent these words."""
        events = [json.loads(line) for line in self.first.hcom("events", "--full", "--type", "message", "--last", "500")[1]
                  .splitlines() if line.startswith("{")]
        return sorted(moment(event["ts"]) for event in events if event["data"].get("from") != "bigboss"
                      and re.search(rf"{re.escape(words)}\b", event["data"]["text"]))

    def are_answered(self, *kinds):
        """Notes when each was answered, or that it was not."""
        deadline = time.monotonic() + MISSED_SECONDS
        for kind in kinds:
            for name in self.names:
                words = f"answer {name}-{kind}"
                settled(lambda: self.find(words), deadline - time.monotonic())
                self.note(kind, name, self.find(words))

    def note(self, kind, name, answers):
        sent = self.sent[f"{name}-{kind}"]
        cell = f"{(answers[0] - sent).total_seconds():.1f} s" if answers else f"not in {MISSED_SECONDS} s"
        self.cells[f"`{kind}`: asked to answered", f"{name} by hcom"] = cell

    def asked_back(self):
        self.ask("back", "how many lines has it?")
        for name in self.names:
            if settled(lambda: self.find(f"which file, {name}-back"), MISSED_SECONDS):
                self.first.hcom("send", f"@{self.colleagues.called[name]}", "-b", "--", f"main.rs, {name}-back")
        self.are_answered("back")

    def asked_twice(self):
        for _ in range(2):
            self.ask("twice", "how many tests has it?")
        self.are_answered("twice")
        for name in self.names:
            rests(self.first)
            count = self.colleagues.given.count(f"{name}-twice")
            self.cells["`twice`: given", f"{name} by hcom"] = str(count)

    def stopped(self):
        self.ask("long", "count all lines, one file after the other")
        for name in self.names:
            settled(lambda: self.colleagues.tools.get(name), MISSED_SECONDS)
        self.ask("later", "and then the tests")
        self.ask("stop", "stop: wrong branch")
        self.are_answered("stop", "later")
        given = self.colleagues.given
        for name in self.names:
            column, stop, later = f"{name} by hcom", f"{name}-stop", f"{name}-later"
            after = [at for at in self.colleagues.tools.get(name, []) if at > self.sent[stop]]
            self.cells["tools that begin after a stop", column] = str(len(after))
            is_first = stop in given and (later not in given or given.index(stop) < given.index(later))
            self.cells["`stop` overtakes `later`", column] = "yes" if is_first else "no"
            self.colleagues.working.discard(name)

    def answered_in_words(self):
        self.ask("now", "how many lines has main.rs?")
        self.ask("words", "how many lines has main.rs?")
        self.are_answered("now", "words")

    def forgotten(self):
        self.ask("forget", "is main.rs formatted?")
        self.are_answered("forget")
