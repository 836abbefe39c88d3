"""`ensemble agent supervise` with the real agent: a task of the board, and mail that comes while the agent works."""

import json
import subprocess

from checks import Checks, expect
from scratch import Agent, settled

# How each is started for one task, without a person.
COMMANDS = {
    "claude": ["claude", "-p", "{prompt}", "--allowedTools", "Bash"],
    "codex": ["codex", "exec", "--sandbox", "danger-full-access", "-"],
}
WORK = "echo made > made && git add made && git commit -q -m made && ensemble task submit made"
TOOL_SECONDS = 6
FINISHED_SECONDS = 120
MAIL = "beside the task"


class Coder:
    """Runs one command for a while, then does the work, then ends."""

    def __init__(self):
        self.commands = [f"sleep {TOOL_SECONDS}", WORK]
        self.has_begun = False

    def answer(self, asked):
        self.has_begun = True
        return asked.shell(self.commands.pop(0), inside=True) if self.commands else "Done."


class Supervised(Checks):
    KIND = "supervised"

    def order(self):
        return [(f"{self.KIND}: mail beside a task", self.task)] if self.provider in COMMANDS else []

    @property
    def of_a_ready_agent(self):
        return []

    def recover(self):
        return False

    def task(self):
        # An earlier check that has failed may have left an agent.
        before = self.scratch.processes()
        agent = Agent(self.scratch, self.provider, "-supervised", hooked=True)
        environment = {**self.scratch.environment(agent.home), "GIT_CONFIG_COUNT": "2",
                       "GIT_CONFIG_KEY_0": "user.name", "GIT_CONFIG_VALUE_0": "A person",
                       "GIT_CONFIG_KEY_1": "user.email", "GIT_CONFIG_VALUE_1": "person@example.com"}
        for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "start"]):
            subprocess.run(["git", *words], cwd=agent.project, env=environment, check=True)
        agent.environment.update(environment)
        self.run_all(agent, ["board", "init"], ["board", "goal", "set", "goal", "-d", "A file", "--spec", "spec.md"],
                     ["task", "add", "made", "-d", "Make the file", "--spec", "spec.md", "--done-when", "it is there"],
                     ["board", "sprint", "start", "s-1", "--planned", "made"], ["board", "goal", "begin"])
        coder = Coder()
        count = self.model.follow(coder)
        watcher = agent.popen("watch")
        supervisor = agent.popen("agent", "supervise", "--role", "coder", "--name", "w1", "--", *COMMANDS[self.provider])
        try:
            expect(settled(lambda: coder.has_begun, FINISHED_SECONDS), "the agent never asked its model")
            row = agent.member()
            expect(row["state"] == "working", f"team: {row}")
            self.run_all(agent, ["send", "--to", "w1", "-m", MAIL])
            expect(settled(lambda: self.status(agent) == "READY_FOR_REVIEW", FINISHED_SECONDS),
                   f"the task is {self.status(agent)}: {self.told(agent)}")
            asked = self.model.since(count)
            comes = MAIL in json.dumps(asked[1].body)
            # Codex runs no hooks that no person has trusted: the mail waits for the next prompt.
            waits = [*(agent.project / "queue/mailbox/w1/new").iterdir(), *(agent.project / "queue/mailbox/w1/front").iterdir()]
            expect(comes or self.provider == "codex" and len(waits) == 1, "the mail was not in the next request")
        finally:
            for process in (supervisor, watcher):
                process.terminate()
                process.wait(60)
        left = [pid for pid in self.scratch.processes() if pid not in before]
        expect(not left, f"processes are left: {left}")

    @staticmethod
    def run_all(agent, *lines):
        for words in lines:
            code, said = agent.run(*words)
            expect(code == 0, f"{' '.join(words)}: exit {code}: {said}")

    @staticmethod
    def status(agent):
        code, said = agent.run("task", "show", "made", "--json")
        return json.loads(said)["status"] if code == 0 else said

    @staticmethod
    def told(agent):
        """The end of what the supervisor has said."""
        return (agent.home / "driver.log").read_text()[-600:]
