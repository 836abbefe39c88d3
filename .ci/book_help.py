#!/usr/bin/env python3
"""A preprocessor of mdBook: adds the help of each command to the page of the commands. It asks the `ensemble` on PATH."""
import json
import subprocess
import sys

PAGE = "cli.md"


def printed(*words):
    return subprocess.run(["ensemble", *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def help_of_all():
    rows = [json.loads(line) for line in printed("admin", "schema", "commands").splitlines()]
    pages = [(row["place"], printed("help", *row["place"].split())) for row in rows]
    pages.insert(0, ("help --all", printed("help", "--all")))
    return "".join(f"\n## ensemble {place}\n\n```text\n{text.rstrip()}\n```\n" for place, text in pages)


def add_help(items):
    for chapter in (item["Chapter"] for item in items if "Chapter" in item):
        if chapter["source_path"] == PAGE:
            chapter["content"] += help_of_all()
        add_help(chapter["sub_items"])


def main():
    if sys.argv[1:2] == ["supports"]:
        return
    _, book = json.load(sys.stdin)
    add_help(book.get("items", book.get("sections")))
    json.dump(book, sys.stdout)


main()
