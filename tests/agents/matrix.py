"""Agent × way × situation, all ways of one agent in turns, so that one machine's minute is the same for all."""

import json
import os
import re
import signal
import statistics
import time

from checks import Checks, expect
from hooked import HOOKED
from reader import Reader, Turn, is_reminder, newest
from scratch import settled
from sides import READY_SECONDS, sides

SENDS = 3
# How many are sent one after the other without waiting, and how long they may take to arrive.
BURST = int(os.environ.get("BURST", "100"))
BURST_SECONDS = 300
# How long the model takes for each answer there. One that answers at once would count messages, not requests: each
# would find the one before it answered.
BURST_ANSWER_SECONDS = 1.0
# A token has about so many characters of a request.
TOKEN_CHARACTERS = 4
# Longer than any way that was seen to arrive at all, but for limits.
ARRIVES_SECONDS, LIMIT_SECONDS = 20, 100
# How long a message that is held back is watched.
HELD_SECONDS = 6
TOOL_SECONDS = 4
RETRY_AFTER_SECONDS = 15
# Without a network OpenCode looks for the packages of its plugins for minutes whenever it starts.
AGAIN_SECONDS = {"opencode": 300}
DRAFT = "half a sentence that is not fin"
CLEAR = {"opencode": "/new"}
COMPACT = {"gemini": "/compress"}
# Ours may take so much longer than hcom: other processes decide about hundredths.
RATIO_MAX, SLACK_SECONDS = 1.5, 0.1


class Matrix(Checks):
    KIND = "matrix"

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.cells, self.sides, self.late, self.sent = {}, [], [], {}

    def order(self):
        rows = ("idle", "working", "draft", "dialog", "copy-mode", "after clear", "mail waits at clear",
                "after compaction", "429", "many at once", "killed")
        return [(f"{self.KIND}: {row}", self.row, row) for row in rows]

    @property
    def of_a_ready_agent(self):
        return [name for name, *_ in self.order()]

    def ready_agent(self):
        self.model.set("text")
        for side in sides(self):
            try:
                side.start()
                self.sides.append(side)
            except Exception as failed:
                print(f"{self.provider} {side.way}: {failed!r}", flush=True)
                self.cells["start", side.way] = f"did not start: {failed}"
                self.late.append(side.way)
                if side.agent is not None:
                    print(side.agent.screen(), flush=True)
        return self.sides

    def recover(self):
        return bool(self.sides)

    def row(self, situation):
        """One situation for each way in turn; what must hold of ours is checked at the end."""
        act = getattr(self, situation.replace(" ", "_").replace("-", "_").replace("429", "limit"))
        wrong = [f"{way} did not start" for way in self.late if way in ("hooks", "terminal")]
        for side in self.sides:
            self.model.follow(side.reader)
            try:
                cell, holds = act(side)
            except Exception as failed:
                cell, holds = f"failed: {failed}", False
            self.cells[situation, side.way] = cell
            load = os.getloadavg()[0]
            print(f"    {self.provider:9} {situation:20} {side.way:10} {cell}, load {load:.1f}", flush=True)
            if side.way in ("hooks", "terminal") and holds is False:
                wrong.append(f"{side.way}: {cell}")
            self.model.follow(side.reader)
            side.rest()
        if situation == "idle":
            wrong += self.behind()
        expect(not wrong, "; ".join(wrong))

    def behind(self):
        """Whether hcom was quicker with an idle agent."""
        ours, theirs = (self.times.get(f"{self.KIND} {way} idle") for way in ("hooks", "hcom"))
        if ours is None or theirs is None or ours <= RATIO_MAX * theirs + SLACK_SECONDS:
            return []
        return [f"hooks took {ours:.2f} s, hcom {theirs:.2f} s"]

    def arrives(self, text, seconds=ARRIVES_SECONDS, after=0):
        """When the model was asked with this text, at or after a moment."""
        found = []

        def look():
            asked = [one for one in self.model.since(0) if one.at >= after and self.has(one, text)]
            found.extend(asked[:1])
            return found

        return found[0].at if settled(look, seconds) else None

    def send(self, side, text):
        self.sent.setdefault(side.way, []).append(text)
        return side.send(text)

    def is_left(self, side, text, begun=None):
        """Whether mail went to a conversation that the person has left: one with earlier mail, and not with what was typed last."""
        first = next(one for one in self.model.since(0) if self.has(one, text))
        earlier = [other for other in self.sent[side.way] if other != text]
        return any(self.has(first, other) for other in earlier) and not (begun and self.has(first, begun))

    @staticmethod
    def has(asked, text):
        return text in json.dumps(asked.body, ensure_ascii=False)

    def idle(self, side):
        took, sizes, before = [], [], len(self.model.asked)
        for number in range(SENDS):
            text, count = f"{side.way} idle {number}", len(self.model.asked)
            sent = self.send(side, text)
            at = self.arrives(text)
            expect(at, "it never arrived")
            took.append(at - sent)
            side.rest()
            own = [one for one in self.model.since(count) if not is_reminder(one)]
            sizes.append(sum(len(json.dumps(newest(one.body))) for one in own))
        middle = self.times[f"{self.KIND} {side.way} idle"] = statistics.median(took)
        requests = sum(not is_reminder(one) for one in self.model.since(before))
        holds = requests == SENDS or self.provider not in HOOKED
        # What one message brings into the conversation: its frame, or the hint and what the commands print.
        tokens = statistics.median(sizes) / TOKEN_CHARACTERS
        return f"{middle:.2f} s, {many(requests, 'request')} for {SENDS} messages, {tokens:.0f} tokens each", holds

    def working(self, side):
        text, count = f"{side.way} working", len(self.model.since(0))
        self.model.follow(Turn(f"sleep {TOOL_SECONDS}", True, side.reader))
        side.agent.type("run it")
        expect(settled(lambda: len(self.model.since(0)) > count, 20), "no turn has begun")
        time.sleep(1)
        sent = self.send(side, text)
        at = self.arrives(text)
        if at is None:
            return "not in 20 s", False
        later = self.model.since(0)[count + 1:]
        is_next = self.has(later[0], text) or (None if self.provider not in HOOKED else False)
        where = "in the next request of the turn" if is_next else "after the turn"
        return f"{where}, {at - sent:.1f} s", is_next

    def draft(self, side):
        text, count = f"{side.way} beside a draft", len(self.model.since(0))
        side.agent.type(DRAFT, enter=False)
        expect(settled(lambda: side.shows(DRAFT), 10), "the draft is not shown")
        sent = self.send(side, text)
        at = self.arrives(text, HELD_SECONDS * 2)
        asked = self.model.since(0)[count:]
        if any(re.search(re.escape(DRAFT), one.prompt) for one in asked):
            return "the draft was submitted with it", False
        is_there = settled(lambda: side.shows(DRAFT), 5)
        side.clear_line()
        if at:
            return f"{at - sent:.2f} s, draft {'intact' if is_there else 'gone'}", is_there
        freed = time.monotonic()
        at = self.arrives(text, 40)
        after = f"{at - freed:.1f} s after it is gone" if at else "and never delivered"
        return f"held back, draft {'intact' if is_there else 'gone'}; {after}", is_there and at is not None

    def dialog(self, side):
        text, mark = f"{side.way} at a dialog", side.agent.project / "mark"
        count = len(self.model.since(0))
        self.model.follow(Turn(f"touch {mark}", False, side.reader))
        side.agent.type("go")
        expect(settled(lambda: len(self.model.since(0)) > count, 20), "no turn has begun")
        side.rest()
        asked = len(self.model.since(0))
        sent = self.send(side, text)
        early = self.arrives(text, HELD_SECONDS)
        if mark.exists():
            return "answered the dialog: the command was run", False
        if early:
            return f"{early - sent:.1f} s, the dialog was answered", False
        if len(self.model.since(0)) > asked:
            return "the dialog was answered", False
        answered = time.monotonic()
        side.agent.keys("Enter")
        at = self.arrives(text, 40)
        if at is None:
            return "held back, and not delivered in 40 s after the answer", False
        return f"held back; {at - answered:.1f} s after the answer", True

    def copy_mode(self, side):
        if not side.in_tmux:
            return "has none", None
        text = f"{side.way} in copy-mode"
        side.agent.tmux("copy-mode", "-t", side.agent.pane)
        sent = self.send(side, text)
        at = self.arrives(text, HELD_SECONDS)
        left = time.monotonic()
        side.agent.keys("-X", "cancel")
        if at:
            return f"{at - sent:.2f} s", True
        at = self.arrives(text, 40)
        return (f"held back; {at - left:.1f} s after leaving", True) if at else ("lost", False)

    def after_clear(self, side):
        return self.renewed(side, CLEAR.get(self.provider, "/clear"), "after clear")

    def after_compaction(self, side):
        asked = len(self.model.asked)
        cell, holds = self.renewed(side, COMPACT.get(self.provider, "/compact"), "after compaction")
        if len(self.model.asked) <= asked + 1:
            return f"no compaction could be caused; {cell}", None
        return cell, holds

    def renewed(self, side, command, situation):
        text = f"{side.way} {situation}"
        side.agent.type(command)
        side.rest()
        count = len(self.model.since(0))
        sent = self.send(side, text)
        at = self.arrives(text)
        if at is None:
            return "not in 20 s", False
        knows = any(self.has(one, side.name()) for one in self.model.since(0)[count:])
        name = "with its name" if knows else "without its name"
        if situation == "after clear" and self.is_left(side, text):
            return f"{at - sent:.2f} s, to the conversation that was left", False
        return f"{at - sent:.2f} s, {name}", knows

    def mail_waits_at_clear(self, side):
        """A person clears while a message waits behind an answer that is being written."""
        text, count = f"{side.way} waits at clear", self.model.set("slow")
        side.agent.type("write it")
        expect(settled(lambda: self.model.since(count), 20), "no turn has begun")
        sent = self.send(side, text)
        time.sleep(2)
        self.model.follow(side.reader)
        side.agent.keys("Escape")
        side.agent.type(CLEAR.get(self.provider, "/clear"))
        at = self.arrives(text, ARRIVES_SECONDS, after=sent)
        if at is None:
            return "lost: not in 20 s", False
        if self.is_left(side, text, "write it"):
            return f"{at - sent:.1f} s after it was sent, to a conversation that was left", False
        return f"{at - sent:.1f} s after it was sent", True

    def limit(self, side):
        text = f"{side.way} at a limit"
        count = self.model.set("429", retry_after=RETRY_AFTER_SECONDS)
        side.agent.type("go on")
        expect(settled(lambda: len(self.model.asked) > count, 20), "the model was not asked")
        time.sleep(HELD_SECONDS)
        self.send(side, text)
        time.sleep(HELD_SECONDS)
        self.model.follow(side.reader)
        over = time.monotonic()
        was_refused = self.arrives(text, 0) is not None
        at = self.arrives(text, LIMIT_SECONDS, after=over)
        if at is None:
            how = "spent in a refused request, " if was_refused else ""
            return f"{how}not in {LIMIT_SECONDS} s after the end", False
        return f"{at - over:.0f} s after the end", True

    def many_at_once(self, side):
        """Messages one after the other, without waiting for the agent. Each must be in the last requests, which have all."""
        texts = [f"{side.way} burst {number:04}." for number in range(BURST)]
        before, began = len(self.model.asked), time.monotonic()
        self.model.follow(side.reader, BURST_ANSWER_SECONDS)
        for text in texts:
            self.send(side, text)
        lost = texts

        def complete():
            nonlocal lost
            last = "".join(json.dumps(one.body, ensure_ascii=False) for one in self.model.since(before)[-2:])
            lost = [text for text in lost if text not in last]
            return not lost

        settled(complete, BURST_SECONDS)
        took = time.monotonic() - began
        requests = sum(not is_reminder(one) for one in self.model.since(before))
        return f"{len(lost)} of {BURST} lost; {many(requests, 'request')} in {took:.0f} s", not lost

    def killed(self, side):
        """The agent is killed while its model works on a message, and is started again."""
        if side.reader.__class__ is Reader:
            return "as by hooks: the same mailbox", None
        text, _ = f"{side.way} killed at work", self.model.set("slow")
        self.send(side, text)
        expect(self.arrives(text), "it never arrived")
        for pid in side.programs():
            os.kill(pid, signal.SIGKILL)
        expect(settled(lambda: not side.programs(), 20), "it lives")
        self.model.follow(side.reader)
        ended = time.monotonic()
        side.again()
        at = self.arrives(text, AGAIN_SECONDS.get(self.provider, READY_SECONDS), after=ended)
        return (f"back: {at - ended:.1f} s after the kill", True) if at else ("lost: not in a new session", False)


def many(count, noun):
    return f"{count} {noun}{'' if count == 1 else 's'}"
