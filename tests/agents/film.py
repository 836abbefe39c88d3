"""A film of terminals as an SVG that plays by itself; where it is not played, its last frame is shown."""

import re
import unicodedata
from html import escape

WIDTH, HEIGHT, MARGIN = 8, 17, 14
PAPER, INK, FAINT, STRIP = "#14171a", "#e8eaec", "#9aa5ad", "#2b3137"
COLOURS = ["#484f58", "#ff7b72", "#57c785", "#e3b341", "#79b8ff", "#d2a8ff", "#76e3ea", "#e8eaec"]
STEPS = [0, 95, 135, 175, 215, 255]


def indexed(number):
    """A colour of the palette of 256."""
    if number < 16:
        return COLOURS[number % 8]
    if number >= 232:
        return "#%02x%02x%02x" % ((8 + 10 * (number - 232),) * 3)
    number -= 16
    return "#%02x%02x%02x" % (STEPS[number // 36], STEPS[number // 6 % 6], STEPS[number % 6])


def styled(line):
    """The pieces of a line as `tmux capture-pane -e` prints it: text, colour, background, bold."""
    ink, paper, bold, faint, swapped = None, None, False, False, False
    for piece in re.split(r"(\x1b\[[0-9;:]*m)", line):
        if not piece.startswith("\x1b["):
            # tmux also marks links and switches character sets.
            text = re.sub(r"\x1b\]8;[^\x1b]*\x1b\\|\x0e|\x0f", "", piece)
            front, back = ink or (FAINT if faint else INK), paper
            yield (text, back or PAPER, front, bold) if swapped else (text, front, back, bold)
            continue
        codes = [int(code or 0) for code in re.split("[;:]", piece[2:-1])]
        while codes:
            code = codes.pop(0)
            if code in (38, 48):
                kind = codes.pop(0)
                colour = indexed(codes.pop(0)) if kind == 5 else "#%02x%02x%02x" % tuple(codes.pop(0) for _ in "rgb")
                ink, paper = (colour, paper) if code == 38 else (ink, colour)
            elif code == 0:
                ink, paper, bold, faint, swapped = None, None, False, False, False
            elif code in (1, 2, 22):
                bold, faint = code == 1 or bold and code == 2, code == 2 or faint and code == 1
            elif code in (7, 27):
                swapped = code == 7
            elif code % 10 < 8 and code // 10 in (3, 9):
                ink = COLOURS[code % 10]
            elif code % 10 < 8 and code // 10 in (4, 10):
                paper = COLOURS[code % 10]
            elif code in (39, 49):
                ink, paper = (None, paper) if code == 39 else (ink, None)


def cells(text):
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def drawn_line(line, row, out):
    x, y = MARGIN, MARGIN + row * HEIGHT
    for text, ink, paper, bold in styled(line):
        length = cells(text) * WIDTH
        if paper and length:
            out.append(f'<rect x="{x}" y="{y}" width="{length}" height="{HEIGHT}" fill="{paper}"/>')
        # Spaces are not drawn: each run of words has its place.
        for words in re.finditer(r"\S+(?: \S+)*", text):
            at, long = x + cells(text[:words.start()]) * WIDTH, cells(words[0]) * WIDTH
            weight = ' font-weight="700"' if bold else ""
            out.append(f'<text x="{at}" y="{y + 13}" textLength="{long}" fill="{ink}"{weight}>{escape(words[0])}</text>')
        x += length


def drawn_frame(terminals, columns):
    """One frame: each terminal is a title on a strip, and its lines."""
    out, row = [], 0
    for title, lines in terminals:
        y = MARGIN + row * HEIGHT
        out.append(f'<rect x="0" y="{y - 2}" width="{columns * WIDTH + 2 * MARGIN}" height="{HEIGHT + 3}" fill="{STRIP}"/>')
        drawn_line(f"\x1b[1m{title}", row, out)
        for line in lines:
            row += 1
            drawn_line(line, row, out)
        row += 2
    return "\n".join(out), row


def write_film(path, title, frames, columns):
    whole, begin, style, groups, rows = sum(stays for _, stays in frames), 0, [], [], 0
    for number, (terminals, stays) in enumerate(frames):
        group, rows = drawn_frame(terminals, columns)
        hidden = ' visibility="hidden"' if number + 1 < len(frames) else ""
        groups.append(f'<g id="s{number}"{hidden}>\n{group}\n</g>')
        first, last = begin * 100 / whole, (begin + stays) * 100 / whole
        style.append(f"#s{number} {{ animation: k{number} {whole}ms step-end infinite }} @keyframes k{number} {{ "
                     f"0% {{ visibility: hidden }} {first:.3f}% {{ visibility: visible }} "
                     f"{last:.3f}% {{ visibility: hidden }} }}")
        begin += stays
    width, height = columns * WIDTH + 2 * MARGIN, rows * HEIGHT + MARGIN
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(title)}" font-size="13" '
        "font-family=\"ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace\">\n"
        f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>\n'
        "<style>@media (prefers-reduced-motion: no-preference) {\n" + "\n".join(style) + "\n}</style>\n"
        + "\n".join(groups) + "\n</svg>\n")
