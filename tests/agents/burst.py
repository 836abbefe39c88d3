"""Many messages at once on a busy machine: each is settled, and no line of ours is left in a composer."""

import multiprocessing
import random
import signal
import time

from checks import Checks, expect
from hooked import WOKEN
from reader import Settler
from scratch import settled

BUSY_PROCESSES = 2
# A message, and while its turn begins the next ones: hooks and keys meet there.
ROUNDS, FOLLOWERS, PAUSE = 8, 5, (0.1, 0.6)
AT_ONCE = 40
DRAIN_SECONDS, READY_SECONDS = 240, 120
# The watcher looks at each pane every few seconds.
WITHDRAWN_SECONDS = 30


class Burst(Checks):
    def order(self):
        return [("a burst under load", self.burst)]

    def recover(self):
        if self.agent is not None:
            print("\n".join(f"    {line}" for line in self.agent.screen().splitlines() if line), flush=True)
        return True

    def burst(self):
        self.model.follow(Settler())
        # As `up` starts it by itself: Codex has no hooks then, and is reached by keys.
        agent = self.agent = self.other("-burst", hooked=True)
        self.answer_dialogs(agent, "trust")
        self.is_steady(agent, READY_SECONDS)
        if self.provider in WOKEN:
            expect(settled(lambda: agent.member()["way_in"] == "waiter", 20), "no waiter lives")
        load = [multiprocessing.get_context("fork").Process(target=spin, daemon=True) for _ in range(BUSY_PROCESSES)]
        for process in load:
            process.start()
        try:
            sent = sum(self.waves(agent))
        finally:
            for process in load:
                process.terminate()
                process.join()
        self.is_state(agent, "ready", 60)
        empty = settled(lambda: not self.holds_hint(agent), WITHDRAWN_SECONDS)
        expect(empty, f"a hint is left in the composer: {agent.screen()}")
        done = len([file for file in (agent.project / "queue/mailbox/w1/done").iterdir() if file.name.endswith(".yaml")])
        expect(done == sent, f"{sent} were sent, {done} are settled")
        code, text = agent.run("down", "--force")
        expect(code == 0, f"down --force: exit {code}: {text}")
        self.agent = None

    def waves(self, agent):
        """Sends; gives how many each time."""
        for _ in range(ROUNDS):
            self.send_all(agent, 1)
            time.sleep(random.uniform(*PAUSE))
            self.send_all(agent, FOLLOWERS)
            self.drained(agent)
            yield 1 + FOLLOWERS
        self.send_all(agent, AT_ONCE)
        self.drained(agent)
        yield AT_ONCE

    @staticmethod
    def send_all(agent, count):
        senders = [agent.popen("send", "--to", "w1", "-m", f"mail {number}") for number in range(count)]
        codes = [sender.wait(60) for sender in senders]
        expect(not any(codes), f"send: exit {codes}")

    def drained(self, agent):
        drained = settled(lambda: agent.waiting() == 0, DRAIN_SECONDS)
        expect(drained, f"{agent.waiting()} of the messages wait or are held: {self.why()}")


def spin():
    """Keeps a processor busy."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    while True:
        pass
