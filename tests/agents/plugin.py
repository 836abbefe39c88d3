"""Claude Code with the plugin of `plugins/claude`, installed from its directory as a person does, and no other hooks."""

import subprocess
from pathlib import Path

from checks import expect
from hooked import Hooked

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"


class Plugin(Hooked):
    KIND = "plugin"

    def order(self):
        return [one for one in super().order() if self.provider == "claude"]

    def ready_agent(self):
        self.model.set("text")
        agent = self.other("-plugin", prepare=self.install)
        self.answer_dialogs(agent, "trust")
        self.is_state(agent, "ready", 90)
        self.waits(agent)
        return agent

    def install(self, agent):
        env = {**self.scratch.environment(agent.home), **agent.environment}
        for words in (["marketplace", "add", str(PLUGINS)], ["install", "ensemble@ensemble"]):
            done = subprocess.run(["claude", "plugin", *words], env=env, cwd=agent.project, text=True,
                                  capture_output=True, timeout=120)
            expect(done.returncode == 0, f"claude plugin {' '.join(words)}: {done.stdout}{done.stderr}")
