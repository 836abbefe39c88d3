"""What the four agents' models do in an evening, by our commands."""

import json
import re
import threading
from datetime import datetime

from reader import HINT, newest

NAMES = {"claude": "cora", "codex": "coda", "opencode": "opal", "gemini": "gem"}
# Which agent asks its model by which API.
APIS = {"messages": "cora", "responses": "coda", "completions": "opal", "enerateContent": "gem"}
# Tools of a long piece of work, each a little different: Gemini takes equal calls for a loop.
WORK, TOOLS_MAX = "sleep 4.{:03}", 20


class Colleagues:
    """What the agents' models do: always what was said last, and nothing that they were not told."""

    QUESTION = r'ensemble reply ({name}-[a-z]+)'

    def __init__(self):
        self.lock = threading.Lock()
        # What each has been given as new, in this order, and when it has begun each tool of its work.
        self.given, self.tools, self.working, self.prompted = [], {}, set(), {}

    def answer(self, asked):
        said = json.dumps(newest(asked.body))
        name = next(name for api, name in APIS.items() if api in asked.path)
        with self.lock:
            commands, words = self.respond(name, said)
        if commands:
            return asked.shell("; ".join(commands), inside=True)
        if name in self.working:
            return asked.shell(self.work(name), inside=True)
        return words

    def respond(self, name, said):
        """The commands that what was said makes this agent run, and otherwise its words."""
        commands, words = [], "Done."
        prompts = re.findall(r"you (?:still hold|were given)", said)
        for question in dict.fromkeys(re.findall(self.QUESTION.format(name=name), said)):
            kind, reply = question.split("-")[1], self.reply(question, f"answer {question}")
            if prompts:
                self.prompted[question] = self.prompted.get(question, 0) + 1
                # It forgets once more.
                commands += [reply] * (kind != "forget" or self.prompted[question] > 1)
                continue
            self.given.append(question)
            if kind in ("words", "forget"):
                words = "main.rs has 42 lines."
            elif kind == "back":
                commands.append(self.reply(question, f"which file, {question}"))
            elif kind == "long":
                self.working.add(name)
            else:
                self.working.discard(name)
                commands.append(reply)
                commands += self.settle(f"{name}-long") if kind == "stop" else []
        for question, answer in self.threads(name, said):
            commands.append(self.reply(answer, f"answer {question}"))
        if not commands and HINT.search(said):
            commands.append("ensemble recv")
        return commands, words

    def reply(self, question, text):
        return f"ensemble reply {question} '{text}'"

    def settle(self, question):
        return [f"ensemble settle {question}"]

    def threads(self, name, said):
        """What the person has answered: the first question, and the message."""
        return re.findall(r"Answer from operator.{1,200}?main\.rs, (\w+-back).*?ensemble reply (\S+) ", said)

    def work(self, name):
        tools = self.tools.setdefault(name, [])
        tools.append(datetime.now().astimezone())
        if len(tools) >= TOOLS_MAX:
            self.working.discard(name)
        return WORK.format(len(tools))


def moment(text):
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
