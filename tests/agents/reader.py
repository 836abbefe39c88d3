"""What the model does with mail: it runs what a nudge tells it, settles what it gets, answers requests."""

import itertools
import json
import re

NUDGE = re.compile(r"^ensemble: \d+ messages? for (w\d)\. Run: (ensemble recv(?: --as w\d)?)$")
# As they stand in a JSON string, however often that was quoted.
MESSAGE = re.compile(r'\\*"id\\*":\s*\\*"([^"\\]+)\\*",\s*\\*"mailbox')
# The id of a message in what a hook or `recv` says, however often that was quoted.
ID = re.compile(r'(?:\\+n|\\*")id:? {2,}([0-9A-Za-z._-]+)|ensemble settle ((?=[a-z.-]*\d)[0-9A-Za-z._-]+)')
# What says that mail waits, and has none of it.
HINT = re.compile(r"ensemble: .{1,40} Run: ensemble recv|messages? waits? in mailbox")
# Who `ensemble agent whoami` says an agent is.
NAME = re.compile(r'\\*"agent\\*":\s*\\*"(w\d)')
REQUEST = re.compile(r'\\*"type\\*":\s*\\*"\w+_request\\*".*?\\*"correlation_id\\*":\s*\\*"([^"\\]+)')


class Reader:
    def __init__(self, approves=True, receives=True):
        self.approves, self.receives, self.held = approves, receives, None

    def answer(self, asked):
        if not asked.after_tool:
            told = nudge(asked)
            if not told and self.held:
                # A person came in between; what was received is still to be done.
                return asked.shell(f"ensemble settle {self.held}", inside=True)
            return asked.shell(f"{told} --json", inside=True) if told and self.receives else "Understood."
        found, request = MESSAGE.search(asked.result), REQUEST.search(asked.result)
        if not found:
            self.held = None
            return "Done."
        self.held = found[1]
        done = f"ensemble settle {found[1]}"
        if request:
            word = "--approve" if self.approves else "--reject"
            done = f"ensemble request answer {request[1]} {word} --reason scripted"
        return asked.shell(f"{done}; ensemble recv --as w1 --json", inside=True)


def nudge(asked):
    """The command in a prompt that is a nudge and nothing else."""
    lines = asked.prompt.splitlines()
    told = NUDGE.match(lines[-1]) if lines and not asked.after_tool else None
    return told and told[2]


class Twins:
    """Receives and settles, and notes who `ensemble` takes each agent for."""

    def __init__(self):
        self.names, self.answers = [], []

    def answer(self, asked):
        if not asked.after_tool:
            told = nudge(asked)
            return asked.shell(f"ensemble agent whoami --json; {told} --json", inside=True) if told else "Understood."
        self.answers.append(asked.result)
        found, name = MESSAGE.search(asked.result), NAME.search(asked.result)
        if name:
            self.names.append(name[1])
        return asked.shell(f"ensemble settle {found[1]}", inside=True) if found else "Done."


class Settler:
    """Settles each message that the newest part of a request has handed over; `before` is run first."""

    def __init__(self, before=""):
        self.before, self.names, self.answers, self.last = before, [], [], []

    def answer(self, asked):
        said = json.dumps(newest(asked.body))
        name, ids = NAME.search(said), list(dict.fromkeys(one or other for one, other in ID.findall(said)))
        # Qwen repeats a command in its result.
        ids = self.last = [one for one in ids if not asked.after_tool or one not in self.last]
        if name:
            self.names.append(name[1])
            self.answers.append(said)
        if ids:
            return asked.shell("; ".join([*self.first(asked), *(f"ensemble settle {one}" for one in ids)]), inside=True)
        if HINT.search(said):
            return asked.shell("; ".join([*self.first(asked), "ensemble recv"]), inside=True)
        return Answers.answer(asked)

    def first(self, asked):
        """What is run before the first command of a turn."""
        return [self.before] if self.before and not asked.after_tool else []


class Correspondent:
    """Answers a message, or passes it on where it says so; an answer is only read."""

    ANSWER, PASSED_ON = "read and done", "passed on"

    def answer(self, asked):
        said = json.dumps(newest(asked.body))
        ids = [one or other for one, other in ID.findall(said)]
        if not ids:
            return asked.shell("ensemble recv", inside=True) if HINT.search(said) else "Done."
        to = re.search(r"pass this on to (w\d)", said)
        if "Answer from" in said or self.PASSED_ON in said:
            return asked.shell(f"ensemble settle {ids[0]}", inside=True)
        if to:
            command = f"ensemble send --to {to[1]} '{self.PASSED_ON}'; ensemble settle {ids[0]}"
            return asked.shell(command, inside=True)
        return asked.shell(f"ensemble reply {ids[0]} '{self.ANSWER}'", inside=True)


class Answers:
    """Answers in words, in others each time: Gemini takes equal answers within a turn for a loop."""

    NUMBERS = itertools.count(1)

    @staticmethod
    def answer(asked):
        return f"{'Done' if asked.after_tool else 'Understood'}: {next(Answers.NUMBERS)}."


class Turn:
    """Runs one command, then does as `rest` says."""

    def __init__(self, command, inside, rest):
        self.command, self.inside, self.rest, self.has_run = command, inside, rest, False

    def answer(self, asked):
        if self.has_run or asked.after_tool:
            return self.rest.answer(asked)
        self.has_run = True
        return asked.shell(self.command, inside=self.inside)


def is_reminder(asked):
    """Whether a turn continues for nothing but what its agent still holds."""
    said = json.dumps(newest(asked.body))
    return "Reminder: you still hold" in said and "Message from" not in said


def newest(body):
    """What came after the model's last answer."""
    items = body.get("messages") or body.get("input") or body.get("contents") or []
    items = items if isinstance(items, list) else [items]
    spoke = [at for at, item in enumerate(items)
             if item.get("role") in ("assistant", "model") or item.get("type") in ("function_call", "reasoning")]
    return items[spoke[-1] + 1:] if spoke else items
