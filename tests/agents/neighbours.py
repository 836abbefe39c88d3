"""Several agents of one kind in one home, each in a plain terminal, beside a session of the person's own."""

import subprocess

from checks import PACE_SECONDS, Checks, expect, rests
from providers import CONFIGURE
from reader import Correspondent, Settler
from scratch import settled
from sides import COMPOSERS, lets_sleep
from wrapped import READY_SECONDS, WrappedAgent

# Codex shares a server between all sessions of a home, unless it is told not to; Claude shares its settings.
KINDS = ("claude", "codex")


class Neighbours(Checks):
    def order(self):
        checks = [("two wrapped of one home", self.pair)] if self.provider in KINDS else []
        return [*checks, ("two Codex and a Claude", self.three)] if self.provider == "codex" else checks

    def recover(self):
        return self.agent is None

    def pair(self):
        """Each gets its own mail and is who it is for `ensemble`, also when it is started again."""
        model = Settler(before="ensemble agent whoami --json")
        self.model.follow(model)
        first = self.agent = WrappedAgent(self.scratch, self.provider, "-pair", twins=True,
                                          hooked=True)
        # A dialog that a home has once would be there for the first of them only.
        lets_sleep(first)
        second, plain = first.beside("w2"), first.plain()
        shown = lambda: COMPOSERS[self.provider] in "".join(plain.output.decode(errors="replace").split())
        expect(settled(shown, READY_SECONDS), "the plain session shows no composer")
        for agent in (first, second):
            self.begin(agent)
        self.exchange(model, {"w1": first, "w2": second}, ["w2", "w1", "w2"])
        first.keys("C-c", "C-c")
        expect(first.terminal.ended(20), "the wrapper has not ended")
        self.begin(first)
        self.exchange(model, {"w1": first, "w2": second}, ["w1", "w2"])
        code, text = first.run("down", "--force")
        expect(code == 0, f"down --force: exit {code}: {text}")
        plain.type("\x03\x03")
        expect(plain.ended(20), "the plain session has not ended")
        self.agent = None

    def begin(self, agent):
        agent.start()
        self.is_steady(agent, READY_SECONDS)

    def exchange(self, model, agents, names):
        del model.names[:]
        for name in names:
            agent = agents[name]
            code, said = agent.run("send", "--to", name, "-m", f"mail for {name}")
            expect(code == 0, f"send: exit {code}: {said}")
            drained = settled(lambda agent=agent: agent.waiting() == 0, 2 * PACE_SECONDS)
            expect(drained, f"the mail of {name} was not settled: {model.answers}; {agent.inspect()}")
            self.is_state(agent, "ready")
        expect(model.names == names, f"they are {model.names}: {model.answers}")

    def three(self):
        """Mail among three in one home and with the person, also after each was started again."""
        self.model.follow(Correspondent())
        first = self.agent = WrappedAgent(self.scratch, "codex", "-three")
        # A person who wraps agents has no such file.
        (first.project / "ensemble.yaml").unlink()
        second, third = first.beside("w2"), first.beside("w3")
        third.provider, third.hooked = "claude", True
        third.environment = {**first.environment, **CONFIGURE["claude"](third)}
        lets_sleep(third)
        agents = {"w1": first, "w2": second, "w3": third}
        for agent in agents.values():
            self.begin(agent)
        self.correspond(agents)
        for name, agent in agents.items():
            code, said = self.person(agent, "agent", "restart", name)
            expect(code != 0 and f"ensemble {agent.provider} --name {name}" in said, f"restart: exit {code}: {said}")
            agent.keys("C-c", "C-c")
            expect(agent.terminal.ended(20), f"the wrapper of {name} has not ended")
            self.begin(agent)
        self.correspond(agents)
        code, text = self.person(first, "down", "--force")
        expect(code == 0, f"down --force: exit {code}: {text}")
        self.agent = None

    def correspond(self, agents):
        """The person writes to each and gets an answer, and each writes to the next one."""
        names = list(agents)
        for name, other in zip(names, [*names[1:], names[0]]):
            before = self.passed_on(agents[other])
            for text in ("count the lines", f"pass this on to {other}"):
                code, said = self.person(agents[name], "send", "--to", name, text)
                expect(code == 0, f"send: exit {code}: {said}")
                self.are_settled(agents)
            code, said = self.person(agents[name], "recv")
            answered = code == 0 and f"{name} answered" in said and Correspondent.ANSWER in said
            expect(answered, f"the person did not get the answer of {name}: exit {code}: {said}")
            expect(self.passed_on(agents[other]) == before + 1, f"{other} did not get the mail of {name}")

    def are_settled(self, agents):
        """All mail has come and was ended."""
        def rest():
            return not any(agent.waiting() for agent in agents.values())

        # What is passed on may not be there yet when the first message is settled.
        drained = settled(lambda: rest() and rests(agents["w3"]) and rest(), 2 * PACE_SECONDS)
        expect(drained, f"mail waits: {[(name, agent.waiting(), agent.member()) for name, agent in agents.items()]}")

    @staticmethod
    def passed_on(agent):
        """How many messages that another agent has passed on were read and ended."""
        done = agent.project / "queue/mailbox" / agent.name / "done"
        files = done.iterdir() if done.exists() else []
        return sum(Correspondent.PASSED_ON in file.read_text() for file in files)

    @staticmethod
    def person(agent, *words):
        """What the person of this home runs, with no agent's name."""
        env = {name: value for name, value in agent.person().items() if name != "ENSEMBLE_AGENT_ID"}
        done = subprocess.run([agent.scratch.ensemble_path, *words], cwd=agent.project, env=env, text=True,
                              capture_output=True, timeout=120, stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout + done.stderr
