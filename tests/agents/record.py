"""Keeps the screens of an agent in the states that its profile must know, for the profile's tests.

Nothing here relies on what the profile makes of a screen: a person looks at the files before they are
committed to `crates/ensemble-tmux/src/provider/recorded/`.
"""

import time
from pathlib import Path

from checks import DIALOGS, Checks, expect, rests
from scratch import Agent, settled

# How long an agent has to show what it was asked for.
PAINT_SECONDS = 40


class Record(Checks):
    def __init__(self, scratch, model, provider, directory):
        super().__init__(scratch, model, provider)
        self.file = Path(directory) / f"{provider}-{scratch.width}.txt"
        self.file.write_text("")

    def order(self):
        return [("screens", self.screens)]

    def recover(self):
        return False

    def save(self, name):
        rests(self.agent)
        with self.file.open("a") as file:
            file.write(f"=== {name}\n{self.agent.recorded()}\n")

    def shows(self, text, what):
        found = settled(lambda: text in self.agent.squeezed(), PAINT_SECONDS)
        expect(found, f"{what}: {self.agent.screen()}")

    def screens(self):
        agent = self.agent = Agent(self.scratch, self.provider, trusted=False)
        agent.up()
        for name, keys in DIALOGS[self.provider]:
            self.shows({"trust": "rust", "dialog": "automode"}[name], name)
            self.save(name)
            self.press(agent, keys)
        composer = {"claude": "❯", "codex": "fora", "gemini": "Typeyourmessage", "opencode": "ctrl+p",
                    "copilot": "/commands", "kimi": "context:", "qwen": "Typeyourmessage"}[self.provider]
        self.shows(composer, "the composer")
        settled(lambda: False, 5)
        self.save("ready")
        agent.type("half a sentence", enter=False)
        self.shows("halfasentence", "a draft")
        self.save("draft")
        agent.keys("C-u")
        self.states(agent)

    def states(self, agent):
        rests(agent)
        count = self.model.set("slow")
        self.ask("work", count)
        self.save("busy")
        count = self.model.set("tool", f"touch {agent.project / 'mark'}")
        settled(lambda: False, 3)
        self.ask("go", count)
        settled(lambda: False, 4)
        self.save("permission")
        count = self.model.set("text")
        agent.keys("Escape")
        rests(agent)
        settled(lambda: False, 2)
        self.ask("a word", count)
        agent.keys("Escape")
        self.save("ready after Escape")
        # Codex shows its hint until the next key.
        agent.type("x", enter=False)
        agent.keys("C-u")
        if self.provider == "gemini":
            self.loop(agent)
        for name, retry_after in (("limited", 60), ("limited without end", None)):
            count = self.model.set("429", retry_after=retry_after)
            self.ask("go on", count)
            settled(lambda: False, 5)
            self.save(name)
            if name == "limited":
                agent.keys("Escape")
                time.sleep(0.5)
                if self.provider == "opencode":
                    agent.keys("Escape")
                rests(agent)
                agent.keys("C-u")

    def loop(self, agent):
        """Gemini asks a person what to do about a turn that repeats itself."""
        count = self.model.set("loop", "ensemble agent whoami")
        self.ask("turn in circles", count)
        self.shows("potentialloop", "the loop")
        self.model.set("text")
        self.save("dialog")
        agent.keys("Escape")
        rests(agent)

    def ask(self, text, count):
        self.agent.type(text)
        expect(settled(lambda: self.model.since(count), PAINT_SECONDS), f"`{text}` did not reach the model")
        settled(lambda: False, 1.5)
