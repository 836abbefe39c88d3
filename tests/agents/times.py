"""From `ensemble send` to the first request at the model, beside a bare `tmux send-keys` in the same minute."""

import re
import statistics
import time
from pathlib import Path

from checks import expect, rests
from reader import Reader
from scratch import settled

PAIRS = 5
# Ours may take so many times the bare keystrokes and so many seconds: a start of `ensemble`, a look by the
# watcher, another look before Enter. Twice what a loaded machine with two processors needs.
RATIO_MAX, SLACK_SECONDS = 3.0, 1.0
PROFILES = Path(__file__).resolve().parents[2] / "crates/ensemble-tmux/src/provider/profiles"
ASKED_SECONDS = 30


def compare(checks):
    """The medians of both, taken in turns; fails above the ceiling."""
    ours, bare = [], []
    for _ in range(PAIRS):
        ours.append(by_mail(checks))
        bare.append(by_keys(checks))
    ours, bare = statistics.median(ours), statistics.median(bare)
    checks.times["send"], checks.times["send-keys"] = ours, bare
    limit = RATIO_MAX * bare + SLACK_SECONDS
    expect(ours <= limit, f"send took {ours:.2f} s, bare keys {bare:.2f} s, the limit is {limit:.2f} s")


def by_mail(checks):
    count = at_rest(checks)
    sent = checks.send()
    return checks.arrives(count) - sent


def by_keys(checks):
    """The same line with the same pause before Enter, and no look at the pane."""
    agent, count = checks.agent, at_rest(checks)
    began = time.monotonic()
    agent.tmux("send-keys", "-t", agent.pane, "-l", "--", "ensemble: 0 messages for w1. Say that you understood")
    time.sleep(enter_delay(checks.provider))
    agent.keys("Enter")
    expect(settled(lambda: checks.model.since(count), ASKED_SECONDS), "bare keys never reached the model")
    checks.is_state(agent, "ready")
    return checks.model.since(count)[0].at - began


def at_rest(checks):
    checks.is_state(checks.agent, "ready")
    rests(checks.agent)
    return checks.model.follow(Reader())


def enter_delay(provider):
    """Seconds before Enter, as the provider's profile has them."""
    text = (PROFILES / f"{provider}.yaml").read_text()
    return int(re.search(r"^enter_delay_ms: (\d+)", text, re.M)[1]) / 1000
