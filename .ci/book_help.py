#!/usr/bin/env python3
"""A preprocessor of mdBook: adds what the repository does not keep. The page of the commands gets the help of each one,
from the `ensemble` on PATH, and the page of measurements the curves in the directory CURVES."""
import json
import os
import subprocess
import sys

COMMANDS = "cli.md"
MEASUREMENTS = "evidence/measurements.md"


def printed(*words):
    return subprocess.run(["ensemble", *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def help_of_all():
    rows = [json.loads(line) for line in printed("admin", "schema", "commands").splitlines()]
    pages = [(row["place"], printed("help", *row["place"].split())) for row in rows]
    pages.insert(0, ("help --all", printed("help", "--all")))
    return "".join(f"\n## ensemble {place}\n\n```text\n{text.rstrip()}\n```\n" for place, text in pages)


def curves():
    names = sorted(os.listdir(os.environ["CURVES"]))
    return "\n".join(["", "## Curves", *(f"\n![{name[:-4]}](../curves/{name})" for name in names), ""])


def add_parts(items):
    for chapter in (item["Chapter"] for item in items if "Chapter" in item):
        if chapter["source_path"] == COMMANDS:
            chapter["content"] += help_of_all()
        if chapter["source_path"] == MEASUREMENTS:
            chapter["content"] += curves()
        add_parts(chapter["sub_items"])


def main():
    if sys.argv[1:2] == ["supports"]:
        return
    _, book = json.load(sys.stdin)
    add_parts(book.get("items", book.get("sections")))
    json.dump(book, sys.stdout)


main()
