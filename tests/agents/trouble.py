"""What goes wrong at the start, and the step queue: each with an agent of its own."""

from checks import PACE_SECONDS, Checks, expect
from reader import Reader, Twins
from scratch import settled
from steps import NOTE, OUTCOMES, TASK, Queue, Worker

# What an agent cannot be brought to show without an account, or does not have at all.
ABSENT = {("opencode", "bad key"): "it prints the server's words, which no rule can know",
          ("gemini", "bad key"): "it prints the server's words, which no rule can know"}


class Trouble(Checks):
    def order(self):
        return [("not logged in", self.login), ("bad key", self.bad_key), ("step queue over MCP", self.steps),
                ("two of one home", self.twins)]

    def recover(self):
        if self.agent is not None:
            print("\n".join(f"    {line}" for line in self.agent.screen().splitlines() if line), flush=True)
        return True

    def login(self):
        self.model.follow(Reader())
        self.agent = self.other("-login", key=False)
        self.answer_dialogs(self.agent, "trust")
        self.is_state(self.agent, "login", 60)
        processes = self.agent.processes()
        self.held_back("not_ready", "dialog")
        expect(self.agent.processes() == processes, "the agent has ended")
        self.leave()

    def bad_key(self):
        if (self.provider, "bad key") in ABSENT:
            return ABSENT[self.provider, "bad key"]
        self.agent = self.other("-key")
        self.answer_dialogs(self.agent, "trust")
        self.is_state(self.agent, "ready", 90)
        self.model.set("401")
        self.agent.type("go on")
        self.is_state(self.agent, "login", 30)
        self.held_back("not_ready")
        # A person repairs that; the old error on the screen must not count any more.
        count = self.model.follow(Reader())
        self.agent.type("again")
        self.arrives(count)
        return self.leave()

    def twins(self):
        """Two agents of one home: each gets its own mail, and is who it is for `ensemble`."""
        both = Twins()
        self.model.follow(both)
        agent = self.agent = self.other("-twins", twins=True)
        second = agent.twin("w2")
        for one in (agent, second):
            self.answer_dialogs(one, "trust")
            self.is_state(one, "ready", 90)
        for name in ("w2", "w1", "w2"):
            code, said = agent.run("send", "--to", name, "-m", "mail")
            expect(code == 0, f"send: exit {code}: {said}")
            one = self.agent = second if name == "w2" else agent
            drained = settled(lambda one=one: one.waiting() == 0, 2 * PACE_SECONDS)
            expect(drained, f"the mail of {name} was not received: {both.answers}; {one.inspect()}")
            self.is_state(one, "ready")
        expect(both.names == ["w2", "w1", "w2"], f"they are {both.names}: {both.answers}")
        return self.leave()

    def leave(self):
        code, text = self.agent.run("down", "--force")
        expect(code == 0, f"down --force: exit {code}: {text}")
        self.agent = None

    def steps(self):
        """Three steps through the tools: success; failure, then its fix; blocked, then unblocked."""
        if (self.provider, "step queue over MCP") in ABSENT:
            return ABSENT[self.provider, "step queue over MCP"]
        self.model.set("text")
        agent = self.agent = self.other("-steps", mcp=True)
        expect(agent.installed[0] == 0, f"mcp install: {agent.installed[1].strip()}")
        self.answer_dialogs(agent, "trust")
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
        return self.leave()

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
        done = agent.project / "queue/mailbox/w1/done"
        settled(lambda: len(list(done.iterdir())) == 5, 10)
        expect(len(list(done.iterdir())) == 5, f"{len(list(done.iterdir()))} prompts are settled")
