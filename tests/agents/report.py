"""The results as Markdown."""

import subprocess
import time
from dataclasses import dataclass

HEADING = "## Results\n"
# What was timed, from which event to the first request with the nudge, in this order.
TIMES = {
    "send": "`send`, median of 5", "send-keys": "bare `send-keys`, median of 5",
    "first mail": "`send`, after the last start", "a turn ends": "a turn of 12 s ends",
    "a draft is deleted": "a draft is deleted", "a key in the gap": "a person's key before our Enter",
    "a dialog is answered": "a permission dialog is answered", "copy-mode is left": "copy-mode is left",
    "limited": "429 with `retry-after` is over", "limited without end": "429 without an end is over",
    "assign returns": "`assign` to its return with the ack",
}


@dataclass
class Column:
    """One agent in panes of one width."""

    provider: str
    width: int
    version: str
    results: list
    times: dict

    @property
    def title(self):
        return f"{self.provider} {self.width}"

    def word(self, name):
        return next((word for check, word, _ in self.results if check == name), "–")

    def has_failed(self):
        return any(word == "fail" for _, word, _ in self.results)


def text(columns):
    """Date and versions, a line for each check, a line for each time, notes."""
    versions = ", ".join(f"{name} `{seen}`" for name, seen in {c.provider: c.version for c in columns}.items())
    tmux = subprocess.run(["tmux", "-V"], text=True, capture_output=True).stdout.strip()
    checks = list(dict.fromkeys(check for column in columns for check, _, _ in column.results))
    rows = [(check, [column.word(check) for column in columns]) for check in checks]
    times = [(label, [seconds(column.times.get(key)) for column in columns]) for key, label in TIMES.items()]
    notes = [f"* {c.title}, {check}: {word}: {note}" for c in columns for check, word, note in c.results if note]
    return "\n".join([f"{time.strftime('%Y-%m-%d')}: {versions}, {tmux}.", "",
                      *table("check, and columns of the pane", columns, rows), "",
                      *table("seconds until the model is asked", columns, times),
                      *(["", "Notes:", "", *notes] if notes else []), ""])


def table(corner, columns, rows):
    head = f"| {corner} | " + " | ".join(column.title for column in columns) + " |"
    lines = [f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows]
    return [head, "|---" * (len(columns) + 1) + "|", *lines]


def seconds(value):
    return "–" if value is None else f"{value:.2f}" if value < 10 else f"{value:.0f}"


def write(document, results):
    """Replaces what stands below the last heading of the document."""
    whole = document.read_text()
    document.write_text(whole[:whole.index(HEADING)] + HEADING + "\n" + results)
