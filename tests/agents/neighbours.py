"""Several agents of one kind in one home, each in a plain terminal, beside a session of the person's own."""

from checks import PACE_SECONDS, Checks, expect
from reader import Settler
from scratch import settled
from sides import COMPOSERS, lets_sleep
from wrapped import READY_SECONDS, WrappedAgent

# Codex shares a server between all sessions of a home, unless it is told not to; Claude shares its settings.
KINDS = ("claude", "codex")


class Neighbours(Checks):
    def order(self):
        return [("two wrapped of one home", self.pair)] if self.provider in KINDS else []

    def recover(self):
        return self.agent is None

    def pair(self):
        """Each gets its own mail and is who it is for `ensemble`, also when it is started again."""
        model = Settler(before="ensemble agent whoami --json")
        self.model.follow(model)
        first = self.agent = WrappedAgent(self.scratch, self.provider, "-pair", twins=True,
                                          hooked=self.provider != "codex")
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
