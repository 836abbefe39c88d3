#!/usr/bin/env python3
"""A preprocessor of mdBook: turns the links of a page, which hold in the repository, into those of the book.

A page of the repository's root gets a place among the others. A link to any other file outside of the book leads to the
repository on the web. A link to a file that does not exist fails the build.
"""
import json
import os
import re
import sys

SOURCE = "docs"
WEB = "https://github.com/ensemble-broker/ensemble"
# Where pages of the root are in the book.
PLACES = {
    "../PROTOCOL.md": "protocol.md",
    "../SECURITY.md": "operating/security.md",
    "../ARCHITECTURE.md": "internals/architecture.md",
    "../CONTRIBUTING.md": "internals/contributing.md",
}
LINK = re.compile(r"(\]\()([^)\s]+)(\))")


def chapters(items):
    for item in items:
        if isinstance(item, dict) and "Chapter" in item:
            yield item["Chapter"]
            yield from chapters(item["Chapter"]["sub_items"])


def link_in_book(target, page, pages, root):
    """The address of a target in the book, as seen from a page."""
    path, _, anchor = target.partition("#")
    if not path or ":" in path:
        return target
    origin = os.path.normpath(f"{SOURCE}/{page}")
    path = os.path.normpath(os.path.join(os.path.dirname(origin), path))
    full = os.path.join(root, path)
    if not os.path.exists(full):
        sys.exit(f"{origin}: there is no {path}, to which it links")
    inside = os.path.relpath(path, SOURCE)
    is_asset = not inside.startswith("..") and os.path.isfile(full) and not path.endswith(".md")
    if inside in pages or is_asset:
        address = os.path.relpath(pages.get(inside, inside), os.path.dirname(pages[page]) or ".")
    else:
        address = f"{WEB}/{'tree' if os.path.isdir(full) else 'blob'}/main/{path}"
    return f"{address}#{anchor}" if anchor else address


def main():
    if sys.argv[1:2] == ["supports"]:
        return
    context, book = json.load(sys.stdin)
    root = context["root"]
    every = [chapter for chapter in chapters(book.get("items", book.get("sections"))) if chapter.get("path")]
    for chapter in every:
        chapter["path"] = PLACES.get(chapter["source_path"], chapter["path"])
    # A README.md is the index of its directory.
    pages = {chapter["source_path"]: chapter["path"] for chapter in every}
    for chapter in every:
        page = chapter["source_path"]

        def in_book(match, page=page):
            return match[1] + link_in_book(match[2], page, pages, root) + match[3]

        # What stands in fences is code and has no links.
        parts = re.split(r"(^```.*?^```$)", chapter["content"], flags=re.M | re.S)
        parts[::2] = [LINK.sub(in_book, part) for part in parts[::2]]
        chapter["content"] = "".join(parts)
    json.dump(book, sys.stdout)


main()
