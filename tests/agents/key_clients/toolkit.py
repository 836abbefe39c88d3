"""Writes each key that prompt_toolkit reports into DIRECTORY/keys, a line each."""

import pathlib
import sys

from prompt_toolkit.application import Application
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.layout import Layout, Window

directory = pathlib.Path(sys.argv[1])
bindings = KeyBindings()


def note(name, event):
    bytes_ = " ".join(str(ord(c)) for key in event.key_sequence for c in key.data)
    with open(directory / "keys", "a") as keys:
        keys.write(f"{name}: {bytes_}\n")


@bindings.add("<any>")
def _(event):
    note("other", event)


@bindings.add("escape", eager=True)
def _(event):
    note("escape", event)


@bindings.add("c-c")
def _(event):
    note("ctrl-c", event)


application = Application(layout=Layout(Window()), key_bindings=bindings)
application.run(pre_run=lambda: (directory / "ready").touch())
