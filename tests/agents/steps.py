"""A step queue, worked off by a real agent through the tools of `ensemble mcp`."""

import json
import re
import subprocess

from scratch import settled

TASK = "0-4-1"
PLAN = f"""task_id: {TASK}
orchestrator: conductor
steps:
  - {{agent: w1, goal: Write a failing test, files: [tests/login.rs]}}
  - {{agent: w1, goal: Make it pass, files: [src/login.rs], context: [tests/login.rs]}}
  - {{agent: w1, goal: Write it down}}
"""
NOTE = "docs/api.md is there now"
# What becomes of each hand-out, in order; the same as the table `step_runs` has it.
OUTCOMES = {1: ["success"], 2: ["failure", "success"], 3: ["blocked", "success"]}
STEP_SECONDS = 120
# The last words of a prompt, as they stand in a JSON string.
ABOUT = re.compile(r'task_id \\*"([^"\\]+)\\*", step_index (\d+), agent \\*"([^"\\]+)')


class Worker:
    """What the model does when it is told of mail: it takes the step, and reports it."""

    def __init__(self):
        self.handed, self.reported = [], []

    def answer(self, asked):
        if not asked.after_tool:
            return asked.call("recv", {})
        about = ABOUT.search(asked.result)
        if "ROLE: " not in asked.result or not about:
            return "Reported."
        self.handed.append(asked.result)
        report = {"task_id": about[1], "step_index": int(about[2]), "agent": about[3]}
        report.update(self.outcome(int(about[2]), asked.result))
        self.reported.append(report)
        return asked.call("submit_step_completion", report)

    @staticmethod
    def outcome(step, prompt):
        if step == 2 and "failed with this error" not in prompt:
            return {"status": "failure", "summary": "login_fails: 401 expected, 500 found"}
        if step == 3 and NOTE not in prompt:
            return {"status": "blocked", "blockers": ["docs/api.md is missing"]}
        return {"status": "success", "summary": f"step {step} is done, 1 of 1 tests pass",
                "context_for_next_step": f"left by step {step}"}


class Queue:
    """The queue in an agent's project, and its driver."""

    def __init__(self, agent):
        self.agent, self.driver = agent, None
        (agent.project / "plan.yaml").write_text(PLAN)
        self.added = agent.run("step", "add", "-f", "plan.yaml")

    def drive(self):
        self.driver = self.agent.popen("step", "run", TASK, "--timeout", "5m")

    def kill_driver(self):
        self.driver.kill()
        self.driver.wait()

    def show(self, step):
        code, text = self.agent.run("step", "show", TASK, str(step), "--json")
        return json.loads(text) if code == 0 else {"status": text, "runs": []}

    def reaches(self, step, status):
        return settled(lambda: self.show(step)["status"] == status, STEP_SECONDS)

    def outcomes(self):
        return {step: [run["outcome"] for run in self.show(step)["runs"]] for step in OUTCOMES}

    def ends(self):
        try:
            return self.driver.wait(timeout=STEP_SECONDS)
        except subprocess.TimeoutExpired:
            return None
