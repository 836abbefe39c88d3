"""The way that users go: init, ensemble.yaml, up, mail in every state, assign, request shutdown, down."""

import os
import signal
import time

from checks import DIALOGS, LINE, PACE_SECONDS, Checks, expect, rests
from reader import Reader, nudge
from scratch import START_SECONDS, Agent, settled
from times import compare

DRAFT = "half a sentence that is not fin"
BUSY_SECONDS = 12
GAP_TRIES = 12
RETRY_AFTER_SECONDS = 15
# A limit without an end is probed after a minute.
PROBE_SECONDS = 100
# How long an agent has to draw what a person has typed.
PAINT_SECONDS = 5


class Walk(Checks):
    def order(self):
        return [
            ("up says which dialog waits", self.start), ("team", self.team), ("mail while idle", self.idle),
            ("mail while busy", self.busy), ("mail in a draft", self.draft),
            ("Enter in the gap", self.gap, ["x", "Enter"]), ("C-u in the gap", self.gap, ["C-u"]),
            ("backspaces in the gap", self.gap, ["-N", "90", "BSpace"]),
            ("mail in a permission dialog", self.permission), ("mail in copy-mode", self.copy_mode),
            ("mail after one Escape", self.escape),
            ("ping, pong on screen", self.ping, "screen"), ("ping, `ensemble agent pong`", self.ping, "shell"),
            ("assign: acked", self.assign), ("assign: silence", self.silence),
            ("429 with retry-after", self.limit, "limited", RETRY_AFTER_SECONDS),
            ("429 without an end", self.limit, "limited without end", None),
            ("shutdown refused", self.refused), ("shutdown agreed", self.agreed),
            ("up again", self.up_again), ("restart", self.restart),
            ("a renamed session", self.renamed), ("send beside send-keys", compare, self),
            ("crash, up again", self.crash), ("down", self.down),
        ]

    def start(self):
        self.model.follow(Reader())
        agent = self.agent = Agent(self.scratch, self.provider, trusted=False)
        code, said = agent.initialized
        expect(code == 0, f"init: exit {code}: {said}")
        code, said = agent.up()
        expect(code == 0, f"up: exit {code}: {said}")
        dialogs = DIALOGS[self.provider]
        for state, keys in dialogs:
            self.is_state(agent, state, 60)
            row = agent.member()
            expect(row["state"] == "blocked", f"team: {row['state']} ({row.get('why')})")
            processes = agent.processes()
            self.held_back("dialog")
            expect(agent.processes() == processes, "the agent has ended")
            self.press(agent, keys)
        self.is_state(agent, "ready", 90)
        if dialogs:
            self.arrives(0)
            expect("w1 waits for you: " + dialogs[0][0] in said, f"up said: {said}")

    def team(self):
        settled(lambda: self.agent.member()["state"] == "idle", 10)
        row = self.agent.member()
        expect(row["state"] == "idle", f"team: {row['state']} ({row.get('why')})")

    def idle(self):
        count = self.model.follow(Reader())
        sent = self.send()
        self.times["first mail"] = self.arrives(count) - sent
        expect(len(self.nudged(count)) == 1, f"{len(self.nudged(count))} nudges")

    def busy(self):
        count = self.model.set("slow")
        self.agent.type("work")
        expect(settled(lambda: self.model.since(count), START_SECONDS), "the model was not asked")
        self.is_state(self.agent, "busy")
        began = time.monotonic()
        self.held_back("busy")
        self.send("second mail")
        time.sleep(max(0, BUSY_SECONDS - (time.monotonic() - began)))
        release = self.model.release
        count, ended = self.model.follow(Reader()), time.monotonic()
        release.set()
        self.times["a turn ends"] = self.arrives(count) - ended
        prompts = [asked.prompt.splitlines()[-1] for asked in self.nudged(count)]
        expect(len(prompts) == 1 and prompts[0].startswith("ensemble: 2 "), f"asked: {prompts}")

    def draft(self):
        count = self.model.follow(Reader())
        self.agent.type(DRAFT, enter=False)
        self.is_state(self.agent, "draft")
        self.held_back("draft")
        self.agent.type("ished")
        settled(lambda: self.model.since(count), 15)
        sent = self.model.since(count)
        expect(sent and sent[0].prompt.endswith(DRAFT + "ished"), f"a person's line: {sent and sent[0].prompt}")
        self.arrives(count)
        count = self.model.follow(Reader())
        self.agent.type(DRAFT, enter=False)
        self.is_state(self.agent, "draft")
        self.held_back("draft")
        deleted = time.monotonic()
        self.agent.keys("C-u")
        self.times["a draft is deleted"] = self.arrives(count) - deleted

    @property
    def of_a_ready_agent(self):
        return [name for name, check, *_ in self.order() if check != self.start]

    def gap(self, keys):
        """A person is quicker than our Enter; what they left of our line is theirs, the mail is ours."""
        with self.agent.own_watcher() as watcher:
            for _ in range(GAP_TRIES):
                if self.is_met(watcher, keys):
                    return None
        return f"the gap was not met in {GAP_TRIES} tries"

    def is_met(self, watcher, keys):
        """Presses keys between our text and our Enter, unless our Enter was quicker."""
        count = self.model.follow(Reader())
        # The pane remembers what was typed before tmux answers. So no load decides who is first.
        self.agent.tmux("set-hook", "-g", "after-set-option", f"run-shell 'kill -STOP {watcher.pid}'")
        # `send` is not waited for: our Enter may be there before it has ended.
        sender = self.agent.popen("send", "--to", "w1", "-m", "mail")
        settled(lambda: LINE in self.bottom() or self.model.since(count), PACE_SECONDS)
        self.agent.tmux("set-hook", "-gu", "after-set-option")
        # With its Enter a line is no longer remembered as typed.
        is_met, pressed = LINE in self.bottom() and self.agent.holds_a_line_of_ours(), time.monotonic()
        if is_met:
            self.press_all(keys)
        watcher.send_signal(signal.SIGCONT)
        sender.wait(30)
        asked = self.arrives(count)
        if is_met:
            self.times["a key in the gap"] = max(asked - pressed, self.times.get("a key in the gap", 0))
        return is_met

    def press_all(self, keys):
        """Presses keys as a person in a hurry, and waits until the agent has taken them."""
        # Many of one kind go together; no agent takes those for a paste.
        for part in [keys] if "-N" in keys else [[key] for key in keys]:
            before = self.bottom()
            self.agent.keys(*part)
            settled(lambda: self.bottom() != before, PAINT_SECONDS)
        settled(lambda: LINE not in self.bottom() or "Enter" in keys, PAINT_SECONDS)

    def bottom(self):
        """The last lines, where a composer is, without blanks and edges."""
        lines = [line for line in self.agent.screen().splitlines() if line.strip()][-7:]
        return "".join(c for c in "".join(lines) if not c.isspace() and c not in "│┃")

    def permission(self):
        mark = self.agent.project / "mark"
        self.model.set("tool", f"touch {mark}")
        self.agent.type("go")
        self.is_state(self.agent, "permission", 30)
        self.held_back("dialog")
        expect(not mark.exists(), "the command was run")
        count, answered = self.model.follow(Reader()), time.monotonic()
        self.agent.keys("Escape")
        self.times["a dialog is answered"] = self.arrives(count) - answered

    def copy_mode(self):
        count = self.model.follow(Reader())
        self.agent.tmux("copy-mode", "-t", self.agent.pane)
        self.held_back("copy_mode")
        left = time.monotonic()
        self.agent.keys("-X", "cancel")
        self.times["copy-mode is left"] = self.arrives(count) - left

    def escape(self):
        """One Escape of a person at an agent that waits for input is nothing that mail has to wait for."""
        # Without an earlier turn Codex offers none to edit.
        self.idle()
        self.agent.keys("Escape")
        rests(self.agent)
        self.idle()

    def ping(self, pong):
        count = self.model.set("text", pong=pong)
        code, text = self.agent.run("agent", "ping", "w1")
        expect(code == 0, f"exit {code}: {text.strip()}")
        prompts = [asked.prompt.splitlines()[-1] for asked in self.model.since(count) if not asked.after_tool]
        expect(prompts == ["AGENT_TEAM_PING w1 1"], f"asked: {prompts}")
        self.is_state(self.agent, "ready")

    def assign(self):
        count = self.model.follow(Reader())
        began = time.monotonic()
        code, text = self.agent.run("assign", "w1", "-", "--task", "t-ack", "--wait", "60s", text="a task")
        expect(code == 0, f"assign: exit {code}: {text}")
        self.times["assign returns"] = time.monotonic() - began
        self.arrives(count)

    def silence(self):
        """A worker that answers pings and never takes its task: a nudge at once and in each phase."""
        agent, processes = self.agent, self.agent.processes()
        count = self.model.follow(Reader(receives=False))
        code, text = agent.run("assign", "w1", "-", "--task", "t1", "--wait", "90s", text="a task")
        expect(code == 1, f"assign: exit {code}: {text}")
        expect(agent.processes() == processes, "the agent has ended")
        expect((agent.project / "queue/reports/escalation-t1.yaml").exists(), "the conductor was not told")
        asked = [asked for asked in self.model.since(count) if not asked.after_tool]
        others = [one.prompt for one in asked if not nudge(one) and "AGENT_TEAM_PING" not in one.prompt]
        expect(not others, f"asked: {others}")
        # One at once and one a phase; the watcher reminds by its own pace, too.
        expect(4 <= len(self.nudged(count)) <= 7, f"{len(self.nudged(count))} nudges have arrived")
        # Claude Code puts what it adds itself into parts of their own, of which nothing is left here.
        expect(any(len([said for said in one.prompts if said]) == 1 for one in asked), "the context was not reset")
        self.model.follow(Reader())
        agent.run("agent", "nudge", "w1")
        drained = settled(lambda: agent.waiting() == 0, 2 * PACE_SECONDS)
        expect(drained, f"the last attempt stays: {self.why()}")
        self.is_state(agent, "ready")

    def limit(self, name, retry_after):
        """An agent that met a limit gets its mail once that is over, without a person."""
        self.model.set("429", retry_after=retry_after)
        self.agent.type("go on")
        word = settled(lambda: self.agent.state() in ("rate_limited", "busy"), 15) and self.agent.state()
        expect(word, f"seen: {self.agent.state()}")
        settled(lambda: self.agent.state() == "rate_limited", 10)
        expect(word or self.agent.state() in ("rate_limited", "busy"), f"seen: {self.agent.state()}")
        self.send()
        settled(lambda: False, 5)
        count, over = self.model.follow(Reader()), time.monotonic()
        self.times[name] = self.arrives(count, PROBE_SECONDS) - over

    def refused(self):
        self.model.follow(Reader(approves=False))
        processes = self.agent.processes()
        code, text = self.agent.run("request", "shutdown", "w1", "--wait", "60s")
        expect("reject" in text, f"exit {code}: {text}")
        self.is_state(self.agent, "ready")
        expect(self.agent.processes() == processes, "the agent has ended")

    def agreed(self):
        self.model.follow(Reader())
        code, text = self.agent.run("request", "shutdown", "w1", "--wait", "60s")
        expect(code == 0 and "approve" in text, f"exit {code}: {text}")
        gone = settled(lambda: self.agent.member()["state"] in ("gone", "shutdown"), 30)
        expect(gone, f"team: {self.agent.member()}")

    def up_again(self):
        code, said = self.agent.up()
        expect(code == 0, f"up: exit {code}: {said}")
        self.is_state(self.agent, "ready", 60)
        rests(self.agent)
        self.idle()

    def restart(self):
        self.model.follow(Reader())
        processes = self.agent.processes()
        code, said = self.agent.run("agent", "restart", "w1")
        expect(code == 0, f"restart: exit {code}: {said}")
        self.agent.pane = self.agent.find_pane()
        self.is_state(self.agent, "ready", 90)
        expect(not set(processes) & set(self.agent.processes()), "it was not started again")
        rests(self.agent)
        self.idle()

    def renamed(self):
        """A person gives the tmux session another name: nothing is started, nothing ends."""
        before = self.agent.processes()
        self.agent.tmux("rename-session", "renamed")
        code, said = self.agent.run("up")
        expect(code == 0, f"up: exit {code}: {said}")
        expect(self.agent.processes() == before, f"other processes run in its pane: {said}")
        marked = self.agent.tmux("list-panes", "-a", "-F", "#{window_name}").splitlines()
        expect(marked.count("w1") == 1, f"panes: {marked}")
        self.idle()

    def crash(self):
        """What is killed is gone, nothing is typed there, and `up` brings it back to its mail."""
        for pid in self.agent.processes()[1:] or self.agent.processes():
            os.kill(int(pid), signal.SIGKILL)
        gone = settled(lambda: self.agent.member()["state"] == "gone", 20)
        expect(gone, f"team: {self.agent.member()}")
        count = self.model.follow(Reader())
        self.send()
        settled(lambda: self.model.since(count), 4)
        expect(not self.model.since(count), "the model was asked")
        code, said = self.agent.up()
        expect(code == 0, f"up: exit {code}: {said}")
        self.arrives(count, 90)

    def down(self):
        self.model.follow(Reader())
        code, text = self.agent.run("down", "--deadline", "40s")
        expect(code == 0, f"down: exit {code}: {text}")
        settled(lambda: not self.scratch.processes(), 10)
        left = self.scratch.processes()
        expect(not left, f"processes are left: {left}")
        expect(not self.agent.socket.exists(), "the socket is left")
        self.agent = None
