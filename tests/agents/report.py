"""The results as Markdown."""

import os
import statistics
import subprocess
import time
from dataclasses import dataclass

from checks import Result

HEADING = "## Results\n"
MISSED = "missed"
# The columns of the matrix.
WAYS = ("hooks", "terminal", "keys", "hcom", "send-keys")
NOTE_CHARACTERS = 200
# What was timed, from which event to the first request with the nudge, in this order.
TIMES = {
    "hook idle": "hook: idle, median of 3", "hook working": "hook: mail while a tool of 4 s runs",
    "hook draft": "hook: beside a draft", "hook after clear": "hook: after `/clear`",
    "wrapped idle": "plain terminal: idle, median of 3",
    "wrapped working": "plain terminal: mail while a tool of 4 s runs",
    "wrapped draft": "plain terminal: beside a draft", "wrapped after clear": "plain terminal: after `/clear`",
    "plugin idle": "plugin: idle, median of 3", "plugin working": "plugin: mail while a tool of 4 s runs",
    "plugin draft": "plugin: beside a draft", "plugin after clear": "plugin: after `/clear`",
    "send": "`send`, median of 5", "send-keys": "bare `send-keys`, median of 5",
    "first mail": "`send`, after the last start", "a turn ends": "a turn of 12 s ends",
    "a draft is deleted": "a draft is deleted", "a key in the gap": "a person's key before our Enter",
    "a dialog is answered": "a permission dialog is answered", "copy-mode is left": "copy-mode is left",
    "limited": "429 with `retry-after` ends", "limited without end": "429 without `retry-after` ends",
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
    # What the matrix has found: by situation and way.
    cells: dict

    @property
    def title(self):
        return f"{self.provider} {self.width}"

    def names(self):
        return [result.name for result in self.results]

    def word(self, name):
        result = next((result for result in self.results if result.name == name), None)
        return "–" if result is None else f"{result.word} *" if result.repeats else result.word

    def has_failed(self):
        """Whether a check has failed, or was never reached."""
        return any(result.word in ("fail", MISSED) for result in self.results)

    def add_missed(self, names, again):
        """Adds the checks that were not reached at first, as they were walked later."""
        first = Result("", MISSED, "an earlier check had left no agent that could be used", 0)
        for name in names:
            found = next((result for result in again.results if result.name == name), None)
            result = found or Result(name, MISSED, first.note, 0)
            result.repeats = first if found else None
            self.results.append(result)
        self.times.update(again.times)
        self.cells.update(again.cells)

    def notes(self):
        for result in self.results:
            if result.repeats:
                first = result.repeats
                if first.word == MISSED:
                    yield f"* {self.title}, {result.name}: walked apart, since {first.note}: {result.word} {result.note}".rstrip()
                    continue
                yield (f"* {self.title}, {result.name}: failed at a load of {first.load:.1f} ({short(first.note)}), "
                       f"and was walked again alone: {result.word} {result.note}".rstrip())
            elif result.note:
                yield f"* {self.title}, {result.name}: {result.word}: {short(result.note)}"

    def load(self):
        loads = [result.load for result in self.results if result.word != MISSED] or [0]
        return f"{statistics.median(loads):.1f}, {max(loads):.1f}"


def stamp(columns):
    """Date, versions and machine."""
    versions = ", ".join(f"{name} `{seen}`" for name, seen in {c.provider: c.version for c in columns}.items())
    tmux = subprocess.run(["tmux", "-V"], text=True, capture_output=True).stdout.strip()
    return f"{time.strftime('%Y-%m-%d')}: {versions}, {tmux}; {os.cpu_count()} processors"


def text(columns, minutes):
    """Date, versions and machine, a line for each check, a line for each time, notes."""
    checks = list(dict.fromkeys(check for column in columns for check in column.names()))
    rows = [(check, [column.word(check) for column in columns]) for check in checks]
    times = [(label, [seconds(column.times.get(key)) for column in columns]) for key, label in TIMES.items()]
    times.append(("load of the machine: median, highest", [column.load() for column in columns]))
    notes = [note for column in columns for note in column.notes()]
    return "\n".join([f"{stamp(columns)}, walked in {minutes:.0f} minutes.", "",
                      *table("check, and columns of the pane", columns, rows), "",
                      *table("seconds until the model is asked", columns, times),
                      *(["", "Notes:", "", *notes] if notes else []), ""])


def matrix(columns, whole=True):
    """Agent × way × situation: a table for each agent, a column for each way."""
    lines = [f"{stamp(columns)}."]
    for column in columns:
        # An evening has other rows and ways, and tables of its own.
        rows = list(dict.fromkeys(row for row, way in column.cells if way in WAYS))
        if not rows:
            continue
        lines += ["", f"#### {column.version}" if column.provider in column.version else
                  f"#### {column.provider} {column.version}", "",
                  "| situation | " + " | ".join(WAYS) + " |", "|---" * (len(WAYS) + 1) + "|"]
        for row in rows:
            cells = [column.cells.get((row, way), "–").replace("|", "¦") for way in WAYS]
            lines.append("| " + " | ".join([row, *cells]) + " |")
        lines += ["", f"Load of the machine: {column.load()} (median, highest)."]
    others = [f"* {column.title}, {row}, {way}: {cell}" for column in columns
              for (row, way), cell in column.cells.items() if way not in WAYS]
    lines += ["", *others] if others and whole else []
    return "\n".join([*lines, ""])


def table(corner, columns, rows):
    head = f"| {corner} | " + " | ".join(column.title for column in columns) + " |"
    lines = [f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows]
    return [head, "|---" * (len(columns) + 1) + "|", *lines]


def short(note):
    """A note without the screen that may follow its first words."""
    note = note.replace("|", "¦")
    return note if len(note) <= NOTE_CHARACTERS else note[:NOTE_CHARACTERS] + " …"


def seconds(value):
    return "–" if value is None else f"{value:.2f}" if value < 10 else f"{value:.0f}"


def write(document, results):
    """Replaces what stands below the last heading of the document."""
    whole = document.read_text()
    document.write_text(whole[:whole.index(HEADING)] + HEADING + "\n" + results)
