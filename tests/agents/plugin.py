"""Each agent with its plugin from `plugins/`, installed from that directory as a person does, and no other hooks."""

import subprocess
from pathlib import Path

from checks import expect
from hooked import Hooked
from providers import CONFIGURE
from scratch import settled

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"
# The agents' own commands, and what a person answers to their questions.
INSTALL = {
    "claude": [["claude", "plugin", "marketplace", "add", PLUGINS], ["claude", "plugin", "install", "ensemble@ensemble"]],
    "codex": [["codex", "plugin", "marketplace", "add", PLUGINS], ["codex", "plugin", "add", "ensemble@ensemble"]],
    "gemini": [["gemini", "extensions", "install", PLUGINS / "gemini", "--consent"]],
    "opencode": [["opencode", "plugin", "--global", PLUGINS / "opencode"]],
}
ANSWERS = "y\ny\n"


class Plugin(Hooked):
    KIND = "plugin"
    PROVIDERS = tuple(CONFIGURE)
    # The plugin of Codex has hooks, and starts no server.
    WOKEN = ("claude", "opencode")
    # Without a network OpenCode looks for the packages of plugins for minutes, and once more for the first session.
    ASKED, READY = 90, 300

    def order(self):
        # A person's own permission allows all of our commands here.
        return [entry for entry in super().order() if not entry[0].endswith("own verbs")]

    def ready_agent(self):
        self.model.set("text")
        agent = self.other("-plugin", prepare=self.install)
        if self.provider == "codex":
            expect(settled(lambda: "need review" in str(agent.inspect()), 60), "it asks for no trust in hooks")
            agent.keys("2")
            agent.keys("Enter")
        self.answer_dialogs(agent, "trust")
        self.is_steady(agent, self.READY)
        self.waits(agent)
        return agent

    def install(self, agent):
        env = {**self.scratch.environment(agent.home), **agent.environment}
        for words in INSTALL[self.provider]:
            done = subprocess.run([str(word) for word in words], env=env, cwd=agent.project, text=True, input=ANSWERS,
                                  capture_output=True, timeout=120)
            expect(done.returncode == 0, f"{' '.join(map(str, words))}: {done.stdout}{done.stderr}")
